#include "simulation/sim.h"

#include "base/mem.h"
#include "process/deadline_page.h"
#include "process/wire.h"
#include "script/api/api.h"
#include "script/bind.h"
#include "term/script_jobs.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- messages ---- */

static void messages_put(struct sim_messages *q, const struct buf *bytes)
{
	struct sim_message *m = mem_zero(sizeof *m + bytes->len);

	m->len = bytes->len;
	memcpy(m->bytes, bytes->data, m->len);
	if (!q->first)
		q->end = &q->first;
	*q->end = m;
	q->end = &m->next;
}

static struct sim_message *messages_take(struct sim_messages *q)
{
	struct sim_message *m = q->first;

	if (m)
		q->first = m->next;
	return m;
}

static void messages_empty(struct sim_messages *q)
{
	struct sim_message *m;

	while ((m = messages_take(q)))
		free(m);
}

/* ---- what a term's supervision calls: as in candidate.c, but there are no processes ---- */

static enum life_worker node_worker(const struct sim_node *n)
{
	return n->sets[0].worker;
}

static void node_refresh(struct sim_node *n)
{
	for (uint32_t i = 0; i < n->life.candidate_count; i++)
		n->life.candidate[i].term = term_supervision_life(&n->candidates[i]->term);
}

/* What follows is done by node_settle. */
static void node_tell(struct sim_node *n, enum life_event_kind kind)
{
	node_refresh(n);
	life_tell(&n->life, &(struct life_event){ .kind = kind, .candidate = LIFE_NONE });
}

/* It is killed when the code that runs has returned. */
static void node_end_worker(struct sim_node *n)
{
	n->kill_due = true;
	node_tell(n, LIFE_EV_ENDED);
}

static bool sim_candidate_elsewhere(const void *arg)
{
	const struct sim_candidate *s = arg;

	for (uint32_t i = 0; s->settings.slot && i < s->node->candidate_count; i++) {
		const struct sim_candidate *other = s->node->candidates[i];
		if (other != s && other->term.hooks.state != TERM_NONE &&
		    election_same_slots(&other->settings, &s->settings))
			return true;
	}
	return false;
}

static struct term_context sim_candidate_context(void *arg)
{
	const struct sim_candidate *s = arg;

	return term_context_of(&s->node->life, s->index, options_flag(&s->node->options, OPTION_ONCE));
}

static struct page *sim_candidate_page(void *arg)
{
	return ((struct sim_candidate *)arg)->node->page;
}

static void sim_candidate_send(void *arg, const struct buf *m)
{
	messages_put(&((struct sim_candidate *)arg)->node->to_script, m);
}

/* A script here starts nothing but stubs, which end when they are told to. So a sweep finds nothing, and is over at
 * once. */
static bool sim_candidate_sweep(void *arg, uint64_t term, uint32_t next)
{
	struct sim_candidate *s = arg;

	s->sweeping = term ? term : s->sweeping;
	s->sweeping_next = next ? next : s->sweeping_next;
	return false;
}

static void sim_candidate_kill_worker(void *arg)
{
	node_end_worker(((struct sim_candidate *)arg)->node);
}

static void sim_candidate_tell(void *arg, enum term_news what)
{
	struct sim_candidate *s = arg;

	s->node->look_due = s->node->look_due || what != TERM_NEWS_ALLOW;
	if (what == TERM_NEWS_BEGAN)
		sim_check_leaders(s->node->sim, s);
	else if (what == TERM_NEWS_OVER)
		script_metrics_term_over(&s->metrics);
}

static void sim_candidate_handed_over(void *arg, const struct handover_result *r)
{
	const struct sim_candidate *s = arg;
	struct sim_handover *h = &s->node->sim->handover;

	if (h->of == s && r->end == HANDOVER_NOT)
		err_set(&h->refused, ERR_TIMEOUT, "%s", r->why);
}

static const struct term_ops sim_candidate_ops = {
	.context = sim_candidate_context,
	.page = sim_candidate_page,
	.send = sim_candidate_send,
	.sweep = sim_candidate_sweep,
	.kill = sim_candidate_kill_worker,
	.elsewhere = sim_candidate_elsewhere,
	.tell = sim_candidate_tell,
};

