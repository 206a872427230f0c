#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/module.h"
#include "kube/kube_api.h"
#include "kube/kube_meta.h"
#include "kube/kube_slice.h"
#include "kube/kube_url.h"
#include "locks/kubernetes/kube_events.h"
#include "locks/kubernetes/kube_object.h"
#include "locks/kubernetes/kube_pair.h"
#include "locks/lock.h"
#include "locks/lock_listing.h"
#include "locks/lock_op.h"
#include "locks/lock_url.h"
#include "net/http/http.h"

#include <ev.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE "application/json;as=Table;v=v1;g=meta.k8s.io"
#define LIST_PAGE 500
#define EVENTS_AFTER (20 * NSEC_PER_MS) /* after a release: meanwhile the next leader acquires the Lease */
#define EVENTS_WITHIN NSEC_PER_SEC      /* the release is reported this long after that, at the latest */
#define EVENTS_SHARE 2                  /* or, if that is earlier, after this part of the rest of its time */
#define LIST_SPARE NSEC_PER_SEC         /* a list ends with what it has when no more time is left */

extern const struct lock_ops lock_kube;

struct kube_lock {
	struct lock base;
	struct lock_env *env;
	struct kube_api *api;
	struct kube_url url;
	struct kube_pair pair;
	bool looked; /* at all parts of the pair */
	bool offer;  /* the next read asks nothing, but takes what the watches have shown */
	lock_changed_fn *changed;
	void *changed_arg;
	struct kube_events events;

	struct lock_op op;
	lock_done_fn *done; /* who hears of its end */
	void *done_arg;
	bool lingers;          /* the release is done, and reported when the Events are sent, too */
	struct instant by;     /* of the operation; its requests end by then */
	struct kube_call call; /* the request that is under way */
	void (*answered)(struct kube_lock *l, const struct kube_answer *a); /* is called with the request's answer */
	int at;                      /* the part of the pair that the request is about */
	bool raced;                  /* a watch has shown something since the operation began */
	const struct record *record; /* to write; NULL: to remove, or none */
	struct lock_about *about;
	struct lock_listing *listing; /* to fill; NULL: another operation is under way */
	struct version expected;
	/* of the parts that are written, by their answers: a watch may already show something newer, which nobody
	 * has judged */
	struct version wrote;
	int64_t token;
};

static struct kube_lock *kube_of(struct lock_op *op)
{
	return (struct kube_lock *)(void *)((char *)op - offsetof(struct kube_lock, op));
}

/* ---- answers ---- */

/* The outcome that follows from an answer that was not hoped for. */
static enum lock_outcome kube_outcome(const struct kube_lock *l, const struct kube_answer *a)
{
	if (!l->op.writing)
		return LOCK_FAILED;
	if (l->at > 0 || a->repeated ||
	    a->status >= 500) /* the first of the pair is written, or it may have been done */
		return LOCK_UNKNOWN;
	if (a->status == 401 || a->status == 403)
		return LOCK_REFUSED;
	return a->status == 404 || a->status == 429 ? LOCK_FAILED : LOCK_INVALID;
}

/* The same for people. */
static void kube_fail(struct kube_lock *l, const struct kube_answer *a)
{
	const struct kube_resource *k = &kube_resources[l->pair.part[l->at].kind];
	const char *verbs = l->listing ? "\"list\"" : "\"get\", \"create\", \"update\", \"watch\"";
	char needed[200];
	struct err err;

	snprintf(needed, sizeof needed, "apiGroups [\"%s\"], resources [\"%s\"], verbs [%s]", k->group, k->plural,
	         verbs);
	kube_api_explain(l->api, a, l->url.ns, needed, &err);
	if (l->op.writing && a->repeated) /* what is refused now may have been done the first time */
		err_set(&err, ERR_UNREACHABLE, "sent twice, since a connection broke, and then %d: %.300s", a->status,
		        a->message);
	else if (l->op.writing && a->status == 404)
		err_set(&err, ERR_MISSING, "404: is there a namespace of that name? %.300s", a->message);
	lock_op_fail(&l->op, kube_outcome(l, a), err.code, "%s", err.text);
}

