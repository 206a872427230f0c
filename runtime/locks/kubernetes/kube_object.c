#include "locks/kubernetes/kube_object.h"

#include "base/buf.h"
#include "base/json_bound.h"
#include "base/mem.h"
#include "kube/kube_meta.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CORE "/api/v1/namespaces/"
#define LEADER_VALUES 1000 /* in client-go's annotation, which has seven */

const struct kube_resource kube_resources[] = {
	[KUBE_LEASE] = { "coordination.k8s.io/v1", "Lease", "leases", "coordination.k8s.io",
	                 "/apis/coordination.k8s.io/v1/namespaces/" },
	[KUBE_CONFIGMAP] = { "v1", "ConfigMap", "configmaps", "", CORE },
	[KUBE_ENDPOINTS] = { "v1", "Endpoints", "endpoints", "", CORE },
};

static const char *transitions_key(enum kube_kind kind)
{
	return kind == KUBE_LEASE ? "leaseTransitions" : "leaderTransitions";
}

/* ---- looking into an object ---- */

static const json_t *annotation(const json_t *object, const char *name)
{
	return json_object_get(json_object_get(json_object_get(object, "metadata"), "annotations"), name);
}

static int wrong(const char *key, const json_t *found, const char *expected, struct err *err)
{
	char *text = json_dumps(found, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);

	err_set(err, ERR_INVALID, "%s is %.80s, expected %s", key, text ? text : "unprintable", expected);
	free(text);
	return -1;
}

/* ---- the fields that every client has ---- */

struct public
{
	struct record record;
	bool any; /* at least one of the fields is there */
	bool has_transitions;
};

/* NULL: not there, or null, which is the same to the API. */
static const json_t *value_of(const json_t *object, const char *key, struct public *p)
{
	const json_t *value = json_object_get(object, key);

	if (!value || json_is_null(value))
		return NULL;
	p->any = true;
	return value;
}

static int get_number(const json_t *object, const char *key, int64_t *out, struct public *p, struct err *err)
{
	const json_t *value = value_of(object, key, p);

	if (!value)
		return 0;
	if (!json_is_integer(value) || json_integer_value(value) > INT32_MAX)
		return wrong(key, value, "a whole number of 32 bits", err);
	*out = json_integer_value(value) > 0 ? json_integer_value(value) : 0;
	return 0;
}

static int get_time(const json_t *object, const char *key, int64_t *us, struct public *p, struct err *err)
{
	const json_t *value = value_of(object, key, p);

	if (!value)
		return 0;
	if (!json_is_string(value) || record_time_parse(json_string_value(value), us) < 0)
		return wrong(key, value, "a time such as \"2024-05-01T12:00:00.000000Z\"", err);
	return 0;
}

static int get_public(enum kube_kind kind, const json_t *from, struct public *p, struct err *err)
{
	struct record *r = &p->record;
	const json_t *holder = value_of(from, "holderIdentity", p);
	int64_t seconds = 0;

	if (holder && !json_is_string(holder))
		return wrong("holderIdentity", holder, "a string", err);
	if (holder)
		mem_replace(&r->holder, json_string_value(holder));
	p->has_transitions = json_is_integer(json_object_get(from, transitions_key(kind)));
	if (get_number(from, "leaseDurationSeconds", &seconds, p, err) < 0 ||
	    get_number(from, transitions_key(kind), &r->transitions, p, err) < 0 ||
	    get_time(from, "acquireTime", &r->acquired_us, p, err) < 0 ||
	    get_time(from, "renewTime", &r->renewed_us, p, err) < 0)
		return -1;
	r->lease_ms = seconds * 1000;
	return 0;
}

/* A controller of Kubernetes elects the holders of coordinated Leases, and would fight with us. */
static int check_uncoordinated(const json_t *spec, struct err *err)
{
	const json_t *strategy = json_object_get(spec, "strategy");

	if (!strategy || json_is_null(strategy))
		return 0;
	return err_set(err, ERR_FOREIGN, "spec.strategy is \"%.80s\": this Lease is under coordinated leader election",
	               json_is_string(strategy) ? json_string_value(strategy) : "?");
}

static int read_lease(const json_t *object, struct public *p, struct err *err)
{
	const json_t *spec = json_object_get(object, "spec");

	if (!spec || json_is_null(spec))
		return 0;
	if (!json_is_object(spec))
		return wrong("spec", spec, "an object", err);
	if (check_uncoordinated(spec, err) < 0 || get_public(KUBE_LEASE, spec, p, err) < 0)
		return err_wrap(err, "spec");
	return 0;
}

