#include "locks/kubernetes/kube_slice.h"

#include "base/mem.h"
#include "locks/kubernetes/kube_api.h"
#include "locks/kubernetes/kube_endpoints.h"
#include "locks/kubernetes/kube_url.h"
#include "service/service_store.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MERGE_PATCH "application/merge-patch+json"
#define DRY_RUN "?dryRun=All" /* everything of a write but the writing: its rights, too */

struct service_store {
	struct kube_api *api;
	char *title, *ns, *name, *slice_name;
	char *service_path, *slices_path, *slice_path;
	int port;

	struct kube_call call;
	void (*answered)(struct service_store *s, const struct kube_answer *a);
	enum service_aim aim;
	int64_t token;
	char *host; /* of the last SERVICE_PUBLISH */
	bool closing;
	struct instant by;
	json_t *service; /* as it was read in this attempt */
	bool unsure;     /* a slice may have been made, or may be made yet, by a request that was given up */
	service_done_fn *done;
	void *arg;
};

/* ---- the end of an attempt ---- */

static void slice_finish(struct service_store *s, const struct service_result *r)
{
	json_decref(s->service);
	s->service = NULL;
	s->done(s->arg, r);
}

static void slice_end(struct service_store *s, enum service_outcome outcome, const struct err *why)
{
	struct service_result r = { .outcome = outcome };

	if (why)
		r.err = *why;
	slice_finish(s, &r);
}

static void slice_is_so(struct service_store *s, bool wrote)
{
	slice_finish(s, &(struct service_result){ .outcome = SERVICE_DONE, .wrote = wrote });
}

/* An answer that is not the one hoped for. what: "Service web" */
static void slice_fail(struct service_store *s, const struct kube_answer *a, const char *what, const char *name)
{
	const char *who = kube_api_config(s->api)->origin;
	bool refused = a->status >= 400 && a->status < 500 && a->status != 429 && !a->repeated;
	struct err err;

	if (a->err.code != ERR_NONE)
		err = a->err;
	else if (a->status == 401)
		kube_api_unauthorized(s->api, &err);
	else if (a->status == 403)
		err_set(&err, ERR_DENIED,
		        "403: %.300s. Needed: a Role in the namespace %s with the verb \"get\" of services, and \"get\", "
		        "\"create\", \"patch\" of endpointslices (discovery.k8s.io), bound to whom %s names",
		        a->message, s->ns, who);
	else
		err_set(&err, ERR_INVALID, "%s %s: %d: %.300s", what, name, a->status,
		        *a->message ? a->message : "an unexpected answer");
	slice_end(s, refused ? SERVICE_REFUSED : SERVICE_FAILED, &err);
}

/* ---- requests ---- */

static void slice_on_answer(void *arg, const struct kube_answer *a)
{
	struct service_store *s = arg;

	if (!s->closing)
		s->answered(s, a);
}

/* body: taken; NULL: none. On the connection of Events, so that no renewal waits for it. */
static void slice_ask(struct service_store *s, const char *method, const char *path, const char *kind, json_t *body,
                      void (*answered)(struct service_store *s, const struct kube_answer *a))
{
	s->answered = answered;
	kube_api_start(s->api, &s->call,
	               &(struct kube_request){
			       .client = KUBE_EVENTS,
			       .method = method,
			       .path = path,
			       .kind = kind,
			       .body = body ? json_dumps(body, JSON_COMPACT) : NULL,
			       .by = s->by,
			       .done = slice_on_answer,
			       .arg = s,
		       });
	json_decref(body);
}

/* ---- writing ---- */

/* 409: another write came first. 404 of a patch: it was deleted meanwhile. */
static void slice_on_patched(struct service_store *s, const struct kube_answer *a)
{
	if (a->err.code == ERR_NONE && a->status == 200)
		slice_is_so(s, s->aim != SERVICE_LOOK);
	else if (a->status == 409 || kube_answer_missing(a, s->slice_name))
		slice_end(s, SERVICE_CONFLICT, NULL);
	else
		slice_fail(s, a, "EndpointSlice", s->slice_name);
}

static void slice_on_created(struct service_store *s, const struct kube_answer *a)
{
	bool answered = a->err.code == ERR_NONE || a->unsent;

	s->unsure = s->unsure || (!answered && s->aim != SERVICE_LOOK);
	if (a->err.code == ERR_NONE && a->status == 201)
		slice_is_so(s, s->aim != SERVICE_LOOK);
	else if (a->status == 409)
		slice_end(s, SERVICE_CONFLICT, NULL);
	else
		slice_fail(s, a, "EndpointSlice", s->slice_name);
}

/* slice NULL: there is none. */
static void slice_write(struct service_store *s, const json_t *slice, const json_t *ports)
{
	const char *dry = s->aim == SERVICE_LOOK ? DRY_RUN : "";
	const char *path = slice ? s->slice_path : s->slices_path;
	bool published = s->aim == SERVICE_PUBLISH;
	char *whole = mem_printf("%s%s", path, dry);

	if (slice)
		slice_ask(s, "PATCH", whole, MERGE_PATCH,
		          endpoints_patch(slice, s->service, published ? s->host : NULL, ports, s->token),
		          slice_on_patched);
	else
		slice_ask(s, "POST", whole, NULL, endpoints_create(s->service, s->host, published, ports, s->token),
		          slice_on_created);
	free(whole);
}

/* ---- withdrawing ---- */

