#include "base/clock.h"

#include <time.h>

/* A process has one time, simulated or not. So this is a variable; `lunarch test` sets it before anything else runs. */
static const struct clock_virtual *pretended;

void clock_pretend(const struct clock_virtual *v)
{
	pretended = v;
}

static nsec read_clock(clockid_t id)
{
	struct timespec ts;

	if (pretended)
		return pretended->now + (id == CLOCK_REALTIME ? pretended->wall_us * 1000 : 0);
	clock_gettime(id, &ts);
	return (nsec)ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

struct instant clock_now(void)
{
	return (struct instant){ .boot = read_clock(CLOCK_BOOTTIME), .raw = read_clock(CLOCK_MONOTONIC_RAW) };
}

nsec elapsed_holder(struct instant from, struct instant now)
{
	nsec boot = now.boot - from.boot, raw = now.raw - from.raw;

	return boot > raw ? boot : raw;
}

nsec elapsed_standby(struct instant from, struct instant now)
{
	nsec boot = now.boot - from.boot, raw = now.raw - from.raw;

	return boot < raw ? boot : raw;
}

static nsec add_saturating(nsec a, nsec d)
{
	return a > NSEC_NEVER - d ? NSEC_NEVER : a + d;
}

struct instant instant_add(struct instant from, nsec d)
{
	return (struct instant){ .boot = add_saturating(from.boot, d), .raw = add_saturating(from.raw, d) };
}

struct instant instant_min(struct instant a, struct instant b)
{
	return (struct instant){ .boot = a.boot < b.boot ? a.boot : b.boot, .raw = a.raw < b.raw ? a.raw : b.raw };
}

int instant_passed(struct instant deadline, struct instant now)
{
	return now.boot >= deadline.boot || now.raw >= deadline.raw;
}

nsec instant_until(struct instant deadline, struct instant now)
{
	nsec boot = deadline.boot - now.boot, raw = deadline.raw - now.raw;
	nsec least = boot < raw ? boot : raw;

	return least > 0 ? least : 0;
}

int64_t clock_wall_us(void)
{
	return read_clock(CLOCK_REALTIME) / 1000;
}

nsec clock_monotonic(void)
{
	return read_clock(CLOCK_MONOTONIC);
}
