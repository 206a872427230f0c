#include "run/candidate.h"

#include "base/json_out.h"
#include "base/mem.h"
#include "run/run.h"
#include "run/worker_set.h"
#include "service/service_target.h"

#include <stdlib.h>

/* ---- what its term's supervision calls ---- */

static struct worker_set *candidate_set(const struct candidate *p)
{
	return p->run->worker_sets[life_set_of(&p->run->life, p->number)];
}

static bool candidate_elsewhere(const void *arg)
{
	const struct candidate *p = arg;
	const struct run *r = p->run;

	for (uint32_t i = 0; p->settings->slot && i < r->life.candidate_count; i++) {
		const struct candidate *other = r->candidates[i];
		if (other != p && other->term.hooks.state != TERM_NONE &&
		    election_same_slots(other->settings, p->settings))
			return true;
	}
	return false;
}

static struct term_context candidate_context(void *arg)
{
	const struct candidate *p = arg;

	return term_context_of(&p->run->life, p->number, options_flag(&p->run->options, OPTION_ONCE));
}

static struct supervisor *candidate_supervisor(void *arg)
{
	return candidate_set(arg)->supervisor;
}

static struct page *candidate_page(void *arg)
{
	return supervisor_page(candidate_supervisor(arg));
}

static void candidate_send(void *arg, const struct buf *m)
{
	supervisor_send(candidate_supervisor(arg), m);
}

static void candidate_page_changed(void *arg, enum term_page_news what)
{
	struct supervisor *s = candidate_supervisor(arg);

	switch (what) {
	case TERM_PAGE_LATER:
		supervisor_extended(s);
		return;
	case TERM_PAGE_POKE:
		supervisor_poke(s);
		return;
	case TERM_PAGE_INTERRUPT:
		supervisor_interrupt(s);
		return;
	}
}

static bool candidate_sweep(void *arg, uint64_t term, uint32_t next)
{
	return supervisor_sweep(candidate_supervisor(arg), ((struct candidate *)arg)->term.slot, term, next);
}

static void candidate_kill_worker(void *arg)
{
	struct run *r = ((struct candidate *)arg)->run;

	supervisor_kill(candidate_supervisor(arg));
	run_tell(r, &(struct life_event){ .kind = LIFE_EV_ENDED, .set = candidate_set(arg)->number });
}

static void candidate_worker_doing(const void *arg, struct worker_doing *out)
{
	const struct candidate *p = arg;
	const struct worker_set *s = candidate_set(p);
	const struct candidate *busy;

	*out = (struct worker_doing){ 0 };
	if (!s->supervisor)
		return;
	supervisor_worker_doing(s->supervisor, out);
	busy = worker_set_candidate(s, out->slot);
	if (busy && p->run->life.candidate_count > 1)
		out->election = busy->settings->name;
}

/* A worker that is killed is killed for all of its elections. */
static bool candidate_worker_leads_another(const void *arg)
{
	const struct candidate *p = arg;
	const struct run *r = p->run;

	for (uint32_t i = 0; i < r->life.candidate_count; i++) {
		const struct candidate *other = r->candidates[i];
		if (other != p && candidate_set(other) == candidate_set(p) &&
		    (other->term.hooks.state == TERM_LEADING || other->term.hooks.state == TERM_DRAINING) &&
		    !other->term.hooks.unanswered)
			return true;
	}
	return false;
}

static void candidate_allow(struct candidate *p)
{
	if (p->term.hooks.state != TERM_LEADING || p->allowance == p->campaign.times.kill)
		return; /* all of a thousand begin at once: none asks what all others allow, if its own is as it was */
	p->allowance = p->campaign.times.kill;
	worker_set_allow(candidate_set(p));
}

static void candidate_asked_in_vain(struct candidate *p, const char *why);

static void candidate_over(struct candidate *p)
{
	candidate_asked_in_vain(p, "the term has ended");
	script_metrics_term_over(&p->metrics);
	script_jobs_clear(&p->jobs);
	run_term_over(p->run, p);
}

