/* What follows from what, in the supervision of a term: first every state and event in a table, then the rules that a
 * table of single steps does not show, one sentence each. */
#include "term/term_hooks.h"

#include "tap.h"

#define SEC NSEC_PER_SEC
#define TERM 7

static struct term_hooks h;
static struct term_actions a;
static struct term_context now;
static double clock_s;

static struct instant at(double s)
{
	return (struct instant){ (nsec)((s + 1000) * (double)SEC), (nsec)((s + 1000) * (double)SEC) };
}

static void step(struct term_event e)
{
	e.at = at(clock_s);
	e.now = now;
	a = term_hooks_step(&h, &e);
}

static void begin(void)
{
	struct lease_times t = { 0 };

	lease_times_default(&t);
	h = (struct term_hooks){ 0 };
	now = (struct term_context){ .ready = true, .running = true };
	clock_s = 0;
	term_hooks_configure(&h, &t, 20 * SEC, false, true);
}

static void lead(void)
{
	step((struct term_event){ .kind = TERM_EV_LEAD, .term = TERM, .token = 70, .end = at(10), .kill = at(13) });
}

static void stop(void)
{
	step((struct term_event){
		.kind = TERM_EV_STOP, .reason = LEASE_RESIGNED, .held = true, .stop_by = at(clock_s + 3) });
}

static void ready(void)
{
	now.ready = now.running = true;
	step((struct term_event){ .kind = TERM_EV_READY });
}

static void dead(bool reaped)
{
	now.ready = false;
	step((struct term_event){ .kind = TERM_EV_DEAD, .reaped = reaped });
	now.running = false;
}

static void stopped(uint64_t term)
{
	step((struct term_event){ .kind = TERM_EV_STOPPED, .term = term });
}

static void swept(bool clean)
{
	step((struct term_event){ .kind = TERM_EV_SWEPT, .term = TERM, .clean = clean });
}

static void timer(void)
{
	step((struct term_event){ .kind = TERM_EV_TIMER });
}

static void save(uint64_t number)
{
	step((struct term_event){ .kind = TERM_EV_SAVE, .term = TERM, .save = number });
}

static void saved(uint64_t number, bool good)
{
	step((struct term_event){ .kind = TERM_EV_SAVED, .save = number, .good = good });
}

/* The shortest way into a state. */
static void enter(enum term_state state)
{
	begin();
	h.has_on_stopped = state != TERM_GONE;
	h.has_on_stopping = state == TERM_DRAINING;
	if (state == TERM_NONE)
		return;
	lead();
	if (state == TERM_DRAINING || state == TERM_STOPPING || state == TERM_SWEEPING)
		stop();
	if (state == TERM_SWEEPING)
		stopped(TERM);
	if (state == TERM_OWED || state == TERM_CLEANING || state == TERM_GONE)
		dead(true);
	if (state == TERM_CLEANING)
		ready();
}

/* ---- the table ---- */

#define OVER (TERM_DO_TIMER_OFF | TERM_DO_OVER | TERM_DO_REPORT)
#define BEGINS (TERM_DO_ALLOW | TERM_DO_PAGE_BEGIN | TERM_DO_POKE)
#define STOPS (TERM_DO_PAGE_STOP | TERM_DO_INTERRUPT | TERM_DO_STOP)
#define UNDRAINS (STOPS | TERM_DO_TIMER_OFF)
#define CLEANS (BEGINS | TERM_DO_PAGE_STOP | TERM_DO_CLEAN_UP | TERM_DO_TIMER)

static const char *const names[] = {
	"NONE", "LEADING", "DRAINING", "STOPPING", "OWED", "CLEANING", "SWEEPING", "GONE"
};

