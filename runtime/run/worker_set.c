#include "run/worker_set.h"

#include "base/log.h"
#include "base/mem.h"
#include "run/candidate.h"
#include "run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define WORKED (60 * NSEC_PER_SEC) /* a worker that has lived for longer was no failed start */

static void worker_set_forget_settings(struct worker_set *s)
{
	for (uint32_t i = 0; i < s->settings_count; i++)
		election_settings_fini(&s->settings[i]);
	free(s->settings);
	s->settings = NULL;
	s->settings_count = 0;
}

static enum life_worker worker_set_state(const struct worker_set *s)
{
	return s->run->life.set[s->number].worker;
}

static struct script_version *worker_set_version(const struct worker_set *s)
{
	return &s->run->version[s->number & 1];
}

static bool worker_set_serves(const struct worker_set *s, uint32_t candidate)
{
	return candidate < s->run->life.candidate_count && life_set_of(&s->run->life, candidate) == s->number;
}

/* In the version in force, candidates have the numbers of its elections. */
struct candidate *worker_set_candidate(const struct worker_set *s, uint32_t slot)
{
	const struct run *r = s->run;
	uint8_t side = s->number & 1;

	if (!s->slot || slot >= worker_set_version(s)->count)
		return NULL;
	uint32_t election = s->election[slot];
	if (side == r->life.side && worker_set_serves(s, election))
		return r->candidates[election];
	for (uint32_t i = 0; i < r->life.candidate_count; i++)
		if (worker_set_serves(s, i) && r->candidates[i]->election[side] == election)
			return r->candidates[i];
	return NULL;
}

/* ---- what the worker says. false: a message is malformed, or makes no sense now ---- */

static bool worker_set_on_election(struct worker_set *s, struct wire *w)
{
	struct wire_election e;

	if (!wire_election_get(w, &e) || worker_set_state(s) != WORKER_LOADING || e.index != s->settings_count ||
	    e.index >= PAGE_SLOTS)
		return false;
	s->settings = mem_resize(s->settings, sizeof *s->settings * (s->settings_count + 1));
	return election_settings_copy(&s->settings[s->settings_count++], &e);
}

static bool worker_set_on_loaded(struct worker_set *s, struct wire *w)
{
	struct wire_loaded m;
	struct err err;

	if (!wire_loaded_get(w, &m) || worker_set_state(s) != WORKER_LOADING || m.count != s->settings_count)
		return false;
	if (script_version_take(worker_set_version(s), s, &err) < 0)
		run_load_failed(s->run, s, err.text);
	else
		run_loaded(s->run, s);
	worker_set_forget_settings(s);
	return true;
}

static bool worker_set_on_load_failed(struct worker_set *s, struct wire *w)
{
	struct wire_load_failed m;

	if (!wire_load_failed_get(w, &m) || worker_set_state(s) != WORKER_LOADING)
		return false;
	run_load_failed(s->run, s, m.text);
	return true;
}

static bool worker_set_on_exit(struct worker_set *s, struct wire *w)
{
	struct wire_exit m;

	if (!wire_exit_get(w, &m) || m.code > 255)
		return false;
	if (worker_set_state(s) == WORKER_LOADING && s->run->life.in_force && (s->number & 1) != s->run->life.side)
		run_load_failed(s->run, s, "the script ends the program while it is loaded (exit)");
	else
		run_end(s->run, (int)m.code, LEASE_SHUTDOWN);
	return true;
}

static bool worker_set_on_started(struct worker_set *s, struct wire *w)
{
	struct wire_started m;

	if (!wire_started_get(w, &m))
		return false;
	if (worker_set_state(s) != WORKER_STARTING)
		return worker_set_state(s) == WORKER_QUITTING; /* it was told to leave meanwhile */
	if (!m.ok) {
		log_event(LOG_ERROR, NULL, "on_start_failed", "%s", m.text);
		run_end(s->run, 1, LEASE_ERROR);
		return true;
	}
	run_started(s->run, s);
	return true;
}

/* What an election's hooks say, tell or answer. An election that is not here any more has gone over to another worker,
 * and what this one says about it is late. */
