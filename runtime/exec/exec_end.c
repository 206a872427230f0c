#include "exec/exec_internal.h"

#include "base/log.h"
#include "program/sd_notify.h"

static void exec_on_ended(void *arg, int wait_status)
{
	struct exec *x = arg;

	x->wait_status = wait_status;
	if (x->stage == STAGE_TERM) {
		x->ended = true;
		elector_look(x->at->campaign.elector); /* the guard may have killed it because the lease is over */
	} else if (x->stage == STAGE_WARM) {
		exec_tell_warm_ended(x);
		x->spent = true; /* it is not started again before this candidate comes next anew */
		x->stage = STAGE_ENDING;
	}
}

/* The term was lost after this process and its command had been told to stop. */
static void exec_end_lost(struct exec *x)
{
	x->status = exec_leaving_status(x);
	exec_tell(x, (struct term_event){ .kind = TERM_EV_END, .reason = LEASE_SHUTDOWN });
}

static void exec_on_term_gone(struct exec *x, bool reaped)
{
	bool was_stopping = x->hooks.state == TERM_STOPPING;
	enum lease_reason reason = x->hooks.reason;

	if (x->hooks.state == TERM_LEADING && reaped) {
		if (x->wait_status == -1)
			log_event(
				LOG_ERROR, NULL, "worker_gone",
				"the command's guard ended and did not say how the command ended, or that it began: nothing "
				"of the command lives");
		exec_after_command(x);
		return;
	}
	if (!x->at->campaign.elector || (x->hooks.state == TERM_NONE && reaped)) /* NULL: it could not be made */
		return;
	if (was_stopping && x->leaving && reason == LEASE_SHUTDOWN)
		x->status = exec_leaving_status(x);
	exec_tell(x, (struct term_event){ .kind = TERM_EV_DEAD, .reaped = reaped });
	if (!reaped) /* it does not campaign any more beside what could not be killed, so it leaves */
		exec_leave(x, EXIT_LOST, LEASE_WORKER);
	else if (was_stopping && x->asked && x->leaving && reason != LEASE_SHUTDOWN)
		exec_end_lost(x);
	else if (was_stopping)
		exec_lost_status(x, reason);
	if (!x->leaving)
		sd_notify_send("STATUS=standing by");
	exec_hold(x);
	exec_warm_up(x);
}

static void exec_on_gone(void *arg, bool reaped, int wait_status)
{
	struct exec *x = arg;
	enum stage was = x->stage;
	bool unheard = was == STAGE_TERM && exec_warm_unheard(&x->warm);

	if (wait_status != -1)
		x->wait_status = wait_status;
	else if (was == STAGE_TERM)
		elector_look(x->at->campaign.elector); /* the guard may not have begun it because the lease is over */
	ev_timer_stop(x->program.loop, &x->cool);
	exec_warm_close(&x->warm);
	supervisor_free(x->supervisor);
	x->supervisor = NULL;
	x->stage = STAGE_NONE;
	x->ended = false;
	if (unheard)
		exec_tell_warm_ended(x);
	if (reaped && (unheard || was != STAGE_TERM) && x->hooks.state != TERM_STOPPING)
		exec_on_early_gone(x, was);
	else
		exec_on_term_gone(x, reaped);
}

/* A terminal's shell can suspend this process, but not the command's lease. So a command that stops itself is made to
 * go on. */
static void exec_on_stopped(void *arg, bool stopped)
{
	struct exec *x = arg;

	if (!stopped)
		return;
	log_event(LOG_WARN, NULL, "not_suspended", "the command cannot be suspended while it %s: it goes on",
	          x->stage == STAGE_TERM ? "holds the lock" : "waits to lead");
	supervisor_signal(x->supervisor, SIGCONT);
}

const struct supervisor_callbacks exec_supervisor_callbacks = { .ended = exec_on_ended,
	                                                        .gone = exec_on_gone,
	                                                        .stopped = exec_on_stopped };
