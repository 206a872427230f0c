/* One request of HTTP/1.1 or 1.0 as it comes from a client that nobody trusts (RFC 9112): method, path, parameters, and
 * the few headers that matter here.
 * Not a connection (server.h). It takes no request that has a body: what is asked for stands in the URL.
 * Used by server.c. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define REQUEST_MAX 8192 /* bytes of request line and headers */
#define REQUEST_PARAMS 8

struct request {
	const char *method; /* as it was sent: letters */
	char *path;         /* decoded, without the query; begins with '/', or is "*" */
	struct {
		char *name, *value; /* decoded; value "" = none was given */
	} param[REQUEST_PARAMS];
	size_t params;
	const char *host; /* as it was sent; NULL: none */
	bool html;        /* Accept names text/html: a browser shows the answer to somebody */
	bool keep;        /* the connection stays open after the answer */
	uid_t peer;       /* who asks, where the server asks the kernel (may_ask); else (uid_t)-1 */
};

/* bytes: len of them, REQUEST_MAX at most, of one connection from its first unread byte on.
 * > 0: a whole request of so many bytes; they were changed, and the texts of *r lie in them.
 * 0: it is not complete, and nothing was changed.
 * < 0: refused, with this status of HTTP negated: what follows on the connection cannot be read. */
int request_parse(struct request *r, char *bytes, size_t len);

const char *request_param(const struct request *r, const char *name); /* NULL: not given */
