#include "term/term_hooks.h"

#define CLEANUPS_MAX 2 /* if the replacement has to be killed too, one more worker tries, and no third one */
#define ANSWER_PARTS 2
#define WORKED (60 * NSEC_PER_SEC) /* a term that went on for longer was no failed start */

/* The first pause of term_back_off. A build for tests (make build/hasty/lunarch) has a shorter one. */
#ifndef TERM_BACK_OFF_FIRST_MS
#define TERM_BACK_OFF_FIRST_MS 1000
#endif

nsec term_back_off(unsigned failures)
{
	const nsec first = TERM_BACK_OFF_FIRST_MS * NSEC_PER_MS;
	unsigned doublings = failures > 6 ? 6 : failures;
	nsec d = first << (doublings ? doublings - 1 : 0);

	return d > 60 * first ? 60 * first : d;
}

void term_hooks_configure(struct term_hooks *h, const struct lease_times *t, nsec shutdown_grace, bool has_on_stopping,
                          bool has_on_stopped)
{
	h->lease = t->lease;
	h->grace = t->grace;
	h->shutdown_grace = shutdown_grace;
	h->has_on_stopping = has_on_stopping;
	h->has_on_stopped = has_on_stopped;
}

static bool hooks_runs(const struct term_hooks *h)
{
	return h->state == TERM_LEADING || h->state == TERM_DRAINING || h->state == TERM_STOPPING;
}

/* ---- parts of an answer ---- */

static void actions_note(struct term_actions *a, enum term_note what)
{
	a->set |= TERM_DO_LOG;
	a->note = what;
}

static void actions_end(struct term_actions *a, enum lease_reason reason, nsec sit_out, nsec grace)
{
	a->set |= TERM_DO_END;
	a->reason = reason;
	a->sit_out = sit_out;
	a->grace = grace;
}

static void hooks_set_timer(struct term_hooks *h, nsec after, struct term_actions *a)
{
	h->timing = true;
	a->set |= TERM_DO_TIMER;
	a->after = after;
}

static void actions_report(bool reaped, struct term_actions *a)
{
	a->set |= TERM_DO_REPORT;
	a->reaped = reaped;
}

static void actions_answer_save(uint64_t term, uint64_t save, enum term_saved how, const struct term_event *e,
                                struct term_actions *a)
{
	if (!e->now.ready)
		return;
	a->set |= TERM_DO_SAVED;
	a->saved_term = term;
	a->save = save;
	a->how = how;
}

/* The time to answer is in two parts. If this process is stopped until the first one is over, it reads the answer,
 * which has come meanwhile, before the second one is. */
static void hooks_await_answer(struct term_hooks *h, struct term_actions *a)
{
	if (!h->answer_timeout)
		return;
	h->unanswered = ANSWER_PARTS;
	hooks_set_timer(h, h->answer_timeout / ANSWER_PARTS, a);
}

/* The answer has come, or something else that has a deadline is waited for now. */
static void hooks_await_no_answer(struct term_hooks *h, struct term_actions *a)
{
	if (!h->unanswered)
		return;
	h->unanswered = 0;
	h->timing = false;
	a->set |= TERM_DO_TIMER_OFF;
}

/* The term is over: nothing of it runs (reaped), or something that cannot be killed. */
static void hooks_close(struct term_hooks *h, bool reaped, struct term_actions *a)
{
	bool hooked = h->state != TERM_NONE;

	h->state = TERM_NONE;
	h->cleanups = 0;
	h->let_go = h->timing = false;
	a->set |= TERM_DO_TIMER_OFF;
	if (hooked)
		a->set |= TERM_DO_OVER;
	actions_report(reaped, a);
	if (hooked && h->finished)
		a->set |= TERM_DO_FINISHED;
}

/* ---- the elector ---- */

/* It may be that no worker can lead, or that an earlier term is not over: an acquiring write that had been given up has
 * landed after all. Such a term ends at once. */
