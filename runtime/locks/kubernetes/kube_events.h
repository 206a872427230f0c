/* Kubernetes Events about leading, for `kubectl get events` and `kubectl describe lease`.
 * Not a part of the election: best effort, each sent once, on connections of their own, after what the election itself
 * asks for. Used by the kube lock. Format: core/v1 Event, as client-go's elector makes it. */
#pragma once

#include "locks/kubernetes/kube_object.h"

#include <stdbool.h>

struct kube_api;
struct kube_event;

struct kube_events {             /* zero before the first use */
	struct kube_event *list; /* those that wait and those under way */
	int count;
	void (*ended)(void *arg); /* none is under way any more; NULL: nobody asks */
	void *arg;
};

/* Keeps "IDENTITY became leader" or "IDENTITY stopped leading", about the object as it is now (NULL: nothing is kept),
 * until it is sent. */
void kube_events_add(struct kube_events *e, enum kube_kind kind, const struct json_t *object, const char *ns,
                     const char *name, const char *identity, bool leads);

/* An operation of the lock begins: what was added before is sent after it. An Event costs the server as much as a
 * write, so one that was sent at once would make the release wait, or the next leader's hook. */
void kube_events_ripen(struct kube_events *e);

/* Sends what is ripe. Returns whether any is under way: then `ended` is called later. */
bool kube_events_send(struct kube_events *e, struct kube_api *api);

void kube_events_fini(struct kube_events *e); /* what waits or is under way is given up */
