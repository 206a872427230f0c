/* A connection to the one of several Redis servers that is no replica: greeted, pipelined, and made again when it was
 * lost. Not a lock: it knows nothing of records, and repeats no command. Used by the Redis lock. */
#ifndef LUNARCH_REDIS_LINK_H
#define LUNARCH_REDIS_LINK_H

#include "locks/lock_pipeline.h"
#include "locks/lock_url.h"

struct redisReply;
struct redis_link;

#define REDIS_SCRIPTS 2

/* What the link tells its owner; every member may be NULL. */
struct redis_link_events {
	void (*up)(void *arg);
	void (*down)(void *arg, enum lock_outcome outcome, const struct err *why);
	void (*push)(void *arg, const struct redisReply *r); /* whatever comes when nothing was asked: messages */
};

/* url: hosts, user and password; borrowed, outlives the link. scripts: REDIS_SCRIPTS texts that the server is to keep;
 * NULL: none. Opens nothing yet. */
struct redis_link *redis_link_new(struct lock_env *env, const struct lock_url *url, int db, const char *const *scripts,
                                  const struct redis_link_events *events, void *arg);
void redis_link_free(struct redis_link *link); /* may be called from its callbacks; nobody's call may be under way */

/* Calls c->ready once the link is up (answers are redisReply), now if it is; else it is brought up, and if that fails
 * c->lost is called, later. */
void redis_link_want(struct redis_link *link, struct lock_call *c);

/* Brings the link up for its events' sake. */
void redis_link_raise(struct redis_link *link);
bool redis_link_is_up(const struct redis_link *link);

/* c's question; NULL: one without an answer of its own (SUBSCRIBE: the answer is pushed). Only while the link is up. */
void redis_link_send(struct redis_link *link, struct lock_call *c, int count, const char **words, const size_t *lens);

/* The digest by which EVALSHA names scripts[which]. NULL: the server would not keep it. */
const char *redis_link_script(const struct redis_link *link, int which);

/* Its answer, if one comes, goes nowhere. late: its deadline has passed; a link on which nothing has been heard since
 * it was sent is given up then. */
void redis_link_forget(struct redis_link *link, struct lock_call *c, bool late);

/* This server is not the one: the next is asked, by who asks next. */
void redis_link_turn_away(struct redis_link *link, const char *why);

/* "127.0.0.1:6379", of the server asked last; and which of the URL's hosts that is. */
const char *redis_link_peer(const struct redis_link *link);
int redis_link_host(const struct redis_link *link);
bool redis_link_is_replica(const struct redis_link *link); /* as which it was turned down */

#endif
