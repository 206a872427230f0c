#include "runner/run.h"

#include "base/log.h"
#include "base/mem.h"
#include "runner/candidate.h"
#include "runner/exit_status.h"
#include "runner/reload.h"
#include "runner/sd_notify.h"
#include "runner/worker_set.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUIT_TIMEOUT_S 3. /* from WIRE_QUIT to the kill */

static bool run_once(const struct run *r)
{
	return options_flag(&r->options, OPTION_ONCE, false);
}

static void run_tell_systemd(struct run *r)
{
	uint32_t leading = 0;

	for (uint32_t i = 0; i < r->candidate_count; i++)
		leading += r->candidates[i]->term.hooks.state == TERM_LEADING;
	const char *ready = r->ready ? "" : "READY=1\n";
	if (r->candidate_count == 1)
		sd_notify_send("%sSTATUS=%s", ready, leading ? "leading" : "standing by");
	else
		sd_notify_send("%sSTATUS=leading %u of %u elections", ready, leading, r->candidate_count);
	r->ready = true;
}

/* ---- leaving ---- */

static bool run_all_finished(const struct run *r)
{
	for (uint32_t i = 0; i < r->candidate_count; i++)
		if (!term_supervision_finished(&r->candidates[i]->term))
			return false;
	return true;
}

static void run_quit_worker_sets(struct run *r)
{
	struct worker_set *next;

	for (struct worker_set *s = r->worker_sets; s; s = next) {
		next = s->next;
		worker_set_quit(s);
		if (!s->supervisor && !s->told)
			worker_set_free(s);
	}
	if (!r->worker_sets)
		ev_break(r->program.loop, EVBREAK_ALL);
	ev_timer_again(r->program.loop, &r->quit_timer);
}

static void run_on_quit_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct run *r = w->data;
	bool again = r->killing;

	(void)revents;
	r->killing = true;
	for (struct worker_set *s = r->worker_sets; s; s = s->next)
		if (s->supervisor)
			supervisor_kill(s->supervisor);
	if (again || !r->worker_sets)
		ev_break(loop, EVBREAK_ALL);
}

void run_end(struct run *r, int status, enum lease_reason reason)
{
	if (r->ending) {
		r->status = r->status ? r->status : status;
		return;
	}
	r->ending = true;
	r->asked_at = clock_now();
	r->starting_over = false;
	r->status = status;
	sd_notify_send("STOPPING=1");
	control_finish(r->program.control, "reload", "it is shutting down");
	for (uint32_t i = 0; i < r->candidate_count; i++)
		candidate_end(r->candidates[i], reason);
	if (run_all_finished(r))
		run_quit_worker_sets(r);
}

void run_kill(struct run *r)
{
	r->killing = true;
	r->status = EXIT_TERMINATED;
	log_event(LOG_WARN, NULL, "killing", "a second signal: the script is killed");
	for (uint32_t i = 0; i < r->candidate_count; i++)
		candidate_kill(r->candidates[i]);
	for (struct worker_set *s = r->worker_sets; s; s = s->next)
		if (s->supervisor)
			supervisor_kill(s->supervisor);
	ev_timer_again(r->program.loop, &r->quit_timer);
}

void run_candidate_finished(struct run *r)
{
	if (!run_all_finished(r))
		return;
	run_quit_worker_sets(r);
}

static int run_once_status(enum lease_reason reason)
{
	switch (reason) {
	case LEASE_EXPIRED:
	case LEASE_STOLEN:
	case LEASE_DELETED:
		return EXIT_LOST;
	case LEASE_ERROR:
	case LEASE_KILLED:
	case LEASE_WORKER:
		return EXIT_FAILED_SCRIPT;
	case LEASE_RESIGNED:
	case LEASE_DECLINED:
	case LEASE_SHUTDOWN:
	case LEASE_RELOAD:
	case LEASE_DONE:
	case LEASE_REASONS:
		return EXIT_DONE;
	}
	return EXIT_DONE;
}

/* ---- loading ---- */

static int run_fail(struct run *r, const char *text)
{
	log_event(LOG_ERROR, NULL, "cannot_run", "%s", text);
	run_end(r, EXIT_USAGE, LEASE_SHUTDOWN);
	return -1;
}

void run_candidate_hopeless(struct run *r, const char *why)
{
	struct elector_status st;
	/* A lock that a reload has named may be mended by the next one, as what else is wrong in a script. */
	bool answered = r->ending || r->started_over;

	for (uint32_t i = 0; i < r->candidate_count && !answered; i++) {
		elector_status(r->candidates[i]->elector, &st);
		answered = st.store.answered;
	}
	if (!answered)
		run_fail(r, why);
}

