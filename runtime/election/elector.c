#include "election/elector.h"

#include "base/buf.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/nonce.h"
#include "election/death_watch.h"
#include "election/history.h"
#include "loop/timeline.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define QUEUE 8

struct elector {
	struct lock_env *env;
	const struct proof_self *self;
	struct lock *lock;
	struct lease *lease;
	uint64_t op;              /* the number of the operation under way, or of the last, */
	enum lease_write writing; /*     and what it was for, if it was a write */
	const struct elector_callbacks *cb;
	void *arg;
	struct timeline *timeline;
	struct timer timer;

	struct lease_event
		*queue; /* callbacks may call back in: one step at a time. On the stack of the first; NULL: none */
	int queued;
	bool closing;

	struct record seen;     /* last known content of the store */
	struct record *written; /* what a write under way would make of it; NULL: there is none */
	struct version version;
	int64_t token, acquired_us;
	int64_t top_token;    /* the largest that was seen of others, or led with */
	char incarnation[37]; /* the process', until a copy of the process writes under it too */
	bool named;           /* the identity was given: it does not contain the incarnation */
	char *identity, *address;
	char *leader;     /* reported last; NULL */
	char *checkpoint; /* a checkpoint on its way into the record; NULL */
	uint64_t save;    /*     its number */
	char *unsaved; /* one that was still on its way when the term ended: the write that lets go may take it along */
	char *kept;    /* that of our newest record known to have been in the store; NULL */
	uint64_t kept_writes; /*     the count of its write */
	uint64_t restored;    /* of the older record of which that was said */
	bool reclaim, watching;

	struct death_watches *death_watches;
	struct death_watch death_watch;
	uint64_t watched_id; /* the sight of the record whose holder death_watch waits for */

	struct instant end, kill; /* as published */
	bool term_open;
	uint64_t renewals_ok, renewals_failed, slow_paths, transitions;
	char *trouble; /* last problem logged, so that it is not logged at every try */
	struct instant trouble_at;
	bool unwritable; /* it was a write's */
	bool low;        /* it was a token's */
};

/* ---- saying ---- */

static struct log_about about(const struct elector *e)
{
	return (struct log_about){ .lock = e->lock->url,
		                   .term = e->term_open ? lease_term(e->lease) : 0,
		                   .token = e->term_open ? e->token : 0 };
}

__attribute__((format(printf, 4, 5))) static void elector_say(struct elector *e, enum log_level level,
                                                              const char *event, const char *fmt, ...)
{
	char text[1200];
	struct log_about a = about(e);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	history_add(history_of(e->env), e, event, text);
	log_event(level, &a, event, "%s", text);
}

/* The same trouble is said once, and again after a minute: a store that is down must not fill the disk. */
static void elector_say_trouble(struct elector *e, const char *event, const char *text)
{
	struct instant now = clock_now();

	e->unwritable = false;
	if (e->cb->trouble)
		e->cb->trouble(e->arg, text);
	if (e->trouble && strcmp(e->trouble, text) == 0 && elapsed_standby(e->trouble_at, now) < 60 * NSEC_PER_SEC)
		return;
	mem_replace(&e->trouble, text);
	e->trouble_at = now;
	elector_say(e, LOG_WARN, event, "%s", text);
}

static void trouble_over(struct elector *e)
{
	if (!e->trouble)
		return;
	mem_replace(&e->trouble, NULL);
	if (e->cb->trouble)
		e->cb->trouble(e->arg, NULL);
	e->unwritable = false;
	elector_say(e, LOG_INFO, "store_back", "the store answers again");
}

/* That it can be read is no sign that it can be written; a newer version is. */
static void trouble_over_if_readable(struct elector *e, const struct version *seen)
{
	if (!e->low && (!e->unwritable || strcmp(seen->text, e->version.text) != 0))
		trouble_over(e);
}

/* ---- records and sights ---- */

