/* Makes things go wrong between elector, driver and store, when it is asked to: it sits between the two ends of a
 * driver's socket (a tap, driver_link.h), and passes on all that they say but for the fault that was asked for. Not
 * for elections: only the whole examination of a lock file (doctor --full) has one. Used by the cases of
 * store_full_*.c. */
#pragma once

#include "locks/lock.h"

#include <stddef.h>

enum driver_fault {
	DRIVER_FAULT_NONE,
	DRIVER_FAULT_ANSWER_LOST,
	DRIVER_FAULT_ANSWER_LATE,  /* by n milliseconds; it is dropped if the driver was replaced by then */
	DRIVER_FAULT_ANSWER_TWICE, /* the second one is an answer to nothing: the driver is killed and replaced */
	DRIVER_FAULT_MESSAGE_LOST, /* the operation never comes to the driver, and counts as sent */
	/* Of the requests that the driver sends to its store meanwhile, by `http`, `lunarch.mysql` or `lunarch.tcp`, the answer to the
	 * nth, from 1, does not come to the lock file: */
	DRIVER_FAULT_STORE_LOST,  /* the connection seems to have broken */
	DRIVER_FAULT_STORE_AGAIN, /* the request is sent again, and that answer counts */
};

/* Sits at the driver that the locks of this env share. It is made before one is started, and freed after the env. */
struct driver_faults *driver_faults_new(struct ev_loop *loop, struct lock_env *env);
void driver_faults_free(struct driver_faults *f); /* NULL: nothing */

/* The next operation has this fault, once, instead of one that was asked for before. Here and below, false: no driver
 * was ever started, so this is no lock in Lua. */
bool driver_fault_next(struct driver_faults *f, enum driver_fault fault, int n);

/* The next write is of this text, whatever it is, in place of its record; it makes no doubt, and waits for none. */
bool driver_fault_raw(struct driver_faults *f, const char *text, size_t len);

/* Whether the last DRIVER_FAULT_STORE_* came about: so many requests were sent by its operation that the nth was among
 * them. */
bool driver_fault_met(const struct driver_faults *f);

/* Sends the signal to the driver, as it runs now: SIGKILL, SIGSTOP, SIGCONT. false: none runs. */
bool driver_fault_signal(struct driver_faults *f, int signal);
