#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/module.h"
#include "locks/kubernetes/kube_api.h"
#include "locks/kubernetes/kube_events.h"
#include "locks/kubernetes/kube_object.h"
#include "locks/kubernetes/kube_pair.h"
#include "locks/kubernetes/kube_url.h"
#include "locks/lock.h"

#include <ev.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct lock_ops lock_kube;

struct kube_lock {
	struct lock base;
	struct lock_env *env;
	struct kube_api *api;
	struct kube_url url;
	struct kube_pair pair;
	bool looked; /* at all of them */
	bool offer;  /* what a watch has shown since is to be read next, without asking again */
	lock_changed_fn *changed;
	void *changed_arg;
	struct kube_events events;

	/* The operation under way. */
	bool active, writing, offered;
	bool raced; /* a watch has shown something meanwhile */
	int at;     /* the part it is at */
	struct kube_call call;
	ev_timer soon;
	const struct record *record; /* NULL: removing, or asking */
	struct lock_about *about;
	struct version expected;
	struct version wrote; /* of the parts that are written, by their answers: a watch may already show something
	                         newer, which nobody has judged */
	int64_t token;
	struct instant by, sent_at;
	lock_done_fn *done;
	void *arg;
};

/* ---- the end of an operation ---- */

static void kube_finish(struct kube_lock *l, struct lock_result *r)
{
	ev_timer_stop(l->env->loop, &l->soon);
	l->active = false;
	if (r->outcome != LOCK_OK)
		l->offer = false;
	if (r->err.code != ERR_NONE)
		err_wrap(&r->err, "%s %s", l->writing ? "writing" : "reading", l->base.url);
	l->done(l->arg, r);
}

__attribute__((format(printf, 4, 5))) static void kube_fail(struct kube_lock *l, enum lock_outcome outcome,
                                                            enum err_code code, const char *fmt, ...)
{
	struct lock_result r = { .outcome = outcome, .sent_at = l->sent_at };
	va_list ap;

	va_start(ap, fmt);
	err_vset(&r.err, code, fmt, ap);
	va_end(ap);
	if (l->writing && l->at > 0)
		r.outcome = LOCK_UNKNOWN; /* the first of the pair is written */
	kube_finish(l, &r);
}

static const struct kube_resource *resource(const struct kube_lock *l)
{
	return &kube_resources[l->pair.part[l->at].kind];
}

/* What was not as it should be, for people, and what it means for the operation. */
static void kube_fail_answer(struct kube_lock *l, const struct kube_answer *a)
{
	const struct kube_resource *k = resource(l);
	const char *who = kube_api_config(l->api)->origin;
	enum lock_outcome lost = l->writing && !a->unsent ? LOCK_UNKNOWN : LOCK_FAILED;

	if (a->err.code != ERR_NONE)
		kube_fail(l, lost, a->err.code, "%s", a->err.text);
	else if (l->writing && a->repeated) /* what is refused now may have been done the first time */
		kube_fail(l, LOCK_UNKNOWN, ERR_UNREACHABLE, "sent twice, since a connection broke, and then %d: %.300s",
		          a->status, a->message);
	else if (a->status == 401)
		kube_fail(l, l->writing ? LOCK_REFUSED : LOCK_FAILED, ERR_DENIED,
		          "401: the API server does not accept the credentials of %s", who);
	else if (a->status == 403)
		kube_fail(
			l, l->writing ? LOCK_REFUSED : LOCK_FAILED, ERR_DENIED,
			"403: %.300s. Needed: a Role in the namespace %s with apiGroups [\"%s\"], resources [\"%s\"], verbs [\"get\", \"create\", "
			"\"update\", \"watch\"], bound to whom %s names",
			a->message, l->url.ns, k->group, k->plural, who);
	else if (a->status == 404)
		kube_fail(l, LOCK_FAILED, ERR_MISSING, "404: %s%.300s",
		          l->writing ? "is there a namespace of that name? " : "", a->message);
	else if (a->status == 429)
		kube_fail(l, LOCK_FAILED, ERR_UNREACHABLE, "429: the API server has too much to do: %.200s",
		          a->message);
	else if (a->status >= 500)
		kube_fail(l, lost, ERR_UNREACHABLE, "%d: %.300s", a->status, a->message);
	else
		kube_fail(l, l->writing ? LOCK_INVALID : LOCK_FAILED, ERR_INVALID, "%d: %.300s", a->status,
		          *a->message ? a->message : "an unexpected answer");
}

