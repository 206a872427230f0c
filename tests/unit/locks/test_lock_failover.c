/* How long nobody is elected on a server that may have lost a record. */
#include "locks/lock_failover.h"
#include "tap.h"

static struct instant at(nsec s)
{
	return (struct instant){ .boot = s * NSEC_PER_SEC, .raw = s * NSEC_PER_SEC };
}

static void waits(void)
{
	struct lock_failover d = { .mark = "" };
	const nsec own = 3 * NSEC_PER_SEC;

	is_int(lock_failover_left(&d, own, at(5)), 0, "without a doubt nothing is waited for");
	lock_failover_see(&d, "first", at(10));
	is_int(lock_failover_left(&d, own, at(11)), 2 * NSEC_PER_SEC, "a doubt lasts a lease");
	is_str(lock_failover_over(&d, own, at(11)), "", "and is not over before");
	lock_failover_lease(&d, 9 * NSEC_PER_SEC);
	lock_failover_lease(&d, 2 * NSEC_PER_SEC);
	is_int(lock_failover_left(&d, own, at(14)), 5 * NSEC_PER_SEC,
	       "the longest that was seen, not our own, nor the last");
	lock_failover_see(&d, "first", at(15));
	is_str(lock_failover_over(&d, own, at(19)), "first", "counted from the first sight of it");
	is_int(lock_failover_left(&d, own, (struct instant){ .boot = at(30).boot, .raw = at(12).raw }),
	       7 * NSEC_PER_SEC, "by the clock that shows less");
	lock_failover_see(&d, "second", at(20));
	is_str(lock_failover_over(&d, own, at(21)), "", "another doubt is waited for anew");
	lock_failover_see(&d, "", at(22));
	is_int(lock_failover_left(&d, own, at(22)), 0, "one that is settled is not");
}

static void owns(void)
{
	struct lock_failover d = { .mark = "" };
	const struct version v = { .text = "v" }, w = { .text = "w" }, none = { .text = "" };

	ok(!lock_failover_own(&d, &none, at(1)), "an absent record is nobody's");
	lock_failover_wrote(&d, &v, true, 3 * NSEC_PER_SEC, at(10));
	ok(lock_failover_own(&d, &v, at(12)), "the record of our term is our own");
	ok(!lock_failover_own(&d, &v, at(13)), "until its lease has run out: another may have led since, and be lost");
	ok(!lock_failover_own(&d, &w, at(12)), "another one is not");
	lock_failover_wrote(&d, &w, false, 3 * NSEC_PER_SEC, at(12));
	ok(!lock_failover_own(&d, &w, at(12)) && !lock_failover_own(&d, &v, at(12)), "nor is one by which we let go");
}

/* What was sent may have been seen, whether or not it was answered. */
static void sends(void)
{
	struct lock_failover d = { .mark = "" };
	const struct version v = { .text = "v" }, w = { .text = "w" };
	const nsec lease = 9 * NSEC_PER_SEC;

	lock_failover_sends(&d, true, lease, at(10));
	lock_failover_wrote(&d, &v, true, lease, at(10));
	lock_failover_sends(&d, true, lease, at(12));
	ok(lock_failover_own(&d, &v, at(18)), "a renewal that is not answered leaves the record before it our own");
	lock_failover_sends(&d, true, 2 * NSEC_PER_SEC, at(13));
	ok(lock_failover_own(&d, &v, at(14)) && !lock_failover_own(&d, &v, at(15)),
	   "but one that publishes a shorter lease, for that long only");
	lock_failover_wrote(&d, &v, true, lease, at(20));
	lock_failover_found(&d, &v);
	ok(lock_failover_own(&d, &v, at(21)), "a look that finds it changes nothing");
	lock_failover_found(&d, &w);
	ok(!lock_failover_own(&d, &v, at(21)), "one that finds another ends it, even if it should come back");
	lock_failover_wrote(&d, &v, true, lease, at(30));
	lock_failover_sends(&d, false, lease, at(31));
	ok(!lock_failover_own(&d, &v, at(31)),
	   "a release that is sent ends it: another may lead since, though no answer came");
}

int main(void)
{
	waits();
	owns();
	sends();
	return tap_done();
}