/* The same holder in the same term. Records of other clients have no term; they count changes of holder. */
static uint64_t holder_in_term(const struct record *r)
{
	uint64_t h = hash_fnv(HASH_FNV_SEED, r->holder, strlen(r->holder) + 1);

	h = hash_fnv(h, r->incarnation, strlen(r->incarnation) + 1);
	return h ^ (r->term ? r->term : (uint64_t)r->transitions) * UINT64_C(0x9e3779b97f4a7c15);
}

static bool ours(const struct elector *e, const struct record *r)
{
	return strcmp(r->holder, e->identity) == 0 && strcmp(r->incarnation, e->incarnation) == 0;
}

/* An earlier incarnation of an identity that lives only once. On this host the process itself is watched
 * (death_watch.h). */
static bool may_reclaim(const struct elector *e, const struct record *r)
{
	return e->reclaim && strcmp(r->holder, e->identity) == 0 && strcmp(r->boot_id, e->self->boot_id) != 0;
}

static struct lease_sight sight_of(const struct elector *e, const struct record *r)
{
	struct lease_sight s = {
		.kind = SIGHT_HELD,
		.id = record_sight_id(r),
		.who = holder_in_term(r),
		.write = record_write_id(r),
		.mine = ours(e, r),
		.duration = r->lease_ms * NSEC_PER_MS,
		.term = r->term,
		.count = r->writes,
	};

	if (!*r->holder)
		s.kind = r->state == RECORD_LEADING ? SIGHT_EMPTIED : SIGHT_RELEASED;
	s.reclaim = !s.mine && may_reclaim(e, r);
	return s;
}

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* The time of the write that replaces this record of ours. client-go takes a record for silent whose times do not
 * change, by whole seconds: a clock that was set back must not make it look so, nor older. So the time goes on from the
 * one in the record, by what has passed since. */
static int64_t renewal_time(const struct elector *e, const struct record *r)
{
	int64_t wall_us = clock_wall_us(),
		passed_us = elapsed_holder(lease_renewed_at(e->lease), clock_now()) / 1000 + 1;

	if (r->renewed_us == RECORD_TIME_UNKNOWN || r->renewed_us > RECORD_TIME_MAX - passed_us)
		return wall_us;
	return larger(wall_us, r->renewed_us + passed_us);
}

static void fill_settings(struct record *r, const struct lease_times *t)
{
	r->lease_ms = t->lease / NSEC_PER_MS;
	r->renew_ms = t->renew / NSEC_PER_MS;
	r->retry_ms = t->retry / NSEC_PER_MS;
}

/* Of a process that was copied nobody can prove the death: its copy has the same boot id, pid and tree file. */
static void fill_process(const struct elector *e, struct record *r)
{
	proof_self_fill(e->self, r);
	if (strcmp(e->incarnation, e->self->incarnation) == 0)
		return;
	snprintf(r->incarnation, sizeof r->incarnation, "%s", e->incarnation);
	mem_replace(&r->tree, "");
}

static void fill_holder(struct elector *e, struct record *r)
{
	mem_replace(&r->holder, e->identity);
	mem_replace(&r->address, e->address);
	fill_process(e, r);
	r->state = RECORD_LEADING;
	fill_settings(r, lease_publishes(e->lease));
	nonce_hex(r->write, sizeof r->write / 2);
}

static void fill_new_term(struct elector *e, struct record *r)
{
	bool changes = strcmp(r->holder, e->identity) != 0;

	if (changes && *r->holder)
		mem_replace(&r->previous_holder, r->holder);
	if (strlen(r->previous_holder) > RECORD_PREVIOUS_MAX)
		mem_replace(&r->previous_holder, "");
	if (changes && *e->version.text && r->transitions < RECORD_TRANSITIONS_MAX)
		r->transitions++;
	r->term = lease_next_term(e->lease);
	r->acquired_us = clock_wall_us();
	r->renewed_us = r->acquired_us;
	r->token = e->lock->ops->token_in_record ? larger(larger(r->token, e->top_token) + 1, clock_wall_us()) : 0;
	fill_holder(e, r);
}

