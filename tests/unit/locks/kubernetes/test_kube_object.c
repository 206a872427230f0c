/* Records in Kubernetes objects: what client-go and its relatives write is read as they mean it; our fields count only
 * if they are of the same write; nothing of others is lost; and what makes no sense is never taken for a free lock. The
 * numbers T.. are those of the cases in tests/cluster/kubernetes/README.md. */
#include "base/mem.h"
#include "locks/kubernetes/kube_object.h"
#include "locks/kubernetes/kube_pair.h"
#include "tap.h"
#include "kube/kube_meta.h"

#include <jansson.h>
#include <stdlib.h>

static json_t *lease(const char *spec, const char *annotations)
{
	char *text = mem_printf(
		"{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\",\"metadata\":{\"name\":\"l\",\"namespace\":\"n\","
		"\"uid\":\"u-1\",\"resourceVersion\":\"77\",\"annotations\":%s},\"spec\":%s}",
		annotations ? annotations : "{}", spec);
	json_t *object = json_loads(text, 0, NULL);

	free(text);
	return object;
}

/* The record of a lease with that spec; its holder "?" if it is foreign, "-" if there is none. */
static struct record read_lease(const char *spec, struct err *err)
{
	json_t *object = lease(spec, NULL);
	struct record r;

	record_init(&r);
	err->text[0] = '\0';
	enum kube_found found = kube_object_read(KUBE_LEASE, object, &r, err);
	if (found != KUBE_FOUND)
		mem_replace(&r.holder, found == KUBE_FOREIGN ? "?" : "-");
	json_decref(object);
	return r;
}

static struct record ours(void)
{
	struct record r;

	record_init(&r);
	mem_replace(&r.holder, "web_1");
	mem_replace(&r.address, "10.0.0.1:80");
	r.lease_ms = 15000;
	r.renew_ms = 10000;
	r.retry_ms = 2000;
	r.acquired_us = INT64_C(1714564800000001);
	r.renewed_us = INT64_C(1714564802999999);
	r.transitions = 3;
	r.term = 9;
	r.token = 70;
	r.state = RECORD_LEADING;
	strcpy(r.write, "00112233445566778899aabbccddeeff");
	strcpy(r.incarnation, "6ba7b810-9dad-11d1-80b4-00c04fd430c8");
	r.checkpoint = mem_dup("{\"n\":5}");
	r.unfenced = mem_dup("[{\"identity\":\"m\"}]");
	r.extra = json_pack("{s:i}", "later", 1);
	return r;
}

/* As the server would answer: with uid and version. */
static json_t *stored(enum kube_kind kind, const struct record *r)
{
	json_t *object = kube_object_write(kind, NULL, "n", "l", r, NULL);
	json_t *metadata = json_object_get(object, "metadata");

	json_object_set_new(metadata, "uid", json_string("u-1"));
	json_object_set_new(metadata, "resourceVersion", json_string("77"));
	return object;
}

static void test_client_go(void)
{
	struct err err;
	struct record r = read_lease(
		"{\"holderIdentity\":\"host_uuid\",\"leaseDurationSeconds\":15,\"acquireTime\":\"2026-07-24T10:00:00.123456Z\","
		"\"renewTime\":\"2026-07-24T10:00:02.234567Z\",\"leaseTransitions\":3}",
		&err);

	is_str(r.holder, "host_uuid", "client-go's Lease names its holder");
	is_int(r.lease_ms, 15000, "and its duration,");
	is_int(r.transitions, 3, "and transitions,");
	is_int(r.renewed_us % 1000000, 234567, "and the renewal to the microsecond (T10)");
	is_int(r.state, RECORD_UNSAID, "and says nothing of a state");
	record_fini(&r);
	r = read_lease(
		"{\"holderIdentity\":\"\",\"leaseDurationSeconds\":1,\"acquireTime\":\"2026-07-24T10:00:00.123456Z\","
		"\"renewTime\":\"2026-07-24T10:00:00.123456Z\",\"leaseTransitions\":3}",
		&err);
	ok(!*r.holder && r.state == RECORD_UNSAID, "client-go's release has no holder (T04)");
	record_fini(&r);
}

