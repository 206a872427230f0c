/* How the command of `exec` is started: with which arguments, environment and terminal, and after which pause it is
 * started again. It is started in a term; before one, by a guard that waits for it (held); or before one, to make
 * itself ready (warm). Not when it is first started, and not what follows from its end: the other parts of the room
 * decide that, and use this. */
#pragma once

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "process/supervisor.h"

#include <stdbool.h>

struct exec_warm;
struct program;

struct exec_command { /* borrowed, as long as it is used */
	struct program *program;
	char *const *argv;
	bool slots; /* it has LUNARCH_SLOT */
	nsec kill_allowance;
	const struct supervisor_callbacks *callbacks;
	const struct guard_fork *fork; /* while a guard may be one; else NULL */
	void *arg;
	struct exec_tty { /* whose the terminal was when the last one was started */
		bool front, away;
	} tty;
	bool told_of_stdin;
};

struct exec_term { /* owns its texts */
	char *lock, *identity, *address;
	uint32_t slot;
	struct supervisor_term of;
};

void exec_term_fini(struct exec_term *t);

/* NULL with *err. */
struct supervisor *exec_command_start(struct exec_command *c, const struct exec_term *t, struct err *err);
struct supervisor *exec_command_hold(struct exec_command *c, struct err *err);
/* Starts a command before a term. t: without a term. The command has no LUNARCH_TOKEN, and its LUNARCH_TERM is "-". */
struct supervisor *exec_command_warm(struct exec_command *c, const struct exec_term *t, struct exec_warm *w,
                                     struct err *err);

/* Starts the held command in this term. false: it cannot, and nothing was started; this is also so if the terminal
 * is somebody else's by now. */
bool exec_command_begin(struct exec_command *c, struct supervisor *held, const struct exec_term *t);

/* When a command that has ended is started again (exec --restart always): after a pause that grows, so that a command
 * that fails at once does not fill the log and the machine. No timer. */
struct exec_restart {        /* zeroed: it has not ended yet */
	unsigned failures;   /* ends in a row of which none came later than a minute after its start */
	struct instant next; /* when it is started again */
	char last[160];      /* how it last ended; "": it runs, or has not been started */
};

/* "status 3" or "signal 9, Killed", of a wait status (-1: not known), in out. */
const char *exec_restart_status(int wait_status, char *out, size_t size);

/* It ended with this wait status (waitpid(2); -1: not known) after it had run for the time `ran`. Logs that, and
 * returns the pause: 1 s, twice as long after each end, up to 60 s or to `longest`; 1 s again after a run of more
 * than a minute. */
nsec exec_restart_ended(struct exec_restart *r, int wait_status, nsec ran, nsec longest);
void exec_restart_started(struct exec_restart *r);

/* Appends a line for `ctl why`, if the command waits to be started again. */
void exec_restart_why(const struct exec_restart *r, struct buf *out);