/* ---- reading ---- */

static void kube_put(struct kube_lock *l);

static void kube_start(struct kube_lock *l, const char *method, const char *path, json_t *body,
                       void (*done)(void *arg, const struct kube_answer *a))
{
	kube_api_start(l->api, &l->call,
	               &(struct kube_request){
			       .client = KUBE_WORK,
			       .method = method,
			       .path = path,
			       .body = body ? json_dumps(body, JSON_COMPACT) : NULL,
			       .by = l->by,
			       .done = done,
			       .arg = l,
		       });
	json_decref(body);
}

static void kube_finish_read(struct kube_lock *l)
{
	struct lock_result result = { .outcome = LOCK_OK,
		                      .sent_at = l->sent_at,
		                      .version = kube_pair_version(&l->pair) };
	struct record r;

	record_init(&r);
	switch (kube_pair_read(&l->pair, &r, &result.err)) {
	case KUBE_FOREIGN:
		result.outcome = LOCK_FOREIGN;
		result.version.text[0] = '\0';
		break;
	case KUBE_NOTHING:
		result.outcome = LOCK_ABSENT;
		break;
	case KUBE_FOUND:
		result.record = &r;
		result.token = kube_pair_token(&l->pair);
		/* A version cannot be in the write that makes it, which is this one. */
		if (r.token == 0 && r.term && r.state == RECORD_LEADING)
			r.token = result.token;
		break;
	}
	kube_finish(l, &result);
	record_fini(&r);
}

static void kube_start_watches(struct kube_lock *l)
{
	for (int i = 0; l->changed && i < l->pair.count; i++) {
		struct kube_part *p = &l->pair.part[i];
		kube_watch_start(&p->watch, l->api, p->base, l->url.name, p->object ? p->newest : 0, l->base.url);
	}
}

static void kube_get(struct kube_lock *l);
static void kube_delete(struct kube_lock *l);

static void kube_on_looked(struct kube_lock *l)
{
	l->looked = true;
	kube_start_watches(l);
	if (!l->writing) {
		kube_finish_read(l);
		return;
	}
	struct version now = kube_pair_version(&l->pair);
	l->at = 0;
	l->raced = false;
	if (strcmp(now.text, l->expected.text) == 0 && !l->record)
		kube_delete(l);
	else if (strcmp(now.text, l->expected.text) == 0)
		kube_put(l);
	else
		kube_finish(l, &(struct lock_result){ .outcome = LOCK_CONFLICT, .sent_at = l->sent_at });
}

/* Is it this very object that is missing? A path or a group that the server does not know is something else. */
static bool kube_says_missing(const struct kube_lock *l, const struct kube_answer *a)
{
	const char *reason = json_string_value(json_object_get(a->object, "reason"));
	const char *name = json_string_value(json_object_get(json_object_get(a->object, "details"), "name"));

	return a->status == 404 && reason && strcmp(reason, "NotFound") == 0 && name && strcmp(name, l->url.name) == 0;
}

/* The server shows an older version than it once did: etcd was restored from a backup. That is what there is now. */
static void part_go_back(struct kube_part *p, int64_t number)
{
	log_event(LOG_WARN, &(struct log_about){ .lock = p->lock->base.url }, "went_back",
	          "the API server shows version %" PRId64 ", it had shown %" PRId64
	          ": was it restored from a backup? Tokens may go back too",
	          number, p->newest);
	p->newest = 0;
	kube_watch_stop(&p->watch);
}

static void kube_on_got(void *arg, const struct kube_answer *a)
{
	struct kube_lock *l = arg;
	struct kube_part *p = &l->pair.part[l->at];
	int64_t number = 0;
	struct err err;

	if (l->at == 0)
		l->sent_at = a->sent_at;
	if (a->err.code == ERR_NONE && a->status == 200 &&
	    (!a->object || kube_object_number(a->object, &number, &err) < 0)) {
		kube_fail(l, LOCK_FAILED, ERR_INVALID, "the API server's answer is no object: %s",
		          a->object ? err.text : "no JSON");
		return;
	}
	if (a->err.code != ERR_NONE || (a->status != 200 && !kube_says_missing(l, a))) {
		l->writing = false; /* if it was a look before a write, nothing was written */
		kube_fail_answer(l, a);
		return;
	}
	if (a->status == 200 && number < p->newest && !l->raced)
		part_go_back(p, number);
	kube_part_keep(p, a->status == 200 ? a->object : NULL);
	if (++l->at < l->pair.count)
		kube_get(l);
	else
		kube_on_looked(l);
}

