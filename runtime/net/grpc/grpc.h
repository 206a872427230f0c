/* Room net/grpc: calls of gRPC on one HTTP/2 connection.
 *
 * gRPC over HTTP/2 (github.com/grpc/grpc, doc/PROTOCOL-HTTP2.md) by libnghttp2: bytes go in, bytes come out, calls end.
 * No socket, no clock, no retry, no TLS: whoever has the connection carries the bytes, sets deadlines and cancels. It
 * does not know what is in a message. Used by the etcd lock. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct grpc; /* a connection */

/* How a call ended. */
struct grpc_end {
	/* gRPC's code, 0 (OK) to 16; -1: none came. Without `replied`: the code that gRPC gives to an HTTP status
	 * that is not 200 (doc/http-grpc-status-mapping.md) */
	int status;
	/* the server surely did not act upon it: it was not sent; or its stream is above the last one of GOAWAY, or
	 * was reset with REFUSED_STREAM (RFC 9113, 8.7) */
	bool unseen;
	bool replied;     /* the status came from the server, in trailers or in a header block without messages */
	const char *text; /* grpc-message, decoded and printable; or what went wrong. Borrowed, never NULL */
};

/* A call, unary or a stream. It is embedded in the caller's object, zero before the first use but for the callbacks. */
struct grpc_call {
	/* A whole message has come. Borrowed. */
	void (*message)(struct grpc_call *c, const void *data, size_t len);
	/* The last callback of a call. The call may be started again from it, on the same or another connection. */
	void (*ended)(struct grpc_call *c, const struct grpc_end *end);

	struct grpc_stream *stream; /* private to grpc*.c; NULL: it is not under way */
};

/* authority: "host:port", for :authority. limit: bytes of one message; a longer one ends its call. */
struct grpc *grpc_new(const char *authority, bool tls, size_t limit);
/* All calls end with status -1, from inside; their callbacks must not start calls on g. g may be NULL. Not from a
 * callback of this connection. */
void grpc_free(struct grpc *g);

/* Begins a call that is not under way. path: "/etcdserverpb.KV/Txn". metadata: NULL-terminated pairs of name (lower
 * case) and value, or NULL. All arguments are copied. message NULL: none yet. half: no more messages follow. Never
 * calls back from inside. More calls than the server allows at once wait, in order. */
void grpc_start(struct grpc *g, struct grpc_call *c, const char *path, const char *const *metadata, const void *message,
                size_t len, bool half);
/* Sends another message of a call that is under way and not half closed. message NULL: none, only `half`. */
void grpc_send(struct grpc_call *c, const void *message, size_t len, bool half);
/* Ends the call without a callback (RST_STREAM CANCEL). Does nothing if it is not under way. From every callback. */
void grpc_cancel(struct grpc_call *c);
bool grpc_under_way(const struct grpc_call *c);

/* Appends bytes to be sent to *out, until it holds 64 KB or more: call it after each grpc_feed, and again when *out was
 * sent. Calls that cannot begin (grpc_going) end from inside. Within a callback of this connection it does nothing. */
void grpc_take(struct grpc *g, struct buf *out);
/* Bytes that have come. Callbacks are called from inside; they may call everything but grpc_feed and grpc_free of this
 * connection. -1: the connection is of no more use (ERR_INVALID: no HTTP/2, a broken frame, headers without end, a
 * flood), and *err says what came: the caller frees it. */
int grpc_feed(struct grpc *g, const void *bytes, size_t len, struct err *err);

/* Sends a PING unless one is not answered yet. */
void grpc_ping(struct grpc *g);
bool grpc_ping_pending(const struct grpc *g);

bool grpc_greeted(const struct grpc *g); /* the server's SETTINGS have come: it does speak HTTP/2 */
bool grpc_idle(const struct grpc *g);    /* no call is under way */
/* GOAWAY has come, or the stream ids are used up: no call can begin here; those under way go on. why may be NULL; *why:
 * what GOAWAY said, printable and borrowed; NULL: none has come. */
bool grpc_going(const struct grpc *g, const char **why);

/* Appends "nghttp2/1.52.0". */
void grpc_libraries(struct buf *out);
