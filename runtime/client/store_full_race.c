/* Sixty-four writers at once: eight envs, which for a lock in Lua are eight processes, with eight locks each. */
#include "client/store_full_internal.h"

#include "base/mem.h"
#include "base/nonce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PER_ENV 8
#define RACERS (STORE_WRITERS * PER_ENV)
#define ROUNDS 100
#define MOST (15 * NSEC_PER_SEC)
#define WITHIN (10 * NSEC_PER_SEC)

struct racers;

struct racer {
	struct racers *all;
	struct lock *lock;
	struct record record;
	enum lock_outcome outcome;
	struct version version;
	int64_t token;
	struct err err;
};

struct racers {
	struct full *f;
	struct racer racer[RACERS];
	struct version expected;
	int running;
	int won;       /* rounds with a winner */
	int unsure;    /* writes without a certain outcome, in all rounds */
	int64_t token; /* of the last winner */
	uint64_t term;
};

static void racer_on_done(void *arg, const struct lock_result *r)
{
	struct racer *one = arg;

	one->outcome = r->outcome;
	one->version = r->version;
	one->token = r->token ? r->token : one->record.token;
	one->err = r->err;
	one->all->running--;
}

static void racer_fill(struct racer *one, int number)
{
	struct record *r = &one->record;
	char holder[40];

	record_clear(r);
	snprintf(holder, sizeof holder, "racer %d", number);
	mem_replace(&r->holder, holder);
	r->lease_ms = r->renew_ms = r->retry_ms = 1;
	r->acquired_us = r->renewed_us = clock_wall_us();
	r->term = one->all->term + 1;
	r->token = one->lock->ops->token_in_record ? one->all->token + 1 : 0;
	r->state = RECORD_LEADING;
	nonce_hex(r->write, sizeof r->write / 2);
}

static void racers_run(struct racers *all, int round)
{
	struct instant by = instant_add(clock_now(), WITHIN);

	all->running = RACERS;
	for (int i = 0; i < RACERS; i++)
		racer_fill(&all->racer[i], i);
	for (int i = 0; i < RACERS; i++) {
		struct racer *one =
			&all->racer[(i * PER_ENV + i / STORE_WRITERS + round) % RACERS]; /* the envs in turns */
		one->lock->ops->write(one->lock, &one->record, &all->expected, true, by, racer_on_done, one);
	}
	while (all->running)
		ev_run(all->f->x->loop, EVRUN_ONCE);
}

/* Who wrote the record that is there; NULL: none of them. */
static struct racer *racer_of(struct racers *all, const struct record *r)
{
	for (int i = 0; i < RACERS; i++)
		if (strcmp(all->racer[i].record.write, r->write) == 0)
			return &all->racer[i];
	return NULL;
}

static int racers_won(struct racers *all)
{
	int winners = 0;

	for (int i = 0; i < RACERS; i++) {
		winners += all->racer[i].outcome == LOCK_OK;
		all->unsure += all->racer[i].outcome != LOCK_OK && all->racer[i].outcome != LOCK_CONFLICT;
	}
	return winners;
}

/* The record that is there now, as one of the cases' clients reads it. false: what was told of this round is wrong, or
 * nobody can say. */
static bool round_is_true(struct racers *all, int winners)
{
	struct full *f = all->f;
	struct lock_client *reader = f->a;
	enum lock_outcome o = lock_client_read(reader);
	const struct racer *last = o == LOCK_OK ? racer_of(all, &reader->record) : NULL;

	if (o != LOCK_OK && o != LOCK_ABSENT) {
		full_untried(f, "a race could not be looked at afterwards: %s", store_trial_why(reader));
		return false;
	}
	all->expected = reader->result.version;
	if (winners == 1 && (!last || last->outcome != LOCK_OK))
		full_unfit(f, "one of %d writers was told that it had won, but %s is in the store", RACERS,
		           last ? "another one's record" : "none of their records");
	else if (last && (last->outcome == LOCK_CONFLICT || last->outcome == LOCK_FAILED))
		full_unfit(
			f,
			"the record of a writer that was told \"%s\" is in the store%s%s: return \"unknown\" without a "
			"certain answer",
			lock_outcome_name(last->outcome), *last->err.text ? ": " : "", last->err.text);
	else if (last && last->outcome == LOCK_OK && last->token <= all->token)
		full_unfit(f, "a later term has the token %lld, an earlier one had %lld", (long long)last->token,
		           (long long)all->token);
	else
		return true;
	return false;
}

static bool racers_round(struct racers *all, int round)
{
	racers_run(all, round);
	int winners = racers_won(all);
	if (winners > 1) {
		full_unfit(
			all->f,
			"%d of %d writers who expected the same version were told \"ok\": two leaders are possible. Is "
			"op.expected compared in the store, in one step with the write?",
			winners, RACERS);
		return false;
	}
	if (!round_is_true(all, winners))
		return false;
	all->won += winners;
	const struct racer *last = racer_of(all, &all->f->a->record);
	all->token = last ? last->token : all->token;
	all->term++;
	return true;
}

static bool racers_open(struct racers *all, const char *url)
{
	struct err err;

	for (int i = 0; i < RACERS; i++) {
		struct racer *one = &all->racer[i];
		record_init(&one->record);
		one->all = all;
		one->lock = lock_open(&all->f->x->client[i / PER_ENV].env, url, &err);
		if (one->lock)
			continue;
		full_untried(all->f, "%d writers cannot be opened: %s", RACERS, err.text);
		return false;
	}
	return true;
}

static void racers_close(struct racers *all)
{
	for (int i = 0; i < RACERS; i++) {
		if (all->racer[i].lock)
			all->racer[i].lock->ops->close(all->racer[i].lock);
		if (all->racer[i].all)
			record_fini(&all->racer[i].record);
	}
}

void full_race(struct full *f)
{
	struct racers *all = mem_zero(sizeof *all);
	char *url = full_url(f, "-racers");
	int rounds = 0;

	all->f = f;
	bool good = racers_open(all, url) && full_reads(f, f->a, "a read", LOCK_ABSENT);
	all->expected = f->at;
	struct instant since = clock_now();
	while (good && rounds < ROUNDS && (rounds < 3 || full_goes_on(f, since, MOST)) && !f->x->report->signal) {
		good = racers_round(all, rounds);
		rounds++;
	}
	if (good && all->won == 0)
		full_untried(f, "in %d rounds none of %d writers was told that it had won: %s", rounds, RACERS,
		             *all->racer[0].err.text ? all->racer[0].err.text
		                                     : lock_outcome_name(all->racer[0].outcome));
	racers_close(all);
	full_good(f, "%d rounds of %d writers in %d processes' worth of connections: one winner in each%s", rounds,
	          RACERS, STORE_WRITERS, all->unsure ? "; but some had no certain answer in time" : "");
	free(url);
	free(all);
}
