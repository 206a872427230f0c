/* A lease that is held for a term which has not begun, since earlier holders are fenced first: against lease_step
 * alone. The simulator has it among everything else (tests/sim/sim_fence.c). */
#include "lease_steps.h"
#include "tap.h"

#include <stdlib.h>

static struct lease_sight fences(uint64_t write)
{
	struct lease_sight s = ours(write);

	s.fencing = true;
	return s;
}

/* Acquires at 0, in a record that says that the term has not begun. */
static void hold(void)
{
	begin(false);
	read_done(0, absent);
	step(0, (struct lease_event){ .kind = LEASE_EV_WRITE_DONE,
	                              .op = op,
	                              .outcome = OUTCOME_OK,
	                              .sent_at = at(0),
	                              .sight = fences(writes) });
}

static void renewed(double s, bool fencing)
{
	step(s, (struct lease_event){ .kind = LEASE_EV_WRITE_DONE,
	                              .op = op,
	                              .outcome = OUTCOME_OK,
	                              .sent_at = at(s),
	                              .sight = fencing ? fences(writes) : ours(writes) });
}

static void renewed_late(double s, double sent)
{
	step(s, (struct lease_event){ .kind = LEASE_EV_WRITE_DONE,
	                              .op = op,
	                              .outcome = OUTCOME_OK,
	                              .sent_at = at(sent),
	                              .sight = ours(writes) });
}

static bool renews(void)
{
	return (a.set & LEASE_DO_WRITE) && a.write == LEASE_RENEW;
}

static void begins(void)
{
	hold();
	ok(a.set & LEASE_DO_FENCE && !(a.set & (LEASE_DO_START | LEASE_DO_LEADER)),
	   "an acquisition that owes a fence starts that, and nobody is said to lead");
	ok(!lease_is_leading(l, at(1)) && lease_is_fencing(l) && !lease_has_fenced(l), "is_leading is false meanwhile");
	struct lease_standing s;
	lease_stands(l, at(1), &s);
	ok(s.fencing, "and what it does is told");
	tick(2);
	ok(renews(), "the lease is renewed");
	renewed(2, true);
	ok(!(a.set & LEASE_DO_START) && lease_end(l).boot == at(12).boot,
	   "which moves the deadline, and begins nothing");
	step(3, (struct lease_event){ .kind = LEASE_EV_FENCED });
	ok(renews() && lease_has_fenced(l) && !(a.set & LEASE_DO_START),
	   "once it has fenced, that is written at once, and the term waits for the record");
	step(3, (struct lease_event){
			.kind = LEASE_EV_WRITE_DONE, .op = op, .outcome = OUTCOME_UNKNOWN, .sent_at = at(3) });
	ok(!(a.set & LEASE_DO_START) && !lease_is_leading(l, at(3)), "it does not begin while the outcome is unknown");
	read_done(3.5, ours(writes));
	ok(a.set & LEASE_DO_START && a.set & LEASE_DO_LEADER && a.self && lease_is_leading(l, at(3.5)),
	   "it begins, and is said to lead, when a look shows that write");
	step(4, (struct lease_event){ .kind = LEASE_EV_FENCED });
	ok(!(a.set & LEASE_DO_START) && !lease_is_fencing(l), "a second answer does nothing");
}

/* A renewal that was sent before does not say it. */
static void earlier_renewal(void)
{
	hold();
	tick(2);
	step(2.1, (struct lease_event){ .kind = LEASE_EV_FENCED });
	renewed(2.2, true);
	ok(!(a.set & LEASE_DO_START) && renews(), "a renewal that was on its way does not begin the term");
	renewed(2.3, false);
	ok(a.set & LEASE_DO_START, "the next one does");
}

