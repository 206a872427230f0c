#include "locks/lock.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/module.h"
#include "locks/etcd/etcd_client.h"
#include "locks/etcd/etcd_watch.h"
#include "locks/lock_listing.h"
#include "locks/lock_op.h"
#include "locks/lock_pipeline.h"

#include <errno.h>
#include <ev.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT 2379
#define STAMPS 3

/* A record is the value of one key. It has no lease of etcd's: standbys judge by what they have seen change, as in
 * every store. */
struct etcd_lock {
	struct lock base;
	struct lock_env *env;
	struct etcd_client *client;
	char *key, *key64;
	int stamp;        /* of the question under way, 0 to STAMPS - 1: see etcd_print_look */
	int64_t expected; /* the mod revision that the write under way expects; 0: no key */
	struct lock_op op;
	struct etcd_call call;
	struct etcd_watch watch;
	json_t *kv;               /* the read under way needs no question: the watch has shown this; NULL: it does */
	struct lock_about *about; /* what the question under way fills, */
	struct lock_listing *listing;
};

static struct etcd_lock *etcd_of(struct lock *l)
{
	return (struct etcd_lock *)l;
}

/* ---- operations ---- */

static struct etcd_lock *etcd_of_op(struct lock_op *op)
{
	return (struct etcd_lock *)(void *)((char *)op - offsetof(struct etcd_lock, op));
}

static void etcd_on_detach(struct lock_op *op)
{
	struct etcd_lock *l = etcd_of_op(op);

	json_decref(l->kv);
	l->kv = NULL;
	etcd_call_cancel(&l->call);
	op->sent = l->call.maybe;
	if (l->call.sent)
		op->sent_at = l->call.sent_at;
	etcd_watch_settle(&l->watch, 0);
}

static void etcd_begin(struct etcd_lock *l, bool writing, struct instant by, lock_done_fn *done, void *arg)
{
	lock_op_begin(&l->op, l->env, &l->base, etcd_on_detach, writing, by, done, arg);
	l->op.sent = true; /* until detach knows better */
	l->call.sent = l->call.maybe = false;
	l->watch.busy = true;
}

static void etcd_finish(struct etcd_lock *l, const struct etcd_answer *a, struct lock_result *r)
{
	l->op.sent_at = a->sent_at;
	lock_op_finish(&l->op, r);
}

/* There was no answer, or a failure, or (LOCK_OK) the answer to another question. */
static void etcd_fail(struct etcd_lock *l, const struct etcd_answer *a)
{
	etcd_watch_settle(&l->watch, 0);
	l->op.sent_at = a->sent_at;
	if (a->outcome == LOCK_OK) {
		etcd_client_mistrust(l->client);
		lock_op_fail(&l->op, l->op.writing ? LOCK_UNKNOWN : LOCK_FAILED, ERR_INVALID, "%s",
		             LOCK_QUEUE_MIXED_UP);
	} else {
		lock_op_fail(&l->op, l->op.writing || a->outcome == LOCK_REFUSED ? a->outcome : LOCK_FAILED,
		             a->err.code, "%s", a->err.text);
	}
}

static void etcd_found(struct etcd_lock *l, const json_t *kv)
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

/* ---- questions and answers ---- */

/* A proxy may answer with an earlier answer, and nothing in HTTP/1.1 shows that. The answer to a write that was done
 * has a larger revision than all that were known before. The answer to a look is known by its key and by its number of
 * parts: each question asks for another number of counts behind the look than the question before it. */
static void etcd_print_look(struct buf *b, const struct etcd_lock *l, const char *key64, const char *how)
{
	buf_printf(b, "[{\"request_range\":{\"key\":\"%s\"%s}}", key64, how);
	for (int i = 0; i < l->stamp; i++)
		buf_printf(b, ",{\"request_range\":{\"key\":\"%s\",\"count_only\":true}}", l->key64);
	buf_adds(b, "]");
}

/* The first look in the answer to a transaction that has succeeded, or has not. NULL: it is the answer to another
 * question. */
