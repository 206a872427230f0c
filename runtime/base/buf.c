#include "base/buf.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void reserve(struct buf *b, size_t more)
{
	if (b->len + more + 1 <= b->cap)
		return;
	size_t cap = b->cap ? b->cap : 128;
	while (cap < b->len + more + 1)
		cap *= 2;
	b->data = mem_resize(b->data, cap);
	b->cap = cap;
}

void buf_fini(struct buf *b)
{
	free(b->data);
	*b = (struct buf){ 0 };
}

char *buf_more(struct buf *b, size_t len)
{
	reserve(b, len);
	char *room = b->data + b->len;
	b->len += len;
	b->data[b->len] = '\0';
	return room;
}

void buf_add(struct buf *b, const void *bytes, size_t len)
{
	char *room = buf_more(b, len);

	if (len)
		memcpy(room, bytes, len);
}

void buf_adds(struct buf *b, const char *s)
{
	buf_add(b, s, strlen(s));
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap, again;

	va_start(ap, fmt);
	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n > 0) {
		reserve(b, (size_t)n);
		vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
		b->len += (size_t)n;
	}
	va_end(again);
}

void buf_drop(struct buf *b, size_t len)
{
	if (len >= b->len) {
		b->len = 0;
		return;
	}
	memmove(b->data, b->data + len, b->len - len);
	b->len -= len;
}

/* Length of the valid UTF-8 sequence at s, 0 if there is none (RFC 3629: no overlong forms, no surrogates). */
static size_t utf8_len(const unsigned char *s)
{
	size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;

	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f))
		return 0;
	if ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return n;
}

bool buf_is_utf8(const char *s)
{
	while (*s) {
		size_t n = utf8_len((const unsigned char *)s);
		if (n == 0)
			return false;
		s += n;
	}
	return true;
}

/* How many bytes from here on need no escape. */
static size_t plain_len(const unsigned char *s)
{
	size_t n = 0;

	while (s[n] >= 0x20 && s[n] < 0x7f && s[n] != '"' && s[n] != '\\')
		n++;
	return n;
}

void buf_json(struct buf *b, const char *s)
{
	const unsigned char *p = (const unsigned char *)s;

	buf_adds(b, "\"");
	while (*p) {
		size_t n = plain_len(p);
		if (n > 0) {
			buf_add(b, p, n);
			p += n;
			continue;
		}
		n = utf8_len(p);
		if (n == 0)
			buf_adds(b, "\\ufffd");
		else if (*p == '"' || *p == '\\')
			buf_printf(b, "\\%c", *p);
		else if (*p == '\n')
			buf_adds(b, "\\n");
		else if (*p < 0x20 || *p == 0x7f)
			buf_printf(b, "\\u%04x", *p);
		else
			buf_add(b, p, n);
		p += n ? n : 1;
	}
	buf_adds(b, "\"");
}

void buf_plain(struct buf *b, const char *s)
{
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;
		if (c == '\n')
			buf_adds(b, "\\n");
		else if ((c < 0x20 && c != '\t') || c == 0x7f)
			buf_printf(b, "\\x%02x", c);
		else
			buf_add(b, s, 1);
	}
}
