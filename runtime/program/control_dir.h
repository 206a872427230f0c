/* Where control sockets lie, for the elector that makes one and for `ctl`, which looks for it.
 * Not where locks and tree files lie: that never depends on the environment (lock_state_dir). Not a socket: control.h.
 * Used by program.c and ctl. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define CONTROL_DIRS 4

/* The directory to try at this place, from 0 on: `ctl` in the state directory; and, if none is given, `ctl` in
 * $RUNTIME_DIRECTORY (systemd.exec(5)), /run/user/UID/lunarch, and /tmp/lunarch-UID. With `make` it is made, mode
 * 0700. It must belong to this user (for root, the first one may also belong to the owner of the state directory),
 * and nobody else may write into it. state_dir: of --state-dir, "" = not given. out: PATH_MAX bytes. -1 with *err:
 * there is no such directory, or it cannot be used. */
int control_dir(const char *state_dir, int place, bool make, char *out, size_t size, struct err *err);