static void fill_renewal(struct elector *e, struct record *r)
{
	r->term = lease_term(e->lease);
	r->token = e->token;
	r->acquired_us = e->acquired_us;
	if (e->checkpoint)
		mem_replace(&r->checkpoint, e->checkpoint);
	r->renewed_us = renewal_time(e, r);
	fill_holder(e, r);
}

static void keep_checkpoint(struct elector *e)
{
	if (e->seen.writes <= e->kept_writes)
		return;
	e->kept_writes = e->seen.writes;
	if (!e->kept || !e->seen.checkpoint || strcmp(e->kept, e->seen.checkpoint) != 0)
		mem_replace(&e->kept, e->seen.checkpoint);
}

/* The store fell back to an older record of ours, and may have lost what it had acknowledged. What others have saved
 * since stands. */
static bool restore_checkpoint(struct elector *e, struct record *r)
{
	bool older =
		e->kept && r->writes > 0 && r->writes < e->kept_writes && strcmp(r->incarnation, e->incarnation) == 0;

	if (!older || (r->checkpoint && strcmp(r->checkpoint, e->kept) == 0))
		return false;
	if (e->restored != r->writes)
		elector_say(e, LOG_WARN, "checkpoint_restored",
		            "the store shows our record of %llu writes ago, without the checkpoint that it had "
		            "acknowledged: the checkpoint is written again",
		            (unsigned long long)(lease_next_count(e->lease) - 1 - r->writes));
	e->restored = r->writes;
	mem_replace(&r->checkpoint, e->kept);
	return true;
}

static void fill_release(struct elector *e, struct record *r)
{
	if (e->unsaved)
		mem_replace(&r->checkpoint, e->unsaved);
	r->token = e->token;
	r->renewed_us = renewal_time(e, r);
	mem_replace(&r->previous_holder, e->identity);
	mem_replace(&r->holder, "");
	mem_replace(&r->address, "");
	r->state = RECORD_RELEASED;
	nonce_hex(r->write, sizeof r->write / 2);
}

/* ---- operations ---- */

static void elector_step(struct elector *e, struct lease_event ev);

static enum lease_outcome outcome_of(enum lock_outcome o)
{
	switch (o) {
	case LOCK_OK:
	case LOCK_ABSENT:
	case LOCK_FOREIGN:
		return OUTCOME_OK;
	case LOCK_CONFLICT:
		return OUTCOME_CONFLICT;
	case LOCK_UNKNOWN:
		return OUTCOME_UNKNOWN;
	case LOCK_REFUSED:
	case LOCK_INVALID:
	case LOCK_FAILED:
		return OUTCOME_FAILED;
	}
	return OUTCOME_UNKNOWN;
}

/* Rights, passwords, a store that takes no such record: somebody has to do something. */
static bool is_refusal(enum lock_outcome o)
{
	return o == LOCK_REFUSED || o == LOCK_INVALID;
}

static void elector_on_changed(void *arg)
{
	elector_step(arg, (struct lease_event){ .kind = LEASE_EV_CHANGED });
}

static void watch_if_possible(struct elector *e)
{
	e->watching = e->lock->ops->watch && e->lock->ops->watch(e->lock, elector_on_changed, e);
	lease_watching(e->lease, e->watching);
}

static void elector_on_dead(void *arg)
{
	struct elector *e = arg;

	elector_say(e, LOG_INFO, "holder_dead",
	            "%s is proved dead on this host, with everything it started: its lease is not waited out",
	            e->seen.holder);
	elector_step(e, (struct lease_event){ .kind = LEASE_EV_HOLDER_DEAD, .id = e->watched_id });
}

/* After the step: a death that is known already is reported at once, and must find the sight it is about. */
static void watch_holder(struct elector *e)
{
	bool other = *e->seen.holder && !ours(e, &e->seen);

	if (!e->death_watches)
		return;
	if (!other || !proof_possible(e->self, &e->seen)) {
		death_watch_forget(e->death_watches, &e->death_watch);
		return;
	}
	e->watched_id = record_sight_id(&e->seen);
	death_watch_watch(e->death_watches, &e->death_watch, &e->seen);
}

static void see_token(struct elector *e, int64_t token)
{
	if (token <= e->top_token)
		return;
	e->top_token = token;
	e->low = false;
}