static void kube_get(struct kube_lock *l)
{
	char *path = mem_printf("%s/%s", l->pair.part[l->at].base, l->url.name);

	kube_start(l, "GET", path, NULL, kube_on_got);
	free(path);
}

/* ---- writing ---- */

static void kube_finish_write(struct kube_lock *l)
{
	kube_finish(l, &(struct lock_result){
			       .outcome = LOCK_OK, .sent_at = l->sent_at, .version = l->wrote, .token = l->token });
}

/* Before the next of a pair. What a watch has shown meanwhile is not what was judged: the next must not be built upon
 * it. */
static bool kube_is_overtaken(struct kube_lock *l)
{
	if (!l->raced || l->at == l->pair.count)
		return false;
	kube_fail(l, LOCK_UNKNOWN, ERR_INVALID,
	          "one of the pair is written, and meanwhile the other was changed by somebody else");
	return true;
}

/* After the first of a pair is written, nothing is "surely not applied" any more. */
static void kube_conflict(struct kube_lock *l, const struct kube_answer *a)
{
	if (l->at == 0 && !a->repeated)
		kube_finish(l, &(struct lock_result){ .outcome = LOCK_CONFLICT, .sent_at = l->sent_at });
	else
		kube_fail(l, LOCK_UNKNOWN, ERR_INVALID, "409: %.300s", a->message);
}

/* The server's answer is what is stored now. It has to be what was sent: nobody else may have rewritten it on the way.
 */
static bool kube_stored_ours(const struct kube_lock *l, const struct kube_answer *a, int64_t *number, struct err *err)
{
	char name[33];

	if (!a->object)
		return err_set(err, ERR_INVALID, "the API server's answer is no JSON") == 0;
	if (kube_object_number(a->object, number, err) < 0)
		return false;
	kube_object_write_name(l->pair.part[l->at].kind, a->object, name);
	if (strcmp(name, l->record->write) != 0)
		return err_set(err, ERR_INVALID,
		               "the API server stored something else than it was sent: does an admission webhook change it?") ==
		       0;
	return true;
}

static void kube_on_put(void *arg, const struct kube_answer *a)
{
	struct kube_lock *l = arg;
	bool created = l->pair.part[l->at].object == NULL;
	struct err err;

	if (l->at == 0)
		l->sent_at = a->sent_at;
	if (a->err.code != ERR_NONE) {
		kube_fail_answer(l, l->at == 0 ? a : &(struct kube_answer){ .err = a->err, .message = "" });
	} else if (a->status == 409 || (a->status == 404 && !created)) {
		kube_conflict(l, a);
	} else if (a->status != (created ? 201 : 200)) {
		if (a->status == 201)
			kube_fail(
				l, LOCK_UNKNOWN, ERR_INVALID,
				"201: the object had been deleted, and the API server made it anew although it was told its uid");
		else
			kube_fail_answer(l, a);
	} else if (!kube_stored_ours(l, a, &l->token, &err)) {
		kube_fail(l, LOCK_UNKNOWN, err.code, "%s", err.text);
	} else {
		kube_part_keep(&l->pair.part[l->at], a->object);
		kube_version_add(&l->wrote, a->object);
		if (++l->at == l->pair.count)
			kube_finish_write(l);
		else if (!kube_is_overtaken(l))
			kube_put(l);
	}
}

/* Always with uid and version, which a PUT without them would not be: one that makes the object anew, or overwrites. */
static void kube_put(struct kube_lock *l)
{
	const struct kube_part *p = &l->pair.part[l->at];
	const struct kube_extras extras = { l->url.labels, l->url.owner };
	json_t *body = kube_object_write(p->kind, p->object, l->url.ns, l->url.name, l->record, &extras);
	char *path = p->object ? mem_printf("%s/%s", p->base, l->url.name) : mem_dup(p->base);

	kube_start(l, p->object ? "PUT" : "POST", path, body, kube_on_put);
	free(path);
}

