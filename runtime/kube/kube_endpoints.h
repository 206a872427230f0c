/* The EndpointSlice that makes one address the only one of a Service without a selector, as JSON: what it is to be, by
 * what the Service and the slice that is there say.
 * Not a client. Used by kube_slice.c. lua/lunarch/kube.lua writes the same object, by the same rules.
 * Formats: core/v1 Service; discovery.k8s.io/v1 EndpointSlice; kubernetes.io/docs/concepts/services-networking/
 * endpoint-slices, "Management" and "Ownership". */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct json_t;
struct service_result;

#define ENDPOINTS_MANAGER "lunarch.dev"
#define ENDPOINTS_TOKEN "lunarch.dev/token" /* annotation: of the term that wrote last */

struct endpoints_wish {
	const char *name;             /* the Service's name */
	const struct json_t *service; /* the Service; NULL: it was not looked at, so the slice's ports and owner stay */
	int port;                     /* where clients come to; 0: at the targetPort of each port */
	bool published;               /* the slice has the address `host` */
	/* its family is that of a new slice, also of one without an address. NULL: the Service's first */
	const char *host;
	int64_t token;
};

/* The whole slice as it is to be, which the caller owns: `slice` with everything else in it kept, or, if that is
 * NULL, a new one. It has the version of `slice`, so that as a merge patch (RFC 7396) it changes this version alone.
 * The Service is its owner, so that it is collected with the Service (without blockOwnerDeletion, which would take a
 * right to the Service's finalizers). NULL: *r says why: SERVICE_FENCED: a larger token has written it;
 * SERVICE_REFUSED: it is somebody else's, or this Service must not have one of ours. */
struct json_t *endpoints_make(const struct json_t *slice, const struct endpoints_wish *w, struct service_result *r);
