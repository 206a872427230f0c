/* Notices: a task for each watched key, which runs until the key is watched no longer. If it ends before, it is begun
 * again, ever more rarely, and the elector polls meanwhile.
 * Not a promise: a notice may come without a change.
 * Used by the driver. */
#pragma once

#include <stdbool.h>

struct driver;

/* Asked again for a key that is watched, it says again how that stands. */
void driver_watches_want(struct driver *d, const char *key, bool on);
void driver_watches_opened(struct driver *d);
void driver_watches_fini(struct driver *d); /* after the Lua state is closed */
