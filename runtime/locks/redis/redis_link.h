/* A connection to the one of several Redis servers that is no replica: greeted, pipelined, and made again when it was
 * lost. Not a lock: it knows nothing of records, and repeats no command. Used by the Redis lock. */
#pragma once

#include "locks/lock_link.h"
#include "locks/redis/redis_place.h"
#include "locks/redis/redis_scripts.h"

struct redisReply;

#define REDIS_SENTINEL (-1) /* as db: it is a Sentinel, which has none */

/* A link (lock_link.h) whose answers are redisReply. place: whether to speak TLS, and how. url: hosts, user and
 * password. Both are borrowed, and outlive the link.
 * scripts: REDIS_SCRIPTS texts that the server is to keep; NULL: none. events: NULL: the owner is told nothing. push:
 * gets whatever comes, and no call is sent on such a link; NULL: only answers come. It is called with NULL when nothing
 * has come for a while, so that it sends something that is answered: without an answer the connection is given up. */
struct lock_link *redis_link_new(struct lock_env *env, const struct redis_place *place, const struct lock_url *url,
                                 int db, const char *const *scripts, const struct lock_link_events *events,
                                 void (*push)(void *arg, const struct redisReply *r), void *arg);

/* c's question, NULL-terminated. c: NULL: there is no answer, or nobody wants it. Only while the link is up. */
void redis_link_send(struct lock_link *link, struct lock_call *c, const char **words);

/* Which Sentinel has answered, by its process; "": it does not say. Only while the link is up. */
const char *redis_link_run_id(const struct lock_link *link);

/* Before a question about a key of a slot that is being moved to this server of a cluster (ASK): it is answered there,
 * and not sent back. */
void redis_link_send_asking(struct lock_link *link);

/* The digest by which EVALSHA names scripts[which]. NULL: the server would not keep it. */
const char *redis_link_script(const struct lock_link *link, int which);
