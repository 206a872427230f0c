/* The credentials that requests to an API server are sent with: certificates and tokens in files that change, a
 * password, or what a plugin printed. Not a connection. What failed is tried again when it is asked for again.
 * Used by kube_api. Formats: client.authentication.k8s.io/v1 ExecCredential. */
#pragma once

#include "base/err.h"
#include "kube/kube_config.h"
#include "net/http/http.h"

#include <stdbool.h>
#include <stdint.h>

struct kube_auth;
struct lock_env;

/* The credentials at one time. A request holds them until it is done, since it points into them. */
struct kube_credential {
	int refs;
	uint64_t number; /* another one for every change */
	/* another one after the certificate's files have changed: older connections use the old certificate */
	uint64_t files;
	char *token; /* NULL: none */
	char *cert_pem, *key_pem;
	struct http_tls tls; /* points into this struct and into the config */
	int64_t expires_s;   /* wall clock, seconds since 1970; INT64_MAX: never known to */
};

struct kube_auth_waiter {
	struct kube_auth_waiter *next;
	/* From the loop, once. err NULL: kube_auth_take now gives one. The waiter is free again. */
	void (*done)(struct kube_auth_waiter *w, const struct err *err);
};

/* c is borrowed and must outlive it. Starts nothing. */
struct kube_auth *kube_auth_new(struct lock_env *env, const struct kube_config *c);
void kube_auth_free(struct kube_auth *a); /* nobody waits any more; a plugin that runs is killed */

/* The current credential, to be dropped later; NULL: there is none, or it is known to be stale: wait for one. Looks at
 * its files again, in the background, when that was last done a minute ago. */
struct kube_credential *kube_auth_take(struct kube_auth *a);
void kube_credential_drop(struct kube_credential *c);

/* Makes a new one (reads its files, runs the plugin), off the loop, and says when that is done. */
void kube_auth_wait(struct kube_auth *a, struct kube_auth_waiter *w);
void kube_auth_unwait(struct kube_auth *a, struct kube_auth_waiter *w);

/* The server refused the one with this number: unless there is a newer one already, kube_auth_take gives none until
 * another was made. false: it cannot change, so it is no use to ask again. */
bool kube_auth_doubt(struct kube_auth *a, uint64_t number);
