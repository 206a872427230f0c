#include "commands/look.h"

#include "base/mem.h"
#include "loop/offload.h"

#include <ev.h>
#include <stdlib.h>

#define READ_TIMEOUT (5 * NSEC_PER_SEC)

struct look {
	struct lock_env env;
	struct lock *lock;
	ev_timer timer;
	bool watches, changed;

	/* The read under way. */
	struct record *record;
	struct instant *at;
	struct err *err;
	enum lock_outcome outcome;
	bool done;
};

const char *look_url(const struct look *l)
{
	return l->lock->url;
}

static void on_changed(void *arg)
{
	struct look *l = arg;

	l->changed = true;
	ev_break(l->env.loop, EVBREAK_ALL);
}

static void on_timer(struct ev_loop *loop, ev_timer *w, int events)
{
	(void)w, (void)events;
	ev_break(loop, EVBREAK_ALL);
}

struct look *look_open(const char *url, struct err *err)
{
	struct look *l = mem_zero(sizeof *l);

	ev_timer_init(&l->timer, on_timer, 0, 0);
	l->env.loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
	if (!l->env.loop) {
		err_set(err, ERR_SYSTEM, "cannot make an event loop");
		goto fail;
	}
	l->env.offload = offload_new(l->env.loop, 1, err);
	if (!l->env.offload)
		goto fail;
	l->lock = lock_open(&l->env, url, err);
	if (!l->lock)
		goto fail;
	l->watches = l->lock->ops->watch && l->lock->ops->watch(l->lock, on_changed, l);
	return l;
fail:
	look_close(l);
	return NULL;
}

static void on_read(void *arg, const struct lock_result *r)
{
	struct look *l = arg;

	*l->at = clock_now();
	l->outcome = r->outcome;
	if (r->outcome == LOCK_OK)
		record_copy(l->record, r->record);
	else if (r->outcome != LOCK_ABSENT)
		*l->err = r->err;
	l->done = true;
	ev_break(l->env.loop, EVBREAK_ALL);
}

enum lock_outcome look_read(struct look *l, struct record *record, struct instant *at, struct err *err)
{
	l->record = record;
	l->at = at;
	l->err = err;
	l->done = l->changed = false;
	l->lock->ops->read(l->lock, instant_add(clock_now(), READ_TIMEOUT), on_read, l);
	while (!l->done)
		ev_run(l->env.loop, 0);
	return l->outcome;
}

void look_wait(struct look *l, nsec most, nsec poll)
{
	nsec wait = !l->watches && poll < most ? poll : most;

	if (l->changed)
		return;
	ev_now_update(l->env.loop);
	ev_timer_set(&l->timer, (double)wait / NSEC_PER_SEC, 0);
	ev_timer_start(l->env.loop, &l->timer);
	ev_run(l->env.loop, 0);
	ev_timer_stop(l->env.loop, &l->timer);
}

void look_close(struct look *l)
{
	if (l->lock)
		l->lock->ops->close(l->lock);
	lock_env_fini(&l->env);
	if (l->env.offload)
		offload_free(l->env.offload);
	if (l->env.loop)
		ev_loop_destroy(l->env.loop);
	free(l);
}
