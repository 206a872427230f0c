/* A TCP connection to a host: looked up, each of its addresses tried in turn, all without blocking the loop.
 * Not a pool: the socket belongs to the caller. It does not try again.
 * Used by lock backends whose client libraries would block while they connect, and by lunarch.tcp. */
#pragma once

#include "base/clock.h"
#include "base/err.h"

struct dial;
struct ev_loop;
struct offload;

/* fd: the connected socket, which the callback owns; non-blocking, close-on-exec, TCP_NODELAY. It fails if the peer
 * acknowledges nothing for 20 s (TCP_USER_TIMEOUT, tcp(7)). -1: *err says why, with host and port. The handle is not
 * valid any more. */
typedef void dial_done_fn(void *arg, int fd, const struct err *err);

/* done is called exactly once, from the loop, never from inside this call, at the latest at `by`, unless cancelled
 * first. turn: the number of the address that is tried first, counted round. A caller raises it after an attempt
 * whose connection was of no use, so that an address that takes connections and then says nothing is not always the
 * first. */
struct dial *dial_start(struct ev_loop *loop, struct offload *offload, const char *host, int port, unsigned turn,
                        struct instant by, dial_done_fn *done, void *arg);
void dial_cancel(struct dial *d); /* done is not called any more. NULL is nothing */
