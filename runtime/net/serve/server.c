#include "net/serve/server.h"

#include "base/mem.h"

#include <errno.h>
#include <ev.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define REST_S 1. /* without accepting, where the process has no more descriptors */

enum client_state {
	CLIENT_ASKS,    /* its request is not complete */
	CLIENT_WAITS,   /* the answer is not known */
	CLIENT_READS,   /* the answer is being sent */
	CLIENT_STREAMS, /* a stream is being sent */
	/* all was sent: what it still sends is dropped until it hangs up. A close before that could make the kernel
	 * drop the answer, too (RFC 9112, 9.6) */
	CLIENT_LEAVES,
};

struct client {
	struct server *server;
	ev_io reads, writes;
	ev_timer idle;
	struct buf in, out;
	enum client_state state;
	bool keep, broken;   /* broken: nothing more can be sent */
	bool head;           /* HEAD: the answer has no body */
	uid_t peer;          /* (uid_t)-1: not known */
	uint64_t ticket;     /* of the request whose answer it waits for */
	struct client *next; /* newest first */
};

struct server {
	struct ev_loop *loop;
	struct server_options options;
	ev_io accepts;
	ev_timer rest;
	struct client *clients;
	uint64_t tickets; /* so many were given */
};

/* ---- clients come and go ---- */

static void client_free(struct client *c)
{
	struct client **at = &c->server->clients;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	ev_io_stop(c->server->loop, &c->reads);
	ev_io_stop(c->server->loop, &c->writes);
	ev_timer_stop(c->server->loop, &c->idle);
	close(c->reads.fd);
	buf_fini(&c->in);
	buf_fini(&c->out);
	free(c);
}

/* The client that is closed to make room for a new one: the oldest that has nothing to wait for; else the oldest
 * stream, whose reader comes again; else the oldest. */
static struct client *server_spare(const struct server *s)
{
	struct client *spare = NULL;
	int best = -1;

	for (struct client *c = s->clients; c; c = c->next) {
		int rank = c->state == CLIENT_WAITS ? 0 : c->state == CLIENT_STREAMS ? 1 : 2;
		if (rank >= best) {
			best = rank;
			spare = c;
		}
	}
	return spare;
}

static void client_expect_more(struct client *c)
{
	ev_timer_again(c->server->loop, &c->idle);
}

/* ---- what is sent ---- */

static const char *reason_phrase(int status)
{
	static const struct {
		int status;
		const char *phrase;
	} phrases[] = {
		{ 200, "OK" },
		{ 400, "Bad Request" },
		{ 403, "Forbidden" },
		{ 404, "Not Found" },
		{ 405, "Method Not Allowed" },
		{ 409, "Conflict" },
		{ 413, "Content Too Large" },
		{ 421, "Misdirected Request" },
		{ 431, "Request Header Fields Too Large" },
		{ 501, "Not Implemented" },
		{ 503, "Service Unavailable" },
		{ 505, "HTTP Version Not Supported" },
	};

	for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++)
		if (phrases[i].status == status)
			return phrases[i].phrase;
	return "";
}

static void add_date(struct buf *out)
{
	char text[64] = "";
	time_t now = time(NULL);
	struct tm tm;

	if (gmtime_r(&now, &tm) && strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &tm))
		buf_printf(out, "Date: %s\r\n", text);
}

/* A page of another site may show none of this as its own, nor read it (no CORS). */
static void client_send(struct client *c, const struct http_answer *a)
{
	struct buf *out = &c->out;

	buf_printf(out, "HTTP/1.1 %d %s\r\n", a->status, reason_phrase(a->status));
	add_date(out);
	buf_printf(out, "Content-Type: %s\r\n", a->type);
	if (!a->streams)
		buf_printf(out, "Content-Length: %zu\r\n", a->body.len);
	buf_adds(out, "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
	              "Cross-Origin-Resource-Policy: same-origin\r\n");
	if (a->headers.len)
		buf_add(out, a->headers.data, a->headers.len);
	/* Said in any case: a client of HTTP/1.0 would wait for the end of a connection that is kept. */
	buf_adds(out, !c->keep || a->streams ? "Connection: close\r\n" : "Connection: keep-alive\r\n");
	buf_adds(out, "\r\n");
	if (a->body.len && !c->head)
		buf_add(out, a->body.data, a->body.len);
	c->state = a->streams && !c->head ? CLIENT_STREAMS : CLIENT_READS;
	c->keep = c->keep && !a->streams;
	if (c->state == CLIENT_READS)
		ev_io_stop(c->server->loop, &c->reads);
	ev_io_start(c->server->loop, &c->writes);
	client_expect_more(c);
}

