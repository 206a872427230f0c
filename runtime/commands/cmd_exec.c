#include "commands/commands.h"

#include "base/log.h"
#include "base/mem.h"
#include "commands/exec_command.h"
#include "process/exec_warm.h"
#include "election/elector.h"
#include "election/handover.h"
#include "process/supervisor.h"
#include "admin/admin_metrics.h"
#include "runner/options_election.h"
#include "runner/program.h"
#include "runner/sd_notify.h"
#include "runner/service_order.h"
#include "admin/standing.h"
#include "runner/term_hooks.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOT 0
#define SAME_SIGNAL                                                                                                  \
	(250 * NSEC_PER_MS) /* timeout(1) signals a process, and then its group: within this time a second signal is \
	                       the same one */

/* What the supervisor, of which there is one at a time, is there for. Before a term there may be a guard whose command
 * waits for one, so that it starts sooner; or, with --warm, a command that makes itself ready, while this candidate
 * comes next. When it leads, they are the term's: whatever still runs is killed in time. */
enum stage {
	STAGE_NONE, /* there is no supervisor: neither a command nor anything that it left behind runs */
	STAGE_HELD,
	STAGE_WARM,
	STAGE_ENDING, /* one of those two is being ended. Nothing else is begun before it is gone */
	STAGE_TERM,   /* the command leads, or its term is over */
};

struct exec {
	struct program program;
	struct options options;
	struct elector *elector;
	struct service_order *service; /* NULL: no --service */
	struct admin_renewals renewals;
	struct lease_times times;
	struct elector_next_options next;
	nsec shutdown_grace, at_least;

	struct supervisor *supervisor;
	enum stage stage;
	struct exec_command command;
	struct exec_warm warm;
	bool is_next;            /* this candidate comes next, */
	bool spent;              /*     and its command has ended by itself meanwhile */
	bool ended;              /* STAGE_TERM: the command has; what it left behind is being killed */
	unsigned lost_held;      /* guards that have died before their command began */
	struct exec_term of;     /* the term, for a command that is started again in it */
	struct term_hooks hooks; /* of a script without on_stopped: the command runs, or is told to stop */
	struct instant began;    /* the term, */
	struct instant started;  /*     the command */
	struct exec_restart restart;
	char *shell[4]; /* the command of --command: /bin/sh -c LINE */
	bool leaving;
	struct instant asked_at; /* to stop */
	int asked, status, wait_status;
	bool ran;      /* the command has led */
	char *trouble; /* why the lock cannot be used now; NULL */
	bool hopeless; /* for it never can be */
	ev_timer patience, hold, grace, again, refill, cool;
	struct handover handover; /* that an operator has asked for */
	int left_with;            /* the status with which it leaves when that is over; 0: it stays */
};

static enum restart exec_restarts(const struct exec *x)
{
	return (enum restart)x->options.value[OPTION_RESTART].number;
}

/* -n, or --wait 0. */
static bool exec_waits_not(const struct exec *x)
{
	return options_flag(&x->options, OPTION_NO_WAIT, false) ||
	       (options_set(&x->options, OPTION_WAIT) && x->options.value[OPTION_WAIT].number == 0);
}

static void exec_tell(struct exec *x, struct term_event e);
static void exec_end_early(struct exec *x);

static void exec_leave(struct exec *x, int status, enum lease_reason reason)
{
	if (x->leaving)
		return;
	x->leaving = true;
	x->status = status;
	exec_end_early(x);
	exec_tell(x, (struct term_event){ .kind = TERM_EV_END, .reason = reason });
}

/* ---- the command ---- */

