/* The operations of the lock: each is a task that calls one function of the lock file, ends at its deadline, and is
 * answered exactly once. The elector does not wait for that answer longer than the operation may take: its end of the
 * socket (locks/lua) sees to it. Used by the driver. */
#pragma once

#include "locks/lua/driver_wire.h"

#include <stdint.h>

struct driver;

/* Begins now, or as soon as the store is open. */
void driver_calls_begin(struct driver *d, const struct driver_ask *q);

void driver_calls_cancel(struct driver *d, uint64_t id); /* one that has ended: does nothing */
void driver_calls_opened(struct driver *d);              /* begins what has waited for it */
void driver_calls_fini(struct driver *d);                /* forgets them all; nothing is answered any more */