static int read_annotated(enum kube_kind kind, const json_t *object, struct public *p, struct err *err)
{
	const json_t *text = annotation(object, KUBE_LEADER_ANNOTATION);

	if (!text)
		return 0;
	json_t *from = json_bound_load(json_string_value(text), json_string_length(text), JSON_REJECT_DUPLICATES,
	                               LEADER_VALUES, NULL);
	if (!json_is_object(from)) {
		json_decref(from);
		return err_set(err, ERR_INVALID, "the annotation " KUBE_LEADER_ANNOTATION " is no JSON object");
	}
	int done = get_public(kind, from, p, err);
	json_decref(from);
	p->any = true; /* an empty object is a record too: client-go's zero values */
	return done < 0 ? err_wrap(err, "the annotation " KUBE_LEADER_ANNOTATION) : 0;
}

static int read_public(enum kube_kind kind, const json_t *object, struct public *p, struct err *err)
{
	return kind == KUBE_LEASE ? read_lease(object, p, err) : read_annotated(kind, object, p, err);
}

/* ---- ours ---- */

/* 1: there is one; 0: none; -1: *err. ours: initialised. */
static int read_ours(const json_t *object, struct record *ours, struct err *err)
{
	const json_t *text = annotation(object, KUBE_RECORD_ANNOTATION);

	if (!text)
		return 0;
	if (!json_is_string(text))
		return wrong("the annotation " KUBE_RECORD_ANNOTATION, text, "a string", err);
	if (json_string_length(text) > RECORD_MAX_BYTES)
		return err_set(err, ERR_INVALID,
		               "the annotation " KUBE_RECORD_ANNOTATION " has %zu bytes, at most %d are allowed",
		               json_string_length(text), RECORD_MAX_BYTES);
	if (record_parse(ours, json_string_value(text), json_string_length(text), err) < 0)
		return err_wrap(err, "the annotation " KUBE_RECORD_ANNOTATION);
	return 1;
}

static bool same_time(enum kube_kind kind, int64_t ours, int64_t public)
{
	if (kind == KUBE_LEASE || ours == RECORD_TIME_UNKNOWN)
		return ours == public;
	return public != RECORD_TIME_UNKNOWN && ours / 1000000 == public / 1000000;
}

/* Does our annotation belong to the same write as the fields that all clients write? */
static bool is_bound(enum kube_kind kind, const struct record *ours, const struct record *public)
{
	return strcmp(ours->holder, public->holder) == 0 && ours->transitions == public->transitions &&
	       same_time(kind, ours->renewed_us, public->renewed_us);
}

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Whole seconds as the API takes them: from 1 to 32 bits. */
static int64_t published_seconds(const struct record *r)
{
	int64_t seconds = record_seconds(r);

	return seconds < 1 ? 1 : seconds > INT32_MAX ? INT32_MAX : seconds;
}

/* p's record becomes what both say together. */
static void combine(enum kube_kind kind, struct public *p, struct record *ours)
{
	struct record *r = &p->record;
	int64_t public_ms = r->lease_ms;
	bool edited = *r->holder && public_ms != published_seconds(ours) * 1000;

	if (is_bound(kind, ours, r)) {
		record_copy(r, ours);
		if (edited)
			r->lease_ms = larger(r->lease_ms, public_ms);
		return;
	}
	r->term = ours->term;
	mem_replace(&r->checkpoint, ours->checkpoint);
	mem_replace(&r->past, ours->past);
	mem_replace(&r->unfenced, ours->unfenced); /* who wrote it since does not know that others may still act */
	if (*r->holder || ours->state != RECORD_LEADING || (p->has_transitions && r->transitions != ours->transitions))
		return;
	r->state = RECORD_LEADING; /* emptied by somebody else than the holder, who may not know yet */
	r->lease_ms = larger(r->lease_ms, ours->lease_ms);
}

static enum kube_found read_both(enum kube_kind kind, const json_t *object, struct public *p, struct record *ours,
                                 struct err *err)
{
	int64_t number;

