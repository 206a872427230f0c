#include "runner/run.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define NEVER NSEC_NEVER
#define CHECKPOINT_SENT_MAX (4 * RECORD_CHECKPOINT_MAX) /* numbers may get longer on their way through a store */

static struct page_slot *slot_of(const struct candidate *p)
{
	return &supervisor_page(p->worker_set->supervisor)->slot[p->index];
}

static void send(struct candidate *p, struct buf *m)
{
	supervisor_send(p->worker_set->supervisor, m);
	buf_fini(m);
}

static void begin_message(const struct candidate *p, struct buf *m, enum wire_type type)
{
	wire_begin(m, type);
	wire_u32(m, p->index);
}

static struct log_about about(const struct candidate *p)
{
	return (struct log_about){ .lock = p->lock_url, .term = p->term, .token = p->token };
}

const char *candidate_name(const struct candidate *p)
{
	return p->settings.name;
}

static void set_cleanup_timer(struct candidate *p, nsec after)
{
	ev_timer_stop(p->run->program.loop, &p->cleanup_timer);
	ev_timer_set(&p->cleanup_timer, (double)after / NSEC_PER_SEC, 0.);
	ev_timer_start(p->run->program.loop, &p->cleanup_timer);
}

/* What somebody else put there may be of any size; a message is not. */
static const char *checkpoint_of(const struct candidate *p)
{
	const char *checkpoint = elector_checkpoint(p->elector);
	struct log_about a = about(p);

	if (!checkpoint || strlen(checkpoint) <= CHECKPOINT_SENT_MAX)
		return checkpoint;
	log_event(LOG_WARN, &a, "checkpoint_too_long",
	          "the record's checkpoint has %zu bytes, at most %d are given to a script: it is "
	          "kept until the script saves one",
	          strlen(checkpoint), CHECKPOINT_SENT_MAX);
	return NULL;
}

static void close_term(struct candidate *p, bool reaped)
{
	bool hooked = p->hook != HOOK_NONE;

	ev_timer_stop(p->run->program.loop, &p->cleanup_timer);
	p->hook = HOOK_NONE;
	p->cleanups = 0;
	if (hooked)
		run_term_over(p->run, p);
	bool again = p->let_go && !p->paused && !p->run->ending && worker_set_ready(p->worker_set);
	p->let_go = false;
	elector_stopped(p->elector, reaped);
	if (again)
		elector_campaign(p->elector);
	if (p->finished && hooked)
		run_post_finished(p->run);
}

/* ---- what the elector says ---- */

static void on_lead(void *arg, const struct elector_term *t)
{
	struct candidate *p = arg;
	struct buf m = { 0 };

	p->term = t->term;
	p->token = t->token;
	p->kill = t->kill;
	p->held = true;
	p->began = clock_now();
	if (!worker_set_ready(p->worker_set)) { /* a write we had given up on has landed; there is nobody to lead */
		elector_end(p->elector, LEASE_WORKER, program_back_off(++p->failures), 0);
		return;
	}
	p->hook = HOOK_LEADING;
	p->allowance = p->times.kill;
	worker_set_allow(p->worker_set);
	page_begin(supervisor_page(p->worker_set->supervisor), p->index, t->term, t->token, t->end, t->kill);
	supervisor_poke(p->worker_set->supervisor);
	begin_message(p, &m, WIRE_LEAD);
	wire_u64(&m, t->term);
	wire_i64(&m, t->token);
	wire_str(&m, t->address);
	wire_str(&m, checkpoint_of(p));
	send(p, &m);
	run_term_began(p->run);
}

static void on_deadline(void *arg, struct instant end, struct instant kill)
{
	struct candidate *p = arg;

	if (!p->worker_set->supervisor ||
	    (p->hook != HOOK_LEADING && p->hook != HOOK_STOPPING && p->hook != HOOK_CLEANING))
		return;
	bool alive = page_extend(slot_of(p), p->term, end, kill);
	bool nearer = kill.boot < p->kill.boot || kill.raw < p->kill.raw;
	p->kill = kill;
	if (nearer) /* a later one the guard finds when it looks at the one it knows */
		supervisor_poke(p->worker_set->supervisor);
	if (!alive && p->hook == HOOK_LEADING) /* the worker saw the old deadline pass first: for it the term is over */
		elector_end(p->elector, LEASE_EXPIRED, 0, 0);
}

