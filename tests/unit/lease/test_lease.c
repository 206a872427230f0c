/* The rules of time, one sentence each, on simulated time against lease_step alone. The simulator (tests/sim) looks for
 * what no rule foresees. The numbers T.. are those of the cases in tests/cluster/kubernetes/README.md. */
#include "lease_steps.h"
#include "tap.h"

#include <stdlib.h>

/* A hundred candidates that began in one moment and cannot watch. */
static void polling_rules(void)
{
	nsec earliest = NSEC_NEVER, latest = 0;
	int outside = 0, early_half = 0;

	for (uint32_t seed = 1; seed <= 100; seed++) {
		times = (struct lease_times){ 0 };
		lease_times_default(&times);
		lease_init(l, &times, false, false, seed * 2654435761u);
		step(0, (struct lease_event){ .kind = LEASE_EV_CAMPAIGN });
		read_done(1, held(10, 60 * SEC));
		nsec wait = lease_wait(l, at(1));
		earliest = wait < earliest ? wait : earliest;
		latest = wait > latest ? wait : latest;
		outside += wait < times.retry || wait >= times.retry / 10 * 22;
		early_half += wait < times.retry / 10 * 16;
	}
	is_int(outside, 0, "without a watch a standby looks again after P to 2.2 P (T17)");
	ok(earliest < times.retry / 10 * 12 && latest > times.retry * 2 && early_half > 25 && early_half < 75,
	   "and a hundred of them spread over all of that (T17)");
}

/* It has said yes to a leader that is to hand over to it. */
static void soon_rules(void)
{
	double t = 1;
	int looks = 0;

	times = (struct lease_times){ 0 };
	lease_times_default(&times);
	lease_init(l, &times, false, false, 1);
	step(0, (struct lease_event){ .kind = LEASE_EV_CAMPAIGN });
	read_done(1, held(10, 60 * SEC));
	step(1, (struct lease_event){ .kind = LEASE_EV_SOON });
	is_int(lease_wait(l, at(1)), times.retry / 128, "for which the lock is about to be released looks soon");
	for (nsec wait = lease_wait(l, at(t)); wait < times.retry; wait = lease_wait(l, at(t))) {
		t += (double)wait / SEC + 1e-6;
		tick(t);
		looks += (a.set & LEASE_DO_READ) != 0;
		read_done(t, held(10, 60 * SEC));
	}
	ok(looks == 7 && t > 2.9 && t < 3.1, "then ever later, and after seven looks as before (%d by %.3f s)", looks,
	   t);
	step(t, (struct lease_event){ .kind = LEASE_EV_SOON });
	tick(t + 0.1);
	step(t + 0.1,
	     (struct lease_event){ .kind = LEASE_EV_READ_DONE, .op = op, .outcome = OUTCOME_FAILED, .refused = true });
	ok(lease_wait(l, at(t + 0.1)) >= times.retry, "a store that refuses is not asked soon");
	tick(t + 20);
	read_done(t + 20, held(10, 60 * SEC));
	t += 20;
	lease_watching(l, true);
	step(t, (struct lease_event){ .kind = LEASE_EV_SOON });
	ok(lease_wait(l, at(t)) >= times.retry, "where a watch tells of changes it does not");
}

static void times_rules(void)
{
	struct err err;
	struct lease_times t = { 0 };

	lease_times_default(&t);
	ok(t.lease == 15 * SEC && t.renew == 10 * SEC && t.retry == 2 * SEC && t.grace == 3 * SEC && t.kill == SEC &&
	           t.drift == SEC,
	   "nothing given: 15/10/2/3/1/1 seconds");
	t = (struct lease_times){ .lease = 3 * SEC };
	lease_times_default(&t);
	ok(t.renew == 2 * SEC && t.retry == 400 * NSEC_PER_MS && t.grace == 600 * NSEC_PER_MS,
	   "only L: the rest follows from it");
	t.kill = SEC;
	ok(lease_times_check(&t, &err) < 0 && strstr(err.text, "1s") && strstr(err.text, "3s"),
	   "a sum beyond L is refused, with its numbers");
	t = (struct lease_times){ .lease = 15 * SEC, .renew = 2 * SEC, .retry = 2 * SEC };
	lease_times_default(&t);
	ok(lease_times_check(&t, &err) < 0 && strstr(err.text, "1.2"), "R must exceed 1.2 P");
}

