#include "doctor/store_proofs.h"

#include "base/mem.h"
#include "base/nonce.h"
#include "doctor/store_race.h"
#include "lease/next_record.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 40
#define WITHIN (5 * NSEC_PER_SEC)

/* Nobody could look at what the round has left, so the next one expects what the winner was told; where there is none,
 * what is there now. false: that cannot be read, either. */
static bool race_settle(struct store_trial *x, struct store_race *r)
{
	for (int i = 0; i < r->count; i++)
		if (r->racer[i].outcome == LOCK_OK) {
			r->at = r->racer[i].version;
			r->token = r->racer[i].token;
			return true;
		}
	x->token = r->token;
	if (store_trial_settle(x) < 0)
		return false;
	r->at = x->at;
	r->token = x->token;
	return true;
}

/* What another connection than the winner's reads is what the winner wrote. false: the store is proved unfit. */
static bool race_round(struct store_trial *x, struct store_race *r, struct err *why)
{
	struct version before = r->at;
	int won = r->won;

	store_race_run(r, x->loop, 0, r->count, WITHIN);
	enum store_verdict v = store_race_judge(r, &x->client[r->racer[0].outcome == LOCK_OK], why);
	if (v == STORE_UNFIT || (v == STORE_UNSURE && !race_settle(x, r))) {
		store_trial_find(x, "race", STORE_UNFIT, "%s", why->text);
		return false;
	}
	r->unsure += v == STORE_UNSURE;
	if (r->won > won)
		x->before = before;
	else
		lock_client_drain(&x->client[0]); /* whatever the reason is: the next try is a little later */
	return true;
}

/* false: nothing can be proved. */
static bool race_tell(struct store_trial *x, const struct store_race *r, const struct err *why)
{
	if (x->report->signal)
		return false;
	if (r->won == 0) {
		store_trial_find(x, "race", STORE_UNFIT, "no round could be decided: %s",
		                 *why->text ? why->text : store_race_why(r));
		return false;
	}
	store_trial_find(x, "race", r->unsure ? STORE_NOTE : STORE_GOOD,
	                 "%d rounds of %d writers with connections of their own: one winner in each%s", r->won,
	                 STORE_WRITERS, r->unsure ? "; but some questions had no certain answer in time" : "");
	store_trial_find(x, "token", STORE_GOOD, "larger in every term, %" PRId64 " in the last", x->token);
	return true;
}

bool store_prove_race(struct store_trial *x)
{
	struct store_race *r = mem_zero(sizeof *r);
	struct instant since = clock_now();
	struct err why = { 0 };
	bool good = store_trial_race(x, r, STORE_WRITERS, x->scratch, &why) == 0;

	if (!good)
		store_trial_find(x, "race", STORE_UNFIT, "%d writers cannot be opened: %s", STORE_WRITERS, why.text);
	r->at = x->at;
	for (int tried = 0; good && tried < ROUNDS && store_trial_goes_on(x, since, tried); tried++)
		good = race_round(x, r, &why);
	x->at = r->at;
	x->token = r->token;
	x->term += r->term;
	x->report->writers = STORE_WRITERS;
	x->report->rounds = r->won;
	good = good && race_tell(x, r, &why);
	for (int i = 0; i < r->count; i++)
		store_race_leave(&r->racer[i]);
	free(r);
	return good;
}

void store_prove_deposed(struct store_trial *x)
{
	struct lock_client *s = &x->client[1];

	store_trial_fill_term(x, s);
	lock_client_start_write(s, &x->before, true);
	enum lock_outcome o = lock_client_wait(s);
	if (o == LOCK_CONFLICT)
		store_trial_find(x, "deposed", STORE_GOOD,
		                 "a write by one who knows only an older version is turned away");
	else if (o == LOCK_OK)
		store_trial_find(x, "deposed", STORE_UNFIT,
		                 "a write that expects an older version is done, where a conflict is due");
	else
		store_trial_find(x, "deposed", STORE_NOTE,
		                 "a write by one who knows only an older version had no certain answer: %s",
		                 store_trial_why(s));
}