static const struct row {
	const char *what;
	struct term_event e;
	struct {
		enum term_state to;
		unsigned set;
	} from[8]; /* as enum term_state counts */
} rows[] = {
	{ "the elector leads",
	  { .kind = TERM_EV_LEAD, .term = TERM + 1, .token = 71 },
	  { { TERM_LEADING, BEGINS | TERM_DO_LEAD | TERM_DO_BEGAN },
	    { TERM_LEADING, TERM_DO_END },
	    { TERM_DRAINING, TERM_DO_END },
	    { TERM_STOPPING, TERM_DO_END },
	    { TERM_OWED, TERM_DO_END },
	    { TERM_CLEANING, TERM_DO_END },
	    { TERM_SWEEPING, TERM_DO_END },
	    { TERM_GONE, TERM_DO_END } } },
	{ "its deadlines move on",
	  { .kind = TERM_EV_DEADLINE, .kill = { 2000 * SEC, 2000 * SEC } },
	  { { TERM_NONE, 0 },
	    { TERM_LEADING, TERM_DO_PAGE_EXTEND },
	    { TERM_DRAINING, TERM_DO_PAGE_EXTEND },
	    { TERM_STOPPING, TERM_DO_PAGE_EXTEND },
	    { TERM_OWED, 0 },
	    { TERM_CLEANING, 0 },
	    { TERM_SWEEPING, 0 },
	    { TERM_GONE, 0 } } },
	{ "its deadlines come nearer",
	  { .kind = TERM_EV_DEADLINE, .kill = { 1, 2000 * SEC } },
	  { { TERM_NONE, 0 },
	    { TERM_LEADING, TERM_DO_PAGE_EXTEND | TERM_DO_POKE },
	    { TERM_DRAINING, TERM_DO_PAGE_EXTEND | TERM_DO_POKE },
	    { TERM_STOPPING, TERM_DO_PAGE_EXTEND | TERM_DO_POKE },
	    { TERM_OWED, 0 },
	    { TERM_CLEANING, 0 },
	    { TERM_SWEEPING, 0 },
	    { TERM_GONE, 0 } } },
	{ "its deadlines come nearer by the other clock",
	  { .kind = TERM_EV_DEADLINE, .kill = { 2000 * SEC, 1 } },
	  { { TERM_NONE, 0 },
	    { TERM_LEADING, TERM_DO_PAGE_EXTEND | TERM_DO_POKE },
	    { TERM_DRAINING, TERM_DO_PAGE_EXTEND | TERM_DO_POKE },
	    { TERM_STOPPING, TERM_DO_PAGE_EXTEND | TERM_DO_POKE },
	    { TERM_OWED, 0 },
	    { TERM_CLEANING, 0 },
	    { TERM_SWEEPING, 0 },
	    { TERM_GONE, 0 } } },
	{ "the page does not take a deadline",
	  { .kind = TERM_EV_REFUSED },
	  { { TERM_NONE, 0 },
	    { TERM_LEADING, TERM_DO_END },
	    { TERM_STOPPING, UNDRAINS },
	    { TERM_STOPPING, 0 },
	    { TERM_OWED, 0 },
	    { TERM_CLEANING, 0 },
	    { TERM_SWEEPING, 0 },
	    { TERM_GONE, 0 } } },
	{ "the elector says stop",
	  { .kind = TERM_EV_STOP, .reason = LEASE_EXPIRED },
	  { { TERM_NONE, TERM_DO_TIMER_OFF | TERM_DO_REPORT },
	    { TERM_STOPPING, STOPS },
	    { TERM_STOPPING, UNDRAINS },
	    { TERM_STOPPING, STOPS },
	    { TERM_OWED, 0 },
	    { TERM_CLEANING, 0 },
	    { TERM_SWEEPING, 0 },
	    { TERM_NONE, OVER } } },
	{ "the elector has finished",
	  { .kind = TERM_EV_FINISHED },
	  { { TERM_NONE, TERM_DO_FINISHED },
	    { TERM_LEADING, TERM_DO_FINISHED },
	    { TERM_DRAINING, TERM_DO_FINISHED },
	    { TERM_STOPPING, TERM_DO_FINISHED },
	    { TERM_OWED, TERM_DO_FINISHED },
	    { TERM_CLEANING, TERM_DO_FINISHED },
	    { TERM_SWEEPING, TERM_DO_FINISHED },
	    { TERM_GONE, TERM_DO_FINISHED } } },
	{ "on_stopping has run",
	  { .kind = TERM_EV_DRAINED, .term = TERM },
	  { { TERM_NONE, 0 },
	    { TERM_LEADING, 0 },
	    { TERM_STOPPING, UNDRAINS },
	    { TERM_STOPPING, 0 },
	    { TERM_OWED, 0 },
	    { TERM_CLEANING, 0 },
	    { TERM_SWEEPING, 0 },
	    { TERM_GONE, 0 } } },
	{ "the worker says that it leads",
	  { .kind = TERM_EV_LEADS, .term = TERM },
	  { { TERM_NONE, 0 },
	    { TERM_LEADING, 0 },
	    { TERM_DRAINING, 0 },
	    { TERM_STOPPING, 0 },
	    { TERM_OWED, 0 },
	    { TERM_CLEANING, 0 },
	    { TERM_SWEEPING, 0 },
	    { TERM_GONE, 0 } } },
	{ "the worker has stopped",
	  { .kind = TERM_EV_STOPPED, .term = TERM },
	  { { TERM_NONE, 0 },
	    { TERM_LEADING, 0 },
	    { TERM_DRAINING, 0 },
	    { TERM_SWEEPING, TERM_DO_SWEEP },
	    { TERM_OWED, 0 },
	    { TERM_SWEEPING, TERM_DO_SWEEP },
	    { TERM_SWEEPING, 0 },
	    { TERM_GONE, 0 } } },
	{ "the script ends its term",
	  { .kind = TERM_EV_ENDS, .term = TERM, .reason = LEASE_RESIGNED, .sit_out_ms = 1 },
	  { { TERM_NONE, 0 },
	    { TERM_LEADING, TERM_DO_LOG | TERM_DO_END },
	    { TERM_DRAINING, 0 },
	    { TERM_STOPPING, 0 },
	    { TERM_OWED, 0 },
	    { TERM_CLEANING, 0 },
	    { TERM_SWEEPING, 0 },
	    { TERM_GONE, 0 } } },
	{ "the worker saves",
	  { .kind = TERM_EV_SAVE, .term = TERM, .save = 1, .now = { .ready = true } },
	  { { TERM_NONE, TERM_DO_SAVED },
	    { TERM_LEADING, TERM_DO_SAVE },
	    { TERM_DRAINING, TERM_DO_SAVE },
	    { TERM_STOPPING, TERM_DO_SAVE },
	    { TERM_OWED, 0 },
	    { TERM_CLEANING, TERM_DO_SAVE },
	    { TERM_SWEEPING, TERM_DO_SAVED },
	    { TERM_GONE, 0 } } },
	{ "nothing of the term is left",
	  { .kind = TERM_EV_SWEPT, .term = TERM, .clean = true },
	  { { TERM_NONE, 0 },
	    { TERM_LEADING, 0 },
	    { TERM_DRAINING, 0 },
	    { TERM_STOPPING, 0 },
	    { TERM_OWED, 0 },
	    { TERM_CLEANING, 0 },
	    { TERM_NONE, TERM_DO_PAGE_IDLE | OVER },
	    { TERM_GONE, 0 } } },
	{ "a leftover cannot be attributed",
	  { .kind = TERM_EV_SWEPT, .term = TERM },
	  { { TERM_NONE, 0 },
	    { TERM_LEADING, 0 },
	    { TERM_DRAINING, 0 },
	    { TERM_STOPPING, 0 },
	    { TERM_OWED, 0 },
	    { TERM_CLEANING, 0 },
	    { TERM_SWEEPING, TERM_DO_LOG | TERM_DO_KILL },
	    { TERM_GONE, 0 } } },
	{ "the worker is dead",
	  { .kind = TERM_EV_DEAD, .reaped = true },
	  { { TERM_NONE, 0 },
	    { TERM_OWED, TERM_DO_PAGE_IDLE | TERM_DO_LOG | TERM_DO_TIMER | TERM_DO_END },
	    { TERM_OWED, TERM_DO_PAGE_IDLE | TERM_DO_LOG | TERM_DO_TIMER },
	    { TERM_OWED, TERM_DO_PAGE_IDLE | TERM_DO_LOG | TERM_DO_TIMER },
	    { TERM_OWED, 0 },
	    { TERM_OWED, TERM_DO_PAGE_IDLE | TERM_DO_LOG },
	    { TERM_NONE, TERM_DO_PAGE_IDLE | OVER },
	    { TERM_GONE, 0 } } },
	{ "the worker is dead, but something it started is not",
	  { .kind = TERM_EV_DEAD },
	  { { TERM_NONE, 0 },
	    { TERM_NONE, OVER },
	    { TERM_NONE, OVER },
	    { TERM_NONE, OVER },
	    { TERM_NONE, OVER },
	    { TERM_NONE, OVER },
	    { TERM_NONE, OVER },
	    { TERM_NONE, OVER } } },
	{ "a worker is ready",
	  { .kind = TERM_EV_READY },
	  { { TERM_NONE, 0 },
	    { TERM_LEADING, 0 },
	    { TERM_DRAINING, 0 },
	    { TERM_STOPPING, 0 },
	    { TERM_CLEANING, CLEANS },
	    { TERM_CLEANING, 0 },
	    { TERM_SWEEPING, 0 },
	    { TERM_GONE, 0 } } },
	{ "the timer fires",
	  { .kind = TERM_EV_TIMER },
	  { { TERM_NONE, 0 },
	    { TERM_LEADING, 0 },
	    { TERM_STOPPING, TERM_DO_LOG | UNDRAINS },
	    { TERM_STOPPING, 0 },
	    { TERM_OWED, TERM_DO_LOG | TERM_DO_REPORT },
	    { TERM_CLEANING, TERM_DO_KILL },
	    { TERM_SWEEPING, 0 },
	    { TERM_GONE, 0 } } },
	{ "somebody resigns for it",
	  { .kind = TERM_EV_RESIGN, .sit_out = SEC },
	  { { TERM_NONE, TERM_DO_END },
	    { TERM_LEADING, TERM_DO_END },
	    { TERM_DRAINING, TERM_DO_END },
	    { TERM_STOPPING, TERM_DO_END },
	    { TERM_OWED, TERM_DO_END },
	    { TERM_CLEANING, TERM_DO_END },
	    { TERM_SWEEPING, TERM_DO_END },
	    { TERM_GONE, TERM_DO_END } } },
	{ "the program ends",
	  { .kind = TERM_EV_END, .reason = LEASE_SHUTDOWN },
	  { { TERM_NONE, TERM_DO_END },
	    { TERM_LEADING, TERM_DO_END },
	    { TERM_DRAINING, TERM_DO_END },
	    { TERM_STOPPING, TERM_DO_END },
	    { TERM_OWED, TERM_DO_TIMER | TERM_DO_END },
	    { TERM_CLEANING, TERM_DO_END },
	    { TERM_SWEEPING, TERM_DO_END },
	    { TERM_GONE, TERM_DO_END } } },
	{ "the program ends at once, and no worker runs",
	  { .kind = TERM_EV_KILL },
	  { { TERM_NONE, TERM_DO_END },
	    { TERM_LEADING, TERM_DO_END },
	    { TERM_DRAINING, TERM_DO_END },
	    { TERM_STOPPING, TERM_DO_END },
	    { TERM_NONE, TERM_DO_END | OVER },
	    { TERM_CLEANING, TERM_DO_END },
	    { TERM_SWEEPING, TERM_DO_END },
	    { TERM_GONE, TERM_DO_END } } },
	{ "the script is reloaded",
	  { .kind = TERM_EV_RELOAD },
	  { { TERM_NONE, 0 },
	    { TERM_LEADING, TERM_DO_NEXT_TERM },
	    { TERM_DRAINING, TERM_DO_NEXT_TERM },
	    { TERM_STOPPING, TERM_DO_NEXT_TERM },
	    { TERM_OWED, TERM_DO_NEXT_TERM },
	    { TERM_CLEANING, TERM_DO_NEXT_TERM },
	    { TERM_SWEEPING, TERM_DO_NEXT_TERM },
	    { TERM_GONE, TERM_DO_NEXT_TERM } } },
	{ "a command ends by itself",
	  { .kind = TERM_EV_EXITED },
	  { { TERM_NONE, 0 },
	    { TERM_GONE, 0 },
	    { TERM_DRAINING, 0 },
	    { TERM_STOPPING, 0 },
	    { TERM_OWED, 0 },
	    { TERM_CLEANING, 0 },
	    { TERM_SWEEPING, 0 },
	    { TERM_GONE, 0 } } },
	{ "a command runs again",
	  { .kind = TERM_EV_STARTED },
	  { { TERM_NONE, 0 },
	    { TERM_LEADING, 0 },
	    { TERM_DRAINING, 0 },
	    { TERM_STOPPING, 0 },
	    { TERM_OWED, 0 },
	    { TERM_CLEANING, 0 },
	    { TERM_SWEEPING, 0 },
	    { TERM_LEADING, 0 } } },
};

