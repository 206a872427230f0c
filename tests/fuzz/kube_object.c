/* Objects of a Kubernetes API server: each kind is read, written over, and read again as what was written; the objects
 * are bounded before they are parsed. And what credential plugins print. */
#include "fuzz.h"

#include "base/json_bound.h"
#include "base/mem.h"
#include "kube/kube_api.h"
#include "kube/kube_config.h"
#include "kube/kube_exec.h"
#include "locks/kubernetes/kube_object.h"
#include "kube/kube_meta.h"

#include <jansson.h>

static void judge(enum kube_kind kind, const json_t *object)
{
	struct record r, again;
	struct err err;
	char name[33];
	int64_t number;

	record_init(&r);
	record_init(&again);
	kube_object_write_name(kind, object, name);
	must(strlen(name) < sizeof name);
	must(kube_meta_uid(object) && kube_meta_revision(object));
	if (kube_meta_number(object, &number, &err) == 0)
		must(number >= 0);
	enum kube_found found = kube_object_read(kind, object, &r, &err);
	if (found == KUBE_FOUND && *r.holder) {
		json_t *new = kube_object_write(kind, object, "ns", "name", &r, NULL);
		must(kube_object_read(kind, new, &again, &err) == KUBE_FOUND);
		must(strcmp(r.holder, again.holder) == 0 && r.term == again.term);
		json_decref(new);
	}
	if (found != KUBE_FOREIGN)
		json_decref(kube_object_write(kind, found == KUBE_NOTHING ? object : NULL, "ns", "name", &r, NULL));
	record_fini(&r);
	record_fini(&again);
}

static void plugin(const char *text)
{
	struct kube_exec x = { .api_version = "client.authentication.k8s.io/v1", .command = "plugin" };
	struct kube_exec_result result = { 0 };
	json_t *keep = NULL;

	kube_exec_parse(&x, text, &result, &keep);
	must(result.err.code != ERR_NONE || result.token || result.cert_pem);
	json_decref(keep);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	size_t len;
	char *text = input_text(&in, &len);
	json_t *object = json_bound_load(text, len, 0, KUBE_OBJECT_VALUES, NULL);

	if (json_is_object(object))
		for (int kind = KUBE_LEASE; kind <= KUBE_ENDPOINTS; kind++)
			judge((enum kube_kind)kind, object);
	json_decref(object);
	plugin(text);
	free(text);
	return 0;
}