static bool sim_candidate_swept(struct sim_candidate *s)
{
	uint64_t term = s->sweeping;
	uint32_t next = s->sweeping_next;

	s->sweeping = s->sweeping_next = 0;
	term_supervision_swept(&s->term, term, next, true);
	return term || next;
}

/* ---- what the script says. false: a message is malformed, or makes no sense now: as in worker_set.c ---- */

static bool node_on_started(struct sim_node *n, struct wire *w)
{
	struct wire_started m;

	if (!wire_started_get(w, &m) || node_worker(n) != WORKER_STARTING)
		return false;
	if (!m.ok) {
		log_event(LOG_ERROR, NULL, "on_start_failed", "%s", m.text);
		sim_node_stop(n);
		return true;
	}
	node_tell(n, LIFE_EV_STARTED);
	return true;
}

/* ---- elections ---- */

static bool node_add_candidate(struct sim_node *n, const struct wire_election *e)
{
	struct sim_candidate *s = mem_zero(sizeof *s);

	s->node = n;
	s->index = n->candidate_count;
	s->campaign.options = &n->options;
	s->campaign.handed_over = sim_candidate_handed_over;
	s->campaign.arg = s;
	s->term = (struct term_supervision){
		.ops = &sim_candidate_ops, .arg = s, .slot = s->index, .campaign = &s->campaign
	};
	term_supervision_init(&s->term, &n->time);
	n->candidates = mem_resize(n->candidates, sizeof *n->candidates * (n->candidate_count + 1));
	n->candidates[n->candidate_count++] = s;
	return election_settings_copy(&s->settings, e);
}

static bool node_on_election(struct sim_node *n, struct wire *w)
{
	struct wire_election e;

	if (!wire_election_get(w, &e) || node_worker(n) != WORKER_LOADING || e.index != n->described ||
	    e.index >= PAGE_SLOTS)
		return false;
	n->described++;
	return n->opened || node_add_candidate(n, &e);
}

static int sim_candidate_open(struct sim_candidate *s, struct err *err)
{
	struct sim_node *n = s->node;
	const struct election_settings *said = &s->settings;

	if (campaign_read(&s->campaign, said, err) < 0)
		return -1;
	term_supervision_configure(&s->term, said);
	bool several = election_several(&n->candidates[n->candidate_count - 1]->settings, n->candidate_count);
	s->url = election_lock(&n->options, said, n->sim->fallback, several, err);
	if (!s->url)
		return err_wrap(err, "%s", said->where);
	sim_know_election(n->sim, said->name, said->lock, s->url);
	const struct campaign_place at = {
		.env = &n->env,
		.timeline = &n->time,
		.self = &n->self,
		.lock = s->url,
		.opened = sim_store_open(n->sim->store, s->url, &n->link, &n->time),
		.seed = (n->sim->setup.seed * 31 + s->index) * 31 + n->starts * 1009 + n->number,
		.identity = n->name, /* whatever the script says: its nodes are all on one machine */
	};
	return campaign_open(&s->campaign, &at, said, &term_elector_callbacks, &s->term, err);
}

static void node_send_go(struct sim_node *n, bool first)
{
	struct buf m = { 0 };

	wire_go_put(&m, &(struct wire_go){ .what = first ? WIRE_GO_FIRST : WIRE_GO_REPLACEMENT });
	for (uint32_t i = 0; i < n->candidate_count; i++)
		wire_kept_put(&m,
		              &(struct wire_kept){ .index = i, .lock = n->candidates[i]->url, .identity = n->name });
	messages_put(&n->to_script, &m);
	buf_fini(&m);
}

/* Carries out LIFE_DO_CHECK. */
static void node_open(struct sim_node *n)
{
	uint32_t count = n->candidate_count;
	struct life_election *elections = mem_zero(sizeof *elections * (count + 1));
	struct err err;

	n->opened = true;
	for (uint32_t i = 0; i < count; i++) {
		elections[i] = (struct life_election){ .keeps = LIFE_NONE, .earlier = LIFE_NONE };
		if (!n->sim->failed && sim_candidate_open(n->candidates[i], &err) < 0)
			sim_fail(n->sim, "%s", err.text);
	}
	life_tell(&n->life, &(struct life_event){ .kind = n->sim->failed ? LIFE_EV_BAD : LIFE_EV_GOOD,
	                                          .elections = elections,
	                                          .count = count,
	                                          .into = mem_zero(sizeof *n->life.candidate * (count + 1)) });
	free(elections);
}

