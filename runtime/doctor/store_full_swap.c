/* The rules of compare-and-swap, one after the other, while nobody else writes. */
#include "doctor/store_full_internal.h"

#include <string.h>

#define VERSIONS 24

static const struct version none = { "" };

/* ---- swap ---- */

/* A conflict has changed nothing: who reads finds the write of this name. */
static bool unchanged(struct full *f, const char *write, const char *what)
{
	if (!full_reads(f, f->a, "a read", LOCK_OK))
		return false;
	if (strcmp(f->a->record.write, write) == 0)
		return true;
	full_tell(f, STORE_UNFIT, "%s returned \"conflict\", but changed the record all the same", what);
	return false;
}

/* A write that must not be done. */
static bool turned_away(struct full *f, struct lock_client *s, const char *what, const struct version *expected,
                        const char *advice)
{
	struct version before = f->at;
	char write[sizeof f->write];

	memcpy(write, f->write, sizeof write);
	full_fill(f, s);
	if (full_try(f, s, expected, true) == LOCK_OK) {
		full_tell(f, STORE_UNFIT, "%s returned \"ok\", and \"conflict\" was expected: %s", what, advice);
		return false;
	}
	if (s->result.outcome != LOCK_CONFLICT) {
		full_astray(f, s, what, LOCK_CONFLICT);
		return false;
	}
	f->at = before;
	memcpy(f->write, write, sizeof write);
	return unchanged(f, write, what);
}

static bool first_write(struct full *f)
{
	return full_reads(f, f->a, "read, where nothing was ever written,", LOCK_ABSENT) &&
	       full_writes(f, f->a, "the first write, which expects no record,", &f->at, true, LOCK_OK) &&
	       full_sees(f, f->b, "write returned \"ok\"");
}

void full_swap(struct full *f)
{
	if (!first_write(f) || !turned_away(f, f->b, "write with op.expected = \"\" where a record is", &none,
	                                    "\"\" means: only if there is none"))
		return;
	struct version first = f->at;
	if (!full_writes(f, f->b, "a write that expects the version that is there", &first, true, LOCK_OK) ||
	    !full_sees(f, f->a, "a second write returned \"ok\""))
		return;
	if (strcmp(first.text, f->at.text) == 0) {
		full_tell(f, STORE_UNFIT,
		          "two different records have the version \"%s\": a writer of long ago cannot be told from the "
		          "last one. Each write must make a version that was never there",
		          first.text);
		return;
	}
	if (!turned_away(f, f->a, "write", &first,
	                 "the record is another one than it expects: op.expected is not compared in the store"))
		return;
	if (full_writes(f, f->b, "a renewal (op.durable = false)", &f->at, false, LOCK_OK) &&
	    full_sees(f, f->a, "a renewal returned \"ok\""))
		full_tell(f, STORE_GOOD,
		          "a write is done where it expects what is there, and nowhere else; and all see it");
}

/* ---- versions ---- */

static bool version_is_new(struct full *f, struct version *seen, int *count, const char *when)
{
	for (int i = 0; i < *count; i++) {
		if (strcmp(seen[i].text, f->at.text) != 0)
			continue;
		full_tell(
			f, STORE_UNFIT,
			"the version \"%s\" comes back%s: a writer that was stopped for long takes the new record for the "
			"one that it knows, and overwrites it",
			f->at.text, when);
		return false;
	}
	seen[(*count)++] = f->at;
	return true;
}

static bool remade(struct full *f, const struct version *late)
{
	if (lock_client_remove(f->a, &f->at) != LOCK_OK) {
		full_astray(f, f->a, "remove", LOCK_OK);
		return false;
	}
	if (!full_reads(f, f->b, "read, after remove returned \"ok\",", LOCK_ABSENT))
		return false;
	struct version absent = f->at;
	full_fill(f, f->b);
	if (full_try(f, f->b, late, true) != LOCK_CONFLICT) {
		full_astray(f, f->b, "write with the version of a record that was removed", LOCK_CONFLICT);
		return false;
	}
	return full_writes(f, f->a, "a write that makes the record again", &absent, true, LOCK_OK);
}

/* The elector names each write, so that no two of its records are equal. Equal versions of equal ones do no harm. */
static bool equal_ones_differ(struct full *f)
{
	struct version before = f->at;

	lock_client_start_write(f->a, &before, true);
	return lock_client_wait(f->a) != LOCK_OK || strcmp(before.text, f->a->result.version.text) != 0;
}

void full_versions(struct full *f)
{
	struct version seen[VERSIONS + 1];
	int count = 0;

	if (!full_reads(f, f->a, "a read", LOCK_ABSENT))
		return;
	for (int i = 0; i < VERSIONS && !f->x->report->signal; i++)
		if (!full_writes(f, i % 2 ? f->a : f->b, "a write", &f->at, i % 3 != 0, LOCK_OK) ||
		    !version_is_new(f, seen, &count, ""))
			return;
	struct version late = f->at;
	if (f->x->removes &&
	    (!remade(f, &late) || !version_is_new(f, seen, &count, " after the record was removed and made again")))
		return;
	bool differ = !f->x->removes || equal_ones_differ(f);
	full_tell(f, STORE_GOOD, "%d records, %d versions%s", count, count,
	          differ ? "" : ". Records that are equal to the byte have equal ones; no two of Lunarch's are");
}

/* ---- remove ---- */

void full_remove(struct full *f)
{
	struct lock_client *s = f->a;

	if (!f->x->removes)
		return; /* the last note says so, with what stays behind */
	if (!first_write(f))
		return;
	struct version first = f->at;
	if (!full_writes(f, s, "a write", &first, true, LOCK_OK))
		return;
	struct version second = f->at;
	if (lock_client_remove(s, &first) != LOCK_CONFLICT) {
		full_astray(f, s, "remove with an older version", LOCK_CONFLICT);
		return;
	}
	if (!full_reads(f, f->b, "a read, after remove returned \"conflict\",", LOCK_OK))
		return;
	if (lock_client_remove(s, &second) != LOCK_OK) {
		full_astray(f, s, "remove with the version that is there", LOCK_OK);
		return;
	}
	if (full_reads(f, f->b, "a read, after remove returned \"ok\",", LOCK_ABSENT))
		full_tell(f, STORE_GOOD, "a record is removed by who knows its version, and by nobody else");
}