static void hooks_on_lead(struct term_hooks *h, const struct term_event *e, struct term_actions *a)
{
	if (!e->now.ready || h->state != TERM_NONE) {
		actions_end(a, LEASE_WORKER, term_back_off(++h->failures), 0);
		return;
	}
	h->state = TERM_LEADING;
	h->term = e->term;
	h->token = e->token;
	h->kill = e->kill;
	h->began = e->at;
	h->drains = h->has_on_stopping;
	h->unbegun = h->answer_timeout;
	a->set |= TERM_DO_ALLOW | TERM_DO_PAGE_BEGIN | TERM_DO_POKE | TERM_DO_LEAD | TERM_DO_BEGAN;
	a->end = e->end;
	a->kill = e->kill;
	hooks_await_answer(h, a);
}

/* The guard is told only of a nearer deadline. It finds a later one by itself: when the deadline that it knows passes,
 * it looks at the page. */
static void hooks_on_deadline(struct term_hooks *h, const struct term_event *e, struct term_actions *a)
{
	bool nearer = e->kill.boot < h->kill.boot || e->kill.raw < h->kill.raw;

	if (!hooks_runs(h))
		return;
	h->kill = e->kill;
	a->set |= TERM_DO_PAGE_EXTEND | (nearer ? TERM_DO_POKE : 0);
	a->end = e->end;
	a->kill = e->kill;
}

/* The end of a drain, or the beginning of a stop without one. */
static void hooks_stop_worker(struct term_hooks *h, bool held, struct instant stop_by, struct term_actions *a)
{
	if (h->state == TERM_DRAINING) {
		h->timing = false;
		a->set |= TERM_DO_TIMER_OFF;
	}
	hooks_await_no_answer(h, a);
	h->state = TERM_STOPPING;
	a->set |= TERM_DO_PAGE_STOP | TERM_DO_INTERRUPT | TERM_DO_STOP;
	a->held = held;
	a->kill = stop_by;
	a->reason = h->reason;
}

/* If the worker has ended, its guard has marked the end of the term before it kills what is left. The term is not over
 * for that: TERM_EV_DEAD or TERM_EV_EXITED follows. */
static void hooks_on_refused(struct term_hooks *h, const struct term_event *e, struct term_actions *a)
{
	if (h->state == TERM_LEADING && e->now.ready)
		actions_end(a, LEASE_EXPIRED, 0, 0);
	else if (h->state == TERM_DRAINING && e->now.ready)
		hooks_stop_worker(h, false, h->stop_by, a);
}

/* Whether on_stopping runs first: the term ends by somebody's will, and the lease is held meanwhile. */
static bool hooks_drain_before(const struct term_hooks *h, const struct term_event *e)
{
	bool by_will = e->reason == LEASE_RESIGNED || e->reason == LEASE_SHUTDOWN || e->reason == LEASE_RELOAD;

	return h->state == TERM_LEADING && h->drains && by_will && e->held && e->now.ready;
}

/* G of the time is left for on_stopped, but not more than half. */
static void hooks_drain(struct term_hooks *h, const struct term_event *e, struct term_actions *a)
{
	nsec all = instant_until(e->stop_by, e->at);

	hooks_await_no_answer(h, a);
	h->state = TERM_DRAINING;
	h->stop_by = e->stop_by;
	a->set |= TERM_DO_DRAIN;
	actions_note(a, TERM_NOTE_DRAINS);
	a->reason = e->reason;
	hooks_set_timer(h, h->grace < all / 2 ? all - h->grace : all / 2, a);
}

/* It may come twice for a term: the second time, with less time to stop, if the lease is lost while the script
 * stops. */
static void hooks_on_stop(struct term_hooks *h, const struct term_event *e, struct term_actions *a)
{
	if (h->let_go) { /* this is about a term that no worker was told to lead */
		actions_report(true, a);
		return;
	}
	h->reason = e->reason;
	switch (h->state) {
	case TERM_NONE:
	case TERM_GONE:
		hooks_close(h, true, a);
		return;
	case TERM_LEADING:
	case TERM_DRAINING:
	case TERM_STOPPING:
		if (hooks_drain_before(h, e))
			hooks_drain(h, e, a);
		else
			hooks_stop_worker(h, e->held, e->stop_by, a);
		return;
	case TERM_OWED:
	case TERM_CLEANING:
	case TERM_SWEEPING:
		return;
	}
}

