/* What a Redis server's INFO says of it: its version, and the settings by which it can lose a record that it has
 * acknowledged. Not asked for here: the lock does. Used by the Redis lock, for doctor. */
#ifndef LUNARCH_REDIS_ABOUT_H
#define LUNARCH_REDIS_ABOUT_H

#include "locks/lock.h"

/* Fills about. info: the answer to INFO. replicas_asked: for how many the lock waits. */
void redis_about(struct lock_about *about, const char *info, int replicas_asked);

#endif