static void standby_rules(void)
{
	begin(false);
	ok(a.set & LEASE_DO_READ, "a candidate looks first");
	read_done(1, held(10, 3 * SEC));
	ok((a.set & LEASE_DO_LEADER) && !a.self && !(a.set & LEASE_DO_WRITE),
	   "a held record is reported and waited out");
	is_int(lease_wait(l, at(1)) / NSEC_PER_MS, 3000,
	       "for the duration that the record publishes, not our own, from its receipt");
	tick(3.9);
	ok(!(a.set & LEASE_DO_WRITE), "not a moment sooner");
	tick(4.0);
	ok((a.set & LEASE_DO_WRITE) && a.write == LEASE_ACQUIRE && (a.set & LEASE_DO_NO_LEADER),
	   "then it tries at that very moment");

	begin(false);
	read_done(1, held(10, 3 * SEC));
	step(2, (struct lease_event){ .kind = LEASE_EV_CHANGED });
	read_done(2, held(11, 3 * SEC));
	tick(4.5);
	ok(!(a.set & LEASE_DO_WRITE), "a renewal seen starts the wait anew");
	struct instant slow = { at(6).boot, at(4).raw };
	a = lease_step(l, &(struct lease_event){ .kind = LEASE_EV_TICK }, slow);
	ok(!(a.set & LEASE_DO_WRITE), "of a standby's two clocks the slower one counts");

	begin(false);
	read_done(1, held(10, 3 * SEC));
	step(1.5, (struct lease_event){ .kind = LEASE_EV_HOLDER_DEAD, .id = 9 });
	ok(!(a.set & LEASE_DO_WRITE), "the death of another record's holder means nothing");
	step(1.6, (struct lease_event){ .kind = LEASE_EV_HOLDER_DEAD, .id = 10 });
	ok(a.set & LEASE_DO_WRITE, "the proved death of this one's ends the wait");

	begin(false);
	read_done(1, held(10, 3 * SEC));
	step(2, (struct lease_event){ .kind = LEASE_EV_CHANGED });
	read_done(2, absent);
	ok(!(a.set & LEASE_DO_WRITE), "who has seen a record does not take its absence at once");
	tick(17);
	ok(a.set & LEASE_DO_WRITE, "but after the longest duration it knows");

	begin(false);
	struct lease_sight emptied = held(10, 3 * SEC);
	emptied.kind = SIGHT_EMPTIED;
	read_done(1, emptied);
	ok(!(a.set & LEASE_DO_WRITE), "a record emptied by hand is waited out");
	begin(false);
	read_done(1, (struct lease_sight){ .kind = SIGHT_RELEASED, .id = 3 });
	ok(a.set & LEASE_DO_WRITE, "a released one is taken at once");
	begin(false);
	read_done(1, (struct lease_sight){ .kind = SIGHT_FOREIGN });
	tick(10000);
	ok(!(a.set & LEASE_DO_WRITE), "what is no record is never written to");

	begin(false);
	struct lease_sight reclaimed = held(10, 30 * SEC);
	reclaimed.reclaim = true;
	read_done(1, reclaimed);
	ok(a.set & LEASE_DO_WRITE, "with reclaim an identity's old record is taken at once");
	begin(false);
	read_done(0, absent);
	write_done(1, OUTCOME_CONFLICT, 0);
	read_done(1, held(10, 3 * SEC));
	step(2, (struct lease_event){ .kind = LEASE_EV_CHANGED });
	read_done(2, ours(writes));
	ok(!(a.set & (LEASE_DO_START | LEASE_DO_WRITE)),
	   "a write of ours that lands after we gave it up is waited out like a stranger's");
}

/* Half a second, at the presets. */
static void hold_back_rules(void)
{
	begin(false);
	read_done(1, held(10, 15 * SEC));
	see(3, released(11, false));
	ok(acquires(), "whom no release names, or this one, acquires at once");
	begin(false);
	read_done(1, held(10, 15 * SEC));
	see(3, released(11, true));
	ok(!(a.set & LEASE_DO_WRITE) && lease_wait(l, at(3)) <= SEC / 2, "all others hold back for half a second");
	ok(a.set & LEASE_DO_NO_LEADER, "and report at once that nobody leads");
	see(3.3, released(11, true));
	ok(!(a.set & LEASE_DO_WRITE) && lease_wait(l, at(3.3)) <= SEC / 5 + NSEC_PER_MS,
	   "to receive the same release again makes that no longer");
	tick(3.501);
	ok(acquires(), "then they compete as for any release");
	begin(false);
	lease_watching(l, false);
	read_done(1, held(10, 15 * SEC));
	see(3, released(11, true));
	see(7.8, released(11, true));
	ok(!(a.set & LEASE_DO_WRITE), "where the store tells of no changes, they hold back for 2.2 P more (T17)");
	tick(7.901);
	ok(acquires(), "and compete then");
	begin(false);
	read_done(1, released(11, true));
	struct lease_sight taken = held(20, 15 * SEC);
	see(1.2, taken);
	tick(10);
	ok(!(a.set & LEASE_DO_WRITE), "the one that was named has acquired: its lease is waited out like any");
	taken.other_first = true;
	begin(false);
	read_done(1, taken);
	ok(lease_wait(l, at(15.9)) <= SEC / 10 + NSEC_PER_MS, "when the wait ends");
	tick(16.001);
	ok((a.set & LEASE_DO_NO_LEADER) && !(a.set & LEASE_DO_WRITE), "it is reported then that nobody leads");
	read_done(16.1, taken); /* a look that was due then */
	tick(16.501);
	ok(acquires(), "and who does not come next holds back, from the end of that wait");
	begin(false);
	read_done(1, taken);
	step(4, (struct lease_event){ .kind = LEASE_EV_HOLDER_DEAD, .id = 20 });
	ok(!(a.set & LEASE_DO_WRITE), "so it does when the holder is proved dead");
	step(4.3, (struct lease_event){ .kind = LEASE_EV_HOLDER_DEAD, .id = 20 });
	tick(4.501);
	ok(acquires(), "from the first proof");
	begin(false);
	read_done(1, taken);
	tick(16.001);
	read_done(16.1, taken);
	step(16.2, (struct lease_event){ .kind = LEASE_EV_HOLDER_DEAD, .id = 20 });
	tick(16.501);
	ok(acquires(), "a proof that comes when the wait is over makes it no longer");
	times = (struct lease_times){ .lease = 3 * SEC };
	lease_times_default(&times);
	is_int(lease_hold_back(&times), 250 * NSEC_PER_MS, "it is an eighth of R where that is shorter");
	begin(true);
	read_done(1, released(11, true));
	ok(!(a.set & LEASE_DO_ASK), "may_lead is asked when it is over");
	tick(1.501);
	ok(a.set & LEASE_DO_ASK, "and not before");
}

