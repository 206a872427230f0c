#include "net/http/http_internal.h"

#include "base/authorities.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define IDLE_S 90L /* how long an idle connection is kept */

enum err_code http_meaning(CURLcode code, enum http_stage stage)
{
	switch ((int)code) {
	case CURLE_OPERATION_TIMEDOUT:
		return ERR_TIMEOUT;
	case CURLE_URL_MALFORMAT:
	case CURLE_UNSUPPORTED_PROTOCOL:
	case CURLE_BAD_FUNCTION_ARGUMENT:
	case CURLE_UNKNOWN_OPTION:
		return stage == HTTP_UNSENT ? ERR_USAGE : ERR_INVALID; /* 8.14: a garbled status line, too */
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_CERTPROBLEM:
		return ERR_MISSING;
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_LOGIN_DENIED:
		return ERR_DENIED;
	case CURLE_PARTIAL_FILE:
		return stage == HTTP_ANSWERING ? ERR_INVALID : ERR_UNREACHABLE; /* 8.14: an upload that was cut, too */
	case CURLE_WEIRD_SERVER_REPLY:
	case CURLE_BAD_CONTENT_ENCODING:
	case CURLE_TOO_MANY_REDIRECTS:
	case CURLE_HTTP2:
		return ERR_INVALID;
	case CURLE_OUT_OF_MEMORY:
		return ERR_SYSTEM;
	default:
		return ERR_UNREACHABLE;
	}
}

static bool is(const char *method, const char *name)
{
	return strcmp(method, name) == 0;
}

static int add_line(struct http_call *c, const char *line)
{
	size_t name = strcspn(line, ":; \t");

	if (strpbrk(line, "\r\n") || name == 0 || line[name] != ':')
		return err_set(&c->err, ERR_USAGE, "%s: the header \"%.*s\" is not \"Name: value\" on one line",
		               c->name, (int)(name < 60 ? name : 60), line);
	c->lines = curl_slist_append(c->lines, line);
	return 0;
}

static bool has_line(const struct http_call *c, const char *name)
{
	for (const struct curl_slist *l = c->lines; l; l = l->next)
		if (strncasecmp(l->data, name, strlen(name)) == 0 && l->data[strlen(name)] == ':')
			return true;
	return false;
}

/* A client that says so sends no other request on the connection (RFC 9112, 9.6). libcurl keeps it unless the server's
 * answer says so, too, and the next request is sent to a server that is about to close. */
static bool is_last(const char *line)
{
	return strncasecmp(line, "connection:", 11) == 0 && strcasestr(line + 11, "close");
}

static int set_lines(struct http_call *c, const struct http_request *r)
{
	bool last = false;

	for (const char *const *l = r->headers; l && *l; l++) {
		if (add_line(c, *l) < 0)
			return -1;
		last = last || is_last(*l);
	}
	curl_easy_setopt(c->easy, CURLOPT_FORBID_REUSE, last ? 1L : 0L);
	if (r->bearer) {
		char *line = mem_printf("Authorization: Bearer %s", r->bearer);
		int bad = strpbrk(r->bearer, "\r\n")
		                  ? err_set(&c->err, ERR_USAGE, "%s: the token has a line break in it", c->name)
		                  : 0;
		if (!bad)
			add_line(c, line);
		free(line);
		if (bad)
			return -1;
	}
	if (!has_line(c, "Expect"))
		c->lines = curl_slist_append(c->lines, "Expect:"); /* "100 Continue" takes a round trip, or a second */
	if ((r->body || r->streamed) && !has_line(c, "Content-Type"))
		c->lines = curl_slist_append(c->lines, "Content-Type:");
	return 0;
}

static void set_streamed(struct http_call *c, const struct http_request *r, const char *method)
{
	curl_easy_setopt(c->easy, CURLOPT_UPLOAD, 1L);
	curl_easy_setopt(c->easy, CURLOPT_CUSTOMREQUEST, method);
	curl_easy_setopt(c->easy, CURLOPT_INFILESIZE_LARGE, r->body_len ? (curl_off_t)r->body_len : (curl_off_t)-1);
}

