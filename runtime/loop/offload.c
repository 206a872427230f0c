#include "loop/offload.h"

#include "base/log.h"
#include "base/mem.h"

#include <ev.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STACK_BYTES (512 * 1024) /* enough for libraries; a page that is never used takes no memory */
#define RETRY_AFTER (100 * NSEC_PER_MS)

struct offload {
	struct ev_loop *loop;
	ev_async finished;
	ev_timer retry; /* active while a thread that is wanted cannot be started */
	pthread_mutex_t mutex;
	pthread_cond_t more, idle;
	struct offload_job *todo, **todo_end;
	struct offload_job *done, **done_end;
	int threads, most;
	int busy, waiting; /* how many jobs run, how many wait for a thread */
	bool closed;
	bool short_of_threads; /* which has been said */
};

static void append(struct offload_job ***end, struct offload_job *j)
{
	j->next = NULL;
	**end = j;
	*end = &j->next;
}

static struct offload_job *take_first(struct offload_job **first, struct offload_job ***end)
{
	struct offload_job *j = *first;

	*first = j->next;
	if (!*first)
		*end = first;
	return j;
}

static void offload_destroy(struct offload *o)
{
	pthread_cond_destroy(&o->more);
	pthread_cond_destroy(&o->idle);
	pthread_mutex_destroy(&o->mutex);
	free(o);
}

static void *thread_main(void *arg)
{
	struct offload *o = arg;

	pthread_mutex_lock(&o->mutex);
	for (;;) {
		while (!o->todo && !o->closed)
			pthread_cond_wait(&o->more, &o->mutex);
		if (o->closed)
			break;
		struct offload_job *j = take_first(&o->todo, &o->todo_end);
		o->waiting--;
		o->busy++;
		pthread_mutex_unlock(&o->mutex);
		j->work(j);
		pthread_mutex_lock(&o->mutex);
		o->busy--;
		append(&o->done_end, j);
		if (!o->busy && !o->waiting)
			pthread_cond_signal(&o->idle);
		if (!o->closed)
			ev_async_send(o->loop, &o->finished);
	}
	bool last = --o->threads == 0;
	pthread_mutex_unlock(&o->mutex);
	if (last)
		offload_destroy(o);
	return NULL;
}

/* The threads block all signals, which the loop's thread handles. The result is an errno. */
static int start_thread(struct offload *o)
{
	pthread_attr_t attr;
	pthread_t id;
	sigset_t all, before;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	int error = pthread_create(&id, &attr, thread_main, o);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return error;
}

static void say_short(struct offload *o, int error, int there_are)
{
	if (!error && o->short_of_threads)
		log_event(LOG_INFO, NULL, "thread_started", "a thread could be started: what waited for it is done");
	else if (error && !o->short_of_threads)
		log_event(
			LOG_WARN, NULL, "no_thread",
			"no thread can be started (%s), of %d there are %d: files, names and log-ins that may have to be waited "
			"for wait until one can be, or one is free, since on this thread they would hold up the "
			"renewals. Allow this more processes and threads (pids.max or TasksMax= of its cgroup, "
			"ulimit -u), or more memory",
			strerrordesc_np(error), o->most, there_are);
	o->short_of_threads = error != 0;
}

/* Waiting jobs count, too: a thread that was woken for one of them is not free for another. */
static bool wants_thread(const struct offload *o)
{
	return o->busy + o->waiting > o->threads && o->threads < o->most;
}

/* false: a thread that is wanted cannot be started. Others may be there, but a job may hang in each of them. */
static bool add_threads(struct offload *o)
{
	int error = 0;

	pthread_mutex_lock(&o->mutex);
	bool wanted = wants_thread(o);
	while (!error && wants_thread(o)) {
		error = start_thread(o);
		o->threads += !error;
	}
	int there_are = o->threads;
	pthread_mutex_unlock(&o->mutex);
	if (wanted)
		say_short(o, error, there_are);
	return !error;
}

/* This timer alone must not keep the loop running either. */
static void stop_retrying(struct offload *o)
{
	if (!ev_is_active(&o->retry))
		return;
	ev_ref(o->loop);
	ev_timer_stop(o->loop, &o->retry);
}