static void candidate_tell(void *arg, enum term_news what)
{
	struct candidate *p = arg;

	switch (what) {
	case TERM_NEWS_ALLOW:
		candidate_allow(p);
		return;
	case TERM_NEWS_OVER:
		candidate_over(p);
		return;
	case TERM_NEWS_BEGAN:
	case TERM_NEWS_IDLE:
	case TERM_NEWS_FINISHED:
		run_look(p->run);
		return;
	}
}

static void candidate_hopeless(void *arg, const char *why)
{
	run_candidate_hopeless(((struct candidate *)arg)->run, why);
}

static const struct term_ops candidate_ops = {
	.context = candidate_context,
	.page = candidate_page,
	.page_changed = candidate_page_changed,
	.send = candidate_send,
	.sweep = candidate_sweep,
	.kill = candidate_kill_worker,
	.doing = candidate_worker_doing,
	.leads_another = candidate_worker_leads_another,
	.elsewhere = candidate_elsewhere,
	.tell = candidate_tell,
	.hopeless = candidate_hopeless,
};

/* ---- what its script is asked for ---- */

#define RELOAD_REQUEST UINT64_MAX /* no ticket */

/* The place of the request with this ticket; ticket 0: a free place. NULL: there is none. */
static uint64_t *candidate_asked(struct candidate *p, uint64_t ticket)
{
	for (size_t i = 0; p->asked && i < CANDIDATE_ASKED; i++)
		if (p->asked[i] == ticket)
			return &p->asked[i];
	return NULL;
}

int candidate_ask(struct candidate *p, const struct control_request *q, struct err *err)
{
	struct buf m = { 0 };

	if (p->term.hooks.state != TERM_LEADING || !life_ready(&p->run->life, p->number))
		return err_set(err, ERR_CANCELLED, "the term is ending");
	if (!p->asked)
		p->asked = mem_zero(CANDIDATE_ASKED * sizeof *p->asked);
	uint64_t *place = candidate_asked(p, 0);
	if (!place)
		return err_set(err, ERR_FULL, "%d requests wait for the script already", CANDIDATE_ASKED);
	*place = q->ticket;
	wire_request_put(&m, &(struct wire_request){ .slot = p->term.slot,
	                                             .term = p->term.hooks.term,
	                                             .request = q->ticket,
	                                             .uid = q->peer,
	                                             .wait = q->wait,
	                                             .job = q->job });
	candidate_send(p, &m);
	buf_fini(&m);
	return 0;
}

void candidate_ask_reload(struct candidate *p)
{
	struct buf m = { 0 };

	wire_request_put(&m, &(struct wire_request){
				     .slot = p->term.slot, .request = RELOAD_REQUEST, .uid = UINT32_MAX, .job = "" });
	candidate_send(p, &m);
	buf_fini(&m);
}

bool candidate_replied(struct candidate *p, struct wire *w)
{
	struct wire_reply m;
	struct buf reply = { 0 };

	if (!wire_reply_get(w, &m) || !m.request)
		return false;
	if (m.request == RELOAD_REQUEST)
		return run_taken(p->run, life_set_of(&p->run->life, p->number), m.ok, m.text);
	uint64_t *place = candidate_asked(p, m.request);
	if (!place)
		return false;
	*place = 0;
	if (m.ok) {
		control_agree(&reply);
		json_out_text(&reply, "message", m.text);
		json_out_int(&reply, "exitStatus", m.code);
		buf_adds(&reply, "}");
	} else {
		control_refuse(&reply, "%s", m.text);
	}
	control_answer(p->run->program.control, m.request, &reply);
	buf_fini(&reply);
	return true;
}