static bool node_on_loaded(struct sim_node *n, struct wire *w)
{
	struct wire_loaded m;

	if (!wire_loaded_get(w, &m) || node_worker(n) != WORKER_LOADING || m.count != n->described)
		return false;
	node_tell(n, LIFE_EV_LOADED);
	return true;
}

static bool node_on_load_failed(struct sim_node *n, struct wire *w)
{
	struct wire_load_failed m;

	if (!wire_load_failed_get(w, &m) || node_worker(n) != WORKER_LOADING)
		return false;
	sim_fail(n->sim, "%s", m.text);
	return true;
}

static bool node_on_exit(struct sim_node *n, struct wire *w)
{
	struct wire_exit m;

	if (!wire_exit_get(w, &m) || m.code > 255)
		return false;
	sim_node_stop(n);
	return true;
}

static bool node_on_metric(struct sim_node *n, struct wire *w)
{
	uint32_t slot = wire_slot(w);
	struct wire_metric m;

	if (node_worker(n) < WORKER_LOADED || slot >= n->candidate_count || !wire_metric_get(w, &m))
		return false;
	struct sim_candidate *s = n->candidates[slot];
	return script_metrics_put(&s->metrics, &m, s->term.hooks.state == TERM_NONE ? 0 : s->term.hooks.term);
}

/* Nobody looks at it here, but what an elector would not take is not taken. */
static bool node_on_job(const struct sim_node *n, struct wire *w)
{
	struct script_jobs jobs = { 0 };
	struct wire_job m;
	bool good = node_worker(n) >= WORKER_LOADED && wire_slot(w) < n->candidate_count && wire_job_get(w, &m) &&
	            script_jobs_put(&jobs, &m, m.term);

	script_jobs_clear(&jobs);
	return good;
}

static bool node_on_failed(const struct sim_node *n, struct wire *w)
{
	struct wire_failed m;

	return node_worker(n) >= WORKER_LOADED && wire_slot(w) < n->candidate_count && wire_failed_get(w, &m);
}

static bool node_read(struct sim_node *n, enum wire_type type, struct wire *w)
{
	uint32_t slot = wire_slot(w);

	switch ((int)type) {
	case WIRE_ELECTION:
		return node_on_election(n, w);
	case WIRE_LOADED:
		return node_on_loaded(n, w);
	case WIRE_LOAD_FAILED:
		return node_on_load_failed(n, w);
	case WIRE_STARTED:
		return node_on_started(n, w);
	case WIRE_ANSWER:
	case WIRE_LEADS:
	case WIRE_DRAINED:
	case WIRE_STOPPED:
	case WIRE_END:
	case WIRE_SAVE:
	case WIRE_NEXT_STOPPED:
		return node_worker(n) >= WORKER_LOADED && slot < n->candidate_count &&
		       term_supervision_message(&n->candidates[slot]->term, type, w);
	case WIRE_METRIC:
		return node_on_metric(n, w);
	case WIRE_JOB:
		return node_on_job(n, w);
	case WIRE_FAILED: /* the test has it from the log */
		return node_on_failed(n, w);
	case WIRE_EXIT:
		return node_on_exit(n, w);
	}
	return false; /* it is for workers */
}

static void node_on_message(struct sim_node *n, const struct sim_message *m)
{
	struct wire w;
	enum wire_type type = wire_open(&w, m->bytes, m->len);

	if (type && node_read(n, type, &w))
		return;
	log_event(LOG_ERROR, NULL, "worker_malformed",
	          "a message (%s, %zu bytes) from the worker makes no sense: killing it",
	          type ? wire_name(type) : "of no known type", m->len);
	node_end_worker(n);
}

/* ---- running what is ready ---- */

static void node_script_sends(void *arg, const struct buf *m)
{
	messages_put(&((struct sim_node *)arg)->to_elector, m);
}

static void node_give_message(struct sim_node *n, const struct sim_message *m)
{
	struct wire w;
	enum wire_type type = wire_open(&w, m->bytes, m->len);

	if (!type || !script_message(n->script, type, &w))
		sim_fail(n->sim, "%s: a message of type %d makes no sense to the script's side", n->name, (int)type);
}