static void on_stop(void *arg, enum lease_reason reason, bool held, struct instant stop_by)
{
	struct candidate *p = arg;
	struct buf m = { 0 };

	p->reason = reason;
	p->held = held;
	if (p->hook == HOOK_NONE) {
		close_term(p, true);
		return;
	}
	if (!p->worker_set->supervisor || p->hook >= HOOK_OWED)
		return;
	p->hook = HOOK_STOPPING;
	page_stop(slot_of(p), held, stop_by);
	supervisor_poke(p->worker_set->supervisor);
	begin_message(p, &m, WIRE_STOP);
	wire_u64(&m, p->term);
	wire_u8(&m, (uint8_t)reason);
	wire_i64(&m, instant_until(stop_by, clock_now()) / NSEC_PER_MS);
	send(p, &m);
	supervisor_interrupt(p->worker_set->supervisor);
}

static void on_leader(void *arg, const struct elector_leader *l)
{
	struct candidate *p = arg;
	struct buf m = { 0 };

	if (!worker_set_ready(p->worker_set))
		return;
	begin_message(p, &m, WIRE_LEADER);
	wire_str(&m, l->identity);
	wire_str(&m, l->address);
	wire_i64(&m, l->token);
	wire_u8(&m, l->self);
	wire_str(&m, l->previous);
	send(p, &m);
}

static void on_no_leader(void *arg, const char *previous)
{
	struct candidate *p = arg;
	struct buf m = { 0 };

	if (!worker_set_ready(p->worker_set))
		return;
	begin_message(p, &m, WIRE_NO_LEADER);
	wire_str(&m, previous);
	send(p, &m);
}

static void on_ask(void *arg)
{
	struct candidate *p = arg;
	struct buf m = { 0 };

	if (!worker_set_ready(p->worker_set))
		return; /* no answer is a no */
	begin_message(p, &m, WIRE_ASK);
	wire_u64(&m, ++p->ask);
	send(p, &m);
}

static void on_finished(void *arg, bool left)
{
	struct candidate *p = arg;
	struct log_about a = about(p);

	p->finished = true;
	if (left)
		log_event(LOG_WARN, &a, "left_to_expire", "the lease was not released: others wait it out");
	run_post_finished(p->run);
}

static void on_renewed(void *arg, nsec took)
{
	struct candidate *p = arg;

	if (!p->run->program.admin)
		return;
	if (!p->renewals)
		p->renewals = mem_zero(sizeof *p->renewals);
	admin_renewed(p->renewals, took);
}

static void answer_save(struct candidate *p, uint64_t term, uint64_t save, enum wire_saved how, const char *why)
{
	struct buf m = { 0 };

	if (!worker_set_ready(p->worker_set))
		return;
	begin_message(p, &m, WIRE_SAVED);
	wire_u64(&m, term);
	wire_u64(&m, save);
	wire_u8(&m, (uint8_t)how);
	wire_str(&m, why);
	send(p, &m);
}

static void on_saved(void *arg, uint64_t save, bool good)
{
	struct candidate *p = arg;

	if (!p->save || save < p->save_number) /* a dead worker's */
		return;
	answer_save(p, p->term, p->save, good ? WIRE_SAVED_GOOD : WIRE_SAVED_NOT, "");
	p->save = 0;
}

static const struct elector_callbacks callbacks = {
	.lead = on_lead,
	.deadline = on_deadline,
	.stop = on_stop,
	.leader = on_leader,
	.no_leader = on_no_leader,
	.ask = on_ask,
	.saved = on_saved,
	.renewed = on_renewed,
	.finished = on_finished,
};

/* ---- what the worker says ---- */

