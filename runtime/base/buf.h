/* A growing byte buffer that owns its bytes.
 * Not a string type: it may hold zeros; `data` is terminated all the same, for printing.
 * Used by the log, messages, records and command output. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct buf {
	char *data; /* NULL until the first byte */
	size_t len, cap;
};

void buf_fini(struct buf *b); /* frees the bytes; leaves an empty buffer */
void buf_add(struct buf *b, const void *bytes, size_t len);
void buf_adds(struct buf *b, const char *s);

/* Adds len bytes, which the caller must write. The pointer is valid until the next call. */
char *buf_more(struct buf *b, size_t len);

void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_drop(struct buf *b, size_t len); /* removes len bytes from the front */

/* Adds s as a JSON string with its quotes. Control characters and invalid UTF-8 are escaped, so the result is always
 * valid. */
void buf_json(struct buf *b, const char *s);

/* Whether buf_json would keep s as it is. */
bool buf_is_utf8(const char *s);

/* Adds s for a terminal: control characters other than tabs become \n or \xNN, so that the text can neither move the
 * cursor nor start a line. */
void buf_plain(struct buf *b, const char *s);
