/* Who comes next, one sentence each, on simulated time against next_step alone; and what records show it. */
#include "lease/next.h"

#include "base/mem.h"
#include "lease/next_record.h"
#include "tap.h"

#include <stdlib.h>

#define SEC NSEC_PER_SEC
#define UUID "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
#define OTHER_UUID "7d444840-9dc0-11d1-b245-5ffdce74fad2"

static struct next_machine s;
static struct next_actions a;
static struct next_setup options;
static uint64_t writes = 1000; /* the name of our last write */

static struct instant at(double t)
{
	return (struct instant){ (nsec)((t + 1000) * (double)SEC), (nsec)((t + 1000) * (double)SEC) };
}

static struct instant now_is; /* of the last step */

static void step(double t, struct next_event e)
{
	now_is = at(t);
	a = next_step(&s, &e, at(t));
}

static void tick(double t)
{
	step(t, (struct next_event){ .kind = NEXT_EV_TICK });
}

/* It renews its lease, or sees that another does. */
static void awake(double t)
{
	step(t, (struct next_event){ .kind = NEXT_EV_AWAKE });
}

static bool reads(void)
{
	return a.set & NEXT_DO_READ;
}

static bool writes_n(void)
{
	return (a.set & NEXT_DO_WRITE) && !a.nobody && !a.as_is;
}

static bool touches(void)
{
	return (a.set & NEXT_DO_WRITE) && a.as_is;
}

static bool empties(void)
{
	return (a.set & NEXT_DO_WRITE) && a.nobody;
}

static void read_done(double t, struct next_sight sight)
{
	step(t, (struct next_event){ .kind = NEXT_EV_READ_DONE, .op = s.op, .outcome = OUTCOME_OK, .sight = sight });
}

/* Candidates: 1 is this one, 2, 3 ... others. Priority 0 unless it is changed. */
static struct next_sight nominee(uint64_t who, uint64_t write)
{
	return (struct next_sight){
		.kind = NEXT_SOMEBODY, .who = who, .identity = who, .write = write, .mine = who == 1
	};
}

static const struct next_sight absent = { .kind = NEXT_ABSENT };

static void write_ends(double t, enum lease_outcome outcome)
{
	struct next_sight sight = nominee(1, ++writes);

	if (s.naming)
		sight.answers = s.saying;
	else
		sight = s.seen.kind == NEXT_SOMEBODY && !s.seen.mine
		                ? s.seen
		                : (struct next_sight){ .kind = NEXT_NOBODY, .write = writes };
	step(t, (struct next_event){
			.kind = NEXT_EV_WRITE_DONE, .op = s.op, .outcome = outcome, .sent_at = at(t), .sight = sight });
}

static void news(double t, struct next_news n)
{
	step(t, (struct next_event){ .kind = NEXT_EV_NEWS, .news = n });
}

static struct next_news led_by(uint64_t holder, uint64_t next)
{
	return (struct next_news){ .held = true, .holder = holder, .term = holder, .next = next };
}

static void role(double t, enum next_role r, uint64_t term)
{
	step(t, (struct next_event){ .kind = NEXT_EV_ROLE, .role = r, .term = term });
}

static void ready(double t, bool is, int64_t priority)
{
	step(t, (struct next_event){ .kind = NEXT_EV_READY, .ready = is, .priority = priority });
}

static void begin(int64_t priority)
{
	options = (struct next_setup){
		.lease = 15 * SEC, .renew = 10 * SEC, .retry = 2 * SEC, .next.preempt_after = 30 * SEC
	};
	next_init(&s, &options, 7);
	role(0, NEXT_STANDBY, 0);
	ready(0, true, priority);
}

/* Led by 9, which publishes nobody; this one has looked at N in order to take it. */
static void looks(int64_t priority)
{
	begin(priority);
	news(0, led_by(9, 0));
	tick(5);
}

static void become_next(void)
{
	looks(0);
	read_done(5, absent);
	write_ends(5, OUTCOME_OK);
}

