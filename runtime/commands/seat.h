/* One connection to a lock, with operations that wait for their answer and are timed.
 * Not an elector: what is written, and on what condition, is the caller's.
 * Used by the examination of a store (store_check.c). */
#ifndef LUNARCH_SEAT_H
#define LUNARCH_SEAT_H

#include "locks/lock.h"

struct lock_client {
	struct ev_loop *loop;
	struct lock_env env;
	struct lock *lock;
	struct record record; /* to be written; of a read: found */
	struct version expected;
	struct lock_result result; /* of the last operation; without its record */
	struct lock_about about;
	struct instant asked, answered, changed_at;
	bool busy, changed;
};

/* The loop is borrowed. -1 with *err; lock_client_close all the same. s must be zeroed. */
int lock_client_open(struct lock_client *s, struct ev_loop *loop, const char *url, struct err *err);
void lock_client_close(struct lock_client *s);

/* All of these block for at most five seconds. */
enum lock_outcome lock_client_read(struct lock_client *s);
enum lock_outcome lock_client_remove(struct lock_client *s, const struct version *expected); /* the lock must have it */
enum lock_outcome lock_client_about(struct lock_client *s);                                  /* the lock must have it */

/* Starts to write s->record. No other operation until lock_client_wait has returned. */
void lock_client_start_write(struct lock_client *s, const struct version *expected, bool durable);
enum lock_outcome lock_client_wait(struct lock_client *s);

int64_t lock_client_took_us(const struct lock_client *s); /* the last operation */

bool lock_client_watch(struct lock_client *s);             /* false: no notices here */
bool lock_client_told(struct lock_client *s, nsec within); /* waits until there was a notice since lock_client_quiet */
void lock_client_quiet(struct lock_client *s); /* waits until nothing of what came before is still on its way */

#endif
