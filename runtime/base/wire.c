#include "base/wire.h"

#include <string.h>

/* Both ends are the same binary on the same machine, so numbers travel as they lie in memory, unaligned. A string is
 * its length with the terminator, then the bytes with the terminator. */

void wire_begin(struct buf *m, uint32_t type)
{
	m->len = 0;
	wire_u32(m, type);
}

void wire_str(struct buf *m, const char *s)
{
	size_t size = strlen(s ? s : "") + 1;

	wire_u32(m, (uint32_t)size);
	buf_add(m, s ? s : "", size);
}

void wire_cut(struct buf *m, const char *s)
{
	size_t len = strnlen(s ? s : "", WIRE_CUT);

	wire_u32(m, (uint32_t)len + 1);
	buf_add(m, s, len);
	buf_add(m, "", 1);
}

/* The next len bytes, or NULL and bad. */
static const void *wire_take(struct wire *w, size_t len)
{
	if (w->bad || (size_t)(w->end - w->at) < len) {
		w->bad = true;
		return NULL;
	}
	w->at += len;
	return w->at - len;
}

#define WIRE_NUMBER(type)                                      \
	void wire_##type(struct buf *m, WIRE_C_##type v)       \
	{                                                      \
		buf_add(m, &v, sizeof v);                      \
	}                                                      \
	WIRE_C_##type wire_get_##type(struct wire *w)          \
	{                                                      \
		WIRE_C_##type v = 0;                           \
		const void *bytes = wire_take(w, sizeof v);    \
		if (bytes) /* else the message is too short */ \
			memcpy(&v, bytes, sizeof v);           \
		return v;                                      \
	}
WIRE_NUMBER(u8)
WIRE_NUMBER(u32)
WIRE_NUMBER(u64)
WIRE_NUMBER(i64)

uint32_t wire_start(struct wire *w, const void *data, size_t len, size_t most)
{
	*w = (struct wire){ .at = data, .end = (const unsigned char *)data + len, .bad = len > most };
	return wire_get_u32(w);
}

const char *wire_get_str(struct wire *w)
{
	uint32_t size = wire_get_u32(w);
	const char *s = wire_take(w, size);

	/* The first zero must be the last byte: a string that ends early would hide what follows. */
	if (!s || !size || memchr(s, '\0', size) != s + size - 1) {
		w->bad = true;
		return "";
	}
	return s;
}

void wire_list(struct buf *m, struct wire parts)
{
	if (parts.at)
		buf_add(m, parts.at, (size_t)(parts.end - parts.at));
}

struct wire wire_parts(const struct buf *list)
{
	const unsigned char *parts = (const unsigned char *)list->data;

	return (struct wire){ .at = parts, .end = parts ? parts + list->len : parts };
}

struct wire wire_get_list(struct wire *w)
{
	struct wire rest = *w;

	w->at = w->end;
	return rest;
}

bool wire_done(const struct wire *w)
{
	return !w->bad && w->at == w->end;
}
