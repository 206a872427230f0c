#include "exec/exec_internal.h"

#include "base/log.h"
#include "program/sd_notify.h"

#include <signal.h>
#include <sys/wait.h>

#define SLOT 0

static enum restart exec_restarts(const struct exec *x)
{
	return (enum restart)x->options->value[OPTION_RESTART].number;
}

/* ---- leaving, and what the term asks for ---- */

void exec_leave(struct exec *x, int status, enum lease_reason reason)
{
	if (x->leaving)
		return;
	x->leaving = true;
	x->status = status;
	exec_end_early(x);
	exec_tell(x, (struct term_event){ .kind = TERM_EV_END, .reason = reason });
}

/* Of waitpid(2); -1: not known. */
static int exec_status_of(int wait_status)
{
	if (wait_status == -1)
		return EXIT_FAILED_SCRIPT;
	return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

static term_effect exec_lead;

/* The page is the supervisor's, so it exists while the command does. A command that is only started now gets the term's
 * first deadline on the way (supervisor_spec.first, supervisor_begin). */
static struct page *exec_page(void *arg)
{
	const struct exec *x = arg;

	return x->supervisor ? supervisor_page(x->supervisor) : NULL;
}

/* A command is interrupted by the signal that it gets. */
static void exec_on_page_changed(void *arg, enum term_page_news what)
{
	struct exec *x = arg;

	if (!x->supervisor)
		return;
	if (what == TERM_PAGE_LATER)
		supervisor_extended(x->supervisor);
	else if (what == TERM_PAGE_POKE && x->stage != STAGE_HELD)
		supervisor_poke(x->supervisor);
}

/* The command may have ended, which is no loss. */
static void exec_on_refused(void *arg, struct term_actions *)
{
	struct exec *x = arg;

	if (x->supervisor)
		supervisor_listen(x->supervisor);
}

static void exec_on_term_stop(void *arg, struct term_actions *)
{
	struct exec *x = arg;

	if (x->supervisor)
		supervisor_signal(x->supervisor, SIGTERM);
}

static void exec_on_term_over(void *arg, struct term_actions *)
{
	struct exec *x = arg;

	ev_timer_stop(x->program.loop, &x->hold);
	ev_timer_stop(x->program.loop, &x->grace);
	ev_timer_stop(x->program.loop, &x->again);
}

static void exec_on_term_end(void *arg, struct term_actions *a)
{
	struct exec *x = arg;

	exec_bar(x);
	for (uint32_t i = 0; i < x->slot_count; i++) {
		struct exec_slot *s = &x->slots[i];
		if (s == x->at)
			elector_end(s->campaign.elector, a->reason, a->sit_out, a->grace);
		else if (a->sit_out) /* what keeps it from leading is not about one lock */
			elector_end(s->campaign.elector, a->reason, a->sit_out, 0);
	}
}

static void exec_on_term_report(void *arg, struct term_actions *a)
{
	struct exec *x = arg;

	elector_stopped(x->at->campaign.elector, a->reaped);
}

static void exec_on_term_finished(void *arg, struct term_actions *)
{
	struct exec *x = arg;

	ev_break(x->program.loop, EVBREAK_ALL);
}

static void exec_on_follow(void *arg, struct term_event e)
{
	exec_tell(arg, e);
}

static const struct term_effects effects = {
	.page = exec_page,
	.page_changed = exec_on_page_changed,
	.lead = exec_lead,
	.stop = exec_on_term_stop,
	.over = exec_on_term_over,
	.end = exec_on_term_end,
	.report = exec_on_term_report,
	.finished = exec_on_term_finished,
	.refused = exec_on_refused,
	.tell = exec_on_follow,
};

void exec_tell(struct exec *x, struct term_event e)
{
	e.at = clock_now();
	e.now = (struct term_context){ .ready = !x->ended, .running = x->supervisor != NULL, .ending = x->leaving };
	struct term_actions a = term_hooks_step(&x->hooks, &e);
	term_carry_out(&x->hooks, SLOT, &a, &effects, x);
	if (x->slot_count > 1)
		exec_bar(x);
}

void exec_bar(struct exec *x)
{
	for (uint32_t i = 0; i < x->slot_count; i++) {
		struct exec_slot *s = &x->slots[i];
		bool elsewhere = x->hooks.state != TERM_NONE && s != x->at;
		if (s->campaign.elector && !s->finished)
			elector_bar(s->campaign.elector, x->barred   ? x->barred
			                                 : elsewhere ? "it leads in another slot"
			                                             : NULL);
	}
}

/* Starts the command again after a pause. The lease is kept meanwhile. */
static void exec_start_later(struct exec *x)
{
	nsec pause = exec_restart_ended(&x->restart, x->wait_status, elapsed_standby(x->started, clock_now()),
	                                x->options->value[OPTION_RESTART_PAUSE].number * NSEC_PER_MS);

	exec_begin_timer(x, &x->again, pause);
}

/* The exit status of a process that was asked to stop. */
int exec_leaving_status(const struct exec *x)
{
	return x->ran ? exec_status_of(x->wait_status) : 128 + x->asked;
}

/* Tells which signal has ended the command, as a shell does. Nobody has to hear of an end by ^C, or by a reader that
 * has closed its pipe. */
static void exec_tell_killed(const struct exec *x)
{
	int signal = x->wait_status != -1 && WIFSIGNALED(x->wait_status) ? WTERMSIG(x->wait_status) : 0;
	char how[64];

	if (!signal || signal == SIGINT || signal == SIGPIPE)
		return;
	log_event(
		LOG_WARN, NULL, "command_killed",
		"the command was ended by a signal (%s), so this ends with status %d%s",
		exec_restart_status(x->wait_status, how, sizeof how), exec_status_of(x->wait_status),
		signal == SIGKILL
			? ". If nobody sent it, and no line above says why, look for why the kernel did (dmesg: out of memory)"
			: "");
}

void exec_after_command(struct exec *x)
{
	nsec held = elapsed_standby(x->began, clock_now());

	exec_tell(x, (struct term_event){ .kind = TERM_EV_EXITED });
	if (x->leaving) {
		x->status = exec_leaving_status(x);
		exec_tell(x, (struct term_event){ .kind = TERM_EV_END, .reason = LEASE_SHUTDOWN });
		return;
	}
	if (exec_restarts(x) == RESTART_ALWAYS) {
		exec_start_later(x);
		return;
	}
	exec_tell_killed(x);
	if (held < x->at_least) {
		service_order_withdraw(x->at->campaign.service, 0, NULL, NULL);
		exec_begin_timer(x, &x->hold, x->at_least - held);
	} else {
		exec_leave(x, exec_status_of(x->wait_status), LEASE_DONE);
	}
}

/* A client that has asked for a hand-over is to hear who leads then. Until that is known exec stays, and no longer
 * campaigns. */
void exec_lost_status(struct exec *x, enum lease_reason reason)
{
	struct elector_status st;

	if (x->leaving || exec_restarts(x) != RESTART_NEVER)
		return;
	elector_status(x->at->campaign.elector, &st);
	if (st.next.handing_over) {
		x->left_with = EXIT_LOST;
		x->barred = "its command has ended with its term";
		exec_bar(x);
	} else {
		exec_leave(x, EXIT_LOST, reason);
	}
}

void exec_handed_over(void *arg, const struct handover_result *result)
{
	struct exec *x = arg;

	if (x->left_with && result->end != HANDOVER_UNSEEN)
		exec_leave(x, x->left_with, LEASE_RESIGNED);
}

/* ---- the command of a term ---- */

/* The term's command, from its beginning. A status that nobody sees (its guard was killed) is no success. */
static void exec_led(struct exec *x)
{
	x->stage = STAGE_TERM;
	x->ran = true;
	x->wait_status = -1;
	x->started = clock_now();
	exec_restart_started(&x->restart);
}

void exec_start_command(struct exec *x)
{
	struct err err;

	exec_led(x);
	x->supervisor = exec_command_start(&x->command, &x->of, &err);
	if (x->supervisor)
		return;
	x->stage = STAGE_NONE;
	log_event(LOG_ERROR, NULL, "spawn_failed", "%s", err.text);
	x->wait_status = EXIT_CANNOT_RUN << 8;
	exec_tell(x, (struct term_event){ .kind = TERM_EV_EXITED });
	if (exec_restarts(x) == RESTART_ALWAYS && !x->leaving)
		exec_start_later(x);
	else
		exec_leave(x, EXIT_CANNOT_RUN, LEASE_SHUTDOWN);
}

/* The term begins. What is there for it is used, or ended first. */
static void exec_lead(void *arg, struct term_actions *)
{
	struct exec *x = arg;

	switch (x->stage) {
	case STAGE_NONE:
	case STAGE_TERM:
		exec_start_command(x);
		return;
	case STAGE_HELD:
		if (exec_command_begin(&x->command, x->supervisor, &x->of))
			exec_led(x);
		else
			exec_end_early(x);
		return;
	case STAGE_WARM:
		if (exec_warm_lead(&x->warm, x->hooks.token)) {
			exec_led(x);
			return;
		}
		log_event(LOG_WARN, NULL, "warm_cold",
		          "the command has not said that it is ready: it is ended, and started again to lead");
		exec_end_early(x);
		return;
	case STAGE_ENDING:
		return;
	}
}

void exec_on_hold(struct ev_loop *, ev_timer *w, int)
{
	struct exec *x = w->data;

	exec_leave(x, exec_status_of(x->wait_status), LEASE_DONE);
}

void exec_on_again(struct ev_loop *, ev_timer *w, int)
{
	struct exec *x = w->data;

	if (x->leaving || x->hooks.state != TERM_GONE)
		return;
	exec_tell(x, (struct term_event){ .kind = TERM_EV_STARTED });
	exec_start_command(x);
}
