/* Waits for the deaths of holders on this host: one pidfd for each process, however many elections it holds.
 * Not a proof by itself: when a pidfd says that its process is dead, proof_check runs on a thread until it has a
 * verdict. Used by the elector. */
#pragma once

#include "lease/record.h"

struct ev_loop;
struct death_watches;
struct offload;

struct death_watch { /* in the memory of whoever waits: dead and arg are filled in, the rest is private and zero */
	void (*dead)(void *arg);
	void *arg;
	struct death_watch *next;
	struct watched *of;
};

struct death_watches *death_watches_new(struct ev_loop *loop, struct offload *o);
void death_watches_free(struct death_watches *all);

/* dead is called from the loop once the holder of this record and its tree are proved dead; never if that cannot be
 * proved: the log says so if somebody still waits when a third of the record's lease has passed. Replaces what watch
 * waited for before; the same process asked for again costs nothing. */
void death_watch_watch(struct death_watches *all, struct death_watch *watch, const struct record *r);
void death_watch_forget(struct death_watch *watch);