static void leader_rules(void)
{
	begin(false);
	read_done(0, absent);
	ok((a.set & LEASE_DO_WRITE) && a.write == LEASE_ACQUIRE, "one candidate alone takes an absent record at once");
	write_done(1, OUTCOME_OK, 0.5);
	ok((a.set & LEASE_DO_START) && lease_is_leading(l, at(1)), "and leads");
	ok(lease_is_leading(l, at(10.49)) && !lease_is_leading(l, at(10.5)),
	   "counted from when the write was sent, not answered");

	begin(false);
	read_done(0, absent);
	write_done(10.1, OUTCOME_OK, 0);
	ok(!(a.set & LEASE_DO_START) && (a.set & LEASE_DO_READ),
	   "an acquiring write answered after R starts nothing: it looks again");

	begin(false);
	read_done(0, absent);
	write_done(1, OUTCOME_UNKNOWN, 0);
	ok((a.set & LEASE_DO_READ) && !(a.set & LEASE_DO_START), "unknown is not success: read back");
	read_done(1.5, ours(writes));
	ok(a.set & LEASE_DO_START, "if the record is exactly ours, it was");
	is_int((lease_end(l).boot - at(0).boot) / SEC, 10, "dated when it was sent");

	lead();
	tick(2);
	ok((a.set & LEASE_DO_WRITE) && a.write == LEASE_RENEW, "a leader renews every P");
	write_done(2.1, OUTCOME_CONFLICT, 2);
	ok(!(a.set & LEASE_DO_STOP) && (a.set & LEASE_DO_READ), "a conflict is not a loss: it looks");
	read_done(2.2, held(10, 3 * SEC));
	ok((a.set & LEASE_DO_STOP) && !a.held && a.reason == LEASE_STOLEN, "another holder is, in the same step");
	is_int((a.stop_by.boot - at(2.2).boot) / NSEC_PER_MS, 1000, "and leaves the script a second");

	lead();
	tick(10);
	ok((a.set & LEASE_DO_STOP) && a.reason == LEASE_EXPIRED, "at R without a renewal the term is over");
	is_int((a.stop_by.boot - at(0).boot) / SEC, 13, "the script is killed at R+G");
	struct instant slept = { at(11).boot, at(1).raw };
	lead();
	a = lease_step(l, &(struct lease_event){ .kind = LEASE_EV_TICK }, slept);
	ok(a.set & LEASE_DO_STOP, "of a holder's two clocks the faster one counts");

	lead();
	uint64_t old = op;
	tick(2);
	step(2.5, (struct lease_event){ .kind = LEASE_EV_WRITE_DONE,
	                                .op = old,
	                                .outcome = OUTCOME_OK,
	                                .sent_at = at(2.5),
	                                .sight = ours(1) });
	tick(5);
	ok(!(a.set & (LEASE_DO_READ | LEASE_DO_WRITE)), "a stale reply is dropped");

	lead();
	struct lease_times shorter = { .lease = 3 * SEC };
	lease_times_default(&shorter);
	lease_configure(l, &shorter);
	tick(2);
	is_int((lease_end(l).boot - at(0).boot) / SEC, 4, "a shorter duration on its way counts as applied");
	lead();
	struct lease_event sent = { .kind = LEASE_EV_SENT, .write = writes + 1, .sent_at = at(2) };
	lease_configure(l, &shorter);
	a = lease_step(l, &(struct lease_event){ .kind = LEASE_EV_TICK }, at(2));
	a = lease_step(l, &sent, at(2));
	is_int(a.set, LEASE_DO_DEADLINE, "the deadline that it brings nearer is published before the write is sent");
}

/* op: the next one that is wanted is a look, or a write; it is refused. How long until the next after it. */
static double refused(double s, bool write, nsec *wait)
{
	step(s, (struct lease_event){ .kind = write ? LEASE_EV_WRITE_DONE : LEASE_EV_READ_DONE,
	                              .op = op,
	                              .outcome = OUTCOME_FAILED,
	                              .refused = true,
	                              .sent_at = at(s) });
	*wait = lease_wait(l, at(s));
	s += (double)*wait / (double)SEC;
	tick(s);
	return s;
}

static void refusal_rules(void)
{
	nsec wait, first, longest = 0;
	double s = 0;

	begin(false);
	s = refused(s, false, &first);
	ok(a.set & LEASE_DO_READ, "a look that is refused is tried again");
	for (int i = 0; i < 8; i++) {
		s = refused(s, false, &wait);
		longest = wait > longest ? wait : longest;
	}
	ok(wait > first * 2 && longest <= 60 * SEC, "ever more rarely, but once a minute");
	step(s, (struct lease_event){ .kind = LEASE_EV_READ_DONE, .op = op, .outcome = OUTCOME_FAILED });
	tick(s + 30);
	ok(a.set & LEASE_DO_READ, "until it fails for another reason");
	read_done(s + 30, absent);
	ok(a.set & LEASE_DO_WRITE, "or succeeds");
	double before = s = s + 30, gap = 0;
	for (int i = 0; i < 10; i++) {
		gap = s - before;
		before = s;
		step(s, (struct lease_event){ .kind = LEASE_EV_WRITE_DONE,
		                              .op = op,
		                              .outcome = OUTCOME_FAILED,
		                              .refused = true,
		                              .sent_at = at(s) });
		while (!(a.set & LEASE_DO_WRITE)) {
			if (a.set & LEASE_DO_READ) {
				read_done(s, absent);
				continue;
			}
			s += (double)lease_wait(l, at(s)) / (double)SEC;
			tick(s);
		}
	}
	ok(gap > 30 && gap <= 61, "writes that are refused too, though looks succeed in between");
	lead();
	tick(2);
	ok(a.set & LEASE_DO_WRITE, "a leader renews");
	for (s = 2; s < 9; s = refused(s, true, &wait))
		ok(s < 2.1 || wait <= 1 * SEC, "and goes on at once where that is refused: it has a lease to lose");
}

