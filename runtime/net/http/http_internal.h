/* What the files of the HTTP client share: the client, libcurl's pools of connections, a call and its state.
 * Not for other files: they use http.h.
 * Used by http*.c, the only files that include libcurl. */
#pragma once

#include "base/buf.h"
#include "net/http/http.h"

#include <curl/curl.h>
#include <ev.h>

#define HTTP_DOUBTS 8
#define HTTP_IP 48 /* an address as text, INET6_ADDRSTRLEN and more */

/* One of libcurl's pools of connections. A client begins a new pool when an HTTP/2 connection does not answer: other
 * calls use that connection, so it cannot be closed, and new requests must not use it. The old pool is freed after its
 * last call. */
struct http_pool {
	struct http *client;
	CURLM *multi;
	ev_timer timer;
	size_t calls;
	struct http_pool *next;
};

struct http {
	struct ev_loop *loop;
	struct http_options o;
	struct http_pool *pool, *old;
	struct http_call *calls;              /* all of them */
	struct http_call *ready, **ready_end; /* the calls whose callbacks are due */
	const struct http_call *telling;      /* the call whose callback runs; NULL once it has ended */
	char doubts[HTTP_DOUBTS][HTTP_IP];    /* addresses from which a call heard nothing; "" is none */
	unsigned doubted;
	ev_timer kick; /* calls http_tell in the next turn of the loop */
	struct http_stats stats;
};

struct http_call {
	struct http *client;
	struct http_pool *pool; /* NULL: libcurl does not have the call yet, or not any more */
	struct http_call *next, **slot;
	struct http_call *ready_next;
	bool ready;
	CURL *easy;
	struct curl_slist *lines, *connect_to;
	char *name, *tls_url;  /* "GET http://..." for errors; tls_url: with server_name in the host's place */
	struct http_request r; /* only its numbers, flags and callbacks: its texts may have been freed */
	ev_timer timer;
	struct instant began, sent_at, heard_at;
	bool sent, repeated, heard, maybe_http2;
	int status;
	struct buf head, body, out; /* header lines as name\0value\0; what was received; what is to be sent */
	size_t head_count;
	bool head_done, following, answered, told_answer;
	bool paused, held, starved; /* by the caller; libcurl's reading is paused; libcurl waits for http_send */
	bool out_ended, told_drained, ended;
	char at[HTTP_IP]; /* the address that it has last begun to connect to; "": none */
	struct instant at_since;
	bool passed; /* over an address in doubt */
	bool deaf;   /* the connection is closed, and libcurl waits for http_send all the same */
	struct err err;
	char why[CURL_ERROR_SIZE];
};

/* http.c: the request's callbacks. libcurl's callbacks only set fields; the request's are called later, outside
 * libcurl. */
void http_ready(struct http_call *c);                /* a callback is due, in this turn of the loop or the next */
void http_tell(struct http *h);                      /* calls what is due; may end calls and free pools */
void http_ended(struct http_call *c, CURLcode code); /* libcurl has finished the call */
CURLMcode http_hand_over(struct http_call *c);       /* gives the call to libcurl */
/* removes the call from libcurl, which closes its HTTP/1 connection or resets its HTTP/2 stream if it is unfinished */
void http_take_back(struct http_call *c);

/* http_pool.c. new: NULL without memory or descriptors. drop_old: frees the replaced pools that have no call left. */
struct http_pool *http_pool_new(struct http *h);
void http_pool_free(struct http_pool *p); /* p has no calls, or is NULL */
void http_pool_drop_old(struct http *h);

/* http_doubt.c: an address of a name that did not answer is passed over as long as there are others, so that the next
 * call begins at another one: libcurl begins at the first one each time. ip: "" is nothing. */
void http_doubt(struct http *h, const char *ip);
bool http_is_doubted(struct http *h, const char *ip);
void http_doubt_none(struct http *h);
void http_doubt_judge(struct http_call *c); /* at its end */

/* http_request.c: sets libcurl's options from a request. -1: c->err says what is wrong with it */
int http_set_request(struct http_call *c, const struct http_request *r);
/* What libcurl's code means, by how far the call had come: its releases do not agree about codes. */
enum http_stage {
	HTTP_UNSENT,    /* no byte of it had left */
	HTTP_SENDING,   /* some of its body had not */
	HTTP_ANSWERING, /* all of it had, so the rest is the server's doing */
};
enum err_code http_meaning(CURLcode code, enum http_stage stage);

/* http_flow.c: libcurl's callbacks for one request */
void http_set_callbacks(struct http_call *c);

/* http_text.c */
char *http_url_without_secrets(const char *url, bool query); /* query: keep it */
