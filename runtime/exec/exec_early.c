#include "exec/exec_internal.h"

#include "base/log.h"
#include "base/mem.h"

/* If a guard cannot be started, or dies before its command began, only a later start takes longer; so it is tried
 * again. */
void exec_hold(struct exec *x)
{
	struct err err;

	if (x->stage != STAGE_NONE || x->hooks.state != TERM_NONE || x->leaving || x->left_with || x->warm.asked)
		return;
	x->supervisor = exec_command_hold(&x->command, &err);
	if (x->supervisor)
		x->stage = STAGE_HELD;
	else
		exec_begin_timer(x, &x->refill, term_back_off(++x->lost_held));
}

void exec_warm_up(struct exec *x)
{
	struct elector_status st;
	struct err err;

	if (x->stage != STAGE_NONE || x->hooks.state != TERM_NONE || x->leaving || !x->warm.asked || !x->is_next ||
	    x->spent)
		return;
	elector_status(x->at->campaign.elector, &st);
	mem_replace(&x->of.lock, st.lock);
	mem_replace(&x->of.identity, st.identity);
	mem_replace(&x->of.address, st.address);
	x->supervisor = exec_command_warm(&x->command, &x->of, &x->warm, &err);
	if (x->supervisor)
		x->stage = STAGE_WARM;
	else
		log_event(LOG_WARN, NULL, "warm_failed",
		          "the command cannot be started before this candidate leads: %s", err.text);
}

/* Ends a guard or a command that is not the term's. */
void exec_end_early(struct exec *x)
{
	if (x->stage == STAGE_HELD) {
		supervisor_kill(x->supervisor);
	} else if (x->stage == STAGE_WARM) {
		supervisor_signal(x->supervisor, SIGTERM);
		exec_begin_timer(x, &x->cool, x->leaving ? x->shutdown_grace : x->at->campaign.times.grace);
	} else {
		return;
	}
	x->stage = STAGE_ENDING;
}

void exec_on_cool(struct ev_loop *, ev_timer *w, int)
{
	struct exec *x = w->data;

	if (x->stage == STAGE_ENDING)
		supervisor_kill(x->supervisor);
}

void exec_on_refill(struct ev_loop *, ev_timer *w, int)
{
	exec_hold(w->data);
}

void exec_tell_warm_ended(const struct exec *x)
{
	char how[64];

	log_event(LOG_WARN, NULL, "warm_ended", "the command ended before it led (%s)",
	          exec_restart_status(x->wait_status, how, sizeof how));
}

/* If this candidate has begun to lead meanwhile, the command is started as usual. */
void exec_on_early_gone(struct exec *x, enum stage was)
{
	if (was == STAGE_HELD)
		exec_begin_timer(x, &x->refill, term_back_off(++x->lost_held));
	if (x->hooks.state == TERM_LEADING && !x->leaving)
		exec_start_command(x);
	else if (x->hooks.state == TERM_LEADING)
		exec_after_command(x);
	else
		exec_warm_up(x);
}
