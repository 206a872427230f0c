/* Runs blocking calls (fsync, a network file system that hangs, scans of /proc) on a few threads beside the loop.
 * Not a general task system: a job must not allocate, since each thread that does makes malloc(3) keep memory for it.
 * libpq's log-in allocates all the same.
 * Used by the file lock, the proof of death, name look-ups, the state file and PostgreSQL's log-in. */
#pragma once

#include "base/clock.h"
#include "base/err.h"

#include <stdbool.h>

struct ev_loop;
struct offload;

struct offload_job {
	void (*work)(struct offload_job *j); /* on a thread; may block; must not touch the loop or the heap */
	void (*done)(struct offload_job *j); /* on the loop, exactly once, after work; may free the job */
	struct offload_job *next;            /* private */
};

/* A thread is started for each job that finds none free, at most `threads` of them (1 to 16). NULL with *err. */
struct offload *offload_new(struct ev_loop *loop, int threads, struct err *err);

/* j belongs to the offload until done is called, or it is taken back. If a thread is wanted and cannot be started,
 * that is tried again ten times a second, and logged (no_thread, thread_started). The job waits until a thread is
 * started or free: it is never done on the loop's thread. A caller that cannot wait for ever sets a time limit of its
 * own, and takes the job back at its end. On the loop alone. */
void offload_run(struct offload *o, struct offload_job *j);

/* true: no thread has begun j, and none will; done is not called, and j is the caller's again. false: a thread works on
 * it, or has: done is called, unless offload_free comes first. j: given to offload_run, and not done yet. On the loop
 * alone, before offload_free. */
bool offload_take_back(struct offload *o, struct offload_job *j);

/* Blocks until no job works or waits, but not longer than at_most. Does not call done: the loop does, or nobody after
 * offload_free. true: no thread touches any job any more, so their memory may be freed after offload_free. For the end
 * of the process alone. */
bool offload_wait(struct offload *o, nsec at_most);

/* Does not wait for jobs, since a thread in an uninterruptible call cannot be joined. Their done is not called any
 * more, and their memory is not freed. Call it at the end of the process. NULL: nothing. */
void offload_free(struct offload *o);
