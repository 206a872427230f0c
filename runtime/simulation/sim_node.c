#include "simulation/sim.h"

#include "base/mem.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- messages ---- */

static void candidate_mail(struct mailbox *b, const struct buf *m)
{
	struct mail *mail = mem_zero(sizeof *mail + m->len);

	mail->len = m->len;
	memcpy(mail->bytes, m->data, m->len);
	if (!b->first)
		b->end = &b->first;
	*b->end = mail;
	b->end = &mail->next;
}

static struct mail *take_mail(struct mailbox *b)
{
	struct mail *mail = b->first;

	if (mail)
		b->first = mail->next;
	return mail;
}

static void burn_mail(struct mailbox *b)
{
	struct mail *mail;

	while ((mail = take_mail(b)))
		free(mail);
}

/* And frees it. */
static void tell(struct sim_node *n, struct buf *m)
{
	if (n->script)
		candidate_mail(&n->to_script, m);
	buf_fini(m);
}

static void begin(const struct lock_client *s, struct buf *m, enum wire_type type)
{
	wire_begin(m, type);
	wire_u32(m, s->index);
}

static struct page_slot *slot_of(const struct lock_client *s)
{
	return &s->node->page->slot[s->index];
}

/* ---- what the elector says: as candidate.c does it, but what is started here ends when it is told to ---- */

static void close_seat(struct lock_client *s)
{
	s->hook = HOOK_NONE;
	s->cleanups = 0;
	page_idle(slot_of(s));
	elector_stopped(s->elector, true);
}

static void on_lead(void *arg, const struct elector_term *t)
{
	struct lock_client *s = arg;
	struct buf m = { 0 };

	s->term = t->term;
	s->token = t->token;
	s->kill = t->kill;
	s->began = clock_now();
	if (!s->node->ready) {
		elector_end(s->elector, LEASE_WORKER, program_back_off(++s->failures), 0);
		return;
	}
	s->hook = HOOK_LEADING;
	page_begin(s->node->page, s->index, t->term, t->token, t->end, t->kill);
	sim_check_leaders(s->node->sim, s);
	const char *checkpoint = elector_checkpoint(s->elector);
	begin(s, &m, WIRE_LEAD);
	wire_u64(&m, t->term);
	wire_i64(&m, t->token);
	wire_str(&m, t->address);
	wire_str(&m, checkpoint);
	tell(s->node, &m);
}

static void on_deadline(void *arg, struct instant end, struct instant kill)
{
	struct lock_client *s = arg;

	if (s->hook != HOOK_LEADING && s->hook != HOOK_STOPPING && s->hook != HOOK_CLEANING)
		return;
	s->kill = kill;
	if (!page_extend(slot_of(s), s->term, end, kill) && s->hook == HOOK_LEADING)
		elector_end(s->elector, LEASE_EXPIRED, 0, 0);
}

static void on_stop(void *arg, enum lease_reason reason, bool held, struct instant stop_by)
{
	struct lock_client *s = arg;
	struct buf m = { 0 };

	s->reason = reason;
	if (s->hook == HOOK_NONE) {
		close_seat(s);
		return;
	}
	if (s->hook >= HOOK_OWED)
		return;
	s->hook = HOOK_STOPPING;
	page_stop(slot_of(s), held, stop_by);
	begin(s, &m, WIRE_STOP);
	wire_u64(&m, s->term);
	wire_u8(&m, (uint8_t)reason);
	wire_i64(&m, instant_until(stop_by, clock_now()) / NSEC_PER_MS);
	tell(s->node, &m);
}

static void on_leader(void *arg, const struct elector_leader *l)
{
	struct lock_client *s = arg;
	struct buf m = { 0 };

	begin(s, &m, WIRE_LEADER);
	wire_str(&m, l->identity);
	wire_str(&m, l->address);
	wire_i64(&m, l->token);
	wire_u8(&m, l->self);
	wire_str(&m, l->previous);
	if (s->node->ready)
		tell(s->node, &m);
	else
		buf_fini(&m);
}

