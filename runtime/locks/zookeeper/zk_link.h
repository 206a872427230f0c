/* A session with the one of several ZooKeeper servers that serves, made again when it was lost.
 * Not a lock, and no ephemeral nodes: what a session dies of means nothing to who leads.
 * Used by the ZooKeeper lock. */
#ifndef LUNARCH_ZK_LINK_H
#define LUNARCH_ZK_LINK_H

#include "locks/lock_pipeline.h"
#include "locks/lock_url.h"

#include <zookeeper/zookeeper.h>

struct zk_link;

struct zk_link_events { /* every member may be NULL */
	void (*up)(void *arg);
	void (*down)(void *arg);
};

/* url: hosts, user and password; borrowed, outlives the link. Opens nothing yet. */
struct zk_link *zk_link_new(struct lock_env *env, const struct lock_url *url, const struct zk_link_events *events,
                            void *arg);
/* Completions under way are called. Not from one of its callbacks' callers (a completion or a watcher). */
void zk_link_free(struct zk_link *link);

/* Of struct lock_call only `ready` and `lost` are called: answers come to zookeeper's own completions, every one of
 * which is called, with ZCONNECTIONLOSS or ZCLOSING when the session is lost. */
void zk_link_want(struct zk_link *link, struct lock_call *c);
void zk_link_leave(struct zk_link *link, struct lock_call *c); /* wants no more */
void zk_link_raise(struct zk_link *link);

/* Of the server that the link goes to, or went to last: "3.8.0"; "": it does not say. Borrowed. */
const char *zk_link_version(const struct zk_link *link);

/* NULL: the link is down. After each request: zk_link_sent. */
zhandle_t *zk_link_handle(const struct zk_link *link);
void zk_link_sent(struct zk_link *link);

/* A request that was sent then has had no answer by its deadline: if nothing at all was heard since, the session is
 * given up. */
void zk_link_late(struct zk_link *link, struct instant sent_at);

#endif