static void node_go_down(struct sim_node *n);

static void node_load(struct sim_node *n);
static void node_worker_gone(struct sim_node *n);

static void node_on_life_timer(struct timer *t)
{
	node_tell((struct sim_node *)((char *)t - offsetof(struct sim_node, life_timer)), LIFE_EV_TIMER);
}

/* A worker that is told to leave does so at once. */
static void node_time(struct sim_node *n, enum life_timer timer)
{
	nsec after = timer == LIFE_TIMER_START      ? election_time(&n->options, NULL, OPTION_START_TIMEOUT)
	             : timer == LIFE_TIMER_BACK_OFF ? term_back_off(n->sets[0].failures)
	                                            : NSEC_NEVER;

	timer_stop(&n->time, &n->life_timer);
	if (after != NSEC_NEVER)
		timer_start(&n->time, &n->life_timer, (double)after / NSEC_PER_SEC);
}

static void node_carry_out(struct sim_node *n, const struct life_action *a)
{
	struct term_supervision *t = a->candidate == LIFE_NONE ? NULL : &n->candidates[a->candidate]->term;

	switch (a->what) {
	case LIFE_DO_SPAWN:
		node_load(n);
		return;
	case LIFE_DO_TIMER:
		node_time(n, a->timer);
		return;
	case LIFE_DO_CHECK:
		node_open(n);
		return;
	case LIFE_DO_GO:
		node_send_go(n, a->first);
		return;
	case LIFE_DO_KILL:
	case LIFE_DO_QUIT:
		node_end_worker(n);
		return;
	case LIFE_DO_SERVE:
		term_supervision_tell(t, (struct term_event){ .kind = TERM_EV_READY });
		return;
	case LIFE_DO_END:
		term_supervision_tell(t, (struct term_event){ .kind = TERM_EV_END, .reason = LEASE_SHUTDOWN });
		return;
	case LIFE_DO_OVER:
		node_go_down(n);
		return;
	case LIFE_DO_LOAD:
	case LIFE_DO_TAKE:
	case LIFE_DO_MOVE:
	case LIFE_DO_STIR:
	case LIFE_DO_KILL_TERM:
	case LIFE_DO_FORGET:
	case LIFE_DO_SETTLED:
	case LIFE_DO_ANSWER:
		return; /* nothing is reloaded here */
	case LIFE_DO_FAIL:
		if (!n->sim->failed)
			sim_fail(n->sim, "%s: the script was not loaded: its process %s", n->name,
			         a->cause == LIFE_SILENT ? "has not loaded it in time" : "was killed while it did");
		return;
	}
}

static bool node_live(struct sim_node *n)
{
	struct life_action a;

	node_refresh(n);
	if (!life_next(&n->life, &a))
		return false;
	node_carry_out(n, &a);
	n->look_due = true;
	return true;
}

/* As a program does, when what it has to do is done (run_on_soon): a term may keep other candidates from campaigning.
 * false: no look was due. */
static bool node_look(struct sim_node *n)
{
	if (!n->look_due)
		return false;
	n->look_due = false;
	for (uint32_t i = 0; n->up && i < n->life.candidate_count; i++)
		term_supervision_look(&n->candidates[i]->term);
	return true;
}

/* One step. false: there is nothing to do. */
static bool node_settle_one(struct sim_node *n)
{
	struct sim_message *m;

	if (n->kill_due) {
		node_worker_gone(n);
		return true;
	}
	if (node_live(n) || node_look(n))
		return true;
	for (uint32_t i = 0; i < n->candidate_count; i++)
		if (sim_candidate_swept(n->candidates[i]))
			return true;
	if (n->script && sched_run(n->script->sched))
		return true;
	if ((m = messages_take(&n->to_elector)))
		node_on_message(n, m);
	else if (n->script && !n->holding && (m = messages_take(&n->to_script)))
		node_give_message(n, m);
	bool did = m != NULL;
	free(m);
	return did;
}

/* Runs what is ready. */
static void node_settle(struct sim_node *n)
{
	struct sim_node *before = n->sim->current;

	sim_enter(n->sim, n);
	while (n->up && !n->sim->failed && node_settle_one(n))
		;
	sim_enter(n->sim, before);
}

/* ---- a node starts, stops, crashes ---- */