/* ---- doctor's ---- */

static void kube_on_deleted(void *arg, const struct kube_answer *a)
{
	struct kube_lock *l = arg;

	if (a->err.code != ERR_NONE || (a->status != 200 && a->status != 404 && a->status != 409)) {
		kube_fail_answer(l, a);
	} else if (a->status == 409) {
		kube_conflict(l, a);
	} else {
		kube_part_keep(&l->pair.part[l->at], NULL);
		l->at++;
		if (!kube_is_overtaken(l))
			kube_delete(l);
	}
}

/* The next that is there; finishes after the last. Only what has this very version is deleted. */
static void kube_delete(struct kube_lock *l)
{
	while (l->at < l->pair.count && !l->pair.part[l->at].object)
		l->at++;
	if (l->at == l->pair.count) {
		kube_finish(l, &(struct lock_result){ .outcome = LOCK_OK, .sent_at = l->sent_at });
		return;
	}
	const struct kube_part *p = &l->pair.part[l->at];
	char *path = mem_printf("%s/%s", p->base, l->url.name);
	json_t *body =
		json_pack("{s:s, s:s, s:{s:s, s:s}}", "kind", "DeleteOptions", "apiVersion", "v1", "preconditions",
	                  "uid", kube_object_uid(p->object), "resourceVersion", kube_object_revision(p->object));
	kube_start(l, "DELETE", path, body, kube_on_deleted);
	free(path);
}

static void kube_on_server_version(void *arg, const struct kube_answer *a)
{
	struct kube_lock *l = arg;
	const char *version = json_string_value(json_object_get(a->object, "gitVersion"));

	if (a->err.code != ERR_NONE || a->status != 200) {
		kube_fail_answer(l, a);
		return;
	}
	*l->about = (struct lock_about){
		.pause_ms = 2500
	}; /* there is an etcd behind it, that may have to choose its leader */
	snprintf(l->about->server, sizeof l->about->server, "Kubernetes %s", version ? version : "of no known version");
	kube_finish(l, &(struct lock_result){ .outcome = LOCK_OK, .sent_at = l->sent_at });
}

/* ---- notices ---- */

static bool part_is_own_write(const struct kube_part *p, const json_t *object)
{
	const struct kube_lock *l = p->lock;
	char name[33];

	if (!l->active || !l->writing || !l->record)
		return false;
	kube_object_write_name(p->kind, object, name);
	return *name && strcmp(name, l->record->write) == 0; /* its answer is on its way */
}

static void part_on_news(void *arg, enum kube_news what, json_t *object)
{
	struct kube_part *p = arg;
	struct kube_lock *l = p->lock;
	int64_t number = 0;

	if (what == KUBE_CHANGED) {
		if (kube_object_number(object, &number, NULL) < 0 || number <= p->newest ||
		    part_is_own_write(p, object))
			return;
		kube_part_keep(p, object);
		l->raced = true;
	}
	l->offer = what == KUBE_CHANGED && !(l->active && l->writing);
	if (l->changed)
		l->changed(l->changed_arg);
}

static bool kube_delivers(const struct kube_lock *l)
{
	for (int i = 0; i < l->pair.count; i++)
		if (!kube_watch_delivers(&l->pair.part[i].watch))
			return false;
	return true;
}

/* ---- the backend ---- */

static void kube_begin(struct kube_lock *l, bool writing, struct instant by, lock_done_fn *done, void *arg)
{
	l->active = true;
	l->writing = writing;
	l->offered = l->raced = false;
	l->at = 0;
	l->wrote.text[0] = '\0';
	l->by = by;
	l->sent_at = clock_now();
	l->done = done;
	l->arg = arg;
}

static void kube_on_soon(struct ev_loop *loop, ev_timer *w, int events)
{
	(void)loop, (void)events;
	kube_finish_read(w->data);
}

static void kube_read(struct lock *base, struct instant by, lock_done_fn *done, void *arg)
{
	struct kube_lock *l = (struct kube_lock *)base;

	kube_begin(l, false, by, done, arg);
	if (!l->offer || !kube_delivers(l)) {
		kube_get(l);
		return;
	}
	l->offer = false;
	l->offered = true;
	ev_now_update(l->env->loop);
	ev_timer_set(&l->soon, 0., 0.);
	ev_timer_start(l->env->loop, &l->soon);
}

