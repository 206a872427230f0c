/* What the outcome of an operation on a lock means to the machines that asked for it (lease.h, next.h).
 * Not what follows from it: the machines decide that. No state.
 * Used by the elector and by next_link.c. */
#pragma once

#include "election/store_contact.h"
#include "lease/lease.h"
#include "locks/lock.h"

enum lease_outcome outcome_of(enum lock_outcome o);

/* Whether another try would not help, and somebody has to act: rights or a password are missing, or the store takes
 * no such record. */
bool outcome_is_refusal(enum lock_outcome o);

/* What the failure of a write says of the next one. */
enum write_failure outcome_of_write(const struct lock_result *r);
