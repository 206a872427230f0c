/* One stream of notices for all the locks of an etcd server: a watch for each key, added and removed while it runs. Not
 * a proof that nothing has changed: etcd has lost events (its issues 17529, 18089), so standbys also read now and then.
 * Used by the etcd lock. */
#pragma once

#include "locks/etcd/etcd_messages.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct etcd_hub;
struct etcd_server;
struct lock_member;

/* A key that is watched; embedded in the lock, zero before the first use. */
struct etcd_watch {
	struct etcd_watch *next, **slot;
	struct etcd_hub *hub;       /* NULL: not watched */
	const char *key;            /* borrowed, as is the next */
	struct lock_member *member; /* by which the lock is told */
	void (*changed)(void *arg);
	void *arg;
	int64_t known;        /* the lock has seen the store as of this revision */
	int64_t news;         /* something happened at this revision; 0: nothing */
	int64_t latest;       /* the newest revision that was told of */
	Etcd__KeyValue *seen; /* what that revision put there; NULL: it was not said */
	bool nudge;           /* something may have happened */
	bool advice;          /* of a next record, which the user may not be allowed to read: see etcd_watch_start */
	bool suspended;       /* not asked for, since the stream was refused */
	bool busy;            /* the lock is reading or writing, and is told nothing meanwhile */
	size_t id;            /* its number in the stream, and one; 0: it has none */
};

struct etcd_hub *etcd_hub_new(struct etcd_server *s);
void etcd_hub_free(struct etcd_hub *h);

/* Begins; changed is called from the loop. A second call changes only whom to tell. A server that refuses one of the
 * watches refuses the stream, and does not say for which: then those of advice are suspended, and `changed` is called
 * for each, until the next call of this. */
void etcd_watch_start(struct etcd_hub *h, struct etcd_watch *w, void (*changed)(void *arg), void *arg);
void etcd_watch_stop(struct etcd_watch *w);

/* The lock has read or written, and has seen revision `known` (0: it learned nothing): events up to it are no news. If
 * there are later ones, `changed` is called in a later turn of the loop. */
void etcd_watch_settle(struct etcd_watch *w, int64_t known);

/* Inside `changed`: what is at the key by the newest event, if that says it; else NULL, as everywhere else. The caller
 * owns it (etcd_drop). As good as a read: if there is something newer, a notice will come, and a write that expects an
 * old version changes nothing. */
Etcd__KeyValue *etcd_watch_take_seen(struct etcd_watch *w);
