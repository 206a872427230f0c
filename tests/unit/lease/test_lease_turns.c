/* The rules of a lease for what comes out of turn: before the campaign, after the end, twice, too late, or while
 * something else is under way. test_lease.c has the rules of time. */
#include "lease_steps.h"
#include "tap.h"

#include <stdlib.h>

static struct lease_standing standing(double s)
{
	struct lease_standing out;

	lease_stands(l, at(s), &out);
	return out;
}

static void end(double s, enum lease_reason reason, nsec sit_out)
{
	step(s, (struct lease_event){ .kind = LEASE_EV_END, .reason = reason, .sit_out = sit_out });
}

static void stopped(double s, bool reaped)
{
	step(s, (struct lease_event){ .kind = LEASE_EV_STOPPED, .reaped = reaped });
}

static void changed(double s)
{
	step(s, (struct lease_event){ .kind = LEASE_EV_CHANGED });
}

static void campaign(double s)
{
	step(s, (struct lease_event){ .kind = LEASE_EV_CAMPAIGN });
}

static void refuse(double s)
{
	step(s,
	     (struct lease_event){ .kind = LEASE_EV_READ_DONE, .op = op, .outcome = OUTCOME_FAILED, .refused = true });
}

static bool writes_what(enum lease_write what)
{
	return (a.set & LEASE_DO_WRITE) && a.write == what;
}

static void times_rules(void)
{
	static const size_t places[] = { offsetof(struct lease_times, lease), offsetof(struct lease_times, renew),
		                         offsetof(struct lease_times, retry), offsetof(struct lease_times, grace),
		                         offsetof(struct lease_times, kill),  offsetof(struct lease_times, drift) };
	static const char *const names[] = { "lease duration", "renew deadline", "retry period",
		                             "stop grace",     "kill allowance", "drift allowance" };
	struct err err;
	struct lease_times t = { 0 };

	is_str(lease_reason_name(LEASE_DONE), "done", "each reason has its word");
	is_str(lease_reason_name((enum lease_reason)LEASE_REASONS), "unknown", "a number that is none has another");
	lease_times_default(&t);
	is_int(lease_times_check(&t, &err), 0, "the presets are fit");
	ok(lease_drift_tolerance(&t) > 0.0714 && lease_drift_tolerance(&t) < 0.0715,
	   "for clocks whose rates differ by 1 s in 14 s");
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		struct lease_times bad = t;
		*(nsec *)((char *)&bad + places[i]) = -1;
		ok(lease_times_check(&bad, &err) < 0 && strstr(err.text, names[i]),
		   "a %s below zero is refused by name", names[i]);
		if (i == 0)
			continue;
		bad = t;
		*(nsec *)((char *)&bad + places[i]) = INT64_MAX;
		ok(lease_times_check(&bad, &err) < 0, "a %s so long that no sum with it can be counted is refused",
		   names[i]);
	}
	t = (struct lease_times){ .lease = 300 * NSEC_PER_MS };
	lease_times_default(&t);
	ok(t.renew == 200 * NSEC_PER_MS && t.retry == 40 * NSEC_PER_MS && t.kill == 20 * NSEC_PER_MS &&
	           lease_times_check(&t, &err) == 0,
	   "the times of a short lease follow from it, too");
	t = (struct lease_times){ .lease = 100 * NSEC_PER_MS };
	lease_times_default(&t);
	ok(t.renew % NSEC_PER_MS && t.renew > 66 * NSEC_PER_MS,
	   "and what is below 100 ms is not rounded to whole milliseconds");
	t = (struct lease_times){ .grace = SEC, .kill = 2 * SEC, .drift = 2 * SEC };
	lease_times_default(&t);
	ok(t.grace == SEC && t.kill == 2 * SEC && t.drift == 2 * SEC, "what is given stands");
	begin(false);
	struct lease_times other = t;
	lease_configure(l, &other);
	is_int(lease_publishes(l)->kill, 2 * SEC, "and is what the next write publishes");
}

