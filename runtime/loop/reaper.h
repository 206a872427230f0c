/* Waits for the child processes of this process: who started one hears of its end. Kills orphans, if told to adopt
 * them. Not a supervisor: it does not know what its children are for, and starts none. Used by the supervisor for
 * guards and by the Kubernetes lock for credential plugins. */
#ifndef LUNARCH_REAPER_H
#define LUNARCH_REAPER_H

#include "base/err.h"

#include <stdbool.h>
#include <sys/types.h>

struct ev_loop;
struct reaper;
struct reaper_child;

/* From the loop, once, with the wait status (waitpid(2)); -1 if the system keeps none (SIGCHLD was ignored by who
 * started this process). It may call anything of this header but reaper_free. */
typedef void reaper_ended_fn(void *arg, int status);

/* Waits only for the children that are added. */
struct reaper *reaper_new(struct ev_loop *loop);

/* Forgets its children; it kills none. Not from a callback. */
void reaper_free(struct reaper *r);

/* Call it before the first child is added, at most once in a process. This process becomes a subreaper, SIGCHLD is
 * taken on the loop, and every child of this process is waited for. A child that is not added counts as left over from
 * a dead guard's tree, and is killed as soon as any child ends. Where there may be strangers (this is process 1, or it
 * had children before), a child that was seen while every child that was added lived is a stranger: it is left alone
 * with all that descends from it. The reaper looks for strangers here and once a second, so whoever becomes our child
 * less than a second before a guard dies is killed as one of its tree. -1 with *err also if /proc is not that of our
 * PID namespace: then nothing of a tree could be found. */
int reaper_adopt(struct reaper *r, struct err *err);

struct ev_loop *reaper_loop(struct reaper *r);

/* pid: a child of this process, added in the same turn of the loop in which it was started. It is spared, with all that
 * descends from it, when orphans are killed. NULL with *err if it cannot be waited for; never, where orphans are
 * adopted. The child is the reaper's, and gone before `ended` is called. */
struct reaper_child *reaper_add(struct reaper *r, pid_t pid, reaper_ended_fn *ended, void *arg, struct err *err);

/* From now on it is killed like an orphan, and so is what descends from it. */
void reaper_condemn(struct reaper_child *c);

/* `ended` is not called any more. It is still waited for, and stays spared if it was. NULL: nothing. */
void reaper_forget(struct reaper_child *c);

/* One who waits until no orphan is left; the caller's memory. */
struct reaper_killing {
	/* From the loop, after each round of killing. nobody_left: there was nobody to kill in it. It may end this
	 * killing and begin others. */
	void (*round)(void *arg, bool nobody_left);
	void *arg;
	struct reaper_killing *next; /* private */
};

/* Kills and reaps orphans about once a millisecond until reaper_end_killing. Only where orphans are adopted. */
void reaper_begin_killing(struct reaper *r, struct reaper_killing *k);

/* No-op if it was not begun. */
void reaper_end_killing(struct reaper *r, struct reaper_killing *k);

#endif
