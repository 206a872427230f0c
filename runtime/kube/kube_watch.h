/* A watch of one Kubernetes object: its changes as they happen, through dropped connections, without polling.
 * Not a cache: it tells what came over the wire, in order, and when something may have been missed.
 * Used by the kube lock. Source: kubernetes.io/docs/reference/using-api/api-concepts, "efficient detection of
 * changes". */
#pragma once

#include "base/buf.h"
#include "kube/kube_api.h"

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>

struct json_t;

enum kube_news {
	KUBE_CHANGED, /* object: as it is now. Never older than what came before */
	/* it was deleted, or something may have been missed, or the watch has begun or stopped to deliver: look */
	KUBE_LOOK,
};

struct kube_watch { /* embedded in its owner's struct; zero before the first use */
	struct kube_api *api;
	void (*news)(void *arg, enum kube_news what, struct json_t *object); /* object borrowed. May stop the watch */
	void *arg;
	char *path; /* of the collection, with the field selector */
	struct kube_call call;
	/* the next try; or the time by which it has to be open; or, when it is, by which `expected` has to come */
	ev_timer timer;
	enum { KUBE_WATCH_OFF, KUBE_WATCH_OPENING, KUBE_WATCH_LIVE, KUBE_WATCH_WAITING } state;
	bool down;    /* it does not deliver: poll */
	bool refused; /* said already */
	bool erred;   /* an error came in the stream */
	struct instant opened_at;
	int64_t revision; /* go on after this one; 0: from what the server has now */
	int64_t expected; /* a version known from elsewhere, which the watch has yet to show */
	int failures;
	struct buf line;
	const char *lock; /* for the log */
};

/* base: "/apis/.../namespaces/ns/leases". revision: the version that was last read; 0: there is nothing. */
void kube_watch_start(struct kube_watch *w, struct kube_api *api, const char *base, const char *name, int64_t revision,
                      const char *lock);
void kube_watch_stop(struct kube_watch *w);

/* A version of the object was seen by other means. If the watch does not show it soon, its connection is dead whatever
 * TCP says, and it is begun anew. */
void kube_watch_expect(struct kube_watch *w, int64_t revision);

/* false: it is not started, or cannot deliver at present. One that has just been begun counts: it misses nothing if it
 * opens soon. */
bool kube_watch_delivers(const struct kube_watch *w);
