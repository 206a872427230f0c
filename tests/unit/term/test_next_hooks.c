/* What follows from what, in the supervision of on_next: first every state and event in a table, then the rules that
 * a table of single steps does not show, one sentence each. */
#include "term/next_hooks.h"

#include "tap.h"

static struct next_hooks h;
static struct on_next_actions a;
static bool ready, moves;

static void step(struct on_next_event e)
{
	e.ready = ready;
	e.moves = moves;
	a = next_hooks_step(&h, &e);
}

static void happens(enum on_next_event_kind kind)
{
	step((struct on_next_event){ .kind = kind });
}

static void stopped(uint32_t number, enum on_next_end end)
{
	step((struct on_next_event){ .kind = ON_NEXT_EV_STOPPED, .number = number, .end = end });
}

static void swept(uint32_t number, bool clean)
{
	step((struct on_next_event){ .kind = ON_NEXT_EV_SWEPT, .number = number, .clean = clean });
}

/* The shortest way into a state, with number 1. */
static void enter(enum on_next_state state)
{
	h = (struct next_hooks){ 0 };
	ready = true;
	moves = false;
	next_hooks_configure(&h, true, 3 * NSEC_PER_SEC);
	if (state == ON_NEXT_IDLE)
		return;
	happens(ON_NEXT_EV_NEXT);
	if (state == ON_NEXT_TAKING || state == ON_NEXT_TAKEN)
		happens(ON_NEXT_EV_LEAD);
	if (state == ON_NEXT_TAKEN)
		stopped(1, ON_NEXT_END_TAKEN);
	if (state == ON_NEXT_ENDING || state == ON_NEXT_SWEEPING)
		happens(ON_NEXT_EV_NOT_NEXT);
	if (state == ON_NEXT_SWEEPING)
		stopped(1, ON_NEXT_END_DONE);
}

/* ---- the table ---- */

#define ENDS (ON_NEXT_DO_OVER | ON_NEXT_DO_TIMER)
#define SWEEPS (ON_NEXT_DO_SWEEP | ON_NEXT_DO_TIMER_OFF)
#define RESTS (ON_NEXT_DO_IDLE | ON_NEXT_DO_TIMER_OFF)

static const char *const names[] = { "IDLE", "RUNNING", "TAKING", "TAKEN", "ENDING", "SWEEPING" };