static void answer_init(struct http_answer *a)
{
	*a = (struct http_answer){ .status = 200, .type = "text/plain; charset=utf-8" };
}

static void answer_fini(struct http_answer *a)
{
	buf_fini(&a->headers);
	buf_fini(&a->body);
}

/* The request cannot be read, so neither can be what follows. */
static void client_refuse(struct client *c, int status)
{
	struct http_answer a;

	answer_init(&a);
	a.status = status;
	buf_printf(&a.body, "%s%s\n", reason_phrase(status),
	           status == 413   ? ": a request has no body here; what is asked for stands in the URL"
	           : status == 400 ? ": this socket speaks HTTP/1.1"
	                           : "");
	c->keep = false;
	c->head = false;
	buf_drop(&c->in, c->in.len);
	client_send(c, &a);
	answer_fini(&a);
}

size_t server_streams(const struct server *s)
{
	size_t n = 0;

	for (const struct client *c = s->clients; c; c = c->next)
		n += c->state == CLIENT_STREAMS;
	return n;
}

static void refuse_stream(const struct server *s, struct http_answer *a)
{
	if (!a->streams || server_streams(s) < SERVER_STREAMS)
		return;
	a->streams = false;
	a->status = 503;
	a->type = "text/plain; charset=utf-8";
	buf_drop(&a->body, a->body.len);
	buf_printf(&a->body, "%d clients follow the events already\n", SERVER_STREAMS);
}

/* One request at a time: the next is read when the answer to this one has been sent. So a client that never reads
 * makes us keep one answer. */
static void client_answer_next(struct client *c)
{
	struct server *s = c->server;
	struct request r;
	struct http_answer a;
	int len = c->in.len ? request_parse(&r, c->in.data, c->in.len) : 0;

	if (len == 0)
		return;
	if (len < 0) {
		client_refuse(c, -len);
		return;
	}
	r.peer = c->peer;
	c->keep = r.keep;
	c->head = strcmp(r.method, "HEAD") == 0;
	c->state = CLIENT_WAITS;
	c->ticket = ++s->tickets;
	ev_timer_stop(s->loop, &c->idle);
	answer_init(&a);
	s->options.handler(s->options.arg, &r, c->ticket, &a);
	buf_drop(&c->in, (size_t)len);
	refuse_stream(s, &a);
	if (c->state == CLIENT_WAITS && !a.later)
		client_send(c, &a);
	answer_fini(&a);
}

/* -1: it is closed. */
static int client_write(struct client *c)
{
	ssize_t n = c->out.len ? send(c->writes.fd, c->out.data, c->out.len, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n < 0)
		return -1;
	buf_drop(&c->out, (size_t)n);
	if (n)
		client_expect_more(c);
	return 0;
}

static void client_on_writable(struct ev_loop *loop, ev_io *w, int)
{
	struct client *c = w->data;

	if (c->broken || client_write(c) < 0) {
		client_free(c);
		return;
	}
	if (c->out.len)
		return;
	ev_io_stop(loop, w);
	if (c->state != CLIENT_READS)
		return;
	ev_io_start(loop, &c->reads);
	if (c->keep) {
		c->state = CLIENT_ASKS;
		client_answer_next(c);
		return;
	}
	c->state = CLIENT_LEAVES;
	shutdown(w->fd, SHUT_WR);
}

static void client_on_readable(struct ev_loop *loop, ev_io *w, int)
{
	struct client *c = w->data;
	char bytes[REQUEST_MAX];
	bool drops = c->state == CLIENT_STREAMS || c->state == CLIENT_LEAVES;

	if (!drops && c->in.len >= sizeof bytes) { /* while it waits for an answer it has sent more than fits */
		ev_io_stop(loop, w);
		return;
	}
	ssize_t n = recv(w->fd, bytes, drops ? sizeof bytes : sizeof bytes - c->in.len, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		client_free(c);
		return;
	}
	if (drops)
		return;
	buf_add(&c->in, bytes, (size_t)n);
	if (c->state == CLIENT_ASKS)
		client_answer_next(c);
}

