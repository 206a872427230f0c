/* Deadlines, cancelled operations, and notices. */
#include "doctor/store_full_internal.h"

#include <stdlib.h>
#include <string.h>

#define DEADLINES 48
#define LEAST (4 * NSEC_PER_MS) /* what a write is taken to take, at least */
#define LATE (5 * NSEC_PER_SEC) /* an operation that ends so long after its deadline does not heed it */
#define HELD_TRIES 3
#define HELD_WITHIN (NSEC_PER_SEC / 4)
#define HELD (NSEC_PER_SEC) /* nothing that is alive keeps an answer back so long */
#define CANCELS 24
#define NOTICES 24
#define NOTICE_WITHIN (20 * NSEC_PER_SEC)
#define QUIET (NSEC_PER_SEC / 20)

static nsec write_took(struct full *f)
{
	if (!full_reads(f, f->a, "a read", LOCK_ABSENT) || !full_writes(f, f->a, "a write", &f->at, true, LOCK_OK) ||
	    !full_writes(f, f->a, "a write", &f->at, true, LOCK_OK))
		return 0;
	nsec took = lock_client_took_us(f->a) * 1000;
	return took > LEAST ? took : LEAST;
}

static void wait_a_little(struct full *f)
{
	f->b->changed = false;
	f->b->watched = false;
	lock_client_wait_change(f->b, QUIET, QUIET);
}

/* ---- deadlines ---- */

/* After any end of a write: what was said is true, at once and a little later. */
static bool stays_true(struct full *f)
{
	if (!full_true(f, f->a))
		return false;
	if (f->a->result.outcome == LOCK_OK || f->a->result.outcome == LOCK_UNKNOWN)
		return true;
	wait_a_little(f);
	return full_true(f, f->a);
}

static bool deadline_is_met(struct full *f, nsec within)
{
	nsec late = (f->a->answered.raw - f->a->asked.raw) - within;

	if (late < LATE)
		return true;
	full_tell(f, STORE_UNFIT, "an operation that had %.1f ms ended %.1f s after its deadline",
	          (double)within / NSEC_PER_MS, (double)late / NSEC_PER_SEC);
	return false;
}

static bool deadline_once(struct full *f, nsec within, int *cut)
{
	full_start(f, within ? within : 1);
	*cut += lock_client_wait(f->a) != LOCK_OK;
	return deadline_is_met(f, within) && stays_true(f);
}

/* They have from none to twice the time of a write, so that some end in the middle of one. */
void full_deadlines(struct full *f)
{
	nsec took = write_took(f);
	int cut = 0, done = 0;

	if (took == 0)
		return;
	for (; done < DEADLINES && !f->x->report->signal; done++)
		if (!deadline_once(f, took * 2 * done / DEADLINES, &cut))
			return;
	f->a->within = 1;
	lock_client_read(f->a);
	f->a->within = 0;
	if (f->a->result.outcome != LOCK_FAILED && f->a->result.outcome != LOCK_OK)
		full_astray(f, f->a, "a read without any time", LOCK_FAILED);
	if (full_reads(f, f->a, "a read, after operations that had ended at their deadlines,", LOCK_OK))
		full_tell(
			f, STORE_GOOD,
			"%d writes with little time, of which %d ended at their deadline: what is said of each is true",
			done, cut);
}

/* ---- a lock that holds up others ---- */

/* One operation ends at its deadline; then another, which has time, is answered at once by whoever waits properly. */
static nsec held_up(struct full *f)
{
	full_start(f, HELD_WITHIN);
	lock_client_wait(f->a);
	enum lock_outcome o = lock_client_read(f->a);
	if (o == LOCK_OK)
		f->at = f->a->result.version;
	return o == LOCK_OK || o == LOCK_FAILED ? lock_client_took_us(f->a) * 1000 : 0;
}

void full_held_up(struct full *f)
{
	nsec least = HELD + 1;

	if (write_took(f) == 0 || !full_reads(f, f->a, "a read", LOCK_OK))
		return;
	nsec alone = lock_client_took_us(f->a) * 1000;
	for (int i = 0; i < HELD_TRIES && least > HELD && !f->x->report->signal; i++) {
		nsec held = held_up(f);
		least = held < least ? held : least;
	}
	if (least > HELD && alone < HELD / 2)
		full_tell(
			f, STORE_UNFIT,
			"after a write had ended at its deadline of %d ms, nothing was answered for %.1f s: a call in it blocks, "
			"and does not heed op.timeout",
			(int)(HELD_WITHIN / NSEC_PER_MS), (double)least / NSEC_PER_SEC);
	full_tell(f, STORE_GOOD, "an operation that has ended at its deadline does not hold up the next one");
}

