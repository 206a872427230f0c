/* What is looked up in objects of the Kubernetes API, of whatever kind: texts, and what metadata says.
 * Not the record in one (locks/kubernetes/kube_object.h).
 * Used by the rooms kube and locks/kubernetes. */
#pragma once

#include "base/err.h"

#include <stdint.h>

struct json_t;

/* Adds an ownerReference, unless that uid owns it already. The server's collector takes away those of owners that are
 * gone. */
void kube_meta_own(struct json_t *object, const struct json_t *owner);

/* "" if there is no such text. */
const char *kube_text(const struct json_t *object, const char *key);

/* metadata.uid and metadata.resourceVersion; "" if it has none. */
const char *kube_meta_uid(const struct json_t *object);
const char *kube_meta_revision(const struct json_t *object);

/* The resourceVersion as a number, which is what it has been in every API server: tokens and the order of watch events
 * rest on it. -1 with *err: it is none. */
int kube_meta_number(const struct json_t *object, int64_t *number, struct err *err);

/* The object at key, made if there is none. Borrowed. */
struct json_t *kube_child(struct json_t *object, const char *key);
