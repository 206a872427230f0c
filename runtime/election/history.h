/* The last decisions of the electors of one process, for `lunarch ctl why`: the oldest give way to the newest.
 * Not a log: it forgets, and what a busy election says may push out what a quiet one said.
 * Used by the elector. */
#ifndef LUNARCH_HISTORY_H
#define LUNARCH_HISTORY_H

#include "locks/lock.h"

struct buf;
struct history;

/* The one of this env; borrowed. */
struct history *history_of(struct lock_env *env);

/* who: tells electors apart. Adds a line with the time. */
void history_add(struct history *h, const void *who, const char *event, const char *text);

/* Appends its lines, oldest first. */
void history_tell(const struct history *h, const void *who, struct buf *out);

/* Its lines are forgotten: another may get its address. */
void history_forget(struct history *h, const void *who);

#endif
