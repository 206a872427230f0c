/* Cron lines in zones: a line, a zone by POSIX, and three times behind zero bytes. What is due comes later than what it
 * is later than, and ever has a next time. */
#include "fuzz.h"

#include "cron/cron.h"
#include "cron/zone.h"

static int64_t time_in(struct input *in)
{
	uint64_t t = 0;

	for (int i = 0; i < 5; i++)
		t = t << 8 | input_byte(in);
	return (int64_t)(t % 200000000000u) - 100000000000; /* as the Lua library bounds it */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	char *line = input_text(&in, NULL), *zone = input_text(&in, NULL);
	struct cron c;
	struct err err;
	struct zone *z = zone_posix(zone, &err);

	if (z && cron_parse(&c, line, "seed", &err) == 0) {
		int64_t last = time_in(&in), now = time_in(&in), wake = 0;
		int64_t next = cron_next(&c, z, last);
		must(next > last && (next == CRON_NEVER || next - last < INT64_C(42) * 366 * 86400));
		now = now > last + 86400 * 400 ? last + 86400 * 400 : now;
		for (int how = CRON_SKIP; how <= CRON_ALL; how++) {
			int64_t due = cron_due(&c, z, last, now, (enum cron_catch_up)how, &wake);
			must(due == CRON_NEVER || (due > last && due <= now));
			must(due != CRON_NEVER || wake > now);
		}
	}
	zone_free(z);
	free(line);
	free(zone);
	return 0;
}
