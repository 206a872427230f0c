/* Cron expressions: what they mean, compared with a count of every minute; what is due; and a year of failovers. */
#include "base/mem.h"
#include "cron/cron.h"
#include "cron/zone.h"
#include "script/api/api.h"
#include "script/bind.h"
#include "script/prelude.h"
#include "tap.h"

#include <lauxlib.h>
#include <lualib.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t seed = 4711;

static int chance(int n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (int)((seed >> 33) % (uint64_t)n);
}

static int64_t utc(int year, int month, int day, int hour, int minute)
{
	struct tm tm = {
		.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day, .tm_hour = hour, .tm_min = minute
	};

	return timegm(&tm);
}

static void expect(const char *text, const char *zone, int64_t after, const char *want)
{
	struct cron c;
	struct err err;
	struct zone *z = zone_open(zone, &err);
	char got[400] = "";
	int64_t t = after;

	if (!z || cron_parse(&c, text, "seed", &err) < 0) {
		ok(0, "%s: %s", text, err.text);
		return;
	}
	for (int i = 0; i < 4; i++) {
		t = cron_next(&c, z, t);
		time_t at = (time_t)t;
		struct tm tm;
		if (t == CRON_NEVER || !gmtime_r(&at, &tm)) {
			strcat(got, " never");
			break;
		}
		strftime(got + strlen(got), sizeof got - strlen(got), i ? ", %m-%d %H:%M" : "%Y-%m-%d %H:%M", &tm);
	}
	char what[200];
	snprintf(what, sizeof what, "%s in %s", text, zone);
	is_str(got, want, what);
	zone_free(z);
}

static void test_meaning(void)
{
	int64_t t = utc(2024, 2, 27, 23, 59) + 30;

	expect("* * * * *", "UTC", t, "2024-02-28 00:00, 02-28 00:01, 02-28 00:02, 02-28 00:03");
	expect("0 0 29 2 *", "UTC", t, "2024-02-29 00:00, 02-29 00:00, 02-29 00:00, 02-29 00:00");
	expect("*/20 9-11/2 * * *", "UTC", t, "2024-02-28 09:00, 02-28 09:20, 02-28 09:40, 02-28 11:00");
	expect("5,10 4 * * mon", "UTC", t, "2024-03-04 04:05, 03-04 04:10, 03-11 04:05, 03-11 04:10");
	expect("0 12 * * 0", "UTC", t, "2024-03-03 12:00, 03-10 12:00, 03-17 12:00, 03-24 12:00");
	expect("0 12 * * 7", "UTC", t, "2024-03-03 12:00, 03-10 12:00, 03-17 12:00, 03-24 12:00");
	expect("0 12 * * sat-sun", "UTC", t, "2024-03-02 12:00, 03-03 12:00, 03-09 12:00, 03-10 12:00");
	expect("*/60 */24 */99999999999 * *", "UTC", t, "2024-03-01 00:00, 04-01 00:00, 05-01 00:00, 06-01 00:00");
	expect("0 12 * * FRI-7", "UTC", t, "2024-03-01 12:00, 03-02 12:00, 03-03 12:00, 03-08 12:00");
	expect("0 0 13 * 5", "UTC", t, "2024-03-01 00:00, 03-08 00:00, 03-13 00:00, 03-15 00:00");
	expect("0 0 31 * *", "UTC", t, "2024-03-31 00:00, 05-31 00:00, 07-31 00:00, 08-31 00:00");
	expect("0 0 1 jan,JUL *", "UTC", t, "2024-07-01 00:00, 01-01 00:00, 07-01 00:00, 01-01 00:00");
	expect("10/20 0 * * *", "UTC", t, "2024-02-28 00:10, 02-28 00:30, 02-28 00:50, 02-29 00:10");
	expect("@hourly", "UTC", t, "2024-02-28 00:00, 02-28 01:00, 02-28 02:00, 02-28 03:00");
	expect("@daily", "UTC", t, "2024-02-28 00:00, 02-29 00:00, 03-01 00:00, 03-02 00:00");
	expect("@weekly", "UTC", t, "2024-03-03 00:00, 03-10 00:00, 03-17 00:00, 03-24 00:00");
	expect("@monthly", "UTC", t, "2024-03-01 00:00, 04-01 00:00, 05-01 00:00, 06-01 00:00");
	expect("@yearly", "UTC", t, "2025-01-01 00:00, 01-01 00:00, 01-01 00:00, 01-01 00:00");
	expect("  0   0\t* * *  ", "UTC", t, "2024-02-28 00:00, 02-29 00:00, 03-01 00:00, 03-02 00:00");
	expect("0 0 29 2 *", "UTC", utc(2096, 3, 1, 0, 0), "2104-02-29 00:00, 02-29 00:00, 02-29 00:00, 02-29 00:00");
	expect("0 9 * * *", "Asia/Kolkata", t, "2024-02-28 03:30, 02-29 03:30, 03-01 03:30, 03-02 03:30");
}

