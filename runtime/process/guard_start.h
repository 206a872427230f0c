/* Starts a guard: by executing this program once more, or by forking this process, which takes a fraction of that
 * time. Not what the guard does then (guard.h), and not who listens to it (supervisor.h). Used by supervisor.c
 * alone. */
#pragma once

#include "base/err.h"
#include "process/deadline_page.h"
#include "process/supervisor_spec.h"

#include <sys/types.h>

struct guard_handed { /* descriptors for the guard; -1 = none */
	int control, wire, page[PAGE_FILES], kept, tree, elector;
};

/* Starts the guard by what the spec says of its process. As a fork it looks in /proc as if it had been executed: arguments,
 * and the environment with the mark of the tree, which the proof of death reads there. Where the kernel cannot show
 * that (prctl(2), PR_SET_MM_MAP), the fork executes the program. Every descriptor of this process that is neither
 * handed nor inheritable is O_CLOEXEC. Blocks all signals meanwhile. 0 and *pid; -1 with *err. */
int guard_start(pid_t *pid, const struct supervisor_spec *spec, const struct guard_handed *h, struct err *err);
