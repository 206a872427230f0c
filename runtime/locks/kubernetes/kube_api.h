/* One API server as one identity: requests with credentials, waits for what it asks one to wait for, answers as JSON.
 * Not a lock: it knows nothing of records; and it never repeats what may have been acted upon.
 * Used by the kube lock, its watches and its events. Shared by all locks of a process with the same kubeconfig and
 * context. Source: kubernetes.io/docs/reference/using-api/api-concepts; API priority and fairness for 429. */
#ifndef LUNARCH_KUBE_API_H
#define LUNARCH_KUBE_API_H

#include "base/buf.h"
#include "http/http.h"
#include "locks/kubernetes/kube_auth.h"
#include "locks/kubernetes/kube_config.h"

#include <ev.h>
#include <stdbool.h>

struct json_t;
struct kube_api;
struct lock_env;

/* The one for that kubeconfig and context ("" = the default ones), made if need be; it lives as long as the env.
 * NULL with *err. Reads files. */
struct kube_api *kube_api_get(struct lock_env *env, const char *kubeconfig, const char *context, struct err *err);
const struct kube_config *kube_api_config(const struct kube_api *a);
struct ev_loop *kube_api_loop(const struct kube_api *a);

/* They share no connection. 1,000 Leases take up to 21: 4 for work, 1 for Events, and 16 for watches, which need 10
 * where a server allows 100 streams to a connection (kube-apiserver does), but libcurl 7.88 opens all it may once the
 * first is full (curl#10456). One watch of the namespace would take 1: it needs the right to see every Lease there,
 * which no rule with resourceNames gives. */
enum kube_client {
	KUBE_WORK, /* renewals, and all that a term depends on */
	KUBE_WATCH,
	KUBE_EVENTS,
	KUBE_CLIENTS
};

/* Of one object, with what is around it: API servers store at most 1.5 MB, whose JSON has more, since texts are
 * escaped. A lock's has a hundred values; Endpoints, which others use, have eight for each of at most 1,000 addresses,
 * and their managedFields. */
#define KUBE_OBJECT_BYTES (4 * 1024 * 1024)
#define KUBE_OBJECT_VALUES 50000

struct kube_answer {
	int status;             /* 0: none came */
	bool unsent;            /* surely not acted upon, and no answer: err says why */
	bool repeated;          /* it may have been acted upon more than once */
	struct instant sent_at; /* of the try that was answered */
	struct json_t *object;  /* the body; NULL if it is no JSON object. Borrowed */
	const char *message;    /* a Status' message; "" */
	struct err err;         /* ERR_NONE if a whole answer came, whatever its status says; ERR_FULL: too large for an
	                           object's */
};

struct kube_call; /* in its owner's memory, zero before the first use, busy until done */

struct kube_request {
	enum kube_client client;
	const char *method, *path; /* below the server's URL, with its query. Copied */
	const char *kind;          /* Content-Type of the body; NULL: application/json */
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
	bool busy, streams, asked; /* asked: for another credential, after a 401 */
	struct http_call *http;
	struct kube_credential *credential;
	struct kube_auth_waiter waiter;
	bool waits;      /* for a credential */
	ev_timer timer;  /* a wait the server asked for, or the deadline while there is no request */
	struct buf text; /* the body of what is not streamed although it was to be */
	bool gave_up;    /* an error that waits for its turn to be told */
	struct err why;
};

void kube_api_start(struct kube_api *a, struct kube_call *c, const struct kube_request *r);

/* Ends it: done is called with ERR_CANCELLED before this returns. No-op if it is not busy. */
void kube_api_cancel(struct kube_call *c);

#endif
