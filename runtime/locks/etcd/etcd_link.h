/* A connection to the one of several etcd servers that answers, by gRPC, perhaps over TLS.
 * Not a lock: it knows no message, repeats no call, and logs nobody in. Used by the etcd lock. */
#pragma once

#include "locks/lock_link.h"
#include "net/grpc/grpc.h"

#define ETCD_ANSWER_BYTES (8 * 1024 * 1024) /* of one message. A value has 1.5 MB unless etcd is told otherwise */

/* A link (lock_link.h). Of struct lock_call only `ready` and `lost` are called, and only while the call waits. Once
 * its question was sent, its struct grpc_call tells the end: with status -1 when the connection ends, and link->why
 * says why it did. url: hosts and the options of TLS; borrowed, outlives the link. */
struct lock_link *etcd_link_new(struct lock_env *env, const struct lock_url *url, bool tls,
                                const struct lock_link_events *events, void *arg);

/* As lock_link_is_up, and the server takes calls: not if it has just said that it goes. */
bool etcd_link_is_up(struct lock_link *link);

/* Begins a call, only while the link is up: of one message, or (lasts, message NULL) of those that are sent by
 * etcd_link_send. There is at most one that lasts; it ends at once when the server wants no more calls on this
 * connection, while others may still be answered. Calls that begin at the same time leave together, behind what is due
 * now, or with etcd_link_flush. */
void etcd_link_start(struct lock_link *link, struct grpc_call *c, const char *path, const char *const *metadata,
                     const struct buf *message, bool lasts);
void etcd_link_flush(struct lock_link *link);
void etcd_link_send(struct lock_link *link, struct grpc_call *c, const struct buf *message);
void etcd_link_cancel(struct lock_link *link, struct grpc_call *c); /* nothing if it is not under way */

/* Asks the server whether it is there (HTTP/2's PING). Only while the call that lasts is under way, and five seconds
 * after the last time at the earliest, else etcd ends the connection. If the last question was not answered, the
 * connection ends. */
void etcd_link_ping(struct lock_link *link);

/* The connection of this number (link->number) does not serve: it ends, and the next host is asked when somebody wants
 * the link. Nothing if it has ended before. May be called from everywhere. */
void etcd_link_leave(struct lock_link *link, uint64_t number, const struct err *why);

/* As lock_link_late. May be called from everywhere. */
void etcd_link_late(struct lock_link *link, struct instant sent_at);