static void end_rules(void)
{
	lead();
	step(1, (struct lease_event){ .kind = LEASE_EV_END, .reason = LEASE_RESIGNED, .sit_out = 20 * SEC });
	ok((a.set & LEASE_DO_STOP) && a.held, "a voluntary end stops the script and keeps the lease");
	tick(2);
	ok((a.set & LEASE_DO_WRITE) && a.write == LEASE_RENEW, "renewing meanwhile");
	write_done(2, OUTCOME_OK, 2);
	step(2.5, (struct lease_event){ .kind = LEASE_EV_STOPPED, .reaped = true });
	ok((a.set & LEASE_DO_WRITE) && a.write == LEASE_RELEASE, "and releases when everything is reaped");

	lead();
	step(1, (struct lease_event){
			.kind = LEASE_EV_END, .reason = LEASE_SHUTDOWN, .sit_out = NSEC_NEVER, .grace = 17 * SEC });
	is_int((a.stop_by.boot - at(0).boot) / SEC, 18, "the script is told all the time that it is given to stop");
	is_int((lease_kill(l).boot - at(0).boot) / SEC, 13, "though it would be killed earlier as yet");
	tick(2);
	write_done(2.5, OUTCOME_OK, 2.4);
	is_int((lease_kill(l).boot - at(0).boot) / SEC, 15, "the renewals that go on move that");
	tick(8);
	write_done(8.5, OUTCOME_OK, 8.4);
	is_int((lease_kill(l).boot - at(0).boot) / SEC, 18, "up to the end of the time that was given");
	tick(18.4);
	ok((a.set & LEASE_DO_STOP) && !a.held && a.stop_by.boot == at(18).boot,
	   "if the lease is lost meanwhile the script is told to stop once more, and has no more time than before");

	lead();
	step(1, (struct lease_event){
			.kind = LEASE_EV_END, .reason = LEASE_SHUTDOWN, .sit_out = NSEC_NEVER, .grace = 100 * SEC });
	tick(10);
	is_int((a.stop_by.boot - at(0).boot) / SEC, 13, "or less, if the kill deadline is earlier");

	lead();
	step(1, (struct lease_event){ .kind = LEASE_EV_END, .reason = LEASE_SHUTDOWN, .sit_out = NSEC_NEVER });
	step(1, (struct lease_event){ .kind = LEASE_EV_STOPPED, .reaped = false });
	ok(!(a.set & LEASE_DO_WRITE) && (a.set & LEASE_DO_FINISHED) && a.left,
	   "what cannot be reaped keeps it from being released");

	lead();
	step(1, (struct lease_event){ .kind = LEASE_EV_END, .reason = LEASE_RELOAD });
	step(1.1, (struct lease_event){ .kind = LEASE_EV_STOPPED, .reaped = true });
	ok((a.set & LEASE_DO_WRITE) && a.write == LEASE_NEXT_TERM, "a reload writes the next term without letting go");

	begin(true);
	read_done(0, absent);
	ok((a.set & LEASE_DO_ASK) && !(a.set & LEASE_DO_WRITE), "with may_lead it asks first");
	step(0.1, (struct lease_event){ .kind = LEASE_EV_ANSWER, .yes = false });
	ok(!(a.set & LEASE_DO_WRITE), "no is no");
	tick(2.1);
	ok(a.set & LEASE_DO_ASK, "and asked again after P");
	step(2.2, (struct lease_event){ .kind = LEASE_EV_ANSWER, .yes = true });
	ok(a.set & LEASE_DO_WRITE, "yes tries");

	begin(false);
	lease_asks(l, true);
	read_done(0, absent);
	ok((a.set & LEASE_DO_ASK) && !(a.set & LEASE_DO_WRITE), "a hook that a reload brings is asked");
	lease_asks(l, false);
	tick(0.1);
	ok(a.set & LEASE_DO_WRITE, "one that a reload takes away is not waited for");
	lead();
	lease_asks(l, true);
	step(1, (struct lease_event){ .kind = LEASE_EV_END, .reason = LEASE_RELOAD });
	step(1.1, (struct lease_event){ .kind = LEASE_EV_STOPPED, .reaped = true });
	ok((a.set & LEASE_DO_WRITE) && a.write == LEASE_NEXT_TERM && !(a.set & LEASE_DO_ASK),
	   "a lease that is held is kept without asking it");
}

static void want(double s, uint64_t number)
{
	step(s, (struct lease_event){ .kind = LEASE_EV_SAVE, .save = number });
}

