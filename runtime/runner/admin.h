/* The admin endpoint (--listen): /leader, /healthz, /status and /metrics for load balancers, probes and monitoring.
 * Not the control socket: it takes no orders, and nothing about the election depends on it.
 * Used by program.c, which asks run and exec for their elections. */
#ifndef LUNARCH_ADMIN_H
#define LUNARCH_ADMIN_H

#include "base/clock.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct admin;
struct elector_status;
struct ev_loop;

#define ADMIN_BUCKETS 9

/* How long renewals took, from sending to the answer. Valid when zeroed. */
struct admin_renewals {
	uint64_t bucket[ADMIN_BUCKETS + 1]; /* up to each of the limits in admin.c; the last: longer */
	nsec sum;
};
void admin_renewed(struct admin_renewals *r, nsec took);

struct admin_election {   /* borrowed during the call */
	const char *name; /* of the election; "" = the lock's URL */
	const struct elector_status *status;
	nsec lease;           /* L */
	unsigned hook_errors; /* hooks that raised, or were killed */
	const struct admin_renewals *renewals;
};
/* Calls each once for every election there is now. */
typedef void admin_list(void *arg, void (*each)(void *each_arg, const struct admin_election *e), void *each_arg);

struct admin_source {
	admin_list *list;
	void *arg;
};

/* What the endpoint says at a path: an HTTP status, with body (appended) and, if it is not plain text, *type. */
struct buf;
int admin_answer(const struct admin_source *source, const char *path, struct buf *body, const char **type);

/* address: HOST:PORT, [IPV6]:PORT or :PORT (every address of the machine); port 0 = a free one, which the log says.
 * Resolves the host, which may block: call it before the loop runs. NULL with *err. */
struct admin *admin_new(struct ev_loop *loop, const char *address, const struct admin_source *source, struct err *err);
void admin_free(struct admin *a); /* NULL: does nothing */

#endif