	if (!json_is_object(json_object_get(object, "metadata"))) {
		err_set(err, ERR_INVALID, "it has no metadata");
		return KUBE_FOREIGN;
	}
	if (kube_meta_number(object, &number, err) < 0 || read_public(kind, object, p, err) < 0)
		return KUBE_FOREIGN;
	int there = read_ours(object, ours, err);
	if (there < 0)
		return KUBE_FOREIGN;
	if (!there)
		return p->any ? KUBE_FOUND : KUBE_NOTHING;
	combine(kind, p, ours);
	return KUBE_FOUND;
}

enum kube_found kube_object_read(enum kube_kind kind, const json_t *object, struct record *r, struct err *err)
{
	struct public p = { 0 };
	struct record ours;

	record_init(&p.record);
	record_init(&ours);
	enum kube_found found = read_both(kind, object, &p, &ours, err);
	if (found == KUBE_FOUND)
		record_copy(r, &p.record);
	record_fini(&p.record);
	record_fini(&ours);
	return found;
}

void kube_object_write_name(enum kube_kind kind, const json_t *object, char *out)
{
	struct record r;

	record_init(&r);
	*out = '\0';
	if (kube_object_read(kind, object, &r, NULL) == KUBE_FOUND)
		snprintf(out, sizeof r.write, "%s", r.write);
	record_fini(&r);
}

/* ---- writing ---- */

static json_t *time_json(int64_t us, bool whole_seconds)
{
	char text[32];

	record_time_print(us, text, sizeof text);
	if (whole_seconds && *text)
		strcpy(text + strlen(text) - strlen(".000000Z"), "Z");
	return *text ? json_string(text) : json_null();
}

/* client-go's LeaderElectionRecord, or a Lease's spec, into `to`. A release is published with one second, as client-go
 * does it: the API refuses 0. */
static void put_public(enum kube_kind kind, json_t *to, const struct record *r)
{
	bool whole = kind != KUBE_LEASE;

	json_object_set_new(to, "holderIdentity", json_string(r->holder));
	json_object_set_new(to, "leaseDurationSeconds", json_integer(*r->holder ? published_seconds(r) : 1));
	json_object_set_new(to, "acquireTime", time_json(r->acquired_us, whole));
	json_object_set_new(to, "renewTime", time_json(r->renewed_us, whole));
	json_object_set_new(to, transitions_key(kind),
	                    json_integer(r->transitions > INT32_MAX ? INT32_MAX : r->transitions));
}

/* On one line: a JSON text has no line breaks but those between its values. */
static char *one_line(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from += strspn(from, "\n ")) {
		size_t len = strcspn(from, "\n");
		memmove(to, from, len);
		to += len;
		from += len;
	}
	*to = '\0';
	return text;
}

static void put_ours(json_t *object, const struct record *r)
{
	char *text = one_line(record_print(r));

	json_object_set_new(kube_child(kube_child(object, "metadata"), "annotations"), KUBE_RECORD_ANNOTATION,
	                    json_string(text));
	free(text);
}

static void put_record(enum kube_kind kind, json_t *object, const struct record *r)
{
	put_ours(object, r);
	if (kind == KUBE_LEASE) {
		put_public(kind, kube_child(object, "spec"), r);
		return;
	}
	json_t *record = json_object();
	put_public(kind, record, r);
	char *text = json_dumps(record, JSON_COMPACT | JSON_PRESERVE_ORDER);
	json_object_set_new(kube_child(kube_child(object, "metadata"), "annotations"), KUBE_LEADER_ANNOTATION,
	                    json_string(text));
	free(text);
	json_decref(record);
}

static void put_extras(json_t *object, const struct kube_extras *extras)
{
	if (extras && extras->labels)
		json_object_update(kube_child(kube_child(object, "metadata"), "labels"), (json_t *)extras->labels);
	if (extras && extras->owner)
		kube_meta_own(object, extras->owner);
}

json_t *kube_object_write(enum kube_kind kind, const json_t *old, const char *ns, const char *name,
                          const struct record *r, const struct kube_extras *extras)
{
	const struct kube_resource *k = &kube_resources[kind];
	json_t *object = old ? json_deep_copy(old) : json_object();

	json_object_set_new(object, "apiVersion", json_string(k->api_version));
	json_object_set_new(object, "kind", json_string(k->kind));
	json_t *metadata = kube_child(object, "metadata");
	json_object_set_new(metadata, "name", json_string(name));
	json_object_set_new(metadata, "namespace", json_string(ns));
	json_object_del(metadata, "managedFields");
	put_record(kind, object, r);
	put_extras(object, extras);
	return object;
}