/* A worker that behaves has answered before its term is over. */
static void candidate_asked_in_vain(struct candidate *p, const char *why)
{
	struct buf reply = { 0 };

	if (!p->asked)
		return;
	control_refuse(&reply, "%s", why);
	for (size_t i = 0; i < CANDIDATE_ASKED; i++)
		if (p->asked[i])
			control_answer(p->run->program.control, p->asked[i], &reply);
	buf_fini(&reply);
	free(p->asked);
	p->asked = NULL;
}

/* ---- what happens to it ---- */

void candidate_worker_dead(struct candidate *p, bool reaped)
{
	script_metrics_worker_gone(&p->metrics);
	candidate_asked_in_vain(p, "the process that runs the jobs has died, and they with it");
	script_jobs_clear(&p->jobs);
	term_supervision_dead(&p->term, reaped);
}

/* After a reload the term goes on in a worker that may say another address or priority, and was not asked. */
void candidate_worker_ready(struct candidate *p)
{
	uint32_t says = WIRE_ELECTION_ADDRESS_FUNCTION | WIRE_ELECTION_PRIORITY_FUNCTION;

	elector_tell_leader(p->campaign.elector);
	term_supervision_tell(&p->term, (struct term_event){ .kind = TERM_EV_READY });
	if (p->term.hooks.state == TERM_LEADING && p->settings->flags & says)
		term_supervision_ask(&p->term);
}

void candidate_place(struct candidate *p)
{
	const struct worker_set *s = candidate_set(p);

	if (s->slot)
		p->term.slot = s->slot[p->election[s->number & 1]];
}

void candidate_moved(struct candidate *p)
{
	script_metrics_worker_gone(&p->metrics);
	script_jobs_clear(&p->jobs);
	candidate_place(p);
	worker_set_allow(candidate_set(p));
}

void candidate_stir(struct candidate *p)
{
	term_supervision_tell(&p->term, (struct term_event){ .kind = TERM_EV_RELOAD });
	term_supervision_move(&p->term);
}

void candidate_resign(struct candidate *p, nsec sit_out)
{
	p->out_until = instant_add(clock_now(), sit_out == NSEC_NEVER ? p->campaign.times.lease : sit_out);
	term_supervision_tell(&p->term, (struct term_event){ .kind = TERM_EV_RESIGN, .sit_out = sit_out });
}

int candidate_hand_over(struct candidate *p, uint64_t ticket, const char *to, nsec timeout, struct err *err)
{
	return elector_hand_over(p->campaign.elector, ticket, to, timeout, err);
}

void candidate_end(struct candidate *p, enum lease_reason reason)
{
	term_supervision_tell(&p->term, (struct term_event){ .kind = TERM_EV_END, .reason = reason });
}

void candidate_kill(struct candidate *p)
{
	term_supervision_tell(&p->term, (struct term_event){ .kind = TERM_EV_KILL });
}

/* ---- life ---- */

struct candidate *candidate_new(struct run *r, const struct election_settings *settings)
{
	struct candidate *p = mem_zero(sizeof *p);

	p->run = r;
	p->settings = settings;
	p->allowance = NSEC_NEVER;
	p->term = (struct term_supervision){ .ops = &candidate_ops, .arg = p, .campaign = &p->campaign };
	term_supervision_init(&p->term, &r->program.timeline);
	campaign_init(&p->campaign, &r->program);
	return p;
}

/* Whether all that an elector keeps for its whole life is unchanged. */
bool candidate_goes_on(const struct candidate *p, const struct election_settings *new, const char *lock)
{
	const struct options *o = &p->run->options;

	return strcmp(p->settings->name, new->name) == 0 && strcmp(p->lock, lock) == 0 &&
	       strcmp(options_text(o, OPTION_IDENTITY, p->settings->identity),
	              options_text(o, OPTION_IDENTITY, new->identity)) == 0 &&
	       election_number(o, p->settings, OPTION_RECLAIM) == election_number(o, new, OPTION_RECLAIM) &&
	       (p->settings->flags & WIRE_ELECTION_OBSERVER) == (new->flags &WIRE_ELECTION_OBSERVER);
}

