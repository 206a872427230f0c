#include "loop/timeline.h"

#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* ---- a real timeline: libev's timers ---- */

static double loop_now(struct timeline *)
{
	return (double)clock_monotonic() / NSEC_PER_SEC;
}

static void loop_due(struct ev_loop *, ev_timer *w, int)
{
	struct timer *t = w->data;

	t->due(t);
}

static void loop_init(struct timer *t)
{
	ev_init(&t->loop, loop_due);
	t->loop.data = t;
}

static void loop_start(struct timeline *l, struct timer *t, double after_s)
{
	ev_now_update(l->loop); /* the script may have run for long since the loop read the time */
	ev_timer_set(&t->loop, after_s, 0.);
	ev_timer_start(l->loop, &t->loop);
}

static void loop_stop(struct timeline *l, struct timer *t)
{
	ev_timer_stop(l->loop, &t->loop);
}

static const struct timeline_ops loop_ops = {
	.now = loop_now, .init = loop_init, .start = loop_start, .stop = loop_stop
};

/* ---- a simulated timeline: a heap by time, then by order of starting ---- */

static double virtual_now(struct timeline *l)
{
	return *l->now;
}

static void virtual_init(struct timer *t)
{
	t->virtual.place = 0;
}

static bool before(const struct timer *a, const struct timer *b)
{
	return a->virtual.at < b->virtual.at || (a->virtual.at == b->virtual.at && a->virtual.order < b->virtual.order);
}

static void heap_put(struct timeline *l, struct timer *t, size_t place)
{
	l->heap[place - 1] = t;
	t->virtual.place = place;
}

static void rise(struct timeline *l, struct timer *t, size_t place)
{
	for (; place > 1 && before(t, l->heap[place / 2 - 1]); place /= 2)
		heap_put(l, l->heap[place / 2 - 1], place);
	heap_put(l, t, place);
}

static void sink(struct timeline *l, struct timer *t, size_t place)
{
	for (size_t child; (child = 2 * place) <= l->running; place = child) {
		if (child < l->running && before(l->heap[child], l->heap[child - 1]))
			child++;
		if (!before(l->heap[child - 1], t))
			break;
		heap_put(l, l->heap[child - 1], place);
	}
	heap_put(l, t, place);
}

static void virtual_start(struct timeline *l, struct timer *t, double after_s)
{
	if (l->running == l->room) {
		l->room = l->room ? 2 * l->room : 16;
		l->heap = mem_resize(l->heap, l->room * sizeof(struct timer *));
	}
	t->virtual.at = *l->now + after_s;
	t->virtual.order = ++l->order;
	rise(l, t, ++l->running);
}

static void virtual_stop(struct timeline *l, struct timer *t)
{
	size_t place = t->virtual.place;

	if (!place)
		return;
	t->virtual.place = 0;
	struct timer *last = l->heap[--l->running];
	if (last == t)
		return;
	sink(l, last, place);
	rise(l, last, last->virtual.place);
}

static const struct timeline_ops virtual_ops = {
	.now = virtual_now,
	.init = virtual_init,
	.start = virtual_start,
	.stop = virtual_stop,
};

double timeline_first(const struct timeline *l)
{
	return l->running ? l->heap[0]->virtual.at : HUGE_VAL;
}

void timeline_fire(struct timeline *l)
{
	struct timer *t = l->heap[0];

	virtual_stop(l, t);
	t->due(t);
}

/* ---- both ---- */

void timeline_init(struct timeline *l, struct ev_loop *loop)
{
	*l = (struct timeline){ .ops = &loop_ops, .loop = loop };
}

void timeline_init_virtual(struct timeline *l, const double *now)
{
	*l = (struct timeline){ .ops = &virtual_ops, .now = now };
}

void timeline_fini(struct timeline *l)
{
	free(l->heap);
	*l = (struct timeline){ 0 };
}

double timeline_now(struct timeline *l)
{
	return l->ops->now(l);
}

void timer_init(struct timeline *l, struct timer *t, void (*due)(struct timer *))
{
	t->due = due;
	l->ops->init(t);
}

void timer_start(struct timeline *l, struct timer *t, double after_s)
{
	l->ops->stop(l, t);
	l->ops->start(l, t, after_s);
}

void timer_stop(struct timeline *l, struct timer *t)
{
	l->ops->stop(l, t);
}