static void save_rules(void)
{
	lead();
	want(0.1, 1);
	ok((a.set & LEASE_DO_WRITE) && a.write == LEASE_RENEW && a.saves, "a save is a renewal, written at once");
	ok(!(a.set & (LEASE_DO_SAVED | LEASE_DO_UNSAVED)), "and not answered before the write is");
	want(0.15, 2);
	want(0.16, 3);
	ok(!(a.set & LEASE_DO_WRITE), "saves that come meanwhile wait: never two writes at once");
	write_done(0.2, OUTCOME_OK, 0.1);
	ok((a.set & LEASE_DO_SAVED) && a.saved == 1,
	   "a write that succeeded answers the save it carries, no later one");
	ok((a.set & LEASE_DO_WRITE) && a.saves, "and the others follow at once, in one write");
	write_done(0.3, OUTCOME_OK, 0.2);
	ok((a.set & LEASE_DO_SAVED) && a.saved == 3 && !(a.set & LEASE_DO_WRITE), "which answers them all");
	is_int((lease_end(l).boot - at(0).boot) / (SEC / 10), 102, "and renews the lease");
	step(0.5, (struct lease_event){ .kind = LEASE_EV_RENEW });
	ok((a.set & LEASE_DO_WRITE) && a.write == LEASE_RENEW && !a.saves,
	   "other news is a renewal, too, written at once");
	step(0.55, (struct lease_event){ .kind = LEASE_EV_RENEW });
	ok(!(a.set & LEASE_DO_WRITE), "and waits for the write under way");
	write_done(0.6, OUTCOME_OK, 0.5);
	ok(a.set & LEASE_DO_WRITE, "after which it is written once more");
	write_done(0.7, OUTCOME_OK, 0.2);
	ok(!(a.set & LEASE_DO_WRITE), "and that is all");
	tick(2.2);
	ok((a.set & LEASE_DO_WRITE) && !a.saves, "the next renewal carries no save");
	write_done(2.2, OUTCOME_OK, 2.2);
	ok(!(a.set & LEASE_DO_SAVED), "and answers none");

	lead();
	want(0.1, 1);
	uint64_t first = writes;
	write_done(1, OUTCOME_UNKNOWN, 0.1);
	ok(!(a.set & LEASE_DO_SAVED) && (a.set & LEASE_DO_READ), "unknown is not saved: read back");
	read_done(1.1, ours(first));
	ok((a.set & LEASE_DO_SAVED) && a.saved == 1, "if the record is exactly that write, it is");
	lead();
	want(0.1, 1);
	first = writes - 1;
	write_done(1, OUTCOME_UNKNOWN, 0.1);
	read_done(1.1, ours(first));
	ok(!(a.set & LEASE_DO_SAVED) && (a.set & LEASE_DO_WRITE) && a.saves, "if not, it is written again, as durably");
	write_done(1.2, OUTCOME_OK, 1.1);
	ok((a.set & LEASE_DO_SAVED) && a.saved == 1, "and saved then");

	lead();
	want(0.1, 1);
	write_done(0.2, OUTCOME_CONFLICT, 0.1);
	read_done(0.3, held(10, 3 * SEC));
	ok((a.set & LEASE_DO_UNSAVED) && !(a.set & LEASE_DO_SAVED),
	   "another holder in the record: the save has failed");
	lead();
	want(0.1, 1);
	write_done(10.1, OUTCOME_OK, 0.05);
	ok((a.set & LEASE_DO_UNSAVED) && !(a.set & LEASE_DO_SAVED),
	   "an answer after the term has failed it, whatever is in the store");
	begin(false);
	read_done(0, held(10, 3 * SEC));
	want(1, 1);
	ok((a.set & LEASE_DO_UNSAVED) && !(a.set & LEASE_DO_WRITE), "without a term there is nothing to save into");

	lead();
	step(1, (struct lease_event){ .kind = LEASE_EV_END, .reason = LEASE_SHUTDOWN, .sit_out = NSEC_NEVER });
	want(1.1, 1);
	ok((a.set & LEASE_DO_WRITE) && a.write == LEASE_RENEW,
	   "while the script stops and the lease is held, it may save");
	step(1.2, (struct lease_event){ .kind = LEASE_EV_STOPPED, .reaped = true });
	ok(a.set & LEASE_DO_UNSAVED, "when it has stopped, nobody waits for it");
	write_done(1.3, OUTCOME_OK, 1.1);
	ok(!(a.set & LEASE_DO_SAVED) && (a.set & LEASE_DO_WRITE) && a.write == LEASE_RELEASE,
	   "and the release follows");
}

/* Until that time every write's outcome is unknown, and every look shows the same. What is wanted then is not answered
 * yet. */
static void doubt(double from, double to, struct lease_sight sight)
{
	for (double s = from; s < to; s += 0.1) {
		for (int i = 0; i < 9 && (a.set & (LEASE_DO_WRITE | LEASE_DO_READ)); i++)
			if (a.set & LEASE_DO_WRITE)
				write_done(s, OUTCOME_UNKNOWN, s);
			else
				read_done(s, sight);
		tick(s);
	}
}

/* When the next write is under way. */
static double next_write(double s, struct lease_sight sight)
{
	for (int i = 0; i < 1000 && !(a.set & LEASE_DO_WRITE); i++)
		if (a.set & LEASE_DO_READ)
			read_done(s, sight);
		else
			tick(s += 0.1);
	return s;
}

/* A store that can be read, and fails at every write for a while without doing it. */
static void doubt_rules(void)
{
	struct lease_times shorter;

	lead();
	uint64_t first = writes, before;
	doubt(0.1, 9, ours(first));
	ok(writes > first + LEASE_LIMBO + 2 && lease_is_leading(l, at(9)),
	   "however many renewals have come to nothing, the next is tried");
	double s = next_write(9, ours(first));
	write_done(s, OUTCOME_OK, s);
	is_int((lease_end(l).boot - at(s).boot) / SEC, 10, "and counts");

	begin(false);
	read_done(0, absent);
	doubt(0.1, 60, absent);
	s = next_write(60, absent);
	write_done(s, OUTCOME_OK, s);
	ok(a.set & LEASE_DO_START, "nor does a standby give up for good: it leads when a write works");

	lead();
	shorter = times;
	shorter.lease = 12 * SEC;
	shorter.renew = 8 * SEC;
	lease_configure(l, &shorter);
	before = writes;
	doubt(0.1, 7, ours(writes));
	ok(writes == before + LEASE_LIMBO,
	   "a write of a shorter duration that bounds the term is not forgotten: without room nothing more is written");
	ok(lease_end(l).boot < at(8 + 2.5).boot, "and it bounds the term");
}

