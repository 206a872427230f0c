/* Room net/http: an HTTP client on the loop; the only room that knows libcurl.
 *
 * An HTTP client on the loop: many requests at once, each with a deadline, each ending exactly once.
 * Not a browser: it never tries again, keeps no cookies, reads no .netrc, and follows redirects only when told to. It
 * logs nothing, and no error text has a header or a URL's password in it. Used by the room kube, by
 * the lock in Kubernetes and by the script module `http`. Only http*.c know libcurl. */
#pragma once

#include "base/clock.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
struct ev_loop;
struct http;      /* a client with connections of its own */
struct http_call; /* one request under way */

/* Requests of different clients never share a connection. Make a client of its own for what must not wait: renewals
 * must not wait for watches and lists. 0 in a field is its default. */
struct http_options {
	int connections; /* at most so many to one host and port; more requests wait for one. Default 16 */
	int streams;     /* at most so many requests at once on one HTTP/2 connection. Default 100 */
	int kept;        /* idle connections kept for later, in all. Default 16 */
	/* A connection fails if its peer acknowledges nothing for so long (TCP_USER_TIMEOUT, tcp(7), and keep-alive
	 * probes while it is idle). Whole milliseconds. Default 20 s. */
	nsec stall;
};

/* Starts libcurl and its TLS library, which takes milliseconds; else http_new does it. May be called again. */
void http_prepare(void);

/* o: NULL for the defaults. NULL with *err. Opens no connection yet. */
struct http *http_new(struct ev_loop *loop, const struct http_options *o, struct err *err);

/* Cancels the requests under way (their `done` is called) and closes the connections. Never blocks. Must not be called
 * from a callback of this client. h may be NULL. */
void http_free(struct http *h);

/* Begins a new pool of connections: requests that begin from now on use none of the present connections, which are
 * closed after the last request on them. Call it when certificates' files have changed: libcurl reads them for each new
 * connection, but shares a connection if only the files' names are equal. May be called from a callback. */
void http_pool_begin(struct http *h);

/* How TLS is done. A certificate is given as a file's name or as a terminated PEM text; the text counts if both are
 * given. If everything is NULL, the server is verified against the system's certificate authorities. */
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
	int status; /* of the last answer; 0: none came */
	/* no byte of this request was sent. false with an error: the server may have acted upon it, or may do so
	 * later */
	bool unsent;
	/* sent more than once: libcurl found the connection closed and took a new one, or it was redirected. The
	 * server may have acted upon it more than once */
	bool repeated;
	/* read before the first byte was sent, of the first try if it is `repeated`; if `unsent`, when it was given
	 * up */
	struct instant sent_at;
	const char *body; /* collected body, terminated after len bytes; never NULL. Borrowed, like all fields */
	size_t len;
	const char *url; /* the last one after redirects, without user and password */
	bool reused;     /* it was sent on a connection that an earlier request had opened */
	/* ERR_TIMEOUT: by, first_byte, silence or connect has passed. ERR_UNREACHABLE: not resolved, not connected, or
	 * the connection broke. ERR_DENIED: TLS verification or the proxy's log-in failed. ERR_FULL: more than `limit`.
	 * ERR_INVALID: no HTTP, wrong lengths, broken compression. ERR_USAGE: the request is wrong. ERR_CANCELLED.
	 * ERR_MISSING: a CA's or key's file is. */
	struct err err;
};

/* The header lines of the last answer (not of redirects or 1xx), in order. The case of names does not matter. */
struct http_headers {
	size_t count;
	const struct http_header {
		const char *name, *value; /* both terminated; value without the blanks around it */
	} * list;
};
/* The value of the first header with that name; NULL: none. */
const char *http_header(const struct http_headers *h, const char *name);

/* A request. http_start borrows it and copies what it needs, except the TLS texts: these must live until `done`, so
 * that 1,000 elections share one copy. 0 and NULL are the defaults. */