static void worker_answered(struct candidate *p, struct wire *w)
{
	uint64_t ask = wire_get_u64(w);
	bool yes = wire_get_u8(w);
	const char *why = wire_get_str(w), *address = wire_get_str(w);
	struct log_about a = about(p);

	if (!wire_done(w) || ask != p->ask)
		return;
	if (!yes)
		log_event(LOG_DEBUG, &a, "may_not_lead", "%s", *why ? why : "may_lead said no");
	elector_answer(p->elector, yes, address);
}

static void worker_stopped(struct candidate *p, struct wire *w)
{
	uint64_t term = wire_get_u64(w);

	if (!wire_done(w) || term != p->term || (p->hook != HOOK_STOPPING && p->hook != HOOK_CLEANING))
		return;
	p->hook = HOOK_SWEEPING;
	supervisor_sweep(p->worker_set->supervisor, p->index, p->term);
}

static nsec sitting_out(struct candidate *p, enum lease_reason reason, int64_t given_ms)
{
	if (given_ms >= 0)
		return given_ms < INT64_MAX / NSEC_PER_MS ? given_ms * NSEC_PER_MS : NSEC_NEVER - 1;
	if (reason != LEASE_ERROR)
		return p->times.lease;
	/* A term that worked for a minute was no failed start. */
	p->failures = elapsed_standby(p->began, clock_now()) > 60 * NSEC_PER_SEC ? 1 : p->failures + 1;
	return program_back_off(p->failures);
}

static void worker_ends(struct candidate *p, struct wire *w)
{
	uint64_t term = wire_get_u64(w);
	enum lease_reason reason = wire_get_u8(w);
	int64_t sit_out_ms = wire_get_i64(w);
	const char *text = wire_get_str(w);
	struct log_about a = about(p);

	if (!wire_done(w) || term != p->term || p->hook != HOOK_LEADING)
		return;
	p->hook_errors += reason == LEASE_ERROR;
	log_event(reason == LEASE_ERROR ? LOG_ERROR : LOG_INFO, &a, "script_ends_term", "%s: %s",
	          lease_reason_name(reason), *text ? text : "no reason given");
	elector_end(p->elector, reason, sitting_out(p, reason, sit_out_ms), 0);
}

static void worker_saves(struct candidate *p, struct wire *w)
{
	uint64_t term = wire_get_u64(w), save = wire_get_u64(w);
	const char *checkpoint = wire_get_str(w);
	bool current =
		term == p->term && (p->hook == HOOK_LEADING || p->hook == HOOK_STOPPING || p->hook == HOOK_CLEANING);
	struct err err;

	if (!wire_done(w))
		return;
	if (!current) {
		answer_save(p, term, save, WIRE_SAVED_NOT, "");
		return;
	}
	p->save = save;
	p->save_number = ++p->run->saves;
	if (elector_save(p->elector, p->save_number, checkpoint, &err) == 0)
		return;
	p->save = 0;
	answer_save(p, term, save, WIRE_SAVED_REFUSED, err.text);
}

void candidate_message(struct candidate *p, enum wire_type type, struct wire *w)
{
	if (type == WIRE_SAVE)
		worker_saves(p, w);
	else if (type == WIRE_ANSWER)
		worker_answered(p, w);
	else if (type == WIRE_STOPPED)
		worker_stopped(p, w);
	else if (type == WIRE_END)
		worker_ends(p, w);
}

void candidate_swept(struct candidate *p, uint64_t term, bool clean)
{
	struct log_about a = about(p);

	if (p->hook != HOOK_SWEEPING || term != p->term)
		return;
	if (!clean) { /* nobody can say whose it is, so everybody's term ends with it */
		log_event(LOG_WARN, &a, "leftover",
		          "a process left behind cannot be attributed to a term: the worker is ended");
		supervisor_kill(p->worker_set->supervisor);
		return;
	}
	page_idle(slot_of(p));
	close_term(p, true);
}

/* ---- deaths and replacements ---- */

