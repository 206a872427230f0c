#include "net/http/http_internal.h"

#include "base/mem.h"

#include <string.h>
#include <strings.h>

char *http_url_without_secrets(const char *url, bool query)
{
	const char *host = strstr(url, "://"), *end;

	host = host ? host + 3 : url;
	end = host + strcspn(host, "/?#");
	for (const char *p = end; p > host; p--)
		if (p[-1] == '@') {
			return mem_printf("%.*s%.*s", (int)(host - url), url, (int)strcspn(p, query ? "#" : "?#"), p);
		}
	return mem_dupn(url, strcspn(url, query ? "#" : "?#"));
}

char *http_url_plain(const char *url)
{
	return http_url_without_secrets(url, false);
}

const char *http_header(const struct http_headers *h, const char *name)
{
	for (size_t i = 0; i < h->count; i++)
		if (strcasecmp(h->list[i].name, name) == 0)
			return h->list[i].value;
	return NULL;
}

static const char digits64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void http_base64(struct buf *out, const void *bytes, size_t len)
{
	const unsigned char *p = bytes;

	for (; len; len -= len < 3 ? len : 3, p += 3) {
		uint32_t v = (uint32_t)p[0] << 16 | (len > 1 ? (uint32_t)p[1] << 8 : 0) | (len > 2 ? p[2] : 0);
		char four[4] = { digits64[v >> 18], digits64[v >> 12 & 63], len > 1 ? digits64[v >> 6 & 63] : '=',
			         len > 2 ? digits64[v & 63] : '=' };
		buf_add(out, four, 4);
	}
}

int http_unbase64(struct buf *out, const char *s, size_t len)
{
	size_t before = out->len, count = 0, pad = 0;
	uint32_t v = 0;

	for (const char *end = s + len; s < end; s++) {
		if (*s == '\r' || *s == '\n')
			continue;
		const char *d = *s && !pad ? strchr(digits64, *s) : NULL;
		if (!d && (*s != '=' || ++pad > 2))
			goto bad;
		v = v << 6 | (d ? (uint32_t)(d - digits64) : 0);
		if (++count % 4)
			continue;
		unsigned char three[3] = { (unsigned char)(v >> 16), (unsigned char)(v >> 8), (unsigned char)v };
		buf_add(out, three, 3 - pad);
	}
	if (count % 4 == 0)
		return 0;
bad:
	out->len = before;
	return -1;
}

void http_libraries(struct buf *out)
{
	const curl_version_info_data *v = curl_version_info(CURLVERSION_NOW);

	buf_printf(out, "libcurl %s", v->version);
	if (v->ssl_version)
		buf_printf(out, " %s", v->ssl_version);
	if (v->nghttp2_version)
		buf_printf(out, " nghttp2/%s", v->nghttp2_version);
}