static void node_load(struct sim_node *n)
{
	timeline_init_virtual(&n->script_time, &n->sim->now);
	environ = n->environment;
	n->stubs = (struct testing_node){ .testing = n->sim->setup.testing, .name = n->name };
	n->spec = (struct script_spec){
		.loop = n->sim->loop,
		.timeline = &n->script_time,
		.page = n->page,
		.source = n->sim->setup.script,
		.args = (char *const *)n->machine->args,
		.natives = api_open,
		.send = node_script_sends,
		.arg = n,
		.stub = n->sim->setup.stub,
		.stub_arg = &n->stubs,
	};
	n->script = script_new(&n->spec);
	bind_seed(n->script->L, n->sim->setup.seed * 31 + n->number);
	script_load(n->script);
	n->environment_now = environ;
}

static void node_free_candidates(struct sim_node *n)
{
	for (uint32_t i = 0; i < n->candidate_count; i++) {
		struct sim_candidate *s = n->candidates[i];
		free(s->url);
		if (n->sim->handover.of == s)
			n->sim->handover.of = NULL;
		campaign_fini(&s->campaign);
		term_supervision_fini(&s->term);
		script_metrics_fini(&s->metrics);
		election_settings_fini(&s->settings);
		free(s);
	}
	free(n->candidates);
	free(n->life.candidate);
	n->life.candidate = NULL;
	n->candidates = NULL;
	n->candidate_count = n->life.candidate_count = 0;
}

/* Unloads the script as the death of a worker's process does: tasks that wait are not told. */
static void node_unload(struct sim_node *n)
{
	if (!n->script)
		return;
	environ = n->environment;
	script_free(n->script);
	environ = n->environment_now = n->environment;
	n->script = NULL;
	n->described = 0;
	timeline_fini(&n->script_time);
	messages_empty(&n->to_script);
	messages_empty(&n->to_elector);
	if (!n->opened) /* the next worker describes all of them */
		node_free_candidates(n);
}

static void node_on_hold(struct timer *t)
{
	((struct sim_node *)((char *)t - offsetof(struct sim_node, hold)))->holding = false;
}

static void node_set_self(struct sim_node *n)
{
	n->starts++;
	n->self = (struct proof_self){ .tree_fd = -1, .pid = n->starts };
	snprintf(n->self.incarnation, sizeof n->self.incarnation, "%08x-0000-4000-8000-%012x", n->starts, n->number);
	snprintf(n->self.boot_id, sizeof n->self.boot_id, "%.36s", n->self.incarnation);
}

void sim_node_start(struct sim_node *n)
{
	struct err err;
	int fd[PAGE_FILES];

	n->up = true;
	n->opened = n->kill_due = false;
	memset(n->sets, 0, sizeof n->sets);
	n->life = (struct life){ .set = n->sets, .set_count = 2 };
	n->paused_until = 0;
	node_set_self(n);
	timeline_init_virtual(&n->time, &n->sim->now);
	n->env = (struct lock_env){ .loop = n->sim->loop };
	n->page = page_new(256, fd, &err);
	if (!n->page) {
		sim_fail(n->sim, "%s", err.text);
		return;
	}
	for (int i = 0; i < PAGE_FILES; i++)
		close(fd[i]);
	n->holding = true;
	timer_init(&n->time, &n->hold, node_on_hold);
	timer_start(&n->time, &n->hold, 0);
	timer_init(&n->time, &n->life_timer, node_on_life_timer);
	node_tell(n, LIFE_EV_BEGIN);
	node_settle(n);
}

static void node_go_down(struct sim_node *n)
{
	node_unload(n);
	node_free_candidates(n);
	lock_env_fini(&n->env);
	timer_stop(&n->time, &n->hold);
	timer_stop(&n->time, &n->life_timer);
	timeline_fini(&n->time);
	page_unmap(n->page);
	n->page = NULL;
	n->paused_until = 0; /* nothing is left of it that could wake up */
	n->up = false;
	log_event(LOG_INFO, NULL, "down", "its processes are gone");
}

void sim_node_crash(struct sim_node *n)
{
	struct sim_node *before = n->sim->current;

	sim_enter(n->sim, n);
	node_go_down(n);
	sim_enter(n->sim, before);
}

