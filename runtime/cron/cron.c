#include "cron/cron.h"

#include "base/hash.h"
#include "cron/calendar.h"
#include "cron/zone.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MINUTE 60
#define HOUR 3600
#define DAY 86400
#define ON_TIME MINUTE             /* a time that is less than this in the past is not missed */
#define LOOK_AHEAD_DAYS (41 * 366) /* 29 February falls on a given weekday within 40 years: 2088, 2128 */
#define STEP_MAX 60                /* larger than each field: such a step means the first value alone, as in cron(8) */
#define CHANGE_MAX (52 * HOUR)     /* a clock's change is never larger: offsets are less than 26 hours (zone.c) */

/* ---- parsing ---- */

struct cron_field {
	const char *name;
	int min, max;
	int hash_max;             /* the largest value of H: every month has 28 days */
	const char *const *names; /* names[0] means min; NULL: the field has numbers alone */
};

static const char *const months[] = { "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL",
	                              "AUG", "SEP", "OCT", "NOV", "DEC", NULL };
static const char *const weekdays[] = { "SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT", NULL };

static const struct cron_field fields[5] = {
	{ "minute", 0, 59, 59, NULL },  { "hour", 0, 23, 23, NULL },      { "day of the month", 1, 31, 28, NULL },
	{ "month", 1, 12, 12, months }, { "weekday", 0, 7, 6, weekdays },
};

static const struct {
	const char *name, *means;
} shortcuts[] = {
	{ "@yearly", "0 0 1 1 *" }, { "@annually", "0 0 1 1 *" }, { "@monthly", "0 0 1 * *" },
	{ "@weekly", "0 0 * * 0" }, { "@daily", "0 0 * * *" },    { "@midnight", "0 0 * * *" },
	{ "@hourly", "0 * * * *" },
};

struct parsing {
	const struct cron_field *field;
	const char *at;
	const char *seed;
	struct err *err;
};

static int expected(struct parsing *p, const char *what)
{
	int len = (int)strcspn(p->at, " \t,");

	return err_set(p->err, ERR_INVALID, "%s: expected %s, found %s%.*s%s", p->field->name, what, len ? "\"" : "",
	               len ? len : 3, len ? p->at : "end", len ? "\"" : "");
}

static int out_of_range(struct parsing *p)
{
	char text[80];

	snprintf(text, sizeof text, "%d to %d%s%s", p->field->min, p->field->max,
	         p->field->names ? " or a name as in " : "", p->field->names ? p->field->names[1] : "");
	return expected(p, text);
}

/* Reads a number, or a name of a month or weekday. */
static int read_value(struct parsing *p, int *out)
{
	const struct cron_field *f = p->field;
	int n = 0, digits = 0;

	for (int i = 0; f->names && f->names[i]; i++)
		if (strncasecmp(p->at, f->names[i], 3) == 0 && !isalnum((unsigned char)p->at[3])) {
			p->at += 3;
			*out = f->min + i;
			return 0;
		}
	while (digits < 4 && isdigit((unsigned char)p->at[digits]))
		n = n * 10 + p->at[digits++] - '0';
	if (!digits || n < f->min || n > f->max)
		return out_of_range(p);
	p->at += digits;
	*out = n;
	return 0;
}

/* The value of H, before it is made to fit the range: it depends on seed and field, and is the same on every
 * machine. */
static uint32_t hash(const char *seed, const char *field)
{
	uint64_t h = hash_fnv(hash_fnv(HASH_FNV_SEED, seed, strlen(seed)), field, strlen(field));

	return (uint32_t)(h ^ h >> 32);
}

/* The second value of a range. */
static int read_end(struct parsing *p, int from, int *to)
{
	const char *second = p->at;

	if (read_value(p, to) < 0)
		return -1;
	if (*to == 0 && from > 0 && isalpha((unsigned char)*second))
		*to = p->field->max; /* sat-sun: only Sunday has a name and is 0 */
	if (*to >= from)
		return 0;
	p->at = second;
	return err_set(p->err, ERR_INVALID, "%s: a range goes upwards, found %d-%d", p->field->name, from, *to);
}

static int read_range(struct parsing *p, int *from, int *to)
{
	if (read_value(p, from) < 0)
		return -1;
	*to = *from;
	if (*p->at != '-')
		return 0;
	p->at++;
	return read_end(p, *from, to);
}

static int read_step(struct parsing *p, int *step)
{
	char *end;

	*step = 0;
	if (*p->at != '/')
		return 0;
	p->at++;
	long n = isdigit((unsigned char)*p->at) ? strtol(p->at, &end, 10) : 0;
	if (n < 1)
		return expected(p, "a step as in */5");
	p->at = end;
	*step = n > STEP_MAX ? STEP_MAX : (int)n;
	return 0;
}

static int read_hashed(struct parsing *p, int *from, int *to)
{
	p->at++;
	*from = p->field->min;
	*to = p->field->hash_max;
	if (*p->at != '(')
		return 0;
	p->at++;
	if (read_range(p, from, to) < 0)
		return -1;
	if (*p->at++ != ')')
		return err_set(p->err, ERR_INVALID, "%s: expected H(%d-%d)", p->field->name, *from, *to);
	return 0;
}