/* ---- requests ---- */

static void kube_on_got(struct kube_lock *l, const struct kube_answer *a);
static void kube_put(struct kube_lock *l);
static void kube_delete(struct kube_lock *l);

/* A look before a write has written nothing. */
static void kube_look_failed(struct kube_lock *l)
{
	l->op.writing = l->op.removing = l->offer = false;
}

static void kube_on_answer(void *arg, const struct kube_answer *a)
{
	struct kube_lock *l = arg;

	if (l->at == 0)
		l->op.sent_at = a->sent_at;
	l->op.sent = l->at > 0 || !a->unsent;
	if (a->err.code == ERR_NONE) {
		l->answered(l, a);
		return;
	}
	if (l->answered == kube_on_got)
		kube_look_failed(l);
	if (a->err.code != ERR_CANCELLED) /* which only kube_on_detach brings about */
		lock_op_give_up(&l->op, a->err.code, "%s", a->err.text);
}

static void kube_on_detach(struct lock_op *op)
{
	struct kube_lock *l = kube_of(op);

	l->offer = l->lingers = false;
	kube_api_cancel(&l->call);
}

/* What was announced before an operation is told to others after it. */
static void kube_on_end(void *arg, const struct lock_result *r)
{
	struct kube_lock *l = arg;

	kube_events_send(&l->events, l->api);
	l->done(l->done_arg, r); /* may close the lock */
}

/* path: taken. body: NULL = none; taken. */
static void kube_ask(struct kube_lock *l, const char *method, char *path, json_t *body,
                     void (*answered)(struct kube_lock *l, const struct kube_answer *a))
{
	l->answered = answered;
	kube_api_start(l->api, &l->call,
	               &(struct kube_request){
			       .client = KUBE_WORK,
			       .method = method,
			       .path = path,
			       .accept = l->listing ? TABLE : NULL,
			       .body = body ? json_dumps(body, JSON_COMPACT) : NULL,
			       .by = l->by,
			       .done = kube_on_answer,
			       .arg = l,
		       });
	json_decref(body);
	free(path);
}

static char *part_path(const struct kube_part *p)
{
	return mem_printf("%s/%s", p->base, p->lock->url.name);
}

/* ---- reading ---- */

static void kube_finish_read(struct lock_op *op)
{
	struct kube_lock *l = kube_of(op);
	struct version version = kube_pair_version(&l->pair);
	struct record r;
	struct err why;

	record_init(&r);
	enum kube_found found = kube_pair_read(&l->pair, &r, &why);
	l->offer = l->offer && found == KUBE_FOUND;
	switch (found) {
	case KUBE_FOREIGN:
		lock_op_fail(op, LOCK_FOREIGN, why.code, "%s", why.text);
		break;
	case KUBE_NOTHING:
		lock_op_finish(op, &(struct lock_result){ .outcome = LOCK_ABSENT, .version = version });
		break;
	case KUBE_FOUND:
		lock_op_found_record(op, &r, version.text,
		                     kube_pair_token(&l->pair, kube_pair_last(&l->pair), r.write));
		break;
	}
	record_fini(&r);
}

static void kube_start_watches(struct kube_lock *l)
{
	for (int i = 0; l->changed && i < l->pair.count; i++) {
		struct kube_part *p = &l->pair.part[i];
		kube_watch_start(&p->watch, l->api, p->base, l->url.name, p->object ? p->newest : 0, l->base.url);
	}
}

static bool kube_is_as_expected(const struct kube_lock *l)
{
	struct version now = kube_pair_version(&l->pair);

	return strcmp(now.text, l->expected.text) == 0;
}

static void kube_change(struct kube_lock *l)
{
	if (l->record)
		kube_put(l);
	else
		kube_delete(l);
}

