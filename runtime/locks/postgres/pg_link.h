/* A connection to the one of several PostgreSQL servers that takes writes: pipelined, and made again when it was lost.
 * A server on an older timeline than was seen there is a primary that was replaced: it is not connected to.
 * Not a lock: it knows nothing of records, and repeats no statement. Used by the PostgreSQL lock. */
#ifndef LUNARCH_PG_LINK_H
#define LUNARCH_PG_LINK_H

#include "locks/lock_pipeline.h"
#include "locks/postgres/pg_place.h"
#include "locks/postgres/pg_statement.h"

struct pg_link;

struct pg_link_events { /* every member may be NULL */
	void (*up)(void *arg);
	void (*down)(void *arg, enum lock_outcome why); /* LOCK_REFUSED: it does not want us */
	void (*notice)(void *arg, const char *channel, const char *payload);
};

/* place: borrowed, outlives the link. Opens nothing yet. */
struct pg_link *pg_link_new(struct lock_env *env, struct pg_place *place, const struct pg_link_events *events,
                            void *arg);
void pg_link_free(struct pg_link *link); /* may be called from its callbacks; nobody's call may be under way */

/* As redis_link's (redis_link.h). */
void pg_link_want(struct pg_link *link, struct lock_call *c);
void pg_link_raise(struct pg_link *link);
bool pg_link_is_up(const struct pg_link *link);
void pg_link_forget(struct pg_link *link, struct lock_call *c, bool late);

/* From a callback: what the server says is not to be believed. All who wait or were not answered lose it. */
void pg_link_drop(struct pg_link *link, enum err_code code, const char *why);

/* c's question, at most PG_STATEMENTS statements; NULL: nobody wants the answer. Only while the link is up. */
void pg_link_send(struct pg_link *link, struct lock_call *c, int count, const struct pg_statement *statements);

/* Questions that the server has not answered yet; it answers one after the other. */
size_t pg_link_asked(const struct pg_link *link);

/* There is a pooler in between, so that a session's notices may go to somebody else. Known while the link is up. */
bool pg_link_pooled(const struct pg_link *link);

/* The server can say its timeline, which is another one after a promotion. Known while the link is up. */
bool pg_link_timed(const struct pg_link *link);

#endif
