/* What follows from what, in the supervision of on_next: first every state and event in a table, then the rules that
 * a table of single steps does not show, one sentence each. */
#include "life/next_hooks.h"

#include "tap.h"

static struct next_hooks h;
static struct next_actions a;
static bool ready, moves;

static void step(struct next_event e)
{
	e.ready = ready;
	e.moves = moves;
	a = next_hooks_step(&h, &e);
}

static void happens(enum next_event_kind kind)
{
	step((struct next_event){ .kind = kind });
}

static void stopped(uint32_t number, enum next_end end)
{
	step((struct next_event){ .kind = NEXT_EV_STOPPED, .number = number, .end = end });
}

static void swept(uint32_t number, bool clean)
{
	step((struct next_event){ .kind = NEXT_EV_SWEPT, .number = number, .clean = clean });
}

/* The shortest way into a state, with number 1. */
static void enter(enum next_state state)
{
	h = (struct next_hooks){ 0 };
	ready = true;
	moves = false;
	next_hooks_configure(&h, true, 3 * NSEC_PER_SEC);
	if (state == NEXT_IDLE)
		return;
	happens(NEXT_EV_NEXT);
	if (state == NEXT_TAKING || state == NEXT_TAKEN)
		happens(NEXT_EV_LEAD);
	if (state == NEXT_TAKEN)
		stopped(1, NEXT_END_TAKEN);
	if (state == NEXT_ENDING || state == NEXT_SWEEPING)
		happens(NEXT_EV_NOT_NEXT);
	if (state == NEXT_SWEEPING)
		stopped(1, NEXT_END_DONE);
}

/* ---- the table ---- */

#define ENDS (NEXT_DO_OVER | NEXT_DO_TIMER)
#define SWEEPS (NEXT_DO_SWEEP | NEXT_DO_TIMER_OFF)
#define RESTS (NEXT_DO_IDLE | NEXT_DO_TIMER_OFF)

static const char *const names[] = { "IDLE", "RUNNING", "TAKING", "TAKEN", "ENDING", "SWEEPING" };

