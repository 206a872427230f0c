#include "loop/resolve.h"

#include "base/mem.h"
#include "loop/offload.h"

#include <ev.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOST_BYTES 256 /* a name has at most 253 (RFC 1035, 2.3.4) */

struct resolve {
	struct offload_job off;  /* the first field, so that a job is its look-up */
	struct offload *offload; /* NULL: no thread is needed */
	struct ev_loop *loop;    /* NULL: left to its thread, whose end frees it */
	ev_timer timer;
	resolve_done_fn *done;
	void *arg;
	int failed; /* what getaddrinfo returned */
	char host[HOST_BYTES], port[8];
	struct resolved result;
};

/* Calls getaddrinfo; may run on a thread. Keeps the first RESOLVE_MOST addresses. */
static void look_up(struct resolve *r, int flags)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC,
		                        .ai_socktype = SOCK_STREAM,
		                        .ai_flags = flags | AI_NUMERICSERV };
	struct addrinfo *all = NULL;

	r->failed = getaddrinfo(r->host, r->port, &hints, &all);
	if (r->failed)
		return;
	for (const struct addrinfo *a = all; a && r->result.count < RESOLVE_MOST; a = a->ai_next) {
		int i = r->result.count++;
		memcpy(&r->result.each[i].addr, a->ai_addr, a->ai_addrlen);
		r->result.each[i].len = a->ai_addrlen;
	}
	freeaddrinfo(all);
}

static void resolve_work(struct offload_job *off)
{
	look_up((struct resolve *)off, AI_ADDRCONFIG);
}

static void resolve_explain(struct resolve *r)
{
	struct err *e = &r->result.err;

	switch (r->failed) {
	case 0:
		return;
	case EAI_NONAME:
	case EAI_NODATA:
	case EAI_ADDRFAMILY:
		err_set(e, ERR_MISSING, "there is no host \"%s\": %s", r->host, gai_strerror(r->failed));
		return;
	case EAI_SYSTEM:
		err_set(e, ERR_UNREACHABLE, "the host \"%s\" could not be looked up: the resolver failed", r->host);
		return;
	default:
		err_set(e, ERR_UNREACHABLE, "the host \"%s\" could not be looked up: %s", r->host,
		        gai_strerror(r->failed));
	}
}

static void resolve_report(struct resolve *r)
{
	ev_timer_stop(r->loop, &r->timer);
	resolve_explain(r);
	r->done(r->arg, &r->result);
	free(r);
}

static void resolve_worked(struct offload_job *off)
{
	struct resolve *r = (struct resolve *)off;

	if (r->loop)
		resolve_report(r);
	else
		free(r);
}

/* Leaves the look-up to the thread that has begun it, which frees the memory when it comes back. true: no thread had
 * begun it. */
static bool resolve_leave(struct resolve *r)
{
	bool begun = r->offload && !offload_take_back(r->offload, &r->off);

	ev_timer_stop(r->loop, &r->timer);
	r->loop = NULL;
	if (!begun)
		free(r);
	return !begun;
}

static void resolve_on_timer(struct ev_loop *, ev_timer *w, int)
{
	struct resolve *r = w->data;
	struct resolved late = { .count = 0 };

	if (!r->offload) {
		resolve_report(r);
		return;
	}
	resolve_done_fn *done = r->done;
	void *arg = r->arg;
	char host[HOST_BYTES];
	memcpy(host, r->host, sizeof host);
	bool unbegun = resolve_leave(r);
	err_set(&late.err, ERR_TIMEOUT, "the host \"%s\" was not found before the deadline: %s", host,
	        unbegun ? "no thread was free to look it up" : "the resolver does not answer");
	done(arg, &late);
}

static void resolve_arm(struct resolve *r, nsec after)
{
	ev_now_update(r->loop);
	ev_timer_init(&r->timer, resolve_on_timer, (double)after / NSEC_PER_SEC, 0.);
	r->timer.data = r;
	ev_timer_start(r->loop, &r->timer);
}

/* Copies the host, without the brackets of "[::1]". false: it is too long. */
static bool take_host(struct resolve *r, const char *host)
{
	size_t len = strlen(host);

	if (len >= 2 && host[0] == '[' && host[len - 1] == ']') {
		host++;
		len -= 2;
	}
	snprintf(r->host, sizeof r->host, "%.*s", (int)(len < sizeof r->host ? len : sizeof r->host - 1), host);
	return len < sizeof r->host;
}

struct resolve *resolve_start(struct ev_loop *loop, struct offload *offload, const char *host, int port,
                              struct instant by, resolve_done_fn *done, void *arg)
{
	struct resolve *r = mem_zero(sizeof *r);

	*r = (struct resolve){
		.loop = loop, .done = done, .arg = arg, .off = { .work = resolve_work, .done = resolve_worked }
	};
	snprintf(r->port, sizeof r->port, "%d", port);
	if (!take_host(r, host) || !*r->host)
		r->failed = EAI_NONAME;
	else
		look_up(r, AI_NUMERICHOST);
	if (r->failed != EAI_NONAME || !*r->host || strlen(host) >= HOST_BYTES) {
		resolve_arm(r, 0); /* done is not called from inside resolve_start */
		return r;
	}
	r->offload = offload;
	resolve_arm(r, instant_until(by, clock_now()));
	offload_run(offload, &r->off);
	return r;
}

void resolve_cancel(struct resolve *r)
{
	resolve_leave(r);
}

void resolve_print(const struct sockaddr_storage *addr, socklen_t len, char *out)
{
	if (getnameinfo((const struct sockaddr *)addr, len, out, RESOLVE_TEXT, NULL, 0, NI_NUMERICHOST) != 0)
		snprintf(out, RESOLVE_TEXT, "?");
}