/* Leads, and N was absent when its term began. */
static void lead(bool preempt, int64_t priority)
{
	begin(priority);
	options.next.preempt = preempt;
	next_configure(&s, &options);
	role(0, NEXT_LEADER, 5);
	read_done(0, absent);
}

static uint64_t published(double t)
{
	const struct next_sight *n = next_published(&s, at(t));

	return n ? n->who : 0;
}

static void taking_rules(void)
{
	begin(0);
	news(0, led_by(9, 0));
	ok(!a.set && next_wait(&s, at(0)) <= 5 * SEC, "who sees that nobody comes next waits for up to R/2");
	tick(5);
	ok(reads(), "then looks at N");
	read_done(5, absent);
	ok(writes_n(), "and takes it, if nobody has");
	ok(!s.is_next, "but is not next before that is known to be done");
	write_ends(5.1, OUTCOME_OK);
	ok((a.set & NEXT_DO_NEXT) && s.is_next, "then it is");
	is_int(next_wait(&s, at(5.1)), 15 * SEC, "and writes N anew every L");
	tick(20.1);
	ok(writes_n() && !(a.set & NEXT_DO_NEXT), "so that the leader sees that it is alive");
	begin(0);
	news(0, led_by(9, 2));
	ok(next_wait(&s, at(0)) == NSEC_NEVER, "who sees that somebody comes next asks for nothing");
	begin(5);
	news(0, led_by(9, 2));
	tick(5);
	ok(reads(), "unless its own priority is larger");
	read_done(5, nominee(2, 20));
	ok(writes_n(), "then it takes N from that one");
	begin(0);
	news(0, (struct next_news){ .held = false });
	ok(next_wait(&s, at(0)) == NSEC_NEVER, "while nobody leads nobody takes N");
	looks(0);
	read_done(5, nominee(9, 20));
	ok(writes_n(), "the leader's own nomination is no longer one");
	looks(0);
	read_done(5, (struct next_sight){ .kind = NEXT_FOREIGN });
	ok(!a.set && next_wait(&s, at(5)) > 100 * SEC, "what another program has in the place of N is left alone");
}

static void contended_rules(void)
{
	looks(0);
	read_done(5, nominee(2, 20));
	ok(!a.set, "another of the same priority may just have taken N: it is left alone");
	tick(33);
	ok(reads(), "and looked at again after one and a half L");
	read_done(33, nominee(2, 21));
	ok(!a.set && next_wait(&s, at(33)) >= 45 * SEC, "it is alive: ever more rarely");
	looks(0);
	read_done(5, nominee(2, 20));
	tick(33);
	read_done(33, nominee(2, 20));
	ok(writes_n(), "who has not written N for so long is gone");
	begin(0);
	news(0, led_by(9, 2));
	news(100, led_by(9, 0));
	tick(105);
	read_done(105, nominee(2, 20));
	ok(writes_n(), "so is whom the leader publishes no more");
	looks(0);
	read_done(5, absent);
	write_ends(5, OUTCOME_CONFLICT);
	ok(reads() && !s.is_next, "who was not the first looks");
	read_done(5, nominee(2, 20));
	ok(next_wait(&s, at(5)) >= 15 * SEC, "and tries again L later at the earliest");
	looks(0);
	read_done(5, absent);
	write_ends(5, OUTCOME_CONFLICT);
	read_done(5, nominee(1, 20));
	ok(writes_n(), "or it was its own write, delivered twice");
}

