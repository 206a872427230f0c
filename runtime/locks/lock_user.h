/* The operations of struct lock_ops, and what the one under way asks for; also of locks that share a server
 * (lock_server.h). Not a protocol: what is sent for an operation, and what its answer means, is the backend's. Used by the
 * file lock and by the locks in stores whose connections are links (lock_link.h). */
#pragma once

#include "locks/lock_op.h"
#include "locks/lock_server.h"

#include <stddef.h>

struct lock_user;

/* What the backend gives, a const table. */
struct lock_user_ops {
	/* An operation begins, of which lock_user has all that it asks for. With a server it ends in lock_op_ask, with
	 * the user's call. */
	void (*begin)(struct lock_user *u);
	void (*detach)(struct lock_op *op); /* as of lock_op_begin; may be NULL */
	void (*free)(struct lock_user *u);  /* frees the backend's struct; NULL: free. The server is there still */
	struct lock_call call;              /* its callbacks, of locks that have a server */
};

struct lock_user { /* first member of the backend's struct */
	struct lock lock;
	const struct lock_user_ops *ops;
	struct lock_env *env;
	struct lock_server *server; /* NULL: it has none, and no member, channel and call */
	struct lock_member member;
	char *channel; /* on which notices come */
	struct lock_failover doubt;

	/* The operation: a look, a list, or one that asks `about` the server; a write of op.text, or, if
	 * op.removing, a removal. */
	struct lock_op op;
	struct lock_call call;
	struct lock_about *about;     /* to be filled in; NULL: it is another one */
	struct lock_listing *listing; /* the same */
	struct version expected;      /* of a write or a removal, as are these: */
	int64_t token;                /* in the record that is written */
	bool durable;
	bool acquiring; /* the record begins a term: it has no token yet */
};

/* url, server (lock_server_get) and channel become the lock's. The rest of u is zero. A lock without a server has lock, ops
 * and env set instead. */
void lock_user_init(struct lock_user *u, const struct lock_ops *lock, const struct lock_user_ops *ops, char *url,
                    struct lock_server *server, char *channel);

/* For struct lock_ops. */
void lock_user_read(struct lock *l, struct instant by, lock_done_fn *done, void *arg);
void lock_user_write(struct lock *l, const struct record *r, const struct version *expected, bool durable,
                     struct instant by, lock_done_fn *done, void *arg);
void lock_user_remove(struct lock *l, const struct version *expected, struct instant by, lock_done_fn *done, void *arg);
void lock_user_about(struct lock *l, struct lock_about *about, struct instant by, lock_done_fn *done, void *arg);
void lock_user_list(struct lock *l, struct lock_listing *out, struct instant by, lock_done_fn *done, void *arg);
void lock_user_cancel(struct lock *l);
bool lock_user_watch(struct lock *l, lock_changed_fn *changed, void *arg);
void lock_user_close(struct lock *l);
struct lock_identity *lock_user_identity(struct lock *l);

/* Those that are the same in all; `watch` of one with a server is lock_user_watch, or calls it. */
#define LOCK_USER_OPS                                                                                           \
	.read = lock_user_read, .write = lock_user_write, .cancel = lock_user_cancel, .close = lock_user_close, \
	.list = lock_user_list, .about = lock_user_about, .remove = lock_user_remove

/* Ends the operation with this outcome and nothing else; or well, with what a write has made, token 0: none. */
void lock_user_end(struct lock_user *u, enum lock_outcome outcome);
void lock_user_wrote(struct lock_user *u, const char *version, int64_t token);

/* Ends a write that may not begin a term: the store's doubt has this name (lock_failover.h), and `why` is what is said of
 * it. Another term than the one that the record shows may have been lost. */
void lock_user_doubts(struct lock_user *u, const char *mark, const char *why);

/* The operation under way is a write that begins a term or ends one: others wait for it and for what follows it. */
static inline bool lock_user_hands_over(const struct lock_user *u)
{
	return u->op.writing && !u->op.removing && !u->lock.advice && (u->acquiring || !u->op.leads);
}

/* The user whose call this is. */
static inline struct lock_user *lock_user_of_call(struct lock_call *c)
{
	return (struct lock_user *)(void *)((char *)c - offsetof(struct lock_user, call));
}

static inline struct lock_user *lock_user_of_op(struct lock_op *op)
{
	return (struct lock_user *)(void *)((char *)op - offsetof(struct lock_user, op));
}
