#include "lock.h"

#include "buf.h"
#include "etcd_client.h"
#include "etcd_watch.h"
#include "lock_op.h"
#include "mem.h"
#include "module.h"

#include <ev.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT 2379

/* A record is the value of one key, without a lease of etcd's: who waits goes by what it has seen change, as in every store. */
struct etcd_lock {
	struct lock base;
	struct lock_env *env;
	struct etcd_client *client;
	char *key64;
	struct lock_op op;
	struct etcd_call call;
	struct etcd_watch watch;
	ev_timer shown;             /* the look under way has its answer from the watch already: */
	json_t *kv;                 /*     this; given in the next turn of the loop */
	struct lock_about *about;   /* what the question under way fills */
};

static struct etcd_lock *of(struct lock *l)
{
	return (struct etcd_lock *)l;
}

/* ---- operations ---- */

static void detach(struct lock_op *op)
{
	struct etcd_lock *l = (struct etcd_lock *)(void *)((char *)op - offsetof(struct etcd_lock, op));

	ev_timer_stop(l->env->loop, &l->shown);
	json_decref(l->kv);
	l->kv = NULL;
	etcd_call_cancel(&l->call);
	op->sent = l->call.maybe;
	if (l->call.sent)
		op->sent_at = l->call.sent_at;
	etcd_watch_settle(&l->watch, 0);
}

static void begin(struct etcd_lock *l, bool writing, struct instant by, lock_done_fn *done, void *arg)
{
	lock_op_begin(&l->op, l->env, &l->base, detach, writing, by, done, arg);
	l->op.sent = true; /* until detach knows better */
	l->watch.busy = true;
}

static void finish(struct etcd_lock *l, const struct etcd_answer *a, struct lock_result *r)
{
	l->op.sent_at = a->sent_at;
	lock_op_finish(&l->op, r);
}

/* There was no answer, or none that is one. */
static void fail(struct etcd_lock *l, const struct etcd_answer *a)
{
	struct lock_result r = { .outcome = a->outcome, .err = a->err };

	if (a->outcome == LOCK_OK) {
		r.outcome = l->op.writing ? LOCK_UNKNOWN : LOCK_FAILED;
		err_set(&r.err, ERR_INVALID, "etcd's answer lacks a revision or has one that is none");
	} else if (!l->op.writing && a->outcome != LOCK_REFUSED) {
		r.outcome = LOCK_FAILED;
	}
	etcd_watch_settle(&l->watch, 0);
	finish(l, a, &r);
}

static int64_t revision_of(const struct etcd_answer *a)
{
	return a->json ? etcd_number(json_object_get(a->json, "header"), "revision") : -1;
}

static void found(struct etcd_lock *l, const json_t *kv)
{
	const char *value = json_string_value(json_object_get(kv, "value"));
	int64_t revision = etcd_number(kv, "mod_revision");
	struct buf text = { 0 };
	char version[32];

	/* An empty value is omitted. */
	if (revision <= 0 || (value && http_unbase64(&text, value, strlen(value)) < 0)) {
		lock_op_give_up(&l->op, ERR_INVALID, "etcd's answer has no revision, or a value that is no base64");
	} else {
		snprintf(version, sizeof version, "%" PRId64, revision);
		lock_op_found(&l->op, "what is at this key", text.len ? text.data : "", text.len, version, revision);
	}
	buf_fini(&text);
}

static void on_range(void *arg, const struct etcd_answer *a)
{
	struct etcd_lock *l = arg;
	const json_t *kv = a->json ? json_array_get(json_object_get(a->json, "kvs"), 0) : NULL;
	int64_t revision = revision_of(a);

	if (a->outcome != LOCK_OK || revision <= 0) {
		fail(l, a);
		return;
	}
	etcd_watch_settle(&l->watch, revision);
	l->op.sent_at = a->sent_at;
	if (kv)
		found(l, kv);
	else
		finish(l, a, &(struct lock_result){ .outcome = LOCK_ABSENT });
}

static void ask_range(struct etcd_lock *l)
{
	l->call.urgent = false;
	etcd_call_start(l->client, &l->call, etcd_range, mem_printf("{\"key\":\"%s\"}", l->key64), l->op.by, on_range, l);
}

static void on_shown(struct ev_loop *loop, ev_timer *timer, int revents)
{
	struct etcd_lock *l = timer->data;
	json_t *kv = l->kv;

	(void)loop;
	(void)revents;
	l->kv = NULL;
	etcd_watch_settle(&l->watch, etcd_number(kv, "mod_revision"));
	found(l, kv);
	json_decref(kv);
}