struct http_request {
	const char *method; /* default GET; POST if there is a body */
	/* http:// or https:// only. Absolute, percent-encoded. user:password@ in it is sent as basic authentication,
	 * and is in no error text */
	const char *url;
	/* "Name: value", NULL-terminated; NULL: none. No line breaks (ERR_USAGE). "Name:" removes a header that the
	 * client adds: Host, Accept, User-Agent, Content-Length, Accept-Encoding. */
	const char *const *headers;
	/* Authorization: Bearer ... Like Authorization and Cookie of `headers`, it is not sent to another host after a
	 * redirect. Other headers are. */
	const char *bearer;
	const char *user, *password; /* basic authentication */
	const void *body;            /* NULL: none. With Content-Type only if `headers` has one */
	size_t body_len;
	/* The body comes by http_send; chunked, or of body_len bytes if that is not 0. If the answer ends before the
	 * body, the call ends, with ERR_UNREACHABLE if the answer was not complete. */
	bool streamed;
	const struct http_tls *tls;
	const char *server_name; /* the host's name for TLS (SNI, verification), if it is not the URL's */
	const char *unix_path;   /* connect to this socket, whatever the URL's host. "@NAME": an abstract one */
	/* http://, https://, socks5://, socks5h:// URL; "": none; NULL: as the environment says (http_proxy,
	 * https_proxy, all_proxy, no_proxy; HTTP_PROXY is not asked: curl(1)) */
	const char *proxy;
	const char *no_proxy; /* names and networks reached directly, "a.b,.c,10.0.0.0/8,*"; NULL: the environment's */
	struct instant by;    /* the deadline of the whole call; { 0 }: none */
	nsec connect;         /* at most so long for look-up, connecting and TLS together; 0: only `by` */
	nsec first_byte;      /* at most so long from sending to the answer's status; 0: only `by` */
	nsec silence;         /* at most so long without a byte, while not paused; 0: only `by` */
	/* at most so many are followed; 0: a 3xx is the answer, as it always is for a streamed body and for methods
	 * other than GET, HEAD, POST. From https never to http. POST becomes GET on 301, 302, 303 (RFC 9110, 15.4) */
	int redirects;
	bool compressed; /* accept gzip, deflate, br, zstd, and decode them; `limit` counts decoded bytes */
	bool fresh;      /* use a new connection */
	bool trickles;   /* little comes at a time, for long: the call keeps 2 KB for it, and not 16 */
	size_t limit;    /* of the collected body's bytes: more is ERR_FULL. 0: 16 MB. No limit if `data` takes them */

	/* The callbacks. They are called from the loop, never from inside http_start, http_send or libcurl. They may
	 * call every function of this header but http_free, and http_cancel for their own call, too. */
	void *arg;
	/* The status line and headers have come. Called once, before `data`. May be NULL. */
	void (*answered)(void *arg, struct http_call *c, int status, const struct http_headers *headers);
	/* A part of the body, never empty. Not called while paused. NULL: the body is collected for `done`. */
	void (*data)(void *arg, struct http_call *c, const char *bytes, size_t len);
	/* Less than 64 KB of what http_send took still wait to be sent: more may follow. May be NULL. */
	void (*drained)(void *arg, struct http_call *c);
	/* The end of the call. Called exactly once; the handle is not valid after it. headers: those that came, also if
	 * the call failed. */
	void (*done)(void *arg, const struct http_result *r, const struct http_headers *headers);
};

/* Never fails and never blocks: an error of the request is passed to `done`, in a later turn of the loop. The call is
 * valid until `done` is called. */
struct http_call *http_start(struct http *h, const struct http_request *r);

/* Ends the call: `done` is called with ERR_CANCELLED before this returns. Its connection is closed unless other calls
 * use it. */
void http_cancel(struct http_call *c);

/* Sends more of a streamed body, a copy of it; len may be 0 with HTTP_LAST. Returns how many bytes wait to be sent. If
 * they are more than 64 KB, the caller waits for `drained`. */
size_t http_send(struct http_call *c, const void *bytes, size_t len, enum http_part part);

/* While paused, `data` is not called; at most 256 KB are kept, then no more are read. `silence` does not count, `by`
 * does. A good end of the call waits, too. One call with false ends any number of calls with true. */
void http_pause(struct http_call *c, bool paused);

/* The URL without user, password, query and fragment. The caller frees it. */
char *http_url_plain(const char *url);

/* Standard base64 with padding (RFC 4648, 4). unbase64 skips line breaks, as MIME (RFC 2045, 6.8) and Go have it; -1 if
 * it is not base64: then nothing is added to out. */
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
