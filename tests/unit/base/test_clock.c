/* Which of the two clocks counts: for a holder the one that went further, for a standby the other. */
#include "base/clock.h"
#include "tap.h"

/* The raw clock stood still in a suspend of 7; or the boot clock was slewed. */
static const struct instant begin = { .boot = 100, .raw = 1000 };
static const struct instant resumed = { .boot = 110, .raw = 1003 };
static const struct instant slewed = { .boot = 103, .raw = 1010 };

static void elapsed(void)
{
	is_int(elapsed_holder(begin, resumed), 10, "a holder counts a suspend");
	is_int(elapsed_holder(begin, slewed), 10, "a holder counts what slewing took away");
	is_int(elapsed_standby(begin, resumed), 3, "a standby does not count a suspend");
	is_int(elapsed_standby(begin, slewed), 3, "a standby does not count what slewing added");
	is_int(elapsed_holder(begin, begin), 0, "no time has passed at once, for a holder");
	is_int(elapsed_standby(begin, begin), 0, "nor for a standby");
}

static void deadlines(void)
{
	struct instant deadline = instant_add(begin, 10);

	ok(!instant_passed(deadline, begin), "a deadline is not passed before its time");
	ok(instant_passed(deadline, resumed), "it is passed when the boot clock has reached it");
	ok(instant_passed(deadline, slewed), "it is passed when the raw clock has reached it");
	is_int(instant_until(deadline, begin), 10, "the whole time is left at first");
	is_int(instant_until(deadline, (struct instant){ .boot = 109, .raw = 1002 }), 1,
	       "the nearer clock says how much is left");
	is_int(instant_until(deadline, resumed), 0, "nothing is left when it is passed");
	is_int(instant_until(deadline, (struct instant){ .boot = 120, .raw = 1020 }), 0, "nor after that");

	struct instant both = instant_min(resumed, slewed);
	ok(both.boot == 103 && both.raw == 1003, "the deadline that two respect has the earlier value of each clock");
}

static void never(void)
{
	struct instant end = instant_add(begin, NSEC_NEVER);

	ok(end.boot == NSEC_NEVER && end.raw == NSEC_NEVER, "a time that is too far does not wrap around");
	ok(!instant_passed(end, resumed), "and is not passed");
}

int main(void)
{
	elapsed();
	deadlines();
	never();
	return tap_done();
}