static void read_key(struct lock *lock, struct instant by, lock_done_fn *done, void *arg)
{
	struct etcd_lock *l = of(lock);

	begin(l, false, by, done, arg);
	l->call.sent = l->call.maybe = false;
	l->kv = json_incref(etcd_watch_seen(&l->watch));
	if (!l->kv) {
		ask_range(l);
		return;
	}
	ev_timer_set(&l->shown, 0., 0.);
	ev_timer_start(l->env->loop, &l->shown);
}

static void on_txn(void *arg, const struct etcd_answer *a)
{
	struct etcd_lock *l = arg;
	int64_t revision = revision_of(a);

	if (a->outcome != LOCK_OK || revision <= 0) {
		fail(l, a);
		return;
	}
	struct lock_result r = { .outcome = LOCK_CONFLICT };
	if (json_is_true(json_object_get(a->json, "succeeded"))) {
		r.outcome = LOCK_OK;
		r.token = revision;
		snprintf(r.version.text, sizeof r.version.text, "%" PRId64, revision);
		etcd_watch_settle(&l->watch, revision);
	} else {
		if (a->repeated) {
			r.outcome = LOCK_UNKNOWN;
			err_set(&r.err, ERR_UNREACHABLE, "it was sent more than once, and conflicts, perhaps with itself");
		}
		etcd_watch_settle(&l->watch, 0); /* whoever wrote it may be news */
	}
	finish(l, a, &r);
}

/* text: NULL = delete. */
static char *print_txn(const struct etcd_lock *l, const char *text, const char *expected)
{
	struct buf b = { 0 };

	buf_printf(&b, "{\"compare\":[{\"key\":\"%s\",\"target\":\"MOD\",\"result\":\"EQUAL\",\"mod_revision\":\"%s\"}],", l->key64,
	           *expected ? expected : "0");
	if (!text) {
		buf_printf(&b, "\"success\":[{\"request_delete_range\":{\"key\":\"%s\"}}]}", l->key64);
		return b.data;
	}
	buf_printf(&b, "\"success\":[{\"request_put\":{\"key\":\"%s\",\"value\":\"", l->key64);
	http_base64(&b, text, strlen(text));
	buf_adds(&b, "\"}}]}");
	return b.data;
}

/* Every answered write is on the disks of a majority: there is nothing more for `durable`. */
static void write_key(struct lock *lock, const struct record *record, const struct version *expected, bool durable, struct instant by,
                      lock_done_fn *done, void *arg)
{
	struct etcd_lock *l = of(lock);
	char *text;

	(void)durable;
	begin(l, true, by, done, arg);
	if (strspn(expected->text, "0123456789") != strlen(expected->text)) {
		etcd_watch_settle(&l->watch, 0);
		lock_op_fail_soon(&l->op, LOCK_CONFLICT, ERR_NONE, "%s", "");
		return;
	}
	if (!lock_op_print(&l->op, record, &text)) {
		etcd_watch_settle(&l->watch, 0);
		return;
	}
	l->call.urgent = record->token != 0 || record->state == RECORD_RELEASED;
	etcd_call_start(l->client, &l->call, etcd_txn, print_txn(l, text, expected->text), by, on_txn, l);
	free(text);
}

static void remove_key(struct lock *lock, const struct version *expected, struct instant by, lock_done_fn *done, void *arg)
{
	struct etcd_lock *l = of(lock);

	begin(l, true, by, done, arg);
	l->call.urgent = false;
	etcd_call_start(l->client, &l->call, "kv/txn", print_txn(l, NULL, expected->text), by, on_txn, l);
}

/* ---- what the server is ---- */

#define ELECTION_MS 2500 /* a cluster at its defaults finds that its leader is gone after 1 to 2 s, and needs a round more */

/* Versions that lose or fork what they have acknowledged: etcd's own announcement for 3.5.0 to 3.5.2 (issue 13766). */
static void judge(struct lock_about *about, const json_t *status)
{
	const char *version = json_string_value(json_object_get(status, "version"));
	int major = 0, minor = 0, patch = 0;

	snprintf(about->server, sizeof about->server, "etcd %s", version ? version : "of no known version");
	if (!version || sscanf(version, "%d.%d.%d", &major, &minor, &patch) != 3)
		return;
	if (major == 3 && minor == 5 && patch <= 2) {
		about->unfit = true;
		snprintf(about->warning, sizeof about->warning, "a member that was killed may come back with other data than the rest (etcd's "
		         "issue 13766): 3.5.3 or later is needed");
	} else if (major == 3 && minor < 4) {
		snprintf(about->warning, sizeof about->warning, "this version gets no more repairs; 3.4 to 3.6 are tested");
	}
}