/* The first day at whose midnight it is due, found by looking at each. */
static int64_t next_midnight(unsigned days, int month, unsigned weekdays, int64_t after)
{
	for (int64_t t = (after / 86400 + 1) * 86400;; t += 86400) {
		time_t at = (time_t)t;
		struct tm tm;
		gmtime_r(&at, &tm);
		if (days >> tm.tm_mday & 1 && tm.tm_mon + 1 == month && weekdays >> tm.tm_wday & 1)
			return t;
	}
}

static unsigned every_nth(int from, int to, int step)
{
	unsigned set = 0;

	for (int v = from; v <= to; v += step)
		set |= 1u << v;
	return set;
}

/* A date that has to be a weekday as well, which "*" in one of the two fields asks for, may be decades away. */
static void test_rare(void)
{
	struct zone *z = zone_open("UTC", NULL);
	int64_t most = 0;
	int wrong = 0;

	expect("0 0 29 2 */7", "UTC", utc(2024, 1, 1, 0, 0), "2032-02-29 00:00, 02-29 00:00, 02-29 00:00, 02-29 00:00");
	expect("0 0 29 2 */7", "UTC", utc(2088, 3, 1, 0, 0), "2128-02-29 00:00, 02-29 00:00, 02-29 00:00, 02-29 00:00");
	expect("0 */12 29 2 */7", "Europe/Berlin", utc(2088, 3, 1, 0, 0),
	       "2128-02-28 23:00, 02-29 11:00, 02-28 23:00, 02-29 11:00");
	expect("0 0 */28 2 0", "UTC", utc(2027, 6, 1, 0, 0), "2032-02-01 00:00, 02-29 00:00, 02-01 00:00, 02-01 00:00");
	for (int i = 0; i < 3000; i++) {
		int day = chance(2) ? 29 : 1 + chance(29), month = chance(2) ? 2 : 1 + chance(12), step = 2 + chance(6);
		int64_t from = utc(1970 + chance(800), 1 + chance(12), 1 + chance(28), chance(24), chance(60));
		bool by_day = chance(2);
		unsigned days = by_day ? every_nth(1, 31, day) : 1u << day,
			 weekdays = by_day ? 1u << step % 7 : every_nth(0, 6, step);
		char text[60];
		struct cron c;
		struct err err;
		snprintf(text, sizeof text, by_day ? "0 0 */%d %d %d" : "0 0 %d %d */%d", day, month, step);
		if (cron_parse(&c, text, "", &err) < 0) {
			wrong++;
			continue;
		}
		int64_t want = next_midnight(days, month, weekdays, from), got = cron_next(&c, z, from);
		if (want != got && wrong++ == 0)
			printf("# %s after %lld: %lld, found %lld\n", text, (long long)from, (long long)want,
			       (long long)got);
		most = want - from > most ? want - from : most;
	}
	ok(wrong == 0 && most > 30LL * 366 * 86400, "3,000 rare dates are found, up to %lld years away",
	   (long long)(most / 86400 / 366));
	zone_free(z);
}