static int exec_status_of(int wait_status)
{
	if (wait_status == -1)
		return EXIT_FAILED_SCRIPT;
	return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

static void exec_lead(struct exec *x);

/* The page is the supervisor's, so it exists while the command does. A command that is only started now gets the term's
 * first deadline on the way (supervisor_spec.first, supervisor_begin). */
static void exec_carry_out(struct exec *x, const struct term_actions *a)
{
	struct page_slot *slot = x->supervisor ? &supervisor_page(x->supervisor)->slot[SLOT] : NULL;
	bool refused = false;

	if (a->set & TERM_DO_PAGE_BEGIN && slot)
		page_begin(supervisor_page(x->supervisor), SLOT, x->hooks.term, x->hooks.token, a->end, a->kill);
	if (a->set & TERM_DO_PAGE_EXTEND)
		refused = !page_extend(slot, x->hooks.term, a->end, a->kill);
	if (a->set & TERM_DO_PAGE_EXTEND && x->supervisor)
		supervisor_extended(x->supervisor);
	if (a->set & TERM_DO_PAGE_STOP)
		page_stop(slot, a->held, a->kill);
	if (a->set & TERM_DO_POKE && x->supervisor && x->stage != STAGE_HELD)
		supervisor_poke(x->supervisor);
	if (a->set & TERM_DO_LEAD)
		exec_lead(x);
	if (a->set & TERM_DO_STOP && x->supervisor)
		supervisor_signal(x->supervisor, SIGTERM);
	if (a->set & TERM_DO_OVER) {
		ev_timer_stop(x->program.loop, &x->hold);
		ev_timer_stop(x->program.loop, &x->grace);
		ev_timer_stop(x->program.loop, &x->again);
	}
	if (a->set & TERM_DO_END)
		elector_end(x->elector, a->reason, a->sit_out, a->grace);
	if (a->set & TERM_DO_REPORT)
		elector_stopped(x->elector, a->reaped);
	if (a->set & TERM_DO_REPORT && a->reaped)
		handover_released(&x->handover);
	if (refused && x->supervisor)
		supervisor_listen(x->supervisor); /* the command may have ended, which is no loss */
	if (refused)
		exec_tell(x, (struct term_event){ .kind = TERM_EV_REFUSED });
	if (a->set & TERM_DO_FINISHED)
		ev_break(x->program.loop, EVBREAK_ALL);
}

static void exec_tell(struct exec *x, struct term_event e)
{
	e.at = clock_now();
	e.now = (struct term_context){ .ready = !x->ended, .running = x->supervisor != NULL, .ending = x->leaving };
	struct term_actions a = term_hooks_step(&x->hooks, &e);
	exec_carry_out(x, &a);
}

/* The lease is kept meanwhile. */
static void exec_start_later(struct exec *x)
{
	nsec pause = exec_restart_ended(&x->restart, x->wait_status, elapsed_standby(x->started, clock_now()));

	ev_now_update(x->program.loop);
	ev_timer_set(&x->again, (double)pause / NSEC_PER_SEC, 0.);
	ev_timer_start(x->program.loop, &x->again);
}

/* Of who was asked to stop. */
static int exec_leaving_status(const struct exec *x)
{
	return x->ran ? exec_status_of(x->wait_status) : 128 + x->asked;
}

static void exec_after_command(struct exec *x)
{
	nsec held = elapsed_standby(x->began, clock_now());

	exec_tell(x, (struct term_event){ .kind = TERM_EV_EXITED });
	if (x->leaving) {
		x->status = exec_leaving_status(x);
		exec_tell(x, (struct term_event){ .kind = TERM_EV_END, .reason = LEASE_SHUTDOWN });
	} else if (exec_restarts(x) == RESTART_ALWAYS) {
		exec_start_later(x);
	} else if (held < x->at_least) {
		service_order_withdraw(x->service, 0, NULL, NULL);
		ev_timer_set(&x->hold, (double)(x->at_least - held) / NSEC_PER_SEC, 0.);
		ev_timer_start(x->program.loop, &x->hold);
	} else {
		exec_leave(x, exec_status_of(x->wait_status), LEASE_DONE);
	}
}

/* Who has asked for a hand-over is to hear who leads then: until that is known it stays, and campaigns no more. */
static void exec_lost_status(struct exec *x, enum lease_reason reason)
{
	if (x->leaving || exec_restarts(x) != RESTART_NEVER)
		return;
	if (handover_pending(&x->handover)) {
		x->left_with = EXIT_LOST;
		elector_pause(x->elector, "its command has ended with its term");
	} else {
		exec_leave(x, EXIT_LOST, reason);
	}
}

static void exec_handed_over(void *arg, uint64_t ticket, const struct handover_result *result)
{
	struct exec *x = arg;
	struct buf reply = { 0 };

	standing_handed_over(&reply, result);
	control_answer(x->program.control, ticket, &reply);
	buf_fini(&reply);
	if (x->left_with && result->end != HANDOVER_UNSEEN)
		exec_leave(x, x->left_with, LEASE_RESIGNED);
}

/* ---- a command that does not lead yet ---- */

static void exec_begin_timer(struct exec *x, ev_timer *t, nsec after)
{
	ev_now_update(x->program.loop);
	ev_timer_stop(x->program.loop, t);
	ev_timer_set(t, (double)after / NSEC_PER_SEC, 0.);
	ev_timer_start(x->program.loop, t);
}

/* A guard that is not had, or dies before its command began, costs a later start some time, and is tried again. */
static void exec_hold(struct exec *x)
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

static void exec_warm_up(struct exec *x)
{
	struct elector_status st;
	struct err err;

	if (x->stage != STAGE_NONE || x->hooks.state != TERM_NONE || x->leaving || !x->warm.asked || !x->is_next ||
	    x->spent)
		return;
	elector_status(x->elector, &st);
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

/* What is not the term's. */
static void exec_end_early(struct exec *x)
{
	if (x->stage == STAGE_HELD) {
		supervisor_kill(x->supervisor);
	} else if (x->stage == STAGE_WARM) {
		supervisor_signal(x->supervisor, SIGTERM);
		exec_begin_timer(x, &x->cool, x->leaving ? x->shutdown_grace : x->times.grace);
	} else {
		return;
	}
	x->stage = STAGE_ENDING;
}

static void exec_on_cool(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct exec *x = w->data;

	(void)loop, (void)revents;
	if (x->stage == STAGE_ENDING)
		supervisor_kill(x->supervisor);
}

static void exec_on_refill(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)revents;
	exec_hold(w->data);
}

static void exec_tell_warm_ended(const struct exec *x)
{
	char how[64];

	log_event(LOG_WARN, NULL, "warm_ended", "the command ended before it led (%s)",
	          exec_restart_status(x->wait_status, how, sizeof how));
}

static void exec_start_command(struct exec *x);

/* If this candidate has begun to lead meanwhile, the command is started as usual. */
static void exec_on_early_gone(struct exec *x, enum stage was)
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

/* ---- the end of a command ---- */

static void exec_on_ended(void *arg, int wait_status)
{
	struct exec *x = arg;

	x->wait_status = wait_status;
	if (x->stage == STAGE_TERM) {
		x->ended = true;
		elector_look(x->elector); /* the guard may have killed it because the lease is over */
	} else if (x->stage == STAGE_WARM) {
		exec_tell_warm_ended(x);
		x->spent = true; /* it is not started again before this candidate comes next anew */
		x->stage = STAGE_ENDING;
	}
}

/* It was told to stop, and its command was, when the term was lost. */
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
	if (!x->elector || (x->hooks.state == TERM_NONE && reaped)) /* NULL: it could not be made */
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
		elector_look(x->elector); /* the guard may not have begun it because the lease is over */
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

static const struct supervisor_callbacks supervisor_callbacks = { .ended = exec_on_ended,
	                                                          .gone = exec_on_gone,
	                                                          .stopped = exec_on_stopped };

/* The term's command, from its beginning. A status that nobody sees (its guard was killed) is no success. */
static void exec_led(struct exec *x)
{
	x->stage = STAGE_TERM;
	x->ran = true;
	x->wait_status = -1;
	x->started = clock_now();
	exec_restart_started(&x->restart);
}

static void exec_start_command(struct exec *x)
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
static void exec_lead(struct exec *x)
{
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

/* ---- the elector ---- */

static void exec_on_lead(void *arg, const struct elector_term *t)
{
	struct exec *x = arg;

	ev_timer_stop(x->program.loop, &x->patience);
	x->of.of = (struct supervisor_term){ .term = t->term, .token = t->token, .end = t->end, .kill = t->kill };
	x->began = clock_now();
	mem_replace(&x->of.lock, t->lock);
	mem_replace(&x->of.identity, t->identity);
	mem_replace(&x->of.address, t->address);
	sd_notify_send("STATUS=leading");
	exec_tell(x,
	          (struct term_event){
			  .kind = TERM_EV_LEAD, .term = t->term, .token = t->token, .end = t->end, .kill = t->kill });
}

static void exec_on_deadline(void *arg, struct instant end, struct instant kill)
{
	struct exec *x = arg;

	x->of.of.end = end;
	x->of.of.kill = kill;
	exec_tell(x, (struct term_event){ .kind = TERM_EV_DEADLINE, .end = end, .kill = kill });
}

static void exec_on_stop(void *arg, enum lease_reason reason, bool held, struct instant stop_by)
{
	struct exec *x = arg;

	exec_tell(x, (struct term_event){ .kind = TERM_EV_STOP, .reason = reason, .held = held, .stop_by = stop_by });
	if (!x->supervisor && !held)
		exec_lost_status(x, reason);
}

static void exec_on_leader(void *arg, const struct elector_leader *l)
{
	struct exec *x = arg;

	handover_leader(&x->handover, l);
	if (l->self || x->ran)
		return;
	if (l->above) {
		exec_leave(x, EXIT_USAGE, LEASE_SHUTDOWN);
		return;
	}
	if (!exec_waits_not(x))
		return;
	if (l->doubt == 0) {
		ev_feed_event(x->program.loop, &x->patience, EV_TIMER);
	} else if (!ev_is_active(&x->patience)) {
		log_event(LOG_INFO, NULL, "in_doubt",
		          "%s may be dead: this waits for at most %.3g s to find out, although it is not to wait",
		          l->identity, (double)l->doubt / NSEC_PER_SEC);
		ev_now_update(x->program.loop);
		ev_timer_set(&x->patience, (double)l->doubt / NSEC_PER_SEC, 0.);
		ev_timer_start(x->program.loop, &x->patience);
	}
}

static void exec_on_next(void *arg, bool is, bool leads)
{
	struct exec *x = arg;

	x->is_next = is;
	x->spent = false;
	if (is)
		exec_warm_up(x);
	else if (!leads && x->stage == STAGE_WARM)
		exec_end_early(x);
}

/* As if an operator had asked for it. */
static void exec_on_hand_over(void *arg, enum successor_why why)
{
	struct exec *x = arg;

	handover_ends(&x->handover, why);
	exec_tell(x, (struct term_event){ .kind = TERM_EV_RESIGN });
}

static void exec_on_not_handed_over(void *arg, const char *request, const char *why)
{
	handover_refused(&((struct exec *)arg)->handover, request, why);
}

static void exec_on_no_leader(void *arg, const char *previous)
{
	(void)arg;
	(void)previous;
}

static void exec_on_ask(void *arg)
{
	struct exec *x = arg;

	elector_answer(x->elector, true, NULL, NULL);
}

/* With -n no store is waited for to recover. */
static void exec_on_trouble(void *arg, const char *why)
{
	struct exec *x = arg;

	mem_replace(&x->trouble, why);
	if (why && !x->ran && exec_waits_not(x))
		ev_feed_event(x->program.loop, &x->patience, EV_TIMER);
}

static void exec_on_hopeless(void *arg, const char *why)
{
	struct exec *x = arg;

	(void)why; /* it is in x->trouble */
	x->hopeless = true;
	ev_feed_event(x->program.loop, &x->patience, EV_TIMER);
}

static void exec_on_finished(void *arg, bool left)
{
	struct exec *x = arg;

	if (left)
		log_event(LOG_WARN, NULL, "left_to_expire", "the lease was not released: others wait it out");
	exec_tell(x, (struct term_event){ .kind = TERM_EV_FINISHED });
}

static void exec_on_renewed(void *arg, nsec took)
{
	admin_renewed(&((struct exec *)arg)->renewals, took);
}

static const struct elector_callbacks elector_callbacks = {
	.lead = exec_on_lead,
	.deadline = exec_on_deadline,
	.stop = exec_on_stop,
	.leader = exec_on_leader,
	.no_leader = exec_on_no_leader,
	.ask = exec_on_ask,
	.renewed = exec_on_renewed,
	.trouble = exec_on_trouble,
	.hopeless = exec_on_hopeless,
	.next = exec_on_next,
	.hand_over = exec_on_hand_over,
	.not_handed_over = exec_on_not_handed_over,
	.finished = exec_on_finished,
};

/* ---- time and signals ---- */

static void exec_on_patience(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct exec *x = w->data;
	struct elector_status st;

	(void)loop;
	(void)revents;
	if (x->ran)
		return;
	if (x->hopeless) {
		if (!x->leaving)
			log_event(LOG_ERROR, NULL, "cannot_run", "%s", x->trouble);
		exec_leave(x, EXIT_USAGE, LEASE_SHUTDOWN);
		return;
	}
	elector_status(x->elector, &st);
	log_event(LOG_WARN, NULL, "not_acquired", "the lock %s was not acquired in time: %s%s", st.lock,
	          x->trouble || !*st.leader ? "" : "held by ",
	          x->trouble   ? x->trouble
	          : *st.leader ? st.leader
	                       : "the store does not answer");
	exec_leave(x, *st.leader && !x->trouble ? (int)x->options.value[OPTION_CONFLICT_EXIT].number : EXIT_UNREACHABLE,
	           LEASE_SHUTDOWN);
}

static void exec_on_hold(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct exec *x = w->data;

	(void)loop;
	(void)revents;
	exec_leave(x, exec_status_of(x->wait_status), LEASE_DONE);
}

static void exec_on_again(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct exec *x = w->data;

	(void)loop;
	(void)revents;
	if (x->leaving || x->hooks.state != TERM_GONE)
		return;
	exec_tell(x, (struct term_event){ .kind = TERM_EV_STARTED });
	exec_start_command(x);
}

static void exec_on_grace(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct exec *x = w->data;

	(void)loop;
	(void)revents;
	if (x->supervisor)
		supervisor_kill(x->supervisor);
}

/* Nobody is led to it any more, so now it stops. It may have ended meanwhile, or have been told to for another reason.
 */
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
	sd_notify_send("STOPPING=1");
	if (x->stage == STAGE_NONE || (x->stage != STAGE_TERM && x->hooks.state == TERM_NONE)) {
		exec_leave(x, exec_leaving_status(x), LEASE_SHUTDOWN);
		return;
	}
	x->leaving = true; /* whatever the command makes of the signal: when it ends, this ends */
	ev_timer_set(&x->grace, (double)x->shutdown_grace / NSEC_PER_SEC, 0.);
	ev_timer_start(x->program.loop, &x->grace);
	if (!service_order_withdraw(x->service, x->shutdown_grace, exec_on_withdrawn, x))
		supervisor_signal(x->supervisor, signal);
}

static void exec_on_signal(void *arg, int signal)
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

static void exec_on_look(void *arg)
{
	const struct exec *x = arg;

	if (x->elector)
		elector_look(x->elector);
}

static void exec_reply_hand_over(struct exec *x, const struct control_request *q, const struct standing *e,
                                 struct buf *reply)
{
	nsec timeout = q->seconds < 0 ? HAND_OVER_TIMEOUT : (nsec)(q->seconds * (double)NSEC_PER_SEC);
	struct err err;

	if (x->leaving)
		control_refuse(reply, "it is shutting down");
	else if (standing_may_hand_over(reply, e) &&
	         handover_begin(&x->handover, x->elector, q->ticket, q->to, timeout, &err) < 0)
		control_refuse(reply, "%s", err.text);
}

static const char *exec_warmth(const struct exec *x)
{
	bool to_tell = x->warm.asked && x->is_next && x->hooks.state == TERM_NONE;

	return to_tell ? exec_warm_standing(&x->warm) : NULL;
}

static void exec_tell_restarts(const void *arg, struct buf *out)
{
	exec_restart_why(arg, out);
}

static void exec_stand(const struct exec *x, struct standing *out, struct elector_status *status)
{
	elector_status(x->elector, status);
	*out = (struct standing){
		.name = "",
		.elector = x->elector,
		.status = status,
		.lease = x->times.lease,
		.preempt_after = x->next.preempt_after,
		.warm = exec_warmth(x),
		.renewals = &x->renewals,
		.service = service_order_service(x->service),
		.tell_more = exec_tell_restarts,
		.tell_more_arg = &x->restart,
	};
}

static void exec_on_control(void *arg, const struct control_request *q, struct buf *reply)
{
	struct exec *x = arg;
	struct elector_status st;
	struct standing e;
	struct buf text = { 0 };

	if (!x->elector) {
		control_refuse(reply, "it is shutting down");
		return;
	}
	exec_stand(x, &e, &st);
	if (strcmp(q->command, "status") == 0) {
		buf_printf(reply, "{\"ok\":true,\"pid\":%d,\"command\":", (int)getpid());
		buf_json(reply, *x->shell ? "sh -c" : x->options.rest[0]);
		buf_adds(reply, ",\"elections\":[");
		standing_json(reply, &e);
		buf_adds(reply, "]}");
	} else if (strcmp(q->command, "is-leading") == 0) {
		buf_printf(reply, "{\"ok\":true,\"leading\":%s}", st.leading ? "true" : "false");
	} else if (strcmp(q->command, "why") == 0) {
		standing_tell(&text, &e);
		state_file_tell(x->program.state_file, &text);
		buf_adds(reply, "{\"ok\":true,\"text\":");
		buf_json(reply, text.data ? text.data : "");
		buf_adds(reply, "}");
		buf_fini(&text);
	} else if (strcmp(q->command, "resign") == 0) {
		standing_not_resigned(&text, &e, q->seconds);
		if (st.leading)
			buf_adds(reply, "{\"ok\":true}");
		else
			control_refuse(reply, "%s", text.data);
		buf_fini(&text);
		if (!st.leading && q->seconds < 0)
			return;
		exec_tell(x,
		          (struct term_event){ .kind = TERM_EV_RESIGN,
		                               .sit_out = q->seconds < 0 ? NSEC_NEVER
		                                                         : (nsec)(q->seconds * (double)NSEC_PER_SEC) });
	} else if (strcmp(q->command, "handover") == 0) {
		exec_reply_hand_over(x, q, &e, reply);
	} else {
		control_refuse(reply, "\"%s\" is not for a command under `lunarch exec`", q->command);
	}
}

static void exec_list_elections(void *arg, void (*each)(void *each_arg, const struct standing *e), void *each_arg)
{
	struct exec *x = arg;
	struct elector_status st;
	struct standing e;

	if (!x->elector)
		return;
	exec_stand(x, &e, &st);
	each(each_arg, &e);
}

static const struct program_ops program_ops = {
	.signal = exec_on_signal,
	.look = exec_on_look,
	.control = exec_on_control,
	.elections = exec_list_elections,
};

/* ---- the command line ---- */

static int exec_check_arguments(struct exec *x, const char **lock)
{
	*lock = x->options.value[OPTION_LEADER_ELECT].number ? options_text(&x->options, OPTION_LOCK, NULL) : "none:";
	if (!**lock)
		return command_fail(COMMAND_EXEC, EXIT_USAGE,
		                    "no lock: say which, as in\n  lunarch exec --lock backup -- %s",
		                    x->options.rest[0] ? x->options.rest[0] : "COMMAND");
	if (options_set(&x->options, OPTION_SHELL) && x->options.rest[0])
		return command_fail(COMMAND_EXEC, EXIT_USAGE,
		                    "-c and the command \"%s\" both say what to run: give one of them",
		                    x->options.rest[0]);
	if (!x->options.rest[0] && !options_set(&x->options, OPTION_SHELL))
		return command_fail(COMMAND_EXEC, EXIT_USAGE,
		                    "no command: say what to run, as in\n  lunarch exec --lock %s -- COMMAND", *lock);
	return -1;
}

static int exec_make_elector(struct exec *x, const struct elector_config *c, struct err *err)
{
	char *target = options_election_service(&x->options, "", false, err);

	if (!target)
		return -1;
	const struct service_config s = {
		.env = c->env, .target = target, .lock = c->lock, .name = "", .address = c->address
	};
	x->elector = service_order_elector(&x->service, &s, c, &elector_callbacks, x, err);
	free(target);
	return x->elector ? 0 : -1;
}

static int exec_open_elector(struct exec *x, const char *lock, struct err *err)
{
	const struct options *o = &x->options;
	struct elector_config c = {
		.env = &x->program.env,
		.timeline = &x->program.timeline,
		.self = &x->program.self,
		.death_watches = x->program.death_watches,
		.lock = lock,
		.identity = options_text(o, OPTION_IDENTITY, NULL),
		.address = options_text(o, OPTION_ADDRESS, NULL),
		.times = x->times,
		.reclaim = options_flag(o, OPTION_RECLAIM, false),
		.no_release = options_flag(o, OPTION_NO_RELEASE, false),
		.next = x->next,
	};

	if (exec_make_elector(x, &c, err) < 0)
		return -1;
	struct elector_status st;
	elector_status(x->elector, &st);
	log_program(st.identity, st.lock);
	program_say_local(&x->program, lock);
	return 0;
}

/* Whether the lock is held for the term that started this process: waiting for it would never end. */
static bool exec_nested(const struct exec *x)
{
	const char *held = getenv("LUNARCH_TERM_LOCK");
	struct elector_status st;

	elector_status(x->elector, &st);
	return held && strcmp(held, st.lock) == 0;
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
	handover_init(&x->handover, x->program.loop, exec_handed_over, x);
	x->at_least =
		options_set(&x->options, OPTION_AT_LEAST) ? x->options.value[OPTION_AT_LEAST].number * NSEC_PER_MS : 0;
}

/* --wait counts from here: the store is asked, and what this process did before is not the lock's. */
static void exec_begin_patience(struct exec *x)
{
	if (options_set(&x->options, OPTION_WAIT) && !exec_waits_not(x))
		exec_begin_timer(x, &x->patience, x->options.value[OPTION_WAIT].number * NSEC_PER_MS);
}

/* /bin/sh, as in system(3), whatever $SHELL is: cron and a login shell run the same. */
static void exec_make_shell(struct exec *x)
{
	static char shell[] = "/bin/sh", option[] = "-c";

	if (!options_set(&x->options, OPTION_SHELL))
		return;
	x->shell[0] = shell;
	x->shell[1] = option;
	x->shell[2] = mem_dup(x->options.value[OPTION_SHELL].text);
}

/* Of a command that did not lead. There is no elector if it could not be made. */
static void exec_end_guard(struct exec *x)
{
	x->leaving = true;
	exec_end_early(x);
	while (x->stage == STAGE_ENDING)
		ev_run(x->program.loop, EVRUN_ONCE);
}

static int exec_hold_and_run(struct exec *x, const char *lock)
{
	static const int signals[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGALRM, 0 };
	struct err err;
	int status = EXIT_USAGE;

	if (options_times(&x->options, &SCRIPT_TIMES_NONE, &x->times, &x->shutdown_grace, &err) < 0 ||
	    options_next(&x->options, &SCRIPT_NEXT_NONE, &x->next, &err) < 0)
		return command_fail(COMMAND_EXEC, EXIT_USAGE, "%s", err.text);
	if (options_flag(&x->options, OPTION_WARM, false) && exec_warm_init(&x->warm, x->times.lease, &err) < 0)
		return command_fail(COMMAND_EXEC, EXIT_FAILED_SCRIPT, "%s", err.text);
	if (program_init(&x->program, &x->options, signals, &program_ops, x, &err) < 0)
		return command_fail(COMMAND_EXEC, command_status_of(&err), "%s", err.text);
	term_hooks_configure(&x->hooks, &x->times, x->shutdown_grace, false, false);
	exec_make_timers(x);
	exec_make_shell(x);
	const struct guard_fork fork = program_fork(&x->program, NULL);
	x->command = (struct exec_command){ .program = &x->program,
		                            .argv = *x->shell ? x->shell : x->options.rest,
		                            .kill_allowance = x->times.kill,
		                            .callbacks = &supervisor_callbacks,
		                            .arg = x,
		                            .fork = &fork };
	exec_hold(x); /* the guard begins while the lock is opened and asked */
	x->command.fork = NULL;
	if (exec_open_elector(x, lock, &err) < 0) {
		status = command_fail(COMMAND_EXEC, command_status_of(&err), "%s", err.text);
	} else if (exec_nested(x)) {
		status = command_fail(COMMAND_EXEC, EXIT_USAGE,
		                      "this already runs under the lock %s (LUNARCH_TERM_LOCK says so): it would "
		                      "wait for itself for ever",
		                      getenv("LUNARCH_TERM_LOCK"));
	} else {
		elector_campaign(x->elector);
		exec_begin_patience(x);
		proof_self_tidy(&x->program.self);
		sd_notify_send("READY=1\nSTATUS=standing by"); /* a standby is ready, too: to take over */
		ev_run(x->program.loop, 0);
		status = x->status;
	}
	exec_end_guard(x);
	if (x->handover.loop)
		handover_fini(&x->handover);
	elector_free(x->elector);
	service_order_free(x->service);
	program_fini(&x->program);
	free(x->trouble);
	free(x->shell[2]);
	exec_term_fini(&x->of);
	exec_warm_fini(&x->warm);
	return status;
}

int cmd_exec(int argc, char **argv)
{
	struct exec x = { 0 };
	const char *lock;
	int status = command_begin(&x.options, COMMAND_EXEC, argc, argv);

	if (status < 0)
		status = exec_check_arguments(&x, &lock);
	return status >= 0 ? status : exec_hold_and_run(&x, lock);
}
