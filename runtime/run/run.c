#include "run/run.h"

#include "base/log.h"
#include "base/mem.h"
#include "config/election_settings.h"
#include "locks/lock.h"
#include "program/exit_status.h"
#include "program/sd_notify.h"
#include "run/candidate.h"
#include "run/worker_set.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUIT_TIMEOUT (3 * NSEC_PER_SEC) /* at the end of the program: from WIRE_QUIT to the kill */
#define KILL_TIMEOUT (6 * NSEC_PER_SEC) /* from that kill to the end, whatever still runs */

static bool run_once(const struct run *r)
{
	return options_flag(&r->options, OPTION_ONCE);
}

/* A candidate leads until all of its term has stopped, or until the lease is lost. */
static bool candidate_leads(const struct candidate *p)
{
	return p->term.hooks.state != TERM_NONE && elector_leads(p->campaign.elector);
}

/* How many elections it leads. */
static void run_tell_systemd(struct run *r)
{
	uint32_t leading = 0, count = r->life.candidate_count;

	for (uint32_t i = 0; i < count && sd_notify_listened(); i++)
		leading += candidate_leads(r->candidates[i]);
	if (r->life.ending)
		return; /* it is told that it drains */
	if (r->ready && r->told_leading == leading && r->told_count == count)
		return;
	r->told_leading = leading;
	r->told_count = count;
	const char *ready = r->ready ? "" : "READY=1\n";
	if (count == 1)
		sd_notify_send("%sSTATUS=%s", ready, leading ? "leading" : "standing by");
	else
		sd_notify_send("%sSTATUS=leading %u of %u elections", ready, leading, count);
	r->ready = true;
}

/* ---- what happens ---- */

static void run_refresh(struct run *r)
{
	for (uint32_t i = 0; i < r->life.candidate_count; i++)
		r->life.candidate[i].term = term_supervision_life(&r->candidates[i]->term);
}

/* An action concerns its candidate alone, so that n of them take n steps. */
static void run_refresh_after(struct run *r, const struct life_action *a)
{
	if (a->what == LIFE_DO_CHECK)
		run_refresh(r);
	else if (a->candidate < r->life.candidate_count)
		r->life.candidate[a->candidate].term = term_supervision_life(&r->candidates[a->candidate]->term);
}

void run_look(struct run *r)
{
	ev_feed_event(r->program.loop, &r->soon, EV_TIMER);
}

void run_tell(struct run *r, const struct life_event *e)
{
	run_refresh(r);
	life_tell(&r->life, e);
	run_look(r);
}

/* How long it takes at most until all terms have drained, and their hooks and the last write to the store have
 * ended. The duration of a lease is enough for the hooks and the write. */
static nsec run_longest_stop(const struct run *r)
{
	nsec longest = 0;

	for (uint32_t i = 0; i < r->life.candidate_count; i++) {
		const struct candidate *c = r->candidates[i];
		nsec its = c->term.hooks.shutdown_grace + c->campaign.times.lease;
		longest = its > longest ? its : longest;
	}
	return longest;
}

void run_end(struct run *r, int status, enum lease_reason reason)
{
	if (r->life.ending) {
		r->status = r->status ? r->status : status;
		return;
	}
	r->asked_at = clock_now();
	r->end_reason = reason;
	r->status = status;
	sd_notify_stopping(run_longest_stop(r));
	run_tell(r, &(struct life_event){ .kind = LIFE_EV_END });
}

static bool run_all_finished(const struct run *r)
{
	for (uint32_t i = 0; i < r->life.candidate_count; i++)
		if (!term_supervision_finished(&r->candidates[i]->term))
			return false;
	return true;
}

static void run_on_last(struct ev_loop *loop, ev_timer *, int)
{
	ev_break(loop, EVBREAK_ALL);
}

static void run_end_at_last(struct run *r)
{
	if (ev_is_active(&r->last))
		return;
	ev_timer_set(&r->last, (double)KILL_TIMEOUT / NSEC_PER_SEC, 0.);
	ev_timer_start(r->program.loop, &r->last);
}

void run_kill(struct run *r)
{
	r->status = EXIT_TERMINATED;
	log_event(LOG_WARN, NULL, "killing", "a second signal: the script is killed");
	run_tell(r, &(struct life_event){ .kind = LIFE_EV_KILL });
	run_end_at_last(r);
}