/* Whether the term that begins with this token would have to be led with one that receivers refuse. */
static bool token_is_low(const struct elector *e)
{
	return !e->term_open && e->token <= e->top_token;
}

static void remember_token(struct elector *e, const struct lock_result *r, struct lease_sight *s)
{
	if (!s->mine) {
		see_token(e, r->record->token);
		return;
	}
	e->token = r->record->token ? r->record->token : r->token;
	s->low_token = token_is_low(e);
}

static void remember_read(struct elector *e, const struct lock_result *r, struct lease_sight *s)
{
	if (r->outcome != LOCK_FOREIGN)
		trouble_over_if_readable(e, &r->version);
	e->version = r->version;
	if (r->outcome == LOCK_OK) {
		record_copy(&e->seen, r->record);
		*s = sight_of(e, &e->seen);
		remember_token(e, r, s);
		if (s->mine)
			keep_checkpoint(e);
		return;
	}
	record_clear(&e->seen);
	s->kind = r->outcome == LOCK_FOREIGN ? SIGHT_FOREIGN : SIGHT_ABSENT;
	if (r->outcome == LOCK_FOREIGN)
		elector_say_trouble(e, "foreign_record", r->err.text);
}

static void elector_on_read(void *arg, const struct lock_result *r)
{
	struct elector *e = arg;
	struct lease_event ev = { .kind = LEASE_EV_READ_DONE,
		                  .op = e->op,
		                  .outcome = outcome_of(r->outcome),
		                  .refused = is_refusal(r->outcome) };

	if (e->closing)
		return;
	if (ev.outcome == OUTCOME_OK)
		remember_read(e, r, &ev.sight);
	else
		elector_say_trouble(e, "read_failed", r->err.text);
	watch_if_possible(e); /* it may be refused by now, or possible again */
	elector_step(e, ev);
	if (ev.outcome == OUTCOME_OK)
		watch_holder(e);
}

static void say_low_token(struct elector *e)
{
	char text[400];

	if (e->low) /* the store's number grows with each try, so that the text would be another each time */
		return;
	snprintf(
		text, sizeof text,
		"the store gave the term token %lld, and this process has seen %lld: the store was restored from an older copy, "
		"or began anew. It leads when the store counts higher. If no receiver compares tokens, restart it: a new process has seen none",
		(long long)e->token, (long long)e->top_token);
	elector_say_trouble(e, "token_low", text);
	e->low = true;
}

static void written_ok(struct elector *e, const struct lock_result *r, struct lease_sight *s)
{
	enum lease_write what = e->writing;

	e->version = r->version;
	record_take(&e->seen, e->written);
	*s = sight_of(e, &e->seen);
	if (what == LEASE_ACQUIRE || what == LEASE_NEXT_TERM) {
		e->token = r->token ? r->token : e->seen.token;
		s->low_token = token_is_low(e);
		e->low = e->low && s->low_token;
	}
	if (s->mine)
		keep_checkpoint(e);
	e->renewals_ok += what == LEASE_RENEW;
	if (what == LEASE_RENEW && e->cb->renewed)
		e->cb->renewed(e->arg, elapsed_holder(r->sent_at, clock_now()));
	if (s->low_token)
		say_low_token(e);
	else if (!e->low)
		trouble_over(e);
}

static void written_not(struct elector *e, const struct lock_result *r)
{
	bool renewing = e->writing == LEASE_RENEW;

	e->renewals_failed += renewing;
	if (r->outcome == LOCK_CONFLICT) {
		e->slow_paths += renewing;
		return;
	}
	elector_say_trouble(e,
	                    renewing                      ? "renew_failed"
	                    : e->writing == LEASE_RELEASE ? "release_failed"
	                                                  : "acquire_failed",
	                    r->err.text);
	e->unwritable = true;
}

static void drop_written(struct elector *e)
{
	if (e->written)
		record_fini(e->written);
	free(e->written);
	e->written = NULL;
}

