#include "doctor/store_trial.h"

#include "base/mem.h"
#include "base/nonce.h"
#include "doctor/store_race.h"

#include <stdarg.h>
#include <stdio.h>

#define SETTLE_TRIES 40
#define PART (8 * NSEC_PER_SEC)
#define ENOUGH 3
#define REMOVE_TRIES 3
#define WATCH_MOST (3 * NSEC_PER_SEC)

void store_trial_find(struct store_trial *x, const char *name, enum store_verdict verdict, const char *fmt, ...)
{
	struct store_finding f = { .name = name, .verdict = verdict };
	va_list ap;

	if (x->report->signal && !x->cleaning)
		return; /* the signal broke this part off, so it proves nothing */
	va_start(ap, fmt);
	vsnprintf(f.text, sizeof f.text, fmt, ap);
	va_end(ap);
	x->report->fit &= verdict != STORE_UNFIT && verdict != STORE_UNSURE;
	x->report->unfit |= verdict == STORE_UNFIT;
	x->found(x->arg, &f);
}

void store_trial_fill_term(const struct store_trial *x, struct lock_client *s)
{
	struct record *r = &s->record;
	char holder[40];

	record_clear(r);
	snprintf(holder, sizeof holder, "lunarch doctor %d", (int)(s - x->client) + 1);
	mem_replace(&r->holder, holder);
	r->lease_ms = 1000; /* after a restart, some stores let nobody lead for as long as a record's lease */
	r->renew_ms = 600;
	r->retry_ms = 120;
	r->acquired_us = r->renewed_us = clock_wall_us();
	r->term = x->term + 1;
	r->transitions = (int64_t)x->term;
	r->token = s->lock->ops->token_in_record ? x->token + 1 : 0;
	r->state = RECORD_LEADING;
	nonce_hex(r->write, sizeof r->write / 2);
}

void store_trial_won(struct store_trial *x, const struct lock_client *s)
{
	x->before = x->at;
	x->at = s->result.version;
	x->term++;
	x->token = s->result.token ? s->result.token : s->record.token;
}

bool store_trial_goes_on(const struct store_trial *x, struct instant since, int done)
{
	return !x->report->signal && (done < ENOUGH || elapsed_standby(since, clock_now()) < PART);
}

int store_trial_settle(struct store_trial *x)
{
	struct lock_client *s = &x->client[0];
	enum lock_outcome o = LOCK_FAILED;

	for (int tries = 0; tries < SETTLE_TRIES && o != LOCK_OK && o != LOCK_ABSENT; tries++) {
		if (tries)
			lock_client_drain(s);
		o = lock_client_read(s);
	}
	if (o != LOCK_OK && o != LOCK_ABSENT)
		return -1;
	x->at = s->result.version;
	if (s->lock->ops->token_in_record && o == LOCK_OK)
		x->token = s->record.token;
	x->term++;
	return 0;
}

bool store_trial_watch(const struct store_trial *x, struct lock_client *s)
{
	struct instant since = clock_now();

	if (!s->lock->ops->watch)
		return false;
	do {
		lock_client_read(s);
		if (lock_client_watch(s))
			return true;
		lock_client_drain(s);
	} while (!x->report->signal && elapsed_standby(since, clock_now()) < WATCH_MOST);
	return false;
}

const char *store_trial_why(const struct lock_client *s)
{
	return *s->result.err.text ? s->result.err.text : lock_outcome_name(s->result.outcome);
}

void store_trial_remove(struct store_trial *x, struct lock_client *s)
{
	x->cleaning = true;
	for (int tries = 0; x->removes && tries < REMOVE_TRIES; tries++) {
		enum lock_outcome o = lock_client_read(s);
		struct version at = s->result.version;
		if (o == LOCK_ABSENT)
			lock_client_remove(s, &at); /* what may be beside it */
		if (o == LOCK_ABSENT || (o == LOCK_OK && lock_client_remove(s, &at) == LOCK_OK))
			goto out;
	}
	if (x->removes)
		store_trial_find(x, "clean", STORE_NOTE, "%s stays behind, remove it: %s", s->lock->url,
		                 store_trial_why(s));
	else if (!x->left_told && lock_client_read(s) != LOCK_ABSENT)
		store_trial_find(x, "clean", STORE_NOTE, "%s stays behind: remove it", s->lock->url);
out:
	x->cleaning = false;
}

int store_trial_race(struct store_trial *x, struct store_race *r, int count, const char *url, struct err *err)
{
	while (r->count < count) {
		struct lock_env *env = &x->client[r->count % STORE_WRITERS].env;
		if (store_race_enter(&r->racer[r->count++], env, url, err) < 0)
			return -1;
	}
	return 0;
}