static const json_t *etcd_range_of(const struct etcd_lock *l, const struct etcd_answer *a, bool succeeded)
{
	const json_t *parts = json_object_get(a->json, "responses");

	if (json_array_size(parts) != (size_t)l->stamp + 1 ||
	    json_is_true(json_object_get(a->json, "succeeded")) != succeeded)
		return NULL;
	return json_object_get(json_array_get(parts, 0), "response_range");
}

/* The same, if it is at this key. */
static const json_t *etcd_look_of(const struct etcd_lock *l, const struct etcd_answer *a, bool succeeded)
{
	const json_t *range = etcd_range_of(l, a, succeeded), *kv = json_array_get(json_object_get(range, "kvs"), 0);
	const char *key = json_string_value(json_object_get(kv, "key"));

	return kv && (!key || strcmp(key, l->key64) != 0) ? NULL : range;
}

static void etcd_ask(struct etcd_lock *l, enum etcd_kind kind, char *transaction, etcd_done_fn *done)
{
	l->call.kind = kind;
	etcd_call_start(l->client, &l->call, "kv/txn", transaction, l->op.by, done, l);
}

static void etcd_next_stamp(struct etcd_lock *l)
{
	l->stamp = (int)(l->client->asked++ % STAMPS);
}

static void etcd_on_range(void *arg, const struct etcd_answer *a)
{
	struct etcd_lock *l = arg;
	const json_t *range = a->json ? etcd_look_of(l, a, true) : NULL,
		     *kv = json_array_get(json_object_get(range, "kvs"), 0);

	if (!range || a->revision <= 0) {
		etcd_fail(l, a);
		return;
	}
	etcd_watch_settle(&l->watch, a->revision);
	l->op.sent_at = a->sent_at;
	if (kv)
		etcd_found(l, kv);
	else
		etcd_finish(l, a, &(struct lock_result){ .outcome = LOCK_ABSENT });
}

/* As a transaction, which can be told from others (see etcd_print_look). To etcd it costs no more than a range. */
static void etcd_ask_range(struct etcd_lock *l)
{
	struct buf b = { 0 };

	etcd_next_stamp(l);
	buf_adds(&b, "{\"success\":");
	etcd_print_look(&b, l, l->key64, "");
	buf_adds(&b, "}");
	etcd_ask(l, ETCD_LOOK, b.data, etcd_on_range);
}

static void etcd_on_shown(struct lock_op *op)
{
	struct etcd_lock *l = etcd_of_op(op);
	json_t *kv = l->kv;

	l->kv = NULL;
	etcd_watch_settle(&l->watch, etcd_number(kv, "mod_revision"));
	etcd_found(l, kv);
	json_decref(kv);
}

static void etcd_read(struct lock *lock, struct instant by, lock_done_fn *done, void *arg)
{
	struct etcd_lock *l = etcd_of(lock);

	etcd_begin(l, false, by, done, arg);
	l->kv = json_incref(etcd_watch_seen(&l->watch));
	if (l->kv)
		lock_op_soon(&l->op, etcd_on_shown);
	else
		etcd_ask_range(l);
}

static void etcd_written(struct etcd_lock *l, const struct etcd_answer *a)
{
	struct lock_result r = { .outcome = LOCK_OK, .token = a->revision };

	snprintf(r.version.text, sizeof r.version.text, "%" PRId64, a->revision);
	etcd_watch_settle(&l->watch, a->revision);
	etcd_finish(l, a, &r);
}

static void etcd_conflicted(struct etcd_lock *l, const struct etcd_answer *a)
{
	etcd_watch_settle(&l->watch, 0); /* whoever wrote it may be news */
	l->op.sent_at = a->sent_at;
	if (a->repeated)
		lock_op_fail(&l->op, LOCK_UNKNOWN, ERR_UNREACHABLE,
		             "it was sent more than once, and conflicts, perhaps with itself");
	else
		lock_op_finish(&l->op, &(struct lock_result){ .outcome = LOCK_CONFLICT });
}

static bool etcd_is_written(const struct etcd_lock *l, const struct etcd_answer *a)
{
	const json_t *first = json_array_get(json_object_get(a->json, "responses"), 0);

	return json_is_true(json_object_get(a->json, "succeeded")) && a->revision > a->above &&
	       json_object_get(first, l->op.removing ? "response_delete_range" : "response_put");
}

