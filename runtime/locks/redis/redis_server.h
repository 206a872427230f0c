/* Room locks/redis: a record in a string of Redis, its token in a hash beside it.
 *
 * What those Redis locks of a process share that are in the same place: a connection to each host, one for notices, and
 * the question which of several hosts is the primary. Not a lock: it knows of no record. Used by the Redis lock. */
#pragma once

#include "locks/lock_user.h"
#include "locks/redis/redis_place.h"

struct redis_server {            /* of locks with the same place */
	struct lock_server base; /* first */
	struct redis_place place;
	struct lock_link *link; /* to the host that is asked; with Sentinels NULL: a majority names none */
	uint64_t checked; /* the number of its connection on which it was found to be the only primary, plus one */

	int64_t epoch; /* of the Sentinels' choice: it grows with each. Only while there is a link */

	/* The last inquiry. Nothing else of it is remembered: a server that was down may be back at any time. */
	bool several;              /* different hosts say that they are primaries; a server with two names is one */
	enum lock_outcome outcome; /* how an operation ends that needs one primary while the link is not checked */
	struct err why;            /* why it ends so */

	struct lock_pipeline askers; /* private, as what follows: who has asked for the primary */
	struct redis_host *host;     /* one for each of the URL */
	struct redis_host *others;   /* that a cluster or Sentinels have told us of */
	struct lock_url primary; /* whom the notices' link asks, where there are Sentinels; all but the host borrowed */
	unsigned round;          /* the number of the inquiry */
	bool seeks;              /* notices need the primary, so that an inquiry is to begin though nobody asks */
	struct lock_op inquiry;  /* under way; ends it in time */
	bool ending;             /* it is just being ended: the next one begins afterwards */
	char **asked;            /* the channels of (un)subscriptions that were not answered yet, in order */
	size_t asked_count;
	int open; /* hosts that have not answered */
};

/* For lock_server_get, with a struct redis_place. */
extern const struct lock_server_ops redis_server_ops;

/* All hosts are asked, after this call, whether they are primaries, and the link is set to the one that is; if there
 * is none, the link stays. A host that has not answered when a third of the asker's time is over is not counted. In a
 * cluster many hosts are primaries, and each says where a key is: there the link stays, or the first one is taken.
 * Where the hosts are Sentinels, they are asked for the primary, and the link goes to the server that more than half of
 * them name by the same choice, with its epoch; without such a majority it is NULL, and outcome and why say so. More
 * than half of those that are named, and of those that they know of.
 * Then `answered` of the user's call is called, with NULL; it may close the lock. lock_pipeline_forget takes the
 * question back. */
void redis_server_ask(struct redis_server *s, struct lock_user *u);

/* The link to that server of a cluster, with the same user and password. It stays until the next call, and while it
 * is held. */
struct lock_link *redis_server_at(struct redis_server *s, const char *name, int port);

/* A lock keeps a link in *held, instead of the one that was there. NULL: none. Any link may be given. */
void redis_server_hold(struct redis_server *s, struct lock_link **held, struct lock_link *link);

/* The link's host cannot say where a key is: the next host of the URL is asked. */
void redis_server_pass(struct redis_server *s);

/* Whether the link's host is known to be the only primary: what is sent on the link now goes to the server that said
 * so. It is not known any longer once the connection has ended, or the hosts were asked again. */
bool redis_server_is_checked(const struct redis_server *s);
