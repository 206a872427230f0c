/* One run of a credential plugin: a program that prints an ExecCredential.
 * Not a cache: kube_auth keeps what it printed. What it prints is never logged.
 * Used by kube_auth. Format: client.authentication.k8s.io/v1 and /v1beta1. */
#pragma once

#include "base/err.h"

#include <stdint.h>

struct kube_exec;
struct kube_exec_run;
struct lock_env;

struct kube_exec_result {
	const char *token, *cert_pem, *key_pem; /* NULL: not given; a token, or a certificate with its key, or both */
	int64_t expires_s;                      /* wall clock; INT64_MAX: not said */
	struct err err;                         /* ERR_NONE: it worked */
};
typedef void kube_exec_done_fn(void *arg, const struct kube_exec_result *r);

#define KUBE_EXEC_SECONDS 60 /* limit_s, but for tests */

/* done is called once, from the loop, never from inside this call, unless it is cancelled first. x is borrowed until
 * then. After limit_s seconds without its end it is killed, with its process group: ERR_TIMEOUT. */
struct kube_exec_run *kube_exec_start(struct lock_env *env, const struct kube_exec *x, double limit_s,
                                      kube_exec_done_fn *done, void *arg);
void kube_exec_cancel(struct kube_exec_run *r); /* kills it */

/* Parses what the program printed; for tests, too. r: filled in, err too; its strings point into *keep, which the
 * caller frees afterwards (json_decref). */
struct json_t;
void kube_exec_parse(const struct kube_exec *x, const char *text, struct kube_exec_result *r, struct json_t **keep);