/* Owed on_stopped runs in the replacement, once; if that has to be killed too, no third worker tries. */
static bool owes_hook(const struct candidate *p)
{
	return (p->settings.flags & WIRE_ELECTION_ON_STOPPED) && p->cleanups < 2 && !p->run->killing &&
	       p->hook != HOOK_SWEEPING;
}

static bool had_to_be_killed(const struct candidate *p)
{
	struct page_slot *s = slot_of(p);
	struct instant kill = { .boot = atomic_load(&s->kill_boot), .raw = atomic_load(&s->kill_raw) };

	return p->hook == HOOK_STOPPING && kill.boot && instant_passed(kill, clock_now());
}

void candidate_worker_dead(struct candidate *p, bool reaped)
{
	struct log_about a = about(p);
	bool leading = p->hook == HOOK_LEADING;

	p->save = 0;
	if (p->hook == HOOK_NONE)
		return;
	if (!reaped) {
		close_term(p, false);
		return;
	}
	if (p->hook == HOOK_OWED && owes_hook(p)) /* its replacement died as well, before it could begin */
		return;
	if (p->hook != HOOK_OWED)
		p->reason = had_to_be_killed(p) ? LEASE_KILLED : LEASE_WORKER;
	if (!owes_hook(p)) {
		p->hook = leading ? HOOK_OWED : p->hook;
		if (leading)
			elector_end(p->elector, LEASE_WORKER, program_back_off(++p->failures), 0);
		close_term(p, true);
		return;
	}
	p->hook = HOOK_OWED;
	log_event(LOG_WARN, &a, "on_stopped_owed", "the worker is gone (%s): its replacement runs on_stopped",
	          lease_reason_name(p->reason));
	if (leading)
		elector_end(p->elector, LEASE_WORKER, program_back_off(++p->failures), 2 * p->times.grace);
	if (!ev_is_active(&p->cleanup_timer))
		set_cleanup_timer(p, p->run->ending ? p->shutdown_grace : p->times.grace);
}

/* No replacement has come (the script may not load any more): nobody shall wait for that. The hook is still owed, and
 * run when there is one; until then this candidate stays out. */
static void let_go(struct candidate *p)
{
	bool for_good = p->run->ending || options_flag(&p->run->options, OPTION_ONCE, false);
	struct log_about a = about(p);

	log_event(LOG_WARN, &a, for_good ? "on_stopped_dropped" : "on_stopped_late",
	          "there is no replacement for the worker yet: the lease is released, and on_stopped %s",
	          for_good ? "does not run" : "runs when there is one");
	if (for_good) {
		close_term(p, true);
		return;
	}
	p->let_go = true;
	elector_pause(p->elector, "there is no worker");
	elector_stopped(p->elector, true);
}

static void on_cleanup_late(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct candidate *p = w->data;

	(void)loop;
	(void)revents;
	if (p->hook == HOOK_OWED)
		let_go(p);
	else if (p->hook == HOOK_CLEANING && p->worker_set->supervisor)
		supervisor_kill(p->worker_set->supervisor);
}

static void clean_up(struct candidate *p)
{
	struct buf m = { 0 };
	struct instant now = clock_now(), by = instant_add(now, p->times.grace);

	p->hook = HOOK_CLEANING;
	p->cleanups++;
	worker_set_allow(p->worker_set);
	page_begin(supervisor_page(p->worker_set->supervisor), p->index, p->term, p->token, now, by);
	page_stop(slot_of(p), false, by);
	supervisor_poke(p->worker_set->supervisor);
	begin_message(p, &m, WIRE_CLEANUP);
	wire_u64(&m, p->term);
	wire_i64(&m, p->token);
	wire_u8(&m, (uint8_t)p->reason);
	wire_i64(&m, p->times.grace / NSEC_PER_MS);
	wire_str(&m, checkpoint_of(p));
	send(p, &m);
	set_cleanup_timer(p, p->times.grace);
}

void candidate_worker_ready(struct candidate *p)
{
	if (p->hook == HOOK_OWED)
		clean_up(p);
	if (!p->paused && !p->let_go)
		elector_campaign(p->elector);
}