static void next_rules(void)
{
	become_next();
	ready(6, false, 0);
	ok((a.set & NEXT_DO_NOT_NEXT) && !a.leads, "who is not ready is not next");
	ok(empties(), "and empties N");
	write_ends(6, OUTCOME_UNKNOWN);
	ok(reads(), "an emptying of unknown outcome is looked for");
	read_done(6, nominee(1, 20));
	ok(empties(), "and repeated");
	write_ends(6, OUTCOME_OK);
	ok(!a.set && next_wait(&s, at(6)) == NSEC_NEVER, "then there is nothing to do");
	looks(0);
	read_done(5, absent);
	ready(5.1, false, 0);
	write_ends(5.2, OUTCOME_OK);
	ok(!(a.set & NEXT_DO_NEXT) && empties(), "who is not ready any more when it has taken N never was next");
	become_next();
	tick(20);
	write_ends(20, OUTCOME_CONFLICT);
	ok(reads() && s.is_next, "a conflict is looked at");
	read_done(20, nominee(2, 20));
	ok((a.set & NEXT_DO_NOT_NEXT) && !a.leads, "and if another has N, this one is next no more");
	become_next();
	tick(20);
	write_ends(20, OUTCOME_UNKNOWN);
	read_done(20, nominee(1, 20));
	tick(22);
	ok(s.is_next && writes_n(), "a write of unknown outcome that N shows stands");
	become_next();
	tick(20);
	step(20, (struct next_event){ .kind = NEXT_EV_WRITE_DONE, .op = s.op, .outcome = OUTCOME_FAILED });
	is_int(next_wait(&s, at(20)), 2 * SEC, "a write that failed is tried again after P");
	tick(22);
	tick(35.1);
	ok((a.set & NEXT_DO_NOT_NEXT), "who could not write N for 2 L is next no more");
	become_next();
	role(6, NEXT_LEADER, 5);
	ok((a.set & NEXT_DO_NOT_NEXT) && a.leads && reads(), "a next that leads is next no more, and looks at N");
	role(7, NEXT_NONE, 0);
	ok(!(a.set & (NEXT_DO_WRITE | NEXT_DO_NOT_NEXT)), "whose term has ended is not next for that");
	looks(0);
	step(5,
	     (struct next_event){ .kind = NEXT_EV_READ_DONE, .op = s.op, .outcome = OUTCOME_FAILED, .refused = true });
	ok(next_wait(&s, at(5)) >= 30 * SEC, "who may not use N asks ever more rarely");
}

static void leader_rules(void)
{
	begin(0);
	role(0, NEXT_LEADER, 5);
	ok(reads(), "a leader looks at N when its term begins");
	read_done(0, nominee(2, 20));
	ok(!published(0) && !(a.set & NEXT_DO_PUBLISH), "the first record that it sees may be old: it is no change");
	is_int(next_wait(&s, at(0)), 17 * SEC, "and every L, within P");
	awake(15);
	read_done(15, nominee(2, 21));
	ok(published(15) == 2 && (a.set & NEXT_DO_PUBLISH), "who has written N anew comes next");
	awake(30);
	read_done(30, nominee(2, 21));
	is_int((int64_t)published(44.9), 2, "for 2 L from the receipt of that");
	awake(45);
	ok(!published(45) && (a.set & NEXT_DO_PUBLISH), "and no longer");
	lead(false, 0);
	awake(15);
	read_done(15, nominee(1, 20));
	ok(!published(15), "itself is not next");
	awake(30);
	read_done(30, (struct next_sight){ .kind = NEXT_NOBODY, .write = 21 });
	ok(!published(30), "nor is nobody");
	awake(45);
	read_done(45, nominee(3, 22));
	is_int((int64_t)published(45), 3, "who took N while the term went on is");
	step(46, (struct next_event){ .kind = NEXT_EV_CHANGED });
	ok(!reads() && next_wait(&s, at(46)) <= 2 * SEC, "a notice is followed within P");
	role(50, NEXT_LEADER, 6);
	ok(!published(50), "a new term sees N for the first time again");
}

/* What is done every L needs no wake-up of its own. */
/* Of two candidates with one identity, the standby is seen by the leader. */
static void namesake_rules(void)
{
	struct next_sight its = nominee(2, 10);

	its.namesake = true;
	begin(0);
	role(0, NEXT_LEADER, 1);
	read_done(0, its);
	ok(!(a.set & NEXT_DO_NAMESAKE), "an N by this identity may be left of an earlier run");
	its.write = 11;
	for (int i = 1; i < 60 && !reads(); i++)
		tick(i);
	step(60, (struct next_event){ .kind = NEXT_EV_READ_DONE, .op = s.op, .outcome = OUTCOME_OK, .sight = its });
	ok(a.set & NEXT_DO_NAMESAKE, "that it is written anew tells that two candidates have one identity");
}

