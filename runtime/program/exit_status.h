/* What a caller of lunarch can tell from its exit status; exec has the command's own besides.
 * Not the wait status of a child.
 * Used by the commands, and by the running script, which decides with which status run ends. */
#pragma once

enum exit_status {
	EXIT_DONE = 0,
	EXIT_FAILED_SCRIPT = 1, /* status, leader, check, doctor, ctl is-leading: "no" */
	EXIT_USAGE = 2,
	EXIT_UNREACHABLE = 69,  /* the store (sysexits: EX_UNAVAILABLE) */
	EXIT_NOT_ACQUIRED = 75, /* the lock was not acquired in time (EX_TEMPFAIL) */
	EXIT_LOST = 76,         /* leadership was lost (exec, run --once) */
	EXIT_CANNOT_RUN = 126,  /* exec, as env(1) says: the command was found but cannot run */
	EXIT_NOT_FOUND = 127,   /* exec, as env(1) says: the command was not found */
	EXIT_TERMINATED = 143,  /* a second SIGTERM */
};