static bool worker_set_on_slot(struct worker_set *s, enum wire_type type, struct wire *w)
{
	uint32_t slot = wire_slot(w);

	if (worker_set_state(s) < WORKER_LOADED || slot >= worker_set_version(s)->count)
		return false;
	struct candidate *p = worker_set_candidate(s, slot);
	if (!p)
		return true;
	switch ((int)type) {
	case WIRE_METRIC:
		return candidate_metric(p, w);
	case WIRE_JOB:
		return candidate_job(p, w);
	case WIRE_REPLY:
		return candidate_replied(p, w);
	case WIRE_FAILED:
		return candidate_failed(p, w);
	}
	return term_supervision_message(&p->term, type, w);
}

static bool worker_set_on_message(void *arg, enum wire_type type, struct wire *w)
{
	struct worker_set *s = arg;
	bool dying = worker_set_state(s) == WORKER_DYING; /* nobody waits for it to load or start any more */

	switch ((int)type) {
	case WIRE_ELECTION:
		return dying || worker_set_on_election(s, w);
	case WIRE_LOADED:
		return dying || worker_set_on_loaded(s, w);
	case WIRE_LOAD_FAILED:
		return dying || worker_set_on_load_failed(s, w);
	case WIRE_STARTED:
		return dying || worker_set_on_started(s, w);
	case WIRE_EXIT:
		return worker_set_on_exit(s, w);
	case WIRE_ANSWER:
	case WIRE_LEADS:
	case WIRE_DRAINED:
	case WIRE_STOPPED:
	case WIRE_END:
	case WIRE_SAVE:
	case WIRE_NEXT_STOPPED:
	case WIRE_METRIC:
	case WIRE_JOB:
	case WIRE_REPLY:
	case WIRE_FAILED:
		return worker_set_on_slot(s, type, w);
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

/* The guard may have killed it because a lease is over. */
static void worker_set_on_ended(void *arg, int)
{
	struct worker_set *s = arg;
	struct run *r = s->run;

	for (uint32_t i = 0; i < r->life.candidate_count; i++)
		if (worker_set_serves(s, i))
			elector_look(r->candidates[i]->campaign.elector);
	run_tell(r, &(struct life_event){ .kind = LIFE_EV_ENDED, .set = s->number });
	for (uint32_t i = 0; i < r->life.candidate_count; i++)
		if (worker_set_serves(s, i))
			term_supervision_look(&r->candidates[i]->term);
}

static void worker_set_on_gone(void *arg, bool reaped, int status)
{
	struct worker_set *s = arg;
	struct run *r = s->run;
	char how[100];

	describe_end(status, how, sizeof how);
	if (!s->expected && !r->life.killing)
		log_event(LOG_ERROR, NULL, "worker_gone", "the process that runs the script is gone: %s%s", how,
		          reaped ? "" : "; something it started could not be killed");
	run_tell(r, &(struct life_event){ .kind = LIFE_EV_ENDED, .set = s->number }); /* no message can be sent */
	for (uint32_t i = 0; i < r->life.candidate_count; i++)
		if (worker_set_serves(s, i))
			candidate_worker_dead(r->candidates[i], reaped);
	supervisor_free(s->supervisor);
	s->supervisor = NULL;
	worker_set_forget_settings(s);
	if (!reaped) {
		log_event(
			LOG_ERROR, NULL, "not_reaped",
			"something that the script's process started could not be killed: this program ends with status 1, "
			"so that a supervisor (systemd, a container) ends what is left");
		run_end(r, 1, LEASE_WORKER);
	}
	run_tell(r, &(struct life_event){ .kind = LIFE_EV_GONE,
	                                  .set = s->number,
	                                  .worked = elapsed_standby(s->spawned_at, clock_now()) > WORKED });
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

static void worker_set_on_timer(struct ev_loop *loop, ev_timer *w, int)
{
	struct worker_set *s = w->data;

	if (s->again > 0.) {
		ev_timer_set(w, s->again, 0.);
		ev_timer_start(loop, w);
		s->again = 0.;
		return;
	}
	run_tell(s->run, &(struct life_event){ .kind = LIFE_EV_TIMER, .set = s->number });
}

struct worker_set *worker_set_new(struct run *r, uint32_t number)
{
	struct worker_set *s = mem_zero(sizeof *s);

	s->run = r;
	s->number = number;
	ev_timer_init(&s->timer, worker_set_on_timer, 0., 0.);
	s->timer.data = s;
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
	const struct run *r = s->run;
	nsec least = NSEC_NEVER;

	for (uint32_t i = 0; i < r->life.candidate_count; i++)
		if ((worker_set_serves(s, i) || life_has(&r->life, s->number, i)) &&
		    r->candidates[i]->allowance < least)
			least = r->candidates[i]->allowance;
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
	int kept = script_version_keep(worker_set_version(s), err);
	if (kept < 0)
		return -1;
	char *env[] = { r->program.tree_var, r->program.control_var, NULL };
	char **argv = worker_arguments(r);
	struct supervisor_spec spec = {
		.argv = argv,
		.no_stdin = program_in_background(),
		.no_privileges = r->program.no_privileges,
		.env = env,
		.unset = (char *const *)option_variables,
		.tree_fd = r->program.self.tree_fd,
		.kept_fd = kept,
		.kill_allowance = worker_set_kill_allowance(s),
		.fork = fork,
	};

	s->expected = false;
	s->spawned_at = clock_now();
	s->supervisor = supervisor_spawn(r->program.reaper, &spec, &worker_set_callbacks, s, err);
	free(argv);
	return s->supervisor ? 0 : -1;
}

/* The time has two parts: if this process was stopped until the first one is over, it reads what the worker has said
 * meanwhile before the second one is. */
void worker_set_time(struct worker_set *s, nsec after)
{
	struct ev_loop *loop = s->run->program.loop;

	ev_timer_stop(loop, &s->timer);
	if (after == NSEC_NEVER)
		return;
	s->again = (double)after / NSEC_PER_SEC / 2;
	ev_now_update(loop);
	ev_timer_set(&s->timer, s->again, 0.);
	ev_timer_start(loop, &s->timer);
}

/* Sends the elections in list, and empties it. */
static void worker_set_send_go(struct worker_set *s, enum wire_go_what what, struct buf *list)
{
	struct buf m = { 0 };

	wire_go_put(&m, &(struct wire_go){ .what = (uint8_t)what, .elections = wire_parts(list) });
	supervisor_send(s->supervisor, &m);
	buf_fini(&m);
	list->len = 0;
}

void worker_set_go(struct worker_set *s, bool first)
{
	struct run *r = s->run;
	struct buf list = { 0 };

	for (uint32_t i = 0; i < r->life.candidate_count; i++) {
		const struct candidate *p = r->candidates[i];
		struct elector_status st;
		if (!life_has(&r->life, s->number, i))
			continue;
		elector_status(p->campaign.elector, &st);
		wire_kept_put(&list, &(struct wire_kept){ .index = s->slot[p->election[s->number & 1]],
		                                          .lock = st.lock,
		                                          .identity = st.identity });
		if (list.len > WIRE_MAX / 2)
			worker_set_send_go(s, WIRE_GO_MORE, &list);
	}
	worker_set_send_go(s, first ? WIRE_GO_FIRST : WIRE_GO_REPLACEMENT, &list);
	buf_fini(&list);
}

void worker_set_quit(struct worker_set *s)
{
	struct buf m = { 0 };

	s->expected = true;
	if (!s->supervisor)
		return;
	wire_quit_put(&m, &(struct wire_quit){});
	supervisor_send(s->supervisor, &m);
	buf_fini(&m);
}

void worker_set_kill(struct worker_set *s)
{
	s->expected = true;
	if (s->supervisor)
		supervisor_kill(s->supervisor);
}

void worker_set_free(struct worker_set *s)
{
	if (!s)
		return;
	ev_timer_stop(s->run->program.loop, &s->timer);
	worker_set_forget_settings(s);
	free(s->slot);
	free(s);
}
