/* What a process writes into an election's record, and what it takes for its own, without an election or a store. */
#include "election/author.h"

#include "base/mem.h"
#include "lease/advice.h"
#include "tap.h"

#define NOW_US INT64_C(1700000000000000)

static const struct lease_times times = { .lease = 15 * NSEC_PER_SEC,
	                                  .renew = 10 * NSEC_PER_SEC,
	                                  .retry = 2 * NSEC_PER_SEC };
static struct proof_self self = {
	.incarnation = "i1", .boot_id = "boot", .pid = 7, .pid_start = 70, .tree = "/tree", .tree_fd = -1
};

static void begin(struct author *a, struct record *r, const char *identity, bool reclaims)
{
	author_init(a, &self, identity, "host:1", reclaims);
	record_init(r);
}

static void end(struct author *a, struct record *r)
{
	author_fini(a);
	record_fini(r);
}

static struct author_write acquisition(uint64_t term)
{
	return (struct author_write){ .what = LEASE_ACQUIRE,
		                      .times = &times,
		                      .exists = true,
		                      .makes_token = true,
		                      .term = term,
		                      .wall_us = NOW_US };
}

static void terms(void)
{
	struct author a;
	struct record r;

	begin(&a, &r, "a", false);
	mem_replace(&r.holder, "b");
	mem_replace(&r.forced, "by somebody");
	advice_replace(&r.advice, &(struct advice)ADVICE_NONE);
	r.transitions = 4;
	struct author_write w = acquisition(9);
	author_write(&a, &r, &w);
	ok(!*r.forced, "that the term before was released by force is not said of this one");
	ok(!r.advice, "nor what the term before advised");
	ok(strcmp(r.holder, "a") == 0 && strcmp(r.address, "host:1") == 0 && r.state == RECORD_LEADING && r.term == 9 &&
	           strcmp(r.incarnation, "i1") == 0 && r.pid == 7 && strcmp(r.tree, "/tree") == 0,
	   "an acquisition names holder, address, term and process");
	ok(r.lease_ms == 15000 && r.renew_ms == 10000 && r.retry_ms == 2000, "and publishes the times");
	ok(strcmp(r.previous_holder, "b") == 0 && r.transitions == 5,
	   "a change of holder is counted, and the last one named");
	ok(r.token == NOW_US && r.acquired_us == NOW_US && r.renewed_us == NOW_US,
	   "a token is made from the wall clock");
	w.token = NOW_US + 5;
	author_write(&a, &r, &w);
	ok(r.token == NOW_US + 6, "but is larger than every one that was seen");
	ok(r.transitions == 5 && strcmp(r.previous_holder, "b") == 0, "the same holder again is no change");
	r.token = NOW_US + 50;
	author_write(&a, &r, &w);
	ok(r.token == NOW_US + 51, "and larger than the record's");
	w.makes_token = false;
	author_write(&a, &r, &w);
	is_int(r.token, 0, "where the store makes tokens, none is written");
	mem_replace(&r.holder, "c");
	w.exists = false;
	author_write(&a, &r, &w);
	is_int(r.transitions, 5, "where there was no record, no change is counted");
	end(&a, &r);
}

static void renewals(void)
{
	struct author a;
	struct record r;
	struct author_write w = { .what = LEASE_RENEW,
		                  .times = &times,
		                  .term = 9,
		                  .token = 77,
		                  .acquired_us = 1000,
		                  .wall_us = NOW_US,
		                  .since_renewal = 2 * NSEC_PER_SEC };

	begin(&a, &r, "a", false);
	r.renewed_us = NOW_US - 10;
	author_write(&a, &r, &w);
	ok(r.term == 9 && r.token == 77 && r.acquired_us == 1000,
	   "a renewal keeps term, token and time of acquisition");
	ok(r.renewed_us > NOW_US && r.renewed_us < NOW_US + 3000000,
	   "its time is later than the last by what has passed");
	w.wall_us = NOW_US + INT64_C(3600000000);
	author_write(&a, &r, &w);
	is_int(r.renewed_us, w.wall_us, "and is the wall clock's, unless that is earlier");
	r.renewed_us = RECORD_TIME_MAX;
	author_write(&a, &r, &w);
	is_int(r.renewed_us, w.wall_us, "and where no later time can be written");
	w.what = LEASE_RELEASE;
	author_write(&a, &r, &w);
	ok(!*r.holder && !*r.address && r.state == RECORD_RELEASED && strcmp(r.previous_holder, "a") == 0 &&
	           r.token == 77,
	   "a release names no holder but the previous one, and keeps the token");
	ok(r.lease_ms == 15000 && strcmp(r.incarnation, "i1") == 0 && r.term == 9, "and the rest of the record");
	end(&a, &r);
}

