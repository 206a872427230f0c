/* Parses JSON from outside only if it has few enough values: three bytes ("{},") need more than 200 bytes of memory.
 * Not a parser: that is jansson.
 * Used by the room kube and its lock, by the locks in Lua, and by record.c. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct json_t;

/* As json_loadb(text, len, flags). NULL with ERR_FULL: there are more than `most` values, and nothing was parsed. NULL
 * with ERR_INVALID: it is no JSON. err may be NULL. */
struct json_t *json_bound_load(const char *text, size_t len, size_t flags, size_t most, struct err *err);

/* These bytes are a file of gzip (RFC 1952, 2.3.1): no JSON, but perhaps some that was compressed without saying so. */
static inline bool json_bound_is_gzip(const char *text, size_t len)
{
	return len > 2 && memcmp(text, "\x1f\x8b\x08", 3) == 0;
}
#define JSON_GZIP                                                                                                          \
	"it is compressed (gzip), expected JSON: what compresses it, perhaps a proxy, must say so (Content-Encoding), or " \
	"leave it"
