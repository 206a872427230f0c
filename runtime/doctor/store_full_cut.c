/* The connection between a lock file and its store breaks behind a request: the store has done what it was asked for,
 * and the file gets an error in place of the answer; or libcurl sends the request again, and the second answer counts.
 * Done inside the clients that a lock file has of Lunarch, so that TLS is no obstacle and no time is too short. */
#include "doctor/store_full_internal.h"

#include "doctor/driver_faults.h"

#include <string.h>

#define REQUESTS 12 /* of one operation, at most, whose answers are lost one after the other */
#define AFTER "after its connection to the store broke"

static const struct version none = { "" };

static const enum driver_fault ways[] = { DRIVER_FAULT_STORE_LOST, DRIVER_FAULT_STORE_AGAIN };
#define WAYS (sizeof ways / sizeof *ways)

/* The answer to the nth request of a write is lost. true: what was said of the write is true. *met: it has sent so
 * many. */
static bool cut_write(struct full *f, enum driver_fault way, int nth, const struct version *expected, bool *met)
{
	struct version e = *expected;

	full_fill(f, f->a);
	driver_fault_next(f->x->faults[0], way, nth);
	lock_client_start_write(f->a, &e, true);
	lock_client_wait(f->a);
	*met = driver_fault_met(f->x->faults[0]);
	return full_true(f, f->a) && full_works_again(f, f->a, AFTER);
}

/* A read with no answer is not one of an absent record. */
static bool cut_read(struct full *f, enum driver_fault way, int nth, bool *met)
{
	if (lock_client_read(f->b) != LOCK_OK)
		return true; /* nobody can say */
	driver_fault_next(f->x->faults[0], way, nth);
	enum lock_outcome o = lock_client_read(f->a);
	*met = driver_fault_met(f->x->faults[0]);
	if (o == LOCK_OK && strcmp(f->a->record.write, f->b->record.write) != 0)
		full_tell(
			f, STORE_UNFIT,
			"read had no answer of the store, and returned \"ok\" with another record than the store has");
	else if (o != LOCK_OK && o != LOCK_FAILED)
		full_tell(
			f, STORE_UNFIT,
			"read had no answer of the store, and returned \"%s\": it must return \"failed\" where it does not know",
			lock_outcome_name(o));
	else
		return full_works_again(f, f->a, AFTER);
	return false;
}

enum cut_kind { CUT_CREATES, CUT_REPLACES, CUT_IS_STALE, CUT_READS };

/* What is there before it. false: it cannot be done. */
static bool cut_prepare(struct full *f, enum cut_kind kind)
{
	if (kind == CUT_CREATES)
		return f->x->removes && lock_client_read(f->b) == LOCK_OK &&
		       lock_client_remove(f->b, &f->b->result.version) == LOCK_OK;
	return f->at.text[0] || full_writes(f, f->a, "a write", &f->at, true, LOCK_OK);
}

/* Loses the answers to all requests of such an operation, one after the other. false: a finding. */
static bool cut_each(struct full *f, enum cut_kind kind, enum driver_fault way, int *lost)
{
	const struct version stale = f->before;
	bool met = true, good = true;

	for (int nth = 1; met && good && nth <= REQUESTS && !f->x->report->signal; nth++) {
		met = false;
		if (!cut_prepare(f, kind))
			return f->findings == 0;
		if (kind == CUT_READS)
			good = cut_read(f, way, nth, &met);
		else
			good = cut_write(f, way, nth,
			                 kind == CUT_CREATES    ? &none
			                 : kind == CUT_IS_STALE ? &stale
			                                        : &f->at,
			                 &met);
		*lost += met;
	}
	return good;
}

/* Two records, one after the other: the first one's version is known as one that was replaced. */
static bool cut_begin(struct full *f)
{
	if (!full_reads(f, f->a, "a read", LOCK_ABSENT) || !full_writes(f, f->a, "a write", &f->at, true, LOCK_OK))
		return false;
	f->before = f->at;
	return full_writes(f, f->a, "a second write", &f->at, true, LOCK_OK);
}

void full_cut(struct full *f)
{
	int lost = 0;

	if (!cut_begin(f))
		return;
	for (size_t i = 0; i < WAYS; i++)
		if (!cut_each(f, CUT_REPLACES, ways[i], &lost))
			return;
	if (lost == 0) {
		full_tell(
			f, STORE_UNSURE,
			"write has sent nothing by `http`, `lunarch.mysql` or `lunarch.tcp`, so no answer of the store could be lost on its "
			"way: try it through a proxy that closes connections before the answer has passed");
		return;
	}
	for (size_t i = 0; i < WAYS; i++)
		if (!cut_each(f, CUT_CREATES, ways[i], &lost) || !cut_each(f, CUT_IS_STALE, ways[i], &lost) ||
		    !cut_each(f, CUT_READS, ways[i], &lost))
			return;
	full_tell(f, STORE_GOOD,
	          "%d answers of the store were lost, one after the other: what is said of each write and read is true",
	          lost);
}