static void on_no_leader(void *arg, const char *previous)
{
	struct lock_client *s = arg;
	struct buf m = { 0 };

	if (!s->node->ready)
		return;
	begin(s, &m, WIRE_NO_LEADER);
	wire_str(&m, previous);
	tell(s->node, &m);
}

static void on_ask(void *arg)
{
	struct lock_client *s = arg;
	struct buf m = { 0 };

	if (!s->node->ready)
		return;
	begin(s, &m, WIRE_ASK);
	wire_u64(&m, ++s->ask);
	tell(s->node, &m);
}

static void answer_save(struct lock_client *s, uint64_t term, uint64_t save, enum wire_saved how, const char *why)
{
	struct buf m = { 0 };

	begin(s, &m, WIRE_SAVED);
	wire_u64(&m, term);
	wire_u64(&m, save);
	wire_u8(&m, (uint8_t)how);
	wire_str(&m, why);
	tell(s->node, &m);
}

static void on_saved(void *arg, uint64_t save, bool good)
{
	struct lock_client *s = arg;

	if (!s->save || save < s->save_number)
		return;
	answer_save(s, s->term, s->save, good ? WIRE_SAVED_GOOD : WIRE_SAVED_NOT, "");
	s->save = 0;
}

static void on_finished(void *arg, bool left)
{
	struct lock_client *s = arg;

	(void)left;
	s->finished = true;
}

static const struct elector_callbacks callbacks = {
	.lead = on_lead,
	.deadline = on_deadline,
	.stop = on_stop,
	.leader = on_leader,
	.no_leader = on_no_leader,
	.ask = on_ask,
	.saved = on_saved,
	.finished = on_finished,
};

/* ---- what the script says ---- */

static void script_answered(struct lock_client *s, struct wire *w)
{
	uint64_t ask = wire_get_u64(w);
	bool yes = wire_get_u8(w);

	wire_get_str(w);
	const char *address = wire_get_str(w);
	if (ask == s->ask)
		elector_answer(s->elector, yes, address);
}

static void script_stopped(struct lock_client *s, struct wire *w)
{
	uint64_t term = wire_get_u64(w);

	if (term == s->term && (s->hook == HOOK_STOPPING || s->hook == HOOK_CLEANING))
		close_seat(s);
}

static nsec sitting_out(struct lock_client *s, enum lease_reason reason, int64_t given_ms)
{
	if (given_ms >= 0)
		return given_ms * NSEC_PER_MS;
	if (reason != LEASE_ERROR)
		return s->times.lease;
	s->failures = elapsed_standby(s->began, clock_now()) > 60 * NSEC_PER_SEC ? 1 : s->failures + 1;
	return program_back_off(s->failures);
}

static void script_ends(struct lock_client *s, struct wire *w)
{
	uint64_t term = wire_get_u64(w);
	enum lease_reason reason = wire_get_u8(w);
	int64_t sit_out_ms = wire_get_i64(w);

	if (term == s->term && s->hook == HOOK_LEADING)
		elector_end(s->elector, reason, sitting_out(s, reason, sit_out_ms), 0);
}

static void script_saves(struct lock_client *s, struct wire *w)
{
	uint64_t term = wire_get_u64(w), save = wire_get_u64(w);
	const char *checkpoint = wire_get_str(w);
	struct err err;

	if (s->save)
		return;
	if (term != s->term || (s->hook != HOOK_LEADING && s->hook != HOOK_STOPPING && s->hook != HOOK_CLEANING)) {
		answer_save(s, term, save, WIRE_SAVED_NOT, "");
		return;
	}
	s->save = save;
	s->save_number = ++s->node->saves;
	if (elector_save(s->elector, s->save_number, checkpoint, &err) == 0)
		return;
	s->save = 0;
	answer_save(s, term, save, WIRE_SAVED_REFUSED, err.text);
}

static void clean_up(struct lock_client *s)
{
	struct buf m = { 0 };
	struct instant now = clock_now(), by = instant_add(now, s->times.grace);

	s->hook = HOOK_CLEANING;
	s->cleanups++;
	page_begin(s->node->page, s->index, s->term, s->token, now, by);
	page_stop(slot_of(s), false, by);
	begin(s, &m, WIRE_CLEANUP);
	wire_u64(&m, s->term);
	wire_i64(&m, s->token);
	wire_u8(&m, (uint8_t)s->reason);
	wire_i64(&m, s->times.grace / NSEC_PER_MS);
	wire_str(&m, elector_checkpoint(s->elector));
	tell(s->node, &m);
}

