#include "lease/record_time.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

/* Writes n with `count` digits, zeros first, and the character `behind`. Returns the end. */
static char *put_digits(char *out, int n, int count, char behind)
{
	for (int i = count; i-- > 0; n /= 10)
		out[i] = (char)('0' + n % 10);
	out[count] = behind;
	return out + count + 1;
}

void record_time_print(int64_t us, char *out, size_t size)
{
	int64_t fraction = us % 1000000;
	time_t seconds = (time_t)(us / 1000000);
	struct tm tm;

	if (fraction < 0) {
		fraction += 1000000;
		seconds--;
	}
	out[0] = '\0';
	if (us == RECORD_TIME_UNKNOWN || !gmtime_r(&seconds, &tm) || tm.tm_year < -1900 || tm.tm_year > 8099)
		return;
	if (size < sizeof "2024-05-01T12:00:00.000000Z")
		return;
	char *at = put_digits(out, tm.tm_year + 1900, 4, '-');
	at = put_digits(at, tm.tm_mon + 1, 2, '-');
	at = put_digits(at, tm.tm_mday, 2, 'T');
	at = put_digits(at, tm.tm_hour, 2, ':');
	at = put_digits(at, tm.tm_min, 2, ':');
	at = put_digits(at, tm.tm_sec, 2, '.');
	*put_digits(at, (int)fraction, 6, 'Z') = '\0';
}

/* Reads exactly `count` digits. false: there are fewer. */
static bool get_digits(const char *s, int count, int *out)
{
	*out = 0;
	for (int i = 0; i < count; i++) {
		if (!isdigit((unsigned char)s[i]))
			return false;
		*out = *out * 10 + (s[i] - '0');
	}
	return true;
}

/* The fraction after a dot or comma as microseconds; *s moves past it. -1: a dot without digits. */
static int64_t parse_fraction(const char **s)
{
	int64_t us = 0, unit = 100000;

	if (**s != '.' && **s != ',')
		return 0;
	if (!isdigit((unsigned char)*++*s))
		return -1;
	for (; isdigit((unsigned char)**s); (*s)++, unit /= 10)
		us += (**s - '0') * unit;
	return us;
}

/* "Z" or "+hh:mm" as seconds to subtract, at the end of the text. -1: neither. */
static int parse_zone(const char *s, int *seconds)
{
	int hours, minutes;

	*seconds = 0;
	if ((s[0] == 'Z' || s[0] == 'z') && !s[1])
		return 0;
	if (s[0] != '+' && s[0] != '-')
		return -1;
	if (!get_digits(s + 1, 2, &hours) || s[3] != ':' || !get_digits(s + 4, 2, &minutes) || s[6])
		return -1;
	if (hours > 23 || minutes > 59)
		return -1;
	*seconds = (hours * 60 + minutes) * 60 * (s[0] == '-' ? -1 : 1);
	return 0;
}

static bool in_range(const struct tm *t)
{
	return t->tm_mon >= 0 && t->tm_mon < 12 && t->tm_mday >= 1 && t->tm_mday <= 31 && t->tm_hour >= 0 &&
	       t->tm_hour < 24 && t->tm_min >= 0 && t->tm_min < 60 && t->tm_sec >= 0 && t->tm_sec <= 60;
}

int record_time_parse(const char *text, int64_t *us)
{
	struct tm t = { 0 };
	int zone;

	/* Each check reads only what the checks before it have shown to be inside the text. */
	if (!get_digits(text, 4, &t.tm_year) || text[4] != '-' || !get_digits(text + 5, 2, &t.tm_mon) ||
	    text[7] != '-' || !get_digits(text + 8, 2, &t.tm_mday) || !text[10] || !strchr("Tt ", text[10]) ||
	    !get_digits(text + 11, 2, &t.tm_hour) || text[13] != ':' || !get_digits(text + 14, 2, &t.tm_min) ||
	    text[16] != ':' || !get_digits(text + 17, 2, &t.tm_sec))
		return -1;
	t.tm_year -= 1900;
	t.tm_mon -= 1;
	const char *rest = text + 19;
	int64_t fraction = parse_fraction(&rest);
	if (fraction < 0 || parse_zone(rest, &zone) < 0 || !in_range(&t))
		return -1;
	*us = ((int64_t)timegm(&t) - zone) * 1000000 + fraction;
	return 0;
}