static int run_check_locks_differ(struct run *r)
{
	struct elector_status a, b;
	char text[600];

	for (uint32_t i = 0; i < r->candidate_count; i++)
		for (uint32_t k = 0; k < i; k++) {
			elector_status(r->candidates[i]->elector, &a);
			elector_status(r->candidates[k]->elector, &b);
			if (strcmp(a.lock, b.lock) != 0)
				continue;
			snprintf(text, sizeof text,
			         "%s: the lock %s is listed twice (also by %s): each election needs a lock of its own",
			         r->candidates[i]->settings.where, a.lock, r->candidates[k]->settings.where);
			return run_fail(r, text);
		}
	return 0;
}

static void run_free_candidates(struct run *r)
{
	for (uint32_t i = 0; i < r->candidate_count; i++)
		candidate_free(r->candidates[i]);
	free(r->candidates);
	r->candidates = NULL;
	r->candidate_count = 0;
}

/* All of them or none, so that every candidate in the list has an elector. */
/* The lines of the log about the program have the identity that all of its elections share, and the only election. */
static void run_name_log(const struct run *r)
{
	struct elector_status first, other;

	elector_status(r->candidates[0]->elector, &first);
	for (uint32_t i = 1; first.identity && i < r->candidate_count; i++) {
		elector_status(r->candidates[i]->elector, &other);
		if (strcmp(first.identity, other.identity) != 0)
			first.identity = NULL;
	}
	log_program(first.identity, r->candidate_count > 1 ? NULL : *first.name ? first.name : first.lock);
}

static int run_open_candidates(struct run *r)
{
	struct err err;
	char *fallback = options_default_lock(r->script, r->is_text, &err);
	int result = fallback ? 0 : -1;

	for (uint32_t i = 0; result == 0 && i < r->candidate_count; i++)
		result = candidate_open(r->candidates[i], r->candidate_count > 1, fallback, &err);
	free(fallback);
	if (result == 0) {
		run_name_log(r);
		return 0;
	}
	run_free_candidates(r);
	return run_fail(r, err.text);
}

/* Each isolated election gets a worker set of its own, which loads the script once more. */
static void run_spawn_isolated(struct run *r, struct worker_set *shared)
{
	struct err err;

	for (uint32_t i = 0; i < r->candidate_count; i++) {
		if (!(r->candidates[i]->settings.flags & WIRE_ELECTION_ISOLATE) || r->candidate_count == 1)
			continue;
		struct worker_set *own = worker_set_new(r, i + 1);
		own->on_start_ran = shared->on_start_ran;
		r->candidates[i]->worker_set = own;
		if (worker_set_spawn(own, NULL, &err) < 0) {
			run_fail(r, err.text);
			return;
		}
	}
}

bool run_in_charge(const struct run *r, const struct worker_set *s)
{
	for (uint32_t i = 0; i < r->candidate_count; i++)
		if (r->candidates[i]->worker_set == s)
			return true;
	return false;
}

/* Whether s has to run the on_stopped of a worker that died. */
static bool run_owes_hooks(const struct run *r, const struct worker_set *s)
{
	for (uint32_t i = 0; i < r->candidate_count; i++)
		if (r->candidates[i]->worker_set == s && r->candidates[i]->term.hooks.state == TERM_OWED)
			return true;
	return false;
}

static void run_make_candidates(struct run *r, struct worker_set *s)
{
	r->candidate_count = s->settings_count;
	r->candidates = mem_zero(sizeof *r->candidates * r->candidate_count);
	for (uint32_t i = 0; i < r->candidate_count; i++) {
		r->candidates[i] = candidate_new(r, s, i, &s->settings[i]);
		s->settings[i] = (struct election_settings){ 0 };
	}
}

static void run_first_load(struct run *r, struct worker_set *s)
{
	run_make_candidates(r, s);
	if (run_open_candidates(r) < 0) {
		run_quit_worker_sets(r);
		return;
	}
	if (run_check_locks_differ(r) < 0)
		return;
	run_spawn_isolated(r, s);
	if (run_in_charge(r, s))
		worker_set_go(s, !s->on_start_ran);
	else
		worker_set_quit(s);
}

/* ---- what worker sets and candidates report ---- */

void run_loaded(struct run *r, struct worker_set *s)
{
	if ((r->ending || r->starting_over) && !run_owes_hooks(r, s))
		worker_set_quit(s);
	else if (s->pending)
		reload_loaded(r, s);
	else if (!r->candidates)
		run_first_load(r, s);
	else
		worker_set_go(s, !s->on_start_ran);
}

