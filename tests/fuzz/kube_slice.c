/* A Service and its EndpointSlice as an API server tells of them, for --service: it is looked at, published and
 * withdrawn. What is not ours, or has a newer token, is never written; each attempt ends once. kube_api.c's functions
 * stand here, in the place of a server. The first byte: which attempts; then the answers behind zero bytes, each a byte
 * for its status and a JSON text. */
#include "fuzz.h"

#include "kube/kube_api.h"
#include "kube/kube_endpoints.h"
#include "kube/kube_slice.h"
#include "service/service_store.h"

#include <jansson.h>

#define TOKEN 7
#define REQUESTS 4 /* of one attempt, at most */

static struct kube_call *asked;
static struct kube_config config = { .origin = (char *)"here", .ns = (char *)"default" };

struct kube_api *kube_api_get(struct lock_env *env, const char *kubeconfig, const char *context, struct err *err)
{
	(void)env, (void)kubeconfig, (void)context, (void)err;
	return (struct kube_api *)&config;
}

void kube_api_explain(const struct kube_api *a, const struct kube_answer *answer, const char *ns, const char *needed,
                      struct err *err)
{
	(void)a, (void)ns, (void)needed;
	err_set(err, ERR_DENIED, "%d", answer->status);
}

const struct kube_config *kube_api_config(const struct kube_api *a)
{
	(void)a;
	return &config;
}

void kube_api_start(struct kube_api *a, struct kube_call *c, const struct kube_request *r)
{
	(void)a;
	must(!c->busy && !asked);
	c->r = *r;
	c->busy = true;
	c->r.path = strdup(r->path);
	asked = c;
}

void kube_api_cancel(struct kube_call *c)
{
	(void)c;
}

bool kube_answer_missing(const struct kube_answer *a, const char *name)
{
	(void)name;
	return a->status == 404 && a->repeated; /* which serves here for the reason NotFound */
}

/* What the last reading of the slice has said. */
static bool slice_missing, slice_ours;
static int ended;
static enum service_outcome outcome;

static void judge_write(const struct kube_request *r, enum service_aim aim)
{
	json_t *body = json_loads(r->body, 0, NULL);
	const json_t *metadata = json_object_get(body, "metadata"), *endpoints = json_object_get(body, "endpoints");
	const char *token =
		json_string_value(json_object_get(json_object_get(metadata, "annotations"), ENDPOINTS_TOKEN));

	must(strcmp(r->method, "POST") == 0 ? slice_missing : slice_ours);
	must((aim == SERVICE_LOOK) == (strstr(r->path, "?dryRun=All") != NULL));
	must(token && (aim == SERVICE_LOOK || strcmp(token, "7") == 0));
	must(json_array_size(endpoints) == (aim == SERVICE_PUBLISH));
	json_decref(body);
}

/* As the documentation of the slice has it, and not as the program reads it. */
static bool is_ours(json_t *slice, bool any_token)
{
	json_t *meta = json_object_get(slice, "metadata"), *labels = json_object_get(meta, "labels");
	const char *of = json_string_value(json_object_get(labels, "kubernetes.io/service-name"));
	const char *by = json_string_value(json_object_get(labels, "endpointslice.kubernetes.io/managed-by"));
	const char *token = json_string_value(json_object_get(json_object_get(meta, "annotations"), ENDPOINTS_TOKEN));

	return of && by && token && strcmp(of, "web") == 0 && strcmp(by, "lunarch.dev") == 0 &&
	       (any_token || strtoull(token, NULL, 10) <= TOKEN);
}

static void answer(struct input *in, enum service_aim aim)
{
	static const int statuses[] = { 200, 200, 201, 404, 404, 409, 403, 401, 500, 429, 0 };
	struct kube_call *c = asked;
	uint8_t how = input_byte(in);
	struct kube_answer a = { .status = statuses[how % 11], .message = "", .repeated = how % 11 == 3 };
	char *text = input_text(in, NULL);
	bool reads = strcmp(c->r.method, "GET") == 0;

	a.object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	if (!json_is_object(a.object)) {
		json_decref(a.object);
		a.object = NULL;
	}
	if (a.status == 0)
		err_set(&a.err, ERR_UNREACHABLE, "no answer");
	a.unsent = a.status == 0 && how & 128;
	if (reads && strstr(c->r.path, "endpointslices")) {
		slice_missing = a.status == 404 && a.repeated;
		slice_ours = a.status == 200 && is_ours(a.object, aim == SERVICE_LOOK);
	} else if (!reads) {
		judge_write(&c->r, aim);
	}
	asked = NULL;
	c->busy = false;
	free((char *)(uintptr_t)c->r.path);
	free(c->r.body);
	c->r.done(c->r.arg, &a);
	json_decref(a.object);
	free(text);
}

static void on_done(void *arg, const struct service_result *r)
{
	(void)arg;
	must(++ended == 1 && !asked);
	must(r->outcome == SERVICE_DONE || r->outcome == SERVICE_CONFLICT || *r->err.text);
	outcome = r->outcome;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct service_target web = { .ns = "default", .name = "web", .port = size & 1 ? 80 : 0 };
	static const char *const hosts[] = { "10.0.0.1", "fd00::1" };
	struct input in = { data, size };
	struct err err;
	uint8_t how = input_byte(&in);
	struct service_store *s = kube_slice_ops.open(NULL, &web, "file:/x", &err);

	for (int i = 0; i < 3; i++, how /= 3) {
		const struct service_wish w = { .aim = SERVICE_LOOK + how % 3,
			                        .token = TOKEN,
			                        .host = hosts[in.left & 1] };
		ended = 0;
		slice_missing = slice_ours = false;
		kube_slice_ops.apply(s, &w, (struct instant){ 0 }, on_done, NULL);
		for (int n = 0; asked; n++) {
			must(n < REQUESTS);
			answer(&in, w.aim);
		}
		must(ended == 1);
	}
	kube_slice_ops.close(s);
	return 0;
}
