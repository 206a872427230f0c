/* Room script/worker: the process of a script: it loads a script and runs it, or looks for mistakes in it.
 *
 * The worker: the process that runs the script, with a Lua state, a loop and the scheduler.
 * It knows no lock and no elector: it has the shared page, and gets messages.
 * Used by the guard, which forks it; by main.c, for the tests, as the role `-x worker WIREFD PAGEFD MARKSFD KEPTFD
 * LOGFORMAT LOGLEVEL IDENTITY file|eval SCRIPT [ARGS...]`. */
#pragma once

/* argv[0] is WIREFD. go: the script runs when the guard says so there (guard_await_go); -1: at once. The process' exit
 * status. */
int worker_main(int argc, char **argv, int go);
