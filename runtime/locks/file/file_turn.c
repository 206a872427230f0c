#include "locks/file/file_turn.h"

#include "base/mem.h"
#include "locks/lock.h"

#include <ev.h>
#include <stdlib.h>

#define TURNS_MAX 16 /* more than there are threads, so that none of those idles */

struct turns {
	struct ev_loop *loop;
	ev_timer timer;
	struct file_turn *first, **last;
	int running;
};

static void turns_on_timer(struct ev_loop *, ev_timer *w, int)
{
	struct turns *q = w->data;

	while (q->first && q->running < TURNS_MAX) {
		struct file_turn *t = q->first;
		q->first = t->next;
		if (!q->first)
			q->last = &q->first;
		t->waiting = false;
		q->running++;
		t->begin(t);
	}
}

static void *turns_make(struct lock_env *env, struct err *)
{
	struct turns *q = mem_zero(sizeof *q);

	q->loop = env->loop;
	q->last = &q->first;
	ev_timer_init(&q->timer, turns_on_timer, 0., 0.);
	q->timer.data = q;
	return q;
}

static void turns_drop(void *object)
{
	struct turns *q = object;

	ev_timer_stop(q->loop, &q->timer);
	free(q);
}

static struct turns *turns_of(struct lock_env *env)
{
	static const char key;

	return lock_env_share(env, &key, turns_make, turns_drop, NULL);
}

static void turns_wake(struct turns *q)
{
	if (!q->first || q->running >= TURNS_MAX || ev_is_active(&q->timer) || ev_is_pending(&q->timer))
		return;
	if (ev_depth(q->loop) > 0) { /* inside a callback: right after it, without another look at what is ready */
		ev_feed_event(q->loop, &q->timer, EV_TIMER);
		return;
	}
	ev_timer_set(&q->timer, 0., 0.);
	ev_timer_start(q->loop, &q->timer);
}

void file_turn_ask(struct lock_env *env, struct file_turn *t)
{
	struct turns *q = turns_of(env);

	t->next = NULL;
	t->waiting = true;
	*q->last = t;
	q->last = &t->next;
	turns_wake(q);
}

void file_turn_leave(struct lock_env *env, struct file_turn *t)
{
	struct turns *q = turns_of(env);
	struct file_turn **at = &q->first;

	if (!t->waiting)
		return;
	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	if (!t->next)
		q->last = at;
	t->waiting = false;
}

void file_turn_over(struct lock_env *env)
{
	struct turns *q = turns_of(env);

	q->running--;
	turns_wake(q);
}