static void elector_on_written(void *arg, const struct lock_result *r)
{
	struct elector *e = arg;
	struct lease_event ev = { .kind = LEASE_EV_WRITE_DONE,
		                  .op = e->op,
		                  .outcome = outcome_of(r->outcome),
		                  .refused = is_refusal(r->outcome),
		                  .sent_at = r->sent_at };

	if (e->closing)
		return;
	if (ev.outcome == OUTCOME_OK)
		written_ok(e, r, &ev.sight);
	else
		written_not(e, r);
	drop_written(e);
	elector_step(e, ev);
}

static void elector_publish(struct elector *e)
{
	struct instant end = lease_end(e->lease), kill = lease_kill(e->lease);

	if (!e->term_open || (memcmp(&end, &e->end, sizeof end) == 0 && memcmp(&kill, &e->kill, sizeof kill) == 0))
		return;
	e->end = end;
	e->kill = kill;
	e->cb->deadline(e->arg, end, kill);
}

/* Before the write is sent, since it may bring the deadline nearer. The lease machine decides nothing else by it, so it
 * is told at once, also inside a step. */
static void tell_sent(struct elector *e, uint64_t write)
{
	struct lease_event ev = { .kind = LEASE_EV_SENT, .write = write, .sent_at = clock_now() };
	struct lease_actions a = lease_step(e->lease, &ev, ev.sent_at);

	if (a.set & LEASE_DO_DEADLINE)
		elector_publish(e);
}

static void start_write(struct elector *e, const struct lease_actions *a)
{
	struct record *r = e->written = mem_zero(sizeof *e->written);

	e->writing = a->write;
	record_init(r);
	record_copy(r, &e->seen);
	bool durable = restore_checkpoint(e, r) || a->write != LEASE_RENEW || a->saves;
	e->lock->token_floor = e->top_token;
	r->writes = lease_next_count(e->lease);
	switch (a->write) {
	case LEASE_ACQUIRE: /* another may have led meanwhile: what it saved stands */
		mem_replace(&e->unsaved, NULL);
		fill_new_term(e, r);
		break;
	case LEASE_NEXT_TERM:
		if (e->unsaved)
			mem_replace(&r->checkpoint, e->unsaved);
		fill_new_term(e, r);
		break;
	case LEASE_RENEW:
		fill_renewal(e, r);
		break;
	case LEASE_RELEASE:
		fill_release(e, r);
		break;
	}
	tell_sent(e, record_write_id(r));
	e->lock->ops->write(e->lock, r, &e->version, durable, a->by, elector_on_written, e);
}

/* ---- actions ---- */

static void announce(struct elector *e, bool leads)
{
	if (e->lock->ops->announce)
		e->lock->ops->announce(e->lock, e->identity, leads);
}

static void open_term(struct elector *e)
{
	struct elector_term t = {
		.term = lease_term(e->lease),
		.token = e->token,
		.identity = e->identity,
		.address = e->address,
		.lock = e->lock->url,
		.end = lease_end(e->lease),
		.kill = lease_kill(e->lease),
	};

	e->term_open = true;
	see_token(e, e->token);
	e->end = t.end;
	e->kill = t.kill;
	e->acquired_us = e->seen.acquired_us;
	e->transitions++;
	elector_say(e, LOG_INFO, "became_leader", "the record names %s, written %.3f s ago", e->identity,
	            (double)elapsed_holder(lease_renewed_at(e->lease), clock_now()) / NSEC_PER_SEC);
	announce(e, true);
	e->cb->lead(e->arg, &t);
}

static const char *explain(enum lease_reason r)
{
	static const char *const text[LEASE_REASONS] = {
		[LEASE_RESIGNED] = "the script or an operator resigned",
		[LEASE_DECLINED] = "on_leading declined",
		[LEASE_SHUTDOWN] = "asked to shut down",
		[LEASE_EXPIRED] = "no renewal succeeded before the renew deadline",
		[LEASE_STOLEN] = "the record names another holder",
		[LEASE_DELETED] = "the record was deleted, emptied or replaced by something else",
		[LEASE_ERROR] = "the script failed",
		[LEASE_KILLED] = "the script did not stop in time",
		[LEASE_WORKER] = "the process that ran the script died",
		[LEASE_RELOAD] = "reloading",
	};

	return (unsigned)r < LEASE_REASONS ? text[r] : "";
}

