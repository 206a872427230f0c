/* Deaths of holders on this host: one pidfd per process, however many elections it holds.
 * Not a proof by itself: when the pidfd fires, proof_check is run off the loop until it knows.
 * Used by the elector. */
#ifndef LUNARCH_DEATH_WATCH_H
#define LUNARCH_DEATH_WATCH_H

#include "lease/record.h"

struct ev_loop;
struct death_watches;
struct offload;
struct proof_self;

struct death_watch { /* embedded in who waits; private */
	void (*dead)(void *arg);
	void *arg;
	struct death_watch *next;
	struct watched *of;
};

struct death_watches *death_watches_new(struct ev_loop *loop, struct offload *o, const struct proof_self *self);
void death_watches_free(struct death_watches *all);

/* dead is called from the loop once the holder of this record and its tree are proved dead; never if that cannot be
 * proved: the log says so if somebody still waits when a third of the record's lease has passed. Replaces what watch
 * waited for before; the same process asked for again costs nothing. */
void death_watch_watch(struct death_watches *all, struct death_watch *watch, const struct record *r);
void death_watch_forget(struct death_watches *all, struct death_watch *watch);

#endif