/* A client that sends its request byte by byte gets no more time with each byte: the timer runs since the last
 * answer. A stream's reader that has read all is sent a comment, so that both ends notice when the other has gone. */
static void client_on_idle(struct ev_loop *loop, ev_timer *w, int)
{
	struct client *c = w->data;

	if (c->state != CLIENT_STREAMS || c->out.len) {
		client_free(c);
		return;
	}
	buf_adds(&c->out, ":\n\n");
	ev_io_start(loop, &c->writes);
}

/* ---- answers that come later ---- */

static void client_answer_late(struct client *c, int status, const struct buf *body)
{
	struct http_answer a;

	answer_init(&a);
	a.status = status;
	a.type = "application/json";
	buf_add(&a.body, body->data, body->len);
	client_send(c, &a);
	answer_fini(&a);
	c->broken = client_write(c) < 0; /* client_on_writable closes it: the handler may run now */
}

void server_answer(struct server *s, uint64_t ticket, int status, const struct buf *body)
{
	for (struct client *c = s->clients; c; c = c->next)
		if (c->state == CLIENT_WAITS && c->ticket == ticket) {
			client_answer_late(c, status, body);
			return;
		}
}

void server_push(struct server *s, const struct buf *message)
{
	for (struct client *c = s->clients, *next; c; c = next) {
		next = c->next;
		if (c->state != CLIENT_STREAMS)
			continue;
		if (c->out.len + message->len > SERVER_STREAM_MAX) {
			client_free(c);
			continue;
		}
		buf_add(&c->out, message->data, message->len);
		ev_io_start(s->loop, &c->writes);
	}
}

/* ---- the server ---- */

static void client_new(struct server *s, int fd)
{
	struct client *c = mem_zero(sizeof *c);

	*c = (struct client){ .server = s, .next = s->clients, .peer = (uid_t)-1 };
	s->clients = c;
	ev_io_init(&c->reads, client_on_readable, fd, EV_READ);
	ev_io_init(&c->writes, client_on_writable, fd, EV_WRITE);
	ev_init(&c->idle, client_on_idle);
	c->idle.repeat = SERVER_IDLE_S;
	c->reads.data = c->writes.data = c->idle.data = c;
	ev_io_start(s->loop, &c->reads);
	client_expect_more(c);
	if (!s->options.may_ask)
		return;
	struct ucred who = { .uid = (uid_t)-1 };
	socklen_t len = sizeof who;
	struct http_answer a;
	answer_init(&a);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0)
		who.uid = (uid_t)-1;
	c->peer = who.uid;
	if (!s->options.may_ask(s->options.arg, who.uid, &a))
		client_send(c, &a); /* c->keep is false: all that it may send is dropped */
	answer_fini(&a);
}

static void server_on_rested(struct ev_loop *loop, ev_timer *w, int)
{
	struct server *s = w->data;

	ev_io_start(loop, &s->accepts);
}

/* Without descriptors the loop would be told of the same connection again and again, so the server waits for a
 * moment. */
static void server_on_connection(struct ev_loop *loop, ev_io *w, int)
{
	struct server *s = w->data;
	size_t count = 0;

	int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
		ev_io_stop(loop, w);
		ev_timer_set(&s->rest, REST_S, 0.);
		ev_timer_start(loop, &s->rest);
	}
	if (fd < 0)
		return;
	for (const struct client *c = s->clients; c; c = c->next)
		count++;
	if (count >= SERVER_CLIENTS)
		client_free(server_spare(s));
	client_new(s, fd);
}

struct server *server_new(struct ev_loop *loop, int fd, const struct server_options *o)
{
	struct server *s = mem_zero(sizeof *s);

	*s = (struct server){ .loop = loop, .options = *o };
	ev_io_init(&s->accepts, server_on_connection, fd, EV_READ);
	ev_timer_init(&s->rest, server_on_rested, REST_S, 0.);
	s->accepts.data = s->rest.data = s;
	ev_io_start(loop, &s->accepts);
	return s;
}

void server_free(struct server *s)
{
	if (!s)
		return;
	while (s->clients)
		client_free(s->clients);
	ev_io_stop(s->loop, &s->accepts);
	ev_timer_stop(s->loop, &s->rest);
	close(s->accepts.fd);
	free(s);
}