/* 0~30, as newer crons have it: some value of the range, as with H. Each of its ends may be missing. */
static int read_spread(struct parsing *p, int *from, int *to)
{
	if (*p->at != '~' && read_value(p, from) < 0)
		return -1;
	if (*p->at != '~')
		return expected(p, "a ~ between two values");
	p->at++;
	*to = *from > p->field->hash_max ? p->field->max : p->field->hash_max;
	return isalnum((unsigned char)*p->at) ? read_end(p, *from, to) : 0;
}

static bool is_spread(const char *part)
{
	while (isalnum((unsigned char)*part))
		part++;
	return *part == '~';
}

/* Reads one member of a list: *, H, a value or a range, each with or without a step, or a spread. */
static int read_part(struct parsing *p, uint64_t *set)
{
	int from = p->field->min, to = p->field->max, step = 0, result = 0;
	bool star = *p->at == '*', spread = is_spread(p->at);
	bool hashed = *p->at == 'H' && (p->at[1] == '(' || !isalpha((unsigned char)p->at[1]));
	const char *begun = p->at;

	if (star)
		p->at++;
	else if (spread)
		result = read_spread(p, &from, &to);
	else
		result = hashed ? read_hashed(p, &from, &to) : read_range(p, &from, &to);
	bool single = !star && !hashed && !memchr(begun, '-', (size_t)(p->at - begun));
	if (result < 0 || (!spread && read_step(p, &step) < 0))
		return -1;
	if (single && step)
		to = p->field->max; /* 5/10: from 5 to the largest value */
	if (hashed || spread) {
		int width = step && step < to - from + 1 ? step : to - from + 1;
		from += (int)(hash(p->seed, p->field->name) % (uint32_t)width);
		if (!step)
			to = from;
	}
	for (int v = from; v <= to; v += step ? step : 1)
		*set |= 1ull << v;
	return 0;
}

static int read_field(struct parsing *p, uint64_t *set)
{
	*set = 0;
	p->at += strspn(p->at, " \t");
	if (!*p->at)
		return err_set(p->err, ERR_INVALID,
		               "expected five fields (minute hour day month weekday), the %s is missing",
		               p->field->name);
	while (true) {
		if (read_part(p, set) < 0)
			return -1;
		if (*p->at != ',')
			break;
		p->at++;
	}
	return *p->at && !strchr(" \t", *p->at) ? expected(p, "a value, a range or a list of them") : 0;
}

static const char *expand(const char *text)
{
	for (size_t i = 0; i < sizeof shortcuts / sizeof *shortcuts; i++)
		if (strcmp(text, shortcuts[i].name) == 0)
			return shortcuts[i].means;
	return text;
}

/* Whether the day exists in one of the months, in leap years at least: 30 February never comes. */
static bool comes(const struct cron *c)
{
	static const int days[] = { 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };

	if (!c->any_weekday || c->any_day)
		return true;
	for (int m = 0; m < 12; m++)
		for (int d = 1; d <= days[m]; d++)
			if (c->month >> (m + 1) & 1 && c->day >> d & 1)
				return true;
	return false;
}

static int cron_parse_fields(struct cron *c, struct parsing *p)
{
	uint64_t set[5];
	bool star[5];

	for (int i = 0; i < 5; i++) {
		p->field = &fields[i];
		star[i] = p->at[strspn(p->at, " \t")] == '*';
		if (read_field(p, &set[i]) < 0)
			return -1;
	}
	p->at += strspn(p->at, " \t");
	if (*p->at)
		return err_set(p->err, ERR_INVALID,
		               "expected five fields (minute hour day month weekday), found more: \"%.40s\"", p->at);
	*c = (struct cron){ .minute = set[0],
		            .hour = (uint32_t)set[1],
		            .day = (uint32_t)set[2],
		            .month = (uint16_t)set[3],
		            .weekday = (uint8_t)((set[4] | set[4] >> 7) & 0x7f),
		            .by_hours = star[0] || star[1],
		            .any_day = star[2],
		            .any_weekday = star[4] };
	return comes(c) ? 0 : err_set(p->err, ERR_INVALID, "no month that is meant has that day");
}

int cron_parse(struct cron *c, const char *text, const char *seed, struct err *err)
{
	struct parsing p = { .at = expand(text), .seed = seed, .err = err };

	if (*text == '@' && p.at == text)
		return err_set(err, ERR_INVALID,
		               "\"%.40s\": expected five fields, or one of @yearly @monthly @weekly @daily @hourly",
		               text);
	if (cron_parse_fields(c, &p) == 0)
		return 0;
	return err_wrap(err, "\"%.80s\"", text);
}

/* ---- the calendar ---- */

struct date {
	int year, month, day, weekday, month_days;
};

/* days: since 1970-01-01 */
static struct date date_of(int64_t days)
{
	struct date d = { .year = (int)calendar_year(days), .month = 1, .weekday = calendar_weekday(days) };

	days -= calendar_days(d.year, 1);
	while (days >= (d.month_days = calendar_month_days(d.year, d.month))) {
		days -= d.month_days;
		d.month++;
	}
	d.day = (int)days + 1;
	return d;
}