static void sharing_rules(void)
{
	lead(false, 0);
	ok(!next_shares(&s, at(14.9)), "a leader does not look at N before L has passed");
	ok(next_shares(&s, at(15)), "but at its first renewal after that");
	tick(15);
	ok(!a.set, "which comes within P: so it does not wake up to look");
	awake(16);
	ok(reads() && !next_shares(&s, at(16)), "and then it looks, once");
	read_done(16, absent);
	tick(33);
	ok(reads(), "without a renewal it looks P later");
	step(33, (struct next_event){ .kind = NEXT_EV_READ_DONE, .op = s.op, .outcome = OUTCOME_FAILED });
	awake(34);
	ok(!a.set && next_wait(&s, at(34)) == SEC, "after a look that failed it waits for P, whatever else it does");
	become_next();
	ok(!next_shares(&s, at(17.9)), "the next leaves N alone for L - P");
	ok(next_shares(&s, at(18)), "and writes it at the first renewal that it sees then");
	awake(18);
	ok(writes_n(), "so that the leader, who is late, sees another write at each look");
	write_ends(18, OUTCOME_OK);
	is_int(next_wait(&s, at(18)), 15 * SEC, "without one it writes when L has passed");
	begin(0);
	options.retry = 6 * SEC;
	next_configure(&s, &options);
	news(0, led_by(9, 0));
	ok(!next_shares(&s, at(4)), "who is not next shares nothing");
	tick(5);
	read_done(5, absent);
	write_ends(5, OUTCOME_OK);
	ok(!next_shares(&s, at(16.2)) && next_shares(&s, at(16.3)), "a long P counts as L/4");
}