static void kube_write(struct lock *base, const struct record *r, const struct version *expected, bool durable,
                       struct instant by, lock_done_fn *done, void *arg)
{
	struct kube_lock *l = (struct kube_lock *)base;

	(void)durable;
	kube_begin(l, true, by, done, arg);
	l->record = r;
	l->expected = *expected;
	l->offer = false;
	struct version now = kube_pair_version(&l->pair);
	if (l->looked && strcmp(now.text, expected->text) == 0)
		kube_put(l);
	else
		kube_get(l);
}

static void kube_remove(struct lock *base, const struct version *expected, struct instant by, lock_done_fn *done,
                        void *arg)
{
	struct kube_lock *l = (struct kube_lock *)base;
	struct version now = kube_pair_version(&l->pair);

	kube_begin(l, true, by, done, arg);
	l->record = NULL;
	l->expected = *expected;
	l->offer = false;
	if (l->looked && strcmp(now.text, expected->text) == 0)
		kube_delete(l);
	else
		kube_get(l);
}

static void kube_about(struct lock *base, struct lock_about *about, struct instant by, lock_done_fn *done, void *arg)
{
	struct kube_lock *l = (struct kube_lock *)base;

	kube_begin(l, false, by, done, arg);
	l->about = about;
	kube_start(l, "GET", "/version", NULL, kube_on_server_version);
}

static void kube_cancel(struct lock *base)
{
	struct kube_lock *l = (struct kube_lock *)base;

	if (!l->active)
		return;
	if (l->offered)
		kube_finish_read(l);
	else
		kube_api_cancel(&l->call);
}

/* The first watch begins where the first look ended, so nothing is missed before it. */
static bool kube_watch(struct lock *base, lock_changed_fn *changed, void *arg)
{
	struct kube_lock *l = (struct kube_lock *)base;

	l->changed = changed;
	l->changed_arg = arg;
	if (!l->looked)
		return true;
	kube_start_watches(l);
	return kube_delivers(l);
}

static void kube_announce(struct lock *base, const char *identity, bool leads)
{
	struct kube_lock *l = (struct kube_lock *)base;
	const struct kube_part *p = &l->pair.part[l->pair.count - 1];

	kube_events_send(&l->events, l->api, p->kind, p->object, l->url.ns, l->url.name, identity, leads);
}

static void kube_close(struct lock *base)
{
	struct kube_lock *l = (struct kube_lock *)base;

	kube_cancel(base);
	kube_events_fini(&l->events);
	kube_pair_fini(&l->pair);
	kube_url_fini(&l->url);
	free(l->base.url);
	free(l);
}

static struct lock *kube_open(struct lock_env *env, const char *url, struct err *err)
{
	struct kube_url u;

	if (kube_url_parse(&u, url, err) < 0)
		return NULL;
	struct kube_api *api = kube_api_get(env, u.kubeconfig, u.context, err);
	if (!api) {
		err_wrap(err, "lock \"kube:%.300s\"", url);
		kube_url_fini(&u);
		return NULL;
	}
	struct kube_lock *l = mem_zero(sizeof *l);
	l->base.ops = &lock_kube;
	l->env = env;
	l->api = api;
	l->url = u;
	if (!*l->url.ns)
		mem_replace(&l->url.ns, kube_api_config(api)->ns);
	l->base.url = kube_url_print(&l->url);
	ev_init(&l->soon, kube_on_soon);
	l->soon.data = l;
	kube_pair_init(&l->pair, l, &l->url, part_on_news);
	return &l->base;
}

const struct lock_ops lock_kube = {
	.scheme = "kube",
	.open = kube_open,
	.read = kube_read,
	.write = kube_write,
	.cancel = kube_cancel,
	.watch = kube_watch,
	.announce = kube_announce,
	.close = kube_close,
	.about = kube_about,
	.remove = kube_remove,
};

static void name_libraries(struct buf *out)
{
	http_libraries(out);
}

static const struct lock_ops *const locks[] = { &lock_kube, NULL };
const struct module lunarch_module = { .build = LUNARCH_BUILD, .locks = locks, .libraries = name_libraries };
