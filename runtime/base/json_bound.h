/* JSON from outside, parsed only if it has few enough values: three bytes ("{},") take more than 200 when parsed.
 * Not a parser: that is jansson.
 * Used by the locks that speak JSON over HTTP, for answers, watches, credentials. */
#ifndef LUNARCH_JSON_BOUND_H
#define LUNARCH_JSON_BOUND_H

#include "base/err.h"

#include <stddef.h>

struct json_t;

/* As json_loadb(text, len, flags). NULL with ERR_FULL if there are more than `most` values, which is seen before
 * anything is parsed, or with ERR_INVALID: no JSON. err may be NULL. */
struct json_t *json_bound_load(const char *text, size_t len, size_t flags, size_t most, struct err *err);

#endif