/* 2024-03-31 02:00 becomes 03:00 in Berlin; 2024-10-27 03:00 becomes 02:00. */
static void test_clock_changes(void)
{
	int64_t spring = utc(2024, 3, 30, 12, 0), autumn = utc(2024, 10, 26, 12, 0);

	expect("30 2 * * *", "Europe/Berlin", spring, "2024-03-31 01:00, 04-01 00:30, 04-02 00:30, 04-03 00:30");
	expect("0,30 2 * * *", "Europe/Berlin", spring, "2024-03-31 01:00, 04-01 00:00, 04-01 00:30, 04-02 00:00");
	expect("0 3 * * *", "Europe/Berlin", spring, "2024-03-31 01:00, 04-01 01:00, 04-02 01:00, 04-03 01:00");
	expect("30 2 * * *", "Europe/Berlin", autumn, "2024-10-27 00:30, 10-28 01:30, 10-29 01:30, 10-30 01:30");
	expect("30 * * * *", "Europe/Berlin", utc(2024, 10, 26, 23, 45),
	       "2024-10-27 00:30, 10-27 01:30, 10-27 02:30, 10-27 03:30");
	expect("30 * * * *", "Europe/Berlin", utc(2024, 3, 31, 0, 0),
	       "2024-03-31 00:30, 03-31 01:30, 03-31 02:30, 03-31 03:30");
	expect("0 */2 * * *", "Europe/Berlin", utc(2024, 3, 30, 23, 30),
	       "2024-03-31 02:00, 03-31 04:00, 03-31 06:00, 03-31 08:00");
	expect("*/30 1-2 * * *", "Europe/Berlin", spring, "2024-03-31 00:00, 03-31 00:30, 03-31 23:00, 03-31 23:30");
	expect("*/30 2 * * *", "Europe/Berlin", autumn, "2024-10-27 00:00, 10-27 00:30, 10-27 01:00, 10-27 01:30");
	expect("0 12 30 12 *", "Pacific/Apia", utc(2011, 12, 1, 0, 0),
	       "2011-12-30 10:00, 12-29 22:00, 12-29 22:00, 12-29 22:00");
}

static void test_hash(void)
{
	struct cron a, b;
	int minutes[60] = { 0 }, used = 0;
	char name[16];

	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof name, "job%d", i);
		cron_parse(&a, "H H(1-4) H * *", name, NULL);
		cron_parse(&b, "H H(1-4) H * *", name, NULL);
		if (memcmp(&a, &b, sizeof a) != 0 || __builtin_popcountll(a.minute) != 1 || !(a.hour & 0x1e) ||
		    (a.day >> 29))
			break;
		used += !minutes[__builtin_ctzll(a.minute)]++;
	}
	ok(used == 60, "H: the same for the same name, and a thousand jobs use every minute (%d)", used);
	int most = 0;
	for (int i = 0; i < 60; i++)
		most = minutes[i] > most ? minutes[i] : most;
	ok(most < 40, "evenly (at most %d in one)", most);
	cron_parse(&a, "H/15 * * * *", "x", NULL);
	is_int(__builtin_popcountll(a.minute), 4, "H/15: four times an hour");
	ok((a.minute & a.minute >> 15) != 0 && __builtin_ctzll(a.minute) < 15, "fifteen minutes apart");
	cron_parse(&a, "H(10-20)/5 * * * *", "x", NULL);
	ok(a.minute && !(a.minute & ~(((1ull << 21) - 1) & ~((1ull << 10) - 1))), "H(10-20)/5 stays within");
	cron_parse(&a, "H(10-20) H H(30-31) H(5-12) H(0-2)", "x", NULL);
	cron_parse(&b, "10~20 ~ 30~ 5~ ~TUE", "x", NULL);
	ok(memcmp(&a, &b, sizeof a) == 0, "10~20 is H(10-20), and either end may be missing");
	cron_parse(&a, "5,10~12 * * * *", "x", NULL);
	ok(__builtin_popcountll(a.minute) == 2 && a.minute & 1 << 5, "one may stand in a list");
}

static void refused(const char *text, const char *part)
{
	struct cron c;
	struct err err = { 0 };
	int result = cron_parse(&c, text, "", &err);

	ok(result < 0 && strstr(err.text, part), "\"%s\" is refused: %s", text, err.text);
}