static void table(void)
{
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		bool good = true;
		for (enum term_state s = TERM_NONE; s <= TERM_GONE; s++) {
			enter(s);
			if (h.state != s) {
				printf("# %s is not reached\n", names[s]);
				good = false;
			}
			step(rows[i].e);
			if (h.state == rows[i].from[s].to && a.set == rows[i].from[s].set)
				continue;
			printf("# in %s: to %s with %#x, expected %s with %#x\n", names[s], names[h.state], a.set,
			       names[rows[i].from[s].to], rows[i].from[s].set);
			good = false;
		}
		ok(good, "in every state, this when %s", rows[i].what);
	}
}

/* ---- rules ---- */

static void a_term(void)
{
	begin();
	lead();
	ok(h.term == TERM && h.token == 70 && a.kill.boot == at(13).boot && a.end.raw == at(10).raw,
	   "a term begins with its number and token, and with the elector's deadlines in the page");
	ok(TERM_DO_ALLOW < TERM_DO_PAGE_BEGIN && TERM_DO_PAGE_BEGIN < TERM_DO_POKE && TERM_DO_POKE < TERM_DO_LEAD,
	   "the deadline is in the page, and the guard told of it, before the worker is told to lead");
	ok(TERM_DO_PAGE_STOP < TERM_DO_INTERRUPT && TERM_DO_INTERRUPT < TERM_DO_STOP,
	   "and likewise before it is told to stop, and interrupted");
	stop();
	ok(a.held && a.kill.boot == at(3).boot && a.reason == LEASE_RESIGNED && h.reason == LEASE_RESIGNED,
	   "stop goes to the worker with its reason and its deadline, and the page knows whether the lease is held");
	step((struct term_event){ .kind = TERM_EV_STOP, .reason = LEASE_EXPIRED, .stop_by = at(1) });
	ok(a.set == STOPS && !a.held && a.kill.boot == at(1).boot && h.reason == LEASE_EXPIRED,
	   "told to stop once more, as the lease is lost meanwhile, it hears the new deadline");
	stopped(TERM + 1);
	ok(h.state == TERM_STOPPING && !a.set, "that another term has stopped says nothing of this one");
	stopped(TERM);
	step((struct term_event){ .kind = TERM_EV_SWEPT, .term = TERM + 1, .clean = true });
	ok(h.state == TERM_SWEEPING && !a.set, "and neither does another term's sweep");
	swept(true);
	ok(a.reaped, "the elector hears once that nothing of the term runs");
	ok(TERM_DO_PAGE_IDLE < TERM_DO_OVER && TERM_DO_OVER < TERM_DO_END && TERM_DO_END < TERM_DO_REPORT,
	   "after the page is idle and whoever counts terms has heard of it");
	lead();
	step((struct term_event){ .kind = TERM_EV_ENDS, .term = TERM + 1 });
	ok(!a.set, "a term is not ended for another one's sake");
	step((struct term_event){ .kind = TERM_EV_DEADLINE, .kill = at(12) });
	step((struct term_event){ .kind = TERM_EV_DEADLINE, .kill = at(12) });
	ok(a.set == TERM_DO_PAGE_EXTEND, "a deadline that has come nearer is told to the guard once");
	step((struct term_event){ .kind = TERM_EV_REFUSED });
	ok(a.reason == LEASE_EXPIRED && a.sit_out == 0, "what the page refuses ends the term as expired");
	now.ready = false;
	step((struct term_event){ .kind = TERM_EV_REFUSED });
	ok(!a.set, "but not while what a worker left behind is being killed: its guard refuses for that reason");
}