void run_load_failed(struct run *r, struct worker_set *s, const char *text)
{
	log_event(LOG_ERROR, NULL, "load_failed", "%s", text);
	if (s->pending) {
		reload_failed(r, text);
		reload_if_due(r);
	} else if (!r->candidates) {
		run_end(r, EXIT_FAILED_SCRIPT, LEASE_ERROR);
	} else {
		/* A worker that follows a dead one. The next tries again later: the script may be repaired by then. */
		supervisor_kill(s->supervisor);
	}
}

void run_started(struct run *r, struct worker_set *s)
{
	if (s->pending) {
		reload_started(r, s);
	} else {
		for (uint32_t i = 0; i < r->candidate_count; i++)
			if (r->candidates[i]->worker_set == s)
				candidate_worker_ready(r->candidates[i]);
		run_tell_systemd(r);
	}
	reload_if_due(r);
}

void run_term_began(struct run *r)
{
	run_tell_systemd(r);
}

void run_next_idle(struct candidate *p)
{
	if (reload_move(p))
		candidate_worker_ready(p);
	else if (reload_is_due_to_move(p)) /* its term began anew before that */
		term_supervision_tell(&p->term, (struct term_event){ .kind = TERM_EV_RELOAD });
}

void run_term_over(struct run *r, struct candidate *p)
{
	if (reload_move(p))
		term_supervision_moved(&p->term);
	if (run_once(r) && !r->ending)
		run_end(r, run_once_status(p->term.hooks.reason), LEASE_SHUTDOWN);
	run_tell_systemd(r);
}

static void run_restart_later(struct run *r, struct worker_set *s, bool had_started)
{
	if (elapsed_standby(s->spawned_at, clock_now()) > 60 * NSEC_PER_SEC)
		s->failures = 0;
	/* The first follows at once. So does one that has to run an on_stopped, since the lease is held until then; a
	 * back-off comes before the next term, so this cannot repeat quickly. A worker that died before it had started
	 * would die again, so the next waits. */
	bool at_once = s->failures++ == 0 || (had_started && run_owes_hooks(r, s));
	double after = at_once ? 0. : (double)term_back_off(s->failures - 1) / NSEC_PER_SEC;
	ev_timer_set(&s->restart, after, 0.);
	ev_timer_start(r->program.loop, &s->restart);
}

static void run_start_over(struct run *r)
{
	struct err err;

	run_free_candidates(r);
	ev_timer_stop(r->program.loop, &r->quit_timer);
	r->starting_over = false;
	r->started_over = true;
	struct worker_set *s = worker_set_new(r, 0);
	s->on_start_ran = true;
	if (worker_set_spawn(s, NULL, &err) < 0)
		run_fail(r, err.text);
}

void run_worker_set_gone(struct run *r, struct worker_set *s, bool had_started)
{
	bool never_loaded = !r->candidates && !r->ending;

	if (s->reloaded && !s->reloaded->pending)
		reload_move_candidates(r, s);
	if (s->pending && !s->leaving && !r->ending)
		reload_failed(r, "the process that loaded the new script died");
	if (never_loaded && !r->starting_over)
		run_end(r, EXIT_FAILED_SCRIPT, LEASE_ERROR);
	if (r->killing || s->leaving || s->pending || !r->candidates || (r->ending && run_all_finished(r))) {
		struct worker_set *old = reload_replaced_by(r, s);
		if (old)
			old->reloaded = NULL;
		if (!run_in_charge(r, s) || s->leaving || r->killing)
			worker_set_free(s);
		else
			s->told = false;
	} else {
		s->told = false;
		run_restart_later(r, s, had_started);
	}
	if (r->worker_sets)
		reload_if_due(r);
	else if (r->starting_over && !r->ending)
		run_start_over(r);
	else if (r->ending && run_all_finished(r))
		ev_break(r->program.loop, EVBREAK_ALL);
}

int run_script(struct run *r, guard_worker *worker, const struct program_ops *ops, struct err *err)
{
	static const int signals[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1, 0 };

	if (program_init(&r->program, &r->options, signals, ops, r, err) < 0)
		return -1;
	ev_timer_init(&r->quit_timer, run_on_quit_timer, 0., QUIT_TIMEOUT_S);
	r->quit_timer.data = r;
	const struct guard_fork fork = program_fork(&r->program, worker);
	if (worker_set_spawn(worker_set_new(r, 0), &fork, err) < 0)
		return -1;
	lock_prepare(options_text(&r->options, OPTION_LOCK, "")); /* while the worker loads its script */
	proof_self_tidy(&r->program.self);
	ev_run(r->program.loop, 0);
	ev_timer_stop(r->program.loop, &r->quit_timer);
	run_free_candidates(r);
	while (r->worker_sets)
		worker_set_free(r->worker_sets);
	program_fini(&r->program);
	return r->status;
}