/* A change that is noticed while a look is under way may be newer than what the look shows. */
static void change_rules(void)
{
	begin(false);
	step(0.1, (struct lease_event){ .kind = LEASE_EV_CHANGED });
	read_done(0.2, held(10, 15 * SEC));
	ok(a.set & LEASE_DO_READ, "a look during which something changed is followed by another, at once");
	read_done(0.3, held(10, 15 * SEC));
	ok(!(a.set & LEASE_DO_READ) && lease_wait(l, at(0.3)) > 14 * SEC, "by one");

	begin(false);
	step(0.1, (struct lease_event){ .kind = LEASE_EV_CHANGED });
	read_done(0.2, (struct lease_sight){ .kind = SIGHT_RELEASED, .id = 3 });
	ok((a.set & LEASE_DO_WRITE) && !(a.set & LEASE_DO_READ),
	   "but if it shows that the lock is free, the try comes first");

	lead();
	step(1, (struct lease_event){ .kind = LEASE_EV_CHANGED });
	ok(a.set & LEASE_DO_READ, "a leader looks too");
	step(1.1, (struct lease_event){ .kind = LEASE_EV_CHANGED });
	read_done(1.2, ours(writes));
	ok(a.set & LEASE_DO_READ, "and again, if something changed meanwhile");
}

/* Our incarnation in the record, by this write, the count-th of it. */
static struct lease_sight copy(uint64_t write, uint64_t count)
{
	struct lease_sight s = ours(write);

	s.count = count;
	return s;
}

/* The machine was cloned while this process ran: both copies have one incarnation. */
static void copy_rules(void)
{
	const unsigned twin = LEASE_DO_TWIN | LEASE_DO_STOP;

	lead();
	tick(2);
	write_done(2.1, OUTCOME_CONFLICT, 2);
	read_done(2.2, copy(1000, lease_next_count(l) - 1));
	ok((a.set & twin) == twin && !a.held && a.reason == LEASE_STOLEN,
	   "a write that is not ours under our incarnation, no older than our last: a copy of "
	   "this process leads, and our term ends in the same step");
	step(2.5, (struct lease_event){ .kind = LEASE_EV_STOPPED, .reaped = true });
	struct lease_sight its = copy(1000, lease_next_count(l) - 1);
	its.mine = false; /* since we have another incarnation now */
	while (!(a.set & LEASE_DO_READ))
		tick(2.6);
	read_done(2.6, its);
	ok(!(a.set & LEASE_DO_WRITE) && lease_wait(l, at(2.6)) > 10 * SEC,
	   "whose lease is waited out like any other's, from the first sight of it");

	lead();
	tick(2);
	write_done(2.1, OUTCOME_CONFLICT, 2);
	read_done(2.2, copy(1000, lease_next_count(l) + 2));
	ok((a.set & twin) == twin, "nor is one that counts more");
	lead();
	tick(2);
	write_done(2.1, OUTCOME_UNKNOWN, 2);
	read_done(2.2, copy(writes, lease_next_count(l) - 1));
	ok(!(a.set & twin), "our last write, unanswered, is ours");
	lead();
	uint64_t first = writes;
	tick(2);
	write_done(2, OUTCOME_OK, 2);
	tick(4);
	write_done(4.1, OUTCOME_CONFLICT, 4);
	read_done(4.2, copy(first, 1));
	ok(!(a.set & twin) && (a.set & LEASE_DO_WRITE),
	   "an older one of ours is: the store fell back to it, and the term goes on with the next renewal");
	lead();
	tick(2);
	write_done(2.1, OUTCOME_CONFLICT, 2);
	read_done(2.2, ours(1000));
	ok(!(a.set & twin), "a record that does not count its writes was edited by hand, as before");

	begin(false);
	read_done(1, copy(1000, 1));
	ok((a.set & LEASE_DO_TWIN) && !(a.set & LEASE_DO_WRITE),
	   "a copy of a standby that leads is met by the standby, which waits");
	is_int(lease_next_count(l), 1, "whose next write is its first");
}

/* Another run of this identity, or another candidate that was given it too. */
static void namesake_rules(void)
{
	struct lease_sight its = held(10, 15 * SEC);

	its.namesake = true;
	its.write = 500;
	begin(false);
	read_done(1, its);
	ok(!(a.set & LEASE_DO_NAMESAKE),
	   "the first record of our identity that is seen may be by an earlier run of ours");
	its.id = 11;
	its.write = 501;
	while (!(a.set & LEASE_DO_READ))
		step(2, (struct lease_event){ .kind = LEASE_EV_CHANGED });
	read_done(2, its);
	ok(a.set & LEASE_DO_NAMESAKE, "that it is renewed tells that two candidates have one identity");
	its.id = 12;
	while (!(a.set & LEASE_DO_READ))
		step(3, (struct lease_event){ .kind = LEASE_EV_CHANGED });
	read_done(3, its);
	ok(!(a.set & LEASE_DO_NAMESAKE), "a person who edits it is no candidate");
}

