/* A time zone: which offset from UTC holds when, from the system's zone files (tzfile(5), RFC 8536) or a POSIX TZ text.
 * Not the C library's zone: that one is the whole process', and lives in the environment, which is the script's. No
 * leap seconds. Used by cron.c. Times are seconds since 1970; local times are counted the same way, as if they were
 * UTC. */
#ifndef LUNARCH_ZONE_H
#define LUNARCH_ZONE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct zone;

#define ZONE_NEVER INT64_MAX

/* name: "Europe/Berlin", "UTC" (needs no file); "" or "local": the machine's, as tzset(3) finds it (TZ,
 * /etc/localtime). NULL with *err: ERR_MISSING, ERR_INVALID. Reads a file. */
struct zone *zone_open(const char *name, struct err *err);
struct zone *zone_parse(const void *file, size_t len, struct err *err); /* the content of a zone file */
struct zone *zone_posix(const char *text, struct err *err); /* "CET-1CEST,M3.5.0,M10.5.0/3": POSIX, XBD 8.3 */
void zone_free(struct zone *z);

/* The offset (seconds east of UTC) at that time; it holds from *from (INT64_MIN: always did) until *until, exclusive
 * (ZONE_NEVER). Pieces that follow each other may have the same offset. Either may be NULL. */
int32_t zone_offset(const struct zone *z, int64_t time, int64_t *from, int64_t *until);

/* The first time at which a clock on the wall shows this local time or, where it never does since the clock jumps over
 * it, more. */
int64_t zone_time(const struct zone *z, int64_t local);

#endif
