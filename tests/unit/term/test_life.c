/* The life of a script, one sentence each: what follows when workers load, start and die, and when somebody asks for a
 * reload, a pause or the end. Here nobody has a term but where a sentence says so; test_life_search.c plays terms,
 * too. */
#include "term/life.h"

#include "tap.h"

enum { SETS = 6, ALL = 40 };

static struct life l;
static struct life_set sets[SETS];
static struct life_candidate lists[2][8];
static struct life_action done[ALL];
static int done_count;
static const struct life_election *elections; /* of the version that is checked next; NULL: it is bad */
static uint32_t election_count;

static void happens(struct life_event e)
{
	life_tell(&l, &e);
}

static void check(void)
{
	struct life_event e = { .kind = elections ? LIFE_EV_GOOD : LIFE_EV_BAD };

	e.elections = elections;
	e.count = election_count;
	e.into = l.candidate == lists[0] ? lists[1] : lists[0];
	happens(e);
}

/* Carries out what follows, and remembers it. */
static void follow(void)
{
	done_count = 0;
	while (done_count < ALL && life_next(&l, &done[done_count]))
		if (done[done_count++].what == LIFE_DO_CHECK)
			check();
}

static void it(enum life_event_kind kind, uint32_t set)
{
	happens((struct life_event){ .kind = kind, .set = set });
	follow();
}

static void order(enum life_event_kind kind, uint32_t candidate)
{
	happens((struct life_event){ .kind = kind, .candidate = candidate });
	follow();
}

static void loaded(uint32_t set, uint32_t groups)
{
	happens((struct life_event){ .kind = LIFE_EV_LOADED, .set = set, .groups = groups });
	follow();
}

static void dies(uint32_t set)
{
	it(LIFE_EV_ENDED, set);
	it(LIFE_EV_GONE, set);
}

static void term(uint32_t candidate, enum life_term now)
{
	l.candidate[candidate].term = (uint8_t)now;
	follow();
}

static const struct life_action *did(enum life_do what)
{
	for (int i = 0; i < done_count; i++)
		if (done[i].what == what)
			return &done[i];
	return NULL;
}

static bool did_of_set(enum life_do what, uint32_t set)
{
	for (int i = 0; i < done_count; i++)
		if (done[i].what == what && done[i].set == set)
			return true;
	return false;
}

static bool timer_is(uint32_t set, enum life_timer timer)
{
	for (int i = done_count - 1; i >= 0; i--)
		if (done[i].what == LIFE_DO_TIMER && done[i].set == set)
			return done[i].timer == timer;
	return false;
}

static bool answered(bool good, enum life_cause cause)
{
	const struct life_action *a = did(LIFE_DO_ANSWER);

	return a && a->good == good && a->cause == cause;
}

/* ---- beginnings ---- */

static const struct life_election two[] = { { .group = 0, .keeps = LIFE_NONE, .earlier = LIFE_NONE },
	                                    { .group = 0, .keeps = LIFE_NONE, .earlier = LIFE_NONE } };
static const struct life_election the_same[] = { { .group = 0, .keeps = 0, .earlier = LIFE_NONE },
	                                         { .group = 0, .keeps = 1, .earlier = LIFE_NONE } };
static const struct life_election swapped[] = { { .group = 0, .keeps = 1, .earlier = LIFE_NONE },
	                                        { .group = 0, .keeps = 0, .earlier = LIFE_NONE } };
/* The second one has another lock. */
static const struct life_election moved[] = { { .group = 0, .keeps = 0, .earlier = LIFE_NONE },
	                                      { .group = 0, .keeps = LIFE_NONE, .earlier = 1 } };
static const struct life_election isolated[] = { { .group = 1, .keeps = 0, .earlier = LIFE_NONE },
	                                         { .group = 2, .keeps = 1, .earlier = LIFE_NONE } };

static void next_version(const struct life_election *e, uint32_t count)
{
	elections = e;
	election_count = count;
}

