#include "runner/worker_set.h"

#include "base/log.h"
#include "base/mem.h"
#include "runner/candidate.h"
#include "runner/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static void worker_set_forget_settings(struct worker_set *s)
{
	for (uint32_t i = 0; i < s->settings_count; i++)
		election_settings_fini(&s->settings[i]);
	free(s->settings);
	s->settings = NULL;
	s->settings_count = 0;
}

bool worker_set_ready(const struct worker_set *s)
{
	return s->supervisor && s->started && !s->ended && !s->leaving;
}

static bool worker_set_has(const struct worker_set *s, const struct candidate *p)
{
	return p && p->worker_set == s;
}

static struct candidate *worker_set_candidate(struct worker_set *s, uint32_t slot)
{
	for (uint32_t i = 0; i < s->run->candidate_count; i++)
		if (worker_set_has(s, s->run->candidates[i]) && s->run->candidates[i]->index == slot)
			return s->run->candidates[i];
	return NULL;
}

/* ---- what the worker says. false: a message is malformed, or makes no sense now ---- */

static bool worker_set_on_election(struct worker_set *s, struct wire *w)
{
	struct wire_election e;

	if (!wire_election_get(w, &e) || s->loaded || e.index != s->settings_count || e.index >= PAGE_SLOTS)
		return false;
	s->settings = mem_resize(s->settings, sizeof *s->settings * (s->settings_count + 1));
	election_settings_copy(&s->settings[s->settings_count++], &e);
	return true;
}

static bool worker_set_on_loaded(struct worker_set *s, struct wire *w)
{
	struct wire_loaded m;

	if (!wire_loaded_get(w, &m) || s->loaded || m.count != s->settings_count)
		return false;
	s->loaded = true;
	run_loaded(s->run, s);
	return true;
}

static bool worker_set_on_load_failed(struct worker_set *s, struct wire *w)
{
	struct wire_load_failed m;

	if (!wire_load_failed_get(w, &m) || s->loaded)
		return false;
	s->failed = true;
	run_load_failed(s->run, s, m.text);
	return true;
}

static bool worker_set_on_exit(struct worker_set *s, struct wire *w)
{
	struct wire_exit m;

	if (!wire_exit_get(w, &m) || m.code > 255)
		return false;
	run_end(s->run, (int)m.code, LEASE_SHUTDOWN);
	return true;
}

static bool worker_set_on_started(struct worker_set *s, struct wire *w)
{
	struct wire_started m;

	if (!wire_started_get(w, &m) || !s->loaded || s->started)
		return false;
	if (!m.ok) {
		log_event(LOG_ERROR, NULL, "on_start_failed", "%s", m.text);
		run_end(s->run, 1, LEASE_ERROR);
		return true;
	}
	s->started = s->on_start_ran = true;
	run_started(s->run, s);
	return true;
}

/* An election that is not here any more has moved to another worker, and what this one says about it is late. */
static bool worker_set_on_candidate_message(struct worker_set *s, enum wire_type type, struct wire *w)
{
	uint32_t slot = wire_slot(w);
	struct candidate *p = worker_set_candidate(s, slot);

	if (!s->loaded || slot >= s->settings_count)
		return false;
	return !p || term_supervision_message(&p->term, type, w);
}

/* What the script tells of itself, or answers to a request. */
static bool worker_set_on_told(struct worker_set *s, struct wire *w, bool (*take)(struct candidate *p, struct wire *w))
{
	uint32_t slot = wire_slot(w);
	struct candidate *p = worker_set_candidate(s, slot);

	if (!s->loaded || slot >= s->settings_count)
		return false;
	return !p || take(p, w);
}

static bool worker_set_on_message(void *arg, enum wire_type type, struct wire *w)
{
	struct worker_set *s = arg;

	switch ((int)type) {
	case WIRE_ELECTION:
		return worker_set_on_election(s, w);
	case WIRE_LOADED:
		return worker_set_on_loaded(s, w);
	case WIRE_LOAD_FAILED:
		return worker_set_on_load_failed(s, w);
	case WIRE_STARTED:
		return worker_set_on_started(s, w);
	case WIRE_ANSWER:
	case WIRE_DRAINED:
	case WIRE_STOPPED:
	case WIRE_END:
	case WIRE_SAVE:
	case WIRE_NEXT_STOPPED:
		return worker_set_on_candidate_message(s, type, w);
	case WIRE_METRIC:
		return worker_set_on_told(s, w, candidate_metric);
	case WIRE_JOB:
		return worker_set_on_told(s, w, candidate_job);
	case WIRE_REPLY:
		return worker_set_on_told(s, w, candidate_replied);
	case WIRE_EXIT:
		return worker_set_on_exit(s, w);
	}
	return false; /* it is for workers */
}

