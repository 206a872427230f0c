#include "doctor/store_full_internal.h"

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/nonce.h"
#include "doctor/driver_faults.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLEAN_TRIES 3
#define TRIES 40
#define AGAIN_MOST (30 * NSEC_PER_SEC)

static const struct full_case cases[] = {
	{ "swap", full_swap, .needed = true },
	{ "version", full_versions, .needed = true },
	{ "remove", full_remove, .needed = true },
	{ "big", full_big },
	{ "text", full_texts },
	{ "key", full_keys },
	{ "foreign", full_foreign, .needed = true, .lua = true },
	{ "deadline", full_deadlines, .needed = true },
	{ "held", full_held_up },
	{ "cancel", full_cancel },
	{ "answer", full_faults, .needed = true, .lua = true, .quiet = true },
	{ "cut", full_cut, .needed = true, .lua = true },
	{ "killed", full_killed, .needed = true, .lua = true, .quiet = true },
	{ "stopped", full_stopped, .needed = true, .lua = true, .quiet = true },
	{ "watch", full_notices },
	{ "list", full_list },
	{ "racers", full_race, .needed = true },
};
static const struct full_case cleaning = { "clean", NULL };

/* ---- findings ---- */

void full_tell(struct full *f, enum store_verdict verdict, const char *fmt, ...)
{
	char text[sizeof((struct store_finding *)0)->text];
	va_list ap;

	if (verdict == STORE_GOOD && f->findings)
		return;
	if (verdict == STORE_UNSURE && !f->one->needed)
		verdict = STORE_NOTE;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	f->findings += verdict != STORE_GOOD;
	f->told = true;
	store_trial_find(f->x, f->one->name, verdict, "%s", text);
}

void full_astray(struct full *f, const struct lock_client *s, const char *what, enum lock_outcome wanted)
{
	enum lock_outcome o = s->result.outcome;

	if (o == LOCK_UNKNOWN || o == LOCK_FAILED)
		full_tell(f, STORE_UNSURE, "%s had no certain answer, so the rest of this case was not tried: %s", what,
		          store_trial_why(s));
	else
		full_tell(f, STORE_UNFIT, "%s returned \"%s\", and \"%s\" was expected%s%s", what, lock_outcome_name(o),
		          lock_outcome_name(wanted), *s->result.err.text ? ": " : "", s->result.err.text);
}

bool full_goes_on(const struct full *f, struct instant since, nsec most)
{
	return !f->x->report->signal && elapsed_standby(since, clock_now()) < most;
}

/* ---- operations ---- */

bool full_reads(struct full *f, struct lock_client *s, const char *what, enum lock_outcome wanted)
{
	if (lock_client_read(s) != wanted) {
		full_astray(f, s, what, wanted);
		return false;
	}
	f->at = s->result.version;
	return true;
}

void full_fill(struct full *f, struct lock_client *s)
{
	store_trial_fill_term(f->x, s);
	s->record.lease_ms = 1; /* a store that waits for a lease before it elects anybody does not wait for long */
	memcpy(f->write, s->record.write, sizeof f->write);
}

void full_start(struct full *f, nsec within)
{
	full_fill(f, f->a);
	f->a->within = within;
	lock_client_start_write(f->a, &f->at, true);
	f->a->within = 0; /* of those that follow */
}

void full_linger(struct full *f, nsec at_most)
{
	struct instant until = instant_add(clock_now(), at_most);

	while (f->a->busy && !instant_passed(until, clock_now()))
		ev_run(f->x->loop, EVRUN_NOWAIT);
}

static struct lock_client *full_other(const struct full *f, const struct lock_client *s)
{
	return s == f->a ? f->b : f->a;
}

bool full_true(struct full *f, const struct lock_client *s)
{
	struct lock_client *reader = full_other(f, s);
	enum lock_outcome said = s->result.outcome, o = lock_client_read(reader);

	if (o != LOCK_OK && o != LOCK_ABSENT)
		return true; /* nobody can say */
	f->at = reader->result.version;
	bool there = o == LOCK_OK && strcmp(reader->record.write, f->write) == 0;
	if (said == LOCK_UNKNOWN || there == (said == LOCK_OK))
		return true;
	if (said == LOCK_OK)
		full_tell(f, STORE_UNFIT,
		          "write returned \"ok\", but another process reads %s right after it: what was written is not "
		          "there, or read does not ask the store",
		          o == LOCK_ABSENT ? "nothing" : "another record");
	else if (said == LOCK_CONFLICT)
		full_tell(
			f, STORE_UNFIT,
			"write returned \"conflict\", but what it wrote is in the store: a second try inside write has met "
			"what its first one did. Without a certain answer return \"unknown\"");
	else
		full_tell(
			f, STORE_UNFIT,
			"write returned \"%s\" (%s), but what it wrote is in the store: return \"unknown\" unless it is "
			"sure that nothing was changed, and never will be",
			lock_outcome_name(said), store_trial_why(s));
	return false;
}

