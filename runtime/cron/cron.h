/* Cron expressions: which minutes they mean, and which one is due.
 * Not a timer: time is passed in, nothing is started here. lua/api/cron.lua waits and calls.
 * Used by lua_cron.c. Times are seconds since 1970 (UTC), always a whole minute of the zone. */
#ifndef LUNARCH_CRON_H
#define LUNARCH_CRON_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct zone;

/* Five fields, as crontab(5) has them: minute hour day month weekday; lists, ranges, steps, names of months and
 * weekdays, 7 for Sunday, @yearly @annually @monthly @weekly @daily @midnight @hourly. Where both days are given,
 * either of them will do. Besides, H: some value, always the same for the same seed: H, H(0-29), H/15, H(0-29)/10.
 *
 * Where clocks change: with an hour field that begins with "*" it goes by the real hours, so that what comes twice runs
 * twice. Otherwise every local time that is meant runs once: the first, where it comes twice; where the clock jumps
 * over it, at the jump. */
struct cron {
	uint64_t minute;
	uint32_t hour, day;
	uint16_t month;
	uint8_t weekday;
	bool any_day, any_weekday; /* they began with "*" */
	bool by_hours;             /* the hour did */
};

/* seed: for H. ERR_INVALID names the field, what was expected and what was found; also for what never comes (30
 * February). */
int cron_parse(struct cron *c, const char *text, const char *seed, struct err *err);

#define CRON_NEVER INT64_MAX

/* The first after that time. For what cron_parse accepts there is one within 41 years. */
int64_t cron_next(const struct cron *c, const struct zone *z, int64_t after);

/* Which missed times are caught up: none, the last one, or all. A time less than a minute ago does not count as missed.
 */
enum cron_catch_up { CRON_SKIP, CRON_LAST, CRON_ALL };

/* The time to run now, if `last` was the last one that was run. CRON_NEVER: none is due, and *wake is when to look
 * again. */
int64_t cron_due(const struct cron *c, const struct zone *z, int64_t last, int64_t now, enum cron_catch_up how,
                 int64_t *wake);

#endif