static void begin(void)
{
	memset(sets, 0, sizeof sets);
	memset(lists, 0, sizeof lists);
	l = (struct life){ .set = sets, .set_count = SETS, .candidate = lists[0] };
	next_version(two, 2);
	it(LIFE_EV_BEGIN, 0);
}

/* Two elections, whose worker (set 0) is ready. */
static void running(void)
{
	begin();
	loaded(0, 0);
	it(LIFE_EV_STARTED, 0);
}

/* And the worker of their next version (set 1) has loaded. */
static void reloaded(const struct life_election *e, uint32_t count)
{
	running();
	next_version(e, count);
	it(LIFE_EV_RELOAD, 0);
	loaded(1, 0);
}

/* ---- sentences ---- */

static void test_first_load(void)
{
	begin();
	ok(did_of_set(LIFE_DO_SPAWN, 0) && !did_of_set(LIFE_DO_SPAWN, 1) && timer_is(0, LIFE_TIMER_START),
	   "at the beginning one worker is spawned, and has a time to load");
	loaded(0, 0);
	ok(did(LIFE_DO_CHECK) && did(LIFE_DO_GO) && did(LIFE_DO_GO)->first && timer_is(0, LIFE_TIMER_START),
	   "what has loaded is checked, then starts, with on_start, in its time");
	ok(life_bar(&l, 0) == LIFE_BAR_WORKER, "nobody campaigns before that");
	it(LIFE_EV_STARTED, 0);
	ok(did(LIFE_DO_SERVE) && life_bar(&l, 0) == LIFE_MAY_CAMPAIGN && life_bar(&l, 1) == LIFE_MAY_CAMPAIGN &&
	           timer_is(0, LIFE_TIMER_OFF),
	   "a worker that has started serves its candidates, and they may campaign");
	begin();
	dies(0);
	ok(did(LIFE_DO_FAIL) && did(LIFE_DO_FAIL)->cause == LIFE_DIED, "if the first load dies, the program is to end");
	begin();
	next_version(NULL, 0);
	loaded(0, 0);
	ok(did(LIFE_DO_FAIL) && did_of_set(LIFE_DO_QUIT, 0), "and if its check is bad");
	begin();
	it(LIFE_EV_TIMER, 0);
	ok(did(LIFE_DO_FAIL) && did(LIFE_DO_FAIL)->cause == LIFE_SILENT && did_of_set(LIFE_DO_KILL, 0),
	   "and if its time is over: then its worker is killed");
	begin();
	it(LIFE_EV_NOT_SPAWNED, 0);
	ok(did(LIFE_DO_FAIL) && did(LIFE_DO_FAIL)->cause == LIFE_NO_PROCESS, "and if there is no process to be had");
}

static void test_reload(void)
{
	reloaded(the_same, 2);
	ok(answered(true, LIFE_FINE) && did_of_set(LIFE_DO_GO, 1) && !did(LIFE_DO_GO)->first,
	   "a reload is answered when its version is in force, and on_start does not run again");
	ok(l.candidate[0].side == 0 && life_bar(&l, 0) == LIFE_MAY_CAMPAIGN,
	   "candidates keep their worker until the next one has started");
	term(1, LIFE_BUSY);
	it(LIFE_EV_STARTED, 1);
	ok(l.candidate[0].side == 1 && did(LIFE_DO_MOVE) && did(LIFE_DO_MOVE)->candidate == 0 && did(LIFE_DO_SERVE),
	   "then those without a term go over to it");
	ok(l.candidate[1].side == 0 && did(LIFE_DO_STIR) && did(LIFE_DO_STIR)->candidate == 1 && !did(LIFE_DO_QUIT),
	   "and the term of the other one ends for its next one, and the old worker stays until then");
	term(1, LIFE_IDLE);
	ok(l.candidate[1].side == 1 && did_of_set(LIFE_DO_QUIT, 0) && timer_is(0, LIFE_TIMER_QUIT),
	   "when it is over, it goes over too, and the old worker has a time to leave");
	it(LIFE_EV_TIMER, 0);
	ok(did_of_set(LIFE_DO_KILL, 0) && did(LIFE_DO_KILL)->cause == LIFE_SILENT, "one that does not leave is killed");
	it(LIFE_EV_GONE, 0);
	ok(did(LIFE_DO_SETTLED) && did(LIFE_DO_SETTLED)->side == 0, "what was kept of its version is freed after that");
}