/* ---- what happens to its worker ---- */

static void describe_end(int status, char *text, size_t size)
{
	if (status == -1)
		snprintf(text, size, "nobody saw how");
	else if (WIFSIGNALED(status))
		snprintf(text, size, "killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		snprintf(text, size, "exit status %d", WEXITSTATUS(status));
}

static void worker_set_on_ended(void *arg, int status)
{
	struct worker_set *s = arg;

	(void)status;
	for (uint32_t i = 0; i < s->run->candidate_count; i++)
		if (worker_set_has(s, s->run->candidates[i]))
			elector_look(s->run->candidates[i]
			                     ->elector); /* the guard may have killed it because a lease is over */
	s->ended = true;
}

static void worker_set_on_gone(void *arg, bool reaped, int status)
{
	struct worker_set *s = arg;
	struct run *r = s->run;
	char how[100];

	bool had_started = s->started;
	s->loaded = s->started = false; /* before anybody is told: no message can be sent */
	describe_end(status, how, sizeof how);
	if (!s->leaving && !s->failed && !r->killing)
		log_event(LOG_ERROR, NULL, "worker_gone", "the process that runs the script is gone: %s%s", how,
		          reaped ? "" : "; something it started could not be killed");
	for (uint32_t i = 0; i < r->candidate_count; i++)
		if (worker_set_has(s, r->candidates[i]))
			candidate_worker_dead(r->candidates[i], reaped);
	supervisor_free(s->supervisor);
	s->supervisor = NULL;
	worker_set_forget_settings(s);
	s->told = true;
	if (!reaped)
		run_end(r, 1, LEASE_WORKER);
	run_worker_set_gone(r, s, had_started);
}

static void worker_set_on_swept(void *arg, uint32_t slot, uint64_t term, uint32_t next, int killed, bool clean)
{
	struct worker_set *s = arg;
	struct candidate *p = worker_set_candidate(s, slot);

	if (killed > 0)
		log_event(LOG_INFO, NULL, "leftovers_killed", "%d process%s that %s left behind", killed,
		          killed == 1 ? "" : "es", next && !term ? "on_next" : "the term");
	if (p)
		term_supervision_swept(&p->term, term, next, clean);
}

static const struct supervisor_callbacks worker_set_callbacks = { .message = worker_set_on_message,
	                                                          .ended = worker_set_on_ended,
	                                                          .gone = worker_set_on_gone,
	                                                          .swept = worker_set_on_swept };

static void worker_set_on_restart(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct worker_set *s = w->data;
	struct err err;

	(void)loop;
	(void)revents;
	if (s->supervisor || s->leaving || s->run->killing)
		return;
	if (worker_set_spawn(s, NULL, &err) < 0) {
		log_event(LOG_ERROR, NULL, "spawn_failed", "%s", err.text);
		ev_timer_set(&s->restart, (double)term_back_off(++s->failures) / NSEC_PER_SEC, 0.);
		ev_timer_start(s->run->program.loop, &s->restart);
	}
}

struct worker_set *worker_set_new(struct run *r, uint32_t isolated)
{
	struct worker_set *s = mem_zero(sizeof *s);

	s->run = r;
	s->isolated = isolated;
	ev_timer_init(&s->restart, worker_set_on_restart, 0., 0.);
	s->restart.data = s;
	s->next = r->worker_sets;
	r->worker_sets = s;
	return s;
}

static char **worker_arguments(struct run *r)
{
	size_t extra = 0;
	while (r->options.rest[extra])
		extra++;
	char **argv = mem_zero(sizeof *argv * (extra + 6));
	argv[0] = (char *)options_text(&r->options, OPTION_LOG_FORMAT, NULL);
	argv[1] = (char *)options_text(&r->options, OPTION_LOG_LEVEL, NULL);
	argv[2] = (char *)options_text(&r->options, OPTION_IDENTITY, NULL);
	argv[3] = (char *)(r->is_text ? "eval" : "file");
	argv[4] = (char *)r->script;
	memcpy(argv + 5, r->options.rest, sizeof *argv * extra);
	return argv;
}

/* The least K of its candidates, since one guard serves them all. Before the script has been loaded there are no
 * candidates, and no term for which it counts. */
static nsec worker_set_kill_allowance(const struct worker_set *s)
{
	nsec least = NSEC_NEVER;

	for (uint32_t i = 0; i < s->run->candidate_count; i++)
		if (worker_set_has(s, s->run->candidates[i]) && s->run->candidates[i]->allowance < least)
			least = s->run->candidates[i]->allowance;
	return least == NSEC_NEVER ? NSEC_PER_SEC : least;
}

void worker_set_allow(struct worker_set *s)
{
	if (s->supervisor)
		supervisor_allow(s->supervisor, worker_set_kill_allowance(s));
}

int worker_set_spawn(struct worker_set *s, const struct guard_fork *fork, struct err *err)
{
	struct run *r = s->run;
	char *env[] = { r->program.tree_var, r->program.control_var, NULL };
	char **argv = worker_arguments(r);
	struct supervisor_spec spec = {
		.argv = argv,
		.no_stdin = program_in_background(),
		.no_privileges = r->program.no_privileges,
		.env = env,
		.unset = (char *const *)option_variables,
		.tree_fd = r->program.self.tree_fd,
		.kill_allowance = worker_set_kill_allowance(s),
		.fork = fork,
	};

	s->failed = s->ended = false;
	s->spawned_at = clock_now();
	s->supervisor = supervisor_spawn(r->program.reaper, &spec, &worker_set_callbacks, s, err);
	free(argv);
	return s->supervisor ? 0 : -1;
}

/* Sends the elections in list, and empties it. */
static void worker_set_send_go(struct worker_set *s, enum wire_go_what what, struct buf *list)
{
	const unsigned char *parts = (const unsigned char *)list->data;
	struct buf m = { 0 };

	wire_go_put(&m, &(struct wire_go){ .what = (uint8_t)what,
	                                   .elections = { .at = parts, .end = parts ? parts + list->len : parts } });
	supervisor_send(s->supervisor, &m);
	buf_fini(&m);
	list->len = 0;
}

void worker_set_go(struct worker_set *s, bool first)
{
	struct run *r = s->run;
	struct buf list = { 0 };

	for (uint32_t i = 0; i < r->candidate_count; i++) {
		if (!worker_set_has(s, r->candidates[i]))
			continue;
		struct elector_status st;
		elector_status(r->candidates[i]->elector, &st);
		wire_kept_put(&list, &(struct wire_kept){ .index = r->candidates[i]->index,
		                                          .lock = st.lock,
		                                          .identity = st.identity });
		if (list.len > WIRE_MAX / 2)
			worker_set_send_go(s, WIRE_GO_MORE, &list);
	}
	worker_set_send_go(s, first ? WIRE_GO_FIRST : WIRE_GO_REPLACEMENT, &list);
	buf_fini(&list);
}

void worker_set_restart_now(struct worker_set *s)
{
	if (!ev_is_active(&s->restart))
		return;
	ev_timer_stop(s->run->program.loop, &s->restart);
	ev_timer_set(&s->restart, 0., 0.);
	ev_timer_start(s->run->program.loop, &s->restart);
}

void worker_set_quit(struct worker_set *s)
{
	struct buf m = { 0 };

	if (s->leaving)
		return;
	s->leaving = true;
	ev_timer_stop(s->run->program.loop, &s->restart);
	if (!s->supervisor)
		return;
	wire_quit_put(&m, &(struct wire_quit){});
	supervisor_send(s->supervisor, &m);
	buf_fini(&m);
}

void worker_set_free(struct worker_set *s)
{
	struct worker_set **at = &s->run->worker_sets;

	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	ev_timer_stop(s->run->program.loop, &s->restart);
	worker_set_forget_settings(s);
	free(s);
}
