/* Looks host names up on a thread, with a deadline.
 * Not a cache and not a DNS client: it calls getaddrinfo(3), so /etc/hosts, nsswitch.conf and resolv.conf count as
 * for other programs. Used by dial.c, pg_login.c and zk_link.c; libcurl has a resolver of its own. */
#pragma once

#include "base/clock.h"
#include "base/err.h"

#include <sys/socket.h>

struct ev_loop;
struct offload;
struct resolve;

#define RESOLVE_MOST 8  /* addresses kept, in the order in which they are to be tried (RFC 6724) */
#define RESOLVE_TEXT 64 /* bytes for an address as text: IPv6 with a scope, and the terminator */

struct resolved {
	int count; /* 0: err says why, with the host's name */
	struct {
		struct sockaddr_storage addr;
		socklen_t len;
	} each[RESOLVE_MOST];
	struct err err; /* ERR_MISSING: there is no such host; ERR_TIMEOUT; ERR_UNREACHABLE: the resolver failed */
};

/* result is borrowed until the callback returns. */
typedef void resolve_done_fn(void *arg, const struct resolved *result);

/* host: a name, or an IPv4 or IPv6 address (with or without brackets), for which no thread is needed.
 * done is called exactly once, from the loop, never from inside this call, at the latest at `by`, unless cancelled
 * first. The handle is valid until done is called or resolve_cancel returns. */
struct resolve *resolve_start(struct ev_loop *loop, struct offload *offload, const char *host, int port,
                              struct instant by, resolve_done_fn *done, void *arg);

/* done is not called any more. A look-up that no thread has begun is never done; a thread that may still be in
 * getaddrinfo(3) is not waited for. On the loop, before offload_free. */
void resolve_cancel(struct resolve *r);

/* The address without its port, as getnameinfo(3) with NI_NUMERICHOST prints it. out: RESOLVE_TEXT bytes. */
void resolve_print(const struct sockaddr_storage *addr, socklen_t len, char *out);
