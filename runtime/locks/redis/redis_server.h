/* What the Redis locks of a process share that are in the same place: a connection for commands, one for notices, and
 * the question which of several hosts is the primary. Not a lock: it knows of no record. Used by the Redis lock. */
#ifndef LUNARCH_REDIS_SERVER_H
#define LUNARCH_REDIS_SERVER_H

#include "locks/lock_op.h"
#include "locks/lock_server.h"
#include "locks/redis/redis_roles.h"

struct redis_place {
	struct lock_url url;
	int db, replicas;
};

struct redis_server {            /* of locks with the same hosts, user, password, database and replicas */
	struct lock_server base; /* first */
	struct redis_place place;
	struct lock_link *link;
	struct redis_roles *roles;  /* the hosts are being asked */
	struct redis_asker *asking; /* for these, and for those who came too late for that */
	bool telling;               /* the first of them are being told */
	bool checked; /* since the link is up, all hosts were asked whether they are primaries, and its own is the one
	               */
};

/* Embedded in who asks, zero but for op and told before the first use. */
struct redis_asker {
	const struct lock_op *op; /* how long it can wait */
	void (*told)(struct redis_asker *a, const struct redis_found *found);
	enum { REDIS_ASKS_NOT, REDIS_ASKS_NOW, REDIS_ASKS_NEXT } asks; /* private, as next */
	struct redis_asker *next;
};

/* Of that place, with the caller as a user (lock_server.h); place is spent. */
struct redis_server *redis_server_get(struct lock_env *env, struct redis_place *place);

/* All hosts are asked, after this call, whether they are primaries; then `told` is called, which may close the lock. */
void redis_server_ask(struct redis_server *s, struct redis_asker *a);
void redis_server_unask(struct redis_server *s,
                        struct redis_asker *a); /* told is not called. No-op if nothing is asked */

#endif