/* The store counts tokens, and has lost some. */
static void token_rules(void)
{
	begin(false);
	read_done(0, absent);
	struct lease_sight low = ours(writes);
	low.low_token = true;
	step(0.1,
	     (struct lease_event){
		     .kind = LEASE_EV_WRITE_DONE, .op = op, .outcome = OUTCOME_OK, .sent_at = at(0), .sight = low });
	ok(!(a.set & LEASE_DO_START) && (a.set & LEASE_DO_WRITE) && a.write == LEASE_RELEASE,
	   "a term whose token is not above those seen is not led but let go");
	step(0.2, (struct lease_event){ .kind = LEASE_EV_WRITE_DONE,
	                                .op = op,
	                                .outcome = OUTCOME_OK,
	                                .sent_at = at(0.1),
	                                .sight = { .kind = SIGHT_RELEASED, .id = 3 } });
	if (a.set & LEASE_DO_READ)
		read_done(0.2, (struct lease_sight){ .kind = SIGHT_RELEASED, .id = 3 });
	ok(!(a.set & LEASE_DO_WRITE), "and tried again");
	tick(0.2 + 2);
	ok((a.set & LEASE_DO_WRITE) && a.write == LEASE_ACQUIRE, "after P");
	write_done(2.3, OUTCOME_OK, 2.2);
	ok(a.set & LEASE_DO_START, "until the store counts higher");
}

/* The store was restored from a copy, or is another one: the record says where it was written. */
static void moved_rules(void)
{
	struct lease_sight moved = released(7, true);

	moved.elsewhere = true;
	moved.duration = SEC;
	begin(false);
	read_done(1, moved);
	tick(15.9);
	ok(!(a.set & LEASE_DO_WRITE), "a released record that was written in another store is waited out");
	tick(16.1);
	ok(acquires(), "for a lease, and nobody goes first by what it says");
	begin(false);
	moved = held(10, 20 * SEC);
	moved.elsewhere = moved.reclaim = true;
	read_done(1, moved);
	step(2, (struct lease_event){ .kind = LEASE_EV_HOLDER_DEAD, .id = 10 });
	struct lease_standing stands;
	lease_stands(l, at(2), &stands);
	is_int(stands.wait_left / SEC, 19, "its holder's death, or who may reclaim it, shortens nothing");
	lead();
	moved = ours(writes);
	moved.elsewhere = true;
	tick(2);
	write_done(2.1, OUTCOME_CONFLICT, 2);
	read_done(2.2, moved);
	ok((a.set & LEASE_DO_STOP) && a.reason == LEASE_STOLEN, "a record of our own that is there leads nobody on");
}

/* Found by the model (tests/model): a person deletes the record between a conflict and the read that follows. */
static void met_rules(void)
{
	begin(false);
	read_done(0, absent);
	write_done(1, OUTCOME_CONFLICT, 0);
	read_done(1, absent);
	ok(!(a.set & LEASE_DO_WRITE), "a create that conflicted has met a record, so its absence is not taken at once");
	tick(15.9);
	ok(!(a.set & LEASE_DO_WRITE), "it is waited out from the read that showed it");
	tick(16);
	ok(a.set & LEASE_DO_WRITE, "and then taken");

	begin(false);
	read_done(0, absent);
	uint64_t first = writes;
	write_done(1, OUTCOME_UNKNOWN, 0);
	read_done(1, absent);
	ok(a.set & LEASE_DO_WRITE, "a create of unknown outcome that is not there is sent again");
	write_done(2, OUTCOME_CONFLICT, 1);
	read_done(2, ours(first));
	ok(!(a.set & (LEASE_DO_START | LEASE_DO_WRITE)),
	   "the first of two creates, applied after the second conflicted, is waited out like a stranger's");

	begin(false);
	read_done(0, absent);
	write_done(1, OUTCOME_CONFLICT, 0);
	read_done(1, ours(writes));
	ok(a.set & LEASE_DO_START, "a create that conflicted with itself, delivered twice, leads");
}

/* It resigned before its first renewal, so its create is its last known write. The release's answer was lost. */
static uint64_t release_into_doubt(enum lease_reason reason)
{
	lead();
	uint64_t create = writes;
	step(0.2, (struct lease_event){ .kind = LEASE_EV_END, .reason = reason });
	step(0.3, (struct lease_event){ .kind = LEASE_EV_STOPPED, .reaped = true });
	write_done(0.4, OUTCOME_UNKNOWN, 0.3);
	return create;
}

/* The same write, as it is in the store once more: in another version, which a person's deletion made possible. */
static struct lease_sight again(uint64_t write)
{
	struct lease_sight s = ours(write);

	s.id += 1000000;
	return s;
}

/* A create of ours reaches the store a second time, once a person has deleted the record of somebody who leads. */
static void twice_rules(void)
{
	uint64_t create = release_into_doubt(LEASE_RESIGNED);
	read_done(0.5, held(10, 15 * SEC));
	ok(lease_phase(l) == PHASE_FOLLOWING, "who reads that another one leads has released");
	see(1, again(create));
	ok(!(a.set & (LEASE_DO_START | LEASE_DO_WRITE)) && lease_wait(l, at(1)) > 14 * SEC,
	   "its create that lands again then is waited out like a stranger's");
	release_into_doubt(LEASE_RESIGNED);
	read_done(0.5, absent);
	see(1, again(writes - 1));
	ok(!(a.set & LEASE_DO_WRITE), "so it is where only the absence was seen");

	static const enum lease_reason reasons[] = { LEASE_RESIGNED, LEASE_RELOAD };
	for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
		create = release_into_doubt(reasons[i]);
		ok(lease_phase(l) == (i ? PHASE_NEXT : PHASE_RELEASING) && (a.set & LEASE_DO_READ), "%s",
		   i ? "the next term is in doubt" : "a release is in doubt");
		read_done(0.5, again(create));
		ok(lease_phase(l) == PHASE_FOLLOWING && !(a.set & LEASE_DO_WRITE),
		   "and the record is by an early write, which may have replaced another's: it is left to expire");
		create = release_into_doubt(reasons[i]);
		read_done(0.5, ours(create));
		ok((a.set & LEASE_DO_WRITE) && a.write == (i ? LEASE_NEXT_TERM : LEASE_RELEASE),
		   "if nothing has changed, it is tried again");
	}
}

