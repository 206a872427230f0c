/* A lock driven from a test: start an operation, run the loop until it is done, look at the result.
 * Not an elector: no times, no retries.
 * Used by tests/unit/test_lock_*.c. */
#pragma once

#include "base/mem.h"
#include "base/nonce.h"
#include "locks/lock.h"
#include "loop/offload.h"

#include <ev.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct drive {
	struct lock_env env;
	struct lock *lock;
	struct record record;      /* of the last read that found one */
	struct lock_result result; /* of the last operation; its record is gone */
	int calls;                 /* of done, for the last operation */
	bool inside;               /* done was called from inside the operation's start */
	int changes;
	struct version expected; /* of the write under way, which borrows it */
	struct err err;
};

__attribute__((unused)) static void drive_init(struct drive *d, const char *url)
{
	*d = (struct drive){ 0 };
	d->env.loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
	d->env.offload = offload_new(d->env.loop, 1, NULL);
	record_init(&d->record);
	d->lock = lock_open(&d->env, url, &d->err);
	if (!d->lock)
		printf("# %s: %s\n", url, d->err.text);
}

struct drive_last {
	struct offload_job job;
	bool done;
};

static void drive_no_work(struct offload_job *j)
{
	(void)j;
}

static void drive_last_done(struct offload_job *j)
{
	((struct drive_last *)j)->done = true;
}

/* After what was abandoned has come back: there is one thread, so jobs are worked on in their order. */
__attribute__((unused)) static void drive_fini(struct drive *d)
{
	struct drive_last last = { .job = { .work = drive_no_work, .done = drive_last_done } };

	if (d->lock)
		d->lock->ops->close(d->lock);
	offload_run(d->env.offload, &last.job);
	ev_ref(d->env.loop);
	while (!last.done)
		ev_run(d->env.loop, EVRUN_ONCE);
	ev_unref(d->env.loop);
	lock_env_fini(&d->env);
	offload_free(d->env.offload);
	record_fini(&d->record);
	ev_loop_destroy(d->env.loop);
}

__attribute__((unused)) static void drive_done(void *arg, const struct lock_result *r)
{
	struct drive *d = arg;

	d->calls++;
	d->result = *r;
	d->result.record = NULL;
	if (r->record)
		record_copy(&d->record, r->record);
}

__attribute__((unused)) static enum lock_outcome drive_wait(struct drive *d)
{
	d->inside = d->calls > 0;
	ev_ref(d->env.loop);
	while (!d->calls)
		ev_run(d->env.loop, EVRUN_ONCE);
	ev_unref(d->env.loop);
	return d->result.outcome;
}

#define DRIVE_PATIENCE (30 * NSEC_PER_SEC)

__attribute__((unused)) static enum lock_outcome drive_read(struct drive *d)
{
	d->calls = 0;
	d->lock->ops->read(d->lock, instant_add(clock_now(), DRIVE_PATIENCE), drive_done, d);
	return drive_wait(d);
}

__attribute__((unused)) static void drive_start_write(struct drive *d, const struct record *r, const char *expected,
                                                      bool durable, nsec within)
{
	if (expected != d->expected.text)
		snprintf(d->expected.text, sizeof d->expected.text, "%s", expected);
	d->calls = 0;
	d->lock->ops->write(d->lock, r, &d->expected, durable, instant_add(clock_now(), within), drive_done, d);
}

__attribute__((unused)) static enum lock_outcome drive_write(struct drive *d, const struct record *r,
                                                             const char *expected)
{
	drive_start_write(d, r, expected, true, DRIVE_PATIENCE);
	return drive_wait(d);
}

/* A record as a term's first write would make it, with a name of its own. */
__attribute__((unused)) static void drive_fill(struct record *r, const char *holder, int64_t token)
{
	mem_replace(&r->holder, holder);
	r->lease_ms = 15000;
	r->renew_ms = 10000;
	r->retry_ms = 2000;
	r->acquired_us = r->renewed_us = clock_wall_us();
	r->token = token;
	r->term = (uint64_t)token;
	r->state = RECORD_LEADING;
	nonce_hex(r->write, sizeof r->write / 2);
}

__attribute__((unused)) static enum lock_outcome drive_put(struct drive *d, const char *holder, int64_t token,
                                                           const char *expected)
{
	struct record r;

	record_init(&r);
	drive_fill(&r, holder, token);
	enum lock_outcome o = drive_write(d, &r, expected);
	record_fini(&r);
	return o;
}

__attribute__((unused)) static void drive_on_change(void *arg)
{
	((struct drive *)arg)->changes++;
}

__attribute__((unused)) static bool drive_watch(struct drive *d)
{
	return d->lock->ops->watch(d->lock, drive_on_change, d);
}

/* Runs the loop until there were so many changes. */
__attribute__((unused)) static void drive_wait_changes(struct drive *d, int want)
{
	ev_ref(d->env.loop);
	while (d->changes < want)
		ev_run(d->env.loop, EVRUN_ONCE);
	ev_unref(d->env.loop);
}