static void before_rules(void)
{
	times = (struct lease_times){ 0 };
	lease_times_default(&times);
	lease_init(l, &times, false, false, 0);
	tick(5);
	ok(a.set == 0 && lease_wait(l, at(5)) == NSEC_NEVER, "nothing happens before the campaign begins");
	step(5, (struct lease_event){ .kind = LEASE_EV_HOLDER_DEAD, .id = 0 });
	ok(!standing(5).dead, "nor has anybody died whose record was not read");
	campaign(6);
	ok((a.set & LEASE_DO_READ) && !standing(6).looked && standing(6).seen_for == 0 &&
	           standing(6).wait_left == NSEC_NEVER,
	   "until the first look nothing is known, nor how long to wait");
	read_done(7, held(10, 3 * SEC));
	ok(standing(8).looked && standing(8).seen_for == SEC && standing(8).wait_left == 2 * SEC &&
	           standing(8).seen == SIGHT_HELD,
	   "then who holds it, for how long that is known, and how long to wait");
	nsec first = lease_wait(l, at(7));
	ok(first >= times.retry, "a machine without a seed polls as others do");
	step(8, (struct lease_event){ .kind = LEASE_EV_HOLDER_DEAD, .id = 10 });
	ok(standing(8).dead && standing(8).wait_left == 0, "a proved death is known");

	begin(false);
	read_done(1, held(10, 3 * SEC));
	step(1.5, (struct lease_event){ .kind = LEASE_EV_HOLDER_DEAD, .id = 10 });
	ok(acquires(), "and ends the wait");
	write_done(1.6, OUTCOME_CONFLICT, 1.5);
	read_done(1.7, held(20, 3 * SEC));
	ok(!(a.set & LEASE_DO_WRITE) && !standing(1.7).dead && standing(1.7).wait_left == 3 * SEC,
	   "but who acquired the lock meanwhile is another holder, whose lease is waited out");

	begin(false);
	read_done(1, (struct lease_sight){ .kind = SIGHT_RELEASED, .id = 3, .other_first = true });
	step(1.1, (struct lease_event){ .kind = LEASE_EV_HOLDER_DEAD, .id = 3 });
	ok(!standing(1.1).dead && !(a.set & LEASE_DO_WRITE), "who released has no death that could be proved");
}

static void pause_rules(void)
{
	begin(false);
	read_done(0, held(10, 3 * SEC));
	step(1, (struct lease_event){ .kind = LEASE_EV_PAUSE });
	tick(3.5);
	ok(!(a.set & LEASE_DO_WRITE) && standing(3.5).paused, "who is paused does not acquire what is free");
	ok(lease_wait(l, at(3.5)) > 0, "nor does it wake up for that");
	campaign(4);
	ok((a.set & LEASE_DO_READ) && !standing(4).paused, "it looks when it goes on");
	read_done(4, held(10, 3 * SEC));
	ok(acquires(), "and acquires");

	begin(false);
	read_done(0, absent);
	ok(acquires(), "a write is under way");
	step(0.1, (struct lease_event){ .kind = LEASE_EV_PAUSE });
	write_done(0.2, OUTCOME_OK, 0);
	ok(!(a.set & LEASE_DO_START) && writes_what(LEASE_RELEASE),
	   "what it acquires after it was paused is released, and nothing runs");

	lead();
	step(1, (struct lease_event){ .kind = LEASE_EV_PAUSE });
	tick(2);
	ok(!(a.set & LEASE_DO_STOP) && writes_what(LEASE_RENEW), "a term that runs goes on, paused or not");
	campaign(2.1);
	write_done(2.2, OUTCOME_OK, 2);
	campaign(2.3);
	ok(!(a.set & (LEASE_DO_READ | LEASE_DO_START)) && lease_is_leading(l, at(2.3)),
	   "and to campaign while leading begins nothing anew");
}

static void observer_rules(void)
{
	times = (struct lease_times){ 0 };
	lease_times_default(&times);
	lease_init(l, &times, true, false, 7);
	campaign(0);
	ok(a.set & LEASE_DO_READ, "an observer looks");
	read_done(0, absent);
	ok(!(a.set & LEASE_DO_WRITE), "and leaves what is free");
	see(1, held(10, 3 * SEC));
	ok((a.set & LEASE_DO_LEADER) && !a.self, "it reports who leads");
	tick(4.5);
	ok((a.set & LEASE_DO_NO_LEADER) && !(a.set & LEASE_DO_WRITE), "and that nobody does any more, and no more");
	campaign(5);
	if (a.set & LEASE_DO_READ)
		read_done(5, (struct lease_sight){ .kind = SIGHT_RELEASED, .id = 12 });
	ok(lease_phase(l) == PHASE_IDLE && !(a.set & LEASE_DO_WRITE), "to campaign makes it no candidate");
	ok(!(a.set & LEASE_DO_NO_LEADER), "that nobody leads is reported once");
}