int candidate_check(const struct candidate *p, const struct election_settings *new, struct err *err)
{
	const char *address = options_text(&p->run->options, OPTION_ADDRESS, new->address);
	char host[SERVICE_HOST_SIZE];

	if (elector_check_text("address", address, err) < 0)
		return err_wrap(err, "%s", new->where);
	if (p->campaign.service && *address && service_host(address, host, err) < 0)
		return err_wrap(err, "%s", new->where);
	return 0;
}

/* Reads the settings of a script that is in force, or is to be. */
static int candidate_read_settings(struct candidate *p, struct err *err)
{
	if (campaign_read(&p->campaign, p->settings, err) < 0)
		return -1;
	term_supervision_configure(&p->term, p->settings);
	return 0;
}

int candidate_open(struct candidate *p, const char *lock, bool several, struct err *err)
{
	struct program *program = &p->run->program;
	struct campaign_place at = campaign_place(program, lock, several);

	if (candidate_read_settings(p, err) < 0)
		return -1;
	p->allowance = p->campaign.times.kill;
	p->lock = mem_dup(lock);
	if (campaign_open(&p->campaign, &at, p->settings, &term_elector_callbacks, &p->term, err) < 0)
		return -1;
	if (!p->run->is_text || options_set(&p->run->options, OPTION_LOCK))
		program_say_local(program, lock);
	return 0;
}

static uint64_t candidate_term(const struct candidate *p)
{
	return p->term.hooks.state == TERM_NONE ? 0 : p->term.hooks.term;
}

bool candidate_metric(struct candidate *p, struct wire *w)
{
	struct wire_metric m;

	return wire_metric_get(w, &m) && script_metrics_put(&p->metrics, &m, candidate_term(p));
}

bool candidate_job(struct candidate *p, struct wire *w)
{
	struct wire_job m;

	return wire_job_get(w, &m) && script_jobs_put(&p->jobs, &m, candidate_term(p));
}

bool candidate_failed(struct candidate *p, struct wire *w)
{
	struct wire_failed m;

	if (!wire_failed_get(w, &m))
		return false;
	mem_replace(&p->script_error, m.text);
	p->script_error_at = clock_now();
	return true;
}

void candidate_list(const struct candidate *p, struct standing *out, struct elector_status *status)
{
	campaign_stand(&p->campaign, out, status);
	out->may_lead = p->settings->flags & WIRE_ELECTION_MAY_LEAD ? &p->term.may_lead : NULL;
	out->hook_errors = p->term.hooks.hook_errors + p->term.next.failed;
	out->metrics = &p->metrics;
	out->jobs = &p->jobs;
	out->script_error = p->script_error;
	if (p->script_error)
		out->script_error_for = elapsed_standby(p->script_error_at, clock_now());
	if (p->term.hooks.unanswered)
		out->silent_for = elapsed_standby(p->term.hooks.began, clock_now());
	out->silent = out->silent_for > STANDING_SILENT;
	const struct supervisor *worker = candidate_set(p)->supervisor;
	if (out->silent || (worker && supervisor_worker_blocks(worker))) /* not always: it reads /proc */
		candidate_worker_doing(p, &out->worker);
}

/* They were read once when the version was examined, so they are good. */
void candidate_configure(struct candidate *p, const struct election_settings *settings)
{
	struct err err;

	p->settings = settings;
	candidate_read_settings(p, &err);
	may_lead_forget(&p->term.may_lead);
	if (p->term.hooks.state == TERM_NONE || p->allowance > p->campaign.times.kill)
		p->allowance = p->campaign.times.kill;
	worker_set_allow(candidate_set(p));
	campaign_configure(&p->campaign, settings);
}

void candidate_free(struct candidate *p)
{
	if (!p)
		return;
	campaign_fini(&p->campaign);
	term_supervision_fini(&p->term);
	script_metrics_fini(&p->metrics);
	script_jobs_clear(&p->jobs);
	free(p->script_error);
	free(p->asked);
	free(p->lock);
	free(p);
}
