#include "cron/zone.h"

#include "base/buf.h"
#include "base/mem.h"
#include "cron/calendar.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ZONE_DIRECTORY "/usr/share/zoneinfo"
#define FILE_MAX (1024 * 1024)
#define DAY 86400
#define OFFSET_MAX (26 * 3600) /* RFC 8536, 3.2: less than 26 hours */

/* The date and time at which the clock changes each year. */
struct rule {
	enum { RULE_JULIAN, RULE_DAY, RULE_WEEKDAY } kind; /* Jn, n, Mm.w.d */
	int month, week, day;
	int32_t time; /* seconds since midnight, by the clock before the change */
};

struct posix {
	int32_t offset[2]; /* standard, summer */
	bool changes;
	struct rule rule[2]; /* when standard time, when summer time begins */
};

struct zone {
	size_t count; /* how many changes the file has */
	int64_t *at;
	int32_t *to;    /* the offset from that change on */
	int32_t before; /* the offset before the first change */
	bool has_posix; /* posix holds after the last change */
	struct posix posix;
};

/* ---- POSIX TZ texts ---- */

static const char *skip_name(const char *s)
{
	const char *from = s;

	if (*s == '<') {
		while (*s && *s != '>')
			s++;
		return *s && s - from > 3 ? s + 1 : NULL;
	}
	while (isalpha((unsigned char)*s))
		s++;
	return s - from >= 3 ? s : NULL;
}

/* [+-]hh[:mm[:ss]] */
static const char *read_time(const char *s, int hours_max, int32_t *out)
{
	int sign = *s == '-' ? -1 : 1;
	long part[3] = { 0 };

	if (*s == '+' || *s == '-')
		s++;
	for (int i = 0; i < 3; i++) {
		char *end;
		if (!isdigit((unsigned char)*s))
			return NULL;
		part[i] = strtol(s, &end, 10);
		if (part[i] > (i ? 59 : hours_max))
			return NULL;
		s = end;
		if (*s != ':')
			break;
		if (i < 2)
			s++;
	}
	*out = (int32_t)(sign * (part[0] * 3600 + part[1] * 60 + part[2]));
	return s;
}

static const char *read_number(const char *s, int min, int max, int *out)
{
	char *end;

	if (!isdigit((unsigned char)*s))
		return NULL;
	long n = strtol(s, &end, 10);
	if (n < min || n > max)
		return NULL;
	*out = (int)n;
	return end;
}

static const char *read_weekday(const char *s, struct rule *r)
{
	r->kind = RULE_WEEKDAY;
	s = read_number(s, 1, 12, &r->month);
	if (s && *s++ == '.')
		s = read_number(s, 1, 5, &r->week);
	else
		return NULL;
	if (s && *s++ == '.')
		return read_number(s, 0, 6, &r->day);
	return NULL;
}

static const char *read_rule(const char *s, struct rule *r)
{
	if (*s++ != ',')
		return NULL;
	r->time = 2 * 3600;
	if (*s == 'M') {
		s = read_weekday(s + 1, r);
	} else if (*s == 'J') {
		r->kind = RULE_JULIAN;
		s = read_number(s + 1, 1, 365, &r->day);
	} else {
		r->kind = RULE_DAY;
		s = read_number(s, 0, 365, &r->day);
	}
	return s && *s == '/' ? read_time(s + 1, 167, &r->time) : s;
}

static bool posix_parse(const char *s, struct posix *p)
{
	*p = (struct posix){ 0 };
	s = skip_name(s);
	s = s ? read_time(s, 24, &p->offset[0]) : NULL;
	if (!s)
		return false;
	p->offset[0] = -p->offset[0]; /* POSIX counts westwards */
	p->offset[1] = p->offset[0] + 3600;
	if (!*s)
		return true;
	p->changes = true;
	s = skip_name(s);
	if (s && *s && *s != ',') {
		s = read_time(s, 24, &p->offset[1]);
		p->offset[1] = -p->offset[1];
	}
	if (s && !*s)
		s = ",M3.2.0,M11.1.0"; /* POSIX leaves the default to the system; the C library has this one */
	s = s ? read_rule(s, &p->rule[1]) : NULL;
	s = s ? read_rule(s, &p->rule[0]) : NULL;
	return s && !*s;
}

/* The local time of the change, by the clock before it. */
static int64_t rule_local(const struct rule *r, int64_t year)
{
	int64_t day = calendar_days(year, 1);

	switch (r->kind) {
	case RULE_JULIAN:
		day += r->day - 1 + (calendar_is_leap(year) && r->day >= 60);
		break;
	case RULE_DAY:
		day += r->day;
		break;
	case RULE_WEEKDAY: {
		int64_t first = calendar_days(year, r->month), next = first + calendar_month_days(year, r->month);
		day = first + (r->day - calendar_weekday(first) + 7) % 7 + 7 * (r->week - 1);
		while (day >= next)
			day -= 7;
		break;
	}
	}
	return day * DAY + r->time;
}

