#include "loop/dial.h"

#include "base/mem.h"
#include "loop/resolve.h"

#include <errno.h>
#include <ev.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DEAD_AFTER_MS 20000

struct dial {
	struct ev_loop *loop;
	struct resolve *lookup; /* NULL: the addresses are known */
	struct resolved all;
	unsigned turn;
	int next; /* how many addresses have been tried */
	int fd;   /* the socket that connects; -1: none */
	int port;
	char *host;
	ev_io writable;
	ev_timer timer; /* the end of the time for this address */
	struct instant by;
	dial_done_fn *done;
	void *arg;
};

static void dial_end(struct dial *d)
{
	if (d->lookup)
		resolve_cancel(d->lookup);
	ev_io_stop(d->loop, &d->writable);
	ev_timer_stop(d->loop, &d->timer);
	if (d->fd >= 0)
		close(d->fd);
	free(d->host);
	free(d);
}

/* Which of the addresses is the n-th to be tried. */
static int dial_address(const struct dial *d, int n)
{
	return (int)((d->turn + (unsigned)n) % (unsigned)d->all.count);
}

static void dial_finish(struct dial *d, int fd, const struct err *err)
{
	dial_done_fn *done = d->done;
	void *arg = d->arg;

	dial_end(d);
	done(arg, fd, err);
}

static void dial_fail(struct dial *d, int why)
{
	char address[RESOLVE_TEXT] = "";
	struct err err;

	if (d->next > 0) {
		int i = dial_address(d, d->next - 1);
		resolve_print(&d->all.each[i].addr, d->all.each[i].len, address);
	}
	err_set(&err, why == ETIMEDOUT ? ERR_TIMEOUT : ERR_UNREACHABLE, "cannot connect to %s port %d (%s): %s",
	        d->host, d->port, address, strerror(why));
	dial_finish(d, -1, &err);
}

static void try_next(struct dial *d);

static void failed_here(struct dial *d, int why)
{
	ev_io_stop(d->loop, &d->writable);
	ev_timer_stop(d->loop, &d->timer);
	close(d->fd);
	d->fd = -1;
	if (d->next < d->all.count && !instant_passed(d->by, clock_now()))
		try_next(d);
	else
		dial_fail(d, why);
}

static void dial_on_timer(struct ev_loop *, ev_timer *w, int)
{
	failed_here(w->data, ETIMEDOUT);
}

static void set_options(int fd)
{
	int yes = 1, dead = DEAD_AFTER_MS, idle = 5, between = 5, probes = 3;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &dead, sizeof dead);
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof between);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

static void dial_on_writable(struct ev_loop *, ev_io *w, int)
{
	struct dial *d = w->data;
	socklen_t len = sizeof(int);
	int why = 0;

	if (getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &why, &len) < 0)
		why = errno;
	if (why) {
		failed_here(d, why);
		return;
	}
	int fd = d->fd;
	d->fd = -1;
	set_options(fd);
	dial_finish(d, fd, NULL);
}

/* Each address gets an equal part of the time that is left, so that one that does not answer leaves time for the
 * others. */
static void try_next(struct dial *d)
{
	int left = d->all.count - d->next, i = dial_address(d, d->next++);
	nsec time = instant_until(d->by, clock_now()) / left;

	d->fd = socket(d->all.each[i].addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (d->fd < 0) {
		if (left > 1)
			try_next(d);
		else
			dial_fail(d, errno);
		return;
	}
	if (connect(d->fd, (const struct sockaddr *)&d->all.each[i].addr, d->all.each[i].len) < 0 &&
	    errno != EINPROGRESS) {
		failed_here(d, errno);
		return;
	}
	ev_io_set(&d->writable, d->fd, EV_WRITE);
	ev_io_start(d->loop, &d->writable);
	ev_now_update(d->loop);
	ev_timer_set(&d->timer, (double)time / NSEC_PER_SEC, 0.);
	ev_timer_start(d->loop, &d->timer);
}

static void dial_on_resolved(void *arg, const struct resolved *result)
{
	struct dial *d = arg;

	d->lookup = NULL;
	if (result->count == 0) {
		dial_finish(d, -1, &result->err);
		return;
	}
	d->all = *result;
	try_next(d);
}

struct dial *dial_start(struct ev_loop *loop, struct offload *offload, const char *host, int port, unsigned turn,
                        struct instant by, dial_done_fn *done, void *arg)
{
	struct dial *d = mem_zero(sizeof *d);

	*d = (struct dial){ .loop = loop,
		            .fd = -1,
		            .port = port,
		            .turn = turn,
		            .host = mem_dup(host),
		            .by = by,
		            .done = done,
		            .arg = arg };
	ev_init(&d->writable, dial_on_writable);
	ev_init(&d->timer, dial_on_timer);
	d->writable.data = d->timer.data = d;
	d->lookup = resolve_start(loop, offload, host, port, by, dial_on_resolved, d);
	return d;
}

void dial_cancel(struct dial *d)
{
	if (d)
		dial_end(d);
}
