/* The URL of a lock in Kubernetes: //NAMESPACE/NAME?resource=&context=&kubeconfig=&label=&owner=.
 * Not a connection. Used by the kube lock. */
#pragma once

#include "base/err.h"

#include <stddef.h>

struct json_t;

enum kube_kind {
	KUBE_LEASE,
	KUBE_CONFIGMAP,
	KUBE_ENDPOINTS,
};

struct kube_url {
	char *ns, *name;                       /* ns "": the context's, or the pod's */
	char *resource, *context, *kubeconfig; /* context, kubeconfig "": the default */
	enum kube_kind kind[2];                /* two: a pair for a migration, the annotated object first */
	int kinds;
	struct json_t *labels, *owner; /* NULL: none */
};

/* text: what follows "kube:". -1 with *err; u is empty then. */
int kube_url_parse(struct kube_url *u, const char *text, struct err *err);
void kube_url_fini(struct kube_url *u);

/* The same for every spelling of the same lock. malloc'd. */
char *kube_url_print(const struct kube_url *u);
