/* Why a worker does not answer, in words for people: it is stopped, or busy in a hook of its script. Nothing is
 * decided by it: the worker says itself what it runs, and may say anything.
 * Filled in by the supervisor. Used by the rooms run, for its log, and program. */
#pragma once

#include "base/buf.h"
#include "process/deadline_page.h"

#include <sys/types.h>

struct worker_doing {
	pid_t pid; /* 0: it is not known, or it has ended */
	bool stopped;
	enum page_work work;
	nsec work_for;        /* for how long it has run that, as the worker says */
	uint32_t slot;        /* of the election whose hook that is, as the worker says */
	const char *election; /* its name, from whoever knows names; NULL or "": it is not said. Borrowed */
};

/* Whether that keeps the script's other hooks and tasks from running, for longer than they are used to. */
#define WORKER_BUSY NSEC_PER_SEC
bool worker_doing_blocks(const struct worker_doing *d);

/* Appends "it is stopped ...", "it is busy in ..."; nothing if neither is known. */
void worker_doing_tell(const struct worker_doing *d, struct buf *out);
