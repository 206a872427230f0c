/* What only a lock in Lua can be made to do: texts that are no record, answers that are lost, late or repeated,
 * requests that are lost, and a driver that is killed or stopped in the middle of a write. */
#include "doctor/store_full_internal.h"

#include "base/mem.h"
#include "doctor/driver_faults.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHORT (NSEC_PER_SEC / 5) /* a deadline that is meant to pass */
#define LATE_MS 400
#define ROUNDS 4
#define KILLS 16

static const struct version none = { "" };

/* ---- what is no record ---- */

static const struct foreign {
	const char *what, *text;
	size_t len; /* 0: the text's */
} foreign[] = {
	{ "a text", "hello\n", 0 },
	{ "other JSON", "{\"name\":\"x\"}", 0 },
	{ "a list", "[1,2]", 0 },
	{ "half a record", "{\"holderIdentity\":\"a\",\"leaseDur", 0 },
	{ "a record with a wrong type", "{\"holderIdentity\":\"a\",\"leaseDurationSeconds\":\"soon\"}", 0 },
	{ "bytes",
	  "\x7f"
	  "ELF\x02\x01\xff\xfe\x1b[31m\0x",
	  14 },
	{ "nothing at all", "", 0 },
};
#define FOREIGN (sizeof foreign / sizeof *foreign)

/* true: it is there, and f->at is its version. */
static bool foreign_put(struct full *f, const char *text, size_t len)
{
	if (lock_client_read(f->b) != LOCK_ABSENT || !driver_fault_raw(f->x->faults[1], text, len))
		return false;
	full_fill(f, f->b);
	lock_client_start_write(f->b, &none, false);
	f->put = lock_client_wait(f->b);
	if (f->put != LOCK_OK)
		snprintf(f->why, sizeof f->why, "%s", store_trial_why(f->b));
	f->at = f->b->result.version;
	return f->put == LOCK_OK;
}

static bool foreign_is_left_alone(struct full *f, const char *what)
{
	if (lock_client_read(f->a) != LOCK_FOREIGN) {
		full_tell(
			f, STORE_UNFIT,
			"where %s was in the store, read returned \"%s\": it must return the text as it is, which is no "
			"record of Lunarch, and is not overwritten",
			what, lock_outcome_name(f->a->result.outcome));
		return false;
	}
	full_fill(f, f->a);
	lock_client_start_write(f->a, &none, true);
	enum lock_outcome said = lock_client_wait(f->a);
	if (said == LOCK_CONFLICT && lock_client_read(f->b) == LOCK_FOREIGN)
		return true;
	if (said == LOCK_UNKNOWN || said == LOCK_FAILED)
		full_tell(
			f, STORE_UNSURE,
			"where %s was in the store, write with op.expected = \"\" had no certain answer, so the rest of this "
			"case was not tried: %s",
			what, store_trial_why(f->a));
	else
		full_tell(
			f, STORE_UNFIT,
			"where %s was in the store, write with op.expected = \"\" returned \"%s\": it is overwritten, or "
			"\"conflict\" is not said",
			what, lock_outcome_name(said));
	return false;
}

/* Where nothing can be removed, each text has a key of its own. */
static bool foreign_turn(struct full *f, int number)
{
	struct err err;

	if (f->x->removes)
		return true;
	char *more = mem_printf("-foreign-%d", number), *url = full_url(f, more);
	bool turned = full_turn_to(f, f->a, url, &err) == 0 && full_turn_to(f, f->b, url, &err) == 0;
	free(more);
	free(url);
	return turned;
}

/* false: the rest would be in its way. */
static bool foreign_one(struct full *f, const char *what, const char *text, size_t len, int *done)
{
	if (!foreign_turn(f, *done))
		return false;
	if (!foreign_put(f, text, len))
		return lock_client_read(f->b) == LOCK_ABSENT; /* a store that takes no such text */
	struct version at = f->at;
	bool good = foreign_is_left_alone(f, what);
	++*done;
	if (f->x->removes)
		return lock_client_remove(f->b, &at) == LOCK_OK && good;
	full_clean(f, f->a); /* which tells that it stays */
	return good;
}

