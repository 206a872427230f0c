#include "process/channel.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <ev.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A message for which the socket has no room yet. */
struct unsent {
	struct unsent *next;
	size_t len;
	char bytes[];
};

struct channel {
	struct ev_loop *loop;
	const struct channel_kind *kind;
	void *arg;
	ev_io readable, writable; /* readable is active until the end */
	struct unsent *first, **last;
	size_t unsent_count;
	unsigned receiving; /* calls of channel_receive that have not returned */
	bool freed;         /* to be freed when they have */
	char bytes[]; /* message_max of them: the message that is being handled. What is never used takes no memory */
};

/* ---- sending ---- */

/* false: the socket has no room for it, or the kernel none. */
static bool channel_send_now(const struct channel *c, const void *bytes, size_t len)
{
	while (send(c->writable.fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
		if (errno == EAGAIN || err_kernel_lacks(errno))
			return false;
		if (errno != EINTR)
			return true; /* nobody reads any more */
	}
	return true;
}

static void channel_drop_first(struct channel *c)
{
	struct unsent *u = c->first;

	c->first = u->next;
	if (!c->first)
		c->last = &c->first;
	c->unsent_count--;
	free(u);
}

static void channel_on_writable(struct ev_loop *loop, ev_io *w, int)
{
	struct channel *c = w->data;

	while (c->first && channel_send_now(c, c->first->bytes, c->first->len))
		channel_drop_first(c);
	if (!c->first)
		ev_io_stop(loop, w);
}

int channel_send(struct channel *c, const void *bytes, size_t len)
{
	if (len > c->kind->message_max) {
		log_event(LOG_ERROR, NULL, "bug", "a message of %zu bytes is larger than %zu", len,
		          c->kind->message_max);
		abort();
	}
	if (!c->first && channel_send_now(c, bytes, len))
		return 0;
	if (c->kind->unsent_max && c->unsent_count == c->kind->unsent_max)
		return -1;
	struct unsent *u = mem_zero(sizeof *u + len);
	u->len = len;
	memcpy(u->bytes, bytes, len);
	*c->last = u;
	c->last = &u->next;
	c->unsent_count++;
	ev_io_start(c->loop, &c->writable);
	return 0;
}

bool channel_waits(const struct channel *c)
{
	return c->first != NULL;
}

/* ---- receiving ---- */

static ssize_t channel_next(const struct channel *c, void *bytes, size_t max)
{
	/* MSG_TRUNC: the true length of one that was cut. */
	return recv(c->readable.fd, bytes, max, MSG_DONTWAIT | MSG_TRUNC);
}

/* false: there is no message now, or there will be none any more. */
static bool channel_receive_into(struct channel *c, char *bytes)
{
	const size_t max = c->kind->message_max;
	ssize_t n = channel_next(c, bytes, max);

	/* The other end has closed with messages of ours unread: the kernel says so first, once, and then gives what it
	 * had sent before. */
	if (n < 0 && errno == ECONNRESET)
		n = channel_next(c, bytes, max);
	if (n < 0 && (errno == EAGAIN || errno == EINTR || err_kernel_lacks(errno)))
		return false;
	size_t len = n < 0 ? 0 : (size_t)n;
	if (len > 0 && len <= max) {
		c->kind->message(c->arg, bytes, len);
		return true;
	}
	channel_deafen(c);
	if (c->kind->end)
		c->kind->end(c->arg, len);
	return false;
}

/* A call inside of a callback must leave that one's message as it is. */
static bool channel_receive_one(struct channel *c)
{
	char *inner = c->receiving > 1 ? mem_resize(NULL, c->kind->message_max) : NULL;
	bool more = channel_receive_into(c, inner ? inner : c->bytes);

	free(inner);
	return more;
}

static void channel_receive(struct channel *c, int at_most)
{
	c->receiving++;
	for (int i = 0; i < at_most && ev_is_active(&c->readable) && channel_receive_one(c); i++)
		;
	if (--c->receiving == 0 && c->freed)
		free(c);
}

static void channel_on_readable(struct ev_loop *, ev_io *w, int)
{
	struct channel *c = w->data;

	channel_receive(c, c->kind->turn_max);
}

void channel_drain(struct channel *c)
{
	channel_receive(c, INT_MAX);
}

void channel_deafen(struct channel *c)
{
	ev_io_stop(c->loop, &c->readable);
}

/* ---- life ---- */

struct channel *channel_new(struct ev_loop *loop, int fd_taken, const struct channel_kind *kind, void *arg)
{
	struct channel *c = mem_resize(NULL, sizeof *c + kind->message_max);

	*c = (struct channel){ .loop = loop, .kind = kind, .arg = arg, .last = &c->first };
	ev_io_init(&c->readable, channel_on_readable, fd_taken, EV_READ);
	ev_io_init(&c->writable, channel_on_writable, fd_taken, EV_WRITE);
	c->readable.data = c->writable.data = c;
	ev_io_start(loop, &c->readable);
	return c;
}

void channel_free(struct channel *c)
{
	if (!c)
		return;
	ev_io_stop(c->loop, &c->readable);
	ev_io_stop(c->loop, &c->writable);
	close(c->readable.fd);
	while (c->first)
		channel_drop_first(c);
	c->freed = true;
	if (!c->receiving)
		free(c);
}