/* The key is gone, or newer than expected. */
static bool etcd_is_conflict(const struct etcd_lock *l, const struct etcd_answer *a)
{
	const json_t *range = etcd_look_of(l, a, false), *kv = json_array_get(json_object_get(range, "kvs"), 0);

	return range && (kv ? etcd_number(kv, "mod_revision") > l->expected : l->expected > 0);
}

static void etcd_on_txn(void *arg, const struct etcd_answer *a)
{
	struct etcd_lock *l = arg;

	if (a->outcome == LOCK_OK && etcd_is_written(l, a))
		etcd_written(l, a);
	else if (a->outcome == LOCK_OK && etcd_is_conflict(l, a))
		etcd_conflicted(l, a);
	else
		etcd_fail(l, a);
}

/* text: NULL = delete. */
static char *etcd_print_txn(const struct etcd_lock *l, const char *text)
{
	struct buf b = { 0 };

	buf_printf(&b,
	           "{\"compare\":[{\"key\":\"%s\",\"target\":\"MOD\",\"result\":\"EQUAL\",\"mod_revision\":\"%" PRId64
	           "\"}],\"failure\":",
	           l->key64, l->expected);
	etcd_print_look(&b, l, l->key64, ",\"keys_only\":true");
	buf_printf(&b, ",\"success\":[{\"%s\":{\"key\":\"%s\"", text ? "request_put" : "request_delete_range",
	           l->key64);
	if (text) {
		buf_adds(&b, ",\"value\":\"");
		http_base64(&b, text, strlen(text));
		buf_adds(&b, "\"");
	}
	buf_adds(&b, "}}]}");
	return b.data;
}

static void etcd_ask_txn(struct etcd_lock *l, enum etcd_kind kind, const char *text)
{
	l->op.removing = !text;
	etcd_next_stamp(l);
	etcd_ask(l, kind, etcd_print_txn(l, text), etcd_on_txn);
}

/* false: that is no version of etcd's, so it cannot be what is there. */
static bool etcd_expects(struct etcd_lock *l, const struct version *v)
{
	char *end;

	errno = 0;
	l->expected = *v->text ? strtoll(v->text, &end, 10) : 0;
	return strspn(v->text, "0123456789") == strlen(v->text) && errno == 0;
}

static void etcd_on_cannot_be_there(struct lock_op *op)
{
	etcd_watch_settle(&etcd_of_op(op)->watch, 0);
	lock_op_finish(op, &(struct lock_result){ .outcome = LOCK_CONFLICT });
}

/* Every answered write is on the disks of a majority: there is nothing more for `durable`. */
static void etcd_write(struct lock *lock, const struct record *record, const struct version *expected, bool durable,
                       struct instant by, lock_done_fn *done, void *arg)
{
	struct etcd_lock *l = etcd_of(lock);

	(void)durable;
	etcd_begin(l, true, by, done, arg);
	if (!etcd_expects(l, expected)) {
		lock_op_soon(&l->op, etcd_on_cannot_be_there);
		return;
	}
	if (!lock_op_print(&l->op, record)) {
		etcd_watch_settle(&l->watch, 0);
		return;
	}
	etcd_ask_txn(l, record->token != 0 || record->state == RECORD_RELEASED ? ETCD_URGENT : ETCD_WRITE, l->op.text);
}

static void etcd_remove(struct lock *lock, const struct version *expected, struct instant by, lock_done_fn *done,
                        void *arg)
{
	struct etcd_lock *l = etcd_of(lock);

	etcd_begin(l, true, by, done, arg);
	if (etcd_expects(l, expected))
		etcd_ask_txn(l, ETCD_WRITE, NULL);
	else
		lock_op_soon(&l->op, etcd_on_cannot_be_there);
}

/* ---- list ---- */

static char *base64_of(const char *bytes, size_t len)
{
	struct buf b = { 0 };

	http_base64(&b, bytes, len);
	return b.data;
}

/* The first key, or the byte zero for all keys; and the first one that does not begin with the prefix, or the byte zero
 * if there is none (etcd's api/etcdserverpb/rpc.proto, RangeRequest). */
