/* Parses JSON from outside only if it has few enough values: three bytes ("{},") need more than 200 bytes of memory.
 * Not a parser: that is jansson.
 * Used by the locks that speak JSON over HTTP, for answers, watches, credentials. */
#ifndef LUNARCH_JSON_BOUND_H
#define LUNARCH_JSON_BOUND_H

#include "base/err.h"

#include <stddef.h>

struct json_t;

/* As json_loadb(text, len, flags). NULL with ERR_FULL: there are more than `most` values, and nothing was parsed. NULL
 * with ERR_INVALID: it is no JSON. err may be NULL. */
struct json_t *json_bound_load(const char *text, size_t len, size_t flags, size_t most, struct err *err);

#endif
