/* The examination of everything that a lock must do, for who writes one: each rule that elections stand on, tried with
 * scratch records, and told in the words of docs/write-a-lock.md. Not the proofs and figures that each doctor makes:
 * store_check.h. Used by the examination of a store (store_check.c). */
#pragma once

#include "doctor/store_trial.h"

/* Tells each finding as it is made. Leaves the scratch record of x as it was, and removes its own. Blocks, for a minute
 * or two. */
void store_full_run(struct store_trial *x);
