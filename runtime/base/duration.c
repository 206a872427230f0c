#include "base/duration.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct unit {
	const char *name;
	int64_t ms;
} units[] = {
	{ "ms", 1 }, { "s", 1000 }, { "m", 60 * 1000 }, { "h", 3600 * 1000 }
}; /* "ms" before "m": the first that fits counts */

/* Reads a number with a fraction as value / scale; *end is set behind it. false: there is none, or it is too large. */
static bool read_number(const char *s, const char **end, int64_t *value, int64_t *scale)
{
	bool digits = false, point = false;

	*value = 0;
	*scale = 1;
	for (; (*s >= '0' && *s <= '9') || (*s == '.' && !point); s++) {
		if (*s == '.') {
			point = true;
			continue;
		}
		if (__builtin_mul_overflow(*value, 10, value) || __builtin_add_overflow(*value, *s - '0', value))
			return false;
		if (point && __builtin_mul_overflow(*scale, 10, scale))
			return false;
		digits = true;
	}
	*end = s;
	return digits;
}

static const struct unit *read_unit(const char *s)
{
	for (size_t i = 0; i < sizeof units / sizeof *units; i++)
		if (strncmp(s, units[i].name, strlen(units[i].name)) == 0)
			return &units[i];
	return NULL;
}

static int no_duration(const char *s, struct err *err)
{
	return err_set(err, ERR_USAGE, "'%s' is no duration: write it like 500ms, 2s, 1.5s, 1m30s or 1h", s);
}

int duration_parse(const char *s, int64_t *ms, struct err *err)
{
	int64_t sum = 0, value, scale;
	const char *p = s;

	do {
		if (!read_number(p, &p, &value, &scale))
			return no_duration(s, err);
		if (*p == '\0')
			return err_set(err, ERR_USAGE, "'%s' lacks a unit: write %ss for seconds, or use ms, m or h", s,
			               s);
		const struct unit *u = read_unit(p);
		if (!u)
			return no_duration(s, err);
		if (__builtin_mul_overflow(value, u->ms, &value) || value / scale > DURATION_MAX_MS - sum)
			return err_set(err, ERR_USAGE, "'%s' is too long: at most 10000h", s);
		if (value % scale)
			return err_set(err, ERR_USAGE, "'%s' is finer than a millisecond", s);
		sum += value / scale;
		p += strlen(u->name);
	} while (*p);
	*ms = sum;
	return 0;
}

/* Seconds without trailing zeros: 90000 -> "90", 1500 -> "1.5", 1250 -> "1.25". */
static void print_seconds(int64_t ms, char *out, size_t size)
{
	int n = snprintf(out, size, "%" PRId64 ".%03d", ms / 1000, (int)(ms % 1000));

	while (out[n - 1] == '0')
		n--;
	if (out[n - 1] == '.')
		n--;
	snprintf(out + n, size - (size_t)n, "s");
}

void duration_print(int64_t ms, char *out, size_t size)
{
	const char *sign = ms < 0 ? "-" : "";
	uint64_t left = ms < 0 ? -(uint64_t)ms : (uint64_t)ms;
	uint64_t hours = left / 3600000, minutes = left / 60000 % 60;
	char h[24] = "", m[8] = "", s[16] = "";

	if (left < 1000) {
		snprintf(out, size, left ? "%s%" PRIu64 "ms" : "%s%" PRIu64 "s", sign, left);
		return;
	}
	left %= 60000;
	if (hours)
		snprintf(h, sizeof h, "%" PRIu64 "h", hours);
	if (minutes)
		snprintf(m, sizeof m, "%dm", (int)minutes);
	if (left)
		print_seconds((int64_t)left, s, sizeof s);
	snprintf(out, size, "%s%s%s%s", sign, h, m, s);
}
