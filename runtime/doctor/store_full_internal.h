/* What the cases of the whole examination (doctor --full) share: two clients, each with an env of its own (and so a
 * driver of its own), at a key that is the case's alone, and how a case tells what it has found. Not the cases:
 * store_full_*.c. Used by these files alone. */
#pragma once

#include "doctor/store_full.h"

#define LEFT_MAX 96

struct full;

typedef void full_run(struct full *f);

struct full_case {
	const char *name; /* as in its findings */
	full_run *run;
	bool needed; /* safety rests upon it: what it could not try is not proved */
	bool lua;    /* it takes a lock in Lua, whose driver does what it is told (driver_faults.h) */
	bool quiet;  /* drivers end in it on purpose, of which the log says nothing */
};

struct full {
	struct store_trial *x;
	struct lock_client *a, *b;
	const struct full_case *one; /* the case that is tried now */
	struct version at;           /* what the key holds, as far as the case knows */
	struct version before;       /* held before that: a case's own use */
	char write[33];              /* the name of the last write */
	int findings;                /* of this case that are not good */
	bool told;                   /* it has told anything */
	enum lock_outcome put;       /* of the last text that is no record */
	char why[300];               /* it was not put there */
	char *left[LEFT_MAX];        /* URLs where something may have stayed */
	int lefts;
	char *url[2]; /* of the locks of a and b */
};
/* The cases. */
full_run full_swap, full_versions, full_remove;                   /* store_full_swap.c */
full_run full_big, full_texts, full_keys, full_list;              /* store_full_content.c */
full_run full_foreign, full_faults, full_killed, full_stopped;    /* store_full_faults.c */
full_run full_cut;                                                /* store_full_cut.c */
full_run full_race;                                               /* store_full_race.c */
full_run full_deadlines, full_held_up, full_cancel, full_notices; /* store_full_times.c */

/* ---- findings ---- */

/* STORE_UNSURE: the case, or the rest of it, could not be tried: a note, if no election rests upon it. STORE_GOOD: unless
 * the case has found something else. */
void full_tell(struct full *f, enum store_verdict verdict, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The last operation of s had another outcome than was wanted: tells so, as unfit; or as untried, if it only had no
 * certain answer. what: "the first write, with op.expected = \"\"," */
void full_astray(struct full *f, const struct lock_client *s, const char *what, enum lock_outcome wanted);

/* The lock works, after what was done to it: s reads it, perhaps after a while. */
bool full_works_again(struct full *f, struct lock_client *s, const char *after);

bool full_goes_on(const struct full *f, struct instant since, nsec most); /* no signal, and there is time */

/* ---- operations, which tell what is wrong with them. true: the outcome is the wanted one ---- */

bool full_reads(struct full *f, struct lock_client *s, const char *what, enum lock_outcome wanted);

/* Writes the record of s, whose write's name is f->write: again while the store says that it did not, as one does that
 * elects nobody for a while after its restart. */
enum lock_outcome full_try(struct full *f, struct lock_client *s, const struct version *expected, bool durable);

/* A new record, with a write name of its own. LOCK_OK: f->at is its version. */
bool full_writes(struct full *f, struct lock_client *s, const char *what, const struct version *expected, bool durable,
                 enum lock_outcome wanted);

/* The last write was the last that the store has taken: s reads its record, and its version. */
bool full_sees(struct full *f, struct lock_client *s, const char *what);

/* Puts a record into s: with a write name of its own, that is in f->write then. */
void full_fill(struct full *f, struct lock_client *s);

/* a begins a write of a new record over f->at, which it has so long for; 0: as long as ever. */
void full_start(struct full *f, nsec within);
void full_linger(struct full *f, nsec at_most); /* until that is answered, but no longer */

/* s wrote f->write, and was told the outcome in s->result: whether the store says the same, as the other one reads it.
 * Tells if it does not. f->at is what is there. */
bool full_true(struct full *f, const struct lock_client *s);

/* s is at the lock of this URL from now on. */
int full_turn_to(struct full *f, struct lock_client *s, const char *url, struct err *err);
char *full_url(const struct full *f, const char *more); /* a key beside the scratch record's; the caller frees */
/* Removes what is at the lock of s; notes what cannot be removed. */
void full_clean(struct full *f, struct lock_client *s);
