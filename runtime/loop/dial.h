/* A TCP connection to a host: looked up, each of its addresses tried in turn, all without blocking the loop.
 * Not a pool and no retry: what becomes of the socket is the caller's.
 * Used by lock backends whose client libraries would block while they connect. */
#ifndef LUNARCH_DIAL_H
#define LUNARCH_DIAL_H

#include "base/clock.h"
#include "base/err.h"

struct dial;
struct ev_loop;
struct offload;

/* fd: connected, not blocking, close-on-exec, without Nagle's delay (tcp(7)), and the callee's; a peer that
 * acknowledges nothing for 20 s is taken for dead. -1: *err names host and port. The handle is not valid any more. */
typedef void dial_done_fn(void *arg, int fd, const struct err *err);

/* done is called exactly once, from the loop, never from inside this call, at the latest at `by`, unless cancelled
 * first. */
struct dial *dial_start(struct ev_loop *loop, struct offload *offload, const char *host, int port, struct instant by,
                        dial_done_fn *done, void *arg);
void dial_cancel(struct dial *d); /* done is not called any more. NULL is nothing */

#endif
