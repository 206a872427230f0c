/* Room locks/kubernetes: a record in a Lease, or an annotation, of a Kubernetes API server.
 *
 * The election record inside a Kubernetes object: a Lease's spec, or the annotation that ConfigMap and Endpoints locks
 * use, and beside it everything of ours in an annotation of our own that counts only while it is about the same write.
 * Not a client: objects come in and go out as JSON.
 * Used by the kube lock. Formats: coordination.k8s.io/v1 Lease; client-go's LeaderElectionRecord. */
#pragma once

#include "base/err.h"
#include "kube/kube_url.h"
#include "lease/record.h"

#include <stdbool.h>
#include <stdint.h>

struct json_t;

/* What the API calls a kind. */
struct kube_resource {
	const char *api_version, *kind, *plural;
	const char *group; /* as RBAC rules have it; "" is the core group */
	const char *base;  /* path up to and with "/namespaces/" */
};
extern const struct kube_resource kube_resources[];

#define KUBE_LEADER_ANNOTATION "control-plane.alpha.kubernetes.io/leader" /* client-go's, on ConfigMaps and Endpoints */
#define KUBE_RECORD_ANNOTATION "lunarch.dev/record"                       /* ours, on all three */

enum kube_found {
	KUBE_FOUND,   /* a record */
	KUBE_NOTHING, /* the object is there, without any record: free to take, as client-go sees it */
	KUBE_FOREIGN, /* *err says what: never to be overwritten */
};

/* r: initialised; unchanged unless KUBE_FOUND. A record of ours that another client has since replaced gives its term,
 * its checkpoint and the past terms, and nothing else. A holder emptied by hand while ours still says "leading" for the
 * same transitions is reported as that: no holder, RECORD_LEADING, our duration. What is missing or null is 0 or "". */
enum kube_found kube_object_read(enum kube_kind kind, const struct json_t *object, struct record *r, struct err *err);

/* What a write adds to an object's metadata. Borrowed; NULL: nothing. */
struct kube_extras {
	const struct json_t *labels; /* name: value; others are kept */
	const struct json_t *owner;  /* one ownerReference; others are kept */
};

/* The object to send: old with the record in it, everything else of it kept (but managedFields, which the server keeps
 * by itself when they are not sent); old NULL: a new one. The caller's. */
struct json_t *kube_object_write(enum kube_kind kind, const struct json_t *old, const char *ns, const char *name,
                                 const struct record *r, const struct kube_extras *extras);

/* The name of the write (record.h) that made the record, if that is one of ours which nobody has touched since; else
 * "". out: 33 bytes. */
void kube_object_write_name(enum kube_kind kind, const struct json_t *object, char *out);
