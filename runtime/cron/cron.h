/* Room cron: cron expressions, time zones and the calendar, as functions of a time that is passed in.
 *
 * Cron expressions: which minutes they mean, and which one is due.
 * Not a timer: the caller passes the time. lua/api/cron.lua waits, and calls the jobs.
 * Used by lua_cron.c. Times are seconds since 1970 (UTC), and whole minutes in the zone. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct zone;

/* Five fields, as crontab(5) has them: minute hour day month weekday; lists, ranges, steps, names of months and
 * weekdays, 7 for Sunday, @yearly @annually @monthly @weekly @daily @midnight @hourly. If neither
 * the day nor the weekday begins with "*", either of them suffices. H stands for a value that is always the same for
 * the same seed: H, H(0-29), H/15, H(0-29)/10. 0~29 is H(0-29), and either end may be missing.
 *
 * When the clock changes: if the minute or the hour field begins with "*" (a wildcard job in cron(8) of Debian), a
 * local time that comes twice is due twice, and one that the clock jumps over is not due. Otherwise every local time
 * that is meant is due once: a time that comes twice is due the first time, and a time that the clock jumps over is due
 * at the jump. */
struct cron {
	uint64_t minute;
	uint32_t hour, day;
	uint16_t month;
	uint8_t weekday;
	bool any_day, any_weekday; /* the field begins with "*" */
	bool by_hours;             /* the minute or the hour field begins with "*": real time counts */
};

/* seed: for H. -1 with ERR_INVALID: the text names the field, what was expected and what was found. An expression that
 * is never due (30 February) is invalid. */
int cron_parse(struct cron *c, const char *text, const char *seed, struct err *err);

#define CRON_NEVER INT64_MAX

/* The first time later than `after`. What cron_parse accepts has one within 41 years, unless the
 * zone's clock jumps over each of them. */
int64_t cron_next(const struct cron *c, const struct zone *z, int64_t after);

/* Which missed times are still run: none, the last one, or all. A time less than a minute ago is not missed. */
enum cron_catch_up { CRON_SKIP, CRON_LAST, CRON_ALL };

/* The time that is due now, if `last` is the last one that was run. CRON_NEVER: none is due; call again at *wake. */
int64_t cron_due(const struct cron *c, const struct zone *z, int64_t last, int64_t now, enum cron_catch_up how,
                 int64_t *wake);
