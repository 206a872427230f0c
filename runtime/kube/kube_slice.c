#include "kube/kube_slice.h"

#include "base/mem.h"
#include "kube/kube_api.h"
#include "kube/kube_endpoints.h"
#include "kube/kube_url.h"
#include "service/service_store.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MERGE_PATCH "application/merge-patch+json"
#define DRY_RUN "?dryRun=All" /* everything of a write but the writing: its rights, too */

struct service_store {
	struct kube_api *api;
	struct service_target of;
	char *slice_name, *slices_path;
	char *host; /* of the last SERVICE_PUBLISH */

	struct kube_call call;
	void (*answered)(struct service_store *s, const struct kube_answer *a);
	enum service_aim aim;
	int64_t token;
	bool closing;
	struct instant by;
	json_t *service; /* as it was read in this attempt */
	bool unsure;     /* a slice may have been made, or may be made yet, by a request that was given up */
	service_done_fn *done;
	void *arg;
};

/* ---- the end of an attempt ---- */

static void slice_end(struct service_store *s, const struct service_result *r)
{
	json_decref(s->service);
	s->service = NULL;
	s->done(s->arg, r);
}

/* Ends the attempt: the answer is not the one that was hoped for. */
static void slice_fail(struct service_store *s, const struct kube_answer *a)
{
	bool refused = a->status >= 400 && a->status < 500 && a->status != 429 && !a->repeated;
	struct service_result r = { .outcome = refused ? SERVICE_REFUSED : SERVICE_FAILED };

	kube_api_explain(s->api, a, s->of.ns,
	                 "the verb \"get\" of services, and \"get\", \"create\", \"patch\" of endpointslices "
	                 "(discovery.k8s.io)",
	                 &r.err);
	slice_end(s, &r);
}

/* ---- requests ---- */

static void slice_on_answer(void *arg, const struct kube_answer *a)
{
	struct service_store *s = arg;

	if (!s->closing)
		s->answered(s, a);
}

/* path, body: taken; body NULL: none. On the connection of Events, so that no renewal waits for it. */
static void slice_ask(struct service_store *s, const char *method, char *path, json_t *body,
                      void (*answered)(struct service_store *s, const struct kube_answer *a))
{
	s->answered = answered;
	kube_api_start(s->api, &s->call,
	               &(struct kube_request){
			       .client = KUBE_EVENTS,
			       .method = method,
			       .path = path,
			       .kind = strcmp(method, "PATCH") == 0 ? MERGE_PATCH : NULL,
			       .body = body ? json_dumps(body, JSON_COMPACT) : NULL,
			       .by = s->by,
			       .done = slice_on_answer,
			       .arg = s,
		       });
	json_decref(body);
	free(path);
}

/* 409: another write came first. 404 of a patch: it was deleted meanwhile. */
static void slice_on_written(struct service_store *s, const struct kube_answer *a)
{
	bool looks = s->aim == SERVICE_LOOK, answered = a->err.code == ERR_NONE;

	s->unsure = !looks && (s->unsure || !(answered || a->unsent));
	if (answered && (a->status == 200 || a->status == 201)) {
		s->unsure = false;
		slice_end(s, &(struct service_result){ .outcome = SERVICE_DONE, .wrote = !looks });
	} else if (a->status == 409 || kube_answer_missing(a, s->slice_name)) {
		slice_end(s, &(struct service_result){ .outcome = SERVICE_CONFLICT });
	} else {
		slice_fail(s, a);
	}
}

/* Whether all that `wanted` says is in `have`, which others may have added fields to. A list is as long as it is wanted. */
static bool slice_has(const json_t *have, const json_t *wanted)
{
	const char *key;
	json_t *value;
	size_t i;

	if (json_is_object(wanted))
		json_object_foreach((json_t *)wanted, key, value)
		{
			if (!slice_has(json_object_get(have, key), value))
				return false;
		}
	else if (json_is_array(wanted))
		json_array_foreach((json_t *)wanted, i, value)
		{
			if (!slice_has(json_array_get(have, i), value))
				return false;
		}
	else
		return json_equal(have, wanted);
	return json_typeof(wanted) == (have ? json_typeof(have) : JSON_NULL) &&
	       json_array_size(have) == json_array_size(wanted);
}