static void test_missing(void)
{
	static const char *const released[] = {
		"{\"holderIdentity\":null,\"acquireTime\":null,\"renewTime\":null,\"leaseDurationSeconds\":15,\"leaseTransitions\":2}",
		"{\"holderIdentity\":null,\"leaseDurationSeconds\":1,\"renewTime\":\"2026-07-24T10:00:02.234567Z\"}",
		"{\"leaseTransitions\":1}",
	};
	struct err err;
	struct record r;

	for (size_t i = 0; i < sizeof released / sizeof *released; i++) {
		r = read_lease(released[i], &err);
		is_str(r.holder, "", "a release with nulls, as other clients write it, is one (T05)");
		record_fini(&r);
	}
	r = read_lease("{}", &err);
	is_str(r.holder, "-", "an empty spec is no record (T03)");
	record_fini(&r);
	r = read_lease("null", &err);
	is_str(r.holder, "-", "and so is none");
	record_fini(&r);
	r = read_lease("{\"holderIdentity\":\"x\",\"leaseDurationSeconds\":-5,\"leaseTransitions\":-1}", &err);
	ok(r.lease_ms == 0 && r.transitions == 0, "negative numbers count as 0 (T16)");
	record_fini(&r);
	r = read_lease("{\"holderIdentity\":\"x\",\"leaseDurationSeconds\":2147483647}", &err);
	is_int(r.lease_ms, INT64_C(2147483647000), "the longest duration does not overflow (T16)");
	record_fini(&r);
	r = read_lease(
		"{\"holderIdentity\":\"X \\\"\\u00e4\\\\ \",\"leaseDurationSeconds\":15,\"renewTime\":\"2026-07-24T18:00:02.5+08:00\",\"odd\":[1]}",
		&err);
	is_str(r.holder, "X \"\u00e4\\ ", "identities are taken byte for byte (T15, T64)");
	is_int(r.renewed_us, INT64_C(1784887202500000), "times with an offset or fewer digits are read (T61, T62)");
	record_fini(&r);
}

static void test_wrong(void)
{
	static const char *const wrong[][2] = {
		{ "{\"holderIdentity\":5}", "holderIdentity is 5, expected a string" },
		{ "{\"holderIdentity\":\"x\",\"leaseDurationSeconds\":\"15\"}",
		  "leaseDurationSeconds is \"15\", expected a whole number" },
		{ "{\"holderIdentity\":\"x\",\"leaseDurationSeconds\":1.5}", "leaseDurationSeconds is 1.5" },
		{ "{\"holderIdentity\":\"x\",\"leaseDurationSeconds\":2147483648}",
		  "leaseDurationSeconds is 2147483648" },
		{ "{\"holderIdentity\":\"x\",\"renewTime\":\"yesterday\"}",
		  "renewTime is \"yesterday\", expected a time" },
		{ "{\"holderIdentity\":\"x\",\"strategy\":\"OldestEmulationVersion\"}", "coordinated leader election" },
		{ "{\"strategy\":\"OldestEmulationVersion\"}", "coordinated leader election" },
		{ "[]", "spec is [], expected an object" },
	};
	struct err err;

	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct record r = read_lease(wrong[i][0], &err);
		if (!ok(strcmp(r.holder, "?") == 0 && strstr(err.text, wrong[i][1]), "foreign, and said why: %s",
		        wrong[i][1]))
			printf("# %s: %s\n", r.holder, err.text);
		record_fini(&r);
	}
}

static void check_kind(enum kube_kind kind)
{
	const char *name = kube_resources[kind].kind;
	struct record r = ours(), back;
	json_t *object = stored(kind, &r);
	struct err err;
	char write[33];

	record_init(&back);
	is_int(kube_object_read(kind, object, &back, &err), KUBE_FOUND, name);
	char *a = record_print(&r), *b = record_print(&back);
	is_str(b, a, "what is written is read back, every field of it");
	kube_object_write_name(kind, object, write);
	is_str(write, r.write, "and knows its own name");
	free(a);
	free(b);
	json_decref(object);
	record_fini(&back);
	record_fini(&r);
}

