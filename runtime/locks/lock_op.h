/* One operation of a lock in a networked store: its deadline, when it was sent, and that it ends exactly once.
 * Not a request: what goes over the wire is the backend's.
 * Used by the lock backends that talk to a server with a client library. */
#ifndef LUNARCH_LOCK_OP_H
#define LUNARCH_LOCK_OP_H

#include "locks/lock.h"
#include "locks/lock_failover.h"

#include <ev.h>

struct buf;
struct lock_call;
struct lock_link;

struct lock_op { /* embedded in the backend's struct; zero before the first use */
	struct ev_loop *loop;
	ev_timer timer; /* the deadline, or the way out of the caller */
	lock_done_fn *done;
	void *arg;
	/* Called before the operation ends by its deadline, a cancel or for lack of a connection: what is under way for
	 * it must not come back to it. May set `sent` and `sent_at`, if only the end of what is under way tells them.
	 */
	void (*detach)(struct lock_op *op);
	struct lock_failover
		*doubt;  /* of the lock: gets the leases that are read; set after begin; NULL: it has none */
	const char *url; /* for messages; the lock's */
	struct instant by, sent_at;
	char *text;             /* of lock_op_print; freed at the end */
	struct lock_link *link; /* of lock_op_ask; NULL: nobody was asked */
	struct lock_call *call;
	bool active, writing;
	bool again;        /* it was repeated */
	bool sent;         /* bytes of it may have left: a write is unknown from here on */
	struct err *early; /* it failed already, and waits for its turn to say so */
	enum lock_outcome early_outcome;
};

/* Begins. l: for its url. */
void lock_op_begin(struct lock_op *op, struct lock_env *env, const struct lock *l, void (*detach)(struct lock_op *op),
                   bool writing, struct instant by, lock_done_fn *done, void *arg);

/* Asks by this link (lock_link_want). Whatever ends the operation early then takes the call back, before that the link
 * is given up if nothing was heard on it until the deadline (lock_link_forget). */
void lock_op_ask(struct lock_op *op, struct lock_link *link, struct lock_call *call);

/* The question was lost with its connection. true: it may be repeated, which only what looks is, and once: a connection
 * that was idle may have been cut long ago. sent: as of lock_call's lost. */
bool lock_op_repeat(struct lock_op *op, bool sent);

/* Right before the request is handed to what sends it: takes the time, and a write is unknown from now on. */
void lock_op_sent(struct lock_op *op);

/* Ends it: r->sent_at is filled in. LOCK_UNKNOWN of a read becomes LOCK_FAILED. r->err, if it says anything, is put
 * behind "reading URL: ". done may close the lock. */
void lock_op_finish(struct lock_op *op, struct lock_result *r);

/* The same with nothing but that outcome and what went wrong. */
void lock_op_fail(struct lock_op *op, enum lock_outcome outcome, enum err_code code, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Ends it without an answer: a write that was sent is unknown, all else has failed. Detaches first. */
void lock_op_give_up(struct lock_op *op, enum err_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* As finish with that outcome, but from the loop, soon: for what is known while the caller is still inside read or
 * write. */
void lock_op_fail_soon(struct lock_op *op, enum lock_outcome outcome, enum err_code code, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* cancel of struct lock_ops. */
void lock_op_cancel(struct lock_op *op);

bool lock_op_is_late(const struct lock_op *op); /* its deadline has passed */

/* Milliseconds until the deadline, for what takes a timeout in them; at least 1. */
int lock_op_left_ms(const struct lock_op *op);

/* A read's end: text is parsed; what is no record of ours becomes LOCK_FOREIGN. what: names the place, "the key x".
 * version and token as in lock_result; the record of a term's first write gets the token that it could not have. */
void lock_op_found(struct lock_op *op, const char *what, const char *text, size_t len, const char *version,
                   int64_t token);

/* The record as op->text, until the operation ends. false: it is larger than any may be, and the operation will say so
 * (fail_soon). */
bool lock_op_print(struct lock_op *op, const struct record *r);

#endif