/* slice NULL: there is none. */
static void slice_change(struct service_store *s, json_t *slice)
{
	const struct endpoints_wish w = { .name = s->of.name,
		                          .service = s->service,
		                          .host = s->host,
		                          .port = s->of.port,
		                          .published = s->aim == SERVICE_PUBLISH,
		                          .token = s->token };
	struct service_result r = { .outcome = SERVICE_DONE };
	const char *dry = s->aim == SERVICE_LOOK ? DRY_RUN : "";
	json_t *wanted = endpoints_make(slice, &w, &r);

	if (!wanted || (s->aim != SERVICE_LOOK && slice && slice_has(slice, wanted))) {
		json_decref(wanted);
		slice_end(s, &r);
	} else if (slice) {
		slice_ask(s, "PATCH", mem_printf("%s/%s%s", s->slices_path, s->slice_name, dry), wanted,
		          slice_on_written);
	} else {
		slice_ask(s, "POST", mem_printf("%s%s", s->slices_path, dry), wanted, slice_on_written);
	}
}

/* A slice that is not there counts as withdrawn. But if an earlier request may still make it, it is made without an
 * address now, so that the earlier request finds it there. */
static void slice_on_slice(struct service_store *s, const struct kube_answer *a)
{
	bool missing = kube_answer_missing(a, s->slice_name);

	if (missing && s->aim == SERVICE_WITHDRAW && !s->unsure) {
		slice_end(s, &(struct service_result){ .outcome = SERVICE_DONE });
	} else if (missing) {
		slice_change(s, NULL);
	} else if (a->status == 200 && a->object) {
		json_object_del(json_object_get(a->object, "metadata"), "managedFields");
		slice_change(s, a->object);
	} else {
		slice_fail(s, a);
	}
}

static void slice_look(struct service_store *s)
{
	slice_ask(s, "GET", mem_printf("%s/%s", s->slices_path, s->slice_name), NULL, slice_on_slice);
}

static void slice_on_service(struct service_store *s, const struct kube_answer *a)
{
	struct service_result none = { .outcome = SERVICE_REFUSED };

	if (kube_answer_missing(a, s->of.name)) {
		err_set(&none.err, ERR_MISSING,
		        "there is no such Service: make one without a selector, and its addresses are kept here");
		slice_end(s, &none);
	} else if (a->status == 200 && a->object) {
		s->service = json_incref(a->object);
		slice_look(s);
	} else {
		slice_fail(s, a);
	}
}

/* ---- the table ---- */

/* A mere look cannot be fenced: it has the largest token there is. */
static void slice_apply(struct service_store *s, const struct service_wish *w, struct instant by, service_done_fn *done,
                        void *arg)
{
	s->aim = w->aim;
	s->token = w->aim == SERVICE_LOOK ? INT64_MAX : w->token;
	s->by = by;
	s->done = done;
	s->arg = arg;
	if (w->aim == SERVICE_PUBLISH)
		mem_replace(&s->host, w->host);
	if (w->aim == SERVICE_WITHDRAW)
		slice_look(s);
	else
		slice_ask(s, "GET", mem_printf("/api/v1/namespaces/%s/services/%s", s->of.ns, s->of.name), NULL,
		          slice_on_service);
}

static void slice_close(struct service_store *s)
{
	s->closing = true;
	kube_api_cancel(&s->call);
	json_decref(s->service);
	free(s->slice_name);
	free(s->slices_path);
	free(s->host);
	free(s);
}

/* A lock in Kubernetes says which kubeconfig and context count here, too, and, if it names one, which namespace. */
static struct service_store *slice_open(struct lock_env *env, struct service_target *t, const char *lock,
                                        struct err *err)
{
	bool kube = strncmp(lock, "kube:", strlen("kube:")) == 0;
	struct kube_url u = { 0 };
	struct service_store *s = NULL;

	if (kube && kube_url_parse(&u, lock + strlen("kube:"), err) < 0)
		return NULL;
	struct kube_api *api = kube_api_get(env, kube ? u.kubeconfig : "", kube ? u.context : "", err);
	const char *ns = *t->ns ? t->ns : kube && *u.ns ? u.ns : api ? kube_api_config(api)->ns : "";
	if (api && strlen(ns) >= sizeof t->ns) {
		err_set(err, ERR_USAGE, "\"%.80s\" is no name of a namespace: it is too long", ns);
	} else if (api) {
		memmove(t->ns, ns, strlen(ns) + 1);
		s = mem_zero(sizeof *s);
		s->api = api;
		s->of = *t;
		s->slice_name = mem_printf("%s-lunarch", t->name);
		s->slices_path = mem_printf("/apis/discovery.k8s.io/v1/namespaces/%s/endpointslices", t->ns);
	}
	kube_url_fini(&u);
	return s;
}

const struct service_ops kube_slice_ops = {
	.open = slice_open,
	.apply = slice_apply,
	.close = slice_close,
};