static void script_started(struct sim_node *n, struct wire *w)
{
	if (!wire_get_u8(w)) {
		log_event(LOG_ERROR, NULL, "on_start_failed", "%s", wire_get_str(w));
		sim_node_stop(n);
		return;
	}
	n->ready = n->began = true;
	for (uint32_t i = 0; i < n->lock_client_count; i++) {
		if (n->lock_clients[i]->hook == HOOK_OWED)
			clean_up(n->lock_clients[i]);
		if (!n->leaving)
			elector_campaign(n->lock_clients[i]->elector);
	}
}

/* ---- elections ---- */

static void script_describes(struct sim_node *n, struct wire *w)
{
	struct wire_election e;
	struct lock_client *s = mem_zero(sizeof *s);

	if (n->planned || !wire_election_get(w, &e)) {
		free(s);
		return;
	}
	election_settings_copy(&s->settings, &e);
	s->node = n;
	s->index = n->lock_client_count;
	n->lock_clients = mem_resize(n->lock_clients, sizeof *n->lock_clients * (n->lock_client_count + 1));
	n->lock_clients[n->lock_client_count++] = s;
}

static int open_seat(struct lock_client *s, struct err *err)
{
	struct sim_node *n = s->node;
	const struct options *o = &n->sim->options;

	if (options_times(o, &s->settings.times, &s->times, &s->shutdown_grace, err) < 0)
		return -1;
	s->url = options_election_lock(o, s->settings.lock, n->sim->fallback, s->settings.name,
	                               n->lock_client_count > 1, err);
	if (!s->url)
		return -1;
	struct elector_config c = {
		.env = &n->env,
		.self = &n->self,
		.opened = sim_store_open(n->sim->store, s->url, &n->link, &n->time),
		.seed = (n->sim->setup.seed * 31 + s->index) * 31 + n->starts * 1009 + n->number,
		.identity = n->name, /* whatever the script says: its nodes are all on one machine */
		.address = options_text(o, OPTION_ADDRESS, s->settings.address),
		.times = s->times,
		.observer = s->settings.flags & WIRE_ELECTION_OBSERVER,
		.asks = s->settings.flags & (WIRE_ELECTION_MAY_LEAD | WIRE_ELECTION_ADDRESS_FUNCTION),
		.no_release = options_flag(o, OPTION_NO_RELEASE, false),
	};
	s->elector = elector_new(&c, &callbacks, s, err);
	if (!s->elector)
		c.opened->ops->close(c.opened);
	return s->elector ? 0 : -1;
}

static void script_loaded(struct sim_node *n)
{
	struct buf m = { 0 };
	struct err err;

	for (uint32_t i = 0; i < n->lock_client_count && !n->planned; i++)
		if (open_seat(n->lock_clients[i], &err) < 0) {
			sim_fail(n->sim, "%s: %s", n->lock_clients[i]->settings.where, err.text);
			return;
		}
	n->planned = true;
	wire_begin(&m, WIRE_GO);
	wire_u32(&m, n->lock_client_count);
	wire_u8(&m, n->began ? WIRE_GO_REPLACEMENT : WIRE_GO_FIRST);
	for (uint32_t i = 0; i < n->lock_client_count; i++) {
		wire_u32(&m, i);
		wire_str(&m, n->lock_clients[i]->url);
		wire_str(&m, n->name);
	}
	tell(n, &m);
}