static void sights(void)
{
	struct author a;
	struct record r;
	struct author_write w = acquisition(9);

	begin(&a, &r, "a", true);
	author_write(&a, &r, &w);
	r.writes = 3;
	struct lease_sight s = author_sight(&a, &r);
	r.writes = 4;
	ok(author_sight(&a, &r).count == 4, "who made a record counts its writes");
	char was[sizeof r.incarnation];
	memcpy(was, r.incarnation, sizeof was);
	r.incarnation[0] = '\0';
	ok(author_sight(&a, &r).count == 0, "of a record that no one process made nothing is counted");
	memcpy(r.incarnation, was, sizeof was);
	ok(s.kind == SIGHT_HELD && s.mine && !s.reclaim && s.term == 9 && s.count == 3 &&
	           s.duration == 15 * NSEC_PER_SEC,
	   "our own record is ours");
	r.term = 10;
	ok(author_sight(&a, &r).who != s.who, "the same holder's next term is told from this one");
	strcpy(r.incarnation, "i0");
	ok(!author_sight(&a, &r).mine && !author_sight(&a, &r).reclaim,
	   "an earlier process' record on this boot is not ours, and not reclaimed");
	strcpy(r.boot_id, "earlier");
	ok(author_sight(&a, &r).reclaim, "one from another boot is, if the identity lives only once");
	a.reclaims = false;
	ok(!author_sight(&a, &r).reclaim, "and only then");
	a.reclaims = true;
	mem_replace(&r.holder, "b");
	ok(!author_sight(&a, &r).reclaim, "another identity's is not");
	mem_replace(&r.holder, "");
	ok(author_sight(&a, &r).kind == SIGHT_EMPTIED,
	   "a record that says leading without a holder was emptied by hand");
	r.state = RECORD_RELEASED;
	ok(author_sight(&a, &r).kind == SIGHT_RELEASED, "one that says released was let go by its holder");
	end(&a, &r);
}

static void copies(void)
{
	struct author a;
	struct record r;
	struct author_write w = acquisition(9);

	begin(&a, &r, "", false);
	ok(strlen(a.identity) > 3 && strcmp(a.identity + strlen(a.identity) - 3, "_i1") == 0,
	   "without a name, the identity is the host's and the incarnation");
	author_write(&a, &r, &w);
	self.tree = NULL; /* withdrawing would remove the file */
	author_become_another(&a);
	ok(!author_holds(&a, &r) && !strstr(a.identity, "_i1"), "a copy of a process has another name");
	self.tree = "/tree";
	author_write(&a, &r, &w);
	ok(author_holds(&a, &r) && strcmp(r.incarnation, "i1") != 0 && !*r.tree,
	   "and writes another incarnation, and no tree file");
	end(&a, &r);
	begin(&a, &r, "a", false);
	self.tree = NULL;
	author_become_another(&a);
	is_str(a.identity, "a", "a name that was given stays");
	self.tree = "/tree";
	end(&a, &r);
}

static void advises(void)
{
	struct author a;
	struct record r;
	struct advice advice = ADVICE_NONE;
	struct author_write w = acquisition(9);

	advice.next.identity = advice.wanted.identity = "n";
	advice.next.incarnation = "00-1";
	advice.next.address = "n:1";
	advice.next.priority = 4;
	advice.wanted.name = "00ff";
	begin(&a, &r, "a", false);
	w.advice = &advice;
	author_write(&a, &r, &w);
	ok(!r.advice, "an acquisition advises nothing: nobody has looked in its term yet");
	w.what = LEASE_RENEW;
	author_write(&a, &r, &w);
	ok(advice_has(r.advice, ADVICE_NEXT) && advice_has(r.advice, ADVICE_WANTED) &&
	           !advice_has(r.advice, ADVICE_FOR),
	   "a renewal says who comes next, and who is wanted");
	is_str(r.advice->next.address, "n:1", "with the address");
	w.what = LEASE_RELEASE;
	author_write(&a, &r, &w);
	ok(!advice_has(r.advice, ADVICE_NEXT) && !advice_has(r.advice, ADVICE_WANTED) && !r.advice->handed_over,
	   "a release says neither");
	is_str(r.advice->given.identity, "n", "but for whom it is");
	ok(author_sight(&a, &r).other_first, "whom others let try first");
	end(&a, &r);
}

static void handed(void)
{
	struct author a;
	struct record r;
	struct advice advice = ADVICE_NONE;
	struct author_write w = acquisition(9);

	advice.next.identity = "a";
	advice.next.incarnation = "i1";
	begin(&a, &r, "a", false);
	r.state = RECORD_RELEASED;
	w.what = LEASE_RELEASE;
	w.advice = &advice;
	w.hands_over = true;
	author_write(&a, &r, &w);
	ok(r.advice->handed_over && !author_sight(&a, &r).other_first, "a release says that the term was handed over");
	w = acquisition(10);
	author_write(&a, &r, &w);
	ok(advice_has(r.advice, ADVICE_FOR) && r.advice->handed_over, "and so does the one for whom it is");
	w.what = LEASE_RENEW;
	author_write(&a, &r, &w);
	ok(advice_has(r.advice, ADVICE_FOR) && r.advice->handed_over, "for as long as its term goes on");
	w.what = LEASE_NEXT_TERM;
	author_write(&a, &r, &w);
	ok(!r.advice, "and no longer");
	end(&a, &r);
	begin(&a, &r, "a", false);
	advice_replace(&r.advice, &(struct advice){ .handed_over = true, .given = { .identity = "b" } });
	w = acquisition(10);
	author_write(&a, &r, &w);
	ok(!r.advice, "what was for another one is not said again");
	end(&a, &r);
}

int main(void)
{
	advises();
	handed();
	terms();
	renewals();
	sights();
	copies();
	return tap_done();
}
