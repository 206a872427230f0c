#include "net/http/http_internal.h"

#include "version.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#define HEADERS_MAX (256 * 1024)
#define DATA_MAX (256 * 1024) /* kept of an answer's body while the call is paused */
#define SEND_LOW (64 * 1024)
#define LIMIT_DEFAULT (16 * 1024 * 1024)

static int call_on_prereq(void *arg, char *, char *, int, int)
{
	struct http_call *c = arg;

	if (!c->sent)
		c->sent_at = c->heard_at = clock_now();
	c->repeated |= c->sent;
	c->sent = true;
	return CURL_PREREQFUNC_OK;
}

static void begin_head(struct http_call *c, const char *line, size_t len)
{
	const char *space = memchr(line, ' ', len);

	c->head.len = c->head_count = 0;
	c->head_done = c->following = false;
	c->status = 0;
	for (const char *p = space ? space + 1 : line + len;
	     p < line + len && isdigit((unsigned char)*p) && c->status < 1000; p++)
		c->status = c->status * 10 + (*p - '0');
}

/* Refuses a length that does not fit into a number: libcurl would ignore it, and take what comes until the connection
 * is closed as the whole body. */
static void check_length(struct http_call *c, const char *value)
{
	if (strspn(value, "0123456789") > 18)
		err_set(&c->err, ERR_INVALID, "%s: the answer has an impossible Content-Length: %.30s", c->name, value);
}

static void add_header(struct http_call *c, const char *line, size_t len)
{
	const char *colon = memchr(line, ':', len);

	if (!colon || memchr(line, '\0', len))
		return;
	buf_add(&c->head, line, (size_t)(colon - line));
	buf_add(&c->head, "", 1);
	if ((size_t)(colon - line) == 8 && strncasecmp(line, "location", 8) == 0)
		c->following = c->r.redirects > 0 && c->status / 100 == 3;
	const char *p = colon + 1, *end = line + len;
	while (p < end && isspace((unsigned char)*p))
		p++;
	while (end > p && isspace((unsigned char)end[-1]))
		end--;
	buf_add(&c->head, p, (size_t)(end - p));
	buf_add(&c->head, "", 1);
	if ((size_t)(colon - line) == 14 && strncasecmp(line, "content-length", 14) == 0)
		check_length(c, c->head.data + c->head.len - 1 - (end - p));
	c->head_count++;
}

/* Called for the status line, each header line, and the empty line. Trailers after the body are ignored. */
static size_t call_on_header(char *line, size_t size, size_t count, void *arg)
{
	struct http_call *c = arg;
	size_t len = size * count;

	c->heard = true;
	c->heard_at = clock_now();
	if (len >= 5 && strncmp(line, "HTTP/", 5) == 0) {
		begin_head(c, line, len);
	} else if (c->head_done) {
		return len;
	} else if (len <= 2 && (*line == '\r' || *line == '\n')) {
		c->head_done = true;
		if (c->status >= 200 && !c->following) {
			c->answered = true;
			http_ready(c);
		}
	} else {
		add_header(c, line, len);
	}
	if (c->err.code != ERR_NONE)
		return 0;
	if (c->head.len <= HEADERS_MAX)
		return len;
	err_set(&c->err, ERR_INVALID, "%s: the answer has more than %d KB of headers", c->name, HEADERS_MAX / 1024);
	return 0;
}

static size_t call_on_body(char *bytes, size_t size, size_t count, void *arg)
{
	struct http_call *c = arg;
	size_t len = size * count, limit = c->r.limit ? c->r.limit : LIMIT_DEFAULT;

	c->heard_at = clock_now();
	c->answered = true;
	if (c->r.data && c->body.len && c->body.len + len > DATA_MAX) {
		c->held = true;
		http_ready(c);
		return CURL_WRITEFUNC_PAUSE;
	}
	if (!c->r.data && len > limit - c->body.len) {
		err_set(&c->err, ERR_FULL, "%s: the answer's body is larger than the limit of %zu bytes", c->name,
		        limit);
		return 0;
	}
	buf_add(&c->body, bytes, len);
	if (c->r.data)
		http_ready(c);
	return len;
}

