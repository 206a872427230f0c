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

/* For lock_server_get, with a struct redis_place. */
extern const struct lock_server_ops redis_server_ops;

/* What the hosts have said. Nothing of it is remembered: a server that was down may be back at any time. */
struct redis_found {
	bool several;              /* different ones say that they are primaries; a server with two names is one */
	bool cluster;              /* there is one of a cluster, in which many are primaries: those are not counted */
	char run_id[48];           /* of the primary; "" = there is none, or it does not say */
	enum lock_outcome outcome; /* of who needs one primary, if there are several or run_id is "": LOCK_FAILED, */
	struct err why;            /* or LOCK_REFUSED, and why */
};

struct redis_asker {           /* embedded in who asks */
	struct lock_call call; /* first; of it `answered` is called, with a struct redis_found; it may close the lock */
	const struct lock_op *op; /* how long it can wait */
};

/* All hosts are asked, after this call, whether they are primaries, each on a connection of its own. Who has not
 * answered when a third of the asker's time is over is not counted. lock_pipeline_forget takes the question back. */
void redis_server_ask(struct redis_server *s, struct redis_asker *a);

/* Whether the link's host is known to be the only primary. It is no longer once the connection has ended, or the hosts
 * were asked again. */
void redis_server_check(struct redis_server *s, bool is_primary);
bool redis_server_is_checked(const struct redis_server *s);

#endif