static void drained(uint64_t term)
{
	step((struct term_event){ .kind = TERM_EV_DRAINED, .term = term });
}

/* The script of the term has on_stopping. */
static void ends_for(enum lease_reason reason, bool held, double grace_s)
{
	begin();
	h.has_on_stopping = true;
	lead();
	clock_s = 1;
	step((struct term_event){ .kind = TERM_EV_STOP, .reason = reason, .held = held, .stop_by = at(1 + grace_s) });
}

static void draining(void)
{
	for (enum lease_reason r = 0; r < LEASE_REASONS; r++) {
		bool by_will = r == LEASE_RESIGNED || r == LEASE_SHUTDOWN || r == LEASE_RELOAD;
		ends_for(r, true, 20);
		ok(h.state == (by_will ? TERM_DRAINING : TERM_STOPPING), "a term that ends as %s is %sdrained first",
		   lease_reason_name(r), by_will ? "" : "not ");
	}
	ends_for(LEASE_SHUTDOWN, false, 20);
	ok(h.state == TERM_STOPPING, "nor is one whose lease is lost");
	ends_for(LEASE_SHUTDOWN, true, 20);
	ok(a.set == (TERM_DO_LOG | TERM_DO_DRAIN | TERM_DO_TIMER) && a.reason == LEASE_SHUTDOWN && a.after == 17 * SEC,
	   "the worker drains while the page says that the term leads; G is left for on_stopped");
	drained(TERM + 1);
	ok(!a.set, "that another term has drained says nothing of this one");
	clock_s = 5;
	drained(TERM);
	ok(a.set == UNDRAINS && a.held && a.kill.boot == at(21).boot && a.reason == LEASE_SHUTDOWN,
	   "when on_stopping has run, the worker stops in all the time that is left");
	ends_for(LEASE_SHUTDOWN, true, 4);
	ok(a.after == 2 * SEC, "of a short time half is left for on_stopped");
	clock_s = 3;
	timer();
	ok(a.note == TERM_NOTE_DRAIN_CUT && a.kill.boot == at(5).boot && a.held,
	   "an on_stopping that takes longer is cut, and the log says so");
	ends_for(LEASE_RESIGNED, true, 20);
	step((struct term_event){ .kind = TERM_EV_STOP, .reason = LEASE_RESIGNED, .stop_by = at(2) });
	ok(a.set == UNDRAINS && !a.held && a.kill.boot == at(2).boot,
	   "so it is when the lease is lost: on_stopped runs in what time that leaves");
	timer();
	drained(TERM);
	ok(!a.set && h.state == TERM_STOPPING, "and is not cut again");
	ends_for(LEASE_RESIGNED, true, 20);
	now.ready = false;
	step((struct term_event){ .kind = TERM_EV_REFUSED });
	ok(!a.set, "a worker that has ended cannot be told to stop: its death follows");
	step((struct term_event){ .kind = TERM_EV_DEAD, .reaped = true, .late = true });
	ok(h.reason == LEASE_KILLED && a.after == 3 * SEC && a.set & TERM_DO_TIMER,
	   "a worker that dies in a drain owes on_stopped, and its replacement has its own time to come");
	begin();
	h.has_on_stopping = true;
	now.ready = true;
	lead();
	now.ready = false;
	stop();
	ok(h.state == TERM_STOPPING, "a worker that has ended is not asked to drain");

	begin();
	h.has_on_stopping = true;
	lead();
	step((struct term_event){ .kind = TERM_EV_RESIGN, .sit_out = SEC });
	ok(a.grace == 20 * SEC, "on_stopping has the shutdown's grace also when an operator resigns,");
	step((struct term_event){ .kind = TERM_EV_ENDS, .term = TERM, .reason = LEASE_RESIGNED, .sit_out_ms = 1 });
	ok(a.grace == 20 * SEC, "when the script resigns,");
	step((struct term_event){ .kind = TERM_EV_RELOAD });
	ok(a.grace == 20 * SEC, "and when it is reloaded");
	step((struct term_event){ .kind = TERM_EV_ENDS, .term = TERM, .reason = LEASE_ERROR, .sit_out_ms = 1 });
	ok(a.grace == 0, "but not after an error");
	h.has_on_stopping = false;
	step((struct term_event){ .kind = TERM_EV_RELOAD });
	stop();
	ok(h.state == TERM_DRAINING, "the script that runs drains, whatever the reloaded one has");
	begin();
	lead();
	step((struct term_event){ .kind = TERM_EV_RELOAD });
	ok(a.grace == 0, "without on_stopping G is all there is");
}

