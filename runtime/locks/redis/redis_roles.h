/* Which of several Redis servers say that they are primaries: all are asked at once, each on a connection of its own.
 * Not a choice among them, and nothing is remembered: a server that was down may be back at any time.
 * Used by the Redis lock. */
#ifndef LUNARCH_REDIS_ROLES_H
#define LUNARCH_REDIS_ROLES_H

#include "locks/lock.h"
#include "locks/lock_url.h"

struct redis_roles;

struct redis_found {
	int primaries;             /* different ones; a server with two names is one */
	bool cluster;              /* there is one of a cluster, in which many are primaries: those are not counted */
	char peer[2][300];         /* two of them, "127.0.0.1:6379" */
	char run_id[48];           /* of the first; "" = there is none, or it does not say */
	unsigned replicas;         /* bit n: the URL's host n says that it is a replica */
	enum lock_outcome outcome; /* where run_id is "": why, LOCK_FAILED or LOCK_REFUSED */
	struct err why;
};
typedef void redis_roles_fn(void *arg, const struct redis_found *found);

/* url: borrowed until done. Who has not answered after `patience` is not counted. done is called once, never from
 * inside this call. */
struct redis_roles *redis_roles_ask(struct lock_env *env, const struct lock_url *url, nsec patience,
                                    redis_roles_fn *done, void *arg);

/* done will not be called. NULL: nothing. */
void redis_roles_cancel(struct redis_roles *roles);

#endif