void sim_node_stop(struct sim_node *n)
{
	bool inside = n->sim->current == n;

	node_tell(n, LIFE_EV_END);
	if (inside)
		return;
	node_settle(n);
	sim_enter(n->sim, NULL);
}

void sim_node_resign(struct sim_node *n, double seconds)
{
	sim_enter(n->sim, n);
	for (uint32_t i = 0; i < n->candidate_count; i++)
		term_supervision_tell(
			&n->candidates[i]->term,
			(struct term_event){ .kind = TERM_EV_RESIGN,
		                             .sit_out = seconds < 0 ? NSEC_NEVER : (nsec)(seconds * NSEC_PER_SEC) });
	node_settle(n);
	sim_enter(n->sim, NULL);
}

/* The worker dies. What follows is as in a program: its replacement starts at once, or after a back-off. */
static void node_worker_gone(struct sim_node *n)
{
	n->kill_due = false;
	if (!n->life.ending || node_worker(n) != WORKER_DYING)
		log_event(LOG_WARN, NULL, "worker_gone", "the process that runs the script is gone: killed");
	node_unload(n);
	node_tell(n, LIFE_EV_ENDED);
	for (uint32_t i = 0; i < n->candidate_count; i++) {
		n->candidates[i]->sweeping = n->candidates[i]->sweeping_next = 0;
		script_metrics_worker_gone(&n->candidates[i]->metrics);
		term_supervision_dead(&n->candidates[i]->term, true);
	}
	node_tell(n, LIFE_EV_GONE);
}

void sim_node_kill_worker(struct sim_node *n)
{
	sim_enter(n->sim, n);
	if (n->script)
		node_worker_gone(n);
	node_settle(n);
	sim_enter(n->sim, NULL);
}

/* The guard wakes up with the rest. If a kill deadline has passed, it kills the worker before the script runs on. */
void sim_node_wake(struct sim_node *n)
{
	struct instant kill;

	n->paused_until = 0;
	if (page_first_kill(n->page, &kill) && instant_passed(kill, clock_now()))
		sim_node_kill_worker(n);
}

double sim_node_first(const struct sim_node *n)
{
	double first = n->script ? timeline_first(&n->script_time) : HUGE_VAL;
	double other = timeline_first(&n->time);

	return first < other ? first : other;
}

void sim_node_fire(struct sim_node *n)
{
	bool scripts = n->script && timeline_first(&n->script_time) < timeline_first(&n->time);

	sim_enter(n->sim, n);
	timeline_fire(scripts ? &n->script_time : &n->time);
	sim_enter(n->sim, NULL);
	node_settle(n);
}

bool sim_node_leads(const struct sim_node *n, const char *url)
{
	for (uint32_t i = 0; n->up && i < n->candidate_count; i++) {
		const struct sim_candidate *s = n->candidates[i];
		enum term_state state = s->term.hooks.state;
		if ((state == TERM_LEADING || state == TERM_DRAINING || state == TERM_STOPPING) &&
		    (!url || strcmp(url, s->url) == 0) && page_leading(&n->page->slot[s->index], s->term.hooks.term))
			return true;
	}
	return false;
}

static struct sim_candidate *node_candidate(const struct sim_node *n, const char *url)
{
	for (uint32_t i = 0; n->up && i < n->candidate_count; i++)
		if (n->candidates[i]->campaign.elector && strcmp(url, n->candidates[i]->url) == 0)
			return n->candidates[i];
	return NULL;
}

const char *sim_node_next(const struct sim_node *n, const char *url)
{
	const struct sim_candidate *s = node_candidate(n, url);
	struct elector_status st;

	if (!s)
		return NULL;
	elector_status(s->campaign.elector, &st);
	return st.next.known ? st.next.identity : NULL;
}

void sim_node_hand_over(struct sim_node *n, const char *url, const char *to, double timeout)
{
	const struct sim_candidate *s = node_candidate(n, url);
	struct sim_handover *h = &n->sim->handover;
	nsec within = (nsec)(timeout * NSEC_PER_SEC);
	struct err err;

	sim_enter(n->sim, n);
	h->of = s;
	if (elector_hand_over(s->campaign.elector, 0, to, within, &err) < 0)
		h->refused = err;
	node_settle(n);
	sim_enter(n->sim, NULL);
}
