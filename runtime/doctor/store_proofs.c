#include "doctor/store_proofs.h"

#include "base/mem.h"
#include "base/nonce.h"
#include "lease/nomination.h"

#include <inttypes.h>
#include <string.h>

#define ROUNDS 40

enum race_result { DECIDED, UNDECIDED, BROKEN };

/* All at once, with the same expectation. The number of winners; *last is one of them. */
static int race_once(struct store_trial *x, struct lock_client **last, int *unknown)
{
	int winners = 0;

	for (int i = 0; i < STORE_WRITERS; i++)
		store_trial_fill_term(x, &x->client[i]);
	for (int i = 0; i < STORE_WRITERS; i++)
		lock_client_start_write(&x->client[i], &x->at, true);
	for (int i = 0; i < STORE_WRITERS; i++) {
		enum lock_outcome o = lock_client_wait(&x->client[i]);
		if (o == LOCK_OK) {
			winners++;
			*last = &x->client[i];
		} else if (o != LOCK_CONFLICT) {
			++*unknown;
			x->doubt = x->client[i].result.err;
		}
	}
	return winners;
}

/* What another connection reads is what the winner wrote. No answer proves nothing. */
static enum race_result race_read_back(struct store_trial *x, const struct lock_client *winner)
{
	struct lock_client *reader = &x->client[winner == &x->client[0]];
	enum lock_outcome o = lock_client_read(reader);

	if (o == LOCK_OK && strcmp(reader->record.write, winner->record.write) == 0 &&
	    strcmp(reader->result.version.text, winner->result.version.text) == 0)
		return DECIDED;
	if (o == LOCK_OK || o == LOCK_ABSENT || o == LOCK_FOREIGN) {
		store_trial_find(
			x, "race", STORE_UNFIT,
			"what the winner wrote is not what another connection reads right after it: reads are stale");
		return BROKEN;
	}
	x->doubt = reader->result.err;
	return UNDECIDED;
}

/* Nobody is known to have won. That is possible while answers get lost, but never if each was told that another had. */
static enum race_result race_without_winner(struct store_trial *x, int doubts)
{
	if (doubts && store_trial_settle(x) == 0) {
		lock_client_drain(&x->client[0]); /* whatever the reason is: the next try is a little later */
		return UNDECIDED;
	}
	store_trial_find(x, "race", STORE_UNFIT, "of %d writers none won: %s", STORE_WRITERS,
	                 doubts ? x->client[0].result.err.text : "each was told that another had");
	return BROKEN;
}

static enum race_result race_round(struct store_trial *x, int *unknown)
{
	struct lock_client *winner = NULL;
	int64_t before = x->token;
	int doubts = 0, winners = race_once(x, &winner, &doubts);

	*unknown += doubts;
	if (winners == 0)
		return race_without_winner(x, doubts);
	if (winners > 1) {
		store_trial_find(
			x, "race", STORE_UNFIT,
			"%d of %d writers who expected the same version were told that they won: two leaders are possible",
			winners, STORE_WRITERS);
		return BROKEN;
	}
	store_trial_won(x, winner);
	if (x->token <= before) {
		store_trial_find(x, "token", STORE_UNFIT,
		                 "a later term has the token %" PRId64 ", an earlier one had %" PRId64, x->token,
		                 before);
		return BROKEN;
	}
	enum race_result r = race_read_back(x, winner);
	*unknown += r == UNDECIDED;
	return r;
}

/* false: the store is proved unfit, or nothing can be proved. */
bool store_prove_race(struct store_trial *x)
{
	struct instant since = clock_now();
	int count[2] = { 0 }, unknown = 0;

	while (count[DECIDED] + count[UNDECIDED] < ROUNDS &&
	       store_trial_goes_on(x, since, count[DECIDED] + count[UNDECIDED])) {
		enum race_result r = race_round(x, &unknown);
		if (r == BROKEN)
			return false;
		count[r]++;
	}
	x->report->writers = STORE_WRITERS;
	x->report->rounds = count[DECIDED];
	if (x->report->signal)
		return false;
	if (count[DECIDED] == 0) {
		store_trial_find(x, "race", STORE_UNFIT, "no round could be decided: %s", x->doubt.text);
		return false;
	}
	store_trial_find(x, "race", unknown ? STORE_NOTE : STORE_GOOD,
	                 "%d rounds of %d writers with connections of their own: one winner in each%s", count[DECIDED],
	                 STORE_WRITERS, unknown ? "; but some questions had no certain answer in time" : "");
	store_trial_find(x, "token", STORE_GOOD, "larger in every term, %" PRId64 " in the last", x->token);
	return true;
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
	struct nomination n = { .who = { .identity = "lunarch doctor", .incarnation = "-" },
		                .since_us = clock_wall_us(),
		                .wall_us = clock_wall_us(),
		                .lease_ms = 1000,
		                .retry_ms = 120 };

	nomination_fill(&s->record, &n);
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
	return nomination_is(&s->record) && strcmp(s->record.write, write) == 0 ? NULL : "it is not what was written";
}

/* Once more if somebody's late write is in the way. */
static void next_remove(struct store_trial *x, struct lock_client *s)
{
	if (!x->removes && x->left_told)
		return;
	if (!x->removes) {
		store_trial_find(x, "clean", STORE_NOTE, "%s stays behind: remove it", s->lock->url);
		return;
	}
	for (int tries = 0; tries < 2; tries++) {
		enum lock_outcome o = lock_client_read(s);
		struct version at = s->result.version;
		if (o == LOCK_ABSENT || (o == LOCK_OK && lock_client_remove(s, &at) == LOCK_OK))
			return;
	}
	store_trial_find(x, "clean", STORE_NOTE, "%s stays behind, remove it: %s", s->lock->url, store_trial_why(s));
}

#define NEXT_COST                                                                                         \
	"Elections work without it, but nobody is told who comes next, nobody prepares for it, and at a " \
	"handover all standbys compete. The rights it needs are in docs/locks.md"

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
	x->cleaning = true;
	next_remove(x, s);
	x->cleaning = false;
	s->lock->ops->close(s->lock);
	s->lock = own;
}