static void wanted_rules(void)
{
	struct next_news wanted = led_by(9, 2);
	uint64_t request, identity;

	wanted.wanted = 77;
	begin(5);
	news(0, wanted);
	tick(20);
	ok(!a.set, "nobody takes N while another is wanted, whatever its priority");
	wanted.next_priority = 8;
	wanted.wanted_mine = true;
	news(21, wanted);
	ok(reads(), "who is wanted looks at once");
	read_done(21, nominee(2, 20));
	ok(writes_n() && a.answers == 77, "and takes N, answering the request");
	write_ends(21, OUTCOME_OK);
	ok(s.is_next && next_wait(&s, at(21)) == 15 * SEC, "once");
	become_next();
	news(6, wanted);
	ok(writes_n() && a.answers == 77, "so does who is next already");
	write_ends(7, OUTCOME_OK);
	ready(7, false, 0);
	ok(empties() && a.answers == 77, "and says no where it cannot lead after that");
	begin(0);
	ready(0, false, 0);
	news(1, wanted);
	ok(reads(), "who is not ready looks, too");
	read_done(1, nominee(2, 20));
	ok(touches() && a.answers == 77, "and says no, in what the other has written");
	write_ends(1, OUTCOME_OK);
	ok(!s.is_next && !a.set && next_wait(&s, at(1)) == NSEC_NEVER, "once: it does not come next by that");
	begin(0);
	ready(0, false, 0);
	news(1, wanted);
	read_done(1, absent);
	ok(empties() && a.answers == 77, "also where nobody has written");
	become_next();
	ready(6, false, 0);
	write_ends(6, OUTCOME_OK);
	news(7, wanted);
	read_done(7, nominee(2, 20));
	ok(touches() && a.answers == 77, "also one that came next until then");
	begin(0);
	news(0, wanted);
	wanted.term = wanted.holder = 10;
	wanted.wanted = 0;
	wanted.wanted_mine = false;
	news(0.1, wanted);
	read_done(0.2, nominee(2, 20));
	ok(!a.set, "nor does anybody when that term is over");

	lead(false, 0);
	step(1, (struct next_event){ .kind = NEXT_EV_HANDOVER, .request = 77, .identity = 3, .timeout = 30 * SEC });
	ok((a.set & NEXT_DO_PUBLISH) && next_wants(&s, now_is, &request, &identity) && request == 77 && identity == 3,
	   "a leader publishes whom it wants");
	is_int(next_wait(&s, at(1)), 2 * SEC / 128, "and looks soon");
	for (int i = 0; i < 28; i++)
		tick(1 + 0.1 * i), read_done(1 + 0.1 * i, nominee(2, 20));
	ok(next_wait(&s, now_is) > SEC && next_wait(&s, now_is) <= 2 * SEC, "and then ever later, up to P");
	tick(6);
	struct next_sight answer = nominee(3, 21);
	answer.answers = 77;
	read_done(6, answer);
	ok((a.set & NEXT_DO_HAND_OVER) && a.why == NEXT_REQUEST && a.request == 77 && published(6) == 3,
	   "it hands over to the one that answers");
	step(7, (struct next_event){ .kind = NEXT_EV_HANDOVER, .request = 78, .timeout = SEC });
	ok((a.set & NEXT_DO_NO_HANDOVER) && a.request == 78, "once");
	role(8, NEXT_STANDBY, 0);
	ok(!(a.set & NEXT_DO_NO_HANDOVER) && !next_wants(&s, now_is, &request, &identity), "and the request is over");
	lead(false, 0);
	step(1, (struct next_event){ .kind = NEXT_EV_HANDOVER, .request = 77, .identity = 3, .timeout = 30 * SEC });
	tick(31);
	ok((a.set & NEXT_DO_NO_HANDOVER) && (a.set & NEXT_DO_PUBLISH) && a.request == 77 &&
	           !(a.set & NEXT_DO_HAND_OVER) && !next_wants(&s, now_is, &request, &identity),
	   "who does not answer in time is wanted no more, and the term goes on");
	lead(false, 0);
	step(1, (struct next_event){ .kind = NEXT_EV_HANDOVER, .request = 77, .identity = 3, .timeout = 30 * SEC });
	role(2, NEXT_STANDBY, 0);
	ok(a.set & NEXT_DO_NO_HANDOVER, "when the term ends otherwise the request has failed");
	role(3, NEXT_LEADER, 6);
	ok(!next_wants(&s, now_is, &request, &identity), "and is none of the next term's");
	read_done(3, absent);
	awake(18);
	read_done(18, nominee(2, 20));
	step(19, (struct next_event){ .kind = NEXT_EV_HANDOVER, .request = 79, .timeout = 30 * SEC });
	ok((a.set & NEXT_DO_PUBLISH) && !(a.set & NEXT_DO_HAND_OVER) && next_wants(&s, now_is, &request, &identity) &&
	           identity == 2,
	   "whoever comes next is asked by name: it may have gone since it wrote");
	answer = nominee(2, 21);
	tick(21);
	read_done(21, answer);
	ok(!(a.set & NEXT_DO_HAND_OVER), "a write of it that answers nothing is no answer");
	answer.write = 22;
	answer.answers = 79;
	tick(23);
	read_done(23, answer);
	ok((a.set & NEXT_DO_HAND_OVER) && a.request == 79, "one that does ends the term");
	lead(false, 0);
	step(1, (struct next_event){ .kind = NEXT_EV_HANDOVER, .request = 80, .identity = 3, .timeout = 30 * SEC });
	tick(3);
	answer = nominee(2, 20);
	answer.declines = 81;
	read_done(3, answer);
	ok(!(a.set & NEXT_DO_NO_HANDOVER), "a no to another request is none to this one");
	answer.declines = 80;
	tick(5);
	read_done(5, answer);
	ok((a.set & NEXT_DO_NO_HANDOVER) && a.request == 80 && !(a.set & NEXT_DO_HAND_OVER),
	   "who says no is not waited for, and the term goes on");
}