static void test_lease_format(void)
{
	struct record r = ours();
	json_t *object = kube_object_write(KUBE_LEASE, NULL, "n", "l", &r, NULL),
	       *spec = json_object_get(object, "spec");
	char *text = json_dumps(spec, JSON_COMPACT | JSON_PRESERVE_ORDER);

	is_str(text,
	       "{\"holderIdentity\":\"web_1\",\"leaseDurationSeconds\":15,\"acquireTime\":\"2024-05-01T12:00:00.000001Z\","
	       "\"renewTime\":\"2024-05-01T12:00:02.999999Z\",\"leaseTransitions\":3}",
	       "a Lease's spec has six digits and Z (T60)");
	free(text);
	ok(!*kube_meta_uid(object) && !*kube_meta_revision(object), "a new object goes without uid and version");
	json_decref(object);

	r.lease_ms = 2500;
	r.retry_ms = 400;
	object = kube_object_write(KUBE_LEASE, NULL, "n", "l", &r, NULL);
	is_int(json_integer_value(json_object_get(json_object_get(object, "spec"), "leaseDurationSeconds")), 4,
	       "fractions are published rounded up, and one more where client-go cannot see renewals (T63)");
	json_decref(object);

	mem_replace(&r.holder, "");
	r.state = RECORD_RELEASED;
	object = kube_object_write(KUBE_LEASE, NULL, "n", "l", &r, NULL);
	spec = json_object_get(object, "spec");
	is_str(json_string_value(json_object_get(spec, "holderIdentity")), "",
	       "a release has an empty holder, not null,");
	is_int(json_integer_value(json_object_get(spec, "leaseDurationSeconds")), 1, "and one second (T37)");
	json_decref(object);
	record_fini(&r);
}

static void test_annotation_format(void)
{
	struct record r = ours();
	json_t *object = kube_object_write(KUBE_CONFIGMAP, NULL, "n", "l", &r, NULL);
	json_t *annotations = json_object_get(json_object_get(object, "metadata"), "annotations");

	is_str(json_string_value(json_object_get(annotations, KUBE_LEADER_ANNOTATION)),
	       "{\"holderIdentity\":\"web_1\",\"leaseDurationSeconds\":15,\"acquireTime\":\"2024-05-01T12:00:00Z\","
	       "\"renewTime\":\"2024-05-01T12:00:02Z\",\"leaderTransitions\":3}",
	       "the annotation has client-go's keys in its order, and whole seconds (T66)");
	json_decref(object);
	record_fini(&r);
}

/* One field of everybody's is changed behind our back. */
static struct record after_edit(const char *key, json_t *value, enum kube_found *found)
{
	struct record r = ours(), back;
	json_t *object = stored(KUBE_LEASE, &r);

	json_object_set_new(json_object_get(object, "spec"), key, value);
	record_init(&back);
	*found = kube_object_read(KUBE_LEASE, object, &back, NULL);
	json_decref(object);
	record_fini(&r);
	return back;
}

static void test_bound(void)
{
	enum kube_found found;
	struct record r = after_edit("holderIdentity", json_string("thief"), &found);

	ok(!*r.incarnation && !*r.address && !*r.write && r.state == RECORD_UNSAID,
	   "another holder: what was ours is not its (T29)");
	ok(r.term == 9 && r.checkpoint && strcmp(r.checkpoint, "{\"n\":5}") == 0,
	   "but the term and the checkpoint count on");
	ok(r.unfenced && strcmp(r.unfenced, "[{\"identity\":\"m\"}]") == 0, "and so does who may still act");
	is_str(r.holder, "thief", "the holder is who the spec says");
	record_fini(&r);
	r = after_edit("leaseTransitions", json_integer(4), &found);
	ok(!*r.incarnation, "other transitions: not ours");
	record_fini(&r);
	r = after_edit("renewTime", json_string("2024-05-01T12:00:02.999998Z"), &found);
	ok(!*r.incarnation, "another renewal: not ours");
	record_fini(&r);
	r = after_edit("leaseDurationSeconds", json_integer(1), &found);
	ok(*r.incarnation && r.lease_ms == 15000, "a duration shortened by hand: ours, and not shorter (T30)");
	record_fini(&r);
	r = after_edit("leaseDurationSeconds", json_integer(60), &found);
	ok(*r.incarnation && r.lease_ms == 60000, "a duration lengthened by hand is waited out");
	record_fini(&r);
	r = after_edit("holderIdentity", json_string(""), &found);
	ok(!*r.holder && r.state == RECORD_LEADING && r.lease_ms == 15000,
	   "emptied by hand: the holder may not know, its lease counts");
	record_fini(&r);
}