static void set_method(struct http_call *c, const struct http_request *r)
{
	const char *method = r->method ? r->method : r->body || r->streamed ? "POST" : "GET";
	bool empty_body = !r->body && (is(method, "POST") || is(method, "PUT") || is(method, "PATCH"));

	if (r->streamed) {
		c->r.redirects = 0;
		set_streamed(c, r, method);
		return;
	}
	if (r->body || empty_body) {
		curl_easy_setopt(c->easy, CURLOPT_POST, 1L);
		curl_easy_setopt(c->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)(r->body ? r->body_len : 0));
		curl_easy_setopt(c->easy, CURLOPT_COPYPOSTFIELDS, r->body ? r->body : "");
		if (empty_body && !has_line(c, "Content-Type"))
			c->lines = curl_slist_append(c->lines, "Content-Type:");
	}
	if (is(method, "HEAD"))
		curl_easy_setopt(c->easy, CURLOPT_NOBODY, 1L);
	else if (!is(method, r->body || empty_body ? "POST" : "GET"))
		curl_easy_setopt(c->easy, CURLOPT_CUSTOMREQUEST, method);
	if (r->redirects > 0 && (is(method, "GET") || is(method, "HEAD") || is(method, "POST"))) {
		curl_easy_setopt(c->easy, CURLOPT_FOLLOWLOCATION, 1L);
		curl_easy_setopt(c->easy, CURLOPT_MAXREDIRS, (long)r->redirects);
		curl_easy_setopt(c->easy, CURLOPT_REDIR_PROTOCOLS_STR,
		                 strncasecmp(r->url, "https:", 6) == 0 ? "https" : "http,https");
	} else {
		c->r.redirects = 0;
	}
}

static void set_text(CURL *easy, CURLoption blob, const char *text, CURLoption file, const char *path)
{
	struct curl_blob b = { .data = (void *)(uintptr_t)text,
		               .len = text ? strlen(text) : 0,
		               .flags = CURL_BLOB_NOCOPY };

	if (text)
		curl_easy_setopt(easy, blob, &b);
	else if (path)
		curl_easy_setopt(easy, file, path);
}

static void set_authorities(CURL *easy)
{
	const char *preset = curl_version_info(CURLVERSION_NOW)->cainfo;
	const char *file = secure_getenv("SSL_CERT_FILE"); /* OpenSSL obeys it, libcurl does not */

	if (!file && preset)
		file = authorities_file(preset);
	if (file)
		curl_easy_setopt(easy, CURLOPT_CAINFO, file);
}

static void set_tls(struct http_call *c, const struct http_tls *t)
{
	CURL *e = c->easy;
	bool own_key = t->key_pem || t->key_file;

	if (t->ca_pem || t->ca_file) {
		curl_easy_setopt(e, CURLOPT_CAPATH, NULL); /* else the system's authorities would be trusted, too */
		curl_easy_setopt(e, CURLOPT_CAINFO, NULL);
		/* The file is read for each connection; else libcurl would keep its content for a day. */
		curl_easy_setopt(e, CURLOPT_CA_CACHE_TIMEOUT, 0L);
		set_text(e, CURLOPT_CAINFO_BLOB, t->ca_pem, CURLOPT_CAINFO, t->ca_file);
	}
	/* What is older is allowed by curl's presets, and by some systems' settings of OpenSSL (RFC 8996). */
	curl_easy_setopt(e, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	set_text(e, CURLOPT_SSLCERT_BLOB, t->cert_pem, CURLOPT_SSLCERT, t->cert_file);
	set_text(e, CURLOPT_SSLKEY_BLOB, own_key ? t->key_pem : t->cert_pem, CURLOPT_SSLKEY,
	         own_key ? t->key_file : t->cert_file);
	if (t->key_password)
		curl_easy_setopt(e, CURLOPT_KEYPASSWD, t->key_password);
	if (t->insecure) {
		curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 0L);
		curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 0L);
	}
}

/* Puts server_name into the URL, which TLS then uses, and makes libcurl connect to the URL's host instead. The Host
 * header stays the same. */
static int set_server_name(struct http_call *c, const struct http_request *r)
{
	CURLU *u = curl_url();
	char *host = NULL, *port = NULL, *url = NULL, *text;
	int ok = -1;

	if (curl_url_set(u, CURLUPART_URL, r->url, 0) || curl_url_get(u, CURLUPART_HOST, &host, 0) ||
	    curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) ||
	    curl_url_set(u, CURLUPART_HOST, r->server_name, 0) || curl_url_get(u, CURLUPART_URL, &url, 0)) {
		err_set(&c->err, ERR_USAGE, "%s: this URL and the server name \"%s\" do not go together", c->name,
		        r->server_name);
	} else {
		ok = 0;
		c->tls_url = mem_dup(url);
		/* Only for server_name: a redirect to another host connects to that host. */
		text = mem_printf("%s:%s:%s:%s", r->server_name, port, host, port);
		c->connect_to = curl_slist_append(NULL, text);
		free(text);
		if (!has_line(c, "Host")) {
			text = mem_printf("Host: %s:%s", host, port);
			c->lines = curl_slist_append(c->lines, text);
			free(text);
		}
		curl_easy_setopt(c->easy, CURLOPT_CONNECT_TO, c->connect_to);
	}
	curl_free(host);
	curl_free(port);
	curl_free(url);
	curl_url_cleanup(u);
	return ok;
}

