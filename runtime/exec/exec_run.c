#include "exec/exec_internal.h"

#include "base/log.h"
#include "base/mem.h"
#include "config/election_settings.h"
#include "exec/exec.h"
#include "program/sd_notify.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void exec_on_look(void *arg)
{
	const struct exec *x = arg;

	for (uint32_t i = 0; i < x->slot_count; i++)
		if (x->slots[i].campaign.elector)
			elector_look(x->slots[i].campaign.elector);
}

static const struct program_ops program_ops = {
	.signal = exec_on_signal,
	.look = exec_on_look,
	.orders = &exec_orders,
};

static int exec_open_elector(struct exec *x, const char *lock, struct err *err)
{
	struct campaign_place at = campaign_place(&x->program, lock, x->slot_count > 1);

	for (uint32_t i = 0; i < x->slot_count; i++) {
		struct exec_slot *s = &x->slots[i];
		char *url = s->number ? election_slot_lock(lock, s->number) : mem_dup(lock);
		at.lock = url;
		at.name = s->name;
		int result = campaign_open(&s->campaign, &at, NULL, &exec_elector_callbacks, s, err);
		free(url);
		if (result < 0)
			return -1;
	}
	struct elector_status st;
	elector_status(x->at->campaign.elector, &st);
	log_program(st.identity, x->slot_count > 1 ? NULL : st.lock);
	program_say_local(&x->program, lock);
	return 0;
}

/* Whether the lock is held for the term that started this process: waiting for it would never end. */
static bool exec_nested(const struct exec *x)
{
	const char *held = getenv("LUNARCH_TERM_LOCK");
	struct elector_status st;

	elector_status(x->at->campaign.elector, &st);
	return held && x->slot_count == 1 && strcmp(held, st.lock) == 0;
}

bool exec_waits_not(const struct exec *x)
{
	return options_flag(x->options, OPTION_NO_WAIT) ||
	       (options_set(x->options, OPTION_WAIT) && x->options->value[OPTION_WAIT].number == 0);
}

void exec_begin_timer(struct exec *x, ev_timer *t, nsec after)
{
	ev_now_update(x->program.loop);
	ev_timer_stop(x->program.loop, t);
	ev_timer_set(t, (double)after / NSEC_PER_SEC, 0.);
	ev_timer_start(x->program.loop, t);
}

static void exec_make_timers(struct exec *x)
{
	ev_timer_init(&x->patience, exec_on_patience, 0., 0.);
	ev_timer_init(&x->hold, exec_on_hold, 0., 0.);
	ev_timer_init(&x->grace, exec_on_grace, 0., 0.);
	ev_timer_init(&x->again, exec_on_again, 0., 0.);
	ev_timer_init(&x->refill, exec_on_refill, 0., 0.);
	ev_timer_init(&x->cool, exec_on_cool, 0., 0.);
	x->patience.data = x->hold.data = x->grace.data = x->again.data = x->refill.data = x->cool.data = x;
	for (uint32_t i = 0; i < x->slot_count; i++) {
		campaign_init(&x->slots[i].campaign, &x->program);
		x->slots[i].campaign.handed_over = exec_handed_over;
		x->slots[i].campaign.arg = x;
	}
	x->at_least =
		options_set(x->options, OPTION_AT_LEAST) ? x->options->value[OPTION_AT_LEAST].number * NSEC_PER_MS : 0;
}

/* --wait counts from here: the store is asked, and what this process did before is not the lock's. */
static void exec_begin_patience(struct exec *x)
{
	if (options_set(x->options, OPTION_WAIT) && !exec_waits_not(x))
		exec_begin_timer(x, &x->patience, x->options->value[OPTION_WAIT].number * NSEC_PER_MS);
}

/* /bin/sh, as in system(3), whatever $SHELL is: cron and a login shell run the same. */
static void exec_make_shell(struct exec *x)
{
	static char shell[] = "/bin/sh", option[] = "-c";

	if (!options_set(x->options, OPTION_SHELL))
		return;
	x->shell[0] = shell;
	x->shell[1] = option;
	x->shell[2] = mem_dup(x->options->value[OPTION_SHELL].text);
}

