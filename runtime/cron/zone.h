/* A time zone: which offset from UTC holds when, from the system's zone files (tzfile(5), RFC 8536) or a POSIX TZ text.
 * Not the C library's zone: a process has only one, and it comes from the environment, which the script may change. No
 * leap seconds. Used by cron.c and lua_cron.c. Times are seconds since 1970 (UTC); local times are counted as if they
 * were UTC. */
#pragma once

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

/* The offset (seconds east of UTC) at that time. It holds from *from (INT64_MIN: since ever) to before *until
 * (ZONE_NEVER: for ever). The next span may have the same offset. from and until may be NULL. */
int32_t zone_offset(const struct zone *z, int64_t time, int64_t *from, int64_t *until);

/* The first time at which the local time is `local`. If the clock jumps over it: the first time at which it is
 * later. */
int64_t zone_time(const struct zone *z, int64_t local);
