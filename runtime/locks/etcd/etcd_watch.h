/* One stream of notices for all the locks of an etcd client: a watch for each key, on one connection, added and removed
 * while it runs. Not a proof that nothing has changed: etcd has lost events (its issues 17529, 18089), so standbys also
 * read now and then. Used by the etcd lock. */
#ifndef LUNARCH_ETCD_WATCH_H
#define LUNARCH_ETCD_WATCH_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct etcd_client;
struct json_t;
struct etcd_hub;

/* A key that is watched; embedded in the lock, zero before the first use. */
struct etcd_watch {
	struct etcd_watch *next, **slot;
	struct etcd_hub *hub; /* NULL: not watched */
	const char *key64;    /* borrowed */
	void (*changed)(void *arg);
	void *arg;
	int64_t known;       /* the lock has seen the store as of this revision */
	int64_t news;        /* something happened at this revision; 0: nothing */
	int64_t latest;      /* the newest revision that was told of, */
	struct json_t *seen; /*     and what it put there; NULL: it was not said */
	bool nudge;          /* something may have happened */
	bool busy;           /* the lock is reading or writing, and is told nothing meanwhile */
	size_t id;           /* in the stream; 0: there is none */
};

struct etcd_hub *etcd_hub_new(struct etcd_client *c, struct err *err);
void etcd_hub_free(struct etcd_hub *h); /* NULL is nothing */

/* Begins; changed is called from the loop. Twice is once. */
void etcd_watch_start(struct etcd_hub *h, struct etcd_watch *w);
void etcd_watch_stop(struct etcd_watch *w);

/* The lock has read or written, and has seen revision `known` (0: it learned nothing): events up to it are no news. If
 * there are later ones, `changed` is called in a later turn of the loop. */
void etcd_watch_settle(struct etcd_watch *w, int64_t known);

/* Inside `changed`: what is at the key (etcd's kv) by the newest event, if that says it; else NULL, as everywhere else.
 * Borrowed until `changed` returns. As good as a read: if there is something newer, a notice
 * will come, and a write that expects an old version changes nothing. */
struct json_t *etcd_watch_seen(const struct etcd_watch *w);

/* This endpoint did not answer a request in time: if the stream comes from there, another one is begun elsewhere. */
void etcd_hub_suspect(struct etcd_hub *h, int endpoint);

#endif