static void run_begin_reload(struct run *r)
{
	sd_notify_reloading();
	log_event(LOG_INFO, NULL, "reloading", "loading %s anew",
	          r->crontab_count ? "the crontabs"
	          : r->is_text     ? "the text"
	                           : r->script);
	r->reload_failed = false;
	snprintf(r->wrong, sizeof r->wrong, "the process that loaded it died");
	for (size_t i = 0; i < RUN_REQUESTS; i++)
		r->requests[i].loading = true;
}

/* Answers the requests that came before the version was loaded; all: every request, at the end of the program. */
static void run_answer_requests(struct run *r, bool all, const char *error)
{
	struct buf reply = { 0 };

	if (error) {
		control_refuse(&reply, "%s", error);
	} else {
		control_agree(&reply);
		buf_adds(&reply, "}");
	}
	for (size_t i = 0; i < RUN_REQUESTS; i++) {
		struct run_reload_request *q = &r->requests[i];
		if (!q->ticket || !(all || q->loading))
			continue;
		control_answer(r->program.control, q->ticket, &reply);
		q->ticket = 0;
	}
	buf_fini(&reply);
}

static void run_answer_reload(struct run *r, bool good)
{
	const char *stays = r->crontab_count ? "the old jobs go on" : "the old script runs on";
	char text[1100];

	r->reload_failed = !good;
	if (r->ready)
		sd_notify_send("READY=1");
	if (!good)
		log_event(LOG_WARN, NULL, "reload_failed", "%s", stays);
	snprintf(text, sizeof text, "%s: %s", stays, r->wrong);
	run_answer_requests(r, false, good ? NULL : text);
}

void run_reload(struct run *r, uint64_t ticket)
{
	struct run_reload_request *place = r->requests;

	/* The smallest ticket: none, or the oldest client, which must have gone if there is no other place. */
	for (size_t i = 1; i < RUN_REQUESTS; i++)
		if (r->requests[i].ticket < place->ticket)
			place = &r->requests[i];
	if (ticket)
		*place = (struct run_reload_request){ .ticket = ticket };
	run_tell(r, &(struct life_event){ .kind = LIFE_EV_RELOAD });
}

bool run_taken(struct run *r, uint32_t set, bool good, const char *text)
{
	if (r->life.set[set].take == TAKE_NONE)
		return false;
	if (!good && r->life.set[set].take == TAKE_ASKED) {
		snprintf(r->wrong, sizeof r->wrong, "%s", text);
		log_event(LOG_ERROR, NULL, "load_failed", "%s", text);
	}
	run_tell(r, &(struct life_event){ .kind = LIFE_EV_TAKEN, .set = set, .good = good });
	return true;
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
	case LEASE_FENCE_FAILED:
	case LEASE_REASONS:
		return EXIT_DONE;
	}
	return EXIT_DONE;
}

void run_term_over(struct run *r, struct candidate *p)
{
	if (run_once(r) && !r->life.ending)
		run_end(r, run_once_status(p->term.hooks.reason), LEASE_SHUTDOWN);
	r->life.candidate[p->number].term = term_supervision_life(&p->term);
	if (life_move(&r->life, p->number))
		candidate_moved(p);
	run_look(r);
}

void run_candidate_hopeless(struct run *r, const char *why)
{
	struct elector_status st;
	/* A lock that a reload has named may be mended by the next one, as what else is wrong in a script. */
	bool answered = r->life.ending || r->loads > 1;

	for (uint32_t i = 0; i < r->life.candidate_count && !answered; i++) {
		elector_status(r->candidates[i]->campaign.elector, &st);
		answered = st.store.answered;
	}
	if (answered)
		return;
	log_event(LOG_ERROR, NULL, "cannot_run", "%s", why);
	run_end(r, EXIT_USAGE, LEASE_SHUTDOWN);
}

/* Each set of both sides has a place, whether it is ever used or not. */
static void run_make_room(struct run *r, uint32_t groups)
{
	uint32_t count = 2 * (groups + 1), had = r->life.set_count;

	if (count <= had)
		return;
	r->life.set = mem_resize(r->life.set, sizeof *r->life.set * count);
	r->worker_sets = mem_resize(r->worker_sets, sizeof *r->worker_sets * count);
	memset(r->life.set + had, 0, sizeof *r->life.set * (count - had));
	r->life.set_count = count;
	for (uint32_t i = had; i < count; i++)
		r->worker_sets[i] = worker_set_new(r, i);
}

static void run_place_candidates(struct run *r, const struct worker_set *s)
{
	for (uint32_t i = 0; i < r->life.candidate_count; i++)
		if (life_set_of(&r->life, i) == s->number)
			candidate_place(r->candidates[i]);
}

