/* Time zones, compared with the C library's reading of the same files. */
#include "cron/zone.h"
#include "tap.h"

#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DIRECTORY "/usr/share/zoneinfo"

static unsigned long zones, times, wrong, changes;
static uint64_t seed = 12345;

static int64_t chance(int64_t n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (int64_t)((seed >> 11) % (uint64_t)n);
}

static int32_t by_libc(int64_t t)
{
	struct tm tm;
	time_t at = (time_t)t;

	localtime_r(&at, &tm);
	return (int32_t)tm.tm_gmtoff;
}

static void compare(const struct zone *z, const char *name, int64_t t)
{
	int32_t ours = zone_offset(z, t, NULL, NULL), theirs = by_libc(t);

	times++;
	if (ours != theirs && wrong++ < 5)
		printf("# %s at %lld: %d, the C library says %d\n", name, (long long)t, ours, theirs);
}

/* Every change and the second before it until 2200, and whatever time lies between. */
static void compare_all(const struct zone *z, const char *name, int64_t t)
{
	int64_t from, until, first = t;

	setenv("TZ", name, 1);
	tzset();
	while (t < 7258118400LL) {
		zone_offset(z, t, &from, &until);
		if (from > t || until <= t) {
			wrong++;
			printf("# %s: at %lld it holds from %lld until %lld\n", name, (long long)t, (long long)from,
			       (long long)until);
			return;
		}
		if (until >= 7258118400LL)
			break;
		changes++;
		compare(z, name, until - 1);
		compare(z, name, until);
		t = until;
	}
	for (int i = 0; i < 50; i++)
		compare(z, name, first + chance(7200000000LL));
}

static int visit(const char *path, const struct stat *st, int kind, struct FTW *where)
{
	const char *name = path + strlen(DIRECTORY) + 1;
	struct err err;

	(void)st;
	(void)where;
	if (kind != FTW_F || strncmp(name, "right/", 6) == 0 || strncmp(name, "posix/", 6) == 0 || strchr(name, '.') ||
	    strcmp(name, "localtime") == 0)
		return 0;
	struct zone *z = zone_open(name, &err);
	if (!z) {
		if (strcmp(name, "leapseconds") != 0 && strcmp(name, "leap-seconds") != 0) {
			wrong++;
			printf("# %s: %s\n", name, err.text);
		}
		return 0;
	}
	zones++;
	compare_all(z, name, -2147483648LL); /* 1901 */
	zone_free(z);
	return 0;
}

static void test_against_libc(void)
{
	nftw(DIRECTORY, visit, 16, FTW_PHYS);
	ok(zones > 300 && wrong == 0, "%lu zones agree with the C library at %lu changes and %lu times", zones, changes,
	   times);
	unsetenv("TZ");
	tzset();
}

static void test_posix(void)
{
	static const char *const texts[] = { "UTC0",
		                             "CET-1CEST,M3.5.0,M10.5.0/3",
		                             "EST5EDT4,M3.2.0,M11.1.0",
		                             "<-03>3<-02>,M3.5.0/-2,M10.5.0/-1",
		                             "IST-1GMT0,M10.5.0,M3.5.0/1",
		                             "XXX3:30:15YYY2,J60/2,J300/0",
		                             "AAA-5BBB,59/-24,300/167",
		                             "<+0545>-5:45" };
	struct err err;

	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct zone *z = zone_posix(texts[i], &err);
		wrong = 0;
		if (z)
			compare_all(z, texts[i], 31536000); /* 1971: the C library's rules begin in 1970 */
		ok(z && wrong == 0, "\"%s\" as the C library understands it", texts[i]);
		zone_free(z);
	}
	static const char *const bad[] = { "",
		                           "X",
		                           "CET",
		                           "CET-25",
		                           "CET-1CEST,M13.1.0,M3.1.0",
		                           "CET-1CEST,M3.5.0",
		                           "CET-1CEST,M3.5.0,M10.5.0/3x",
		                           "<CET-1",
		                           "CET-1CEST,J0,J1",
		                           "CET-1CEST,M3.6.0,M10.5.0",
		                           "CET--1" };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		ok(!zone_posix(bad[i], &err), "\"%s\" is no zone", bad[i]);
}