/* The offset at that time, and the changes around it: the last one at or before it, and the first one after it. */
static int32_t posix_offset(const struct posix *p, int64_t time, int64_t *from, int64_t *until)
{
	int32_t offset = p->offset[0];
	int64_t year = calendar_year(time / DAY - (time % DAY < 0));

	*from = INT64_MIN;
	*until = ZONE_NEVER;
	if (!p->changes)
		return offset;
	/* A change may be up to a week outside its year (RFC 8536, 3.3.1), so the last one may be of the year before
	 * last. */
	for (int64_t y = year - 2; y <= year + 2; y++)
		for (int i = 0; i < 2; i++) {
			int64_t at = rule_local(&p->rule[i], y) - p->offset[!i];
			if (at <= time && at >= *from) {
				*from = at;
				offset = p->offset[i];
			} else if (at > time && at < *until) {
				*until = at;
			}
		}
	return offset;
}

/* ---- zone files ---- */

struct reader {
	const unsigned char *at;
	size_t left;
	bool bad;
};

static const unsigned char *reader_take(struct reader *r, uint64_t n)
{
	const unsigned char *p = r->at;

	if (n > r->left) {
		r->bad = true;
		return NULL;
	}
	r->at += n;
	r->left -= (size_t)n;
	return p;
}

static int64_t big_endian(const unsigned char *p, int bytes)
{
	uint64_t v = p[0] & 0x80 ? UINT64_MAX : 0;

	for (int i = 0; i < bytes; i++)
		v = v << 8 | p[i];
	return (int64_t)v;
}

struct header {
	int version;
	uint32_t isut, isstd, leap, time, type, chars;
};

static bool read_header(struct reader *r, struct header *h)
{
	const unsigned char *p = reader_take(r, 44);

	if (!p || memcmp(p, "TZif", 4) != 0)
		return false;
	h->version = p[4] ? p[4] - '0' : 1;
	uint32_t *counts[] = { &h->isut, &h->isstd, &h->leap, &h->time, &h->type, &h->chars };
	for (int i = 0; i < 6; i++)
		*counts[i] = (uint32_t)big_endian(p + 20 + 4 * i, 4);
	return h->time < 100000 && h->type >= 1 && h->type <= 256 && h->chars < 100000 && h->leap < 100000;
}

static uint64_t body_size(const struct header *h, unsigned bytes)
{
	return (uint64_t)h->time * bytes + h->time + (uint64_t)h->type * 6 + h->chars +
	       (uint64_t)h->leap * (bytes + 4) + h->isstd + h->isut;
}

static bool read_changes(struct zone *z, struct reader *r, const struct header *h)
{
	const unsigned char *times = reader_take(r, (uint64_t)h->time * 8), *types = reader_take(r, h->time),
			    *infos = reader_take(r, (uint64_t)h->type * 6);

	reader_take(r, h->chars + (uint64_t)h->isstd + h->isut);
	if (r->bad)
		return false;
	z->at = mem_zero((h->time + 1) * sizeof *z->at);
	z->to = mem_zero((h->time + 1) * sizeof *z->to);
	z->count = h->time;
	z->before = (int32_t)big_endian(infos, 4);
	for (uint32_t i = 0; i < h->time; i++) {
		if (types[i] >= h->type)
			return false;
		z->at[i] = big_endian(times + 8 * i, 8);
		z->to[i] = (int32_t)big_endian(infos + 6 * types[i], 4);
		if ((i && z->at[i] <= z->at[i - 1]) || z->to[i] >= OFFSET_MAX || z->to[i] <= -OFFSET_MAX)
			return false;
	}
	return z->before < OFFSET_MAX && z->before > -OFFSET_MAX;
}

/* Reads the POSIX text at the end of the file, between two newlines. It holds after the last change. Empty: no change
 * follows. */
static bool read_footer(struct zone *z, struct reader *r)
{
	const unsigned char *end = r->left > 1 && *r->at == '\n' ? memchr(r->at + 1, '\n', r->left - 1) : NULL;

	if (!end)
		return false;
	if (end == r->at + 1)
		return true;
	char *text = mem_dupn((const char *)r->at + 1, (size_t)(end - r->at - 1));
	z->has_posix = posix_parse(text, &z->posix);
	free(text);
	return z->has_posix;
}

struct zone *zone_parse(const void *file, size_t len, struct err *err)
{
	struct reader r = { file, len, false };
	struct header h;
	struct zone *z = mem_zero(sizeof *z);