static void script_says(struct sim_node *n, const struct mail *mail)
{
	struct wire w;
	enum wire_type type = wire_open(&w, mail->bytes, mail->len);

	if (type == WIRE_ELECTION)
		script_describes(n, &w);
	else if (type == WIRE_LOADED)
		script_loaded(n);
	else if (type == WIRE_LOAD_FAILED)
		sim_fail(n->sim, "%s", wire_get_str(&w));
	else if (type == WIRE_STARTED)
		script_started(n, &w);
	else if (type == WIRE_EXIT)
		sim_node_stop(n);
	if (type != WIRE_ANSWER && type != WIRE_STOPPED && type != WIRE_END && type != WIRE_SAVE)
		return;
	uint32_t index = wire_get_u32(&w);
	struct lock_client *s = index < n->lock_client_count ? n->lock_clients[index] : NULL;
	if (s && type == WIRE_ANSWER)
		script_answered(s, &w);
	else if (s && type == WIRE_STOPPED)
		script_stopped(s, &w);
	else if (s && type == WIRE_END)
		script_ends(s, &w);
	else if (s)
		script_saves(s, &w);
}

/* ---- running what is ready ---- */

static void script_sends(void *arg, const struct buf *m)
{
	candidate_mail(&((struct sim_node *)arg)->to_elector, m);
}

static void script_hears(struct sim_node *n, const struct mail *mail)
{
	struct wire w;
	enum wire_type type = wire_open(&w, mail->bytes, mail->len);

	if (!type || !script_message(n->script, type, &w))
		sim_fail(n->sim, "%s: a message of type %d makes no sense to the script's side", n->name, (int)type);
}

static void go_down(struct sim_node *n);

static bool all_finished(const struct sim_node *n)
{
	for (uint32_t i = 0; i < n->lock_client_count; i++)
		if (n->lock_clients[i]->elector &&
		    (!n->lock_clients[i]->finished || n->lock_clients[i]->hook != HOOK_NONE))
			return false;
	return true;
}

/* One step. false: there is nothing to do. */
static bool settle_one(struct sim_node *n)
{
	struct mail *mail;

	if (n->script && sched_run(n->script->sched))
		return true;
	if ((mail = take_mail(&n->to_elector)))
		script_says(n, mail);
	else if (n->script && !n->holding && (mail = take_mail(&n->to_script)))
		script_hears(n, mail);
	bool did = mail != NULL;
	free(mail);
	return did;
}

/* environ: each script's scheduler takes it for its own. */
static void settle(struct sim_node *n)
{
	struct sim_node *before = n->sim->current;

	sim_enter(n->sim, n);
	while (n->up && !n->sim->failed && settle_one(n))
		;
	environ = (char **)n->sim->environment;
	if (n->up && n->leaving && all_finished(n))
		go_down(n);
	sim_enter(n->sim, before);
}

/* ---- life and death ---- */

static void load(struct sim_node *n)
{
	timeline_init_virtual(&n->script_time, &n->sim->now);
	n->stubs = (struct testing_node){ .testing = n->sim->setup.testing, .name = n->name };
	n->spec = (struct script_spec){
		.loop = n->sim->loop,
		.timeline = &n->script_time,
		.page = n->page,
		.source = n->sim->setup.script,
		.args = n->sim->options.rest,
		.send = script_sends,
		.arg = n,
		.stub = testing_stub,
		.stub_arg = &n->stubs,
	};
	n->script = script_new(&n->spec);
	script_load(n->script);
	environ = (char **)n->sim->environment;
}

/* Tasks that wait are not told: their process is gone. */
static void unload(struct sim_node *n)
{
	if (!n->script)
		return;
	environ = (char **)n->sim->environment;
	script_free(n->script);
	environ = (char **)n->sim->environment;
	n->script = NULL;
	n->ready = false;
	timeline_fini(&n->script_time);
	burn_mail(&n->to_script);
	burn_mail(&n->to_elector);
}

static void on_kick(struct timer *t)
{
	((struct sim_node *)((char *)t - offsetof(struct sim_node, kick)))->holding = false;
}

static void set_self(struct sim_node *n)
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
	n->leaving = n->began = n->planned = false;
	n->paused_until = 0;
	set_self(n);
	timeline_init_virtual(&n->time, &n->sim->now);
	n->env = (struct lock_env){ .loop = n->sim->loop, .timeline = &n->time };
	n->page = page_new(256, fd, &err);
	if (!n->page) {
		sim_fail(n->sim, "%s", err.text);
		return;
	}
	for (int i = 0; i < PAGE_FILES; i++)
		close(fd[i]);
	n->holding = true;
	timer_init(&n->time, &n->kick, on_kick);
	timer_start(&n->time, &n->kick, 0);
	load(n);
	settle(n);
}

