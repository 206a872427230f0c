#include "term/next_hooks.h"

void next_hooks_configure(struct next_hooks *h, bool has, nsec grace)
{
	h->has = has;
	h->grace = grace;
}

uint32_t next_hooks_takes(const struct next_hooks *h)
{
	return h->state == ON_NEXT_TAKING ? h->number : 0;
}

/* An on_next that is still being taken is left out: the worker has not answered, so it may be ending it beside the
 * term. */
uint32_t next_hooks_swept_with_term(const struct next_hooks *h)
{
	return h->state == ON_NEXT_TAKEN ? h->number : 0;
}

static void hooks_begin(struct next_hooks *h, const struct on_next_event *e, struct on_next_actions *a)
{
	if (!h->has || !h->next || h->cold || e->moves || !e->ready || h->state != ON_NEXT_IDLE)
		return;
	h->state = ON_NEXT_RUNNING;
	h->number++;
	a->set |= ON_NEXT_DO_BEGIN;
}

static void hooks_rest(struct next_hooks *h, const struct on_next_event *e, struct on_next_actions *a)
{
	h->state = ON_NEXT_IDLE;
	a->set |= ON_NEXT_DO_TIMER_OFF | ON_NEXT_DO_IDLE;
	hooks_begin(h, e, a);
}

static void hooks_end(struct next_hooks *h, struct on_next_actions *a)
{
	h->state = ON_NEXT_ENDING;
	a->set |= ON_NEXT_DO_OVER | ON_NEXT_DO_TIMER;
}

static void hooks_end_running(struct next_hooks *h, const struct on_next_event *, struct on_next_actions *a)
{
	if (h->state == ON_NEXT_RUNNING)
		hooks_end(h, a);
}

static void hooks_on_lead(struct next_hooks *h, const struct on_next_event *, struct on_next_actions *a)
{
	h->next = false;
	if (h->state != ON_NEXT_RUNNING)
		return;
	h->state = ON_NEXT_TAKING;
	a->set |= ON_NEXT_DO_TIMER;
}

/* An on_next that is being taken, and has no answer yet, is not the term's: the worker has failed it, or does not
 * listen. */
static void hooks_on_term_over(struct next_hooks *h, const struct on_next_event *e, struct on_next_actions *a)
{
	if (h->state == ON_NEXT_TAKEN) {
		h->state = ON_NEXT_IDLE;
		hooks_begin(h, e, a);
	} else if (h->state == ON_NEXT_TAKING && e->ready) {
		hooks_end(h, a);
	}
}

static void hooks_on_stopped(struct next_hooks *h, const struct on_next_event *e, struct on_next_actions *a)
{
	bool waits = h->state == ON_NEXT_RUNNING || h->state == ON_NEXT_TAKING || h->state == ON_NEXT_ENDING;

	if (e->number != h->number || !waits)
		return;
	a->set |= ON_NEXT_DO_TIMER_OFF;
	if (e->end == ON_NEXT_END_TAKEN && h->state == ON_NEXT_TAKING) {
		h->state = ON_NEXT_TAKEN;
		return;
	}
	h->failed += e->end == ON_NEXT_END_FAILED;
	h->cold = h->cold || h->state == ON_NEXT_RUNNING;
	h->state = ON_NEXT_SWEEPING;
	a->set |= ON_NEXT_DO_SWEEP;
}

/* A process that cannot be attributed may belong to any term or on_next of this worker, as in term_hooks.c. */
static void hooks_on_swept(struct next_hooks *h, const struct on_next_event *e, struct on_next_actions *a)
{
	if (e->number != h->number || h->state != ON_NEXT_SWEEPING)
		return;
	if (e->clean) {
		hooks_rest(h, e, a);
		return;
	}
	a->note = ON_NEXT_NOTE_LEFTOVER;
	a->set |= ON_NEXT_DO_KILL;
}

static void hooks_on_timer(struct next_hooks *h, const struct on_next_event *, struct on_next_actions *a)
{
	if (h->state == ON_NEXT_TAKING) {
		a->note = ON_NEXT_NOTE_LATE;
		hooks_end(h, a);
	} else if (h->state == ON_NEXT_ENDING) {
		a->note = ON_NEXT_NOTE_KILLS;
		a->set |= ON_NEXT_DO_KILL;
	}
}

static void (*const handlers[])(struct next_hooks *h, const struct on_next_event *e, struct on_next_actions *a) = {
	[ON_NEXT_EV_NEXT] = hooks_begin,
	[ON_NEXT_EV_READY] = hooks_begin,
	[ON_NEXT_EV_NOT_NEXT] = hooks_end_running,
	[ON_NEXT_EV_MOVE] = hooks_end_running,
	[ON_NEXT_EV_LEAD] = hooks_on_lead,
	[ON_NEXT_EV_TERM_OVER] = hooks_on_term_over,
	[ON_NEXT_EV_STOPPED] = hooks_on_stopped,
	[ON_NEXT_EV_SWEPT] = hooks_on_swept,
	[ON_NEXT_EV_DEAD] = hooks_rest,
	[ON_NEXT_EV_TIMER] = hooks_on_timer,
};

struct on_next_actions next_hooks_step(struct next_hooks *h, const struct on_next_event *e)
{
	struct on_next_actions a = { 0 };
	enum on_next_event_kind kind = e->kind;

	h->next = kind == ON_NEXT_EV_NEXT || (h->next && kind != ON_NEXT_EV_NOT_NEXT);
	h->cold = h->cold && kind != ON_NEXT_EV_NEXT && kind != ON_NEXT_EV_DEAD && kind != ON_NEXT_EV_MOVE;
	handlers[kind](h, e, &a);
	return a;
}
