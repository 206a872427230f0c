/* Room net/serve: HTTP/1.1 for whoever asks this process: requests, connections, streams, sockets.
 *
 * A small HTTP/1.1 server on the caller's loop, for programs that run beside this one, browsers, and load balancers.
 * Not for the internet: no TLS, no passwords, no bodies of requests. It gives away nothing by itself: the handler makes
 * what is answered. Clients may be slow, many, or hostile: none of them delays the loop or another client.
 * Used by program/admin.c (--listen) and program/control.c. */
#pragma once

#include "base/buf.h"
#include "net/serve/request.h"

#include <stdint.h>
#include <sys/types.h>

struct ev_loop;
struct server;

#define SERVER_CLIENTS 64           /* for one more, an idle or else the oldest one is closed */
#define SERVER_STREAMS 32           /* of these at most; one more is answered 503 */
#define SERVER_STREAM_MAX (1 << 20) /* bytes that a stream's reader may leave unread: with one more it is closed */
#define SERVER_IDLE_S 15.           /* without a whole request, or without reading; between a stream's heartbeats */

struct http_answer {        /* the handler fills it in */
	int status;         /* 200 at first */
	const char *type;   /* static text; plain text at first */
	struct buf headers; /* more of them, each with its CRLF */
	struct buf body;
	bool streams; /* the body is the beginning of a stream, which server_push continues */
	bool later;   /* the answer is not known yet: server_answer */
};

/* It is called from the loop. r is valid during the call only. ticket: of this request alone. The server itself
 * leaves the body out of the answer to HEAD. The handler may call server_answer for this very ticket. */
typedef void server_handler(void *arg, const struct request *r, uint64_t ticket, struct http_answer *a);

struct server_options {
	server_handler *handler;
	void *arg;
	/* NULL: everybody may ask. Else a Unix socket's peer is shown first (unix(7), SO_PEERCRED: who it was at
	 * connect(2)), with (uid_t)-1 if the kernel does not say. false: *a is answered to whatever it asks, and the
	 * connection closed. */
	bool (*may_ask)(void *arg, uid_t peer, struct http_answer *a);
};

/* fd: a listening socket, which it takes. */
struct server *server_new(struct ev_loop *loop, int fd, const struct server_options *o);
void server_free(struct server *s); /* closes everything; NULL: does nothing */

/* Answers the request that has this ticket, as JSON, and sends at once as far as the socket takes it: the loop may be
 * about to end. Nothing happens if its client has gone. */
void server_answer(struct server *s, uint64_t ticket, int status, const struct buf *body);

size_t server_streams(const struct server *s);                 /* how many there are */
void server_push(struct server *s, const struct buf *message); /* to each of them. Not from inside a handler. */
