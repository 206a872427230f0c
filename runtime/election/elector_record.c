#include "election/elector_internal.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/nonce.h"
#include "election/outcome.h"
#include "election/reasons.h"
#include "locks/lock_identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void elector_on_changed(void *arg)
{
	elector_step(arg, (struct lease_event){ .kind = LEASE_EV_CHANGED });
}

void elector_watch(struct elector *e)
{
	bool watching = e->lock->ops->watch && e->lock->ops->watch(e->lock, elector_on_changed, e);

	lease_watching(e->lease, watching);
	store_contact_watching(&e->contact, watching);
}

void elector_on_dead(void *arg)
{
	struct elector *e = arg;

	elector_say(e, LOG_INFO, "holder_dead",
	            "%s is proved dead on this host, with everything it started: its lease is not waited out",
	            e->seen.holder);
	e->dead_id = e->watched_id;
	elector_step(e, (struct lease_event){ .kind = LEASE_EV_HOLDER_DEAD, .id = e->watched_id });
}

/* Call after the step that took the sight. A death that is known already is reported at once, and the lease machine
 * must know the sight that it is about. */
static void watch_holder(struct elector *e)
{
	bool other = *e->seen.holder && !author_holds(&e->author, &e->seen);

	if (!e->death_watches)
		return;
	if (!other || lock_identity_moved(e->lock, &e->seen) || !proof_possible(e->author.self, &e->seen)) {
		death_watch_forget(&e->death_watch);
		return;
	}
	e->watched_id = record_sight_id(&e->seen);
	death_watch_watch(e->death_watches, &e->death_watch, &e->seen);
}

void elector_see_token(struct elector *e, int64_t token)
{
	if (token <= e->top_token)
		return;
	e->top_token = token;
	e->low_token = false;
}

/* Whether a term would begin with a token that receivers refuse, since they have seen a larger one. */
static bool token_is_low(const struct elector *e)
{
	return !e->term_open && e->token <= e->top_token;
}

static void remember_token(struct elector *e, const struct lock_result *r, struct lease_sight *s)
{
	if (!s->mine) {
		elector_see_token(e, r->record->token);
		return;
	}
	e->token = r->record->token ? r->record->token : r->token;
	s->low_token = token_is_low(e);
}

/* A copy of another store's record says nothing of who leads there by now. */
static void note_moved(struct elector *e, struct lease_sight *s)
{
	const char *here = lock_identity_of(e->lock);

	s->elsewhere = true;
	s->id = hash_fnv(s->id, here, strlen(here));
	if (s->id == e->moved_id)
		return;
	e->moved_id = s->id;
	elector_say(
		e, LOG_WARN, "other_store",
		"the record was written in the store %s, and is in %s: that is another one, or was restored from a copy. "
		"Whoever led may do so still, so nobody is elected before a whole lease has passed",
		e->seen.store, here);
}

static void remember_read(struct elector *e, const struct lock_result *r, struct lease_sight *s)
{
	bool is_next = r->outcome == LOCK_OK && next_record_is(r->record);

	if (r->outcome != LOCK_FOREIGN && !is_next)
		elector_was_read(e, &r->version);
	e->version = r->version;
	if (r->outcome == LOCK_OK && !is_next) {
		if (*r->record->forced && strcmp(r->record->forced, e->seen.forced) != 0)
			elector_say(e, LOG_WARN, "released_by_force", "released by force, %s", r->record->forced);
		if (*r->record->paid && strcmp(r->record->paid, e->seen.paid) != 0)
			elector_say(e, LOG_WARN, "paid_by_hand", "a person says that one is not to be fenced: %s",
			            r->record->paid);
		record_copy(&e->seen, r->record);
		author_saw(&e->author, &e->seen);
		*s = author_sight(&e->author, &e->seen);
		if (lock_identity_moved(e->lock, &e->seen))
			note_moved(e, s);
		remember_token(e, r, s);
		if (s->mine)
			saves_seen(&e->saves, &e->seen);
		return;
	}
	if (e->seen.lease_ms) /* there was one: each has a duration */
		author_lost(&e->author, &e->seen, elector_holder_dead(e));
	record_clear(&e->seen);
	s->kind = r->outcome == LOCK_ABSENT ? SIGHT_ABSENT : SIGHT_FOREIGN;
	if (r->outcome == LOCK_FOREIGN)
		elector_say_trouble(e, "foreign_record", r->err.text);
	if (is_next)
		elector_say_trouble(
			e, "foreign_record",
			"the lock holds what another lock's candidates write to agree who comes next: a lock "
			"needs a name of its own");
}

