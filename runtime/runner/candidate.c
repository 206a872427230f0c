#include "admin/admin_metrics.h"
#include "runner/candidate.h"

#include "base/json_out.h"
#include "base/mem.h"
#include "runner/run.h"
#include "runner/service_order.h"
#include "runner/worker_set.h"
#include "service/service_target.h"

#include <stdlib.h>

/* ---- what its term's supervision calls ---- */

static struct worker_set *candidate_set(const struct candidate *p)
{
	return p->run->worker_sets[life_set_of(&p->run->life, p->number)];
}

static struct term_context candidate_context(void *arg)
{
	const struct candidate *p = arg;

	return term_context_of(&p->run->life, p->number, options_flag(&p->run->options, OPTION_ONCE, false));
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

static void candidate_poke(void *arg)
{
	supervisor_poke(candidate_supervisor(arg));
}

static void candidate_interrupt(void *arg)
{
	supervisor_interrupt(candidate_supervisor(arg));
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

static void candidate_allow(void *arg)
{
	struct candidate *p = arg;

	if (p->term.hooks.state == TERM_LEADING)
		p->allowance = p->times.kill;
	worker_set_allow(candidate_set(p));
}

static void candidate_extended(void *arg)
{
	supervisor_extended(candidate_supervisor(arg));
}

static void candidate_began(void *arg)
{
	run_tell_systemd(((struct candidate *)arg)->run);
}

static void candidate_asked_in_vain(struct candidate *p, const char *why);

static void candidate_over(void *arg)
{
	struct candidate *p = arg;

	candidate_asked_in_vain(p, "the term has ended");
	script_metrics_term_over(&p->metrics);
	script_jobs_clear(&p->jobs);
	run_term_over(p->run, p);
}

static void candidate_changed(void *arg)
{
	run_look(((struct candidate *)arg)->run);
}

static void candidate_renewed(void *arg, nsec took)
{
	struct candidate *p = arg;

	if (!p->run->program.admin)
		return;
	if (!p->renewals)
		p->renewals = mem_zero(sizeof *p->renewals);
	admin_renewed(p->renewals, took);
}

static void candidate_hopeless(void *arg, const char *why)
{
	run_candidate_hopeless(((struct candidate *)arg)->run, why);
}

static void candidate_handed_over(void *arg, uint64_t ticket, const struct handover_result *result)
{
	struct candidate *p = arg;
	struct buf reply = { 0 };

	standing_handed_over(&reply, result);
	control_answer(p->run->program.control, ticket, &reply);
	buf_fini(&reply);
}

static const struct term_ops candidate_ops = {
	.context = candidate_context,
	.page = candidate_page,
	.send = candidate_send,
	.poke = candidate_poke,
	.interrupt = candidate_interrupt,
	.sweep = candidate_sweep,
	.kill = candidate_kill_worker,
	.doing = candidate_worker_doing,
	.leads_another = candidate_worker_leads_another,
	.next_idle = candidate_changed,
	.allow = candidate_allow,
	.extended = candidate_extended,
	.began = candidate_began,
	.over = candidate_over,
	.finished = candidate_changed,
	.renewed = candidate_renewed,
	.handed_over = candidate_handed_over,
	.hopeless = candidate_hopeless,
};

/* ---- what its script is asked for ---- */

#define RELOAD_REQUEST UINT64_MAX /* no ticket */

/* 0: a free place. NULL: there is none. */
static uint64_t *candidate_asked(struct candidate *p, uint64_t ticket)
{
	for (size_t i = 0; i < CANDIDATE_ASKED; i++)
		if (p->asked[i] == ticket)
			return &p->asked[i];
	return NULL;
}

int candidate_ask(struct candidate *p, const struct control_request *q, struct err *err)
{
	uint64_t *place = candidate_asked(p, 0);
	struct buf m = { 0 };

	if (p->term.hooks.state != TERM_LEADING || !life_ready(&p->run->life, p->number))
		return err_set(err, ERR_CANCELLED, "the term is ending");
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

	control_refuse(&reply, "%s", why);
	for (size_t i = 0; i < CANDIDATE_ASKED; i++) {
		if (p->asked[i])
			control_answer(p->run->program.control, p->asked[i], &reply);
		p->asked[i] = 0;
	}
	buf_fini(&reply);
}

static uint32_t asks(uint32_t flags)
{
	return flags & (WIRE_ELECTION_MAY_LEAD | WIRE_ELECTION_ADDRESS_FUNCTION | WIRE_ELECTION_PRIORITY_FUNCTION);
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

	elector_tell_leader(p->elector);
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
	p->out_until = instant_add(clock_now(), sit_out == NSEC_NEVER ? p->times.lease : sit_out);
	term_supervision_tell(&p->term, (struct term_event){ .kind = TERM_EV_RESIGN, .sit_out = sit_out });
}

int candidate_hand_over(struct candidate *p, uint64_t ticket, const char *to, nsec timeout, struct err *err)
{
	return elector_hand_over(p->elector, ticket, to, timeout, err);
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
	p->term = (struct term_supervision){ .ops = &candidate_ops, .arg = p };
	term_supervision_init(&p->term, &r->program.timeline);
	return p;
}

/* What an elector is made with, and keeps. */
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
	if (p->service && *address && service_host(address, host, err) < 0)
		return err_wrap(err, "%s", new->where);
	return 0;
}

static void candidate_configure_hooks(struct candidate *p, nsec shutdown_grace)
{
	uint32_t flags = p->settings->flags;

	term_hooks_configure(&p->term.hooks, &p->times, shutdown_grace, flags & WIRE_ELECTION_ON_STOPPING,
	                     flags & WIRE_ELECTION_ON_STOPPED);
	p->term.hooks.answer_timeout = election_time(&p->run->options, NULL, OPTION_START_TIMEOUT);
	next_hooks_configure(&p->term.next, flags & (WIRE_ELECTION_ON_NEXT | WIRE_ELECTION_ON_NEXT_OVER),
	                     p->times.grace);
}

/* An observer never leads. */
static int candidate_make_elector(struct candidate *p, const struct elector_config *c, bool several, struct err *err)
{
	const struct options *o = &p->run->options;
	bool observer = p->settings->flags & WIRE_ELECTION_OBSERVER;
	char *target = observer ? mem_dup("") : election_service(o, p->settings->name, several, err);

	if (!target)
		return -1;
	p->elector =
		service_order_elector(&p->service,
	                              &(struct service_config){
					      .env = c->env,
					      .target = target,
					      .lock = c->lock,
					      .name = c->name,
					      .address = c->address,
					      .address_later = p->settings->flags & WIRE_ELECTION_ADDRESS_FUNCTION &&
	                                                       !options_set(o, OPTION_ADDRESS),
				      },
	                              c, &term_elector_callbacks, &p->term, err);
	free(target);
	return p->elector ? 0 : -1;
}

/* Of a script that is in force, or is to be. */
static int candidate_read_settings(struct candidate *p, struct err *err)
{
	const struct options *o = &p->run->options;

	if (election_times(o, p->settings, &p->times, err) < 0 || election_next(o, p->settings, &p->next, err) < 0)
		return err_wrap(err, "%s", p->settings->where);
	p->term.may_lead.timeout = election_time(o, p->settings, OPTION_MAY_LEAD_TIMEOUT);
	p->term.priority_given = options_set(o, OPTION_PRIORITY);
	candidate_configure_hooks(p, election_time(o, p->settings, OPTION_SHUTDOWN_GRACE));
	return 0;
}

int candidate_open(struct candidate *p, const char *lock, bool several, struct err *err)
{
	struct run *r = p->run;
	const struct options *o = &r->options;

	if (candidate_read_settings(p, err) < 0)
		return -1;
	p->allowance = p->times.kill;
	struct lock *opened = lock_open(&r->program.env, lock, err);
	if (!opened)
		return election_blame_lock(o, p->settings->where, err);
	p->lock = mem_dup(lock);
	struct elector_config c = {
		.env = &r->program.env,
		.timeline = &r->program.timeline,
		.self = &r->program.self,
		.death_watches = r->program.death_watches,
		.lock = lock,
		.opened = opened,
		.name = p->settings->name,
		.identity = options_text(o, OPTION_IDENTITY, p->settings->identity),
		.address = options_text(o, OPTION_ADDRESS, p->settings->address),
		.times = p->times,
		.observer = p->settings->flags & WIRE_ELECTION_OBSERVER,
		.asks = asks(p->settings->flags),
		.reclaim = election_number(o, p->settings, OPTION_RECLAIM),
		.no_release = options_flag(o, OPTION_NO_RELEASE, false),
		.next = p->next,
	};
	if (candidate_make_elector(p, &c, several, err) < 0) {
		opened->ops->close(opened);
		return err_wrap(err, "%s", p->settings->where);
	}
	p->term.elector = p->elector;
	if (!r->is_text || options_set(o, OPTION_LOCK))
		program_say_local(&r->program, lock);
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
	static const struct admin_renewals none;

	elector_status(p->elector, status);
	*out = (struct standing){
		.name = p->settings->name,
		.elector = p->elector,
		.status = status,
		.may_lead = p->settings->flags & WIRE_ELECTION_MAY_LEAD ? &p->term.may_lead : NULL,
		.lease = p->times.lease,
		.preempt_after = p->next.preempt_after,
		.hook_errors = p->term.hooks.hook_errors + p->term.next.failed,
		.renewals = p->renewals ? p->renewals : &none,
		.metrics = &p->metrics,
		.service = service_order_service(p->service),
		.jobs = &p->jobs,
		.script_error = p->script_error,
	};
	if (p->script_error)
		out->script_error_for = elapsed_standby(p->script_error_at, clock_now());
	if (p->term.hooks.unanswered)
		out->silent_for = elapsed_standby(p->term.hooks.began, clock_now());
	out->silent = out->silent_for > STANDING_SILENT;
	const struct supervisor *worker = candidate_set(p)->supervisor;
	if (out->silent || (worker && supervisor_worker_blocks(worker))) /* not always: it reads /proc */
		candidate_worker_doing(p, &out->worker);
}

/* An address that the script's function has said stays until that says another. */
static void candidate_configure_user(struct candidate *p)
{
	const struct options *o = &p->run->options;
	bool said = !options_set(o, OPTION_ADDRESS) && p->settings->flags & WIRE_ELECTION_ADDRESS_FUNCTION;

	elector_configure_user(p->elector, said ? NULL : options_text(o, OPTION_ADDRESS, p->settings->address),
	                       asks(p->settings->flags));
}

/* They were read once when the version was examined, so they are good. */
void candidate_configure(struct candidate *p, const struct election_settings *settings)
{
	struct err err;

	p->settings = settings;
	candidate_read_settings(p, &err);
	may_lead_forget(&p->term.may_lead);
	if (p->term.hooks.state == TERM_NONE || p->allowance > p->times.kill)
		p->allowance = p->times.kill;
	worker_set_allow(candidate_set(p));
	elector_configure(p->elector, &p->times);
	elector_configure_next(p->elector, &p->next);
	elector_accept_store(p->elector);
	candidate_configure_user(p);
}

void candidate_free(struct candidate *p)
{
	if (!p)
		return;
	elector_free(p->elector);
	service_order_free(p->service);
	term_supervision_fini(&p->term);
	script_metrics_fini(&p->metrics);
	script_jobs_clear(&p->jobs);
	free(p->renewals);
	free(p->script_error);
	free(p->lock);
	free(p);
}
