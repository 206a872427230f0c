/* Room kube: a client of the Kubernetes API: kubeconfig, credentials, requests, watches, a Service's EndpointSlice.
 *
 * Requests to one API server with one set of credentials: it waits when the server asks for that, gets new credentials
 * when they are refused, and gives answers as JSON. Not a lock: it knows nothing of records, and never repeats a write
 * that may have been done.
 * Used by the kube lock, its watches, its events and kube_slice. Shared by all locks of a process with the same
 * kubeconfig and context. Source: kubernetes.io/docs/reference/using-api/api-concepts; API priority and fairness for
 * 429. */
#pragma once

#include "base/buf.h"
#include "kube/kube_auth.h"
#include "kube/kube_config.h"
#include "net/http/http.h"

#include <ev.h>
#include <stdbool.h>

struct json_t;
struct kube_api;
struct lock_env;

/* The client for that kubeconfig and context ("" = the default ones), made if need be; it lives as long as the env.
 * NULL with *err. Reads files. */
struct kube_api *kube_api_get(struct lock_env *env, const char *kubeconfig, const char *context, struct err *err);

const struct kube_config *kube_api_config(const struct kube_api *a);
struct ev_loop *kube_api_loop(const struct kube_api *a);

/* HTTP clients, which share no connection. 1,000 Leases have up to 49 connections: 32 for work, 1 for Events and
 * EndpointSlices, and 16 for watches. Watches need 10, since kube-apiserver allows 100 streams to a connection, but
 * libcurl 7.88 opens all it may once the first is full (curl#10456). One watch of the whole namespace would need 1, and
 * the right to see every Lease there, which no rule with resourceNames gives. */
enum kube_client {
	KUBE_WORK, /* what a term depends on: reads and writes of the lock. HTTP/1.1, the others HTTP/2 */
	KUBE_WATCH,
	KUBE_EVENTS, /* what no term waits for: Events, and the EndpointSlice of --service */
	KUBE_CLIENTS
};

/* Bounds of an answer with one object. API servers store at most 1.5 MB of it, and its JSON is larger, since texts are
 * escaped. A lock's object has a hundred values; Endpoints that others use, too, have eight for each of at most 1,000
 * addresses, and their managedFields. */
#define KUBE_OBJECT_BYTES (4 * 1024 * 1024)
#define KUBE_OBJECT_VALUES 50000

struct kube_answer {
	int status;             /* 0: none came */
	bool unsent;            /* surely not sent, so there is no answer; err says why */
	bool repeated;          /* it was sent more than once, and may have been carried out each time */
	struct instant sent_at; /* of the try that was answered */
	struct json_t *object;  /* the body; NULL if it is no JSON object. Borrowed */
	const char *message;    /* a Status' message; "" */
	/* ERR_NONE if a whole answer came, whatever its status says; ERR_FULL: too large for an object's */
	struct err err;
};

/* Is it the object of this name that is missing? A 404 may also mean that the server does not know the path or the
 * group. */
bool kube_answer_missing(const struct kube_answer *a, const char *name);

/* Says for people what an answer means that was not hoped for. ns, needed: the namespace, and the rights in it that
 * are missing after a 403, as 'the verb "get" of leases'. */
void kube_api_explain(const struct kube_api *a, const struct kube_answer *answer, const char *ns, const char *needed,
                      struct err *err);

struct kube_call; /* embedded in its owner's struct; zero before the first use; busy until done */

struct kube_request {
	enum kube_client client;
	const char *method, *path; /* below the server's URL, with its query. Copied */
	const char *kind;          /* Content-Type of the body; NULL: application/json */
	const char *accept;        /* a literal; NULL: application/json */
	char *body;                /* taken; NULL: none */
	struct instant by;         /* { 0 }: none */
	nsec first_byte;           /* as in http.h */
	/* The bytes of a 200 as they come; NULL: collected. */
	void (*opened)(void *arg); /* before the first of them */
	void (*data)(void *arg, const char *bytes, size_t len);
	void (*done)(void *arg,
	             const struct kube_answer *a); /* once; never from inside kube_api_start. The call is free again */
	void *arg;
};

struct kube_call {
	struct kube_api *api;
	struct kube_request r;     /* path owned */
	bool busy, streams, asked; /* asked: another credential was asked for, after a 401 */
	struct http_call *http;
	struct kube_credential *credential;
	struct kube_auth_waiter waiter;
	bool waits;      /* for a credential */
	ev_timer timer;  /* a wait the server asked for, or the deadline while there is no request */
	struct buf text; /* the body of an answer that was to be streamed, but is an error */
	struct err *why; /* told in the next turn of the loop; NULL: it has not given up */
};

void kube_api_start(struct kube_api *a, struct kube_call *c, const struct kube_request *r);

/* Ends it: done is called with ERR_CANCELLED before this returns. No-op if it is not busy. */
void kube_api_cancel(struct kube_call *c);