static const struct row {
	const char *what;
	struct next_event e;
	struct {
		enum next_state to;
		unsigned set;
	} from[6]; /* as enum next_state counts */
} rows[] = {
	{ "it comes next",
	  { .kind = NEXT_EV_NEXT },
	  { { NEXT_RUNNING, NEXT_DO_BEGIN },
	    { NEXT_RUNNING, 0 },
	    { NEXT_TAKING, 0 },
	    { NEXT_TAKEN, 0 },
	    { NEXT_ENDING, 0 },
	    { NEXT_SWEEPING, 0 } } },
	{ "it does no more",
	  { .kind = NEXT_EV_NOT_NEXT },
	  { { NEXT_IDLE, 0 },
	    { NEXT_ENDING, ENDS },
	    { NEXT_TAKING, 0 },
	    { NEXT_TAKEN, 0 },
	    { NEXT_ENDING, 0 },
	    { NEXT_SWEEPING, 0 } } },
	{ "it leads",
	  { .kind = NEXT_EV_LEAD },
	  { { NEXT_IDLE, 0 },
	    { NEXT_TAKING, NEXT_DO_TIMER },
	    { NEXT_TAKING, 0 },
	    { NEXT_TAKEN, 0 },
	    { NEXT_ENDING, 0 },
	    { NEXT_SWEEPING, 0 } } },
	{ "the term is over",
	  { .kind = NEXT_EV_TERM_OVER },
	  { { NEXT_IDLE, 0 },
	    { NEXT_RUNNING, 0 },
	    { NEXT_ENDING, ENDS },
	    { NEXT_IDLE, 0 },
	    { NEXT_ENDING, 0 },
	    { NEXT_SWEEPING, 0 } } },
	{ "the worker has ended it",
	  { .kind = NEXT_EV_STOPPED, .number = 1, .end = NEXT_END_DONE },
	  { { NEXT_IDLE, 0 },
	    { NEXT_SWEEPING, SWEEPS },
	    { NEXT_SWEEPING, SWEEPS },
	    { NEXT_TAKEN, 0 },
	    { NEXT_SWEEPING, SWEEPS },
	    { NEXT_SWEEPING, 0 } } },
	{ "the worker's term has taken it",
	  { .kind = NEXT_EV_STOPPED, .number = 1, .end = NEXT_END_TAKEN },
	  { { NEXT_IDLE, 0 },
	    { NEXT_SWEEPING, SWEEPS },
	    { NEXT_TAKEN, NEXT_DO_TIMER_OFF },
	    { NEXT_TAKEN, 0 },
	    { NEXT_SWEEPING, SWEEPS },
	    { NEXT_SWEEPING, 0 } } },
	{ "the worker says so of another number",
	  { .kind = NEXT_EV_STOPPED, .number = 7, .end = NEXT_END_DONE },
	  { { NEXT_IDLE, 0 },
	    { NEXT_RUNNING, 0 },
	    { NEXT_TAKING, 0 },
	    { NEXT_TAKEN, 0 },
	    { NEXT_ENDING, 0 },
	    { NEXT_SWEEPING, 0 } } },
	{ "its leftovers are killed",
	  { .kind = NEXT_EV_SWEPT, .number = 1, .clean = true },
	  { { NEXT_IDLE, 0 },
	    { NEXT_RUNNING, 0 },
	    { NEXT_TAKING, 0 },
	    { NEXT_TAKEN, 0 },
	    { NEXT_ENDING, 0 },
	    { NEXT_IDLE, RESTS } } },
	{ "those of another number are",
	  { .kind = NEXT_EV_SWEPT, .number = 7, .clean = true },
	  { { NEXT_IDLE, 0 },
	    { NEXT_RUNNING, 0 },
	    { NEXT_TAKING, 0 },
	    { NEXT_TAKEN, 0 },
	    { NEXT_ENDING, 0 },
	    { NEXT_SWEEPING, 0 } } },
	{ "something cannot be attributed",
	  { .kind = NEXT_EV_SWEPT, .number = 1, .clean = false },
	  { { NEXT_IDLE, 0 },
	    { NEXT_RUNNING, 0 },
	    { NEXT_TAKING, 0 },
	    { NEXT_TAKEN, 0 },
	    { NEXT_ENDING, 0 },
	    { NEXT_SWEEPING, NEXT_DO_KILL } } },
	{ "a reload's worker is to take over",
	  { .kind = NEXT_EV_MOVE },
	  { { NEXT_IDLE, 0 },
	    { NEXT_ENDING, ENDS },
	    { NEXT_TAKING, 0 },
	    { NEXT_TAKEN, 0 },
	    { NEXT_ENDING, 0 },
	    { NEXT_SWEEPING, 0 } } },
	{ "the time is up",
	  { .kind = NEXT_EV_TIMER },
	  { { NEXT_IDLE, 0 },
	    { NEXT_RUNNING, 0 },
	    { NEXT_ENDING, ENDS },
	    { NEXT_TAKEN, 0 },
	    { NEXT_ENDING, NEXT_DO_KILL },
	    { NEXT_SWEEPING, 0 } } },
};

static void test_table(void)
{
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		for (int from = NEXT_IDLE; from <= NEXT_SWEEPING; from++) {
			enter((enum next_state)from);
			step(rows[i].e);
			if (!ok(h.state == rows[i].from[from].to && a.set == rows[i].from[from].set, "%s: %s",
			        names[from], rows[i].what))
				printf("# state %s, actions %x\n", names[h.state], a.set);
		}
	for (int from = NEXT_IDLE; from <= NEXT_SWEEPING; from++) {
		enter((enum next_state)from);
		ready = false;
		happens(NEXT_EV_DEAD);
		ok(h.state == NEXT_IDLE && a.set == RESTS, "%s: the worker is dead, and all that it ran", names[from]);
	}
}

/* ---- the rules ---- */

static void test_term(void)
{
	enter(NEXT_RUNNING);
	ok(next_hooks_takes(&h) == 0, "nothing is taken before it leads");
	happens(NEXT_EV_LEAD);
	ok(next_hooks_takes(&h) == 1, "the term is told what to take");
	ok(next_hooks_swept_with_term(&h) == 0, "what was not answered is not swept with the term");
	stopped(1, NEXT_END_TAKEN);
	ok(next_hooks_swept_with_term(&h) == 1, "what it has taken is");
	happens(NEXT_EV_TERM_OVER);
	ok(next_hooks_takes(&h) == 0 && next_hooks_swept_with_term(&h) == 0, "once");
	happens(NEXT_EV_NEXT);
	ok(a.set == NEXT_DO_BEGIN && h.number == 2, "when it comes next again, on_next begins with another number");
	enter(NEXT_ENDING);
	happens(NEXT_EV_LEAD);
	ok(next_hooks_takes(&h) == 0 && h.state == NEXT_ENDING, "a term takes nothing that is over, nor waits for it");
	enter(NEXT_TAKING);
	stopped(1, NEXT_END_FAILED);
	ok(h.failed == 1 && a.set == SWEEPS && next_hooks_swept_with_term(&h) == 0,
	   "what failed while the term was to take it is swept by itself");
	enter(NEXT_TAKING);
	ready = false;
	happens(NEXT_EV_TERM_OVER);
	ok(a.set == 0, "a worker that has died is told nothing");
}