/* libcurl gives each of a name's addresses half of the time that is left, and the last one all of it. So it must know
 * how long that is, or an address that drops packets would take all of the call's. A name is looked up for each
 * connection: it may have moved. */
static void set_addresses(struct http_call *c, const struct http_request *r)
{
	nsec most = r->connect;
	bool ends = r->by.boot || r->by.raw;
	nsec left = ends ? instant_until(r->by, clock_now()) : 0;

	if (ends && (!most || left < most))
		most = left > 0 ? left : 1;
	if (most)
		curl_easy_setopt(c->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)((most + NSEC_PER_MS - 1) / NSEC_PER_MS));
	curl_easy_setopt(c->easy, CURLOPT_DNS_CACHE_TIMEOUT, 0L);
}

static void set_way(struct http_call *c, const struct http_request *r)
{
	CURL *e = c->easy;
	bool http1 = r->tls && r->tls->http1;

	c->maybe_http2 = !http1 && strncasecmp(r->url, "https:", 6) == 0;
	if (r->unix_path && *r->unix_path == '@')
		curl_easy_setopt(e, CURLOPT_ABSTRACT_UNIX_SOCKET, r->unix_path + 1);
	else if (r->unix_path)
		curl_easy_setopt(e, CURLOPT_UNIX_SOCKET_PATH, r->unix_path);
	if (r->unix_path || r->proxy)
		curl_easy_setopt(e, CURLOPT_PROXY, r->unix_path ? "" : r->proxy);
	if (r->no_proxy)
		curl_easy_setopt(e, CURLOPT_NOPROXY, r->no_proxy);
	curl_easy_setopt(e, CURLOPT_HTTP_VERSION, c->maybe_http2 ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_1_1);
	/* Wait for the first connection, and share it. */
	curl_easy_setopt(e, CURLOPT_PIPEWAIT, c->maybe_http2 ? 1L : 0L);
	set_addresses(c, r);
	curl_easy_setopt(e, CURLOPT_FRESH_CONNECT, r->fresh ? 1L : 0L);
	curl_easy_setopt(e, CURLOPT_MAXAGE_CONN, IDLE_S);
	if (r->trickles)
		curl_easy_setopt(e, CURLOPT_BUFFERSIZE, 2048L);
	if (r->compressed)
		curl_easy_setopt(e, CURLOPT_ACCEPT_ENCODING, "");
	if (r->user) {
		curl_easy_setopt(e, CURLOPT_USERNAME, r->user);
		curl_easy_setopt(e, CURLOPT_PASSWORD, r->password ? r->password : "");
	}
}

int http_set_request(struct http_call *c, const struct http_request *r)
{
	if (strncasecmp(r->url, "http://", 7) != 0 && strncasecmp(r->url, "https://", 8) != 0)
		return err_set(&c->err, ERR_USAGE, "%s: expected an http:// or https:// URL", c->name);
	if (r->method &&
	    (!*r->method || strspn(r->method, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") !=
	                            strlen(r->method)))
		return err_set(&c->err, ERR_USAGE, "%s: this is no method", c->name);
	http_set_callbacks(c);
	if (set_lines(c, r) < 0 || (r->server_name && set_server_name(c, r) < 0))
		return -1;
	set_method(c, r);
	set_way(c, r);
	set_authorities(c->easy);
	if (r->tls)
		set_tls(c, r->tls);
	CURLcode code = curl_easy_setopt(c->easy, CURLOPT_URL, c->tls_url ? c->tls_url : r->url);
	if (code == CURLE_OK)
		code = curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, c->lines);
	return code == CURLE_OK
	               ? 0
	               : err_set(&c->err, http_meaning(code, HTTP_UNSENT), "%s: %s", c->name, curl_easy_strerror(code));
}
