/* An HTTP client on the loop: many requests at once, each with a deadline, each ending exactly once.
 * Not a policy: it never retries, keeps no cookies, reads no .netrc, and follows redirects only when told to. What it
 * was told is never logged, and no error text has a header or a URL's password in it. Used by the locks that speak HTTP
 * (etcd, kube) and by the script module `http`. Only http*.c know libcurl. */
#ifndef LUNARCH_HTTP_H
#define LUNARCH_HTTP_H

#include "base/clock.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
struct ev_loop;
struct http;      /* a client with connections of its own */
struct http_call; /* one request under way */

/* Requests of different clients never share a connection, so that what matters (renewals) does not queue behind what
 * does not (watches, lists): make a client for each. Zeros are the defaults. */
struct http_options {
	int connections; /* at most so many to one host and port; more requests wait their turn. Default 16 */
	int streams;     /* at most so many requests at once on one HTTP/2 connection. Default 100 */
	int kept;        /* idle connections kept for later, in all. Default 16 */
	nsec stall;      /* TCP: a connection whose peer acknowledges nothing for so long is dead (TCP_USER_TIMEOUT,
	                  * tcp(7), and keep-alive probes when idle). Whole milliseconds. Default 20 s */
};

/* Starts libcurl and its TLS library, which http_new would do: takes milliseconds. May be called again. */
void http_prepare(void);

/* o: NULL is all defaults. NULL with *err. Loads nothing and opens no connection yet. */
struct http *http_new(struct ev_loop *loop, const struct http_options *o, struct err *err);

/* Cancels what is under way (their `done` is called), closes the connections. NULL is nothing. Never blocks. Not from a
 * callback of this client. */
void http_free(struct http *h);

/* Begins a new pool of connections: requests that begin from now on use none of the present ones, which close with the
 * last request on them. For certificates whose files have changed: libcurl compares only the files' names, and reads
 * them for each connection. From anywhere. */
void http_pool_begin(struct http *h);

/* How TLS is done. A file's name or the PEM text itself, each text terminated; where both are given the text counts.
 * Everything NULL: verify against the system's certificate authorities. */
struct http_tls {
	const char *ca_file, *ca_pem;     /* instead of the system's */
	const char *cert_file, *cert_pem; /* the client's certificate, with intermediates */
	const char *key_file, *key_pem;   /* its key; NULL: it is in the certificate's file or text */
	const char *key_password;
	bool insecure; /* verify nothing: neither chain nor name */
	bool http1;    /* do not offer HTTP/2 */
};

enum http_part {
	HTTP_SOME, /* more follows */
	HTTP_LAST, /* this is the end of the request's body */
};

/* How a call ended. err.code is ERR_NONE if a whole answer came, whatever its status says. */
struct http_result {
	int status;    /* of the last answer; 0: none came */
	bool unsent;   /* surely not sent: no byte of this request has left. false with an error: it may have arrived,
	                * or may yet, and be acted upon */
	bool queued;   /* it never had a connection, nor asked for one: it waited for its turn in the client */
	bool repeated; /* sent more than once: libcurl found the connection closed and took a new one, or it was
	                * redirected. The server may have acted upon it more than once */
	struct instant sent_at; /* read before its first byte left (of the first try, where libcurl repeated it on a new
	                         * connection since the old one had been closed); if unsent, when it was given up */
	const char *body;       /* collected body, terminated behind len; never NULL. Borrowed, as all of this */
	size_t len;
	const char *url; /* the last one after redirects, without user and password */
	bool reused;     /* on a connection that had been there */
	struct err err;  /* ERR_TIMEOUT by, first_byte, silence or connect; ERR_UNREACHABLE not resolved, not connected,
	                  * cut;  ERR_DENIED TLS verification or proxy login; ERR_FULL more than `limit`; ERR_INVALID no
	                  * HTTP, wrong  lengths, broken compression; ERR_USAGE the request; ERR_CANCELLED; ERR_MISSING a
	                  * CA or key file */
};

/* The answer's header lines, in order, of the last answer only (not of redirects or 1xx). Names match whatever their
 * case. */
struct http_headers {
	size_t count;
	const struct http_header {
		const char *name, *value; /* both terminated; value without the blanks around it */
	} * list;
};
/* The first with that name; NULL: none. */
const char *http_header(const struct http_headers *h, const char *name);

/* A request. Borrowed for the duration of http_start, which copies what it needs, but for the TLS texts, which must
 * live until done (so that 1,000 elections share one copy). Zeros are the defaults. */
