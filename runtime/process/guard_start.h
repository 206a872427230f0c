/* Starts a guard: by executing this program once more, or by forking this process, which takes a fraction of that
 * time. Not what the guard does then (guard.h), and not who listens to it (supervisor.h). Used by supervisor.c alone;
 * struct guard_fork also by program/program.c, which knows whether this process may be forked. */
#pragma once

#include "base/err.h"
#include "process/deadline_page.h"
#include "process/guard.h"

#include <sys/types.h>

struct supervisor_spec;

/* How a process may be forked that has one thread, and nothing in its memory that a guard, or the script that a worker runs, must not
 * have: no lock is open. */
struct guard_fork {
	guard_worker *worker; /* what a worker runs: that of guard_main; NULL for a command */
	/* Is called in the fork, first, with all signals blocked: stops what handles signals, and wipes secrets. It must not
	 * touch what both processes share. */
	void (*let_go)(void *arg);
	void *arg;
};

struct guard_handed { /* descriptors for the guard; -1 = none */
	int control, wire, page[PAGE_FILES], kept, tree, elector;
};

/* Starts the guard by what the spec says of its process. As a fork it looks in /proc as if it had been executed: arguments,
 * and the environment with the mark of the tree, which the proof of death reads there. Where the kernel cannot show
 * that (prctl(2), PR_SET_MM_MAP), the fork executes the program. Every descriptor of this process that is neither
 * handed nor inheritable is O_CLOEXEC. Blocks all signals meanwhile. 0 and *pid; -1 with *err. */
int guard_start(pid_t *pid, const struct supervisor_spec *spec, const struct guard_handed *h, struct err *err);