static void elector_on_read(void *arg, const struct lock_result *r)
{
	struct elector *e = arg;
	struct lease_event ev = { .kind = LEASE_EV_READ_DONE,
		                  .op = e->op,
		                  .outcome = outcome_of(r->outcome),
		                  .refused = outcome_is_refusal(r->outcome) };

	if (e->closing)
		return;
	if (ev.outcome == OUTCOME_OK) {
		elector_contact_good(e);
		remember_read(e, r, &ev.sight);
	} else {
		elector_say_trouble(e, "read_failed", r->err.text);
		elector_read_failed(e);
	}
	elector_watch(e); /* the store may refuse it by now, or offer it again */
	bool hopeless = r->outcome == LOCK_REFUSED && r->err.code == ERR_USAGE && !e->contact.answered;
	elector_step(e, ev);
	if (hopeless && e->cb->hopeless)
		e->cb->hopeless(e->arg, r->err.text);
	if (ev.outcome != OUTCOME_OK)
		return;
	watch_holder(e);
	if (!author_holds(&e->author, &e->seen))
		next_link_heard(e->next, &e->seen);
}

void elector_read(void *arg, const struct lease_actions *a)
{
	struct elector *e = arg;

	e->op = a->op;
	e->lock->ops->read(e->lock, a->by, elector_on_read, e);
}

static void say_low_token(struct elector *e)
{
	char text[400];

	if (e->low_token) /* the text is another at each try, since the store's number grows: it is logged once */
		return;
	snprintf(
		text, sizeof text,
		"the store gave the term token %lld, and this process has seen %lld: the store was restored from an older copy, "
		"or began anew. It leads when the store counts higher. If no receiver compares tokens, restart it: a new process has seen none",
		(long long)e->token, (long long)e->top_token);
	elector_say_trouble(e, "token_low", text);
	e->low_token = true;
}

static void handed_over(struct elector *e)
{
	elector_say(e, LOG_INFO, "released_for", "the lock is released for %s, who comes next%s%s", e->given,
	            e->handing ? ": " : "", e->handing ? reason_of_hand_over(e->why) : "");
	if (e->handing)
		e->handovers[e->why]++;
	e->handing = false;
}

static void written_ok(struct elector *e, const struct lock_result *r, struct lease_sight *s)
{
	enum lease_write what = e->writing;

	poke_tell(e);
	elector_contact_good(e);
	e->version = r->version;
	record_take(&e->seen, e->written);
	author_saw(&e->author, &e->seen);
	if (!e->seen.token)
		e->seen.token = r->token; /* as a read shows it: else that would be another record */
	*s = author_sight(&e->author, &e->seen);
	if (what == LEASE_ACQUIRE || what == LEASE_NEXT_TERM) {
		e->token = r->token ? r->token : e->seen.token;
		s->low_token = token_is_low(e);
		e->low_token = e->low_token && s->low_token;
	}
	if (s->mine)
		saves_seen(&e->saves, &e->seen);
	e->renewals_ok += what == LEASE_RENEW;
	if (what == LEASE_RELEASE && e->given)
		handed_over(e);
	if (what == LEASE_RENEW && e->cb->renewed)
		e->cb->renewed(e->arg, elapsed_holder(r->sent_at, clock_now()));
	store_contact_wrote(&e->contact);
	if (s->low_token)
		say_low_token(e);
	else if (!e->low_token)
		elector_trouble_over(e);
}

static void written_not(struct elector *e, const struct lock_result *r)
{
	bool renewing = e->writing == LEASE_RENEW;

	e->renewals_failed += renewing;
	if (r->outcome == LOCK_CONFLICT) {
		e->slow_paths += renewing;
		elector_contact_good(e);
		store_contact_others_wrote(&e->contact);
		return;
	}
	elector_say_trouble(e,
	                    renewing                      ? "renew_failed"
	                    : e->writing == LEASE_RELEASE ? "release_failed"
	                                                  : "acquire_failed",
	                    r->err.text);
	e->unwritable = true;
	elector_write_failed(e, r);
}

void elector_drop_written(struct elector *e)
{
	if (e->written)
		record_fini(e->written);
	free(e->written);
	e->written = NULL;
	mem_replace(&e->given, NULL);
}

