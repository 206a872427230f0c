#include "process/worker_doing.h"

bool worker_doing_blocks(const struct worker_doing *d)
{
	return d->stopped || (d->work != PAGE_WAITS && d->work_for >= WORKER_BUSY);
}

void worker_doing_tell(const struct worker_doing *d, struct buf *out)
{
	static const char *const works[PAGE_WORKS] = {
		[PAGE_LOADS] = "the script's main chunk",
		[PAGE_TASK] = "a task that the script started",
		[PAGE_ON_START] = "on_start",
		[PAGE_MAY_LEAD] = "may_lead",
		[PAGE_ON_NEW_LEADER] = "on_new_leader",
		[PAGE_ON_NO_LEADER] = "on_no_leader",
		[PAGE_ON_NEXT] = "on_next",
		[PAGE_ON_NEXT_OVER] = "on_next_over",
		[PAGE_ON_LEADING] = "on_leading",
		[PAGE_ON_STOPPING] = "on_stopping",
		[PAGE_ON_STOPPED] = "on_stopped",
	};

	if (d->stopped) {
		buf_printf(out, "it is stopped (SIGSTOP): kill -CONT %d", (int)d->pid);
	} else if (works[d->work]) {
		buf_printf(out, "it is busy in %s", works[d->work]);
		if (d->election && *d->election) {
			buf_adds(out, " of election ");
			buf_plain(out, d->election);
		}
	}
}