static void doubt(double t, bool is)
{
	step(t, (struct next_event){ .kind = NEXT_EV_READY, .ready = !is, .doubted = is });
}

static void doubt_rules(void)
{
	begin(0);
	doubt(0, true);
	news(0, led_by(9, 2));
	ok(!a.set && next_wait(&s, at(0)) >= 15 * SEC, "whose write was not taken waits for L at least");
	tick(26);
	ok(reads(), "then it looks at N, though another comes next");
	read_done(26, nominee(2, 20));
	ok(touches() && !a.answers, "and writes back what is there");
	write_ends(26, OUTCOME_UNKNOWN);
	ok(reads(), "what became of that it looks at");
	read_done(26, nominee(2, 20));
	ok(!a.set && next_wait(&s, at(26)) == 15 * SEC, "and tries again L later");
	tick(41);
	read_done(41, nominee(2, 20));
	step(41, (struct next_event){ .kind = NEXT_EV_WRITE_DONE,
	                              .op = s.op,
	                              .outcome = OUTCOME_UNKNOWN,
	                              .refused = true,
	                              .sent_at = at(41) });
	ok(!a.set && next_wait(&s, at(41)) == 30 * SEC, "after more when it was told that none is taken");
	tick(71);
	read_done(71, nominee(2, 21));
	tick(71);
	ok(!a.set, "not before that pause is over");
	tick(101);
	read_done(101, (struct next_sight){ .kind = NEXT_FOREIGN, .write = 5 });
	ok(!a.set, "what is another program's is left alone");
	struct next_news wanted = led_by(9, 2);
	wanted.wanted = 77;
	wanted.wanted_mine = true;
	news(101, wanted);
	ok(reads(), "a leader that waits for it is answered at once");
	read_done(101, nominee(2, 22));
	ok(touches() && a.answers == 77, "with a no");
	write_ends(101, OUTCOME_FAILED);
	ok(!a.set, "which is tried again after a pause");
	doubt(102, false);
	wanted.wanted = 0;
	wanted.wanted_mine = false;
	news(102, wanted);
	tick(300);
	ok(!touches() && !empties(), "who is ready touches nothing");
	begin(0);
	doubt(0, true);
	tick(100);
	ok(!a.set, "nor does who does not see a leader: it tries to lead");
}

static void priority_rules(void)
{
	struct next_sight better = nominee(2, 20);

	better.priority = 5;
	lead(true, 0);
	awake(15);
	read_done(15, better);
	is_int(next_wait(&s, at(32)), 0, "a leader goes on looking at a better next");
	awake(30);
	better.write = 21;
	read_done(30, better);
	tick(44.9);
	ok(!(a.set & NEXT_DO_HAND_OVER), "it is handed over to");
	tick(45);
	ok((a.set & NEXT_DO_HAND_OVER) && a.why == NEXT_PRIORITY, "when it has been better for so long");
	role(46, NEXT_STANDBY, 0);
	is_int(s.preempt_after, 30 * SEC, "a term that ended so makes that time no longer");
	news(46, led_by(2, 0));
	news(48, (struct next_news){ .held = false });
	is_int(s.preempt_after, 60 * SEC, "one that lasted less doubles it");
	news(49, led_by(4, 0));
	news(115, (struct next_news){ .held = false });
	is_int(s.preempt_after, 30 * SEC, "one that lasted longer makes it what it was");
	struct next_news handed = led_by(5, 0);
	handed.handed_over = true;
	news(116, led_by(4, 0));
	news(118, handed);
	is_int(s.preempt_after, 30 * SEC, "one that was handed over is not counted, however short it was");
	handed.held = false;
	news(119, handed);
	news(121, led_by(4, 0));
	news(122, handed);
	is_int(s.preempt_after, 30 * SEC, "also when its release is seen");
	lead(false, 0);
	awake(15);
	better.write = 22;
	read_done(15, better);
	better.write = 23;
	awake(30);
	read_done(30, better);
	tick(44);
	ok(!(a.set & NEXT_DO_HAND_OVER), "without --preempt it is never");
	lead(false, 0);
	options.next.max_term = 40 * SEC;
	next_configure(&s, &options);
	awake(41);
	read_done(41, absent);
	ok(!(a.set & NEXT_DO_HAND_OVER), "a term does not end by its length while nobody comes next");
	awake(56);
	read_done(56, better);
	ok((a.set & NEXT_DO_HAND_OVER) && a.why == NEXT_ROTATION, "but does when somebody does");
}