/* Told to lead, and its worker has so long to answer. */
static void unanswered(void)
{
	begin();
	h.answer_timeout = 30 * SEC;
	h.has_on_stopping = true;
	lead();
}

static void leads(uint64_t term)
{
	step((struct term_event){ .kind = TERM_EV_LEADS, .term = term });
}

static void the_answer(void)
{
	unanswered();
	ok(a.set == (BEGINS | TERM_DO_LEAD | TERM_DO_BEGAN | TERM_DO_TIMER) && a.after == 15 * SEC && h.unanswered,
	   "a worker that is told to lead has to answer: half of the time is measured first");
	leads(TERM - 1);
	ok(!a.set && h.unanswered, "an answer about another term is none");
	timer();
	ok(a.set == TERM_DO_TIMER && a.after == 15 * SEC && h.unanswered,
	   "then the other half: an answer that came while this process was stopped is read before that is over");
	leads(TERM);
	ok(a.set == TERM_DO_TIMER_OFF && !h.unanswered && h.state == TERM_LEADING, "it ends the wait");
	timer();
	leads(TERM);
	ok(!a.set && h.state == TERM_LEADING, "after it the term has no deadline");

	unanswered();
	timer();
	clock_s = 30;
	timer();
	ok(a.set == (TERM_DO_LOG | TERM_DO_KILL) && a.note == TERM_NOTE_SILENT && h.state == TERM_LEADING,
	   "a worker that has not answered in time is killed");
	now.ready = false;
	step((struct term_event){ .kind = TERM_EV_DEAD, .reaped = true });
	ok(h.state == TERM_GONE && !h.unanswered && a.set & TERM_DO_END && a.reason == LEASE_WORKER &&
	           a.sit_out == SEC && a.grace == 0,
	   "which ends the term as with any worker that dies, but on_stopped is not owed: no hook of it has run");
	timer();
	ok(!a.set, "and no timer goes on");
	unanswered();
	leads(TERM);
	now.ready = false;
	dead(true);
	ok(h.state == TERM_OWED && a.after == 3 * SEC, "it is of one that has answered");
	unanswered();
	stop();
	dead(true);
	ok(h.state == TERM_NONE && a.set & TERM_DO_REPORT, "nor of one that was told to stop before it had answered");
	unanswered();
	h.has_on_stopped = false;
	dead(true);
	ok(h.state == TERM_GONE && a.set & TERM_DO_TIMER_OFF && !h.unanswered,
	   "if nothing is owed the answer is not waited for either");

	unanswered();
	timer();
	step((struct term_event){ .kind = TERM_EV_TIMER, .leads_another = true });
	ok(a.set == (TERM_DO_LOG | TERM_DO_TIMER) && a.note == TERM_NOTE_SILENT && h.unanswered,
	   "one that leads another election is not killed for this one: a busy script never loses a lease");
	timer();
	timer();
	ok(a.set == (TERM_DO_LOG | TERM_DO_KILL), "but when it leads no other any more");
	unanswered();
	timer();
	now.ready = false;
	timer();
	ok(!a.set, "one that has ended is not killed: its death follows");

	unanswered();
	stop();
	ok(h.state == TERM_DRAINING && a.set == (TERM_DO_TIMER_OFF | TERM_DO_LOG | TERM_DO_DRAIN | TERM_DO_TIMER) &&
	           !h.unanswered,
	   "a drain has its own time");
	timer();
	ok(a.note == TERM_NOTE_DRAIN_CUT && !(a.set & TERM_DO_KILL), "at whose end it is cut");
	unanswered();
	step((struct term_event){ .kind = TERM_EV_STOP, .reason = LEASE_EXPIRED });
	ok(a.set == UNDRAINS && !h.unanswered, "and so has a stop");
	timer();
	ok(!a.set, "in which the guard kills");
	begin();
	lead();
	ok(!(a.set & TERM_DO_TIMER) && !h.unanswered, "a command has no answer to give");
}

