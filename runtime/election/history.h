/* The last decisions of the electors of one process, for `lunarch ctl why`.
 * Not a log: all electors share a limited room, in which the newest line replaces the oldest.
 * Used by the elector. */
#pragma once

#include "locks/lock.h"

struct buf;
struct history;

/* The history that all electors of this env share; borrowed. */
struct history *history_of(struct lock_env *env);

/* who: tells electors apart. Adds a line with the time. */
void history_add(struct history *h, const void *who, const char *event, const char *text);

/* Appends its lines, oldest first. */
void history_tell(const struct history *h, const void *who, struct buf *out);

/* Removes its lines: another elector may get the same address as `who`. */
void history_forget(struct history *h, const void *who);