void run_loaded(struct run *r, struct worker_set *s)
{
	uint32_t groups = r->version[s->number & 1].groups;

	run_make_room(r, groups);
	run_place_candidates(r, s);
	run_tell(r, &(struct life_event){ .kind = LIFE_EV_LOADED, .set = s->number, .groups = groups });
}

/* What a worker of another version has met does not explain why this version does not come into force. */
static void run_note_wrong(struct run *r, uint32_t set, const char *text)
{
	if (r->life.phase != LIFE_SETTLED && (set & 1) == life_loading_side(&r->life))
		snprintf(r->wrong, sizeof r->wrong, "%s", text);
}

void run_load_failed(struct run *r, struct worker_set *s, const char *text)
{
	log_event(LOG_ERROR, NULL, "load_failed", "%s", text);
	run_note_wrong(r, s->number, text);
	run_tell(r, &(struct life_event){ .kind = LIFE_EV_LOAD_FAILED, .set = s->number });
}

void run_started(struct run *r, struct worker_set *s)
{
	run_tell(r, &(struct life_event){ .kind = LIFE_EV_STARTED, .set = s->number });
	run_tell_systemd(r);
}

/* ---- carrying out ---- */

static void run_spawn(struct run *r, const struct life_action *a)
{
	struct err err;

	if (worker_set_spawn(r->worker_sets[a->set], r->forks ? &r->fork : NULL, &err) < 0) {
		log_event(LOG_ERROR, NULL, "spawn_failed", "%s", err.text);
		run_note_wrong(r, a->set, err.text);
		run_tell(r, &(struct life_event){ .kind = LIFE_EV_NOT_SPAWNED, .set = a->set });
	}
	r->forks = false;
}

static nsec run_duration(const struct run *r, const struct life_action *a)
{
	nsec grace;

	switch (a->timer) {
	case LIFE_TIMER_OFF:
		return NSEC_NEVER;
	case LIFE_TIMER_START:
		return election_time(&r->options, NULL, OPTION_START_TIMEOUT);
	case LIFE_TIMER_QUIT:
		grace = r->version[a->set & 1].quit_grace;
		return r->life.ending || !grace ? QUIT_TIMEOUT : grace;
	case LIFE_TIMER_BACK_OFF:
		return term_back_off(r->life.set[a->set].failures);
	}
	return NSEC_NEVER;
}

/* What a silent worker has not done in time, in words. */
static const char *run_silence(enum life_worker was)
{
	return was == WORKER_LOADING    ? "has not loaded the script"
	       : was == WORKER_STARTING ? "has not started its elections (on_start)"
	                                : "has not left";
}

static void run_kill_worker(struct run *r, const struct life_action *a)
{
	struct worker_set *s = r->worker_sets[a->set];
	nsec waited = elapsed_standby(s->spawned_at, clock_now());

	if (a->cause == LIFE_SILENT) {
		log_event(LOG_ERROR, NULL, "worker_silent",
		          "the process that runs the script %s in the time that it has for that, %.3g s after its "
		          "start: it is killed",
		          run_silence(a->was), (double)waited / NSEC_PER_SEC);
	}
	if (a->cause == LIFE_SILENT && a->was == WORKER_LOADING && (!r->life.in_force || (a->set & 1) != r->life.side))
		snprintf(r->wrong, sizeof r->wrong, "it was not loaded in time (--start-timeout)");
	if (r->life.ending && run_all_finished(r))
		run_end_at_last(r);
	worker_set_kill(s);
}

static void run_check(struct run *r)
{
	struct err err;

	if (run_check_reload(r, &err) == 0)
		return;
	r->failed_status = EXIT_USAGE;
	snprintf(r->wrong, sizeof r->wrong, "%s", err.text);
	log_event(LOG_ERROR, NULL, r->loads ? "load_failed" : "cannot_run", "%s", err.text);
	run_tell(r, &(struct life_event){ .kind = LIFE_EV_BAD });
}

/* Its worker was stopped, or hangs while it reads a file, as on a mount whose server is gone. */
static void run_not_taken(struct run *r)
{
	snprintf(
		r->wrong, sizeof r->wrong,
		"the process that runs the jobs has not read the crontabs within %.3g s (--start-timeout), and starts no "
		"job until it has: see whether they can be read, then reload again, which takes another process",
		(double)election_time(&r->options, NULL, OPTION_START_TIMEOUT) / NSEC_PER_SEC);
	log_event(LOG_ERROR, NULL, "worker_silent", "%s", r->wrong);
}

static void run_forget(struct run *r, uint32_t candidate)
{
	struct candidate *gone = r->candidates[candidate];

	r->candidates[candidate] = r->candidates[r->life.candidate_count];
	r->candidates[candidate]->number = candidate;
	candidate_free(gone);
}

