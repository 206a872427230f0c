/* One connection to a lock, with operations that wait for their answer and are timed.
 * Not an elector: what is written, and on what condition, is the caller's.
 * Used by the examination of a store (store_check.c). */
#ifndef LUNARCH_SEAT_H
#define LUNARCH_SEAT_H

#include "locks/lock.h"

struct seat {
	struct ev_loop *loop;
	struct lock_env env;
	struct lock *lock;
	struct record record;       /* to be written; of a read: found */
	struct version expected;
	struct lock_result result;  /* of the last operation; without its record */
	struct lock_about about;
	struct instant asked, answered, changed_at;
	bool busy, changed;
};

/* The loop is borrowed. -1 with *err; seat_close all the same. s must be zeroed. */
int seat_open(struct seat *s, struct ev_loop *loop, const char *url, struct err *err);
void seat_close(struct seat *s);

/* All of these block for at most five seconds. */
enum lock_outcome seat_read(struct seat *s);
enum lock_outcome seat_remove(struct seat *s, const struct version *expected); /* the lock must have it */
enum lock_outcome seat_about(struct seat *s);                                  /* the lock must have it */

/* Starts to write s->record. No other operation until seat_wait has returned. */
void seat_start_write(struct seat *s, const struct version *expected, bool durable);
enum lock_outcome seat_wait(struct seat *s);

int64_t seat_took_us(const struct seat *s);      /* the last operation */

bool seat_watch(struct seat *s);                 /* false: no notices here */
bool seat_told(struct seat *s, nsec within);     /* waits until there was a notice since seat_quiet */
void seat_quiet(struct seat *s);                 /* waits until nothing of what came before is still on its way */

#endif
