/* The last decisions of the electors of one process, for `lunarch ctl why`.
 * Not a log: all electors share a limited room, in which the newest line replaces the oldest.
 * Used by the elector. */
#pragma once

#include "locks/lock.h"

struct buf;
struct decisions;

/* The decisions that all electors of this env share; borrowed. */
struct decisions *decisions_of(struct lock_env *env);

/* who: tells electors apart. Adds a line with the time. */
void decisions_add(struct decisions *h, const void *who, const char *event, const char *text);

/* Appends the lines of `who`, oldest first. */
void decisions_tell(const struct decisions *h, const void *who, struct buf *out);

/* Removes the lines of `who`, since another elector may get the same address. */
void decisions_forget(struct decisions *h, const void *who);
