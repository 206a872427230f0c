/* How long a store takes: for renewals, new terms and notices, and which lease that allows.
 * Not whether it is right: that is store_proofs.h.
 * Used by the examination of a store (store_check.c). Each function blocks, and puts what it measured into the
 * report. */
#pragma once

#include "doctor/store_trial.h"

#include <stddef.h>

void store_measure_writes(struct store_trial *x);
void store_measure_notices(struct store_trial *x);
void store_measure_shortest(struct store_trial *x); /* the shortest lease, from what the others measured */

const char *store_times_print(int64_t us, char *out, size_t size); /* "1.25 ms"; returns out */
