#include "commands/exec_restart.h"

#include "base/log.h"
#include "runner/term_hooks.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define LASTED (60 * NSEC_PER_SEC) /* a run that went on for longer was no failed start */

const char *exec_restart_status(int wait_status, char *out, size_t size)
{
	if (wait_status == -1)
		snprintf(out, size, "its status is not known");
	else if (WIFSIGNALED(wait_status))
		snprintf(out, size, "signal %d, %s", WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)));
	else
		snprintf(out, size, "status %d", WEXITSTATUS(wait_status));
	return out;
}

nsec exec_restart_ended(struct exec_restart *r, int wait_status, nsec ran)
{
	char how[64];

	exec_restart_status(wait_status, how, sizeof how);
	r->failures = ran > LASTED ? 1 : r->failures + 1;
	nsec pause = term_back_off(r->failures);
	r->next = instant_add(clock_now(), pause);
	snprintf(r->last, sizeof r->last, "the command ended after %.3g s (%s)", (double)ran / NSEC_PER_SEC, how);
	log_event(LOG_WARN, NULL, "command_ended", "%s: it is started again in %.0f s", r->last,
	          (double)pause / NSEC_PER_SEC);
	return pause;
}

void exec_restart_started(struct exec_restart *r)
{
	*r->last = '\0';
}

void exec_restart_why(const struct exec_restart *r, struct buf *out)
{
	if (*r->last)
		buf_printf(out, "%s: it is started again in %.1f s (it has ended %u times in a row)\n", r->last,
		           (double)instant_until(r->next, clock_now()) / NSEC_PER_SEC, r->failures);
}
