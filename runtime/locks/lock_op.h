/* One operation of a lock: its deadline, when it was sent, what its failure means, and that it ends exactly once.
 * Not a request: what goes over the wire, or to the file system, is the backend's.
 * Used by all lock backends but "none". */
#pragma once

#include "locks/lock.h"
#include "locks/lock_failover.h"

#include <ev.h>

struct buf;
struct lock_call;
struct lock_link;

struct lock_op { /* embedded in the backend's struct; zero before the first use */
	struct ev_loop *loop;
	ev_timer timer; /* the deadline, or the time of `soon` */
	lock_done_fn *done;
	void *arg;
	void (*detach)(struct lock_op *op);
	void (*soon)(struct lock_op *op); /* of lock_op_soon or lock_op_after, until it is called */
	struct lock_result *early;        /* of lock_op_fail_soon, until it is given */
	struct instant by, sent_at;
	char *text;             /* of lock_op_print, as are these; freed at the end */
	bool leads;             /* the record names a leader */
	nsec lease;             /* the lease that the record publishes */
	struct lock_link *link; /* of lock_op_ask; NULL: nobody was asked */
	struct lock_call *call;
	bool active;
	bool again;  /* it was repeated */
	bool advice; /* of a next record, which has no token */

	/* The backend may set the rest after lock_op_begin. */
	bool writing, removing;      /* what messages say; a write that was sent may be unknown, a read only fails */
	bool sent;                   /* bytes of it may have left: a write is unknown from here on */
	const char *name;            /* of the lock, in messages. Borrowed. At first its URL */
	const char *late;            /* what a passed deadline is called; NULL: whether the request was sent */
	struct lock_failover *doubt; /* of the lock, told of what is read and written; NULL: it has none */
};

/* Begins. l: for its URL. by: the deadline; { 0 }: none, since what is asked has it, and ends in time by itself.
 * detach: called before the operation ends by its deadline, by a cancel or by lock_op_give_up; what is under way for it
 * must not come back to it. It may set `writing`, `sent` and `sent_at`, if only the end of what is under way tells
 * them. NULL: nothing is under way but what lock_op_ask knows of. */
void lock_op_begin(struct lock_op *op, struct lock_env *env, const struct lock *l, void (*detach)(struct lock_op *op),
                   bool writing, struct instant by, lock_done_fn *done, void *arg);

/* Asks by this link (lock_link_want). If the operation ends before the answer, it takes the call back; if that is at
 * the deadline and nothing was heard on the link since the question, the link is given up (lock_link_forget). */
void lock_op_ask(struct lock_op *op, struct lock_link *link, struct lock_call *call);

/* The question was lost with its connection. true: it may be asked once more. That is so for a read, once: a connection
 * that was idle may have been cut long ago. sent: as of lock_call's lost. */
bool lock_op_repeat(struct lock_op *op, bool sent);

/* Right before the request is handed to what sends it: takes the time, and a write is unknown from now on. */
void lock_op_sent(struct lock_op *op);

/* Ends it with this result, whose sent_at is filled in; LOCK_UNKNOWN of a read becomes LOCK_FAILED. done may close the
 * lock. Does nothing if it has ended. */
void lock_op_finish(struct lock_op *op, struct lock_result *r);

/* The same with nothing but that outcome and what went wrong, behind "reading NAME: ". */
void lock_op_fail(struct lock_op *op, enum lock_outcome outcome, enum err_code code, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* As lock_op_fail, for lack of an answer: a write that was sent is unknown, all else has failed. Detaches first. */
void lock_op_give_up(struct lock_op *op, enum err_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Calls `then` in the next turn of the loop, which has to end the operation: for a result that is known while the
 * caller is still inside read or write. Until then the operation can be cancelled. */
void lock_op_soon(struct lock_op *op, void (*then)(struct lock_op *op));

/* Calls `then` when the time `after` has passed, unless the operation ends or calls this again before. after: less
 * than the deadline is away. then: NULL: nothing is to be called any more. */
void lock_op_after(struct lock_op *op, nsec after, void (*then)(struct lock_op *op));

/* As lock_op_fail, in the next turn of the loop. The first one counts. */
void lock_op_fail_soon(struct lock_op *op, enum lock_outcome outcome, enum err_code code, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* cancel of struct lock_ops. */
void lock_op_cancel(struct lock_op *op);

bool lock_op_is_late(const struct lock_op *op); /* its deadline has passed */

/* Milliseconds until the deadline, for what takes a timeout in them; at least 1. */
int lock_op_left_ms(const struct lock_op *op);

/* A read's end: text is parsed; what is no record of ours becomes LOCK_FOREIGN. what: names the place, "the key x".
 * version and token as in lock_result; the record of a term's first write gets the token, which a store that makes
 * tokens cannot put into the write that makes it. */
void lock_op_found(struct lock_op *op, const char *what, const char *text, size_t len, const char *version,
                   int64_t token);

/* The same with a record that the backend has parsed. */
void lock_op_found_record(struct lock_op *op, struct record *r, const char *version, int64_t token);

/* The record as op->text, until the operation ends. false: it is larger than any may be, and the operation will say so
 * (lock_op_fail_soon). */
bool lock_op_print(struct lock_op *op, const struct record *r);
