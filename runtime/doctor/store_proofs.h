/* The proofs that elections stand on: one winner among writers, growing tokens, no write by a client that knows only
 * an old version. Not how fast it is: that is store_measure.h. Used by the examination of a store (store_check.c).
 * Each function blocks, tells what it finds, and leaves x knowing what the scratch record holds. */
#pragma once

#include "doctor/store_trial.h"

/* Rounds of STORE_WRITERS writes at once. false: the store is proved unfit, or nothing can be proved. */
bool store_prove_race(struct store_trial *x);

/* A write that expects the version before the last is refused. */
void store_prove_deposed(struct store_trial *x);

/* The record of who comes next, beside the scratch record that was opened by this URL, is written, read and removed. An
 * election works without it, so what goes wrong is a note. */
void store_try_next(struct store_trial *x, const char *url);

/* A record that was deleted is not written to, and the next term's token is larger all the same. The lock must have
 * `remove`. */
void store_prove_deleted(struct store_trial *x);