static const struct row {
	const char *what;
	struct on_next_event e;
	struct {
		enum on_next_state to;
		unsigned set;
	} from[6]; /* as enum on_next_state counts */
} rows[] = {
	{ "it comes next",
	  { .kind = ON_NEXT_EV_NEXT },
	  { { ON_NEXT_RUNNING, ON_NEXT_DO_BEGIN },
	    { ON_NEXT_RUNNING, 0 },
	    { ON_NEXT_TAKING, 0 },
	    { ON_NEXT_TAKEN, 0 },
	    { ON_NEXT_ENDING, 0 },
	    { ON_NEXT_SWEEPING, 0 } } },
	{ "it does no more",
	  { .kind = ON_NEXT_EV_NOT_NEXT },
	  { { ON_NEXT_IDLE, 0 },
	    { ON_NEXT_ENDING, ENDS },
	    { ON_NEXT_TAKING, 0 },
	    { ON_NEXT_TAKEN, 0 },
	    { ON_NEXT_ENDING, 0 },
	    { ON_NEXT_SWEEPING, 0 } } },
	{ "it leads",
	  { .kind = ON_NEXT_EV_LEAD },
	  { { ON_NEXT_IDLE, 0 },
	    { ON_NEXT_TAKING, ON_NEXT_DO_TIMER },
	    { ON_NEXT_TAKING, 0 },
	    { ON_NEXT_TAKEN, 0 },
	    { ON_NEXT_ENDING, 0 },
	    { ON_NEXT_SWEEPING, 0 } } },
	{ "the term is over",
	  { .kind = ON_NEXT_EV_TERM_OVER },
	  { { ON_NEXT_IDLE, 0 },
	    { ON_NEXT_RUNNING, 0 },
	    { ON_NEXT_ENDING, ENDS },
	    { ON_NEXT_IDLE, 0 },
	    { ON_NEXT_ENDING, 0 },
	    { ON_NEXT_SWEEPING, 0 } } },
	{ "the worker has ended it",
	  { .kind = ON_NEXT_EV_STOPPED, .number = 1, .end = ON_NEXT_END_DONE },
	  { { ON_NEXT_IDLE, 0 },
	    { ON_NEXT_SWEEPING, SWEEPS },
	    { ON_NEXT_SWEEPING, SWEEPS },
	    { ON_NEXT_TAKEN, 0 },
	    { ON_NEXT_SWEEPING, SWEEPS },
	    { ON_NEXT_SWEEPING, 0 } } },
	{ "the worker's term has taken it",
	  { .kind = ON_NEXT_EV_STOPPED, .number = 1, .end = ON_NEXT_END_TAKEN },
	  { { ON_NEXT_IDLE, 0 },
	    { ON_NEXT_SWEEPING, SWEEPS },
	    { ON_NEXT_TAKEN, ON_NEXT_DO_TIMER_OFF },
	    { ON_NEXT_TAKEN, 0 },
	    { ON_NEXT_SWEEPING, SWEEPS },
	    { ON_NEXT_SWEEPING, 0 } } },
	{ "the worker says so of another number",
	  { .kind = ON_NEXT_EV_STOPPED, .number = 7, .end = ON_NEXT_END_DONE },
	  { { ON_NEXT_IDLE, 0 },
	    { ON_NEXT_RUNNING, 0 },
	    { ON_NEXT_TAKING, 0 },
	    { ON_NEXT_TAKEN, 0 },
	    { ON_NEXT_ENDING, 0 },
	    { ON_NEXT_SWEEPING, 0 } } },
	{ "its leftovers are killed",
	  { .kind = ON_NEXT_EV_SWEPT, .number = 1, .clean = true },
	  { { ON_NEXT_IDLE, 0 },
	    { ON_NEXT_RUNNING, 0 },
	    { ON_NEXT_TAKING, 0 },
	    { ON_NEXT_TAKEN, 0 },
	    { ON_NEXT_ENDING, 0 },
	    { ON_NEXT_IDLE, RESTS } } },
	{ "those of another number are",
	  { .kind = ON_NEXT_EV_SWEPT, .number = 7, .clean = true },
	  { { ON_NEXT_IDLE, 0 },
	    { ON_NEXT_RUNNING, 0 },
	    { ON_NEXT_TAKING, 0 },
	    { ON_NEXT_TAKEN, 0 },
	    { ON_NEXT_ENDING, 0 },
	    { ON_NEXT_SWEEPING, 0 } } },
	{ "something cannot be attributed",
	  { .kind = ON_NEXT_EV_SWEPT, .number = 1, .clean = false },
	  { { ON_NEXT_IDLE, 0 },
	    { ON_NEXT_RUNNING, 0 },
	    { ON_NEXT_TAKING, 0 },
	    { ON_NEXT_TAKEN, 0 },
	    { ON_NEXT_ENDING, 0 },
	    { ON_NEXT_SWEEPING, ON_NEXT_DO_KILL } } },
	{ "a reload's worker is to take over",
	  { .kind = ON_NEXT_EV_MOVE },
	  { { ON_NEXT_IDLE, 0 },
	    { ON_NEXT_ENDING, ENDS },
	    { ON_NEXT_TAKING, 0 },
	    { ON_NEXT_TAKEN, 0 },
	    { ON_NEXT_ENDING, 0 },
	    { ON_NEXT_SWEEPING, 0 } } },
	{ "the time is up",
	  { .kind = ON_NEXT_EV_TIMER },
	  { { ON_NEXT_IDLE, 0 },
	    { ON_NEXT_RUNNING, 0 },
	    { ON_NEXT_ENDING, ENDS },
	    { ON_NEXT_TAKEN, 0 },
	    { ON_NEXT_ENDING, ON_NEXT_DO_KILL },
	    { ON_NEXT_SWEEPING, 0 } } },
};

static void test_table(void)
{
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		for (int from = ON_NEXT_IDLE; from <= ON_NEXT_SWEEPING; from++) {
			enter((enum on_next_state)from);
			step(rows[i].e);
			if (!ok(h.state == rows[i].from[from].to && a.set == rows[i].from[from].set, "%s: %s",
			        names[from], rows[i].what))
				printf("# state %s, actions %x\n", names[h.state], a.set);
		}
	for (int from = ON_NEXT_IDLE; from <= ON_NEXT_SWEEPING; from++) {
		enter((enum on_next_state)from);
		ready = false;
		happens(ON_NEXT_EV_DEAD);
		ok(h.state == ON_NEXT_IDLE && a.set == RESTS, "%s: the worker is dead, and all that it ran",
		   names[from]);
	}
}

/* ---- the rules ---- */

static void test_term(void)
{
	enter(ON_NEXT_RUNNING);
	ok(next_hooks_takes(&h) == 0, "nothing is taken before it leads");
	happens(ON_NEXT_EV_LEAD);
	ok(next_hooks_takes(&h) == 1, "the term is told what to take");
	ok(next_hooks_swept_with_term(&h) == 0, "what was not answered is not swept with the term");
	stopped(1, ON_NEXT_END_TAKEN);
	ok(next_hooks_swept_with_term(&h) == 1, "what it has taken is");
	happens(ON_NEXT_EV_TERM_OVER);
	ok(next_hooks_takes(&h) == 0 && next_hooks_swept_with_term(&h) == 0, "once");
	happens(ON_NEXT_EV_NEXT);
	ok(a.set == ON_NEXT_DO_BEGIN && h.number == 2, "when it comes next again, on_next begins with another number");
	enter(ON_NEXT_ENDING);
	happens(ON_NEXT_EV_LEAD);
	ok(next_hooks_takes(&h) == 0 && h.state == ON_NEXT_ENDING,
	   "a term takes nothing that is over, nor waits for it");
	enter(ON_NEXT_TAKING);
	stopped(1, ON_NEXT_END_FAILED);
	ok(h.failed == 1 && a.set == SWEEPS && next_hooks_swept_with_term(&h) == 0,
	   "what failed while the term was to take it is swept by itself");
	enter(ON_NEXT_TAKING);
	ready = false;
	happens(ON_NEXT_EV_TERM_OVER);
	ok(a.set == 0, "a worker that has died is told nothing");
}