/* ---- cancel ---- */

static bool cancel_once(struct full *f, nsec after)
{
	full_start(f, 0);
	full_linger(f, after);
	lock_client_cancel(f->a);
	if (f->a->busy) {
		full_tell(f, STORE_UNFIT, "an operation that was cancelled has not ended");
		lock_client_wait(f->a);
		return false;
	}
	return stays_true(f);
}

/* A read, which has nothing to be unsure of; and nothing at all. */
static bool cancel_harmless(struct full *f)
{
	lock_client_start_read(f->a);
	lock_client_cancel(f->a);
	f->a->lock->ops->cancel(f->a->lock);
	if (f->a->busy)
		full_tell(f, STORE_UNFIT, "a read that was cancelled has not ended");
	else if (f->a->result.outcome != LOCK_OK && f->a->result.outcome != LOCK_FAILED)
		full_astray(f, f->a, "a read that was cancelled", LOCK_FAILED);
	else
		return true;
	lock_client_wait(f->a);
	return false;
}

void full_cancel(struct full *f)
{
	nsec took = write_took(f);

	if (took == 0)
		return;
	for (int i = 0; i < CANCELS && !f->x->report->signal; i++)
		if (!cancel_once(f, took * 3 / 2 * i / CANCELS))
			return;
	if (cancel_harmless(f) && full_reads(f, f->a, "a read, after others were cancelled,", LOCK_OK))
		full_tell(f, STORE_GOOD,
		          "%d writes were cancelled: what is said of each is true, and the lock works on", CANCELS);
}

/* ---- notices ---- */

/* b looks, then a does it. */
static bool noticed(struct full *f, const char *what)
{
	if (lock_client_wait_change(f->b, NOTICE_WITHIN, NOTICE_WITHIN) || f->x->report->signal)
		return true;
	full_tell(
		f, STORE_UNFIT,
		"%s, and changed() was not called within %d s: once it was called for the first time, no change may be "
		"missed",
		what, (int)(NOTICE_WITHIN / NSEC_PER_SEC));
	return false;
}

/* A notice may be of the first of two halves, and then another one comes. */
static bool notice_is_true(struct full *f)
{
	struct version at = f->at;

	do
		lock_client_read(f->b);
	while (strcmp(f->b->result.version.text, at.text) != 0 &&
	       lock_client_wait_change(f->b, NOTICE_WITHIN, NOTICE_WITHIN));
	return full_sees(f, f->b, "a change was told");
}

static bool notice_write(struct full *f, const char *what)
{
	struct version at = f->at;

	lock_client_read(f->b);
	return full_writes(f, f->a, "a write", &at, true, LOCK_OK) && noticed(f, what) && notice_is_true(f);
}

/* A record is removed by people, if at all. Who waits for it to come back polls, where it is not told. */
static void notice_removal(struct full *f)
{
	if (!f->x->removes)
		return;
	lock_client_read(f->b);
	if (lock_client_remove(f->a, &f->at) == LOCK_OK && !lock_client_wait_change(f->b, LATE, LATE))
		store_trial_find(f->x, f->one->name, STORE_GOOD,
		                 "but for the removal of a record, which standbys see when they look again");
}

void full_notices(struct full *f)
{
	if (!full_reads(f, f->a, "a read", LOCK_ABSENT))
		return;
	struct version absent = f->at;
	if (!store_trial_watch(f->x, f->b)) {
		full_tell(f, STORE_NOTE,
		          "no notices: standbys look again every retry period, and a handover takes up to 2.2 of them");
		return;
	}
	f->at = absent;
	if (!notice_write(f, "a record was made"))
		return;
	for (int i = 0; i < NOTICES && !f->x->report->signal; i++)
		if (!notice_write(f, "a record was written"))
			return;
	notice_removal(f);
	full_tell(f, STORE_GOOD, "%d changes were told", NOTICES + 1);
}