	if (!read_header(&r, &h) || h.version < 2 || !reader_take(&r, body_size(&h, 4)) || !read_header(&r, &h))
		err_set(err, ERR_INVALID, "expected a zone file of version 2 or later (tzfile(5))");
	else if (h.leap)
		err_set(err, ERR_INVALID, "it counts leap seconds, which the system's clock does not");
	else if (!read_changes(z, &r, &h) || !read_footer(z, &r))
		err_set(err, ERR_INVALID, "it is damaged");
	else
		return z;
	zone_free(z);
	return NULL;
}

struct zone *zone_posix(const char *text, struct err *err)
{
	struct zone *z = mem_zero(sizeof *z);

	z->has_posix = posix_parse(text, &z->posix);
	z->before = z->posix.offset[0];
	if (z->has_posix)
		return z;
	zone_free(z);
	err_set(err, ERR_INVALID, "expected the name of a time zone, as in Europe/Berlin, found \"%.60s\"", text);
	return NULL;
}

void zone_free(struct zone *z)
{
	if (!z)
		return;
	free(z->at);
	free(z->to);
	free(z);
}

/* ---- by name ---- */

static struct zone *read_file(const char *path, const char *name, struct err *err)
{
	struct buf text = { 0 };
	char bytes[8192];
	size_t n;
	FILE *f = fopen(path, "re");

	if (!f) {
		if (errno == ENOENT || errno == ENOTDIR)
			err_set(err, ERR_MISSING,
			        "there is no time zone \"%.60s\" (%s; the zones come with Debian's package tzdata)",
			        name, path);
		else
			err_sys(err, "cannot read the time zone %.60s", path);
		return NULL;
	}
	while ((n = fread(bytes, 1, sizeof bytes, f)) > 0 && text.len <= FILE_MAX)
		buf_add(&text, bytes, n);
	fclose(f);
	struct zone *z = zone_parse(text.data ? text.data : "", text.len, err);
	buf_fini(&text);
	if (!z)
		err_wrap(err, "the time zone %s", path);
	return z;
}

static struct zone *open_named(const char *name, struct err *err)
{
	char path[256];

	if (strcmp(name, "UTC") == 0)
		return zone_posix("UTC0", err);
	if (strlen(name) > 100 || *name == '/' || strstr(name, "..") ||
	    name[strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+-/.")]) {
		err_set(err, ERR_INVALID, "expected the name of a time zone, as in Europe/Berlin, found \"%.60s\"",
		        name);
		return NULL;
	}
	snprintf(path, sizeof path, ZONE_DIRECTORY "/%s", name);
	return read_file(path, name, err);
}

/* As tzset(3) finds the machine's zone. */
static struct zone *open_local(struct err *err)
{
	const char *tz = getenv("TZ");
	struct zone *z = NULL;

	if (!tz) {
		FILE *f = fopen("/etc/localtime", "re");
		if (!f)
			return zone_posix("UTC0", err);
		fclose(f);
		return read_file("/etc/localtime", "local", err);
	}
	if (!*tz)
		return zone_posix("UTC0", err);
	tz += *tz == ':';
	z = *tz == '/' ? read_file(tz, tz, err) : open_named(tz, err);
	/* Files first: EST5EDT is the name of a file, too. What is neither was most likely meant as a file's name. */
	return z ? z : zone_posix(tz, &(struct err){ 0 });
}

struct zone *zone_open(const char *name, struct err *err)
{
	return !*name || strcmp(name, "local") == 0 ? open_local(err) : open_named(name, err);
}

/* ---- offsets and times ---- */

/* How many changes are at or before that time. */
static size_t passed(const struct zone *z, int64_t time)
{
	size_t low = 0, high = z->count;

	while (low < high) {
		size_t mid = (low + high) / 2;
		if (z->at[mid] <= time)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

int32_t zone_offset(const struct zone *z, int64_t time, int64_t *from, int64_t *until)
{
	int64_t unused[2];
	size_t n = passed(z, time);

	from = from ? from : &unused[0];
	until = until ? until : &unused[1];
	if (n == z->count && z->has_posix) {
		int32_t offset = posix_offset(&z->posix, time, from, until);
		if (n && *from < z->at[n - 1])
			*from = z->at[n - 1];
		return offset;
	}
	*from = n ? z->at[n - 1] : INT64_MIN;
	*until = n < z->count ? z->at[n] : ZONE_NEVER;
	return n ? z->to[n - 1] : z->before;
}

int64_t zone_time(const struct zone *z, int64_t local)
{
	int64_t at = local - OFFSET_MAX, from, until;

	while (true) {
		int64_t time = local - zone_offset(z, at, &from, &until);
		if (time < from)
			time = from;
		if (time < until)
			return time;
		at = until;
	}
}