enum lock_outcome full_try(struct full *f, struct lock_client *s, const struct version *expected, bool durable)
{
	struct version e = *expected;

	for (int tries = 0; tries < TRIES && (!f->x->report->signal || f->x->cleaning); tries++) {
		lock_client_start_write(s, &e, durable);
		if (lock_client_wait(s) != LOCK_FAILED || !full_true(f, s))
			break;
		lock_client_drain(s);
	}
	return s->result.outcome;
}

bool full_writes(struct full *f, struct lock_client *s, const char *what, const struct version *expected, bool durable,
                 enum lock_outcome wanted)
{
	struct version e = *expected;

	full_fill(f, s);
	enum lock_outcome o = full_try(f, s, &e, durable);
	if (o != wanted) {
		if (o == LOCK_FAILED || full_true(f, s))
			full_astray(f, s, what, wanted);
		return false;
	}
	if (wanted == LOCK_OK)
		f->at = s->result.version;
	if (wanted == LOCK_OK && (s->result.sent_at.raw < s->asked.raw || s->result.sent_at.raw > s->answered.raw))
		full_tell(f, STORE_UNFIT, "%s says that it was sent when it was not: terms would be counted from there",
		          what);
	return true;
}

bool full_sees(struct full *f, struct lock_client *s, const char *what)
{
	struct version at = f->at;

	if (!full_reads(f, s, "a read of what was just written", LOCK_OK))
		return false;
	if (strcmp(s->record.write, f->write) != 0)
		full_tell(
			f, STORE_UNFIT,
			"%s, but another record is read right after it: read must ask the store each time, and each write "
			"must be seen by all",
			what);
	else if (strcmp(at.text, s->result.version.text) != 0)
		full_tell(
			f, STORE_UNFIT,
			"write returned the version \"%s\", and read returns \"%s\" for the same record: both must name it "
			"alike, or the next renewal is a conflict",
			at.text, s->result.version.text);
	else
		return true;
	return false;
}

bool full_works_again(struct full *f, struct lock_client *s, const char *after)
{
	struct instant since = clock_now();
	enum lock_outcome o = lock_client_read(s);

	while (o == LOCK_FAILED && full_goes_on(f, since, AGAIN_MOST)) {
		lock_client_drain(s);
		o = lock_client_read(s);
	}
	f->at = s->result.version;
	if (o == LOCK_OK || o == LOCK_ABSENT)
		return true;
	full_tell(f, STORE_UNFIT, "%s, the lock does not work any more: %s", after, store_trial_why(s));
	return false;
}

/* ---- keys ---- */

char *full_url(const struct full *f, const char *more)
{
	return lock_url_beside(f->x->client[2].lock, f->x->scratch, more); /* which is never at another key */
}

/* What was never written, or was removed, may have left something beside it: that goes with a record. */
static bool clean_once(struct full *f, struct lock_client *s)
{
	enum lock_outcome o = lock_client_read(s);
	struct version at = s->result.version;

	if (!f->x->removes)
		return o == LOCK_ABSENT;
	if (o == LOCK_ABSENT) {
		full_fill(f, s);
		o = full_try(f, s, &at, true);
		at = s->result.version;
	}
	return o == LOCK_OK && lock_client_remove(s, &at) == LOCK_OK;
}

static void left_note(struct full *f, const char *url)
{
	for (int i = 0; i < f->lefts; i++)
		if (strcmp(f->left[i], url) == 0)
			return;
	if (f->lefts < LEFT_MAX)
		f->left[f->lefts++] = mem_dup(url);
}

void full_clean(struct full *f, struct lock_client *s)
{
	bool had = f->x->cleaning, gone = false;

	f->x->cleaning = true;
	for (int tries = 0; s->lock && tries < CLEAN_TRIES && !gone; tries++)
		gone = clean_once(f, s);
	if (s->lock && !gone)
		left_note(f, f->url[s == f->b]);
	f->x->cleaning = had;
}

int full_turn_to(struct full *f, struct lock_client *s, const char *url, struct err *err)
{
	mem_replace(&f->url[s == f->b], url);
	return lock_client_turn_to(s, url, err);
}

