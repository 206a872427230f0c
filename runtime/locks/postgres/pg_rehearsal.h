/* Writes that change nothing, sent ahead of the first real ones of a session: the server looks up and plans a session's
 * first writes for milliseconds, and no handover is to wait for that. A link prepares what it has sent before.
 * Not a check of anything: nobody reads the answers. Used by the PostgreSQL servers (pg_server.h). */
#ifndef LUNARCH_PG_REHEARSAL_H
#define LUNARCH_PG_REHEARSAL_H

#include "locks/postgres/pg_link.h"

#include <ev.h>

struct pg_rehearsal { /* private */
	struct ev_loop *loop;
	struct pg_link *renewals, *terms;
	char *table;
	bool alone;
	bool leads, renewals_done; /* on this connection a term was begun; renewals were rehearsed */
	ev_timer settled;
};

/* The links outlive it. */
void pg_rehearsal_init(struct pg_rehearsal *r, struct ev_loop *loop, struct pg_link *renewals, struct pg_link *terms);
void pg_rehearsal_fini(struct pg_rehearsal *r);

/* There is a lock in this table (as pg_sql_quote gives it). The first one's is rehearsed with. */
void pg_rehearsal_use(struct pg_rehearsal *r, const char *table);

/* alone: there is one lock, whose terms go by the link of the renewals. */
void pg_rehearsal_alone(struct pg_rehearsal *r, bool alone);

/* What has happened. A term has begun; the link of the renewals, that of the terms, is up; that of the renewals is
 * down. A rehearsal on the link of the renewals begins a moment later, since somebody may be waiting right now. */
void pg_rehearsal_led(struct pg_rehearsal *r);
void pg_rehearsal_renewals_up(struct pg_rehearsal *r);
void pg_rehearsal_terms_up(struct pg_rehearsal *r);
void pg_rehearsal_down(struct pg_rehearsal *r);

#endif