static size_t call_on_read(char *to, size_t size, size_t count, void *arg)
{
	struct http_call *c = arg;
	size_t len = size * count < c->out.len ? size * count : c->out.len;

	if (len == 0 && !c->out_ended) {
		c->starved = true;
		return CURL_READFUNC_PAUSE;
	}
	memcpy(to, c->out.data ? c->out.data : "", len);
	bool was_high = c->out.len >= SEND_LOW;
	buf_drop(&c->out, len);
	c->heard_at = clock_now(); /* `silence` counts bytes in both directions */
	if (was_high && c->out.len < SEND_LOW && !c->out_ended) {
		c->told_drained = true;
		http_ready(c);
	}
	return len;
}

static curl_socket_t call_on_open(void *arg, curlsocktype, struct curl_sockaddr *a)
{
	struct http_call *c = arg;
	char ip[HTTP_IP] = "";
	const void *in6 = &((const struct sockaddr_in6 *)(const void *)&a->addr)->sin6_addr;
	const void *in = &((const struct sockaddr_in *)(const void *)&a->addr)->sin_addr;

	if (a->family == AF_INET || a->family == AF_INET6)
		inet_ntop(a->family, a->family == AF_INET ? in : in6, ip, sizeof ip);
	if (http_is_doubted(c->client, ip)) {
		c->passed = true;
		return CURL_SOCKET_BAD;
	}
	if (!c->heard)
		http_doubt(c->client, c->at); /* it has not answered in its part of the time */
	memcpy(c->at, ip, sizeof ip);
	c->at_since = clock_now();
	c->client->stats.opened++;
	return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

/* It fails only if fd is no TCP socket (a Unix socket). */
static void set_tcp(int fd, int option, int value)
{
	(void)!setsockopt(fd, IPPROTO_TCP, option, &value, sizeof value);
}

static int call_on_socket(void *arg, curl_socket_t fd, curlsocktype)
{
	const struct http_call *c = arg;
	int stall_ms = (int)(c->client->o.stall / NSEC_PER_MS), stall_s = stall_ms / 1000, on = 1;

	if (setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) == 0) {
		set_tcp(fd, TCP_KEEPIDLE, stall_s / 2 > 1 ? stall_s / 2 : 1);
		set_tcp(fd, TCP_KEEPINTVL, stall_s / 4 > 1 ? stall_s / 4 : 1);
		set_tcp(fd, TCP_KEEPCNT, 2);
		set_tcp(fd, TCP_USER_TIMEOUT, stall_ms);
		set_tcp(fd, TCP_NODELAY, 1);
	}
	return CURL_SOCKOPT_OK;
}

void http_set_callbacks(struct http_call *c)
{
	CURL *e = c->easy;

	curl_easy_setopt(e, CURLOPT_PRIVATE, c);
	curl_easy_setopt(e, CURLOPT_ERRORBUFFER, c->why);
	curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(e, CURLOPT_NOPROGRESS, 1L);
	curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(e, CURLOPT_USERAGENT, "lunarch/" LUNARCH_VERSION);
	/* libcurl does not wait for a resolver's thread, which would block the loop (curl's issue 8515). */
	curl_easy_setopt(e, CURLOPT_QUICK_EXIT, 1L);
	curl_easy_setopt(e, CURLOPT_PREREQFUNCTION, call_on_prereq);
	curl_easy_setopt(e, CURLOPT_PREREQDATA, c);
	curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, call_on_header);
	curl_easy_setopt(e, CURLOPT_HEADERDATA, c);
	curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, call_on_body);
	curl_easy_setopt(e, CURLOPT_WRITEDATA, c);
	curl_easy_setopt(e, CURLOPT_READFUNCTION, call_on_read); /* called for streamed bodies only */
	curl_easy_setopt(e, CURLOPT_READDATA, c);
	curl_easy_setopt(e, CURLOPT_OPENSOCKETFUNCTION, call_on_open);
	curl_easy_setopt(e, CURLOPT_OPENSOCKETDATA, c);
	curl_easy_setopt(e, CURLOPT_SOCKOPTFUNCTION, call_on_socket);
	curl_easy_setopt(e, CURLOPT_SOCKOPTDATA, c);
}