static void run_carry_out(struct run *r, const struct life_action *a)
{
	struct candidate *p = a->candidate == LIFE_NONE ? NULL : r->candidates[a->candidate];

	switch (a->what) {
	case LIFE_DO_LOAD:
		run_begin_reload(r);
		return;
	case LIFE_DO_TAKE:
		run_begin_reload(r);
		candidate_ask_reload(r->candidates[0]);
		return;
	case LIFE_DO_SPAWN:
		run_spawn(r, a);
		return;
	case LIFE_DO_TIMER:
		worker_set_time(r->worker_sets[a->set], run_duration(r, a));
		return;
	case LIFE_DO_CHECK:
		run_check(r);
		return;
	case LIFE_DO_GO:
		worker_set_allow(r->worker_sets[a->set]);
		worker_set_go(r->worker_sets[a->set], a->first);
		return;
	case LIFE_DO_QUIT:
		worker_set_quit(r->worker_sets[a->set]);
		return;
	case LIFE_DO_KILL:
		run_kill_worker(r, a);
		return;
	case LIFE_DO_SERVE:
		candidate_worker_ready(p);
		return;
	case LIFE_DO_MOVE:
		candidate_moved(p);
		return;
	case LIFE_DO_STIR:
		candidate_stir(p);
		return;
	case LIFE_DO_END:
		candidate_end(p, r->life.ending ? r->end_reason : LEASE_RELOAD);
		return;
	case LIFE_DO_KILL_TERM:
		candidate_kill(p);
		return;
	case LIFE_DO_FORGET:
		run_forget(r, a->candidate);
		return;
	case LIFE_DO_SETTLED:
		script_version_fini(&r->version[a->side]);
		return;
	case LIFE_DO_ANSWER:
		if (a->cause == LIFE_NOT_TAKEN)
			run_not_taken(r);
		if (a->cause == LIFE_SHUTDOWN)
			run_answer_requests(r, true, "it is shutting down");
		else
			run_answer_reload(r, a->good);
		return;
	case LIFE_DO_FAIL:
		run_end(r, r->failed_status, LEASE_ERROR);
		return;
	case LIFE_DO_OVER:
		ev_break(r->program.loop, EVBREAK_ALL);
		return;
	}
}

static void run_on_soon(struct ev_loop *, ev_timer *w, int)
{
	struct run *r = w->data;
	struct life_action a;

	run_refresh(r);
	while (life_next(&r->life, &a)) {
		run_carry_out(r, &a);
		run_refresh_after(r, &a);
	}
	for (uint32_t i = 0; i < r->life.candidate_count; i++)
		term_supervision_look(&r->candidates[i]->term);
	if (r->ready)
		run_tell_systemd(r);
}

/* ---- from its beginning to its end ---- */

static void run_free(struct run *r)
{
	ev_clear_pending(r->program.loop, &r->soon);
	ev_timer_stop(r->program.loop, &r->last);
	for (uint32_t i = 0; i < r->life.candidate_count; i++)
		candidate_free(r->candidates[i]);
	for (uint32_t i = 0; i < r->life.set_count; i++)
		worker_set_free(r->worker_sets[i]);
	script_version_fini(&r->version[0]);
	script_version_fini(&r->version[1]);
	free(r->candidates);
	free(r->life.candidate);
	free(r->worker_sets);
	free(r->life.set);
	free(r->fallback);
	program_fini(&r->program);
}

const int run_signals[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1, 0 };

int run_script(struct run *r, guard_worker *worker, const struct program_ops *ops, struct err *err)
{
	if (program_init(&r->program, &r->options, run_signals, ops, r, err) < 0)
		return -1;
	ev_timer_init(&r->soon, run_on_soon, 0., 0.);
	ev_timer_init(&r->last, run_on_last, 0., 0.);
	r->soon.data = r;
	r->failed_status = EXIT_FAILED_SCRIPT;
	r->fork = program_fork(&r->program, worker);
	r->forks = true;
	r->life.takes = r->crontab_count > 0;
	run_make_room(r, 0);
	run_tell(r, &(struct life_event){ .kind = LIFE_EV_BEGIN });
	ev_invoke_pending(r->program.loop); /* the worker loads its script meanwhile */
	lock_prepare(options_text(&r->options, OPTION_LOCK, ""));
	proof_self_tidy(&r->program.self);
	if (!r->life.over)
		ev_run(r->program.loop, 0);
	int status = r->status;
	run_free(r);
	return status;
}