static void unreaped_rules(void)
{
	lead();
	uint64_t last = writes;
	end(1, LEASE_RESIGNED, 0);
	stopped(1.5, false);
	ok(!(a.set & LEASE_DO_WRITE) && standing(1.5).unreaped,
	   "while something of the term lives, its lease is not released");
	if (a.set & LEASE_DO_READ)
		read_done(1.6, ours(last));
	tick(30);
	if (a.set & LEASE_DO_READ)
		read_done(30, ours(last));
	ok(!(a.set & LEASE_DO_WRITE), "nor is another term begun, however old the record is");
	stopped(31, true);
	ok(acquires(), "until that has died");

	begin(false);
	read_done(0, absent);
	stopped(0.1, false); /* of what an earlier term had left */
	write_done(0.2, OUTCOME_OK, 0);
	ok(!(a.set & (LEASE_DO_START | LEASE_DO_WRITE)),
	   "nor does a term begin that was acquired when that was found; its lease is left to expire");
	tick(1);
	ok(!(a.set & LEASE_DO_WRITE) && !lease_is_leading(l, at(1)), "and it is not renewed");
}

static void end_rules(void)
{
	lead();
	end(1, LEASE_RELOAD, 20 * SEC);
	stopped(1.2, true);
	ok(writes_what(LEASE_RELEASE), "a reload after which it is to sit out releases");

	lead();
	end(1, LEASE_RELOAD, 0);
	stopped(1.1, true);
	ok(writes_what(LEASE_NEXT_TERM), "a reload begins the next term at once");
	end(1.2, LEASE_RELOAD, 0);
	write_done(1.3, OUTCOME_OK, 1.1);
	ok((a.set & LEASE_DO_START) && !(a.set & LEASE_DO_STOP),
	   "another reload before that has begun is served by it");
	end(2, LEASE_RELOAD, 0);
	stopped(2.1, true);
	end(2.2, LEASE_RESIGNED, 20 * SEC);
	write_done(2.3, OUTCOME_OK, 2.1);
	ok(!(a.set & LEASE_DO_START) && writes_what(LEASE_RELEASE),
	   "but who resigns before it has begun begins no term: the lease is released");

	lead();
	end(1, LEASE_RELOAD, 0);
	end(1.1, LEASE_SHUTDOWN, NSEC_NEVER);
	end(1.2, LEASE_RELOAD, 0);
	stopped(1.3, true);
	ok(writes_what(LEASE_RELEASE), "no reload takes a shutdown back");
	step(1.4, (struct lease_event){ .kind = LEASE_EV_WRITE_DONE,
	                                .op = op,
	                                .outcome = OUTCOME_OK,
	                                .sent_at = at(1.3),
	                                .sight = released(writes, false) });
	ok((a.set & LEASE_DO_FINISHED) && !a.left, "which is over when the lease is released");
	is_int(standing(1.4).out_left, NSEC_NEVER, "nothing is acquired from then on");
	ok(lease_wait(l, at(2)) == NSEC_NEVER, "nor looked at");
	campaign(3);
	changed(3);
	end(3, LEASE_RESIGNED, 0);
	tick(1000);
	ok(a.set == 0, "whatever it is asked for then");

	lead();
	lease_keeps(l, true);
	end(1, LEASE_SHUTDOWN, NSEC_NEVER);
	stopped(1.2, true);
	ok(!(a.set & LEASE_DO_WRITE) && (a.set & LEASE_DO_FINISHED) && a.left,
	   "who is to keep the lease leaves it to expire, and says so");
	lease_keeps(l, false);

	const struct lease_sight gone[] = { absent, held(20, 3 * SEC) };
	for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) {
		lead();
		end(1, LEASE_SHUTDOWN, NSEC_NEVER);
		see(1.1, gone[i]);
		ok((a.set & LEASE_DO_STOP) && !a.held, "while it stops, the record turns out not to be its own");
		stopped(1.2, true);
		ok(!(a.set & LEASE_DO_WRITE) && (a.set & LEASE_DO_FINISHED) && !a.left,
		   "then nothing is written, and nothing was left");
	}
	lead();
	end(1, LEASE_SHUTDOWN, NSEC_NEVER);
	tick(10.1);
	stopped(10.2, true);
	ok(!(a.set & LEASE_DO_WRITE), "where R passed while it stopped it does not know whose the record is");
	if (a.set & LEASE_DO_READ)
		read_done(10.3, ours(writes));
	ok(writes_what(LEASE_RELEASE), "but looks, and releases what is still its own");

	lead();
	end(1, LEASE_RESIGNED, 0);
	stopped(1.1, true);
	uint64_t release = writes;
	write_done(1.2, OUTCOME_UNKNOWN, 1.1);
	ok((a.set & LEASE_DO_READ), "a release of unknown outcome is looked for");
	double s = 1.3;
	for (; lease_phase(l) == PHASE_RELEASING && s < 60; s += 0.5) {
		if (a.set & LEASE_DO_READ)
			step(s,
			     (struct lease_event){ .kind = LEASE_EV_READ_DONE, .op = op, .outcome = OUTCOME_FAILED });
		else
			tick(s);
	}
	ok(lease_phase(l) == PHASE_FOLLOWING && s > 11 && s < 14, "for R, then it is a standby again");
	for (int i = 0; i < 100 && !(a.set & LEASE_DO_READ); i++)
		tick(s += 0.1);
	struct lease_sight free_again = released(release, false);
	free_again.write = release;
	read_done(s, free_again);
	ok(lease_phase(l) == PHASE_FOLLOWING && acquires(),
	   "which finds its late release like any other one, and may acquire");
}