static void retry_later(struct offload *o)
{
	if (ev_is_active(&o->retry))
		return;
	ev_now_update(o->loop);
	ev_timer_set(&o->retry, (double)RETRY_AFTER / NSEC_PER_SEC, (double)RETRY_AFTER / NSEC_PER_SEC);
	ev_timer_start(o->loop, &o->retry);
	ev_unref(o->loop);
}

static void offload_on_retry(struct ev_loop *, ev_timer *w, int)
{
	struct offload *o = w->data;

	if (add_threads(o))
		stop_retrying(o);
}

static void offload_on_finished(struct ev_loop *, ev_async *w, int)
{
	struct offload *o = w->data;

	pthread_mutex_lock(&o->mutex);
	while (o->done) {
		struct offload_job *j = take_first(&o->done, &o->done_end);
		pthread_mutex_unlock(&o->mutex);
		j->done(j);
		pthread_mutex_lock(&o->mutex);
	}
	pthread_mutex_unlock(&o->mutex);
}

struct offload *offload_new(struct ev_loop *loop, int threads, struct err *err)
{
	if (threads < 1 || threads > 16) {
		err_set(err, ERR_USAGE, "%d threads: expected 1 to 16", threads);
		return NULL;
	}
	struct offload *o = mem_zero(sizeof *o);
	*o = (struct offload){ .loop = loop, .most = threads };
	o->todo_end = &o->todo;
	o->done_end = &o->done;
	pthread_mutex_init(&o->mutex, NULL);
	pthread_cond_init(&o->more, NULL);
	pthread_cond_init(&o->idle, NULL);
	ev_async_init(&o->finished, offload_on_finished);
	ev_init(&o->retry, offload_on_retry);
	o->finished.data = o->retry.data = o;
	ev_async_start(loop, &o->finished);
	ev_unref(loop); /* this watcher alone must not keep the loop running */
	return o;
}

void offload_run(struct offload *o, struct offload_job *j)
{
	pthread_mutex_lock(&o->mutex);
	append(&o->todo_end, j);
	o->waiting++;
	pthread_mutex_unlock(&o->mutex);
	bool enough = add_threads(o);
	pthread_cond_signal(&o->more); /* without the mutex, so that the thread need not wait for it */
	if (!enough)
		retry_later(o);
}

bool offload_take_back(struct offload *o, struct offload_job *j)
{
	struct offload_job **at = &o->todo;

	pthread_mutex_lock(&o->mutex);
	while (*at && *at != j)
		at = &(*at)->next;
	bool found = *at != NULL;
	if (found) {
		*at = j->next;
		if (!*at)
			o->todo_end = at;
		o->waiting--;
	}
	pthread_mutex_unlock(&o->mutex);
	return found;
}

static bool wait_idle(struct offload *o, nsec end)
{
	struct timespec until = { .tv_sec = end / NSEC_PER_SEC, .tv_nsec = end % NSEC_PER_SEC };
	int failed = 0;

	pthread_mutex_lock(&o->mutex);
	while ((o->busy || o->waiting) && !failed)
		failed = pthread_cond_clockwait(&o->idle, &o->mutex, CLOCK_MONOTONIC, &until);
	bool idle = !o->busy && !o->waiting;
	pthread_mutex_unlock(&o->mutex);
	return idle;
}

bool offload_wait(struct offload *o, nsec at_most)
{
	nsec end = clock_monotonic() + at_most;

	for (nsec now = clock_monotonic(); now < end && !add_threads(o); now = clock_monotonic())
		wait_idle(o, end - now < RETRY_AFTER ? end : now + RETRY_AFTER);
	return wait_idle(o, end);
}

/* A thread may be inside a call that never returns, so this does not wait for the threads: the last one that ends frees
 * the pool. */
void offload_free(struct offload *o)
{
	if (!o)
		return;
	stop_retrying(o);
	ev_ref(o->loop);
	ev_async_stop(o->loop, &o->finished);
	pthread_mutex_lock(&o->mutex);
	bool unused = o->threads == 0;
	o->closed = true;
	o->todo = NULL;
	o->todo_end = &o->todo;
	pthread_cond_broadcast(&o->more);
	pthread_mutex_unlock(&o->mutex);
	if (unused)
		offload_destroy(o);
}