/* Ends the guard of a command that did not lead. There is no elector if it could not be made. */
static void exec_end_guard(struct exec *x)
{
	x->leaving = true;
	exec_end_early(x);
	while (x->stage == STAGE_ENDING)
		ev_run(x->program.loop, EVRUN_ONCE);
}

const int exec_signals[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGALRM, 0 };

static int exec_make_slots(struct exec *x, struct err *err)
{
	int asked = election_slots(x->options, err);

	if (asked < 0)
		return -1;
	if (asked && options_flag(x->options, OPTION_WARM)) {
		err_set(err, ERR_USAGE,
		        "--warm and --slots: a command that makes itself ready does not know its slot yet");
		return -1;
	}
	x->slot_count = asked ? (uint32_t)asked : 1;
	x->at = x->slots = mem_zero(x->slot_count * sizeof *x->slots);
	for (uint32_t i = 0; i < x->slot_count; i++) {
		struct exec_slot *s = &x->slots[i];
		s->x = x;
		s->number = asked ? i + 1 : 0;
		s->campaign.options = x->options;
		if (asked)
			snprintf(s->name, sizeof s->name, "slot-%u", s->number);
		if (campaign_read(&s->campaign, NULL, err) < 0)
			return -1;
	}
	return 0;
}

static int exec_configure(struct exec *x, struct err *err)
{
	x->shutdown_grace = election_time(x->options, NULL, OPTION_SHUTDOWN_GRACE);
	if (exec_make_slots(x, err) < 0 ||
	    (options_flag(x->options, OPTION_WARM) && exec_warm_init(&x->warm, x->at->campaign.times.lease, err) < 0) ||
	    program_init(&x->program, x->options, exec_signals, &program_ops, x, err) < 0)
		return -1;
	term_hooks_configure(&x->hooks, &x->at->campaign.times, x->shutdown_grace, false, false);
	exec_make_timers(x);
	exec_make_shell(x);
	return 0;
}

/* The guard begins while the lock is opened and asked. */
static void exec_begin_guard(struct exec *x)
{
	const struct guard_fork fork = program_fork(&x->program, NULL);

	x->command = (struct exec_command){ .program = &x->program,
		                            .argv = *x->shell ? x->shell : x->options->rest,
		                            .slots = x->at->number,
		                            .kill_allowance = x->at->campaign.times.kill,
		                            .callbacks = &exec_supervisor_callbacks,
		                            .arg = x,
		                            .fork = &fork };
	exec_hold(x);
	x->command.fork = NULL;
}

static int exec_campaign(struct exec *x, const char *lock, struct err *err)
{
	if (exec_open_elector(x, lock, err) < 0)
		return -1;
	if (exec_nested(x))
		return err_set(err, ERR_USAGE,
		               "this already runs under the lock %s (LUNARCH_TERM_LOCK says so): it would wait for "
		               "itself for ever",
		               getenv("LUNARCH_TERM_LOCK"));
	exec_bar(x);
	exec_begin_patience(x);
	proof_self_tidy(&x->program.self);
	sd_notify_send("READY=1\nSTATUS=standing by"); /* a standby is ready, too: to take over */
	ev_run(x->program.loop, 0);
	return x->status;
}

static void exec_fini(struct exec *x)
{
	for (uint32_t i = 0; i < x->slot_count; i++)
		campaign_fini(&x->slots[i].campaign);
	program_fini(&x->program);
	free(x->slots);
	free(x->trouble);
	free(x->shell[2]);
	exec_term_fini(&x->of);
	exec_warm_fini(&x->warm);
}

int exec_run(struct options *o, const char *lock, struct err *err)
{
	struct exec x = { .options = o };

	if (exec_configure(&x, err) < 0) {
		free(x.slots);
		return -1;
	}
	exec_begin_guard(&x);
	int status = exec_campaign(&x, lock, err);
	exec_end_guard(&x);
	exec_fini(&x);
	return status;
}
