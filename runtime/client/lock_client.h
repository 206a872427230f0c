/* Room client: a lock for commands, which do not campaign: operations that block, and a terminal that is drawn on.
 *
 * A command's connection to a lock: operations that wait for their answer and are timed, and waits for a change. Not
 * an elector: what is written, and on what condition, is the caller's. Used by check, release,
 * fence, cron, ctl and the room doctor. list, status, history and leader read locks in Lua
 * (runtime/script/api/lua_lock.c). */
#pragma once

#include "locks/lock.h"

struct lock_client {
	struct ev_loop *loop;
	bool owns_loop;
	struct lock_env env;
	struct lock *lock;
	struct lock *place;   /* of lock_client_open_prefix; NULL: none */
	struct record record; /* to be written; of a read that found one: what it found */
	struct version expected;
	struct lock_result result; /* of the last operation; without its record */
	struct lock_about about;
	nsec within; /* how long an operation may take; 0: five seconds */
	struct instant asked, answered, changed_at;
	bool busy, starting, watches, watched, changed;
	int odd_answers; /* answers that came from inside the start of an operation, or twice */
};

/* c must be zeroed. loop is borrowed; NULL: c makes one of its own. -1 with *err; lock_client_close all the same. */
int lock_client_open(struct lock_client *c, struct ev_loop *loop, const char *url, struct err *err);
void lock_client_close(struct lock_client *c);
const char *lock_client_url(const struct lock_client *c); /* as people see it, without secrets */

/* The same for lock_client_list: see lock_open_prefix, also for *prefix. */
int lock_client_open_prefix(struct lock_client *c, const char *url, char **prefix, struct err *err);

/* After lock_client_open_prefix: c->lock is the lock of this URL until the next call. -1 with *err: none. */
int lock_client_turn_to(struct lock_client *c, const char *url, struct err *err);

/* Starts a read, which has been answered when c->busy is false again. As lock_client_start_write. */
void lock_client_start_read(struct lock_client *c);

/* All of these block for at most c->within. Why an operation failed is in c->result.err. */
enum lock_outcome lock_client_read(struct lock_client *c);
enum lock_outcome lock_client_list(struct lock_client *c, struct lock_listing *out); /* the place must have it */
enum lock_outcome lock_client_remove(struct lock_client *c, const struct version *expected); /* the lock must have it */
enum lock_outcome lock_client_about(struct lock_client *c);                                  /* the lock must have it */

/* Starts to write c->record. No other operation until lock_client_wait has returned. lock_client_cancel: the operation
 * that is under way ends now, if there is one. */
void lock_client_start_write(struct lock_client *c, const struct version *expected, bool durable);
enum lock_outcome lock_client_wait(struct lock_client *c);
void lock_client_cancel(struct lock_client *c);

/* The last read found what says who comes next in an election: no lock. */
bool lock_client_found_next(const struct lock_client *c);

int64_t lock_client_took_us(const struct lock_client *c); /* the last operation */

/* Asks the store for notices of changes, and again before each read: they may become possible, or end. false: it gives
 * none now. Once. */
bool lock_client_watch(struct lock_client *c);

/* Waits for a notice that came since the last lock_client_read or lock_client_drain began: for at most `most`, and for
 * at most `poll` where the store gives no notices. true: there was one. Blocks. */
bool lock_client_wait_change(struct lock_client *c, nsec most, nsec poll);

/* Watches the record that was just read, for at most so long, until it is another one or gone; polls as above. LOCK_OK
 * or LOCK_ABSENT: what the last read found, with *changed; else why that read failed. Blocks. */
enum lock_outcome lock_client_watch_record(struct lock_client *c, nsec most, nsec poll, bool *changed);

/* Waits until notices of earlier changes have stopped coming, and forgets them. Blocks. */
void lock_client_drain(struct lock_client *c);