static void etcd_range_of_prefix(const char *prefix, size_t len, char **from64, char **end64)
{
	char *end = mem_dupn(prefix, len);
	size_t n = len;

	while (n > 0 && (unsigned char)end[n - 1] == 0xff)
		n--;
	if (n > 0)
		end[n - 1]++;
	*from64 = base64_of(len ? prefix : "", len ? len : 1);
	*end64 = base64_of(n ? end : "", n ? n : 1);
	free(end);
}

static void etcd_add_name(struct etcd_lock *l, const char *key64)
{
	size_t len = lock_listing_prefix(l->key);
	struct buf key = { 0 };

	/* A zero in it no URL can have. */
	if (key64 && http_unbase64(&key, key64, strlen(key64)) == 0 && key.len >= len && key.len > 0 &&
	    strlen(key.data) == key.len && memcmp(key.data, l->key, len) == 0)
		lock_listing_add(l->listing, key.data + len, LOCK_URL_PATH);
	buf_fini(&key);
}

static void etcd_on_listed(void *arg, const struct etcd_answer *a)
{
	struct etcd_lock *l = arg;
	const json_t *range = a->json ? etcd_range_of(l, a, true) : NULL, *kvs = json_object_get(range, "kvs");

	if (!range) {
		etcd_fail(l, a);
		return;
	}
	for (size_t i = 0; i < json_array_size(kvs); i++)
		etcd_add_name(l, json_string_value(json_object_get(json_array_get(kvs, i), "key")));
	l->listing->more |= json_is_true(json_object_get(range, "more"));
	etcd_watch_settle(&l->watch, 0);
	etcd_finish(l, a, &(struct lock_result){ .outcome = LOCK_OK });
}

static void etcd_list(struct lock *lock, struct lock_listing *out, struct instant by, lock_done_fn *done, void *arg)
{
	struct etcd_lock *l = etcd_of(lock);
	char *from64, *end64;
	struct buf b = { 0 };

	etcd_begin(l, false, by, done, arg);
	l->listing = out;
	etcd_range_of_prefix(l->key, lock_listing_prefix(l->key), &from64, &end64);
	char *how = mem_printf(",\"range_end\":\"%s\",\"limit\":\"%d\",\"keys_only\":true", end64, LOCK_LISTING_MOST);
	etcd_next_stamp(l);
	buf_adds(&b, "{\"success\":");
	etcd_print_look(&b, l, from64, how);
	buf_adds(&b, "}");
	free(how);
	free(from64);
	free(end64);
	etcd_ask(l, ETCD_LOOK, b.data, etcd_on_listed);
}

/* ---- what the server is ---- */

#define ELECTION_MS \
	2500 /* a cluster at its defaults finds that its leader is gone after 1 to 2 s, and needs a round more */

/* Versions that lose or fork what they have acknowledged: etcd's own announcement for 3.5.0 to 3.5.2 (issue 13766). */
static void about_fill(struct lock_about *about, const json_t *status)
{
	const char *version = json_string_value(json_object_get(status, "version"));
	int major = 0, minor = 0, patch = 0;

	snprintf(about->server, sizeof about->server, "etcd %s", version ? version : "of no known version");
	if (!version || sscanf(version, "%d.%d.%d", &major, &minor, &patch) != 3)
		return;
	if (major == 3 && minor == 5 && patch <= 2) {
		about->unfit = true;
		snprintf(about->warning, sizeof about->warning,
		         "a member that was killed may come back with other data than the rest (etcd's "
		         "issue 13766): 3.5.3 or later is needed");
	} else if (major == 3 && minor < 4) {
		snprintf(about->warning, sizeof about->warning,
		         "this version gets no more repairs; 3.4 to 3.6 are tested");
	}
}

static void etcd_on_status(void *arg, const struct etcd_answer *a)
{
	struct etcd_lock *l = arg;

	etcd_watch_settle(&l->watch, 0);
	if (a->outcome != LOCK_OK) {
		etcd_fail(l, a);
		return;
	}
	about_fill(l->about, a->json);
	l->about->pause_ms = l->client->url.hosts > 1 ? ELECTION_MS : 0;
	etcd_finish(l, a, &(struct lock_result){ .outcome = LOCK_OK });
}

