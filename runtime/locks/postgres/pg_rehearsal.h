/* Writes that change nothing, sent ahead of the first real ones of a session: the server looks up and plans a session's
 * first writes for milliseconds, and no handover is to wait for that. A link prepares what it has sent before.
 * Not a check of anything: nobody reads the answers. Used by the PostgreSQL servers (pg_server.h). */
#ifndef LUNARCH_PG_REHEARSAL_H
#define LUNARCH_PG_REHEARSAL_H

#include "locks/postgres/pg_link.h"

struct pg_rehearsal { /* private */
	struct lock_link *renewals, *terms;
	const int *users; /* locks that share the links. One alone sends its terms over the link of the renewals */
	char *table;
	bool leads, renewals_done; /* on this connection a term was begun; renewals were rehearsed */
};

/* The links outlive it, and so does the number. */
void pg_rehearsal_init(struct pg_rehearsal *r, struct lock_link *renewals, struct lock_link *terms, const int *users);
void pg_rehearsal_fini(struct pg_rehearsal *r);

/* There is a lock in this table (as pg_sql_quote gives it). The first one's is rehearsed with. */
void pg_rehearsal_use(struct pg_rehearsal *r, const char *table);

/* What has happened. A term has begun; the link of the renewals, that of the terms, is up; the former is down. A
 * rehearsal on the link of the renewals begins a moment later, by its tick, since somebody may be waiting right now. */
void pg_rehearsal_led(struct pg_rehearsal *r);
void pg_rehearsal_renewals_up(struct pg_rehearsal *r);
void pg_rehearsal_terms_up(struct pg_rehearsal *r);
void pg_rehearsal_renewals_down(struct pg_rehearsal *r);
void pg_rehearsal_tick(struct pg_rehearsal *r); /* of the link of the renewals */

#endif
