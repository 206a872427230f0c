/* Writers who expect the same version at the same moment, round after round: one of them may win, with a larger token
 * than all before, and the store has what the winner wrote.
 * Not who starts them: they may be of one process, or of several that share this memory.
 * Used by the examination of a store, with eight writers and with sixty-four (doctor --full), and by the tests' race (tests/locks/conform/race.c). */
#pragma once

#include "client/lock_client.h"
#include "doctor/store_report.h"

#define STORE_RACERS 64

struct racer {
	struct lock *lock;
	struct record record; /* its strings are of the process that enters it */
	int *running;
	enum lock_outcome outcome;
	struct version version;
	int64_t token;
	struct err err;
};

struct store_race { /* zero before the first use, but for count and at */
	struct racer racer[STORE_RACERS];
	int count;
	struct version at; /* what all expect */
	uint64_t term;
	int64_t token; /* of the last winner */
	int rounds;    /* that were judged */
	int won;       /* of these have a winner */
	int unsure;    /* writes without a certain outcome, in all rounds */
};

/* env outlives it. -1 with *err: the URL cannot be opened. store_race_leave all the same. */
int store_race_enter(struct racer *one, struct lock_env *env, const char *url, struct err *err);
void store_race_leave(struct racer *one);

/* So many of them, from the first one on, write at once; each has `within` for it. Blocks until all are answered. */
void store_race_run(struct store_race *r, struct ev_loop *loop, int first, int count, nsec within);

/* When all have written: reads what is there now, which the next round expects. STORE_UNFIT and STORE_UNSURE with *why. */
enum store_verdict store_race_judge(struct store_race *r, struct lock_client *reader, struct err *why);

/* Why the last round had no winner: what one of them was told. */
const char *store_race_why(const struct store_race *r);