static void elector_on_written(void *arg, const struct lock_result *r)
{
	struct elector *e = arg;
	struct lease_event ev = { .kind = LEASE_EV_WRITE_DONE,
		                  .op = e->op,
		                  .outcome = outcome_of(r->outcome),
		                  .refused = outcome_is_refusal(r->outcome),
		                  .sent_at = r->sent_at };

	if (e->closing)
		return;
	if (ev.outcome == OUTCOME_OK)
		written_ok(e, r, &ev.sight);
	else
		written_not(e, r);
	elector_drop_written(e);
	elector_step(e, ev);
}

void elector_publish(struct elector *e)
{
	struct instant end = lease_end(e->lease), kill = lease_kill(e->lease);

	if (memcmp(&end, &e->end, sizeof end) == 0 && memcmp(&kill, &e->kill, sizeof kill) == 0)
		return;
	e->end = end;
	e->kill = kill;
	if (e->fencing)
		e->fence->deadline(e->fence_arg, end, kill);
	else
		e->cb->deadline(e->arg, end, kill);
}

/* Called before the write is sent, since that may bring the deadline nearer. The lease machine decides nothing else by
 * this event, so it gets it at once, also inside a step. */
static void tell_sent(struct elector *e, uint64_t write)
{
	struct lease_event ev = { .kind = LEASE_EV_SENT, .write = write, .sent_at = clock_now() };
	struct lease_actions a = lease_step(e->lease, &ev, ev.sent_at);

	if (a.set & LEASE_DO_DEADLINE)
		elector_publish(e);
}

/* true: the checkpoint is one that the store has lost. */
static bool put_checkpoint(struct elector *e, struct record *r, enum lease_write what)
{
	enum saves_restored restored = saves_restore(&e->saves, r, e->author.incarnation);

	if (restored == SAVES_RESTORED)
		elector_say(e, LOG_WARN, "checkpoint_restored",
		            "the store shows our record of %llu writes ago, without the checkpoint that it had "
		            "acknowledged: the checkpoint is written again",
		            (unsigned long long)(lease_next_count(e->lease) - 1 - r->writes));
	saves_put(&e->saves, r, what);
	return restored != SAVES_KEPT;
}

bool elector_holder_dead(const struct elector *e)
{
	return e->dead_id && e->dead_id == record_sight_id(&e->seen);
}

/* Why the term that the record shows has ended, as far as this process knows. NULL: unknown. */
static const char *elector_ended(const struct elector *e)
{
	if (author_holds(&e->author, &e->seen))
		return e->ended_term == e->seen.term ? e->ended : NULL;
	return elector_holder_dead(e) ? "died" : NULL;
}

void elector_write(void *arg, const struct lease_actions *a)
{
	struct elector *e = arg;
	bool begins = a->write == LEASE_ACQUIRE || a->write == LEASE_NEXT_TERM;
	struct advice advice;
	bool advises = next_link_advice(e->next, lease_term(e->lease), &advice);
	struct author_write w = {
		.what = a->write,
		.times = lease_publishes(e->lease),
		.exists = *e->version.text,
		.makes_token = e->lock->ops->token_in_record,
		.token = begins ? e->top_token : e->token,
		.term = begins ? lease_next_term(e->lease) : lease_term(e->lease),
		.acquired_us = e->acquired_us,
		.wall_us = clock_wall_us(),
		.since_renewal = elapsed_holder(lease_renewed_at(e->lease), clock_now()),
		.advice = advises ? &advice : NULL,
		.hands_over = e->handing,
		.ended = a->write == LEASE_RENEW ? NULL : elector_ended(e),
		.last_token = e->token,
		.dead = elector_holder_dead(e),
		.fencing = lease_is_fencing(e->lease) && !lease_has_fenced(e->lease),
		.fenced = lease_has_fenced(e->lease),
	};
	struct record *r = e->written = mem_zero(sizeof *e->written);

	if (a->write == LEASE_RELEASE && advises && *advice.next.identity)
		mem_replace(&e->given, advice.next.identity);
	poke_plan(e, a->write, advises ? &advice : NULL);
	e->op = a->op;
	e->writing = a->write;
	record_init(r);
	record_copy(r, &e->seen);
	bool durable = put_checkpoint(e, r, a->write) || a->write != LEASE_RENEW || a->saves;
	author_write(&e->author, r, &w);
	lock_identity_sign(e->lock, r);
	r->writes = lease_next_count(e->lease);
	nonce_hex(r->write, sizeof r->write / 2);
	e->lock->token_floor = e->top_token;
	tell_sent(e, record_write_id(r));
	e->lock->ops->write(e->lock, r, &e->version, durable, a->by, elector_on_written, e);
}
