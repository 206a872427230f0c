/* Room locks/lua: a record in whatever a lock file in Lua reaches, which a process of its own runs.
 *
 * A driver that is shared by those locks of a process which are at the same place: the lock file, its options, who
 * asks, and, where the key stands behind '#', the path. Not the process and its socket (driver_link.h). Used by the
 * driver lock. */
#pragma once

#include "locks/lock_server.h"
#include "locks/lua/driver_link.h"
#include "locks/lua/driver_place.h"

struct driver_server {
	struct lock_server base;   /* first. Its channels are keys */
	struct driver_place place; /* json and name; the rest is of the lock that came first */
};

/* The one at this place, made if need be. Takes what is in place. lock_server_put gives it back. */
struct driver_server *driver_server_get(struct lock_env *env, struct driver_place *place);
