/* Work off the loop: every job is done once, on the loop; a job that hangs does not hold up the others. */
#include "base/log.h"
#include "few_threads.h"
#include "loop/offload.h"
#include "tap.h"

#include <ev.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define JOBS 500

#ifndef PATIENCE_S
#define PATIENCE_S 600.
#endif

struct job {
	struct offload_job off;
	pthread_t worked_on;
	int done;
	sem_t *wait;
	bool blocked_signals;
};

static atomic_int begun, worked;
static int done, on_wrong_thread;
static pthread_t loop_thread;

static void work(struct offload_job *off)
{
	struct job *j = (struct job *)off;
	sigset_t mask;

	atomic_fetch_add(&begun, 1);
	if (j->wait)
		sem_wait(j->wait);
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	j->blocked_signals = sigismember(&mask, SIGTERM) && sigismember(&mask, SIGCHLD);
	j->worked_on = pthread_self();
	atomic_fetch_add(&worked, 1);
}

static void finished(struct offload_job *off)
{
	struct job *j = (struct job *)off;

	j->done++;
	done++;
	on_wrong_thread += !pthread_equal(pthread_self(), loop_thread);
}

static void run_until(struct ev_loop *loop, int want)
{
	ev_ref(loop); /* waiting for jobs alone does not keep a loop */
	while (done < want)
		ev_run(loop, EVRUN_ONCE);
	ev_unref(loop);
}

static void test_many(struct ev_loop *loop)
{
	struct offload *o = offload_new(loop, 4, NULL);
	struct job *jobs = calloc(JOBS, sizeof *jobs);
	int once = 0, elsewhere = 0, blocked = 0;

	for (int i = 0; i < JOBS; i++) {
		jobs[i].off = (struct offload_job){ .work = work, .done = finished };
		offload_run(o, &jobs[i].off);
	}
	is_int(done, 0, "done is never called from inside offload_run");
	run_until(loop, JOBS);
	for (int i = 0; i < JOBS; i++) {
		once += jobs[i].done == 1;
		elsewhere += !pthread_equal(jobs[i].worked_on, loop_thread);
		blocked += jobs[i].blocked_signals;
	}
	is_int(once, JOBS, "every job is done exactly once");
	is_int(elsewhere, JOBS, "every job worked off the loop's thread");
	is_int(blocked, JOBS, "no thread takes the loop's signals");
	is_int(on_wrong_thread, 0, "and was reported on it");
	offload_free(o);
	free(jobs);
}

static void test_hanging(struct ev_loop *loop)
{
	struct offload *o = offload_new(loop, 3, NULL);
	struct job hung[2] = { 0 }, quick[50] = { 0 };
	sem_t never;

	done = 0;
	sem_init(&never, 0, 0);
	for (int i = 0; i < 2; i++) {
		hung[i] = (struct job){ .off = { .work = work, .done = finished }, .wait = &never };
		offload_run(o, &hung[i].off);
	}
	for (int i = 0; i < 50; i++) {
		quick[i].off = (struct offload_job){ .work = work, .done = finished };
		offload_run(o, &quick[i].off);
	}
	run_until(loop, 50);
	ok(hung[0].done + hung[1].done == 0, "with two of three threads hanging all the other jobs are done");
	sem_post(&never);
	sem_post(&never);
	run_until(loop, 52);
	ok(hung[0].done == 1 && hung[1].done == 1, "a job that hung is reported when it comes back");
	offload_free(o);
	sem_destroy(&never);
}

static sem_t gate;

/* The queue outlives offload_free on purpose, and so must these. */
static void test_free(struct ev_loop *loop)
{
	static struct job running, queued;
	struct offload *o = offload_new(loop, 1, NULL);
	int begun_before = atomic_load(&begun), before = atomic_load(&worked);

	done = 0;
	sem_init(&gate, 0, 0);
	running = (struct job){ .off = { .work = work, .done = finished }, .wait = &gate };
	queued = (struct job){ .off = { .work = work, .done = finished }, .wait = &gate };
	offload_run(o, &running.off);
	offload_run(o, &queued.off);
	while (atomic_load(&begun) == begun_before)
		sched_yield();
	offload_free(o);
	ok(done == 0, "offload_free waits for nothing");
	sem_post(&gate);
	sem_post(&gate);
	while (atomic_load(&worked) == before)
		sched_yield();
	ev_run(loop, EVRUN_NOWAIT);
	ok(done == 0 && !running.done && !queued.done, "and nothing is reported after it");
}

