/* Runs blocking calls (fsync, a hung network file system, /proc scans) on a few threads, off the loop.
 * Not a general task system: jobs own no heap while they run, so that no thread grows an allocator arena; libpq's
 * log-in cannot be kept from it. Used by the file lock, the proof of death, name resolution and PostgreSQL's log-in. */
#ifndef LUNARCH_OFFLOAD_H
#define LUNARCH_OFFLOAD_H

#include "base/err.h"

struct ev_loop;
struct offload;

struct offload_job {
	void (*work)(struct offload_job *j); /* on a thread; may block; must not touch the loop or the heap */
	void (*done)(struct offload_job *j); /* on the loop, exactly once, after work; may free the job */
	struct offload_job *next;            /* private */
};

/* Threads start when the first job comes, at most `threads` (1 to 16). NULL with *err. */
struct offload *offload_new(struct ev_loop *loop, int threads, struct err *err);

/* j is the callee's until done is called. */
void offload_run(struct offload *o, struct offload_job *j);

/* Waits neither for running jobs nor for queued ones: their done is not called any more, they are leaked on purpose
 * (a thread in an uninterruptible call cannot be joined). Call it at the end of the process. */
void offload_free(struct offload *o);

#endif
