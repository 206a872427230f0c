/* The EndpointSlice that makes one address the only one of a Service without a selector, as JSON: what a Service and a
 * slice that are there say, and what is to be sent.
 * Not a client. Used by kube_slice.c. lua/lunarch/kube.lua writes the same object, by the same rules.
 * Formats: core/v1 Service; discovery.k8s.io/v1 EndpointSlice; kubernetes.io/docs/concepts/services-networking/
 * endpoint-slices, "Management" and "Ownership". */
#ifndef LUNARCH_KUBE_ENDPOINTS_H
#define LUNARCH_KUBE_ENDPOINTS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct json_t;

#define ENDPOINTS_MANAGER "lunarch.dev"
#define ENDPOINTS_TOKEN "lunarch.dev/token" /* annotation: of the term that wrote last */

/* The ports for the slice, which have the names of the Service's, since that is how they are matched. port: where
 * clients come to, of a Service with one port; 0: as each port's targetPort says. The caller's. NULL: this Service must
 * not have a slice of ours; *err says why, and what to do. */
struct json_t *endpoints_ports(const struct json_t *service, int port, struct err *err);

/* Whether the Service has addresses of this family at all. -1 with *err: it has none. */
int endpoints_check_family(const struct json_t *service, const char *host, struct err *err);

/* Whether the slice is for addresses of this family: that cannot be changed. -1 with *err: of another. */
int endpoints_check_type(const struct json_t *slice, const char *host, struct err *err);

enum endpoints_found {
	ENDPOINTS_OURS,
	ENDPOINTS_FOREIGN, /* somebody else's: never to be written */
	ENDPOINTS_NEWER,   /* a larger token has written it */
};
/* service: its name. *err: of all but ENDPOINTS_OURS. */
enum endpoints_found endpoints_judge(const struct json_t *slice, const char *service, int64_t token, struct err *err);

/* Whether the slice, which is ours, says just that already, by this token. host NULL: no address; then service and
 * ports do not count. */
bool endpoints_same(const struct json_t *slice, const struct json_t *service, const char *host,
                    const struct json_t *ports, int64_t token);

/* What is to be sent; the caller's. patch: a merge patch (RFC 7396) for this version of the slice alone, which keeps
 * what it does not name. create: a new slice. Both make the Service its owner, so that it is collected with it
 * (without blockOwnerDeletion, which would take a right to the Service's finalizers). */
struct json_t *endpoints_patch(const struct json_t *slice, const struct json_t *service, const char *host,
                               const struct json_t *ports, int64_t token);
/* published: it has the address. Else host gives the family alone; NULL: the Service's first one. ports may be NULL. */
struct json_t *endpoints_create(const struct json_t *service, const char *host, bool published,
                                const struct json_t *ports, int64_t token);

#endif
