/* Whether somebody leads by a record: by the clocks, unless more was watched. */
#include "lease/leadership.h"

#include "base/mem.h"
#include "tap.h"

#include <string.h>

#define SECOND INT64_C(1000000)
#define NOW (1000 * SECOND)

static const char *said(int64_t renewed_us, enum leadership_watched watched)
{
	struct record r;

	record_init(&r);
	mem_replace(&r.holder, "a");
	r.lease_ms = 15000;
	r.renewed_us = renewed_us;
	const char *name = leadership_name(leadership_of(&r, NOW, watched));
	record_fini(&r);
	return name;
}

int main(void)
{
	struct record r;

	ok(strcmp(said(NOW - 15 * SECOND, WATCHED_NOTHING), "leading") == 0, "up to its lease it leads");
	ok(strcmp(said(NOW - 16 * SECOND, WATCHED_NOTHING), "overdue") == 0, "after that it is overdue");
	ok(strcmp(said(NOW + 900 * SECOND, WATCHED_NOTHING), "leading") == 0,
	   "a clock that is ahead makes nobody overdue");
	ok(strcmp(said(RECORD_TIME_UNKNOWN, WATCHED_NOTHING), "leading") == 0, "nor does a record that has no time");
	ok(strcmp(said(NOW - 900 * SECOND, WATCHED_RENEWS), "leading") == 0,
	   "who was seen to renew leads, by any clock");
	ok(strcmp(said(NOW, WATCHED_SILENT), "overdue") == 0, "who was seen not to does not");
	record_init(&r);
	ok(leadership_of(&r, NOW, WATCHED_RENEWS) == LEADERSHIP_RELEASED, "with no holder it is released");
	ok(leadership_of(NULL, NOW, WATCHED_SILENT) == LEADERSHIP_ABSENT, "with no record it is absent");
	record_fini(&r);
	return tap_done();
}
