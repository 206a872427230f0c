/* A lock of the kernel on a file (flock(2)), which the kernel drops when its holder dies; waited for within a deadline.
 * Not the election: it is held for the moments of one compare-and-swap. No heap, so that it can run on any thread.
 * Used by file_swap.c. */
#pragma once

#include "base/clock.h"
#include "base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

struct kernel_lock_how {
	const char *path; /* for messages */
	mode_t mode;      /* of the file, if it has to be made; and its owner, as far as we may give it away */
	uid_t uid;
	gid_t gid;
	bool writable; /* NFS needs a writable descriptor (flock(2)); elsewhere one would only wake watchers */
	bool may_wait;
	struct instant by; /* stop waiting then */
	const atomic_bool *cancelled;
};

enum kernel_lock_result {
	KERNEL_LOCK_TAKEN,  /* *fd: closing it drops the lock */
	KERNEL_LOCK_BUSY,   /* !may_wait, and somebody has it */
	KERNEL_LOCK_FAILED, /* *err; ERR_TIMEOUT names the process that has it, if it can be seen */
};

/* name: of the lock's file in dir. */
enum kernel_lock_result kernel_lock_take(int dir, const char *name, const struct kernel_lock_how *how, int *fd,
                                         struct err *err);
