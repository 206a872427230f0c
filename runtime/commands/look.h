/* A look at a lock from a command that changes nothing: read the record, wait for a change.
 * Not an elector: it never writes.
 * Used by leader, status and check. */
#ifndef LUNARCH_LOOK_H
#define LUNARCH_LOOK_H

#include "locks/lock.h"

struct look;

struct look *look_open(const char *url, struct err *err); /* NULL with *err */
const char *look_url(const struct look *l);               /* as people see it, without secrets */

/* Reads, for at most 5 s. LOCK_OK: *record (initialised by the caller) is a copy, *at the moment it was received.
 * LOCK_ABSENT; else *err. Blocks. */
enum lock_outcome look_read(struct look *l, struct record *record, struct instant *at, struct err *err);

/* Returns when something may have changed, or after `most`; where the store gives no notice, after `poll` at the
 * latest. */
void look_wait(struct look *l, nsec most, nsec poll);

void look_close(struct look *l);

#endif
