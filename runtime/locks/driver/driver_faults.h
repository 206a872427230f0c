/* What goes wrong between elector, driver and store, on demand: for the examination of a lock file (doctor --full).
 * Not for elections: nothing else calls it.
 * Used by the client, on locks that no election has. Every function is false for a lock that is no driver's. */
#ifndef LUNARCH_DRIVER_FAULTS_H
#define LUNARCH_DRIVER_FAULTS_H

#include "locks/lock.h"

#include <stddef.h>

enum driver_fault {
	DRIVER_FAULT_NONE,
	DRIVER_FAULT_ANSWER_LOST,
	DRIVER_FAULT_ANSWER_LATE,  /* by n milliseconds; it is dropped if the driver was replaced by then */
	DRIVER_FAULT_ANSWER_TWICE, /* the second one is an answer to nothing: the driver is killed and replaced */
	DRIVER_FAULT_MESSAGE_LOST, /* the operation never comes to the driver, and counts as sent */
	/* Of the requests that the driver sends to its store meanwhile, by `http` or `lunarch.mysql`, the answer to the
	 * nth, from 1, does not come to the lock file: */
	DRIVER_FAULT_STORE_LOST,  /* the connection seems to have broken */
	DRIVER_FAULT_STORE_AGAIN, /* the request is sent again, and that answer counts */
};

/* To the next operation of this lock; once. Instead of an earlier call's. */
bool driver_fault_next(struct lock *l, enum driver_fault fault, int n);

/* DRIVER_FAULT_STORE_*, to this lock's last operation: so many requests were sent by it that the nth was among them. */
bool driver_fault_met(struct lock *l);

/* Sends the signal to the lock's driver, as it runs now: SIGKILL, SIGSTOP, SIGCONT. false: none runs. */
bool driver_fault_signal(struct lock *l, int signal);

/* A write of this text, whatever it is, in place of a record: an operation as `write` of struct lock_ops. No token and
 * no doubt goes with it. text and expected are borrowed until done. */
bool driver_fault_write_raw(struct lock *l, const char *text, size_t len, const struct version *expected,
                            struct instant by, lock_done_fn *done, void *arg);

#endif