static void test_refused(void)
{
	refused("", "the minute is missing");
	refused("* * * *", "the weekday is missing");
	refused("* * * * * *", "found more: \"*\"");
	refused("60 * * * *", "minute: expected 0 to 59, found \"60\"");
	refused("* 24 * * *", "hour: expected 0 to 23, found \"24\"");
	refused("* * 0 * *", "day of the month: expected 1 to 31, found \"0\"");
	refused("* * * 13 *", "month: expected 1 to 12 or a name as in FEB, found \"13\"");
	refused("* * * JANUARY *", "month: expected 1 to 12 or a name as in FEB, found \"JANUARY\"");
	refused("* * * * 8", "weekday: expected 0 to 7 or a name as in MON, found \"8\"");
	refused("5-1 * * * *", "a range goes upwards, found 5-1");
	refused("*/0 * * * *", "expected a step");
	refused("*/ * * * *", "expected a step");
	refused("1,,2 * * * *", "found end");
	refused("1- * * * *", "expected 0 to 59, found end");
	refused("5x * * * *", "found \"x\"");
	refused("99999999999 * * * *", "expected 0 to 59");
	refused("-1 * * * *", "expected 0 to 59");
	refused("H(5 * * * *", "expected H(5-5)");
	refused("30~10 * * * *", "a range goes upwards, found 30-10");
	refused("~60 * * * *", "minute: expected 0 to 59, found \"60\"");
	refused("0~30/5 * * * *", "found \"/5\"");
	refused("1-5~9 * * * *", "found \"~9\"");
	refused("*~9 * * * *", "found \"~9\"");
	refused("5x~9 * * * *", "expected a ~ between two values, found \"x~9\"");
	refused("@reboot", "one of @yearly");
	refused("0 0 30 2 *", "no month that is meant has that day");
	refused("0 0 31 4,6 *", "no month that is meant has that day");
	for (int i = 0; i < 50000; i++) {
		static const char alphabet[] = "0123456789*/,- HLWJANSUNmonFRI@()?#~";
		char text[40];
		int n = chance(sizeof text - 1);
		struct cron c;
		for (int k = 0; k < n; k++)
			text[k] = alphabet[chance(sizeof alphabet - 1)];
		text[n] = '\0';
		cron_parse(&c, text, text, NULL);
	}
	ok(1, "50,000 random texts do no harm");
}

/* ---- every minute counted ---- */

static uint64_t random_set(char *text, size_t size, int min, int max, bool star)
{
	uint64_t set = 0;

	*text = '\0';
	if (star) {
		int step = chance(3) ? 1 : 1 + chance(max - min);
		snprintf(text, size, step == 1 ? "*" : "*/%d", step);
		for (int v = min; v <= max; v += step)
			set |= 1ull << v;
		return set;
	}
	for (int n = 1 + chance(3); n > 0; n--) {
		int from = min + chance(max - min + 1), to = chance(2) ? from : from + chance(max - from + 1);
		snprintf(text + strlen(text), size - strlen(text), from == to ? "%s%d" : "%s%d-%d", *text ? "," : "",
		         from, to);
		for (int v = from; v <= to; v++)
			set |= 1ull << v;
	}
	return set;
}

struct oracle {
	uint64_t set[5];
	bool star[5];
	char text[300];
};

static void random_oracle(struct oracle *o)
{
	static const int min[] = { 0, 0, 1, 1, 0 }, max[] = { 59, 23, 31, 12, 6 };
	static const int stars[] = { 3, 2, 2, 2, 2 };

	o->text[0] = '\0';
	for (int i = 0; i < 5; i++) {
		char part[60];
		o->star[i] = chance(stars[i]) == 0;
		o->set[i] = random_set(part, sizeof part, min[i], max[i], o->star[i]);
		snprintf(o->text + strlen(o->text), sizeof o->text - strlen(o->text), "%s%s", i ? " " : "", part);
	}
}

