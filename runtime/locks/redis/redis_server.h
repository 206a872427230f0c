/* Room locks/redis: a record in a hash of Redis.
 *
 * What the Redis locks of a process share that are in the same place: a connection for commands, one for notices, and
 * the question which of several hosts is the primary. Not a lock: it knows of no record. Used by the Redis lock. */
#ifndef LUNARCH_REDIS_SERVER_H
#define LUNARCH_REDIS_SERVER_H

#include "locks/lock_op.h"
#include "locks/lock_server.h"

struct redis_place {
	struct lock_url url;
	int db, replicas;
};

struct redis_server {            /* of locks with the same hosts, user, password, database and replicas */
	struct lock_server base; /* first */
	struct redis_place place;
	struct lock_link *link;
	uint64_t checked;              /* private, as what follows: see redis_server_check */
	struct lock_pipeline askers;   /* who has asked for the primary */
	struct redis_inquiry *inquiry; /* the hosts are being asked; NULL: they are not */
};

/* Of that place, with the caller as a user (lock_server.h); place is spent. */
struct redis_server *redis_server_get(struct lock_env *env, struct redis_place *place);

/* What the hosts have said. Nothing of it is remembered: a server that was down may be back at any time. */
struct redis_found {
	int primaries;             /* different ones; a server with two names is one */
	bool cluster;              /* there is one of a cluster, in which many are primaries: those are not counted */
	char peer[2][300];         /* two of the primaries, "127.0.0.1:6379" */
	char run_id[48];           /* of the first; "" = there is none, or it does not say */
	unsigned replicas;         /* bit n: the URL's host n says that it is a replica */
	enum lock_outcome outcome; /* where run_id is "": why, LOCK_FAILED or LOCK_REFUSED */
	struct err why;
};

struct redis_asker {           /* embedded in who asks */
	struct lock_call call; /* first; of it `answered` is called, with a struct redis_found; it may close the lock */
	const struct lock_op *op; /* how long it can wait */
};

/* All hosts are asked, after this call, whether they are primaries, each on a connection of its own. Who has not
 * answered when a third of the asker's time is over is not counted. */
void redis_server_ask(struct redis_server *s, struct redis_asker *a);
void redis_server_unask(struct redis_server *s, struct redis_asker *a); /* answered is not called */

/* Whether the link's host is known to be the only primary. It is no longer once the connection has ended. */
void redis_server_check(struct redis_server *s, bool is_primary);
bool redis_server_is_checked(const struct redis_server *s);

#endif