static void hooks_on_ask(struct term_hooks *h, const struct term_event *e, struct term_actions *a)
{
	if (!e->now.ready)
		return; /* no answer is a no */
	a->set |= TERM_DO_ASK;
	a->ask = ++h->ask;
}

/* The answer, good or not, is for this save and all before it. If the present worker's save is a later one, the answer
 * is for a dead worker's. */
static void hooks_on_saved(struct term_hooks *h, const struct term_event *e, struct term_actions *a)
{
	if (!h->save || e->save < h->save_number)
		return;
	actions_answer_save(h->term, h->save, e->good ? TERM_SAVED_GOOD : TERM_SAVED_NOT, e, a);
	h->save = 0;
}

static void hooks_on_finished(struct term_hooks *h, const struct term_event *, struct term_actions *a)
{
	h->finished = true;
	a->set |= TERM_DO_FINISHED;
}

/* ---- the worker ---- */

static void hooks_on_answer(struct term_hooks *h, const struct term_event *e, struct term_actions *a)
{
	if (e->ask != h->ask)
		return;
	if (!e->yes)
		actions_note(a, TERM_NOTE_MAY_NOT_LEAD);
	a->set |= TERM_DO_ANSWER;
	a->yes = e->yes;
}

static void hooks_on_leads(struct term_hooks *h, const struct term_event *e, struct term_actions *a)
{
	if (e->term != h->term)
		return;
	h->unbegun = false;
	hooks_await_no_answer(h, a);
}

static void hooks_on_drained(struct term_hooks *h, const struct term_event *e, struct term_actions *a)
{
	if (e->term == h->term && h->state == TERM_DRAINING)
		hooks_stop_worker(h, true, h->stop_by, a);
}

static void hooks_on_stopped(struct term_hooks *h, const struct term_event *e, struct term_actions *a)
{
	if (e->term != h->term || (h->state != TERM_STOPPING && h->state != TERM_CLEANING))
		return;
	h->state = TERM_SWEEPING;
	a->set |= TERM_DO_SWEEP;
}

static nsec hooks_sitting_out(struct term_hooks *h, const struct term_event *e)
{
	if (e->sit_out_ms >= 0)
		return e->sit_out_ms < INT64_MAX / NSEC_PER_MS ? e->sit_out_ms * NSEC_PER_MS : NSEC_NEVER - 1;
	if (e->reason != LEASE_ERROR)
		return h->lease;
	h->failures = elapsed_standby(h->began, e->at) > WORKED ? 1 : h->failures + 1;
	return term_back_off(h->failures);
}

/* The time to stop at an end by somebody's will: on_stopping has the shutdown's, else it is G (0). */
static nsec hooks_grace(const struct term_hooks *h)
{
	return h->state == TERM_LEADING && h->drains ? h->shutdown_grace : 0;
}

static void hooks_on_ends(struct term_hooks *h, const struct term_event *e, struct term_actions *a)
{
	if (e->term != h->term || h->state != TERM_LEADING)
		return;
	h->hook_errors += e->reason == LEASE_ERROR;
	actions_note(a, TERM_NOTE_SCRIPT_ENDS);
	actions_end(a, e->reason, hooks_sitting_out(h, e), e->reason == LEASE_RESIGNED ? hooks_grace(h) : 0);
}

/* A save may come while an earlier one is still on its way. It takes that one's place, since it contains the newer
 * checkpoint. */
static void hooks_on_save(struct term_hooks *h, const struct term_event *e, struct term_actions *a)
{
	if (e->term != h->term || (!hooks_runs(h) && h->state != TERM_CLEANING)) {
		actions_answer_save(e->term, e->save, TERM_SAVED_NOT, e, a);
		return;
	}
	h->save = e->save;
	h->save_number = ++h->saves;
	a->set |= TERM_DO_SAVE;
	a->save = h->save_number;
}

static void hooks_on_save_failed(struct term_hooks *h, const struct term_event *e, struct term_actions *a)
{
	actions_answer_save(h->term, h->save, TERM_SAVED_REFUSED, e, a);
	h->save = 0;
}