static void nobody_to_lead(void)
{
	begin();
	now.ready = false;
	lead();
	ok(h.state == TERM_NONE && a.set == TERM_DO_END && a.reason == LEASE_WORKER && a.sit_out == SEC,
	   "without a worker nothing is led: the term ends, and the candidate stays away for a second");
	stop();
	ok(a.set == (TERM_DO_TIMER_OFF | TERM_DO_REPORT) && a.reaped, "and nothing had begun that could be over");
	lead();
	ok(a.sit_out == 2 * SEC, "after the second time for two");
	step((struct term_event){ .kind = TERM_EV_ASK });
	ok(!a.set, "nobody is asked whether to lead");
}

static void owed(void)
{
	begin();
	lead();
	clock_s = 1;
	dead(true);
	ok(h.reason == LEASE_WORKER && a.reason == LEASE_WORKER && a.sit_out == SEC && a.grace == 6 * SEC &&
	           a.after == 3 * SEC,
	   "a leader's worker that dies ends the term, with time for the replacement to run on_stopped");
	stop();
	ok(!a.set && h.state == TERM_OWED, "the lease is kept for it");
	clock_s = 2;
	ready();
	ok(a.kill.boot == at(5).boot && a.end.boot == at(2).boot && !a.held && a.after == 3 * SEC &&
	           a.reason == LEASE_RESIGNED,
	   "the hook has G, in a page in which the term has ended");
	dead(true);
	ok(h.state == TERM_OWED && !(a.set & TERM_DO_TIMER),
	   "if the replacement dies too, another one tries, in what time is left");
	ready();
	ok(h.state == TERM_CLEANING, "once more");
	dead(true);
	ok(h.state == TERM_NONE && a.set == (TERM_DO_PAGE_IDLE | TERM_DO_LOG | OVER) && a.reaped, "and no third one");
	is_int(a.note, TERM_NOTE_GIVEN_UP, "which is told");

	enter(TERM_STOPPING);
	step((struct term_event){ .kind = TERM_EV_DEAD, .reaped = true, .late = true });
	ready();
	step((struct term_event){ .kind = TERM_EV_DEAD, .reaped = true, .late = true });
	ready();
	ok(a.reason == LEASE_KILLED && h.state == TERM_CLEANING,
	   "the next replacement is told why the term ended, not how the last one died");

	enter(TERM_OWED);
	stop();
	step((struct term_event){ .kind = TERM_EV_DEAD, .reaped = true, .late = true });
	ok(h.reason == LEASE_RESIGNED, "a replacement that dies before it could begin changes nothing");

	enter(TERM_STOPPING);
	step((struct term_event){ .kind = TERM_EV_DEAD, .reaped = true, .late = true });
	ok(h.reason == LEASE_KILLED && h.state == TERM_OWED, "a worker that did not stop in time was killed");
	enter(TERM_STOPPING);
	dead(true);
	ok(h.reason == LEASE_WORKER, "one that died before that was not");
	enter(TERM_LEADING);
	step((struct term_event){ .kind = TERM_EV_DEAD, .reaped = true, .late = true });
	ok(h.reason == LEASE_WORKER, "nor one that had not been told to stop");

	enter(TERM_CLEANING);
	stopped(TERM);
	swept(true);
	lead();
	dead(true);
	ready();
	dead(true);
	ok(h.state == TERM_OWED, "each term has its own two replacements");
}

