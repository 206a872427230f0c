/* How the command of `exec` is started: with which arguments, environment and terminal. In a term; before one, by a
 * guard that waits for it (held); or before one, to make itself ready (warm).
 * Not when, and not what follows from its end: cmd_exec.c decides that. Used by cmd_exec.c. */
#ifndef LUNARCH_EXEC_COMMAND_H
#define LUNARCH_EXEC_COMMAND_H

#include "base/clock.h"
#include "base/err.h"
#include "process/supervisor.h"

#include <stdbool.h>

struct exec_warm;
struct program;

struct exec_command { /* borrowed, as long as it is used */
	struct program *program;
	char *const *argv;
	nsec kill_allowance;
	const struct supervisor_callbacks *callbacks;
	void *arg;
	struct exec_tty { /* whose the terminal was when the last one was started */
		bool front, away;
	} tty;
	bool told_of_stdin;
};

struct exec_term { /* owns its texts */
	char *lock, *identity, *address;
	struct supervisor_term of;
};

void exec_term_fini(struct exec_term *t);

/* NULL with *err. */
struct supervisor *exec_command_start(struct exec_command *c, const struct exec_term *t, struct err *err);
struct supervisor *exec_command_hold(struct exec_command *c, struct err *err);
/* t: without a term. What it lacks: LUNARCH_TOKEN, and LUNARCH_TERM is "-". */
struct supervisor *exec_command_warm(struct exec_command *c, const struct exec_term *t, struct exec_warm *w,
                                     struct err *err);

/* The one that is held starts in this term. false: it cannot, and nothing was started; so also if the terminal is
 * somebody else's by now. */
bool exec_command_begin(struct exec_command *c, struct supervisor *held, const struct exec_term *t);

#endif