static bool means(const struct oracle *o, int64_t local)
{
	time_t at = (time_t)local;
	struct tm tm;

	gmtime_r(&at, &tm);
	bool day = o->set[2] >> tm.tm_mday & 1, weekday = o->set[4] >> tm.tm_wday & 1;
	bool date = o->star[2] || o->star[4] ? day && weekday : day || weekday;
	return o->set[0] >> tm.tm_min & 1 && o->set[1] >> tm.tm_hour & 1 && o->set[3] >> (tm.tm_mon + 1) & 1 && date;
}

/* How many of the times differ, over so many days. */
static int differences(const struct oracle *o, const struct cron *c, const struct zone *z, int64_t from, int days,
                       int *count)
{
	int64_t next = cron_next(c, z, from), highest = INT64_MIN;
	int wrong = 0;

	for (int64_t t = (from / 60 - 3 * 1440) * 60; t < from + days * 86400LL; t += 60) {
		time_t at = (time_t)t;
		struct tm tm;
		localtime_r(&at, &tm);
		int64_t local = t + tm.tm_gmtoff;
		bool due = false;
		if (o->star[0] || o->star[1])
			due = means(o, local);
		else
			for (int64_t l = highest == INT64_MIN ? local : highest + 60; l <= local && !due; l += 60)
				due = means(o, l);
		highest = local > highest ? local : highest;
		if (t <= from)
			continue;
		if (due != (next == t) && wrong++ == 0)
			printf("# %s: %lld %s\n", o->text, (long long)t,
			       due ? "is due, and was not found" : "is not due");
		*count += due;
		if (next <= t)
			next = cron_next(c, z, t);
	}
	return wrong;
}

static void test_against_counting(const char *zone, int expressions)
{
	struct oracle o;
	struct cron c;
	struct err err;
	int wrong = 0, count = 0, known = 0;

	setenv("TZ", zone, 1);
	tzset();
	struct zone *z = zone_open("local", &err);
	while (known < expressions) {
		random_oracle(&o);
		if (cron_parse(&c, o.text, "", &err) < 0) {
			if (!strstr(err.text, "no month"))
				wrong++, printf("# %s: %s\n", o.text, err.text);
			continue;
		}
		known++;
		wrong += differences(&o, &c, z, utc(2024, known % 2 ? 3 : 10, 20, 0, 0) + chance(86400), 25, &count);
	}
	ok(wrong == 0 && count > 100, "%s: %d expressions mean the very minutes that counting finds (%d)", zone,
	   expressions, count);
	unsetenv("TZ");
	tzset();
	zone_free(z);
}

/* ---- what is due ---- */

static void test_due(void)
{
	struct cron c;
	struct zone *z = zone_posix("UTC0", NULL);
	int64_t noon = utc(2024, 6, 1, 12, 0), wake;

	cron_parse(&c, "0 * * * *", "", NULL);
	is_int(cron_due(&c, z, noon, noon + 1800, CRON_ALL, &wake), CRON_NEVER, "nothing is due between two times");
	is_int(wake, noon + 3600, "and the next one is told");
	for (enum cron_catch_up how = CRON_SKIP; how <= CRON_ALL; how++)
		is_int(cron_due(&c, z, noon, noon + 3601, how, &wake), noon + 3600,
		       "one that has just come is due, however missed ones are caught up");
	is_int(cron_due(&c, z, noon, noon + 5 * 3600 + 300, CRON_ALL, &wake), noon + 3600,
	       "all: the first that was missed");
	is_int(cron_due(&c, z, noon, noon + 5 * 3600 + 300, CRON_LAST, &wake), noon + 5 * 3600, "last: the last");
	is_int(cron_due(&c, z, noon, noon + 5 * 3600 + 300, CRON_SKIP, &wake), CRON_NEVER, "skip: none");
	is_int(wake, noon + 6 * 3600, "but the next");
	is_int(cron_due(&c, z, noon, noon + 5 * 3600 + 30, CRON_SKIP, &wake), noon + 5 * 3600,
	       "skip: half a minute late is not missed");
	cron_parse(&c, "* * * * *", "", NULL);
	is_int(cron_due(&c, z, noon - 20LL * 366 * 86400, noon + 30, CRON_LAST, &wake), noon,
	       "after twenty years of every minute");
	cron_parse(&c, "0 0 1 1 *", "", NULL);
	is_int(cron_due(&c, z, utc(2001, 6, 1, 0, 0), noon, CRON_LAST, &wake), utc(2024, 1, 1, 0, 0),
	       "or of every year");
	is_int(cron_due(&c, z, noon + 1000, noon, CRON_ALL, &wake), CRON_NEVER, "a last time in the future: nothing");
	zone_free(z);
}