static void nothing_owed(void)
{
	begin();
	h.has_on_stopped = false;
	lead();
	dead(true);
	ok(h.state == TERM_GONE && a.set == (TERM_DO_PAGE_IDLE | TERM_DO_END) && a.grace == 0,
	   "a script without on_stopped owes nothing: the term ends");
	stop();
	ok(a.set == OVER && a.reaped, "and is over as soon as the elector says so");
	enter(TERM_STOPPING);
	h.has_on_stopped = false;
	dead(true);
	ok(a.set == (TERM_DO_PAGE_IDLE | OVER) && a.reaped, "or at once if it had said so");
	begin();
	dead(true);
	ok(!a.set, "of a candidate without a term nothing follows");
	enter(TERM_STOPPING);
	now.killing = true;
	dead(true);
	ok(a.set == (TERM_DO_PAGE_IDLE | OVER),
	   "nothing is owed either when the program leaves without waiting for hooks");
	enter(TERM_LEADING);
	dead(false);
	ok(a.set == OVER && !a.reaped, "what cannot be killed is never called reaped");
}

static void let_go(void)
{
	enter(TERM_OWED);
	stop();
	timer();
	ok(a.note == TERM_NOTE_LATE && a.reaped && h.state == TERM_OWED,
	   "when no replacement has come in time the lease is released, and the hook stays owed");
	step((struct term_event){ .kind = TERM_EV_LEAD, .term = TERM + 1, .token = 71 });
	ok(a.set == TERM_DO_END && h.term == TERM, "meanwhile nothing is led, if a write that was given up lands");
	step((struct term_event){ .kind = TERM_EV_STOP, .reason = LEASE_WORKER, .held = true });
	ok(a.set == TERM_DO_REPORT && a.reaped && h.state == TERM_OWED, "and what was not led has stopped");
	ready();
	ok(h.state == TERM_CLEANING && h.let_go,
	   "a worker that comes runs the hook before the candidate campaigns again");
	stopped(TERM);
	swept(true);
	ok(a.set == (TERM_DO_PAGE_IDLE | OVER) && !h.let_go, "which nothing of the term keeps it from after that");
	enter(TERM_OWED);
	now.ending = true;
	timer();
	ok(a.set == (TERM_DO_LOG | OVER) && a.note == TERM_NOTE_DROPPED, "a program that ends drops the hook");
	enter(TERM_OWED);
	now.once = true;
	timer();
	ok(a.set == (TERM_DO_LOG | OVER) && a.note == TERM_NOTE_DROPPED, "and so does one that is to lead once");
}

static void saves(void)
{
	enter(TERM_LEADING);
	save(1);
	uint64_t first = a.save;
	save(2);
	uint64_t last = a.save;
	ok(a.set == TERM_DO_SAVE && last > first,
	   "a later save overtakes one that is on its way, with a larger number");
	saved(first, false);
	ok(!a.set, "the elector's answer for the earlier one is nobody's any more");
	saved(last, true);
	ok(a.set == TERM_DO_SAVED && a.save == 2 && a.how == TERM_SAVED_GOOD && a.saved_term == TERM,
	   "the later one's is the worker's");
	saved(last, true);
	ok(!a.set, "once");
	save(3);
	saved(last + 1, false);
	ok(a.set == TERM_DO_SAVED && a.save == 3 && a.how == TERM_SAVED_NOT,
	   "a save that failed is said to have failed");
	save(4);
	step((struct term_event){ .kind = TERM_EV_SAVE_FAILED });
	ok(a.set == TERM_DO_SAVED && a.save == 4 && a.how == TERM_SAVED_REFUSED, "and one that is refused, refused");
	saved(last + 9, true);
	ok(!a.set, "that is its only answer");
	step((struct term_event){ .kind = TERM_EV_SAVE, .term = TERM - 1, .save = 5 });
	ok(a.set == TERM_DO_SAVED && a.save == 5 && a.saved_term == TERM - 1 && a.how == TERM_SAVED_NOT,
	   "an ended term's save is not put into this term's record");
	save(6);
	dead(true);
	ready();
	saved(last + 99, true);
	ok(!a.set, "a dead worker's save is not answered to its replacement");
}

