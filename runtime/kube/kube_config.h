/* Where an API server is and what to log in with: from kubeconfig files as kubectl reads them, or a pod's service
 * account. Not a connection: tokens that change and plugins that make them are kube_auth's.
 * Used by the kube lock. Format: kubernetes.io/docs/reference/config-api/kubeconfig.v1. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct json_t;

#define KUBE_POD_DIR "/var/run/secrets/kubernetes.io/serviceaccount"
#define KUBE_HEADERS 64

/* A program that prints credentials (client.authentication.k8s.io). command NULL: none. */
struct kube_exec {
	char *api_version, *command, *hint; /* hint: how to install it; NULL */
	char **argv, **env;                 /* NULL-terminated; argv with the command; env as NAME=VALUE */
	struct json_t *cluster;             /* spec.cluster of what it is told; NULL: it is not */
};

/* Owned strings; NULL: not given. Files have absolute paths, unless a path of $KUBECONFIG was relative. */
struct kube_config {
	char *origin; /* for messages: "the context x of /home/me/.kube/config", "the pod's service account" */
	char *server; /* https://HOST[:PORT][/PATH], without a slash at the end */
	char *ns;     /* never NULL: "default" if nothing says otherwise */
	char *server_name, *proxy;
	char *ca_file, *ca_pem, *cert_file, *cert_pem, *key_file, *key_pem;
	bool insecure;
	bool withheld; /* there were credentials, which are not sent over http:// */
	char *token, *token_file, *user, *password;
	char *headers[KUBE_HEADERS + 1]; /* impersonation: "Impersonate-User: x"; NULL-terminated */
	struct kube_exec exec;
};

/* file: a kubeconfig; NULL or "": the files of $KUBECONFIG; if that is empty too, the pod's service account if there is
 * one, else ~/.kube/config. context: NULL or "": the current one. Reads files: when a lock is opened, not on a running
 * loop. -1: *err names the file and what is wrong in it, without secrets. c is empty then. */
int kube_config_load(struct kube_config *c, const char *file, const char *context, struct err *err);

/* The parts of it, for tests. paths: separated by ':'. dir: where the service account's files are. */
int kube_config_from_files(struct kube_config *c, const char *paths, const char *context, struct err *err);
int kube_config_from_pod(struct kube_config *c, const char *dir, struct err *err);

void kube_config_fini(struct kube_config *c); /* secrets are wiped */

/* Frees a string after wiping it. */
void kube_wipe(char *secret);