static void next_month(struct date *d)
{
	d->day = 1;
	if (++d->month > 12) {
		d->month = 1;
		d->year++;
	}
	d->month_days = calendar_month_days(d->year, d->month);
}

static void next_day(struct date *d)
{
	d->weekday = (d->weekday + 1) % 7;
	if (++d->day > d->month_days)
		next_month(d);
}

/* Whether a day is meant, in a month that is. */
static bool day_matches(const struct cron *c, const struct date *d)
{
	bool day = c->day >> d->day & 1, weekday = c->weekday >> d->weekday & 1;

	return c->any_day || c->any_weekday ? day && weekday : day || weekday;
}

static int first_bit(uint64_t set, int from)
{
	set = from < 64 ? set >> from << from : 0;
	return set ? __builtin_ctzll(set) : -1;
}

/* The first minute of a day, from `from` on, that the expression means; -1: none. */
static int match_minute(const struct cron *c, int from)
{
	int hour = first_bit(c->hour, from / 60), minute = -1;

	if (hour == from / 60)
		minute = first_bit(c->minute, from % 60);
	if (minute < 0 && hour == from / 60)
		hour = first_bit(c->hour, hour + 1);
	if (hour < 0)
		return -1;
	return hour * 60 + (minute < 0 ? first_bit(c->minute, 0) : minute);
}

/* The first local time from `local` on and before `end` that the expression means; CRON_NEVER: none. */
static int64_t cron_match(const struct cron *c, int64_t local, int64_t end)
{
	int64_t minutes = local / MINUTE + (local % MINUTE > 0);
	int64_t day = minutes / 1440 - (minutes % 1440 < 0);
	int from = (int)(minutes - day * 1440);
	struct date d = date_of(day);

	for (int64_t last = day + LOOK_AHEAD_DAYS; day <= last && day * DAY < end; from = 0) {
		if (!(c->month >> d.month & 1)) {
			day += d.month_days - d.day + 1;
			d.weekday = calendar_weekday(day);
			next_month(&d);
			continue;
		}
		int at = day_matches(c, &d) ? match_minute(c, from) : -1;
		if (at >= 0)
			return day * DAY + (int64_t)at * MINUTE < end ? day * DAY + (int64_t)at * MINUTE : CRON_NEVER;
		day++;
		next_day(&d);
	}
	return CRON_NEVER;
}

/* ---- in a zone ---- */

/* Searches each span between two changes of the clock on its own: there, local time and UTC differ by a constant. */
static int64_t next_by_hours(const struct cron *c, const struct zone *z, int64_t after)
{
	int64_t end = after + (int64_t)LOOK_AHEAD_DAYS * DAY;

	for (int64_t at = after + 1, until; at < end; at = until) {
		int32_t offset = zone_offset(z, at, NULL, &until);
		int64_t local =
			cron_match(c, at + offset, until == ZONE_NEVER || until > end ? end + offset : until + offset);
		if (local != CRON_NEVER)
			return local - offset;
	}
	return CRON_NEVER;
}

/* The latest local time that has been, at that time or before it: later than its own where the clock was set back. */
static int64_t latest_local(const struct zone *z, int64_t time)
{
	int64_t from, latest = time + zone_offset(z, time, &from, NULL);

	while (from > time - CHANGE_MAX) {
		int64_t end = from - 1, local = end + zone_offset(z, end, &from, NULL);
		latest = local > latest ? local : latest;
	}
	return latest;
}

/* Every local time counts once: those that have been are over, and those that the clock jumps over are due at the jump
 * (zone_time). */
static int64_t next_by_clock(const struct cron *c, const struct zone *z, int64_t after)
{
	int64_t local = latest_local(z, after) + 1;

	local = cron_match(c, local, local + (int64_t)LOOK_AHEAD_DAYS * DAY);
	return local == CRON_NEVER ? CRON_NEVER : zone_time(z, local);
}

int64_t cron_next(const struct cron *c, const struct zone *z, int64_t after)
{
	return c->by_hours ? next_by_hours(c, z, after) : next_by_clock(c, z, after);
}

/* The last time at or before now. first: one of them. It halves what is left, since there may be very many times. */
static int64_t latest(const struct cron *c, const struct zone *z, int64_t first, int64_t now)
{
	int64_t found = first, none_after = now;

	while (found < none_after) {
		int64_t middle = found + (none_after - found) / 2, next = cron_next(c, z, middle);
		if (next <= now)
			found = next;
		else
			none_after = middle;
	}
	return found;
}

int64_t cron_due(const struct cron *c, const struct zone *z, int64_t last, int64_t now, enum cron_catch_up how,
                 int64_t *wake)
{
	int64_t next = cron_next(c, z, last);

	*wake = next;
	if (next > now)
		return CRON_NEVER;
	if (how == CRON_ALL)
		return next;
	int64_t due = latest(c, z, next, now);
	if (how == CRON_LAST || now - due < ON_TIME)
		return due;
	*wake = cron_next(c, z, now);
	return CRON_NEVER;
}
