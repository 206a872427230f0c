/* Room locks/zookeeper: a record in a node of ZooKeeper.
 *
 * A session with the one of several ZooKeeper servers that serves, made again when it was lost.
 * Not a lock, and no ephemeral nodes: what a session dies of means nothing to who leads.
 * Used by the ZooKeeper lock. */
#pragma once

#include "locks/lock_link.h"

#include <zookeeper/zookeeper.h>

/* A link (lock_link.h). Of struct lock_call only `ready` and `lost` are called: answers come to zookeeper's own
 * completions, every one of which is called, with ZCONNECTIONLOSS or ZCLOSING when the session is lost. url: hosts,
 * user and password; borrowed, outlives the link. */
struct lock_link *zk_link_new(struct lock_env *env, const struct lock_url *url, const struct lock_link_events *events,
                              void *arg);

/* Of the server that the link goes to, or went to last: "3.8.0"; "": it does not say. Borrowed. */
const char *zk_link_version(const struct lock_link *link);

/* To send requests by now, which leave together with zk_link_send. NULL: the link is down. */
zhandle_t *zk_link_handle(struct lock_link *link);
void zk_link_send(struct lock_link *link);

/* As lock_link_late; not while the library is at work. */
void zk_link_late(struct lock_link *link, struct instant sent_at);
