/* When a command that has ended is started again (exec --restart always): after a pause that grows, so that a command
 * that fails at once does not fill the log and the machine.
 * Not a timer, and not the command: cmd_exec.c has both. Used by cmd_exec.c. */
#ifndef LUNARCH_EXEC_RESTART_H
#define LUNARCH_EXEC_RESTART_H

#include "base/buf.h"
#include "base/clock.h"

struct exec_restart {        /* zeroed: it has not ended yet */
	unsigned failures;   /* ends in a row of which none came later than a minute after its start */
	struct instant next; /* when it is started again, */
	char last[160];      /*     and how it ended; "": it runs, or has not been started */
};

/* "status 3" or "signal 9, Killed", of a wait status (-1: not known), in out. */
const char *exec_restart_status(int wait_status, char *out, size_t size);

/* It ended with this wait status (waitpid(2); -1: not known) after it had run for so long. Logs that, and returns the
 * pause: 1 s, twice as long after each end, up to 60 s; 1 s again after a run of more than a minute. */
nsec exec_restart_ended(struct exec_restart *r, int wait_status, nsec ran);
void exec_restart_started(struct exec_restart *r);

/* Appends a line for `ctl why`, if the command waits to be started again. */
void exec_restart_why(const struct exec_restart *r, struct buf *out);

#endif