struct http_request {
	const char *method; /* default GET; POST if there is a body */
	const char *url; /* http:// or https:// only. Absolute, percent-encoded. A user:password@ in it is sent as basic
	                  * authentication, also in no error text */
	const char *const
		*headers; /* "Name: value", NULL-terminated; NULL: none. No line breaks (ERR_USAGE). "Name:" removes one
	                   * of the client's own, which are Host, Accept, User-Agent, Content-Length, Accept-Encoding */
	const char *bearer; /* Authorization: Bearer ...; dropped on a redirect to another host, unlike `headers` (of
	                     * those Authorization and Cookie are dropped too, the rest are kept) */
	const char *user, *password; /* basic authentication */
	const void *body;            /* NULL: none. With Content-Type only if `headers` has one */
	size_t body_len;
	bool streamed; /* the body comes by http_send; chunked, or of body_len bytes if that is not 0. An answer that
	                * ends before the body does ends the call, as ERR_UNREACHABLE unless libcurl saw it whole */
	const struct http_tls *tls;
	const char *server_name; /* in TLS name and verify this host instead of the URL's, which is connected to */
	const char *unix_path;   /* connect to this socket, whatever the URL's host. "@NAME": an abstract one */
	const char *proxy;    /* http://, https://, socks5://, socks5h:// URL; "": none; NULL: as the environment says
	                       * (http_proxy, https_proxy, all_proxy, no_proxy; HTTP_PROXY is not asked: curl(1)) */
	const char *no_proxy; /* names and networks reached directly, "a.b,.c,10.0.0.0/8,*"; NULL: the environment's */
	struct instant by;    /* the deadline of it all; { 0 }: none */
	nsec connect;         /* at most so long until the connection stands, name and TLS included; 0: only `by` */
	nsec first_byte;      /* at most so long from sending to the answer's status; 0: only `by` */
	nsec silence;         /* at most so long without a byte, while not paused; 0: only `by` */
	int redirects; /* at most so many are followed; 0: a 3xx is the answer, as it always is for a streamed body and
	                * for methods other than GET, HEAD, POST. From https never to http. POST becomes GET on 301,
	                * 302, 303 (RFC 9110, 15.4) */
	bool compressed; /* offer gzip, deflate, br, zstd, and decode what comes; limit counts decoded bytes */
	bool fresh;      /* on a new connection */
	size_t limit;    /* of the collected body: more is ERR_FULL. 0: 16 MB. Streamed bodies have none */

	/* All called from the loop, never from inside http_start or http_send, never from inside libcurl: any function
	 * of this header may be called from them, http_cancel of this very call too. */
	void *arg;
	/* The status line and headers are there; comes once, before any of the body. NULL: not interested. */
	void (*answered)(void *arg, struct http_call *c, int status, const struct http_headers *headers);
	/* A part of the body as it comes, never empty; not called while paused. NULL: the body is collected for `done`.
	 */
	void (*data)(void *arg, struct http_call *c, const char *bytes, size_t len);
	/* What http_send took has gone out (below 64 KB is left): send more. NULL: not interested. */
	void (*drained)(void *arg, struct http_call *c);
	/* The end. Exactly once. The call is gone when it returns. headers: also of a failed one, as far as they came.
	 */
	void (*done)(void *arg, const struct http_result *r, const struct http_headers *headers);
};

/* Never fails and never blocks: what is wrong with the request comes to `done`, in a later turn of the loop. The call
 * is valid until done is called. */
struct http_call *http_start(struct http *h, const struct http_request *r);

/* Ends it: done is called with ERR_CANCELLED before this returns. Its connection is closed unless others use it. */
void http_cancel(struct http_call *c);

/* More of a streamed body; len may be 0 with HTTP_LAST. Copies. How many bytes wait now: above 64 KB wait for
 * `drained`. */
size_t http_send(struct http_call *c, const void *bytes, size_t len, enum http_part part);

/* While paused, `data` is not called, at most 256 KB are kept, and then the server is held up; `silence` does not
 * count, `by` does. The end of the call waits too. Calls do not nest. */
void http_pause(struct http_call *c, bool paused);

/* The URL for people: without user, password, query and fragment. malloc'd; the caller frees. */
char *http_url_plain(const char *url);

/* Standard base64 with padding (RFC 4648, 4). unbase64: -1 if it is none; out then has nothing added. */
void http_base64(struct buf *out, const void *bytes, size_t len);
int http_unbase64(struct buf *out, const char *s, size_t len);

/* Requests under way and connections opened since http_new: for tests and figures. */
struct http_stats {
	size_t calls;
	uint64_t started, opened;
};
struct http_stats http_stats(const struct http *h);

/* Appends "libcurl 7.88.1 OpenSSL/3.0.19 nghttp2/1.52.0". */
void http_libraries(struct buf *out);

#endif