static void stop_term(struct elector *e, const struct lease_actions *a)
{
	elector_say(e, a->held ? LOG_INFO : LOG_WARN, "stopped_leading", "%s (%s)", lease_reason_name(a->reason),
	            explain(a->reason));
	announce(e, false);
	e->cb->stop(e->arg, a->reason, a->held, a->stop_by);
}

static void report_leader(struct elector *e, bool self)
{
	const struct record *r = &e->seen;
	const char *identity = self ? e->identity : r->holder;
	char *previous = mem_dup(e->leader ? e->leader : r->previous_holder);
	struct elector_leader l = {
		.identity = identity,
		.address = self ? e->address : r->address,
		.token = self ? e->token : r->token,
		.term = r->term,
		.self = self,
		.above = !self && proof_above(e->self, r),
		.previous = previous,
	};

	if (!self)
		elector_say(e, LOG_INFO, "new_leader",
		            "%s leads; its settings are obeyed: lease %.3gs, renew deadline %.3gs, retry period %.3gs",
		            identity, (double)r->lease_ms / 1e3, (double)r->renew_ms / 1e3, (double)r->retry_ms / 1e3);
	if (l.above)
		elector_say(
			e, LOG_WARN, "waits_for_itself",
			"%s leads (process %llu), and this runs under it: if it waits for this to end, both wait for ever",
			identity, (unsigned long long)r->pid);
	mem_replace(&e->leader, identity);
	e->cb->leader(e->arg, &l);
	free(previous);
}

static void report_no_leader(struct elector *e)
{
	char *previous = e->leader;

	e->leader = NULL;
	elector_say(e, LOG_INFO, "no_leader", "%s leads no more, and nobody else does",
	            previous ? previous : "the last leader");
	e->cb->no_leader(e->arg, previous ? previous : "");
	free(previous);
}

static void answer_saves(struct elector *e, uint64_t save, bool good)
{
	if (save >= e->save) {
		mem_replace(&e->unsaved, good ? NULL : e->checkpoint);
		mem_replace(&e->checkpoint, NULL);
	}
	if (e->cb->saved)
		e->cb->saved(e->arg, save, good);
}

static char *default_identity(const char *incarnation)
{
	char host[256] = "localhost";

	gethostname(host, sizeof host - 1);
	return mem_printf("%s_%s", host, incarnation);
}

/* The record is a copy's of this process. It and this one are two from now on. */
static void be_another(struct elector *e)
{
	elector_say(
		e, LOG_ERROR, "copied",
		"%s leads by writes that this process did not make: its machine was cloned while it ran. This copy takes "
		"another incarnation, and nobody's death is proved by its processes any more",
		e->identity);
	proof_self_withdraw(e->self);
	nonce_uuid(e->incarnation);
	if (e->named)
		return;
	free(e->identity);
	e->identity = default_identity(e->incarnation);
}

static void elector_carry_out(struct elector *e, const struct lease_actions *a)
{
	if (a->set & LEASE_DO_TWIN)
		be_another(e);
	if (a->set & LEASE_DO_SAVED)
		answer_saves(e, a->saved, true);
	if (a->set & LEASE_DO_UNSAVED)
		answer_saves(e, e->save, false);
	if (a->set & LEASE_DO_STOP)
		stop_term(e, a);
	if (a->set & LEASE_DO_START)
		open_term(e);
	if (a->set & LEASE_DO_DEADLINE)
		elector_publish(e);
	if (a->set & LEASE_DO_LEADER)
		report_leader(e, a->self);
	if (a->set & LEASE_DO_NO_LEADER)
		report_no_leader(e);
	if (a->set & LEASE_DO_ASK)
		e->cb->ask(e->arg);
	if (a->set & (LEASE_DO_READ | LEASE_DO_WRITE))
		e->op = a->op;
	if (a->set & LEASE_DO_READ)
		e->lock->ops->read(e->lock, a->by, elector_on_read, e);
	if (a->set & LEASE_DO_WRITE)
		start_write(e, a);
	if (a->set & LEASE_DO_FINISHED) {
		elector_say(e, LOG_DEBUG, "finished", a->left ? "left to expire" : "nothing is held");
		e->cb->finished(e->arg, a->left);
	}
}