static void fails(enum life_cause cause, const char *how)
{
	ok(answered(false, cause) && l.side == 0 && life_bar(&l, 0) == LIFE_MAY_CAMPAIGN &&
	           !did_of_set(LIFE_DO_QUIT, 0),
	   "a reload %s is answered, and the old version stays", how);
}

static void asked(void)
{
	running();
	it(LIFE_EV_RELOAD, 0);
}

static void test_failed_reload(void)
{
	asked();
	it(LIFE_EV_LOAD_FAILED, 1);
	fails(LIFE_FAILED_LOAD, "of a script that does not load");
	asked();
	dies(1);
	fails(LIFE_DIED, "whose worker dies");
	asked();
	it(LIFE_EV_TIMER, 1);
	fails(LIFE_SILENT, "that takes too long");
	asked();
	it(LIFE_EV_NOT_SPAWNED, 1);
	fails(LIFE_NO_PROCESS, "for which there is no process");
	asked();
	next_version(NULL, 0);
	loaded(1, 0);
	fails(LIFE_FAILED_LOAD, "whose check is bad");
	dies(1);
	ok(did(LIFE_DO_SETTLED) && did(LIFE_DO_SETTLED)->side == 1,
	   "what was kept of it is freed when its worker is gone");
	asked();
	loaded(1, 2);
	ok(!did(LIFE_DO_CHECK) && did_of_set(LIFE_DO_SPAWN, 3) && did_of_set(LIFE_DO_SPAWN, 5) && !did(LIFE_DO_GO),
	   "a version with isolated elections is loaded in each of its workers before it is checked");
	loaded(3, 2);
	dies(5);
	fails(LIFE_DIED, "of which one worker dies");
	ok(timer_is(1, LIFE_TIMER_QUIT) && timer_is(3, LIFE_TIMER_QUIT), "and the workers that have loaded leave");
}

static void test_on_start(void)
{
	begin();
	loaded(0, 0);
	it(LIFE_EV_RELOAD, 0);
	ok(!did(LIFE_DO_LOAD), "a reload waits for on_start");
	it(LIFE_EV_STARTED, 0);
	ok(did(LIFE_DO_LOAD) != NULL, "and begins when that has run");
	next_version(the_same, 2);
	loaded(1, 0);
	ok(did(LIFE_DO_GO) && !did(LIFE_DO_GO)->first, "so the new version does not run it again");
}

static void test_requests(void)
{
	asked();
	it(LIFE_EV_RELOAD, 0);
	next_version(the_same, 2);
	loaded(1, 0);
	ok(answered(true, LIFE_FINE), "who asks for a reload is answered when its version is in force");
	it(LIFE_EV_STARTED, 1);
	ok(!did(LIFE_DO_LOAD), "that one is not loaded before the old worker is gone");
	dies(0);
	ok(did(LIFE_DO_LOAD) && did(LIFE_DO_LOAD)->side == 0, "but then");
	loaded(0, 0);
	ok(answered(true, LIFE_FINE), "and then who has asked while the first one was loaded is answered, too");
	asked();
	order(LIFE_EV_END, LIFE_NONE);
	ok(answered(false, LIFE_SHUTDOWN) && did_of_set(LIFE_DO_KILL, 1),
	   "at the end a reload that is loading is answered");
	it(LIFE_EV_RELOAD, 0);
	ok(answered(false, LIFE_SHUTDOWN) && !did(LIFE_DO_LOAD), "and so is one that is asked for after it");
}