static void asking(void)
{
	begin();
	step((struct term_event){ .kind = TERM_EV_ASK });
	uint64_t ask = a.ask;
	step((struct term_event){ .kind = TERM_EV_ASK });
	step((struct term_event){ .kind = TERM_EV_ANSWER, .ask = ask, .yes = true });
	ok(!a.set, "an answer to an earlier question is none");
	step((struct term_event){ .kind = TERM_EV_ANSWER, .ask = ask + 1, .yes = true });
	ok(a.set == TERM_DO_ANSWER && a.yes, "the worker's yes is the elector's");
	step((struct term_event){ .kind = TERM_EV_ANSWER, .ask = ask + 1 });
	ok(a.set == (TERM_DO_LOG | TERM_DO_ANSWER) && !a.yes, "and so is its no, which is logged");
}

static void ends(enum lease_reason reason, int64_t sit_out_ms)
{
	enter(TERM_LEADING);
	step((struct term_event){ .kind = TERM_EV_ENDS, .term = TERM, .reason = reason, .sit_out_ms = sit_out_ms });
}

static void sitting_out(void)
{
	ends(LEASE_DECLINED, 1500);
	ok(a.sit_out == 1500 * NSEC_PER_MS && a.reason == LEASE_DECLINED, "a script says how long to sit out");
	ends(LEASE_DECLINED, INT64_MAX);
	ok(a.sit_out == NSEC_NEVER - 1, "which may be long, but is not for good");
	ends(LEASE_DECLINED, -1);
	ok(a.sit_out == 15 * SEC && h.hook_errors == 0, "else it is one lease");
	ends(LEASE_ERROR, -1);
	ok(a.sit_out == SEC && h.hook_errors == 1, "after an error, which is counted, it is a second");
	clock_s = 60;
	h.state = TERM_LEADING;
	step((struct term_event){ .kind = TERM_EV_ENDS, .term = TERM, .reason = LEASE_ERROR, .sit_out_ms = -1 });
	ok(a.sit_out == 2 * SEC, "after a second one in a minute two");
	clock_s = 61;
	step((struct term_event){ .kind = TERM_EV_ENDS, .term = TERM, .reason = LEASE_ERROR, .sit_out_ms = -1 });
	ok(a.sit_out == SEC, "but a term that went on for longer was no failed start");
	ok(term_back_off(1) == SEC && term_back_off(6) == 32 * SEC && term_back_off(7) == 32 * SEC,
	   "it doubles up to 32 s");
	begin();
	step((struct term_event){ .kind = TERM_EV_RESIGN, .sit_out = NSEC_NEVER });
	ok(a.sit_out == 15 * SEC && a.reason == LEASE_RESIGNED, "who resigns sits out for one lease");
	step((struct term_event){ .kind = TERM_EV_RESIGN, .sit_out = 4 * SEC });
	ok(a.sit_out == 4 * SEC, "or for as long as the operator says");
}

static void leaving(void)
{
	enter(TERM_LEADING);
	step((struct term_event){ .kind = TERM_EV_END, .reason = LEASE_SHUTDOWN });
	ok(a.reason == LEASE_SHUTDOWN && a.sit_out == NSEC_NEVER && a.grace == 20 * SEC,
	   "an end for good gives the script the shutdown's grace");
	enter(TERM_OWED);
	step((struct term_event){ .kind = TERM_EV_END, .reason = LEASE_SHUTDOWN });
	ok(a.after == 20 * SEC, "and the replacement that owes a hook as long to come");
	enter(TERM_STOPPING);
	now.ending = true;
	dead(true);
	ok(a.after == 20 * SEC, "also when the worker dies afterwards");
	enter(TERM_OWED);
	now.running = true;
	step((struct term_event){ .kind = TERM_EV_KILL });
	ok(h.state == TERM_OWED && a.set == TERM_DO_END && a.grace == 1 && a.sit_out == NSEC_NEVER,
	   "a replacement that runs is waited for even then: it is being killed");
	enter(TERM_SWEEPING);
	step((struct term_event){ .kind = TERM_EV_FINISHED });
	swept(true);
	ok(a.set == (TERM_DO_PAGE_IDLE | OVER | TERM_DO_FINISHED),
	   "an elector that finished before the hooks had: the program may leave after them");
}

int main(void)
{
	table();
	a_term();
	draining();
	the_answer();
	nobody_to_lead();
	owed();
	nothing_owed();
	let_go();
	saves();
	asking();
	sitting_out();
	leaving();
	return tap_done();
}