static void etcd_about(struct lock *lock, struct lock_about *about, struct instant by, lock_done_fn *done, void *arg)
{
	struct etcd_lock *l = etcd_of(lock);

	etcd_begin(l, false, by, done, arg);
	l->about = about;
	l->call.kind = ETCD_WRITE;
	etcd_call_start(l->client, &l->call, "maintenance/status", mem_dup("{}"), by, etcd_on_status, l);
}

static void etcd_cancel(struct lock *lock)
{
	lock_op_cancel(&etcd_of(lock)->op);
}

static bool etcd_watch(struct lock *lock, lock_changed_fn *changed, void *arg)
{
	struct etcd_lock *l = etcd_of(lock);

	l->watch.changed = changed;
	l->watch.arg = arg;
	etcd_watch_start(l->client->hub, &l->watch);
	return true;
}

/* ---- open and close ---- */

static void etcd_close(struct lock *lock)
{
	struct etcd_lock *l = etcd_of(lock);

	etcd_cancel(lock);
	etcd_watch_stop(&l->watch);
	free(l->key);
	free(l->key64);
	free(l->base.url);
	free(l);
}

static int url_check(const struct lock_url *u, bool tls, struct err *err)
{
	if (!*u->path)
		return err_set(err, ERR_USAGE, "the key is missing: expected etcd://HOST:PORT/KEY");
	if (!tls && u->options &&
	    (lock_url_option(u, "ca") || lock_url_option(u, "cert") || lock_url_option(u, "key") ||
	     lock_url_option(u, "server_name")))
		return err_set(err, ERR_USAGE, "ca, cert, key and server_name are for TLS: write etcds://");
	if (lock_url_option(u, "key") && !lock_url_option(u, "cert"))
		return err_set(err, ERR_USAGE, "the option key is given without cert, the certificate it belongs to");
	return 0;
}

static struct lock *etcd_open(struct lock_env *env, const char *text, const struct lock_ops *ops, bool tls,
                              struct err *err)
{
	struct lock_url u;

	if (lock_url_parse(&u, ops->scheme, text, PORT, etcd_options, err) < 0)
		return NULL;
	char *shown = lock_url_print(&u, ops->scheme), *key = mem_dup(u.path), *key64 = base64_of(key, strlen(key));
	if (url_check(&u, tls, err) < 0) {
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
	l->key = key;
	l->key64 = key64;
	l->watch.key64 = key64;
	return &l->base;
fail:
	free(shown);
	free(key);
	free(key64);
	return NULL;
}

static struct lock *etcd_open_plain(struct lock_env *env, const char *text, struct err *err);
static struct lock *etcd_open_tls(struct lock_env *env, const char *text, struct err *err);

static const struct lock_ops lock_etcd = {
	.scheme = "etcd",
	.open = etcd_open_plain,
	.read = etcd_read,
	.write = etcd_write,
	.cancel = etcd_cancel,
	.watch = etcd_watch,
	.close = etcd_close,
	.list = etcd_list,
	.about = etcd_about,
	.remove = etcd_remove,
};
static const struct lock_ops lock_etcds = {
	.scheme = "etcds",
	.open = etcd_open_tls,
	.read = etcd_read,
	.write = etcd_write,
	.cancel = etcd_cancel,
	.watch = etcd_watch,
	.close = etcd_close,
	.list = etcd_list,
	.about = etcd_about,
	.remove = etcd_remove,
};

static struct lock *etcd_open_plain(struct lock_env *env, const char *text, struct err *err)
{
	return etcd_open(env, text, &lock_etcd, false, err);
}

static struct lock *etcd_open_tls(struct lock_env *env, const char *text, struct err *err)
{
	return etcd_open(env, text, &lock_etcds, true, err);
}

const struct module lunarch_module = {
	.build = LUNARCH_BUILD,
	.locks = (const struct lock_ops *const[]){ &lock_etcd, &lock_etcds, NULL },
	.prepare = http_prepare,
	.libraries = http_libraries,
};