/* One election, whose worker (set 0) is ready and is asked to reload by itself. */
static void taking(void)
{
	begin();
	l.takes = true;
	next_version(two, 1);
	loaded(0, 0);
	it(LIFE_EV_STARTED, 0);
	it(LIFE_EV_RELOAD, 0);
}

static void takes(bool good)
{
	happens((struct life_event){ .kind = LIFE_EV_TAKEN, .set = 0, .good = good });
	follow();
}

static void test_take(void)
{
	taking();
	ok(did_of_set(LIFE_DO_TAKE, 0) && !did(LIFE_DO_LOAD) && timer_is(0, LIFE_TIMER_START),
	   "a worker that can reload by itself is asked to, and has a time for it");
	it(LIFE_EV_RELOAD, 0);
	ok(!did(LIFE_DO_TAKE) && !did(LIFE_DO_LOAD), "who asks meanwhile waits for that");
	takes(true);
	ok(answered(true, LIFE_FINE) && did(LIFE_DO_TAKE), "when it has, that is answered, and it is asked once more");
	takes(false);
	ok(answered(false, LIFE_FAILED_LOAD) && timer_is(0, LIFE_TIMER_OFF), "what it found bad, too");
	taking();
	it(LIFE_EV_TIMER, 0);
	ok(answered(false, LIFE_NOT_TAKEN) && !did(LIFE_DO_KILL) && timer_is(0, LIFE_TIMER_OFF),
	   "when its time is over, that is answered, and the worker stays");
	takes(true);
	ok(did_of_set(LIFE_DO_TAKE, 0), "if it answers yet, it is asked once more");
	it(LIFE_EV_TIMER, 0);
	it(LIFE_EV_RELOAD, 0);
	ok(did(LIFE_DO_LOAD) && !did(LIFE_DO_TAKE), "a reload after that time loads a version in another worker");
	taking();
	it(LIFE_EV_ENDED, 0);
	ok(did(LIFE_DO_LOAD) && !did(LIFE_DO_ANSWER), "if it dies, a version is loaded for who waits");
	taking();
	order(LIFE_EV_END, LIFE_NONE);
	ok(answered(false, LIFE_SHUTDOWN), "and is answered at the end");
}

static void test_names(void)
{
	reloaded(swapped, 2);
	ok(life_has(&l, 1, 0) && life_has(&l, 1, 1) && l.candidate[0].group[1] == 0 && !l.candidate[0].leaves,
	   "elections in another order go on, each as itself");
	reloaded(moved, 2);
	const struct life_action *end = did(LIFE_DO_END);
	ok(l.candidate_count == 3 && l.candidate[2].leaves && end && end->candidate == 2,
	   "one that is not in the new version ends for good");
	ok(!life_has(&l, 1, 2) && life_has(&l, 0, 2), "and only the old worker is told of it");
	it(LIFE_EV_STARTED, 1);
	ok(life_bar(&l, 1) == LIFE_BAR_OTHERS && life_bar(&l, 0) == LIFE_MAY_CAMPAIGN,
	   "a new election does not campaign before those that leave have released their locks; the others go on");
	term(2, LIFE_FINISHED);
	ok(did(LIFE_DO_FORGET) && l.candidate_count == 2 && life_bar(&l, 1) == LIFE_MAY_CAMPAIGN &&
	           did_of_set(LIFE_DO_QUIT, 0),
	   "when they have, it does, and the old worker leaves");
	running();
	next_version(isolated, 2);
	it(LIFE_EV_RELOAD, 0);
	loaded(1, 2);
	loaded(3, 2);
	loaded(5, 2);
	ok(did_of_set(LIFE_DO_QUIT, 1) && did_of_set(LIFE_DO_GO, 3) && did_of_set(LIFE_DO_GO, 5),
	   "if all are isolated, the worker that they do not share is not needed");
	ok(life_has(&l, 3, 0) && !life_has(&l, 3, 1) && life_has(&l, 5, 1),
	   "each of the others is told of its own election");
}

