/* The prepared statements of a PostgreSQL session. Planning takes the server longer than carrying out, so what comes
 * again is planned once. Not a queue: the link says when it sends. Used by the link. */
#ifndef LUNARCH_PG_PREPARED_H
#define LUNARCH_PG_PREPARED_H

#include "locks/lock_pipeline.h"
#include "locks/postgres/pg_statement.h"

#define PG_PREPARED 12 /* of a connection: a table has seven */

struct pg_prepared {
	struct lock_call call;
	struct pg_prepared_set *set;
	char *sql; /* NULL: a free place */
	char name[32];
	enum { PG_ASKED, PG_READY, PG_FAILED } state;
};

struct pg_prepared_set { /* private; zero at the start of a session */
	struct pg_prepared each[PG_PREPARED];
	bool plain; /* nothing is prepared (any more) */
};

/* From now on nothing is prepared: another session may get the next statement. */
void pg_prepared_stop(struct pg_prepared_set *set);

/* Puts the statement into the pipeline, by its name if the server has prepared it. false: the connection is broken. */
bool pg_prepared_send(const struct pg_prepared_set *set, PGconn *conn, const struct pg_statement *s);

/* Asks the server to prepare it. NULL: there is nothing to do. Else the call to which the answer goes; the link ends
 * the question. *good: false: the connection is broken. */
struct lock_call *pg_prepared_want(struct pg_prepared_set *set, PGconn *conn, const struct pg_statement *s, bool *good);

/* r: any result of the session. Some say that its prepared statements are of no use. */
void pg_prepared_look(struct pg_prepared_set *set, const PGresult *r);

/* The session is over: queue forgets what was asked. */
void pg_prepared_clear(struct pg_prepared_set *set, struct lock_pipeline *queue);

#endif