static void test_again(void)
{
	enter(ON_NEXT_ENDING);
	happens(ON_NEXT_EV_NEXT);
	stopped(1, ON_NEXT_END_DONE);
	ok(h.state == ON_NEXT_SWEEPING && !(a.set & ON_NEXT_DO_BEGIN),
	   "what comes next again waits until the earlier is over");
	swept(1, true);
	ok(h.state == ON_NEXT_RUNNING && a.set & ON_NEXT_DO_BEGIN && h.number == 2, "and swept");
	stopped(1, ON_NEXT_END_DONE);
	swept(1, true);
	ok(h.state == ON_NEXT_RUNNING, "a late word about the earlier changes nothing");
}

static void test_failed(void)
{
	enter(ON_NEXT_RUNNING);
	stopped(1, ON_NEXT_END_FAILED);
	swept(1, true);
	ok(h.state == ON_NEXT_IDLE && h.failed == 1, "an on_next that fails is not begun again");
	happens(ON_NEXT_EV_READY);
	ok(a.set == 0, "as long as it comes next");
	happens(ON_NEXT_EV_NOT_NEXT);
	happens(ON_NEXT_EV_NEXT);
	ok(a.set == ON_NEXT_DO_BEGIN, "but the next time");
	stopped(2, ON_NEXT_END_FAILED);
	ready = false;
	happens(ON_NEXT_EV_DEAD);
	ready = true;
	happens(ON_NEXT_EV_READY);
	ok(a.set == ON_NEXT_DO_BEGIN && h.number == 3, "or in another worker");
	enter(ON_NEXT_ENDING);
	stopped(1, ON_NEXT_END_DONE);
	is_int(h.failed, 0, "one that was told to end has not failed");
}

static void test_worker(void)
{
	enter(ON_NEXT_IDLE);
	ready = false;
	happens(ON_NEXT_EV_NEXT);
	ok(h.state == ON_NEXT_IDLE && a.set == 0, "without a worker on_next does not begin");
	ready = true;
	happens(ON_NEXT_EV_READY);
	ok(h.state == ON_NEXT_RUNNING && a.set == ON_NEXT_DO_BEGIN, "it does when there is one");
	ready = false;
	happens(ON_NEXT_EV_DEAD);
	happens(ON_NEXT_EV_NOT_NEXT);
	ready = true;
	happens(ON_NEXT_EV_READY);
	ok(h.state == ON_NEXT_IDLE && a.set == 0, "but not if it comes next no more by then");
}

static void test_reload(void)
{
	enter(ON_NEXT_RUNNING);
	moves = true;
	happens(ON_NEXT_EV_MOVE);
	stopped(1, ON_NEXT_END_DONE);
	swept(1, true);
	ok(h.state == ON_NEXT_IDLE && a.set & ON_NEXT_DO_IDLE && !(a.set & ON_NEXT_DO_BEGIN),
	   "a reload ends on_next, and it does not begin in the old worker");
	happens(ON_NEXT_EV_NEXT);
	ok(h.state == ON_NEXT_IDLE, "not even if it comes next then");
	moves = false;
	happens(ON_NEXT_EV_READY);
	ok(h.state == ON_NEXT_RUNNING && h.number == 2, "it begins in the new one");
}

static void test_time(void)
{
	enter(ON_NEXT_TAKING);
	happens(ON_NEXT_EV_TIMER);
	ok(a.note == ON_NEXT_NOTE_LATE && a.set == ENDS && next_hooks_takes(&h) == 0,
	   "an on_next that keeps the worker from leading is ended");
	happens(ON_NEXT_EV_TIMER);
	ok(a.note == ON_NEXT_NOTE_KILLS && a.set == ON_NEXT_DO_KILL, "and if that does not help, the worker is killed");
	enter(ON_NEXT_SWEEPING);
	swept(1, false);
	ok(a.note == ON_NEXT_NOTE_LEFTOVER && a.set == ON_NEXT_DO_KILL, "so it is if something cannot be attributed");
}

static void test_without(void)
{
	enter(ON_NEXT_IDLE);
	next_hooks_configure(&h, false, NSEC_PER_SEC);
	happens(ON_NEXT_EV_NEXT);
	happens(ON_NEXT_EV_LEAD);
	ok(h.state == ON_NEXT_IDLE && a.set == 0 && next_hooks_takes(&h) == 0,
	   "a script without the hooks is left alone");
	enter(ON_NEXT_RUNNING);
	next_hooks_configure(&h, false, NSEC_PER_SEC);
	happens(ON_NEXT_EV_NOT_NEXT);
	ok(a.set == ENDS, "but what runs is ended, if a reload has taken them away");
}

int main(void)
{
	test_table();
	test_term();
	test_again();
	test_failed();
	test_worker();
	test_reload();
	test_time();
	test_without();
	return tap_done();
}
