/* Room exec: a command that runs while its candidate leads (`lunarch exec`).
 *
 * Begin here; exec_internal.h says what the parts are. Not the command line (cmd_exec.c), and not a script (the room
 * run).
 * Used by cmd_exec.c. */
#pragma once

#include "base/err.h"
#include "config/options.h"

/* The signals that exec watches, for program_hold_signals. */
extern const int exec_signals[];

/* Waits for the lock, runs the command of the options (its words, or --command) while it leads, and returns the exit
 * status: the command's, or one of program/exit_status.h. -1 with *err: it could not begin. o is borrowed, lock is a URL
 * or a plain name. It is called once, before there are threads, on a process that may use its signals. */
int exec_run(struct options *o, const char *lock, struct err *err);
