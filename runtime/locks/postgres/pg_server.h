/* Room locks/postgres: a record in a row of PostgreSQL.
 *
 * A PostgreSQL server, as the locks of a process with the same URI share it: its links, its notices, and writes that
 * change nothing. Those are sent before the first real ones of a session, since the server looks up and plans a
 * session's first writes for milliseconds, and no hand-over is to wait for that. Not a link (pg_link.h). Used by the
 * PostgreSQL lock. */
#pragma once

#include "locks/lock_server.h"
#include "locks/postgres/pg_link.h"

/* A write that begins a term may have to wait for the transactions of an older term. The renewals of other locks must
 * not wait behind it, so terms have a link of their own. A process with one lock needs no second link: there is nobody
 * to delay, and a notice has just woken the first one at both ends. */
enum pg_pool { PG_RENEWALS, PG_TERMS, PG_POOLS };

struct pg_server {
	struct lock_server base; /* first */
	struct pg_place *place;
	struct lock_link *pools[PG_POOLS]; /* notices come with the renewals */
	bool was_up;
	char mark[17]; /* random: the beginning of each question's stamp */
	uint64_t asked;
	int advice;  /* so many users are next records, which are no locks */
	char *table; /* to rehearse with: the first lock's; NULL: none is known yet */
};

/* The one at this place, made if need be. Takes place. lock_server_put gives it back. */
struct pg_server *pg_server_get(struct lock_env *env, struct pg_place *place);

/* How many locks use it. */
int pg_server_locks(const struct pg_server *s);

/* acquiring: for a write that begins a term. */
struct lock_link *pg_server_link(const struct pg_server *s, bool acquiring);

/* A stamp that no question has had. out: PG_STAMP bytes. */
#define PG_STAMP 40
void pg_server_stamp(struct pg_server *s, char *out);

/* A lock in this table (as pg_sql_quote gives it; NULL: it is not known yet) waits for its turn. */
void pg_server_expect(struct pg_server *s, const char *table);