static void ends(void)
{
	hold();
	step(1, (struct lease_event){ .kind = LEASE_EV_END, .reason = LEASE_FENCE_FAILED, .sit_out = 5 * SEC });
	ok(a.set & LEASE_DO_STOP && a.reason == LEASE_FENCE_FAILED && a.held, "a fence that fails ends the term");
	is_str(lease_reason_name(a.reason), "fence_failed", "with a word of its own");
	step(1.1, (struct lease_event){ .kind = LEASE_EV_FENCED });
	ok(!lease_has_fenced(l), "an answer after that does not count");
	step(1.2, (struct lease_event){ .kind = LEASE_EV_STOPPED, .reaped = true });
	ok(a.set & LEASE_DO_WRITE && a.write == LEASE_RELEASE, "when it is killed the lease is released");
	step(1.3, (struct lease_event){ .kind = LEASE_EV_WRITE_DONE,
	                                .op = op,
	                                .outcome = OUTCOME_OK,
	                                .sent_at = at(1.3),
	                                .sight = released(90, false) });
	read_done(1.4, released(90, false));
	tick(6);
	ok(!acquires(), "this candidate sits out");
	tick(6.4);
	ok(acquires(), "and then tries again");

	hold();
	tick(10);
	ok(a.set & LEASE_DO_STOP && a.reason == LEASE_EXPIRED && !a.held && a.stop_by.boot == at(13).boot,
	   "at R it is lost like any term, and what it runs is killed by R+G");
	hold();
	see(1, held(70, 15 * SEC));
	ok(a.set & LEASE_DO_STOP && a.reason == LEASE_STOLEN, "so it is when another holds the record");
	hold();
	step(9.9, (struct lease_event){ .kind = LEASE_EV_FENCED });
	step(10.1, (struct lease_event){ .kind = LEASE_EV_WRITE_DONE,
	                                 .op = op,
	                                 .outcome = OUTCOME_OK,
	                                 .sent_at = at(9.95),
	                                 .sight = ours(writes) });
	ok(a.set & LEASE_DO_STOP && !(a.set & LEASE_DO_START), "an answer after R begins nothing");
	hold();
	struct lease_times shorter = times;
	shorter.renew = 5 * SEC;
	lease_configure(l, &shorter);
	step(4, (struct lease_event){ .kind = LEASE_EV_FENCED });
	renewed_late(9.5, 4);
	ok(!(a.set & LEASE_DO_START), "nor does a write that was sent longer than its own R ago");
	tick(9.6);
	ok(a.set & LEASE_DO_STOP && !(a.set & LEASE_DO_START), "by which the term is lost");
}

static void others(void)
{
	struct lease_sight s = held(40, 15 * SEC);

	begin(false);
	read_done(0, s);
	ok(a.set & LEASE_DO_LEADER, "another one's record names a leader");
	s.id = s.write = 41;
	s.fencing = true;
	see(1, s);
	ok(a.set & LEASE_DO_NO_LEADER && !(a.set & LEASE_DO_LEADER), "not while it fences");
	tick(15.9);
	ok(!acquires(), "but its lease is obeyed");
	tick(16.1);
	ok(acquires(), "and waited out");
	s.id = s.write = 42;
	s.fencing = false;
	begin(false);
	read_done(0, (struct lease_sight){ .kind = SIGHT_HELD, .id = 41, .who = 4, .duration = SEC, .fencing = true });
	see(1, s);
	ok(a.set & LEASE_DO_LEADER, "it is named when its term begins");
}

static void bar(void)
{
	begin(false);
	lease_bar(l, true);
	read_done(0, absent);
	ok(!acquires() && lease_wait(l, at(0)) > SEC, "who is barred acquires nothing, and does not spin");
	struct lease_standing s;
	lease_stands(l, at(0), &s);
	ok(s.barred, "which is told");
	lease_bar(l, false);
	tick(0.1);
	ok(acquires(), "and does when that is over");
	lease_bar(l, true);
	write_done(0.2, OUTCOME_OK, 0.1);
	ok(lease_is_leading(l, at(0.3)), "what it holds it keeps");
}

int main(void)
{
	l = calloc(1, lease_size());
	begins();
	earlier_renewal();
	ends();
	others();
	bar();
	free(l);
	return tap_done();
}