static void slice_on_withdrawing(struct service_store *s, const struct kube_answer *a)
{
	struct err err;

	if (kube_answer_missing(a, s->slice_name) && !s->unsure) {
		slice_is_so(s, false);
	} else if (kube_answer_missing(a, s->slice_name)) {
		/* Made without an address, so that the request that was given up makes none. */
		s->unsure = false;
		s->service = json_pack("{s:{s:s}}", "metadata", "name", s->name);
		json_t *body = endpoints_create(s->service, s->host, false, NULL, s->token);
		slice_ask(s, "POST", s->slices_path, NULL, body, slice_on_created);
	} else if (a->status != 200 || !a->object) {
		slice_fail(s, a, "EndpointSlice", s->slice_name);
	} else {
		enum endpoints_found found = endpoints_judge(a->object, s->name, s->token, &err);
		if (found != ENDPOINTS_OURS)
			slice_end(s, found == ENDPOINTS_NEWER ? SERVICE_FENCED : SERVICE_REFUSED, &err);
		else if (endpoints_same(a->object, NULL, NULL, NULL, s->token))
			slice_is_so(s, false);
		else
			slice_write(s, a->object, NULL);
	}
}

/* ---- publishing ---- */

static void slice_on_slice(struct service_store *s, const struct kube_answer *a)
{
	bool missing = kube_answer_missing(a, s->slice_name), looks = s->aim == SERVICE_LOOK;
	const char *host = looks ? NULL : s->host;
	struct err err;

	if (!missing && (a->status != 200 || !a->object)) {
		slice_fail(s, a, "EndpointSlice", s->slice_name);
		return;
	}
	enum endpoints_found found =
		missing ? ENDPOINTS_OURS : endpoints_judge(a->object, s->name, looks ? INT64_MAX : s->token, &err);
	json_t *ports = found == ENDPOINTS_OURS ? endpoints_ports(s->service, s->port, &err) : NULL;
	if (found == ENDPOINTS_NEWER)
		slice_end(s, SERVICE_FENCED, &err);
	else if (!ports || (host && !missing && endpoints_check_type(a->object, host, &err) < 0))
		slice_end(s, SERVICE_REFUSED, &err);
	else if (!missing && host && endpoints_same(a->object, s->service, host, ports, s->token))
		slice_is_so(s, false);
	else
		slice_write(s, missing ? NULL : a->object, ports);
	json_decref(ports);
}

static void slice_on_service(struct service_store *s, const struct kube_answer *a)
{
	struct err err;

	if (kube_answer_missing(a, s->name)) {
		err_set(&err, ERR_MISSING,
		        "there is no such Service: make one without a selector, and its addresses are kept here");
		slice_end(s, SERVICE_REFUSED, &err);
		return;
	}
	if (a->status != 200 || !a->object) {
		slice_fail(s, a, "Service", s->name);
		return;
	}
	s->service = json_incref(a->object);
	json_t *ports = endpoints_ports(s->service, s->port, &err);
	bool good = ports && (s->aim == SERVICE_LOOK || endpoints_check_family(s->service, s->host, &err) == 0);
	json_decref(ports);
	if (good)
		slice_ask(s, "GET", s->slice_path, NULL, NULL, slice_on_slice);
	else
		slice_end(s, SERVICE_REFUSED, &err);
}

/* ---- the table ---- */

static void slice_apply(struct service_store *s, const struct service_wish *w, struct instant by, service_done_fn *done,
                        void *arg)
{
	s->aim = w->aim;
	s->token = w->token;
	s->by = by;
	s->done = done;
	s->arg = arg;
	if (w->aim == SERVICE_PUBLISH)
		mem_replace(&s->host, w->host);
	if (w->aim == SERVICE_WITHDRAW)
		slice_ask(s, "GET", s->slice_path, NULL, NULL, slice_on_withdrawing);
	else
		slice_ask(s, "GET", s->service_path, NULL, NULL, slice_on_service);
}

static const char *slice_title(const struct service_store *s)
{
	return s->title;
}

static void slice_close(struct service_store *s)
{
	s->closing = true;
	kube_api_cancel(&s->call);
	json_decref(s->service);
	free(s->title);
	free(s->ns);
	free(s->name);
	free(s->slice_name);
	free(s->service_path);
	free(s->slices_path);
	free(s->slice_path);
	free(s->host);
	free(s);
}

/* A lock in Kubernetes says which kubeconfig and context count here, too, and, if it names one, which namespace. */
static struct service_store *slice_open(struct lock_env *env, const struct service_target *t, const char *lock,
                                        struct err *err)
{
	bool kube = strncmp(lock, "kube:", strlen("kube:")) == 0;
	struct kube_url u = { 0 };

	if (kube && kube_url_parse(&u, lock + strlen("kube:"), err) < 0)
		return NULL;
	struct kube_api *api = kube_api_get(env, kube ? u.kubeconfig : "", kube ? u.context : "", err);
	struct service_store *s = api ? mem_zero(sizeof *s) : NULL;
	if (s) {
		s->api = api;
		s->ns = mem_dup(*t->ns ? t->ns : kube && *u.ns ? u.ns : kube_api_config(api)->ns);
		s->name = mem_dup(t->name);
		s->port = t->port;
		s->title = mem_printf("%s/%s", s->ns, s->name);
		s->slice_name = mem_printf("%s-lunarch", s->name);
		s->service_path = mem_printf("/api/v1/namespaces/%s/services/%s", s->ns, s->name);
		s->slices_path = mem_printf("/apis/discovery.k8s.io/v1/namespaces/%s/endpointslices", s->ns);
		s->slice_path = mem_printf("%s/%s", s->slices_path, s->slice_name);
	}
	kube_url_fini(&u);
	return s;
}

const struct service_ops kube_slice_ops = {
	.open = slice_open,
	.name = slice_title,
	.apply = slice_apply,
	.close = slice_close,
};