static void kube_on_looked(struct kube_lock *l)
{
	l->looked = true;
	kube_start_watches(l);
	if (!l->op.writing) {
		kube_finish_read(&l->op);
		return;
	}
	l->at = 0;
	l->raced = false;
	if (kube_is_as_expected(l))
		kube_change(l);
	else
		lock_op_finish(&l->op, &(struct lock_result){ .outcome = LOCK_CONFLICT });
}

/* The server shows an older version than it once did: its etcd was restored from a backup. What it shows is what counts
 * now. */
static void part_go_back(struct kube_part *p, int64_t number)
{
	log_event(LOG_WARN, &(struct log_about){ .lock = p->lock->base.url }, "went_back",
	          "the API server shows version %" PRId64 ", it had shown %" PRId64
	          ": was it restored from a backup? Tokens may go back too",
	          number, p->newest);
	p->newest = 0;
	kube_watch_stop(&p->watch);
}

static void kube_get(struct kube_lock *l)
{
	kube_ask(l, "GET", part_path(&l->pair.part[l->at]), NULL, kube_on_got);
}

static void kube_on_got(struct kube_lock *l, const struct kube_answer *a)
{
	struct kube_part *p = &l->pair.part[l->at];
	bool there = a->status == 200;
	int64_t number = 0;
	struct err why;

	if (!there && !kube_answer_missing(a, l->url.name)) {
		kube_look_failed(l);
		kube_fail(l, a);
		return;
	}
	if (there && (!a->object || kube_meta_number(a->object, &number, &why) < 0)) {
		kube_look_failed(l);
		lock_op_fail(&l->op, LOCK_FAILED, ERR_INVALID, "the API server's answer is no object: %s",
		             a->object ? why.text : "no JSON");
		return;
	}
	if (there && number < p->newest && !l->raced)
		part_go_back(p, number);
	kube_part_keep(p, there ? a->object : NULL);
	if (++l->at < l->pair.count)
		kube_get(l);
	else
		kube_on_looked(l);
}

/* ---- writing ---- */

/* Asked before the next part of a pair is written. If a watch has shown a change meanwhile, the next part would be
 * built upon an object that nobody has judged. */
static bool kube_is_overtaken(struct kube_lock *l)
{
	if (!l->raced || l->at == l->pair.count)
		return false;
	lock_op_fail(&l->op, LOCK_UNKNOWN, ERR_INVALID,
	             "one of the pair is written, and meanwhile the other was changed by somebody else");
	return true;
}

/* After the first of a pair is written, nothing is "surely not applied" any more. */
static void kube_conflict(struct kube_lock *l, const struct kube_answer *a)
{
	if (l->at == 0 && !a->repeated)
		lock_op_finish(&l->op, &(struct lock_result){ .outcome = LOCK_CONFLICT });
	else
		lock_op_fail(&l->op, LOCK_UNKNOWN, ERR_INVALID, "409: %.300s", a->message);
}

/* The answer is what is stored now. That has to be what was sent: something in the server may have changed it. */
static bool kube_stored_ours(const struct kube_lock *l, const struct kube_answer *a, struct err *err)
{
	int64_t number;
	char name[33];

	if (!a->object)
		return err_set(err, ERR_INVALID, "the API server's answer is no JSON") == 0;
	if (kube_meta_number(a->object, &number, err) < 0)
		return false;
	kube_object_write_name(l->pair.part[l->at].kind, a->object, name);
	if (strcmp(name, l->record->write) != 0)
		return err_set(err, ERR_INVALID,
		               "the API server stored something else than it was sent: does an admission webhook change it?") ==
		       0;
	return true;
}

static void kube_finish_write(struct lock_op *op)
{
	struct kube_lock *l = kube_of(op);

	l->lingers = false;
	lock_op_finish(op, &(struct lock_result){ .outcome = LOCK_OK, .version = l->wrote, .token = l->token });
}

