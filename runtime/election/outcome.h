/* What the outcome of an operation on a lock means to the machines that asked for it (lease.h, next.h).
 * Not what follows from it: the machines decide that. No state.
 * Used by the elector and by what looks after its next record. */
#pragma once

#include "election/store_contact.h"
#include "lease/lease.h"
#include "locks/lock.h"

enum lease_outcome outcome_of(enum lock_outcome o);

/* Rights, passwords, a store that takes no such record: trying again does not help, somebody has to act. */
bool outcome_is_refusal(enum lock_outcome o);

/* What the failure of a write says of the next one. */
enum write_failure outcome_of_write(const struct lock_result *r);
