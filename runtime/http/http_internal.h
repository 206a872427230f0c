/* What the files of the HTTP client share: the client, libcurl's pools of connections, a call and its state.
 * Not for others: http.h is the client.
 * Used by http*.c, which alone know that libcurl exists. */
#ifndef LUNARCH_HTTP_INSIDE_H
#define LUNARCH_HTTP_INSIDE_H

#include "base/buf.h"
#include "http/http.h"

#include <curl/curl.h>
#include <ev.h>

/* One of libcurl's pools of connections. A client begins a new one when an HTTP/2 connection stays silent: such a
 * connection cannot be closed alone while others use it, and would take every new request with it. The old pool ends
 * with its last call. */
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
	struct http_call *ready, **ready_end; /* those with something to tell */
	const struct http_call *telling;      /* its callback runs; NULL once it is gone */
	ev_timer kick;                        /* tells in the next turn */
	struct http_stats stats;
};

struct http_call {
	struct http *client;
	struct http_pool *pool; /* NULL: not, or no longer, with libcurl */
	struct http_call *next, **slot;
	struct http_call *ready_next;
	bool ready;
	CURL *easy;
	struct curl_slist *lines, *connect_to;
	char *name, *tls_url;  /* "GET http://..." for errors; tls_url: with server_name in the host's place */
	struct http_request r; /* only numbers, flags and callbacks count: its pointers are the caller's */
	ev_timer timer;
	struct instant began, sent_at, heard_at;
	bool opened, sent, repeated, heard, maybe_http2;
	int status;
	struct buf head, body, out; /* header lines as name\0value\0; what came; what is to go */
	size_t head_count;
	bool head_done, following, answered, told_answer;
	bool paused, held, starved; /* by the caller; the answer is held up in libcurl; libcurl waits for http_send */
	bool out_ended, told_drained, ended;
	bool deaf; /* libcurl listens no more, and waits for http_send alone */
	struct err err;
	char why[CURL_ERROR_SIZE];
};

/* http.c: a call's end and what is told of it. libcurl's callbacks only take notes; ours are called outside of it. */
void http_ready(struct http_call *c);                /* there is something to tell, in this turn or the next */
void http_tell(struct http *h);                      /* tells; may end calls and free pools */
void http_ended(struct http_call *c, CURLcode code); /* libcurl is done with it */
void http_take_back(struct http_call *c); /* out of libcurl's hands: an unfinished HTTP/1 connection is closed by
                                           * this, an HTTP/2 stream reset */

/* http_pool.c. new: NULL without memory or descriptors. drop_old: frees the replaced pools that have no call left. */
struct http_pool *http_pool_new(struct http *h);
void http_pool_free(struct http_pool *p); /* NULL is nothing; it has no calls any more */
void http_pool_drop_old(struct http *h);

/* http_request.c: a request to libcurl's options. -1: c->err says what is wrong with it */
int http_set_request(struct http_call *c, const struct http_request *r);
enum err_code http_meaning(CURLcode code);

/* http_flow.c: libcurl's callbacks about one request */
void http_set_callbacks(struct http_call *c);

/* http_text.c */
char *http_url_without_secrets(const char *url, bool query); /* query: keep it */

#endif