static void kube_send_events(struct lock_op *op)
{
	struct kube_lock *l = kube_of(op);
	nsec rest = instant_until(l->by, clock_now()) / EVENTS_SHARE;

	if (kube_events_send(&l->events, l->api))
		lock_op_after(op, rest < EVENTS_WITHIN ? rest : EVENTS_WITHIN, kube_finish_write);
	else
		kube_finish_write(op);
}

static void kube_on_events_ended(void *arg)
{
	struct kube_lock *l = arg;

	if (l->lingers)
		kube_send_events(&l->op);
}

/* A process may end when it knows that the Lease is released, and "stopped leading" would be lost. So that is sent
 * first. The others have seen the release already, nobody waits for its answer. */
static void kube_linger(struct kube_lock *l)
{
	l->lingers = true;
	kube_events_ripen(&l->events); /* the end of the term is announced while its release is under way */
	lock_op_after(&l->op, EVENTS_AFTER, kube_send_events);
}

static void kube_on_stored(struct kube_lock *l, const struct kube_answer *a)
{
	l->token = kube_pair_token(&l->pair, a->object, l->record->write);
	kube_part_keep(&l->pair.part[l->at], a->object);
	kube_version_add(&l->wrote, a->object);
	if (++l->at < l->pair.count) {
		if (!kube_is_overtaken(l))
			kube_put(l);
	} else if (!*l->record->holder && l->events.count > 0) {
		kube_linger(l);
	} else {
		kube_finish_write(&l->op);
	}
}

/* A change was answered by "created". No API server does that to a change that names the object's uid. */
static void kube_fail_made(struct kube_lock *l, const struct kube_answer *a)
{
	const char *before = kube_meta_uid(l->pair.part[l->at].object), *now = kube_meta_uid(a->object);

	lock_op_fail(
		&l->op, LOCK_UNKNOWN, ERR_INVALID, "a change was answered by 201 (created), expected 200%s",
		!*now ? ", and without an object: is this a Kubernetes API server?"
		: strcmp(before, now) == 0
			? ", although the object is the one that there was: does a proxy change the status?"
			: ": the object had been deleted, and the API server made it anew although it was told its uid");
}

static void kube_on_put(struct kube_lock *l, const struct kube_answer *a)
{
	bool created = l->pair.part[l->at].object == NULL;
	struct err why;

	if (a->status == 409 || (a->status == 404 && !created))
		kube_conflict(l, a);
	else if (a->status == 201 && !created)
		kube_fail_made(l, a);
	else if (a->status != (created ? 201 : 200))
		kube_fail(l, a);
	else if (!kube_stored_ours(l, a, &why))
		lock_op_fail(&l->op, LOCK_UNKNOWN, why.code, "%s", why.text);
	else
		kube_on_stored(l, a);
}

/* A PUT always has uid and version: without them it would make the object anew, or overwrite a newer one. */
static void kube_put(struct kube_lock *l)
{
	const struct kube_part *p = &l->pair.part[l->at];
	const struct kube_extras extras = { l->url.labels, l->url.owner };
	json_t *body = kube_object_write(p->kind, p->object, l->url.ns, l->url.name, l->record, &extras);

	kube_ask(l, p->object ? "PUT" : "POST", p->object ? part_path(p) : mem_dup(p->base), body, kube_on_put);
}

/* ---- list ---- */

static void kube_list_page(struct kube_lock *l, const char *from);

/* Who has the next page, or the first one of the pair's other kind. NULL: all were seen, or there is no more room or
 * time for them. */
static const char *kube_list_next(struct kube_lock *l, const json_t *table)
{
	const char *from = kube_text(json_object_get(table, "metadata"), "continue");
	bool ends = l->listing->more || instant_until(l->by, clock_now()) < LIST_SPARE;

	if (*from) {
		l->listing->more |= ends;
		return ends ? NULL : from;
	}
	if (++l->at == l->pair.count)
		return NULL;
	l->listing->more |= ends;
	return ends ? NULL : "";
}

