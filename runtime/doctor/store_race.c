#include "doctor/store_race.h"

#include "base/mem.h"
#include "base/nonce.h"

#include <ev.h>
#include <stdio.h>
#include <string.h>

int store_race_enter(struct racer *one, struct lock_env *env, const char *url, struct err *err)
{
	record_init(&one->record);
	one->lock = lock_open(env, url, err);
	return one->lock ? 0 : -1;
}

void store_race_leave(struct racer *one)
{
	if (one->lock)
		one->lock->ops->close(one->lock);
	record_fini(&one->record);
}

static void racer_on_done(void *arg, const struct lock_result *r)
{
	struct racer *one = arg;

	one->outcome = r->outcome;
	one->version = r->version;
	one->token = r->token ? r->token : one->record.token;
	one->err = r->err;
	if (one->running) /* else it is a second answer */
		--*one->running;
	one->running = NULL;
}

static void racer_fill(const struct store_race *race, struct racer *one)
{
	struct record *r = &one->record;
	char holder[40];

	record_clear(r);
	snprintf(holder, sizeof holder, "racer %d", (int)(one - race->racer));
	mem_replace(&r->holder, holder);
	r->lease_ms = r->renew_ms = r->retry_ms = 1; /* a store that waits for a lease after its restart goes on */
	r->acquired_us = r->renewed_us = clock_wall_us();
	r->term = race->term + 1;
	r->token = one->lock->ops->token_in_record ? race->token + 1 : 0;
	r->state = RECORD_LEADING;
	nonce_hex(r->write, sizeof r->write / 2);
}

void store_race_run(struct store_race *r, struct ev_loop *loop, int first, int count, nsec within)
{
	int running = count;

	for (int i = first; i < first + count; i++)
		racer_fill(r, &r->racer[i]);
	struct instant by = instant_add(clock_now(), within);
	for (int i = 0; i < count; i++) {
		struct racer *one = &r->racer[first + (i + r->rounds) % count];
		one->running = &running;
		one->lock->ops->write(one->lock, &one->record, &r->at, true, by, racer_on_done, one);
	}
	while (running)
		ev_run(loop, EVRUN_ONCE);
}

/* Who wrote the record that is there; NULL: none of them. */
static const struct racer *racer_of(const struct store_race *r, const struct record *there)
{
	for (int i = 0; i < r->count; i++)
		if (strcmp(r->racer[i].record.write, there->write) == 0)
			return &r->racer[i];
	return NULL;
}

static int race_winners(struct store_race *r)
{
	int winners = 0;

	for (int i = 0; i < r->count; i++) {
		winners += r->racer[i].outcome == LOCK_OK;
		r->unsure += r->racer[i].outcome != LOCK_OK && r->racer[i].outcome != LOCK_CONFLICT;
	}
	return winners;
}

const char *store_race_why(const struct store_race *r)
{
	for (int i = 0; i < r->count; i++)
		if (*r->racer[i].err.text)
			return r->racer[i].err.text;
	return lock_outcome_name(r->racer[0].outcome);
}

/* What they were told is true of the record that is there. unsure: how many of this round were told nothing certain. last: who wrote it. */
static enum store_verdict race_is_true(const struct store_race *r, int winners, int unsure, const struct racer *last,
                                       struct err *why)
{
	if (winners > 1)
		err_set(why, ERR_INVALID,
		        "%d of %d writers who expected the same version were told that they won: two leaders are possible. Is "
		        "what a write expects compared in the store, in one step with the write?",
		        winners, r->count);
	else if (winners == 0 && unsure == 0) /* else a late write may have won */
		err_set(why, ERR_INVALID, "of %d writers none won: each was told that another had", r->count);
	else if (winners == 1 && (!last || last->outcome != LOCK_OK))
		err_set(why, ERR_INVALID, "one of %d writers was told that it had won, but %s is in the store",
		        r->count, last ? "another one's record" : "none of their records");
	else if (last && winners == 1 && strcmp(last->version.text, r->at.text) != 0)
		err_set(why, ERR_INVALID,
		        "the winner was told that its record has the version \"%s\", and it has \"%s\"",
		        last->version.text, r->at.text);
	else if (last && (last->outcome == LOCK_CONFLICT || last->outcome == LOCK_FAILED))
		err_set(why, ERR_INVALID,
		        "the record of a writer that was told \"%s\" is in the store%s%.500s: return \"unknown\" without a "
		        "certain answer",
		        lock_outcome_name(last->outcome), *last->err.text ? ": " : "", last->err.text);
	else if (last && last->outcome == LOCK_OK && last->token <= r->token)
		err_set(why, ERR_INVALID, "a later term has the token %lld, an earlier one had %lld",
		        (long long)last->token, (long long)r->token);
	else
		return STORE_GOOD;
	return STORE_UNFIT;
}

enum store_verdict store_race_judge(struct store_race *r, struct lock_client *reader, struct err *why)
{
	int earlier = r->unsure, winners = race_winners(r);
	enum lock_outcome o = lock_client_read(reader);
	const struct racer *last = o == LOCK_OK ? racer_of(r, &reader->record) : NULL;

	if (o != LOCK_OK && o != LOCK_ABSENT && winners < 2) {
		err_set(why, ERR_SYSTEM, "a race could not be looked at afterwards: %s %s", lock_outcome_name(o),
		        reader->result.err.text);
		return STORE_UNSURE;
	}
	r->at = reader->result.version;
	enum store_verdict v = race_is_true(r, winners, r->unsure - earlier, last, why);
	r->token = last ? last->token : r->token;
	r->won += winners;
	r->term++;
	r->rounds++;
	return v;
}
