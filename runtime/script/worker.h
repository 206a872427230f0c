/* The worker: the process that runs the script. Owns the Lua state, its own loop and the coroutine scheduler.
 * No lock code, no elector: it sees the shared page and messages.
 * Used by main.c for the role `-x worker WIREFD PAGEFD MARKSFD LOGFORMAT LOGLEVEL file|eval SCRIPT [ARGS...]`. */
#ifndef LUNARCH_WORKER_H
#define LUNARCH_WORKER_H

int worker_main(int argc, char **argv); /* argv[0] is WIREFD; the process' exit status */

#endif