static void elector_arm(struct elector *e)
{
	nsec wait = lease_wait(e->lease, clock_now());

	timer_stop(e->timeline, &e->timer);
	if (wait != NSEC_NEVER)
		timer_start(e->timeline, &e->timer, (double)wait / NSEC_PER_SEC);
}

static void elector_step(struct elector *e, struct lease_event ev)
{
	struct lease_event queue[QUEUE];
	bool inside = e->queue != NULL;

	if (!inside)
		e->queue = queue;
	if (e->queued == QUEUE)
		abort(); /* a callback that calls in eight times per step has a loop in it */
	e->queue[e->queued++] = ev;
	if (inside)
		return;
	while (e->queued > 0) {
		struct lease_event next = e->queue[0];
		memmove(e->queue, e->queue + 1, sizeof *e->queue * (size_t)--e->queued);
		struct lease_actions a = lease_step(e->lease, &next, clock_now());
		elector_carry_out(e, &a);
	}
	e->queue = NULL;
	if (!e->closing)
		elector_arm(e);
}

static void elector_on_timer(struct timer *timer)
{
	struct elector *e = (struct elector *)((char *)timer - offsetof(struct elector, timer));

	elector_step(e, (struct lease_event){ .kind = LEASE_EV_TICK });
}

/* ---- the outside ---- */

static void *make_timeline(struct lock_env *env, struct err *err)
{
	struct timeline *t = mem_zero(sizeof *t);

	(void)err;
	timeline_init(t, env->loop);
	return t;
}

static void drop_timeline(void *timeline)
{
	timeline_fini(timeline);
	free(timeline);
}

/* By the loop's clock, unless the env has another: one for all of its electors. */
static struct timeline *timeline_of(struct lock_env *env)
{
	static const char key;

	return env->timeline ? env->timeline : lock_env_share(env, &key, make_timeline, drop_timeline, NULL);
}

/* A record is JSON: what cannot be in it would not be recognised as ours when it is read again. */
static int check_text(const char *what, const char *text, struct err *err)
{
	struct buf shown = { 0 };

	if (!text || buf_is_utf8(text))
		return 0;
	buf_json(&shown, text);
	err_set(err, ERR_USAGE, "the %s %.200s is not valid UTF-8: it could not be written into a record", what,
	        shown.data);
	buf_fini(&shown);
	return -1;
}

struct elector *elector_new(const struct elector_config *c, const struct elector_callbacks *cb, void *arg,
                            struct err *err)
{
	if (lease_times_check(&c->times, err) < 0 || check_text("identity", c->identity, err) < 0 ||
	    check_text("address", c->address, err) < 0)
		return NULL;
	struct lock *lock = c->opened ? c->opened : lock_open(c->env, c->lock, err);
	if (!lock)
		return NULL;
	struct elector *e = mem_zero(sizeof *e);
	e->env = c->env;
	e->timeline = timeline_of(c->env);
	e->self = c->self;
	e->death_watches = c->death_watches;
	e->death_watch = (struct death_watch){ .dead = elector_on_dead, .arg = e };
	e->lock = lock;
	e->cb = cb;
	e->arg = arg;
	e->named = c->identity && *c->identity;
	snprintf(e->incarnation, sizeof e->incarnation, "%s", c->self->incarnation);
	e->identity = e->named ? mem_dup(c->identity) : default_identity(e->incarnation);
	e->address = mem_dup(c->address ? c->address : "");
	e->reclaim = c->reclaim;
	record_init(&e->seen);
	uint32_t seed = c->seed;
	if (!seed)
		nonce_bytes(&seed, sizeof seed);
	e->lease = mem_zero(lease_size());
	lease_init(e->lease, &c->times, c->observer, c->asks, seed);
	lease_keeps(e->lease, c->no_release);
	timer_init(e->timeline, &e->timer, elector_on_timer);
	return e;
}