/* What records show is what the machine is told. */
static void record_rules(void)
{
	struct next_record n = { .who = ADVICE_NOBODY, .answers = "00ff" };
	struct advice says = ADVICE_NONE;
	struct record r;

	record_init(&r);
	is_int(next_record_sight(NULL, "a", UUID).kind, NEXT_ABSENT, "no record is an absent one");
	is_int(next_record_sight(&r, "a", UUID).kind, NEXT_FOREIGN, "another record is foreign");
	n.who.identity = "a";
	n.who.incarnation = UUID;
	n.who.priority = 3;
	next_record_fill(&r, &n);
	struct next_sight sight = next_record_sight(&r, "a", UUID);
	ok(sight.kind == NEXT_SOMEBODY && sight.mine && sight.priority == 3 &&
	           sight.identity == next_record_identity("a") && sight.answers == next_record_request("00ff"),
	   "a nomination of ours is");
	ok(!next_record_sight(&r, "a", OTHER_UUID).mine &&
	           next_record_sight(&r, "a", OTHER_UUID).identity == next_record_identity("a"),
	   "an earlier incarnation of our identity is another candidate");
	record_clear(&r);
	mem_replace(&r.holder, "h");
	memcpy(r.incarnation, OTHER_UUID, sizeof OTHER_UUID);
	r.term = 4;
	ok(!next_record_other_first(&r, "a", UUID) && !next_record_news(&r, "a").next, "no advice names nobody");
	says.next = n.who;
	says.wanted.name = "00ff";
	says.wanted.identity = "a";
	advice_replace(&r.advice, &says);
	struct next_news news = next_record_news(&r, "a");
	ok(news.held && news.term == 4 && news.next == sight.who && news.next_priority == 3 && news.wanted_mine &&
	           news.wanted == next_record_request("00ff"),
	   "the lock's record says who leads, who comes next and who is wanted");
	ok(!next_record_news(&r, "b").wanted_mine, "which is not everybody");
	ok(!next_record_other_first(&r, "a", UUID) && next_record_other_first(&r, "a", OTHER_UUID) &&
	           next_record_other_first(&r, "b", UUID),
	   "when its lease runs out all but the next hold back");
	mem_replace(&r.holder, "");
	ok(!next_record_other_first(&r, "b", UUID), "a release that names nobody lets all try");
	says.given = n.who;
	advice_replace(&r.advice, &says);
	ok(next_record_other_first(&r, "b", UUID) && !next_record_other_first(&r, "a", UUID),
	   "one that names somebody, that one");
	ok(!next_record_news(&r, "b").handed_over, "which may be after any term");
	r.advice->handed_over = true;
	ok(next_record_news(&r, "b").handed_over, "or after one that was handed over");
	mem_replace(&r.holder, "a");
	ok(!next_record_news(&r, "b").handed_over, "in another one's term that says nothing");
	memcpy(r.incarnation, UUID, sizeof UUID);
	ok(next_record_news(&r, "b").handed_over, "but in that of who was named");
	record_fini(&r);
}

int main(void)
{
	taking_rules();
	contended_rules();
	next_rules();
	leader_rules();
	namesake_rules();
	sharing_rules();
	wanted_rules();
	doubt_rules();
	priority_rules();
	record_rules();
	return tap_done();
}