static void look_rules(void)
{
	nsec first, later;

	begin(false);
	lease_watching(l, false);
	refuse(0);
	first = lease_wait(l, at(0));
	changed(0.1);
	ok(a.set & LEASE_DO_READ, "after one refusal a notice of a change is looked after at once");
	for (int i = 0; i < 3; i++) {
		refuse(100 * i + 1);
		later = lease_wait(l, at(100 * i + 1));
		changed(100 * i + 1.1);
		if (a.set & LEASE_DO_READ)
			ok(0, "after more refusals it is not");
		tick(100 * i + 90);
	}
	ok(later > first, "while it is refused, it looks more and more rarely, whatever the notices say");
	read_done(300, held(10, 1000 * SEC));
	changed(301);
	refuse(301);
	ok(lease_wait(l, at(301)) <= first * 3, "a look that succeeds makes it forget the refusals");

	lead();
	lease_watching(l, true);
	struct lease_sight edited = ours(1000);
	see(0.5, edited);
	ok(writes_what(LEASE_RENEW), "over what a person edits its own values are written at once");
	for (int i = 1; i <= 2; i++) {
		write_done(i, OUTCOME_UNKNOWN, i - 0.1);
		ok(a.set & LEASE_DO_READ, "if it is unknown whether they are, it looks,");
		read_done(i + 0.1, edited);
		ok(i == 1 ? writes_what(LEASE_RENEW)
		          : !(a.set & LEASE_DO_WRITE) && lease_wait(l, at(i + 0.1)) <= times.retry / 2,
		   i == 1 ? "and writes again" : "and after the second time waits for half of P");
	}
	tick(2 + 1.1);
	ok(writes_what(LEASE_RENEW), "then it tries again");
}

static void hold_back_rules(void)
{
	struct lease_sight sight = held(10, 30 * SEC);

	begin(false);
	sight.other_first = sight.reclaim = true;
	read_done(1, sight);
	ok(acquires(), "what an identity reclaims for itself is for nobody else first");
	begin(false);
	sight = held(10, 3 * SEC);
	sight.kind = SIGHT_EMPTIED;
	sight.other_first = true;
	read_done(1, sight);
	tick(4);
	ok(acquires(), "nor is a record that a person emptied, when its time is over");
}

static void save_rules(void)
{
	lead();
	step(0.1, (struct lease_event){ .kind = LEASE_EV_SAVE, .save = 2 });
	ok((a.set & LEASE_DO_WRITE) && a.saves, "a save is written");
	step(0.2, (struct lease_event){ .kind = LEASE_EV_SAVE, .save = 1 });
	write_done(0.3, OUTCOME_OK, 0.1);
	ok((a.set & LEASE_DO_SAVED) && a.saved == 2, "and answered, also if an older one is wanted again meanwhile");
	write_done(0.4, OUTCOME_OK, 0.3);
	ok(!(a.set & (LEASE_DO_SAVED | LEASE_DO_UNSAVED)), "which is not answered a second time");
	end(0.5, LEASE_RESIGNED, 0);
	stopped(0.6, true);
	ok(!(a.set & LEASE_DO_UNSAVED), "nor is anything unsaved when the term ends");
}

int main(void)
{
	l = calloc(1, lease_size());
	if (!l)
		return 1;
	times_rules();
	before_rules();
	pause_rules();
	observer_rules();
	unreaped_rules();
	end_rules();
	look_rules();
	hold_back_rules();
	save_rules();
	free(l);
	return tap_done();
}