static void test_again(void)
{
	enter(NEXT_ENDING);
	happens(NEXT_EV_NEXT);
	stopped(1, NEXT_END_DONE);
	ok(h.state == NEXT_SWEEPING && !(a.set & NEXT_DO_BEGIN),
	   "what comes next again waits until the earlier is over");
	swept(1, true);
	ok(h.state == NEXT_RUNNING && a.set & NEXT_DO_BEGIN && h.number == 2, "and swept");
	stopped(1, NEXT_END_DONE);
	swept(1, true);
	ok(h.state == NEXT_RUNNING, "a late word about the earlier changes nothing");
}

static void test_failed(void)
{
	enter(NEXT_RUNNING);
	stopped(1, NEXT_END_FAILED);
	swept(1, true);
	ok(h.state == NEXT_IDLE && h.failed == 1, "an on_next that fails is not begun again");
	happens(NEXT_EV_READY);
	ok(a.set == 0, "as long as it comes next");
	happens(NEXT_EV_NOT_NEXT);
	happens(NEXT_EV_NEXT);
	ok(a.set == NEXT_DO_BEGIN, "but the next time");
	stopped(2, NEXT_END_FAILED);
	ready = false;
	happens(NEXT_EV_DEAD);
	ready = true;
	happens(NEXT_EV_READY);
	ok(a.set == NEXT_DO_BEGIN && h.number == 3, "or in another worker");
	enter(NEXT_ENDING);
	stopped(1, NEXT_END_DONE);
	is_int(h.failed, 0, "one that was told to end has not failed");
}

static void test_worker(void)
{
	enter(NEXT_IDLE);
	ready = false;
	happens(NEXT_EV_NEXT);
	ok(h.state == NEXT_IDLE && a.set == 0, "without a worker on_next does not begin");
	ready = true;
	happens(NEXT_EV_READY);
	ok(h.state == NEXT_RUNNING && a.set == NEXT_DO_BEGIN, "it does when there is one");
	ready = false;
	happens(NEXT_EV_DEAD);
	happens(NEXT_EV_NOT_NEXT);
	ready = true;
	happens(NEXT_EV_READY);
	ok(h.state == NEXT_IDLE && a.set == 0, "but not if it comes next no more by then");
}

static void test_reload(void)
{
	enter(NEXT_RUNNING);
	moves = true;
	happens(NEXT_EV_MOVE);
	stopped(1, NEXT_END_DONE);
	swept(1, true);
	ok(h.state == NEXT_IDLE && a.set & NEXT_DO_IDLE && !(a.set & NEXT_DO_BEGIN),
	   "a reload ends on_next, and it does not begin in the old worker");
	happens(NEXT_EV_NEXT);
	ok(h.state == NEXT_IDLE, "not even if it comes next then");
	moves = false;
	happens(NEXT_EV_READY);
	ok(h.state == NEXT_RUNNING && h.number == 2, "it begins in the new one");
}

static void test_time(void)
{
	enter(NEXT_TAKING);
	happens(NEXT_EV_TIMER);
	ok(a.note == NEXT_NOTE_LATE && a.set == ENDS && next_hooks_takes(&h) == 0,
	   "an on_next that keeps the worker from leading is ended");
	happens(NEXT_EV_TIMER);
	ok(a.note == NEXT_NOTE_KILLS && a.set == NEXT_DO_KILL, "and if that does not help, the worker is killed");
	enter(NEXT_SWEEPING);
	swept(1, false);
	ok(a.note == NEXT_NOTE_LEFTOVER && a.set == NEXT_DO_KILL, "so it is if something cannot be attributed");
}

static void test_without(void)
{
	enter(NEXT_IDLE);
	next_hooks_configure(&h, false, NSEC_PER_SEC);
	happens(NEXT_EV_NEXT);
	happens(NEXT_EV_LEAD);
	ok(h.state == NEXT_IDLE && a.set == 0 && next_hooks_takes(&h) == 0, "a script without the hooks is left alone");
	enter(NEXT_RUNNING);
	next_hooks_configure(&h, false, NSEC_PER_SEC);
	happens(NEXT_EV_NOT_NEXT);
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
