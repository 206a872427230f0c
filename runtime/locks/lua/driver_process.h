/* The process of a driver: it is started, and it is signalled. Its socket and what is said there is the link's
 * (driver_link.h), which alone uses this. */
#pragma once

#include "base/err.h"

#include <sys/types.h>

/* Starts `lunarch -x driver` with one end of a new socket. Its environment is ours, but for the lock's password; every
 * signal is blocked in it, as in a guard. *fd: our end, which does not block. The child's number, or -1 with *err. */
pid_t driver_process_start(int *fd, struct err *err);

/* "exit status 1", "killed by signal 9 (Killed)": a wait status, as of a reaper. out: 80 bytes. */
const char *driver_process_end(int status, char *out);
