#include "exec/exec_internal.h"

#include "program/sd_notify.h"

#include <signal.h>

/* timeout(1) signals a process, and then its group: within this time a second signal is the same one. */
#define SAME_SIGNAL (250 * NSEC_PER_MS)

void exec_on_grace(struct ev_loop *, ev_timer *w, int)
{
	struct exec *x = w->data;

	if (x->supervisor)
		supervisor_kill(x->supervisor);
}

/* The Service leads nobody to the command any more, so now the command stops. It may have ended meanwhile, or have
 * been told to stop for another reason. */
static void exec_on_withdrawn(void *arg)
{
	struct exec *x = arg;

	if (x->supervisor && x->stage == STAGE_TERM && x->hooks.state == TERM_LEADING)
		supervisor_signal(x->supervisor, x->asked);
}

/* A command that leads has the signal, and ends as it likes, which the second one cuts short. What does not lead is
 * ended before the lock is left. */
static void exec_asked_to_stop(struct exec *x, int signal)
{
	bool again = x->asked != 0;

	if (again && elapsed_holder(x->asked_at, clock_now()) < SAME_SIGNAL)
		return;
	if (again && x->supervisor) {
		x->leaving = true;
		supervisor_kill(x->supervisor);
		return;
	}
	x->asked = signal;
	x->asked_at = clock_now();
	sd_notify_stopping(x->shutdown_grace + x->at->campaign.times.lease);
	if (x->stage == STAGE_NONE || (x->stage != STAGE_TERM && x->hooks.state == TERM_NONE)) {
		exec_leave(x, exec_leaving_status(x), LEASE_SHUTDOWN);
		return;
	}
	x->leaving = true; /* whatever the command makes of the signal: when it ends, this ends */
	exec_begin_timer(x, &x->grace, x->shutdown_grace);
	if (!service_order_withdraw(x->at->campaign.service, x->shutdown_grace, exec_on_withdrawn, x))
		supervisor_signal(x->supervisor, signal);
}

void exec_on_signal(void *arg, int signal)
{
	struct exec *x = arg;
	bool runs = x->supervisor && x->stage != STAGE_HELD;

	if (signal == SIGTERM || signal == SIGINT)
		exec_asked_to_stop(x, signal);
	else if (runs)
		supervisor_signal(x->supervisor, signal);
	else if (signal == SIGHUP || signal == SIGQUIT)
		exec_asked_to_stop(x, signal);
}