static int full_turn(struct full *f, const char *url)
{
	struct err err;

	if (full_turn_to(f, f->a, url, &err) == 0 && full_turn_to(f, f->b, url, &err) == 0)
		return 0;
	full_tell(f, STORE_UNSURE, "the key of this case cannot be opened, so it was not tried: %s", err.text);
	return -1;
}

/* A driver that is killed on purpose is no news. What the lock file itself prints and logs comes from its process. */
static void full_on_log(void *, enum log_level, const struct log_about *, const char *, const char *)
{
}

/* A case that returns without a word has proved nothing. */
static void full_run_case(struct full *f)
{
	const struct full_case *one = f->one;
	char more[40];

	snprintf(more, sizeof more, "-%s", one->name);
	char *url = full_url(f, more);
	f->findings = f->a->odd_answers = f->b->odd_answers = 0;
	f->told = false;
	f->at = (struct version){ "" };
	if (full_turn(f, url) == 0) {
		log_divert(one->quiet ? full_on_log : NULL, NULL);
		if (one->lua && !driver_fault_next(f->x->faults[0], DRIVER_FAULT_NONE, 0))
			full_tell(f, STORE_NOTE, "not examined: that takes a lock in Lua");
		else
			one->run(f);
		log_divert(NULL, NULL);
		if (f->a->odd_answers + f->b->odd_answers)
			full_tell(f, STORE_UNFIT, "%d operations were answered twice, or before they had begun",
			          f->a->odd_answers + f->b->odd_answers);
		if (!f->told && (f->x->removes || one->run != full_remove))
			full_tell(f, STORE_UNSURE, "it could not be tried to its end");
		full_clean(f, f->a);
	}
	free(url);
}

/* The scratch record stays open meanwhile, and with it the connection that the locks of one env share. */
static void full_set_out(struct full *f)
{
	for (int i = 0; i < 2; i++) {
		struct lock_client *s = &f->x->client[i];
		s->place = s->lock;
		s->lock = NULL;
	}
}

static void full_turn_back(struct full *f)
{
	for (int i = 0; i < 2; i++) {
		struct lock_client *s = &f->x->client[i];
		if (s->lock)
			s->lock->ops->close(s->lock);
		s->lock = s->place;
		s->place = NULL;
		s->watches = s->watched = false;
		s->within = 0;
	}
}

/* Adds what a URL has behind the scratch record's: "-swap". */
static void left_add(const struct full *f, struct buf *b, const char *url)
{
	const char *base = f->x->scratch;
	size_t n = 0, len;

	while (base[n] && base[n] == url[n])
		n++;
	len = strlen(url + n) - strlen(base + n);
	buf_printf(b, "%s%.*s", b->len ? ", " : "", (int)len, url + n);
}

/* What is really there is read: a write that had no certain answer may have left nothing. */
static void full_tell_left(struct full *f)
{
	struct buf there = { 0 };
	struct err err;
	int count = 0, unread = 0;

	for (int i = 0; i < f->lefts; i++) {
		bool open = lock_client_turn_to(f->a, f->left[i], &err) == 0;
		enum lock_outcome o = open ? lock_client_read(f->a) : LOCK_FAILED;
		unread += o != LOCK_OK && o != LOCK_FOREIGN && o != LOCK_ABSENT;
		if (o == LOCK_OK || o == LOCK_FOREIGN) {
			left_add(f, &there, f->left[i]);
			count++;
		}
		free(f->left[i]);
	}
	const char *base = f->a->place->url;
	if (count && f->x->removes)
		full_tell(f, STORE_NOTE,
		          "%d records stay behind: remove them. Their keys are that of %s and, behind it, %s", count,
		          base, there.data);
	else if (count)
		full_tell(
			f, STORE_NOTE,
			"there is no `remove`, so scratch records stay behind: %s, the same with .next behind it, and %d "
			"with %s",
			base, count, there.data);
	if (unread)
		full_tell(f, STORE_NOTE, "whether %d more records beside %s stay behind could not be read", unread,
		          base);
	f->x->left_told = count && !f->x->removes;
	buf_fini(&there);
}

void store_full_run(struct store_trial *x)
{
	struct full f = { .x = x, .a = &x->client[0], .b = &x->client[1] };

	full_set_out(&f);
	for (size_t i = 0; i < sizeof cases / sizeof *cases && !x->report->signal; i++) {
		f.one = &cases[i];
		full_run_case(&f);
	}
	f.one = &cleaning;
	x->cleaning = true;
	full_tell_left(&f);
	x->cleaning = false;
	full_turn_back(&f);
	free(f.url[0]);
	free(f.url[1]);
}