static void test_emptied(void)
{
	struct record r = ours(), back;
	json_t *object = stored(KUBE_LEASE, &r);

	record_init(&back);
	json_object_set_new(object, "spec", json_object());
	is_int(kube_object_read(KUBE_LEASE, object, &back, NULL), KUBE_FOUND,
	       "a spec emptied by hand below our annotation");
	ok(back.state == RECORD_LEADING && back.lease_ms == 15000, "is waited out as well");
	json_decref(object);
	object = stored(KUBE_CONFIGMAP, &r);
	json_object_del(json_object_get(json_object_get(object, "metadata"), "annotations"), KUBE_LEADER_ANNOTATION);
	is_int(kube_object_read(KUBE_CONFIGMAP, object, &back, NULL), KUBE_FOUND, "and so is an annotation taken away");
	ok(!*back.holder && back.state == RECORD_LEADING, "whose record says leading");
	json_decref(object);

	mem_replace(&r.holder, "");
	r.state = RECORD_RELEASED;
	object = stored(KUBE_LEASE, &r);
	kube_object_read(KUBE_LEASE, object, &back, NULL);
	ok(!*back.holder && back.state == RECORD_RELEASED, "our own release is a release");
	/* client-go takes and releases. */
	json_object_set_new(json_object_get(object, "spec"), "leaseTransitions", json_integer(4));
	kube_object_read(KUBE_LEASE, object, &back, NULL);
	ok(!*back.holder && back.state == RECORD_UNSAID && back.term == 9, "and another's after it is one too");
	json_decref(object);
	record_fini(&back);
	record_fini(&r);
}

static void test_bad_annotation(void)
{
	static const char *const bad[] = { "\"{\"", "\"\"", "\"[]\"", "5",
		                           "\"{\\\"holderIdentity\\\":1,\\\"leaseDurationSeconds\\\":1}\"" };
	struct record r;
	struct err err;

	record_init(&r);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		char *ours_bad = mem_printf("{\"" KUBE_RECORD_ANNOTATION "\":%s}", bad[i]);
		char *theirs_bad = mem_printf("{\"" KUBE_LEADER_ANNOTATION "\":%s}", bad[i]);
		json_t *a = lease("{\"holderIdentity\":\"\"}", ours_bad), *b = lease("{}", theirs_bad);
		ok(kube_object_read(KUBE_LEASE, a, &r, &err) == KUBE_FOREIGN &&
		           strstr(err.text, KUBE_RECORD_ANNOTATION),
		   "our annotation broken (%s) is no free lock", bad[i]);
		ok(kube_object_read(KUBE_CONFIGMAP, b, &r, &err) == KUBE_FOREIGN &&
		           strstr(err.text, KUBE_LEADER_ANNOTATION),
		   "the leader annotation broken (%s) is no free lock (T66)", bad[i]);
		json_decref(a);
		json_decref(b);
		free(ours_bad);
		free(theirs_bad);
	}
	json_t *plain = lease("{}", NULL);
	is_int(kube_object_read(KUBE_CONFIGMAP, plain, &r, &err), KUBE_NOTHING,
	       "a ConfigMap without the annotation is free");
	json_object_set_new(json_object_get(plain, "metadata"), "resourceVersion", json_string("abc"));
	is_int(kube_object_read(KUBE_LEASE, plain, &r, &err), KUBE_FOREIGN,
	       "a resourceVersion that is no number can make no token");
	json_decref(plain);
	record_fini(&r);
}