void full_foreign(struct full *f)
{
	char *longest = mem_zero(RECORD_MAX_BYTES);
	size_t i = 0;
	int done = 0;

	while (i < FOREIGN && !f->x->report->signal &&
	       foreign_one(f, foreign[i].what, foreign[i].text,
	                   foreign[i].len ? foreign[i].len : strlen(foreign[i].text), &done))
		i++;
	memset(longest, ' ', RECORD_KEPT_MAX + 1000);
	memcpy(longest, "{}", 2);
	if (i < FOREIGN && f->findings == 0)
		full_tell(f, STORE_UNSURE, "the rest of this case was not tried, from \"%s\" on: %s", foreign[i].what,
		          *f->why ? f->why : store_trial_why(f->b));
	if (i == FOREIGN)
		foreign_one(f, "a text of 97 KB", longest, strlen(longest), &done);
	if (done == 0 && f->findings == 0 && f->put == LOCK_INVALID)
		full_tell(f, STORE_NOTE, "the store takes no text but a record: %s", f->why);
	else if (done == 0 && f->findings == 0)
		full_tell(
			f, STORE_UNSURE,
			"no text that is no record could be written, so it is not known whether such are left alone: %s",
			f->why);
	full_tell(f, STORE_GOOD, "%d texts that are no record are left alone", done);
	free(longest);
}

/* ---- answers and requests ---- */

static const struct full_fault {
	enum driver_fault fault;
	nsec within;
	const char *after;
} faults[] = {
	{ DRIVER_FAULT_ANSWER_LOST, SHORT, "after a lost answer" },
	{ DRIVER_FAULT_MESSAGE_LOST, SHORT, "after a lost request" },
	{ DRIVER_FAULT_ANSWER_LATE, SHORT, "after an answer that came after its deadline" },
	{ DRIVER_FAULT_ANSWER_LATE, 0, "after a late answer" },
	{ DRIVER_FAULT_ANSWER_TWICE, 0, "after a repeated answer" },
};
#define FAULTS (sizeof faults / sizeof *faults)

static bool fault_once(struct full *f, const struct full_fault *fault)
{
	driver_fault_next(f->x->faults[0], fault->fault, LATE_MS);
	full_start(f, fault->within);
	lock_client_wait(f->a);
	return full_true(f, f->a) && full_works_again(f, f->a, fault->after);
}

static bool made(struct full *f)
{
	return full_reads(f, f->a, "a read", LOCK_ABSENT) && full_writes(f, f->a, "a write", &f->at, true, LOCK_OK);
}

void full_faults(struct full *f)
{
	if (!made(f))
		return;
	for (int i = 0; i < ROUNDS * (int)FAULTS && !f->x->report->signal; i++)
		if (!fault_once(f, &faults[i % (int)FAULTS]))
			return;
	if (full_writes(f, f->a, "a write, after all that,", &f->at, true, LOCK_OK))
		full_tell(
			f, STORE_GOOD,
			"lost, late and repeated answers, and lost requests: what is said of each write is true, and the lock works "
			"on");
}

/* ---- a driver that dies or stands still ---- */

static bool kill_once(struct full *f, nsec after)
{
	full_start(f, 0);
	full_linger(f, after);
	driver_fault_signal(f->x->faults[0], SIGKILL);
	lock_client_wait(f->a);
	return full_true(f, f->a) && full_works_again(f, f->a, "after its process was killed in the middle of a write");
}

void full_killed(struct full *f)
{
	if (!made(f))
		return;
	nsec took = lock_client_took_us(f->a) * 1000;
	for (int i = 0; i < KILLS && !f->x->report->signal; i++)
		if (!kill_once(f, took * 3 / 2 * i / KILLS))
			return;
	full_tell(
		f, STORE_GOOD,
		"its process was killed in the middle of %d writes: what is said of each is true, and another goes on",
		KILLS);
}

/* It is stopped; a write ends at its deadline all the same. on: it goes on before it is replaced. */
static bool stop_once(struct full *f, bool on)
{
	driver_fault_signal(f->x->faults[0], SIGSTOP);
	full_start(f, SHORT);
	lock_client_wait(f->a);
	if (on)
		driver_fault_signal(f->x->faults[0], SIGCONT);
	return full_true(f, f->a) && full_works_again(f, f->a, "after its process stood still");
}

void full_stopped(struct full *f)
{
	if (made(f) && stop_once(f, true) && stop_once(f, false) && stop_once(f, true))
		full_tell(f, STORE_GOOD,
		          "its process was stopped: writes end at their deadline, and it goes on or is replaced");
}