/* ---- processes ---- */

/* A process that cannot be attributed may belong to any term of this worker. So the worker is killed, and all of them
 * end. */
static void hooks_on_swept(struct term_hooks *h, const struct term_event *e, struct term_actions *a)
{
	if (e->term != h->term || h->state != TERM_SWEEPING)
		return;
	if (!e->clean) {
		actions_note(a, TERM_NOTE_LEFTOVER);
		a->set |= TERM_DO_KILL;
		return;
	}
	a->set |= TERM_DO_PAGE_IDLE;
	hooks_close(h, true, a);
}

static bool hooks_owe(const struct term_hooks *h, const struct term_event *e)
{
	return h->has_on_stopped && !h->unbegun && h->cleanups < CLEANUPS_MAX && !e->now.killing &&
	       h->state != TERM_SWEEPING;
}

static void hooks_on_dead(struct term_hooks *h, const struct term_event *e, struct term_actions *a)
{
	bool leading = h->state == TERM_LEADING, owed = h->state == TERM_OWED;
	bool ending = h->state == TERM_DRAINING || h->state == TERM_STOPPING, cleaning = h->state == TERM_CLEANING;

	h->save = 0;
	hooks_await_no_answer(h, a);
	if (h->state == TERM_NONE)
		return;
	if (!e->reaped) {
		hooks_close(h, false, a);
		return;
	}
	if (h->state == TERM_GONE || (owed && hooks_owe(h, e))) /* a replacement died before it could run the hook */
		return;
	if (!owed && !cleaning) /* why the term ended is not changed by how its replacement ended */
		h->reason = ending && e->late ? LEASE_KILLED : LEASE_WORKER;
	if (h->state == TERM_DRAINING) /* the timer is that of the drain */
		h->timing = false;
	a->set |= TERM_DO_PAGE_IDLE;
	if (hooks_owe(h, e)) {
		h->state = TERM_OWED;
		actions_note(a, TERM_NOTE_OWED);
		if (!h->timing)
			hooks_set_timer(h, e->now.ending ? h->shutdown_grace : h->grace, a);
	} else {
		if (cleaning && !e->now.killing)
			actions_note(a, TERM_NOTE_GIVEN_UP);
		if (leading)
			h->state = TERM_GONE;
		else
			hooks_close(h, true, a);
	}
	if (leading)
		actions_end(a, LEASE_WORKER, term_back_off(++h->failures), h->state == TERM_OWED ? 2 * h->grace : 0);
}

static void hooks_clean_up(struct term_hooks *h, const struct term_event *e, struct term_actions *a)
{
	h->state = TERM_CLEANING;
	h->cleanups++;
	a->set |= TERM_DO_ALLOW | TERM_DO_PAGE_BEGIN | TERM_DO_PAGE_STOP | TERM_DO_POKE | TERM_DO_CLEAN_UP;
	a->end = e->at;
	a->kill = instant_add(e->at, h->grace);
	a->held = false;
	a->reason = h->reason;
	hooks_set_timer(h, h->grace, a);
}

static void hooks_on_ready(struct term_hooks *h, const struct term_event *e, struct term_actions *a)
{
	if (h->state == TERM_OWED)
		hooks_clean_up(h, e, a);
}

/* No replacement has come in time (the script may not load any more), so the lease is released. The hook is still owed:
 * a replacement that comes later runs it, and until then this candidate does not campaign. */
static void hooks_let_go(struct term_hooks *h, const struct term_event *e, struct term_actions *a)
{
	if (e->now.ending || e->now.once) {
		actions_note(a, TERM_NOTE_DROPPED);
		hooks_close(h, true, a);
		return;
	}
	actions_note(a, TERM_NOTE_LATE);
	h->let_go = true;
	actions_report(true, a);
}

/* If the worker is killed, it loses all of its elections. One that leads another, and is busy there, may go on. */
static void hooks_on_silence(struct term_hooks *h, const struct term_event *e, struct term_actions *a)
{
	if (!e->now.ready) /* its death follows */
		return;
	if (h->unanswered > 1) {
		h->unanswered--;
		hooks_set_timer(h, h->answer_timeout / ANSWER_PARTS, a);
		return;
	}
	actions_note(a, TERM_NOTE_SILENT);
	if (e->leads_another)
		hooks_await_answer(h, a);
	else
		a->set |= TERM_DO_KILL;
}