static void deleted_untried(struct store_trial *x, const struct lock_client *s)
{
	store_trial_find(x, "deleted", STORE_NOTE, "what a deleted record does could not be tried: %s",
	                 store_trial_why(s));
}

/* The key is removed and made again. Writes of whoever led before are still refused, and tokens still grow. */
void store_prove_deleted(struct store_trial *x)
{
	struct lock_client *s = &x->client[0], *other = &x->client[1];
	struct version old = x->at;
	int64_t before = x->token;

	if (lock_client_remove(s, &x->at) != LOCK_OK)
		return deleted_untried(x, s);
	if (lock_client_read(other) != LOCK_ABSENT)
		return deleted_untried(x, other);
	x->at = other->result.version;
	store_trial_fill_term(x, other);
	lock_client_start_write(other, &old, true);
	enum lock_outcome late = lock_client_wait(other);
	if (late == LOCK_OK) {
		store_trial_find(x, "deleted", STORE_UNFIT,
		                 "a write that expects a record made one where that had been deleted");
		store_trial_won(x, other);
		return;
	}
	if (late != LOCK_CONFLICT)
		return deleted_untried(x, other);
	store_trial_fill_term(x, s);
	lock_client_start_write(s, &x->at, true);
	if (lock_client_wait(s) != LOCK_OK)
		return deleted_untried(x, s);
	store_trial_won(x, s);
	if (x->token > before)
		store_trial_find(x, "deleted", STORE_GOOD,
		                 "a deleted record is not written to; the next term's token is larger all the same");
	else
		store_trial_find(x, "deleted", STORE_UNFIT,
		                 "after the record was deleted the token fell from %" PRId64 " to %" PRId64, before,
		                 x->token);
}

/* ---- who comes next ---- */

static enum lock_outcome next_write(struct lock_client *s, const struct version *expected)
{
	struct next_record n = { .who = { .identity = "lunarch doctor", .incarnation = "-", .address = "" },
		                 .since_us = clock_wall_us(),
		                 .wall_us = clock_wall_us(),
		                 .lease_ms = 1000,
		                 .retry_ms = 120 };

	next_record_fill(&s->record, &n);
	nonce_hex(s->record.write, sizeof s->record.write / 2);
	lock_client_start_write(s, expected, false);
	return lock_client_wait(s);
}

/* What is wrong with it; NULL: nothing. *done: what was being done. */
static const char *next_try(struct lock_client *s, const char **done)
{
	struct version at;
	char write[sizeof s->record.write];

	*done = "be read";
	if (lock_client_read(s) != LOCK_ABSENT)
		return store_trial_why(s);
	at = s->result.version;
	*done = "be written";
	if (next_write(s, &at) != LOCK_OK)
		return store_trial_why(s);
	at = s->result.version;
	if (next_write(s, &at) != LOCK_OK)
		return store_trial_why(s);
	memcpy(write, s->record.write, sizeof write);
	*done = "be read";
	if (lock_client_read(s) != LOCK_OK)
		return store_trial_why(s);
	return next_record_is(&s->record) && strcmp(s->record.write, write) == 0 ? NULL : "it is not what was written";
}

#define NEXT_COST                                                                                         \
	"Elections work without it, but nobody is told who comes next, nobody prepares for it, and at a " \
	"hand-over all standbys compete. The pages in docs/stores have the rights that it needs"

void store_try_next(struct store_trial *x, const char *url)
{
	struct lock_client *s = &x->client[0];
	struct lock *own = s->lock;
	struct err err;
	const char *done;

	s->lock = lock_open_next(&s->env, own, url, &err);
	if (!s->lock) {
		store_trial_find(x, "next", STORE_NOTE, "there is no record of who comes next: %s. " NEXT_COST,
		                 err.text);
		s->lock = own;
		return;
	}
	const char *wrong = next_try(s, &done);
	if (wrong)
		store_trial_find(x, "next", STORE_NOTE, "the record of who comes next cannot %s: %s. " NEXT_COST, done,
		                 wrong);
	else
		store_trial_find(x, "next", STORE_GOOD, "the record of who comes next is kept beside it: %s",
		                 s->lock->url);
	store_trial_remove(x, s);
	s->lock->ops->close(s->lock);
	s->lock = own;
}