static void test_kept(void)
{
	static const char *const TEXT =
		"{\"metadata\":{\"name\":\"l\",\"namespace\":\"n\",\"uid\":\"u-1\",\"resourceVersion\":\"77\",\"managedFields\":[{\"manager\":\"m\"}],"
		"\"labels\":{\"a\":\"1\",\"b\":\"2\"},\"annotations\":{\"x\":\"y\"},\"ownerReferences\":[{\"uid\":\"o-1\"}],\"finalizers\":[\"f\"]},"
		"\"data\":{\"k\":\"v\"},\"spec\":{\"later\":true}}";
	json_t *old = json_loads(TEXT, 0, NULL), *labels = json_pack("{s:s}", "b", "3"),
	       *owner = json_pack("{s:s}", "uid", "o-2");
	struct kube_extras extras = { labels, owner };
	struct record r = ours();
	json_t *object = kube_object_write(KUBE_LEASE, old, "n", "l", &r, &extras),
	       *m = json_object_get(object, "metadata");

	ok(strcmp(kube_meta_uid(object), "u-1") == 0 && strcmp(kube_meta_revision(object), "77") == 0,
	   "uid and version go with every PUT");
	ok(!json_object_get(m, "managedFields"), "managedFields are left to the server");
	ok(json_object_size(json_object_get(m, "labels")) == 2 &&
	           json_equal(json_object_get(json_object_get(m, "labels"), "b"), json_object_get(labels, "b")),
	   "labels are merged, ours win");
	is_int((int64_t)json_array_size(json_object_get(m, "ownerReferences")), 2, "the owner is added");
	ok(json_object_get(json_object_get(m, "annotations"), "x") && json_object_get(m, "finalizers") &&
	           json_object_get(object, "data") && json_object_get(json_object_get(object, "spec"), "later"),
	   "annotations, finalizers, data and fields we do not know are kept (T12, T65)");
	json_t *again = kube_object_write(KUBE_LEASE, object, "n", "l", &r, &extras);
	is_int((int64_t)json_array_size(json_object_get(json_object_get(again, "metadata"), "ownerReferences")), 2,
	       "the owner is not added twice");
	is_int((int64_t)json_array_size(json_object_get(json_object_get(old, "metadata"), "ownerReferences")), 1,
	       "the old object is as it was");
	json_decref(again);
	json_decref(object);
	json_decref(old);
	json_decref(labels);
	json_decref(owner);
	record_fini(&r);
}

static int64_t token_of(struct kube_pair *p, const char *uid, const char *version, const char *write)
{
	json_t *object = json_pack("{s:{s:s, s:s}}", "metadata", "uid", uid, "resourceVersion", version);
	int64_t token = kube_pair_token(p, object, write);

	json_decref(object);
	return token;
}

static void test_token(void)
{
	struct kube_pair p = { .count = 1 };

	is_int(token_of(&p, "u-1", "77", "aa"), 77, "a record's token is its object's version");
	is_int(token_of(&p, "u-1", "78", "aa"), 77, "who edits something else of the object gives it no other one");
	is_int(token_of(&p, "u-1", "79", "bb"), 79, "another write has another one");
	is_int(token_of(&p, "u-2", "80", "bb"), 80, "and so has a create that is applied again after a deletion");
	is_int(token_of(&p, "u-2", "81", ""), 81, "what is by no write of ours");
	is_int(token_of(&p, "u-2", "82", ""), 82, "has the newest");
}

int main(void)
{
	test_token();
	test_client_go();
	test_missing();
	test_wrong();
	check_kind(KUBE_LEASE);
	check_kind(KUBE_CONFIGMAP);
	check_kind(KUBE_ENDPOINTS);
	test_lease_format();
	test_annotation_format();
	test_bound();
	test_emptied();
	test_bad_annotation();
	test_kept();
	return tap_done();
}
