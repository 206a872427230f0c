/* The scratch record that a store is tried with: connections to it, what is known to be in it, and how to find out.
 * Not a proof and not a measurement: those are store_proofs.h and store_measure.h, which write with it.
 * Used by the examination of a store. */
#pragma once

#include "client/lock_client.h"
#include "doctor/driver_faults.h"
#include "doctor/store_report.h"

#include <ev.h>

#define STORE_WRITERS 8

struct store_trial {
	struct ev_loop *loop;
	struct lock_client client[STORE_WRITERS];
	struct driver_faults *faults[2]; /* of the drivers of the first two; NULL: there is no whole examination */
	char *scratch;                   /* the URL that they were opened by */
	struct version at, before;       /* what the scratch record has now, and had before its last term */
	int64_t token;                   /* the last term's */
	uint64_t term;
	store_found_fn *found;
	void *arg;
	struct store_report *report;
	ev_signal signals[2];
	bool cleaning;
	bool removes;   /* the lock can remove records */
	bool left_told; /* that scratch records stay behind was told */
};

/* Tells the caller of the examination. Nothing is told once a signal has broken it off, but what is left behind. */
void store_trial_find(struct store_trial *x, const char *name, enum store_verdict verdict, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Puts a new term of s into its record, as an elector would write it. s is one of x's clients. */
void store_trial_fill_term(const struct store_trial *x, struct lock_client *s);

/* s has written that term: notes what the store holds now. */
void store_trial_won(struct store_trial *x, const struct lock_client *s);

/* A write had no certain outcome: reads what the store holds now, for a few seconds if it must. -1: it cannot be
 * read. */
int store_trial_settle(struct store_trial *x);

/* Whether to do it once more: a part of the examination takes eight seconds, or as long as three rounds of it do. */
bool store_trial_goes_on(const struct store_trial *x, struct instant since, int done);

/* s is told of changes from now on. A lock in Lua says so some time after it was asked. false: it is not. Blocks. */
bool store_trial_watch(const struct store_trial *x, struct lock_client *s);

/* Removes what is at the lock of s, or tells that it stays. */
void store_trial_remove(struct store_trial *x, struct lock_client *s);

/* So many writers enter the race at this URL; the connections of x take turns. -1 with *err. store_race_leave all the
 * same. */
struct store_race;
int store_trial_race(struct store_trial *x, struct store_race *r, int count, const char *url, struct err *err);

const char *store_trial_why(const struct lock_client *s); /* its last operation was not done */
