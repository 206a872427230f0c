/* Durations as people write them: "500ms" "2s" "1.5s" "1m30s" "1h", exact in milliseconds.
 * Not dates, and not the nanoseconds of clock.h.
 * Used by the options and by what prints times for people. */
#pragma once

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define DURATION_MAX_MS (INT64_C(10000) * 3600 * 1000)

/* 0 to DURATION_MAX_MS. ERR_USAGE: negative, no unit ("15": says to add one), finer than a millisecond, too long. */
int duration_parse(const char *s, int64_t *ms, struct err *err);

/* The shortest of the forms above. ms may be negative. out: at least 32 bytes. */
void duration_print(int64_t ms, char *out, size_t size);