static void on_status(void *arg, const struct etcd_answer *a)
{
	struct etcd_lock *l = arg;

	etcd_watch_settle(&l->watch, 0);
	if (a->outcome != LOCK_OK) {
		fail(l, a);
		return;
	}
	judge(l->about, a->json);
	l->about->pause_ms = l->client->url.hosts > 1 ? ELECTION_MS : 0;
	finish(l, a, &(struct lock_result){ .outcome = LOCK_OK });
}

static void ask_server(struct lock *lock, struct lock_about *about, struct instant by, lock_done_fn *done, void *arg)
{
	struct etcd_lock *l = of(lock);

	begin(l, false, by, done, arg);
	l->about = about;
	l->call.urgent = false;
	etcd_call_start(l->client, &l->call, "maintenance/status", mem_dup("{}"), by, on_status, l);
}

static void cancel(struct lock *lock)
{
	lock_op_cancel(&of(lock)->op);
}

static bool watch(struct lock *lock, lock_changed_fn *changed, void *arg)
{
	struct etcd_lock *l = of(lock);

	l->watch.changed = changed;
	l->watch.arg = arg;
	etcd_watch_start(l->client->hub, &l->watch);
	return true;
}

/* ---- open and close ---- */

static void close_lock(struct lock *lock)
{
	struct etcd_lock *l = of(lock);

	cancel(lock);
	etcd_watch_stop(&l->watch);
	free(l->key64);
	free(l->base.url);
	free(l);
}

static int check(const struct lock_url *u, bool tls, struct err *err)
{
	if (!*u->path)
		return err_set(err, ERR_USAGE, "the key is missing: expected etcd://HOST:PORT/KEY");
	if (!tls && u->options && (lock_url_option(u, "ca") || lock_url_option(u, "cert") || lock_url_option(u, "key") || lock_url_option(u, "server_name")))
		return err_set(err, ERR_USAGE, "ca, cert, key and server_name are for TLS: write etcds://");
	if (lock_url_option(u, "key") && !lock_url_option(u, "cert"))
		return err_set(err, ERR_USAGE, "the option key is given without cert, the certificate it belongs to");
	return 0;
}

static char *base64_of(const char *key)
{
	struct buf b = { 0 };

	http_base64(&b, key, strlen(key));
	return b.data;
}

static struct lock *open_lock(struct lock_env *env, const char *text, const struct lock_ops *ops, bool tls, struct err *err)
{
	struct lock_url u;

	if (lock_url_parse(&u, ops->scheme, text, PORT, etcd_options, err) < 0)
		return NULL;
	char *shown = lock_url_print(&u, ops->scheme), *key64 = base64_of(u.path);
	if (check(&u, tls, err) < 0) {
		err_wrap(err, "lock %s", shown);
		lock_url_fini(&u);
		goto fail;
	}
	struct etcd_client *client = etcd_client_get(env, &u, tls, err);
	if (!client)
		goto fail;
	struct etcd_lock *l = mem_zero(sizeof *l);
	l->base.ops = ops;
	l->base.url = shown;
	l->env = env;
	l->client = client;
	l->key64 = key64;
	l->watch.key64 = key64;
	ev_init(&l->shown, on_shown);
	l->shown.data = l;
	return &l->base;
fail:
	free(shown);
	free(key64);
	return NULL;
}

static struct lock *open_plain(struct lock_env *env, const char *text, struct err *err);
static struct lock *open_tls(struct lock_env *env, const char *text, struct err *err);

static const struct lock_ops lock_etcd = {
	.scheme = "etcd",
	.open = open_plain,
	.read = read_key,
	.write = write_key,
	.cancel = cancel,
	.watch = watch,
	.close = close_lock,
	.about = ask_server,
	.remove = remove_key,
};
static const struct lock_ops lock_etcds = {
	.scheme = "etcds",
	.open = open_tls,
	.read = read_key,
	.write = write_key,
	.cancel = cancel,
	.watch = watch,
	.close = close_lock,
	.about = ask_server,
	.remove = remove_key,
};

static struct lock *open_plain(struct lock_env *env, const char *text, struct err *err)
{
	return open_lock(env, text, &lock_etcd, false, err);
}

static struct lock *open_tls(struct lock_env *env, const char *text, struct err *err)
{
	return open_lock(env, text, &lock_etcds, true, err);
}

const struct module lunarch_module = {
	.build = LUNARCH_BUILD,
	.locks = (const struct lock_ops *const[]){ &lock_etcd, &lock_etcds, NULL },
	.prepare = http_prepare,
	.libraries = http_libraries,
};