void elector_campaign(struct elector *e)
{
	watch_if_possible(e);
	elector_step(e, (struct lease_event){ .kind = LEASE_EV_CAMPAIGN });
}

void elector_answer(struct elector *e, bool yes, const char *address)
{
	if (address && *address)
		mem_replace(&e->address, address);
	elector_step(e, (struct lease_event){ .kind = LEASE_EV_ANSWER, .yes = yes });
}

void elector_stopped(struct elector *e, bool reaped)
{
	if (!reaped)
		elector_say(e, LOG_ERROR, "not_reaped",
		            "something the term started could not be killed: the lease is left to expire");
	elector_step(e, (struct lease_event){ .kind = LEASE_EV_STOPPED, .reaped = reaped });
	e->term_open = e->term_open && lease_is_leading(e->lease, clock_now());
}

void elector_end(struct elector *e, enum lease_reason reason, nsec sit_out, nsec grace)
{
	elector_step(
		e, (struct lease_event){ .kind = LEASE_EV_END, .reason = reason, .sit_out = sit_out, .grace = grace });
}

void elector_next_term(struct elector *e)
{
	elector_end(e, LEASE_RELOAD, 0, 0);
}

void elector_pause(struct elector *e, const char *why)
{
	elector_say(e, LOG_INFO, "paused", "campaigning is paused: %s", why);
	elector_step(e, (struct lease_event){ .kind = LEASE_EV_PAUSE });
}

void elector_configure(struct elector *e, const struct lease_times *t)
{
	lease_configure(e->lease, t);
	elector_look(e);
}

int elector_save(struct elector *e, uint64_t save, const char *json, struct err *err)
{
	if (record_checkpoint_check(json, err) < 0)
		return -1;
	mem_replace(&e->checkpoint, json);
	e->save = save;
	elector_step(e, (struct lease_event){ .kind = LEASE_EV_SAVE, .save = save });
	return 0;
}

const char *elector_checkpoint(const struct elector *e)
{
	return e->seen.checkpoint;
}

void elector_look(struct elector *e)
{
	elector_step(e, (struct lease_event){ .kind = LEASE_EV_TICK });
}

void elector_status(const struct elector *e, struct elector_status *out)
{
	struct instant now = clock_now();
	enum lease_phase phase = lease_phase(e->lease);
	bool leading = lease_is_leading(e->lease, now);
	bool term = phase == PHASE_LEADING || phase == PHASE_ENDING || phase == PHASE_LOST || phase == PHASE_NEXT;

	*out = (struct elector_status){
		.phase = phase,
		.leading = leading,
		.term = leading ? lease_term(e->lease) : e->seen.term,
		.token = leading ? e->token : e->seen.token,
		.remaining = leading ? instant_until(lease_end(e->lease), now) : 0,
		.since_renewal = term ? elapsed_holder(lease_renewed_at(e->lease), now) : -1,
		.identity = e->identity,
		.address = e->address,
		.lock = e->lock->url,
		.leader = e->leader ? e->leader : "",
		.renewals_ok = e->renewals_ok,
		.renewals_failed = e->renewals_failed,
		.slow_paths = e->slow_paths,
		.transitions = e->transitions,
	};
}

void elector_why(const struct elector *e, struct buf *out)
{
	history_tell(history_of(e->env), e, out);
}

void elector_free(struct elector *e)
{
	if (!e)
		return;
	e->closing = true;
	timer_stop(e->timeline, &e->timer);
	if (e->death_watches)
		death_watch_forget(e->death_watches, &e->death_watch);
	e->lock->ops->close(e->lock);
	record_fini(&e->seen);
	drop_written(e);
	history_forget(history_of(e->env), e);
	free(e->lease);
	free(e->trouble);
	free(e->checkpoint);
	free(e->unsaved);
	free(e->kept);
	free(e->leader);
	free(e->identity);
	free(e->address);
	free(e);
}
