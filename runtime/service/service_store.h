/* Where a Service's address is kept, under compare-and-swap: what a module gives (base/module.h).
 * Not a decision: when to write, and how often to try, is service.c's. Used by service.c;
 * kube_slice.c implements it. */
#pragma once

#include "base/clock.h"
#include "base/err.h"
#include "service/service_target.h"

#include <stdbool.h>
#include <stdint.h>

struct lock_env;
struct service_store;

enum service_aim {
	SERVICE_NOTHING,
	SERVICE_LOOK,     /* whether it could be published: nothing is changed */
	SERVICE_PUBLISH,  /* the address becomes the only one, unless a larger token has written */
	SERVICE_WITHDRAW, /* no address is left, unless a larger token has written */
};

struct service_wish {
	enum service_aim aim;
	int64_t token;
	const char *host; /* SERVICE_PUBLISH: an IP address. Borrowed */
};

enum service_outcome {
	SERVICE_DONE,     /* it is so */
	SERVICE_CONFLICT, /* somebody else wrote meanwhile: look again */
	SERVICE_FENCED,   /* a larger token has written: nothing was changed */
	SERVICE_REFUSED,  /* it must not be done, or the rights are missing: nothing was changed */
	SERVICE_FAILED,   /* perhaps it was done, or will be */
};

struct service_result {
	enum service_outcome outcome;
	bool wrote;     /* SERVICE_DONE: it was not so before */
	struct err err; /* of all but SERVICE_DONE: for people */
};
typedef void service_done_fn(void *arg, const struct service_result *r);

struct service_ops {
	/* lock: the election's URL; a lock in the same kind of store says where that store is. Reads files: not on a
	 * running loop. t: borrowed for the call, which says its namespace, if it has none. NULL with *err. */
	struct service_store *(*open)(struct lock_env *env, struct service_target *t, const char *lock,
	                              struct err *err);
	/* One at a time. done is called once, never from inside this call, at the latest at `by`. */
	void (*apply)(struct service_store *s, const struct service_wish *w, struct instant by, service_done_fn *done,
	              void *arg);
	void (*close)(struct service_store *s); /* what is under way ends, without done */
};
