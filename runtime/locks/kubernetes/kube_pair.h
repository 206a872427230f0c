/* The objects of a lock in Kubernetes: one, or a pair (a ConfigMap or Endpoints, and a Lease) while clients that know
 * only one of them share the lock. What they say together: a record, a version, a token.
 * Not a client: it sends nothing. Used by the kube lock. Source: client-go's MultiLock (tools/leaderelection). */
#pragma once

#include "kube/kube_url.h"
#include "kube/kube_watch.h"
#include "locks/kubernetes/kube_object.h"

struct kube_lock;

struct kube_part {
	struct kube_lock *lock;
	enum kube_kind kind;
	char *base;            /* path of the collection */
	struct json_t *object; /* as last seen; NULL: it was not there */
	int64_t newest;        /* the largest version seen */
	struct kube_watch watch;
};

struct kube_pair {
	struct kube_part part[2]; /* the last one is the Lease, if there are two */
	int count;
	const struct kube_url *url;
	struct {
		char write[33], uid[64];
		int64_t token;
	} first; /* what kube_pair_token has answered last, and of which record */
};

/* The parts that the URL names, without objects. url: borrowed, outlives p. Each part's watch calls news(part, ...). */
void kube_pair_init(struct kube_pair *p, struct kube_lock *lock, const struct kube_url *url,
                    void (*news)(void *part, enum kube_news what, struct json_t *object));
void kube_pair_fini(struct kube_pair *p); /* stops the watches */

/* The part's object is now this one (NULL: it is gone), unless a watch has shown a newer one. Takes a reference. */
void kube_part_keep(struct kube_part *part, struct json_t *object);

/* "": none is there. Else the start of the uid and the whole version of each part, "-" for one that is not there. */
struct version kube_pair_version(const struct kube_pair *p);
void kube_version_add(struct version *v, const struct json_t *object); /* adds the version of the next part */

/* The last part that is there: a pair's Lease is written last. */
struct json_t *kube_pair_last(const struct kube_pair *p);

/* The token of the record by that write, which the last part shows: that part's version. As long as the same object
 * (uid) shows this write, it is the version with which the write was first seen: so somebody who edits a label gives
 * the record no other token. */
int64_t kube_pair_token(struct kube_pair *p, const struct json_t *last, const char *write);

/* What the objects say together. KUBE_NOTHING: there is no record in any. KUBE_FOREIGN: *err says which part is, and
 * why. r: initialised. */
enum kube_found kube_pair_read(const struct kube_pair *p, struct record *r, struct err *err);
