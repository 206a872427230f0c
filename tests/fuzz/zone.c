/* Time zones: files (tzfile) of any bytes, and POSIX texts. An offset holds in the span that is said, and the time of a
 * local time is one at which the clock shows it or has jumped over it. */
#include "fuzz.h"

#include "cron/zone.h"

static void judge(const struct zone *z, int64_t time)
{
	int64_t from, until, f2, u2;
	int32_t offset = zone_offset(z, time, &from, &until);

	must(from <= time && time < until);
	if (from > INT64_MIN)
		must(zone_offset(z, from, &f2, &u2) == offset && f2 == from);
	int64_t local = time + offset, t = zone_time(z, local);
	if (t > time)
		fprintf(stderr, "time %lld, offset %d, its local time is found at %lld\n", (long long)time, offset,
		        (long long)t);
	must(t <= time);
	must(t + zone_offset(z, t, NULL, NULL) >= local);
}

static void judge_all(struct zone *z, const uint8_t *data, size_t size)
{
	static const int64_t times[] = { 0, -5000000000, 1700000000, 4000000000, 95000000000 };

	for (size_t i = 0; z && i < sizeof times / sizeof *times; i++)
		judge(z, times[i]);
	for (size_t i = 0; z && i < 4 && i + 4 <= size; i++)
		judge(z, (int64_t)((uint32_t)data[i] << 24 | (uint32_t)data[i + 1] << 16 | (uint32_t)data[i + 2] << 8 |
		                   data[i + 3]));
	zone_free(z);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	struct err err;

	void *file = input_copy(data, size);
	struct zone *z = zone_parse(file, size, &err);
	free(file);
	judge_all(z, data, size);
	char *text = input_text(&in, NULL);
	judge_all(zone_posix(text, &err), data, size);
	free(text);
	return 0;
}
