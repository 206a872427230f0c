/* Room locks/driver: a record in whatever a lock file in Lua reaches, which a process of its own runs.
 *
 * A driver as the locks of a process share it that are at the same place: the lock file, its options, who asks, and,
 * where the key stands behind '#', the path. Not the process and its socket (driver_link.h). Used by the driver lock.
 */
#ifndef LUNARCH_DRIVER_SERVER_H
#define LUNARCH_DRIVER_SERVER_H

#include "locks/lock_server.h"

struct driver_server {
	struct lock_server base; /* first */
	char *place;             /* the message OPEN's; equal texts are the same place */
};

/* The one at this place, made if need be. Takes place. lock_server_put gives it back. */
struct driver_server *driver_server_get(struct lock_env *env, char *place);

#endif