static void test_local_times(void)
{
	struct err err;
	struct zone *z = zone_posix("CET-1CEST,M3.5.0,M10.5.0/3", &err);

	/* 2024-03-31: 02:00 becomes 03:00 at 01:00 UTC. 2024-10-27: 03:00 becomes 02:00 at 01:00 UTC. */
	is_int(zone_time(z, 1711846800 + 3540), 1711846800 + 3540 - 3600, "a local time before the gap");
	is_int(zone_time(z, 1711850400), 1711846800, "the first that the clock jumps over: the jump itself");
	is_int(zone_time(z, 1711850400 + 1800), 1711846800, "one in the middle: the jump");
	is_int(zone_time(z, 1711850400 + 3600), 1711846800, "and the one that it jumps to");
	is_int(zone_time(z, 1729994400 + 1800), 1729994400 - 7200 + 1800, "a local time that comes twice: the first");
	is_int(zone_time(z, 1729998000), 1729998000 - 3600, "the first that comes once again");
	zone_free(z);
	z = zone_open("Pacific/Apia", &err); /* no 2011-12-30 */
	is_int(zone_time(z, 1325203200 + 43200), 1325239200, "noon of a day that was left out: when the next begins");
	zone_free(z);
}

static void test_names(void)
{
	struct err err;

	ok(!zone_open("Europe/Berln", &err) && err.code == ERR_MISSING && strstr(err.text, "tzdata"),
	   "an unknown zone: %s", err.text);
	ok(!zone_open("../../../etc/passwd", &err) && err.code == ERR_INVALID, "a path is no zone: %s", err.text);
	ok(!zone_open("/etc/localtime", &err), "nor is an absolute one");
	ok(!zone_open("tzdata.zi", &err) && err.code == ERR_INVALID, "nor is a file of something else: %s", err.text);
	setenv("TZ", "America/New_York", 1);
	struct zone *z = zone_open("local", &err);
	ok(z && zone_offset(z, 1700000000, NULL, NULL) == -18000, "local: as TZ says");
	zone_free(z);
	setenv("TZ", "<+03>-3", 1);
	z = zone_open("", &err);
	ok(z && zone_offset(z, 1700000000, NULL, NULL) == 10800, "be it a name or a rule");
	zone_free(z);
	unsetenv("TZ");
	z = zone_open("local", &err);
	tzset();
	ok(z && zone_offset(z, 1700000000, NULL, NULL) == by_libc(1700000000), "or, without it, the machine's");
	zone_free(z);
	z = zone_open("right/Europe/Berlin", &err);
	ok(!z, "zones that count leap seconds are refused, or not there");
	zone_free(z);
}

/* Every way to cut or spoil a file: refused or understood, never read beyond. */
static void test_damage(void)
{
	unsigned char bytes[8192];
	FILE *f = fopen(DIRECTORY "/Europe/Berlin", "rb");
	size_t n = f ? fread(bytes, 1, sizeof bytes, f) : 0;
	int taken = 0;

	if (f)
		fclose(f);
	for (size_t i = 0; i < n; i++) {
		unsigned char *copy = malloc(i + 1);
		memcpy(copy, bytes, i);
		struct zone *z = zone_parse(copy, i, NULL);
		taken += z != NULL;
		zone_free(z);
		free(copy);
	}
	ok(n > 100 && taken == 0, "a zone file cut anywhere is refused");
	for (int i = 0; i < 20000; i++) {
		unsigned char *copy = malloc(n);
		memcpy(copy, bytes, n);
		for (int64_t k = chance(4) + 1; k > 0; k--)
			copy[chance((int64_t)n)] = (unsigned char)chance(256);
		struct zone *z = zone_parse(copy, n, NULL);
		if (z) {
			zone_offset(z, chance(9400000000LL), NULL, NULL);
			zone_time(z, chance(9400000000LL));
		}
		zone_free(z);
		free(copy);
	}
	ok(1, "20,000 spoiled ones do no harm");
}

/* A change that is meant for one year may be in the next: the last one at the turn of the year is of the year before
 * last. */
static void test_late_changes(void)
{
	struct zone *z = zone_posix("AAA0BBB,1/0,365/122", NULL);

	ok(zone_offset(z, 0, NULL, NULL) == 0, "a summer time that begins on 2 January does not hold on the 1st");
	ok(zone_offset(z, 2 * 86400, NULL, NULL) == 3600, "but on the 3rd");
	ok(zone_time(z, 0) == 0, "and the local time is found in the right one");
	zone_free(z);
}

int main(void)
{
	test_against_libc();
	test_posix();
	test_local_times();
	test_names();
	test_late_changes();
	test_damage();
	return tap_done();
}
