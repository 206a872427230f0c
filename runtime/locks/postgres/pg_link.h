/* A connection to the one of several PostgreSQL servers that takes writes, with questions in a pipeline.
 * A server on an older timeline than was seen there is a primary that was replaced: it is not connected to.
 * Not a lock: it knows nothing of records, and repeats no statement. Used by the PostgreSQL lock. */
#pragma once

#include "locks/lock_link.h"
#include "locks/postgres/pg_url.h"

#define PG_STATEMENTS 3 /* of one question, which is a transaction, at most */

struct pg_statement {
	const char *sql;
	int count;
	const char *const *values; /* texts; NULL is null */
	bool again;                /* it is worth preparing, for the next time: where there is no pooler */
};

/* What `answered` of struct lock_call gets, once the transaction has ended. */
struct pg_answer {
	int count;
	PGresult *results[PG_STATEMENTS];
	const PGresult *error; /* the first; NULL: all went well, and it is committed */
};

struct pg_link_events { /* every member may be NULL */
	struct lock_link_events link;
	void (*notice)(void *arg, const char *channel, const char *payload);
	void (*tick)(void *arg); /* the time of lock_link_tick has come */
};

/* place: borrowed, outlives the link. Opens nothing yet. lock_link_free ends it. */
struct lock_link *pg_link_new(struct lock_env *env, struct pg_place *place, const struct pg_link_events *events,
                              void *arg);

/* c's question; NULL: nobody wants the answer. Does nothing unless the link is up. */
void pg_link_send(struct lock_link *link, struct lock_call *c, int count, const struct pg_statement *statements);

/* There is a pooler in between, so that a session's notices may go to somebody else. Known while the link is up. */
bool pg_link_pooled(const struct lock_link *link);

/* The server can say its timeline, which is another one after a promotion. Known while the link is up. */
bool pg_link_timed(const struct lock_link *link);
