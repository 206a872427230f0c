/* The times of a record: microseconds since 1970 by a wall clock, as text.
 * Not the clock of leases (clock.h): these times are for people, and decide nothing.
 * Used by record.c, by past.c, and by what writes times as JSON (events.c, status.c, script_jobs.c), and by fence.c. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define RECORD_TIME_UNKNOWN INT64_MIN
#define RECORD_TIME_MAX INT64_C(253402300799999999) /* the end of the year 9999; later times are not printed */

/* RFC 3339 with six digits and Z, as Kubernetes' MicroTime wants it. out: at least 32 bytes. */
void record_time_print(int64_t us, char *out, size_t size);
int record_time_parse(const char *text, int64_t *us); /* lenient: any fraction, Z or offset; -1 if it is no time */