static void free_seats(struct sim_node *n)
{
	for (uint32_t i = 0; i < n->lock_client_count; i++) {
		elector_free(n->lock_clients[i]->elector);
		election_settings_fini(&n->lock_clients[i]->settings);
		free(n->lock_clients[i]->url);
		free(n->lock_clients[i]);
	}
	free(n->lock_clients);
	n->lock_clients = NULL;
	n->lock_client_count = 0;
}

static void go_down(struct sim_node *n)
{
	unload(n);
	free_seats(n);
	lock_env_fini(&n->env);
	timer_stop(&n->time, &n->kick);
	timeline_fini(&n->time);
	page_unmap(n->page);
	n->up = false;
	log_event(LOG_INFO, NULL, "down", "its processes are gone");
}

void sim_node_crash(struct sim_node *n)
{
	struct sim_node *before = n->sim->current;

	sim_enter(n->sim, n);
	go_down(n);
	sim_enter(n->sim, before);
}

void sim_node_stop(struct sim_node *n)
{
	bool inside = n->sim->current == n;

	n->leaving = true;
	sim_enter(n->sim, n);
	for (uint32_t i = 0; i < n->lock_client_count; i++)
		if (n->lock_clients[i]->elector)
			elector_end(n->lock_clients[i]->elector, LEASE_SHUTDOWN, NSEC_NEVER,
			            n->lock_clients[i]->shutdown_grace);
	if (inside)
		return;
	settle(n);
	sim_enter(n->sim, NULL);
}

void sim_node_resign(struct sim_node *n, double seconds)
{
	sim_enter(n->sim, n);
	for (uint32_t i = 0; i < n->lock_client_count; i++)
		elector_end(n->lock_clients[i]->elector, LEASE_RESIGNED,
		            seconds < 0 ? n->lock_clients[i]->times.lease : (nsec)(seconds * NSEC_PER_SEC), 0);
	settle(n);
	sim_enter(n->sim, NULL);
}

/* What candidate_worker_dead does for a worker that died; its replacement comes at once. */
static void worker_died(struct lock_client *s)
{
	bool leading = s->hook == HOOK_LEADING, late = instant_passed(s->kill, clock_now());

	s->save = 0;
	if (s->hook == HOOK_NONE)
		return;
	if (s->hook != HOOK_OWED) /* else its replacement died as well, before it could begin */
		s->reason = s->hook == HOOK_STOPPING && late ? LEASE_KILLED : LEASE_WORKER;
	page_idle(slot_of(s));
	s->hook = HOOK_OWED;
	if (leading)
		elector_end(s->elector, LEASE_WORKER, program_back_off(++s->failures), 2 * s->times.grace);
	if (!(s->settings.flags & WIRE_ELECTION_ON_STOPPED) || s->cleanups >= 2)
		close_seat(s);
}

void sim_node_kill_worker(struct sim_node *n)
{
	sim_enter(n->sim, n);
	log_event(LOG_WARN, NULL, "worker_gone", "the process that runs the script is gone: killed");
	unload(n);
	for (uint32_t i = 0; i < n->lock_client_count; i++)
		worker_died(n->lock_clients[i]);
	load(n);
	settle(n);
	sim_enter(n->sim, NULL);
}

/* The guard wakes up, too, and what was to be dead by now it kills before anything of the script runs. */
void sim_node_wake(struct sim_node *n)
{
	bool late = false;

	n->paused_until = 0;
	for (uint32_t i = 0; i < n->lock_client_count; i++)
		late |= n->lock_clients[i]->hook != HOOK_NONE && instant_passed(n->lock_clients[i]->kill, clock_now());
	if (late)
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
	settle(n);
}

bool sim_node_leads(const struct sim_node *n, const char *url)
{
	for (uint32_t i = 0; n->up && i < n->lock_client_count; i++) {
		const struct lock_client *s = n->lock_clients[i];
		if (s->hook != HOOK_NONE && s->hook < HOOK_OWED && (!url || strcmp(url, s->url) == 0) &&
		    page_leading(slot_of(s), s->term))
			return true;
	}
	return false;
}