static void test_wait(struct ev_loop *loop)
{
	static struct job first, second;
	struct offload *o = offload_new(loop, 1, NULL);
	sem_t open;

	done = 0;
	sem_init(&open, 0, 0);
	ok(offload_wait(o, 0), "a pool without jobs need not be waited for");
	first = (struct job){ .off = { .work = work, .done = finished }, .wait = &open };
	second = (struct job){ .off = { .work = work, .done = finished } };
	offload_run(o, &first.off);
	offload_run(o, &second.off);
	ok(!offload_wait(o, NSEC_PER_MS), "a job that hangs is not waited for longer than one is told to");
	sem_post(&open);
	ok(offload_wait(o, 600 * NSEC_PER_SEC), "jobs that end are waited for, with those behind them");
	ok(pthread_equal(first.worked_on, second.worked_on) && done == 0, "which are then over, and not reported");
	offload_free(o);
	sem_destroy(&open);
}

static int said_no_thread, said_started;

static void on_line(void *arg, enum log_level level, const struct log_about *about, const char *event, const char *text)
{
	(void)arg, (void)level, (void)about, (void)text;
	said_no_thread += strcmp(event, "no_thread") == 0;
	said_started += strcmp(event, "thread_started") == 0;
}

static void test_no_thread(struct ev_loop *loop)
{
	static struct job jobs[2], kept;
	struct offload *o = offload_new(loop, 2, NULL);
	int begun_before = atomic_load(&begun);

	done = on_wrong_thread = 0;
	creations_fail = 5;
	for (int i = 0; i < 2; i++) {
		jobs[i] = (struct job){ .off = { .work = work, .done = finished } };
		offload_run(o, &jobs[i].off);
	}
	is_int(atomic_load(&begun), begun_before, "where no thread can be started, a job is not done on the loop's");
	is_int(said_no_thread, 1, "which is said once");
	run_until(loop, 2);
	is_int(creations_failed, 5, "a thread is tried again until there is one");
	ok(!pthread_equal(jobs[0].worked_on, loop_thread) && !pthread_equal(jobs[1].worked_on, loop_thread),
	   "which does what has waited");
	is_int(said_started, 1, "this is said, too");
	offload_free(o);

	o = offload_new(loop, 1, NULL);
	creations_fail = CREATIONS_ALL;
	kept = (struct job){ .off = { .work = work, .done = finished } };
	offload_run(o, &kept.off);
	ev_run(loop, 0);
	ok(!kept.worked_on, "a job that waits for a thread does not keep a loop running");
	ok(!offload_wait(o, 250 * NSEC_PER_MS), "nor is it waited for longer than one is told to");
	creations_fail = 3;
	ok(offload_wait(o, 600 * NSEC_PER_SEC), "who waits for it tries again, too");
	ok(kept.worked_on && !pthread_equal(kept.worked_on, loop_thread), "and it is done by a thread");
	offload_free(o);
}

static void on_patience(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)revents;
	*(bool *)w->data = true;
}

static void on_look(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)w, (void)revents;
}

/* Runs the loop until so many jobs were begun, and no longer than one has patience. */
static bool run_until_begun(struct ev_loop *loop, int want)
{
	bool over = false;
	ev_timer patience, look;

	ev_timer_init(&patience, on_patience, PATIENCE_S, 0.);
	ev_timer_init(&look, on_look, 0.01, 0.01);
	patience.data = &over;
	ev_now_update(loop);
	ev_timer_start(loop, &patience);
	ev_timer_start(loop, &look);
	while (atomic_load(&begun) < want && !over)
		ev_run(loop, EVRUN_ONCE);
	ev_timer_stop(loop, &patience);
	ev_timer_stop(loop, &look);
	return atomic_load(&begun) >= want;
}