static void hooks_on_timer(struct term_hooks *h, const struct term_event *e, struct term_actions *a)
{
	h->timing = false;
	if (h->state == TERM_OWED)
		hooks_let_go(h, e, a);
	else if (h->state == TERM_CLEANING)
		a->set |= TERM_DO_KILL;
	else if (h->unanswered)
		hooks_on_silence(h, e, a);
	else if (h->state == TERM_DRAINING) {
		actions_note(a, TERM_NOTE_DRAIN_CUT);
		hooks_stop_worker(h, true, h->stop_by, a);
	}
}

/* ---- orders ---- */

static void hooks_on_resign(struct term_hooks *h, const struct term_event *e, struct term_actions *a)
{
	actions_end(a, LEASE_RESIGNED, e->sit_out == NSEC_NEVER ? h->lease : e->sit_out, hooks_grace(h));
}

static void hooks_on_end(struct term_hooks *h, const struct term_event *e, struct term_actions *a)
{
	if (h->state == TERM_OWED)
		hooks_set_timer(h, h->shutdown_grace, a);
	actions_end(a, e->reason, NSEC_NEVER, h->shutdown_grace);
}

static void hooks_on_kill(struct term_hooks *h, const struct term_event *e, struct term_actions *a)
{
	actions_end(a, LEASE_SHUTDOWN, NSEC_NEVER, 1);
	if (!e->now.running && h->state == TERM_OWED)
		hooks_close(h, true, a);
}

static void hooks_on_reload(struct term_hooks *h, const struct term_event *, struct term_actions *a)
{
	if (h->state == TERM_NONE)
		return;
	a->set |= TERM_DO_NEXT_TERM;
	a->grace = hooks_grace(h);
}

/* ---- a command ---- */

static void hooks_on_exited(struct term_hooks *h, const struct term_event *, struct term_actions *)
{
	if (h->state == TERM_LEADING)
		h->state = TERM_GONE;
}

static void hooks_on_started(struct term_hooks *h, const struct term_event *, struct term_actions *)
{
	if (h->state == TERM_GONE)
		h->state = TERM_LEADING;
}

static void (*const handlers[])(struct term_hooks *h, const struct term_event *e, struct term_actions *a) = {
	[TERM_EV_LEAD] = hooks_on_lead,         [TERM_EV_DEADLINE] = hooks_on_deadline,
	[TERM_EV_REFUSED] = hooks_on_refused,   [TERM_EV_STOP] = hooks_on_stop,
	[TERM_EV_ASK] = hooks_on_ask,           [TERM_EV_SAVED] = hooks_on_saved,
	[TERM_EV_FINISHED] = hooks_on_finished, [TERM_EV_ANSWER] = hooks_on_answer,
	[TERM_EV_STOPPED] = hooks_on_stopped,   [TERM_EV_ENDS] = hooks_on_ends,
	[TERM_EV_SAVE] = hooks_on_save,         [TERM_EV_SAVE_FAILED] = hooks_on_save_failed,
	[TERM_EV_SWEPT] = hooks_on_swept,       [TERM_EV_DEAD] = hooks_on_dead,
	[TERM_EV_READY] = hooks_on_ready,       [TERM_EV_TIMER] = hooks_on_timer,
	[TERM_EV_RESIGN] = hooks_on_resign,     [TERM_EV_END] = hooks_on_end,
	[TERM_EV_KILL] = hooks_on_kill,         [TERM_EV_RELOAD] = hooks_on_reload,
	[TERM_EV_DRAINED] = hooks_on_drained,   [TERM_EV_EXITED] = hooks_on_exited,
	[TERM_EV_STARTED] = hooks_on_started,   [TERM_EV_LEADS] = hooks_on_leads,
};

struct term_actions term_hooks_step(struct term_hooks *h, const struct term_event *e)
{
	struct term_actions a = { .event = e };

	handlers[e->kind](h, e, &a);
	return a;
}