static void kube_on_listed(struct kube_lock *l, const struct kube_answer *a)
{
	const json_t *rows = json_object_get(a->object, "rows");
	size_t len = lock_listing_prefix(l->url.name);

	if (a->status != 200) {
		kube_fail(l, a);
		return;
	}
	if (strcmp(kube_text(a->object, "kind"), "Table") != 0) {
		lock_op_fail(&l->op, LOCK_FAILED, ERR_INVALID, "the API server's answer is no table");
		return;
	}
	for (size_t i = 0; i < json_array_size(rows); i++) {
		const char *name =
			json_string_value(json_array_get(json_object_get(json_array_get(rows, i), "cells"), 0));
		if (name && strncmp(name, l->url.name, len) == 0)
			lock_listing_add(l->listing, name + len, NULL);
	}
	const char *next = kube_list_next(l, a->object);
	if (next)
		kube_list_page(l, next);
	else
		lock_op_finish(&l->op, &(struct lock_result){ .outcome = LOCK_OK });
}

/* As a table without its objects, of which 500 may have many megabytes (kubernetes.io/docs/reference/using-api/
 * api-concepts, "Receiving resources as Tables" and "Retrieving large results sets in chunks"). The first column is the
 * name. */
static void kube_list_page(struct kube_lock *l, const char *from)
{
	struct buf path = { 0 };

	buf_printf(&path, "%s?includeObject=None&limit=%d%s", l->pair.part[l->at].base, LIST_PAGE,
	           *from ? "&continue=" : "");
	lock_url_encode(&path, from, "");
	kube_ask(l, "GET", path.data, NULL, kube_on_listed);
}

/* ---- doctor's ---- */

static void kube_on_deleted(struct kube_lock *l, const struct kube_answer *a)
{
	if (a->status == 409) {
		kube_conflict(l, a);
	} else if (a->status != 200 && a->status != 404) {
		kube_fail(l, a);
	} else {
		kube_part_keep(&l->pair.part[l->at], NULL);
		l->at++;
		if (!kube_is_overtaken(l))
			kube_delete(l);
	}
}

/* Deletes the next part that is there, if it has this version; finishes after the last. */
static void kube_delete(struct kube_lock *l)
{
	while (l->at < l->pair.count && !l->pair.part[l->at].object)
		l->at++;
	if (l->at == l->pair.count) {
		lock_op_finish(&l->op, &(struct lock_result){ .outcome = LOCK_OK });
		return;
	}
	const struct kube_part *p = &l->pair.part[l->at];
	json_t *body =
		json_pack("{s:s, s:s, s:{s:s, s:s}}", "kind", "DeleteOptions", "apiVersion", "v1", "preconditions",
	                  "uid", kube_meta_uid(p->object), "resourceVersion", kube_meta_revision(p->object));
	kube_ask(l, "DELETE", part_path(p), body, kube_on_deleted);
}

static void kube_on_server_version(struct kube_lock *l, const struct kube_answer *a)
{
	const char *version = kube_text(a->object, "gitVersion");

	if (a->status != 200) {
		kube_fail(l, a);
		return;
	}
	*l->about = (struct lock_about){
		.pause_ms = 2500
	}; /* there is an etcd behind it, that may have to choose its leader */
	snprintf(l->about->server, sizeof l->about->server, "Kubernetes %s",
	         *version ? version : "of no known version");
	lock_op_finish(&l->op, &(struct lock_result){ .outcome = LOCK_OK });
}

/* ---- notices ---- */

static bool part_is_own_write(const struct kube_part *p, const json_t *object)
{
	const struct kube_lock *l = p->lock;
	char name[33];

	if (!l->op.active || !l->op.writing || !l->record)
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
		if (kube_meta_number(object, &number, NULL) < 0 || number <= p->newest || part_is_own_write(p, object))
			return;
		kube_part_keep(p, object);
		l->raced = true;
	}
	l->offer = what == KUBE_CHANGED && (l->lingers || !(l->op.active && l->op.writing));
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

