/* Whether a candidate could lead now, one reason each, and what is asked for that (readiness.h). */
#include "election/readiness.h"
#include "tap.h"

#include <string.h>

static struct readiness r;
static struct lease_standing s;
static struct store_contact c;

static struct instant at(int t)
{
	return (struct instant){ t * NSEC_PER_SEC, t * NSEC_PER_SEC };
}

/* One that could lead. */
static void begin(bool asks)
{
	s = (struct lease_standing){ .looked = true };
	readiness_init(&r, asks, at(0));
	store_contact_init(&c, at(0));
	store_contact_good(&c, at(0));
}

static const char *lacks(enum lease_phase phase)
{
	return readiness_lacks(&r, phase, &s, &c);
}

static bool says(const char *words)
{
	const char *why = lacks(PHASE_FOLLOWING);

	return why && strstr(why, words);
}

static void is_lack(const char *words, const char *what)
{
	const char *why = lacks(PHASE_FOLLOWING);

	ok(why && strstr(why, words), "%s: %s", what, why ? why : "nothing");
	ok(!lacks(PHASE_LEADING) && !lacks(PHASE_ENDING) && !lacks(PHASE_NEXT),
	   "who holds the lease leads all the same");
	begin(r.asks);
}

static void reasons(void)
{
	begin(false);
	ok(!lacks(PHASE_FOLLOWING), "a standby that lacks nothing could lead");
	s.observer = true;
	is_lack("observes", "not an observer");
	s.unreaped = true;
	is_lack("killed", "nor who has left something running");
	s.out_left = NSEC_NEVER;
	is_lack("shutting down", "nor who lets go");
	s.paused = true;
	is_lack("paused", "nor who is paused");
	s.out_left = 1;
	is_lack("some time", "nor who sits out");
	r.user = false;
	is_lack("worker", "nor who has no worker");
	c.answered = false;
	is_lack("does not answer", "nor who has not heard of the store");
	c.lost = true;
	is_lack("does not answer", "nor who has lost it");
	store_contact_write_failed(&c, WRITE_FULL, 0, at(0));
	ok(readiness_is_doubt(lacks(PHASE_FOLLOWING)), "whose writes are not taken is to find out when they are");
	is_lack("its writes", "nor is that one ready");
	ok(!readiness_is_doubt(NULL), "who could lead has nothing to find out");
	ok(lacks(PHASE_IDLE) && lacks(PHASE_LOST) && lacks(PHASE_RELEASING),
	   "nor is who does not campaign yet, or whose last term has not ended");
}

static void hook(void)
{
	begin(true);
	ok(says("not answered yet"), "may_lead has to say yes");
	ok(readiness_to_ask(&r, lacks(PHASE_FOLLOWING), at(0)), "so it is asked");
	readiness_asked(&r, NSEC_PER_SEC, at(0));
	ok(!readiness_to_ask(&r, lacks(PHASE_FOLLOWING), at(0)) &&
	           readiness_wait(&r, lacks(PHASE_FOLLOWING), at(0)) == NSEC_PER_SEC,
	   "and again after a while");
	readiness_answered(&r, false);
	ok(says("says no"), "a no is the reason");
	ok(readiness_to_ask(&r, lacks(PHASE_FOLLOWING), at(1)), "and is asked again");
	readiness_answered(&r, true);
	ok(!lacks(PHASE_FOLLOWING), "a yes is none");
	readiness_late(&r);
	ok(says("in time"), "an answer that is late is no yes, whatever was said before");
	ok(readiness_to_ask(&r, lacks(PHASE_FOLLOWING), at(1)), "and is asked for again");
	readiness_answered(&r, true);
	ok(!lacks(PHASE_FOLLOWING), "until there is one");
	s.paused = true;
	ok(!readiness_to_ask(&r, lacks(PHASE_FOLLOWING), at(9)) &&
	           readiness_wait(&r, lacks(PHASE_FOLLOWING), at(9)) == NSEC_NEVER,
	   "who could not lead anyway does not ask");
	begin(false);
	readiness_late(&r);
	ok(!lacks(PHASE_FOLLOWING) && !readiness_to_ask(&r, NULL, at(9)), "without such a hook nothing is asked");
}

int main(void)
{
	reasons();
	hook();
	return tap_done();
}