/* A job may hang in the threads that there are. */
static void test_few_threads(struct ev_loop *loop)
{
	static struct job hung[3], quick;
	struct offload *o = offload_new(loop, 3, NULL);
	int before = atomic_load(&begun);
	sem_t never;

	done = said_no_thread = said_started = creations_failed = 0;
	sem_init(&never, 0, 0);
	hung[0] = (struct job){ .off = { .work = work, .done = finished }, .wait = &never };
	quick = (struct job){ .off = { .work = work, .done = finished } };
	offload_run(o, &hung[0].off);
	run_until_begun(loop, before + 1);
	creations_fail = 3;
	offload_run(o, &quick.off);
	is_int(said_no_thread, 1, "it is said, too, if a second thread is wanted and cannot be started");
	ok(run_until_begun(loop, before + 2), "and that is tried again although there is one, in which a job hangs");
	run_until(loop, 1);
	ok(quick.done == 1 && creations_failed == 3, "so what waited is done");
	is_int(said_started, 1, "which is said once");
	sem_post(&never);
	run_until(loop, 2);
	offload_free(o);

	o = offload_new(loop, 3, NULL);
	before = atomic_load(&begun);
	done = 0;
	creations_fail = 4;
	for (int i = 0; i < 3; i++) {
		hung[i] = (struct job){ .off = { .work = work, .done = finished }, .wait = &never };
		offload_run(o, &hung[i].off);
	}
	ok(run_until_begun(loop, before + 3), "for all jobs that wait threads are started once they can be");
	for (int i = 0; i < 3; i++)
		sem_post(&never);
	if (done < 3 && atomic_load(&begun) == before + 3)
		run_until(loop, 3);
	offload_free(o);
	sem_destroy(&never);
}

static void test_take_back(struct ev_loop *loop)
{
	enum { FIRST, MIDDLE, LAST, NEXT, COUNT };
	static struct job hangs;
	struct offload *o = offload_new(loop, 1, NULL);
	struct job *jobs[COUNT];
	int before = atomic_load(&begun);
	sem_t closed;

	done = 0;
	sem_init(&closed, 0, 0);
	hangs = (struct job){ .off = { .work = work, .done = finished }, .wait = &closed };
	offload_run(o, &hangs.off);
	run_until_begun(loop, before + 1);
	for (int i = 0; i < COUNT; i++) {
		jobs[i] = calloc(1, sizeof *jobs[i]);
		jobs[i]->off = (struct offload_job){ .work = work, .done = finished };
		if (i != NEXT)
			offload_run(o, &jobs[i]->off);
	}
	ok(!offload_take_back(o, &hangs.off), "what a thread has begun cannot be taken back");
	ok(offload_take_back(o, &jobs[MIDDLE]->off) && offload_take_back(o, &jobs[LAST]->off),
	   "what waits for one can");
	ok(!offload_take_back(o, &jobs[LAST]->off), "once");
	free(jobs[MIDDLE]);
	free(jobs[LAST]);
	offload_run(o, &jobs[NEXT]->off);
	sem_post(&closed);
	ok(offload_wait(o, (nsec)(PATIENCE_S * NSEC_PER_SEC)), "what was taken back is not waited for");
	ok(!offload_take_back(o, &hangs.off), "nor can be taken back what has been worked, and is to be reported");
	if (atomic_load(&worked) == atomic_load(&begun))
		run_until(loop, 3);
	ok(hangs.done == 1 && jobs[FIRST]->done == 1 && jobs[NEXT]->done == 1, "all else is done, the next one too");
	is_int(atomic_load(&begun), before + 3, "and what was taken back is not");
	offload_free(o);

	o = offload_new(loop, 1, NULL);
	creations_fail = CREATIONS_ALL;
	offload_run(o, &jobs[FIRST]->off);
	ok(offload_take_back(o, &jobs[FIRST]->off) && offload_wait(o, 0),
	   "the only job can be taken back, where there is no thread");
	creations_fail = 0;
	offload_run(o, &jobs[NEXT]->off);
	run_until(loop, 4);
	ok(jobs[FIRST]->done == 1 && jobs[NEXT]->done == 2, "and the next one is done");
	offload_free(o);
	free(jobs[FIRST]);
	free(jobs[NEXT]);
	sem_destroy(&closed);
}

int main(void)
{
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
	struct err err;

	loop_thread = pthread_self();
	test_many(loop);
	test_hanging(loop);
	test_free(loop);
	test_wait(loop);
	log_divert(on_line, NULL);
	test_no_thread(loop);
	test_few_threads(loop);
	test_take_back(loop);
	log_divert(NULL, NULL);
	ok(!offload_new(loop, 0, &err) && err.code == ERR_USAGE, "no threads at all is refused");
	ok(!offload_new(loop, 17, &err), "so are more than 16");
	struct offload *idle = offload_new(loop, 2, NULL);
	ev_run(loop, 0);
	ok(1, "a pool without jobs does not keep a loop running");
	offload_free(idle);
	ev_loop_destroy(loop);
	return tap_done();
}
