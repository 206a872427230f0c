/* Kubernetes Events about leading, for `kubectl get events` and `kubectl describe lease`.
 * Not a part of the election: best effort, each sent once, on connections of their own, and nothing waits for them.
 * Used by the kube lock. Format: core/v1 Event, as client-go's elector makes it. */
#ifndef LUNARCH_KUBE_EVENTS_H
#define LUNARCH_KUBE_EVENTS_H

#include "locks/kubernetes/kube_object.h"

struct kube_api;
struct kube_event;

struct kube_events {             /* zero before the first use */
	struct kube_event *list; /* those under way */
	int count;
};

/* "IDENTITY became leader" or "IDENTITY stopped leading", about the object (NULL: nothing is sent). */
void kube_events_send(struct kube_events *e, struct kube_api *api, enum kube_kind kind, const struct json_t *object,
                      const char *ns, const char *name, const char *identity, bool leads);

void kube_events_fini(struct kube_events *e); /* what is under way is given up */

#endif