static void test_replacement(void)
{
	running();
	it(LIFE_EV_ENDED, 0);
	ok(life_bar(&l, 0) == LIFE_BAR_WORKER && !did(LIFE_DO_SPAWN), "nobody campaigns without a worker");
	it(LIFE_EV_GONE, 0);
	ok(did_of_set(LIFE_DO_SPAWN, 0) && timer_is(0, LIFE_TIMER_START), "the first that dies is replaced at once");
	loaded(0, 0);
	ok(did(LIFE_DO_GO) && !did(LIFE_DO_GO)->first && !did(LIFE_DO_CHECK),
	   "its replacement does not run on_start again");
	dies(0);
	ok(!did(LIFE_DO_SPAWN) && timer_is(0, LIFE_TIMER_BACK_OFF),
	   "the next one that dies is replaced after a back-off");
	it(LIFE_EV_TIMER, 0);
	ok(did_of_set(LIFE_DO_SPAWN, 0), "and then it is");
	it(LIFE_EV_LOAD_FAILED, 0);
	ok(did_of_set(LIFE_DO_KILL, 0) && did(LIFE_DO_KILL)->cause == LIFE_FAILED_LOAD,
	   "a replacement that does not load is killed, and another one tries later");
	dies(0);
	it(LIFE_EV_TIMER, 0);
	it(LIFE_EV_NOT_SPAWNED, 0);
	ok(timer_is(0, LIFE_TIMER_BACK_OFF), "and so if there was no process to be had");
	it(LIFE_EV_TIMER, 0);
	loaded(0, 0);
	it(LIFE_EV_STARTED, 0);
	it(LIFE_EV_ENDED, 0);
	l.candidate[1].term = LIFE_OWES;
	it(LIFE_EV_GONE, 0);
	ok(did_of_set(LIFE_DO_SPAWN, 0),
	   "what has to run an on_stopped starts at once, since the lease is held until then");
}

static void test_replacement_while_moving(void)
{
	reloaded(the_same, 2);
	l.candidate[1].term = LIFE_BUSY;
	it(LIFE_EV_ENDED, 0);
	ok(!did(LIFE_DO_MOVE) || did(LIFE_DO_MOVE)->candidate == 0, "a term stays with its worker until that is gone");
	l.candidate[1].term = LIFE_OWES;
	it(LIFE_EV_GONE, 0);
	ok(l.candidate[1].side == 1 && !did(LIFE_DO_SPAWN) && did(LIFE_DO_SETTLED),
	   "after a reload no old worker is replaced: its candidates go over, with what they owe");
	it(LIFE_EV_STARTED, 1);
	ok(did(LIFE_DO_SERVE) && did(LIFE_DO_SERVE)->candidate == 0, "and the new worker serves them");
	reloaded(moved, 2);
	it(LIFE_EV_ENDED, 0);
	l.candidate[2].term = LIFE_OWES;
	it(LIFE_EV_GONE, 0);
	ok(did_of_set(LIFE_DO_SPAWN, 0), "but what is owed for an election that leaves, another old worker runs");
	running();
	dies(0);
	dies(0);
	l.candidate[1].term = LIFE_OWES;
	next_version(moved, 2);
	it(LIFE_EV_RELOAD, 0);
	loaded(1, 0);
	ok(did_of_set(LIFE_DO_SPAWN, 0), "and that one waits for no back-off");
	reloaded(the_same, 2);
	l.candidate[0].term = LIFE_NEXT;
	it(LIFE_EV_STARTED, 1);
	ok(did(LIFE_DO_STIR) && did(LIFE_DO_STIR)->candidate == 0, "what on_next runs ends, too");
	term(0, LIFE_BUSY);
	ok(did(LIFE_DO_STIR) && did(LIFE_DO_STIR)->candidate == 0, "and so does a term that begins meanwhile");
	follow();
	ok(!did(LIFE_DO_STIR), "once");
}

