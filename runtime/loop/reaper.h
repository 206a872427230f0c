/* Waits for the child processes of this process, and tells each one's starter of its end. Kills orphans, once told to
 * adopt them. Not a supervisor: it starts no process, and does not know what its children are for. Used by the
 * supervisor for guards, by locks in Lua for drivers, and by the Kubernetes lock for credential plugins. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <sys/types.h>

struct ev_loop;
struct reaper;
struct reaper_child;

/* Called once, from the loop, with the wait status (waitpid(2)); -1 if the system keeps no status, because this process
 * was started with SIGCHLD ignored. It may call every function of this header but reaper_free. */
typedef void reaper_ended_fn(void *arg, int status);

/* Until reaper_adopt, it waits only for the children that are added. */
struct reaper *reaper_new(struct ev_loop *loop);

/* Kills no child. Must not be called from a callback. */
void reaper_free(struct reaper *r);

/* Call it before the first child is added, at most once in a process. This process becomes a subreaper, the loop
 * handles SIGCHLD, and every child of this process is waited for. A child that is not added counts as an orphan, which
 * a dead guard's tree has left. Orphans are killed as soon as any child ends.
 *
 * If this is process 1, or it had children before, it may have strangers: children of no guard's tree. A child that was
 * seen while all added children lived is a stranger. It is left alone, with its descendants. The reaper looks for
 * strangers in this call and once a second. So a stranger that became our child less than a second before a guard's
 * death is killed as an orphan.
 *
 * -1 with *err; also if /proc shows another PID namespace, since the processes of a tree could not be found there. */
int reaper_adopt(struct reaper *r, struct err *err);

/* In a fork of this process, which waits for nobody here: SIGCHLD is not handled there any more. */
void reaper_let_go(struct reaper *r);

struct ev_loop *reaper_loop(struct reaper *r);

/* pid: a child of this process, added in the same turn of the loop in which it was started. It and its descendants are
 * not killed as orphans. NULL with *err if it cannot be waited for; after reaper_adopt that cannot happen. The reaper
 * owns the handle, which is not valid any more when `ended` is called. */
struct reaper_child *reaper_add(struct reaper *r, pid_t pid, reaper_ended_fn *ended, void *arg, struct err *err);

/* From now on the child and its descendants are killed like orphans. */
void reaper_condemn(struct reaper_child *c);

/* `ended` is not called any more. The reaper still waits for the child, and does not kill it unless it is condemned.
 * c may be NULL. */
void reaper_forget(struct reaper_child *c);

/* A wait for the end of all orphans; in the caller's memory. */
struct reaper_killing {
	/* Called from the loop after each round of killing. nobody_left: the round found no orphan, and missed none. It
	 * may end this killing and begin others. */
	void (*round)(void *arg, bool nobody_left);
	void *arg;
	struct reaper_killing *next; /* private */
};

/* Kills and reaps orphans about once a millisecond, until reaper_end_killing. Only after reaper_adopt. */
void reaper_begin_killing(struct reaper *r, struct reaper_killing *k);

/* Does nothing if k was not begun. */
void reaper_end_killing(struct reaper *r, struct reaper_killing *k);
