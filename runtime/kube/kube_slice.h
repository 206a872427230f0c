/* A Service's address in an EndpointSlice of a Kubernetes API server: one attempt to look, publish or withdraw.
 * Not a decision to try again. Used by the module `kube` (lock_kubernetes.c). */
#pragma once

struct service_ops;

extern const struct service_ops kube_slice_ops;
