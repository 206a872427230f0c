/* What a guard, and the worker or command below it, are started with. Not how (guard_start.h), and not who listens to
 * them (supervisor.h). Used by these two and who fills it in: the rooms run, exec, program and commands. */
#pragma once

#include "base/clock.h"
#include "process/guard.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* How a process may be forked that has one thread, and nothing in its memory that a guard, or the script that a worker runs, must not
 * have: no lock is open. */
struct guard_fork {
	guard_worker *worker; /* what a worker runs: that of guard_main; NULL for a command */
	/* Is called in the fork, first, with all signals blocked: stops what handles signals, and wipes secrets. It must not
	 * touch what both processes share. */
	void (*let_go)(void *arg);
	void *arg;
};

struct supervisor_term {
	uint64_t term;
	int64_t token;
	struct instant end, kill;
};

struct supervisor_spec {
	/* worker: the arguments of the role after WIREFD PAGEFD MARKSFD KEPTFD; command: the command itself */
	char *const *argv;
	bool command;            /* run argv in the worker's place: no wire, stdin passed through */
	bool foreground;         /* command: make it the terminal's foreground group */
	bool no_stdin;           /* its stdin is /dev/null */
	bool no_privileges;      /* worker, command: privileges_drop; the guard keeps what it has, to kill */
	const sigset_t *ignored; /* signals that the tree ignores from the start, never SIGCHLD; NULL: none */
	char *const *
		env; /* "NAME=value", NULL-terminated: added to, or replacing, this process' environment; may be NULL */
	char *const *unset;           /* names, NULL-terminated: removed; may be NULL */
	int tree_fd;                  /* inherited by everything in the tree; -1 = none */
	int kept_fd;                  /* worker: where it finds and keeps its script's sources (sources.h); 0 = none */
	struct supervisor_term first; /* command: the term it runs in, in slot 0 before it starts; term 0 = none */
	bool held; /* command: the guard makes itself ready, and waits for supervisor_begin; `first` is not looked at */
	/* command: it gets this descriptor, under that number, which the caller keeps free; 0 = none */
	int passed, passed_as;
	nsec kill_allowance; /* supervisor_allow */
	/* The guard may be a fork of this process (guard_start.h); NULL: it is executed. */
	const struct guard_fork *fork;
};