static struct lease_sight counted(uint64_t id, uint64_t who, uint64_t term, uint64_t count)
{
	struct lease_sight s = held(id, 15 * SEC);

	s.who = who;
	s.term = term;
	s.count = count;
	return s;
}

static void dies(double s, uint64_t id)
{
	step(s, (struct lease_event){ .kind = LEASE_EV_HOLDER_DEAD, .id = id });
}

/* A person deletes the record of a leader, who may be in its term for a lease more. What lands there then is a create
 * of before. */
static void gone_rules(void)
{
	struct lease_sight mine = counted(30, 9, 6, 1);

	begin(false);
	read_done(1, counted(10, 1, 5, 8));
	see(2, absent);
	see(3, counted(20, 2, 1, 1));
	dies(4, 20);
	ok(!(a.set & LEASE_DO_WRITE), "no proof of death ends the wait for a record that is gone");
	is_int(lease_wait(l, at(4)) / SEC, 13, "which lasts as long as if nothing had come after it");
	see(5, released(21, false));
	ok(!(a.set & LEASE_DO_WRITE), "nor does a release of what has come since");
	mine.reclaim = true;
	see(6, mine);
	ok(!(a.set & LEASE_DO_WRITE), "nor that this one may reclaim it");
	tick(16.9);
	ok(!(a.set & LEASE_DO_WRITE), "not a moment sooner");
	tick(17.001);
	ok(acquires(), "then it tries");

	const struct {
		struct lease_sight before, after;
		bool waits;
		const char *says;
	} cases[] = {
		{ counted(10, 1, 5, 8), counted(20, 2, 4, 9), true, "a smaller term, with no absence seen between" },
		{ counted(10, 1, 5, 8), counted(20, 2, 5, 9), true, "another holder in the same term" },
		{ counted(10, 1, 5, 8), counted(20, 1, 5, 7), true, "an earlier write of the same holder" },
		{ counted(10, 1, 5, 8), counted(20, 1, 5, 8), true, "the same write again, with another token" },
		{ counted(10, 1, 5, 8), counted(20, 1, 5, 9), false, "the holder's next write" },
		{ counted(10, 1, 5, 8), counted(20, 2, 6, 1), false, "a larger term" },
		{ counted(10, 1, 5, 8), counted(20, 2, 4, 0), false, "a record that does not count its writes" },
		{ counted(10, 1, 5, 0), counted(20, 2, 4, 9), false, "one after such a record" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		begin(false);
		read_done(1, cases[i].before);
		see(2, cases[i].after);
		dies(3, 20);
		ok(acquires() == !cases[i].waits, "%s: %s", cases[i].says,
		   cases[i].waits ? "the last record is gone, and is waited out" : "follows upon the last record");
	}
	begin(false);
	struct lease_sight end = released(10, false), again = counted(20, 2, 5, 1);
	end.count = 9;
	read_done(1, counted(9, 1, 5, 8));
	see(1, end);
	ok(acquires(), "a release is of the term that it ends");
	write_done(1.1, OUTCOME_CONFLICT, 1);
	read_done(1.2, again);
	dies(1.3, 20);
	ok(!(a.set & LEASE_DO_WRITE), "whoever is in that term after it was there before");
	begin(false);
	read_done(0, absent);
	write_done(0.1, OUTCOME_CONFLICT, 0);
	read_done(0.2, counted(10, 1, 1, 1));
	end = released(11, false);
	end.term = 1;
	end.count = 2;
	see(0.3, end);
	ok(acquires(), "who has seen no record go takes a release at once, also just after the first start");
}

#define NOTES(name, text)                                          \
	static void name(void *arg, const struct lease_actions *x) \
	{                                                          \
		(void)x;                                           \
		strcat(arg, text " ");                             \
	}
NOTES(twin, "twin")
NOTES(saved, "saved")
NOTES(unsaved, "unsaved")
NOTES(stop, "stop")
NOTES(start, "start")
NOTES(deadline, "deadline")
NOTES(ask, "ask")
NOTES(read_it, "read")
NOTES(write_it, "write")
NOTES(leader, "leader")
NOTES(no_leader, "no_leader")
NOTES(finished, "finished")

static void carry_out_rules(void)
{
	const struct lease_effects effects = { .twin = twin,
		                               .saved = saved,
		                               .unsaved = unsaved,
		                               .stop = stop,
		                               .start = start,
		                               .deadline = deadline,
		                               .ask = ask,
		                               .read = read_it,
		                               .write = write_it,
		                               .leader = leader,
		                               .no_leader = no_leader,
		                               .finished = finished };
	char did[200] = "";

	a.set = LEASE_DO_LEADER | LEASE_DO_WRITE | LEASE_DO_DEADLINE | LEASE_DO_START;
	lease_carry_out(&a, &effects, did);
	is_str(did, "start deadline write leader ", "the worker's hook comes first, then the store, then it is said");
	*did = '\0';
	a.set = ~0u;
	lease_carry_out(&a, &effects, did);
	is_str(did, "twin saved unsaved stop start deadline ask read write leader no_leader finished ",
	       "all actions are carried out in one order, but those that are nothing to the caller");
}

int main(void)
{
	l = calloc(1, lease_size());
	if (!l)
		return 1;
	times_rules();
	change_rules();
	copy_rules();
	namesake_rules();
	token_rules();
	moved_rules();
	standby_rules();
	met_rules();
	twice_rules();
	gone_rules();
	hold_back_rules();
	leader_rules();
	refusal_rules();
	end_rules();
	save_rules();
	doubt_rules();
	polling_rules();
	soon_rules();
	carry_out_rules();
	free(l);
	return tap_done();
}