/* Its requests have the deadline, and tell at which step they were; the operation has none besides. */
static void kube_begin(struct kube_lock *l, bool writing, struct instant by, lock_done_fn *done, void *arg)
{
	l->done = done;
	l->done_arg = arg;
	lock_op_begin(&l->op, l->env, &l->base, kube_on_detach, writing, (struct instant){ 0 }, kube_on_end, l);
	kube_events_ripen(&l->events);
	l->by = by;
	l->raced = false;
	l->at = 0;
	l->wrote.text[0] = '\0';
	l->listing = NULL;
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
	lock_op_soon(&l->op, kube_finish_read);
}

/* record: NULL = remove it. Looks first if it has to; that nothing is there to be removed is not known without. */
static void kube_begin_change(struct kube_lock *l, const struct record *record, const struct version *expected,
                              struct instant by, lock_done_fn *done, void *arg)
{
	kube_begin(l, true, by, done, arg);
	l->op.removing = !record;
	l->record = record;
	l->expected = *expected;
	l->offer = false;
	if (l->looked && kube_is_as_expected(l) && (record || *expected->text))
		kube_change(l);
	else
		kube_get(l);
}

static void kube_write(struct lock *base, const struct record *r, const struct version *expected, bool durable,
                       struct instant by, lock_done_fn *done, void *arg)
{
	(void)durable; /* always */
	kube_begin_change((struct kube_lock *)base, r, expected, by, done, arg);
}

static void kube_remove(struct lock *base, const struct version *expected, struct instant by, lock_done_fn *done,
                        void *arg)
{
	kube_begin_change((struct kube_lock *)base, NULL, expected, by, done, arg);
}

static void kube_about(struct lock *base, struct lock_about *about, struct instant by, lock_done_fn *done, void *arg)
{
	struct kube_lock *l = (struct kube_lock *)base;

	kube_begin(l, false, by, done, arg);
	l->about = about;
	kube_ask(l, "GET", mem_dup("/version"), NULL, kube_on_server_version);
}

static void kube_list(struct lock *base, struct lock_listing *out, struct instant by, lock_done_fn *done, void *arg)
{
	struct kube_lock *l = (struct kube_lock *)base;

	kube_begin(l, false, by, done, arg);
	l->listing = out;
	kube_list_page(l, "");
}

static void kube_cancel(struct lock *base)
{
	lock_op_cancel(&((struct kube_lock *)base)->op);
}

/* Watches begin at the version that the first look has seen, so nothing before that is missed. */
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

	kube_events_add(&l->events, p->kind, p->object, l->url.ns, l->url.name, identity, leads);
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
	l->events.ended = kube_on_events_ended;
	l->events.arg = l;
	kube_pair_init(&l->pair, l, &l->url, part_on_news);
	return &l->base;
}

/* One object, also beside a pair: its Lease, since the two of a pair are not written at once. */
static char *kube_next_url(const struct lock *base, const char *url)
{
	const struct kube_lock *l = (const struct kube_lock *)base;
	char *beside = lock_url_beside(base, url, "-next");

	if (l->pair.count == 1)
		return beside;
	char *one =
		mem_printf("%s%sresource=leases", beside, strchr(beside, '?') ? "&" : "?"); /* the last one counts */
	free(beside);
	return one;
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
	.list = kube_list,
	.about = kube_about,
	.remove = kube_remove,
	.next = "-next",
	.next_url = kube_next_url,
};

static void name_libraries(struct buf *out)
{
	http_libraries(out);
}

static const struct lock_ops *const locks[] = { &lock_kube, NULL };
const struct module lunarch_module = {
	.build = LUNARCH_BUILD,
	.locks = locks,
	.service = &kube_slice_ops,
	.prepare = http_prepare,
	.libraries = name_libraries,
};