/* Very many times, and long ago: each question is answered by looking at a few of them. When each was looked at, and
 * for each the 1,560 local times before it, a question took up to half a minute: 2,000 would take hours. */
static void test_many(void)
{
	static const char *const lines[] = { "* 4/3,* 2 jan sun", "* 0,* * 1-11 *", "* * 2 1 sun", "7 3,* 29 2 */7" };
	static const char *const zones[] = { "UTC", "Europe/Berlin", "Australia/Lord_Howe" };
	int wrong = 0;

	for (int i = 0; i < 2000; i++) {
		struct cron c;
		struct zone *z = zone_open(zones[i % 3], NULL);
		int64_t last = utc(1970 + chance(300), 1 + chance(12), 1 + chance(28), chance(24), chance(60)), wake;
		int64_t now = last + (int64_t)chance(40 * 366) * 86400 + chance(86400);

		cron_parse(&c, lines[i % 4], "", NULL);
		int64_t first = cron_next(&c, z, last), due = cron_due(&c, z, last, now, CRON_LAST, &wake);
		bool good = first > now ? due == CRON_NEVER && wake == first
		                        : due >= first && due <= now && cron_next(&c, z, due - 1) == due &&
		                                  cron_next(&c, z, due) > now;
		if (!good && wrong++ == 0)
			printf("# %s in %s: of %lld to %lld the last is %lld\n", lines[i % 4], zones[i % 3],
			       (long long)last, (long long)now, (long long)due);
		zone_free(z);
	}
	ok(wrong == 0, "the last of very many times is found, 2,000 times");
}

/* ---- a year of failovers ---- */

static int use(lua_State *L)
{
	const char *name = luaL_checkstring(L, 1);
	const struct prelude_file *f = prelude_find(name);

	luaL_loadbufferx(L, f->text, f->len, name, "bt");
	lua_pushcfunction(L, use);
	lua_call(L, 1, 1);
	return 1;
}

static int sentence(lua_State *L)
{
	ok(lua_toboolean(L, 1), "%s", luaL_checkstring(L, 2));
	return 0;
}

static void test_year(int failovers)
{
	lua_State *L = luaL_newstate();

	luaL_openlibs(L);
	lua_newtable(L);
	api_open_cron(L);
	bind_failures(L);
	lua_setglobal(L, "natives");
	luaL_loadfile(L, "tests/unit/cron/cron_year.lua");
	lua_pushcfunction(L, use);
	lua_pushliteral(L, "cron");
	lua_call(L, 1, 1);
	lua_getglobal(L, "natives");
	lua_getfield(L, -1, "cron");
	lua_getfield(L, -2, "fail");
	lua_remove(L, -3);
	lua_pushinteger(L, failovers);
	lua_pushcfunction(L, sentence);
	if (lua_pcall(L, 5, 1, 0) != LUA_OK)
		ok(0, "the year: %s", lua_tostring(L, -1));
	else
		printf("# a year with %d failovers; nobody led for %.0f hours of it\n", failovers,
		       lua_tonumber(L, -1) / 3600);
	lua_close(L);
}

int main(void)
{
	test_meaning();
	test_rare();
	test_clock_changes();
	test_hash();
	test_refused();
	test_against_counting("Europe/Berlin", 10);
	test_against_counting("America/St_Johns", 10);
	test_against_counting("Australia/Lord_Howe", 10); /* by half an hour */
	test_against_counting("UTC", 10);
	test_against_counting("AAA24BBB-24,M3.5.0,M10.5.0", 10); /* by two days */
	test_due();
	test_many();
	test_year(1000);
	return tap_done();
}