/* ---- orders ---- */

void candidate_pause(struct candidate *p, bool pause)
{
	p->paused = pause;
	if (pause)
		elector_pause(p->elector, "by an operator");
	else if (worker_set_ready(p->worker_set) && !p->let_go)
		elector_campaign(p->elector);
}

void candidate_resign(struct candidate *p, nsec sit_out)
{
	elector_end(p->elector, LEASE_RESIGNED, sit_out == NEVER ? p->times.lease : sit_out, 0);
}

void candidate_end(struct candidate *p, enum lease_reason reason)
{
	if (p->hook == HOOK_OWED) {
		set_cleanup_timer(p, p->shutdown_grace);
		worker_set_hurry(p->worker_set);
	}
	elector_end(p->elector, reason, NEVER, p->shutdown_grace);
}

void candidate_kill(struct candidate *p)
{
	elector_end(p->elector, LEASE_SHUTDOWN, NEVER, 1);
	if (!p->worker_set->supervisor && p->hook == HOOK_OWED)
		close_term(p, true);
}

/* ---- life ---- */

struct candidate *candidate_new(struct run *r, struct worker_set *s, uint32_t index,
                                const struct election_settings *settings)
{
	struct candidate *p = mem_zero(sizeof *p);

	p->run = r;
	p->worker_set = s;
	p->index = index;
	p->settings = *settings;
	p->allowance = NSEC_NEVER;
	ev_timer_init(&p->cleanup_timer, on_cleanup_late, 0., 0.);
	p->cleanup_timer.data = p;
	return p;
}

int candidate_open(struct candidate *p, bool several, const char *fallback, struct err *err)
{
	struct run *r = p->run;
	const struct options *o = &r->options;

	if (options_times(o, &p->settings.times, &p->times, &p->shutdown_grace, err) < 0)
		return err_wrap(err, "%s", p->settings.where);
	p->allowance = p->times.kill;
	char *lock = options_election_lock(o, p->settings.lock, fallback, p->settings.name, several, err);
	if (!lock)
		return err_wrap(err, "%s", p->settings.where);
	struct elector_config c = {
		.env = &r->program.env,
		.self = &r->program.self,
		.obituaries = r->program.obituaries,
		.lock = lock,
		.identity = options_text(o, OPTION_IDENTITY, p->settings.identity),
		.address = options_text(o, OPTION_ADDRESS, p->settings.address),
		.times = p->times,
		.observer = p->settings.flags & WIRE_ELECTION_OBSERVER,
		.asks = p->settings.flags & (WIRE_ELECTION_MAY_LEAD | WIRE_ELECTION_ADDRESS_FUNCTION),
		.reclaim = options_flag(o, OPTION_RECLAIM, p->settings.flags & WIRE_ELECTION_RECLAIM),
		.no_release = options_flag(o, OPTION_NO_RELEASE, false),
	};
	p->elector = elector_new(&c, &callbacks, p, err);
	free(lock);
	if (!p->elector)
		return err_wrap(err, "%s", p->settings.where);
	struct elector_status st;
	elector_status(p->elector, &st);
	p->lock_url = st.lock;
	return 0;
}

/* A term that runs ends first, without letting go of the lease; the heir leads the next one. */
void candidate_reload(struct candidate *p, struct election_settings *settings_taken, const struct lease_times *t)
{
	election_settings_fini(&p->settings);
	p->settings = *settings_taken;
	*settings_taken = (struct election_settings){ 0 };
	p->times = *t;
	p->allowance = p->hook != HOOK_NONE && p->allowance < t->kill ? p->allowance : t->kill;
	worker_set_allow(p->worker_set);
	elector_configure(p->elector, t);
	if (p->hook != HOOK_NONE)
		elector_next_term(p->elector);
}

void candidate_free(struct candidate *p)
{
	if (!p)
		return;
	ev_timer_stop(p->run->program.loop, &p->cleanup_timer);
	elector_free(p->elector);
	election_settings_fini(&p->settings);
	free(p->renewals);
	free(p);
}
