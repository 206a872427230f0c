/* Which Service is kept at the leader's address, as `--service [NAMESPACE/]NAME[:PORT]` says it, and that address.
 * Not whether there is such a Service: the store knows (service_store.h).
 * Used by candidate.c, and by the rooms service and kube. */
#pragma once

#include "base/err.h"

#include <stdbool.h>

#define SERVICE_NAME_SIZE 64 /* of RFC 1123's labels, with their end */

struct service_target {
	char ns[SERVICE_NAME_SIZE]; /* "": the lock's, if its URL names one, else the context's, or the pod's */
	char name[SERVICE_NAME_SIZE];
	int port; /* where clients come to at the leader; 0: the targetPort of each of the Service's ports */
};

/* -1 with *err (ERR_USAGE). */
int service_target_parse(struct service_target *t, const char *text, struct err *err);

#define SERVICE_HOST_SIZE 46 /* INET6_ADDRSTRLEN */

/* The IP address of "10.0.0.1", "10.0.0.1:80", "fd00::1" or "[fd00::1]:80", in its canonical form. address "": what
 * POD_IP says in the environment. -1 with *err: there is none, or it is the name of a host. An EndpointSlice may hold
 * such names, but kube-proxy takes addresses alone, and nothing says what a name would mean
 * (kubernetes.io/docs/reference/kubernetes-api, EndpointSlice v1, addressType). */
int service_host(const char *address, char host[SERVICE_HOST_SIZE], struct err *err);