static void test_broken_version(void)
{
	reloaded(the_same, 2);
	dies(1);
	dies(1);
	ok(timer_is(1, LIFE_TIMER_BACK_OFF) && l.candidate[0].side == 0 && life_bar(&l, 0) == LIFE_MAY_CAMPAIGN,
	   "while the new version's worker dies again and again, the old one goes on");
	it(LIFE_EV_RELOAD, 0);
	ok(l.candidate[0].side == 1 && did_of_set(LIFE_DO_QUIT, 0),
	   "until a later version is asked for, which needs its place");
	dies(0);
	ok(did(LIFE_DO_LOAD) && did(LIFE_DO_LOAD)->side == 0, "and is loaded there");
}

static void test_orders(void)
{
	running();
	order(LIFE_EV_PAUSE, 1);
	ok(life_bar(&l, 1) == LIFE_BAR_PAUSED && life_bar(&l, 0) == LIFE_MAY_CAMPAIGN,
	   "an operator pauses one election");
	next_version(moved, 2);
	it(LIFE_EV_RELOAD, 0);
	loaded(1, 0);
	ok(life_bar(&l, 1) == LIFE_BAR_PAUSED && l.candidate[1].fresh,
	   "that holds for its name, also with another lock");
	running();
	order(LIFE_EV_PAUSE, LIFE_NONE);
	dies(0);
	loaded(0, 0);
	it(LIFE_EV_STARTED, 0);
	ok(life_bar(&l, 0) == LIFE_BAR_PAUSED && life_bar(&l, 1) == LIFE_BAR_PAUSED,
	   "a pause of all outlives the worker");
	order(LIFE_EV_RESUME, LIFE_NONE);
	ok(life_bar(&l, 0) == LIFE_MAY_CAMPAIGN, "a resume ends it");
}

static void test_end(void)
{
	running();
	l.candidate[0].term = LIFE_BUSY;
	order(LIFE_EV_END, LIFE_NONE);
	ok(did(LIFE_DO_END) && !did(LIFE_DO_QUIT),
	   "at the end all candidates end, and the worker stays until they have");
	term(1, LIFE_FINISHED);
	ok(!did(LIFE_DO_QUIT), "all of them");
	term(0, LIFE_FINISHED);
	ok(did_of_set(LIFE_DO_QUIT, 0) && timer_is(0, LIFE_TIMER_QUIT) && !did(LIFE_DO_OVER),
	   "then it has a time to leave");
	dies(0);
	ok(did(LIFE_DO_OVER) && !did(LIFE_DO_SPAWN), "and when it is gone, the program is over");
	begin();
	order(LIFE_EV_END, LIFE_NONE);
	ok(did_of_set(LIFE_DO_KILL, 0), "a worker that is loading at the end is killed");
	dies(0);
	ok(did(LIFE_DO_OVER) != NULL, "and then the program is over");
	running();
	dies(0);
	dies(0);
	l.candidate[0].term = LIFE_OWES;
	order(LIFE_EV_END, LIFE_NONE);
	ok(did_of_set(LIFE_DO_SPAWN, 0),
	   "at the end nobody waits out a back-off of a worker that is to run an on_stopped");
	running();
	l.candidate[0].term = LIFE_BUSY;
	order(LIFE_EV_KILL, LIFE_NONE);
	ok(did(LIFE_DO_KILL_TERM) && did_of_set(LIFE_DO_KILL, 0), "a kill waits for no hook");
	l.candidate[0].term = l.candidate[1].term = LIFE_FINISHED;
	dies(0);
	ok(did(LIFE_DO_OVER) && !did(LIFE_DO_SPAWN), "nothing is spawned after it");
	running();
	dies(0);
	dies(0);
	l.candidate[0].term = LIFE_OWES;
	order(LIFE_EV_KILL, LIFE_NONE);
	ok(!did(LIFE_DO_SPAWN), "not even what owes an on_stopped");
}

int main(void)
{
	test_first_load();
	test_reload();
	test_failed_reload();
	test_on_start();
	test_requests();
	test_take();
	test_names();
	test_replacement();
	test_replacement_while_moving();
	test_broken_version();
	test_orders();
	test_end();
	return tap_done();
}
