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

/* A record is the value of one key, without a lease of etcd's: who waits goes by what it has seen change, as in every
 * store. */
struct etcd_lock {
	struct lock base;
	struct lock_env *env;
	struct etcd_client *client;
	char *key, *key64;
	int stamp;        /* of the question under way: so many looks more than one are in it, 0 to STAMPS - 1 */
	bool removing;    /* by the write under way */
	int64_t expected; /* mod revision on which the write under way depends; 0: there must be none */
	struct lock_op op;
	struct etcd_call call;
	struct etcd_watch watch;
	ev_timer shown;           /* the look under way has its answer from the watch already: */
	json_t *kv;               /*     this; given in the next turn of the loop */
	struct lock_about *about; /* what the question under way fills, */
	struct lock_listing *listing;
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

/* There was no answer, or none that is one, or one to something else. */
static void fail(struct etcd_lock *l, const struct etcd_answer *a)
{
	struct lock_result r = { .outcome = a->outcome, .err = a->err };

	if (a->outcome == LOCK_OK) {
		r.outcome = l->op.writing ? LOCK_UNKNOWN : LOCK_FAILED;
		err_set(&r.err, ERR_INVALID, "%s", LOCK_QUEUE_MIXED_UP);
		etcd_client_mistrust(l->client);
	} else if (!l->op.writing && a->outcome != LOCK_REFUSED) {
		r.outcome = LOCK_FAILED;
	}
	etcd_watch_settle(&l->watch, 0);
	finish(l, a, &r);
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

/* ---- questions and answers ---- */

/* HTTP/1.1 has nothing that tells an answer from the repetition of an earlier one, as a proxy may send it. What was
 * written has a revision above all that were known before. What was only looked at is followed by a number of looks
 * that tells it from the question before, and is at this key. */
static void print_look(struct buf *b, const struct etcd_lock *l, const char *key64, const char *how)
{
	buf_printf(b, "[{\"request_range\":{\"key\":\"%s\"%s}}", key64, how);
	for (int i = 0; i < l->stamp; i++)
		buf_printf(b, ",{\"request_range\":{\"key\":\"%s\",\"count_only\":true}}", l->key64);
	buf_adds(b, "]");
}

/* What the first look in a transaction that went this way shows. NULL: this is the answer to something else. */
static const json_t *range_of(const struct etcd_lock *l, const struct etcd_answer *a, bool succeeded)
{
	const json_t *parts = json_object_get(a->json, "responses");

	if (json_array_size(parts) != (size_t)l->stamp + 1 ||
	    json_is_true(json_object_get(a->json, "succeeded")) != succeeded)
		return NULL;
	return json_object_get(json_array_get(parts, 0), "response_range");
}

/* The same, if it is at this key. */
static const json_t *look_of(const struct etcd_lock *l, const struct etcd_answer *a, bool succeeded)
{
	const json_t *range = range_of(l, a, succeeded), *kv = json_array_get(json_object_get(range, "kvs"), 0);
	const char *key = json_string_value(json_object_get(kv, "key"));

	return kv && (!key || strcmp(key, l->key64) != 0) ? NULL : range;
}

static void ask(struct etcd_lock *l, enum etcd_kind kind, char *transaction, etcd_done_fn *done)
{
	l->call.kind = kind;
	etcd_call_start(l->client, &l->call, "kv/txn", transaction, l->op.by, done, l);
}

static void next_stamp(struct etcd_lock *l)
{
	l->stamp = (int)(l->client->asked++ % STAMPS);
}

static void on_range(void *arg, const struct etcd_answer *a)
{
	struct etcd_lock *l = arg;
	const json_t *range = a->json ? look_of(l, a, true) : NULL,
		     *kv = json_array_get(json_object_get(range, "kvs"), 0);

	if (!range || a->revision <= 0) {
		fail(l, a);
		return;
	}
	etcd_watch_settle(&l->watch, a->revision);
	l->op.sent_at = a->sent_at;
	if (kv)
		found(l, kv);
	else
		finish(l, a, &(struct lock_result){ .outcome = LOCK_ABSENT });
}

/* A transaction, so that it can be told from others; one that only looks is no more to etcd than a range. */
static void ask_range(struct etcd_lock *l)
{
	struct buf b = { 0 };

	next_stamp(l);
	buf_adds(&b, "{\"success\":");
	print_look(&b, l, l->key64, "");
	buf_adds(&b, "}");
	ask(l, ETCD_LOOK, b.data, on_range);
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

static void written(struct etcd_lock *l, const struct etcd_answer *a)
{
	struct lock_result r = { .outcome = LOCK_OK, .token = a->revision };

	snprintf(r.version.text, sizeof r.version.text, "%" PRId64, a->revision);
	etcd_watch_settle(&l->watch, a->revision);
	finish(l, a, &r);
}

static void conflicted(struct etcd_lock *l, const struct etcd_answer *a)
{
	struct lock_result r = { .outcome = LOCK_CONFLICT };

	if (a->repeated) {
		r.outcome = LOCK_UNKNOWN;
		err_set(&r.err, ERR_UNREACHABLE, "it was sent more than once, and conflicts, perhaps with itself");
	}
	etcd_watch_settle(&l->watch, 0); /* whoever wrote it may be news */
	finish(l, a, &r);
}

static bool is_written(const struct etcd_lock *l, const struct etcd_answer *a)
{
	const json_t *first = json_array_get(json_object_get(a->json, "responses"), 0);

	return json_is_true(json_object_get(a->json, "succeeded")) && a->revision > a->above &&
	       json_object_get(first, l->removing ? "response_delete_range" : "response_put");
}

/* The key is gone, or newer than expected. */
static bool is_conflict(const struct etcd_lock *l, const struct etcd_answer *a)
{
	const json_t *range = look_of(l, a, false), *kv = json_array_get(json_object_get(range, "kvs"), 0);

	return range && (kv ? etcd_number(kv, "mod_revision") > l->expected : l->expected > 0);
}

static void on_txn(void *arg, const struct etcd_answer *a)
{
	struct etcd_lock *l = arg;

	if (a->outcome == LOCK_OK && is_written(l, a))
		written(l, a);
	else if (a->outcome == LOCK_OK && is_conflict(l, a))
		conflicted(l, a);
	else
		fail(l, a);
}

/* text: NULL = delete. */
static char *print_txn(const struct etcd_lock *l, const char *text)
{
	struct buf b = { 0 };

	buf_printf(&b,
	           "{\"compare\":[{\"key\":\"%s\",\"target\":\"MOD\",\"result\":\"EQUAL\",\"mod_revision\":\"%" PRId64
	           "\"}],\"failure\":",
	           l->key64, l->expected);
	print_look(&b, l, l->key64, ",\"keys_only\":true");
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

static void ask_txn(struct etcd_lock *l, enum etcd_kind kind, const char *text)
{
	l->removing = !text;
	next_stamp(l);
	ask(l, kind, print_txn(l, text), on_txn);
}

/* False: no version of etcd's, so it is not what is there. */
static bool expects(struct etcd_lock *l, const struct version *v)
{
	char *end;

	errno = 0;
	l->expected = *v->text ? strtoll(v->text, &end, 10) : 0;
	return strspn(v->text, "0123456789") == strlen(v->text) && errno == 0;
}

static void cannot_be_there(struct etcd_lock *l)
{
	etcd_watch_settle(&l->watch, 0);
	lock_op_fail_soon(&l->op, LOCK_CONFLICT, ERR_NONE, "%s", "");
}

/* Every answered write is on the disks of a majority: there is nothing more for `durable`. */
static void write_key(struct lock *lock, const struct record *record, const struct version *expected, bool durable,
                      struct instant by, lock_done_fn *done, void *arg)
{
	struct etcd_lock *l = of(lock);

	(void)durable;
	begin(l, true, by, done, arg);
	if (!expects(l, expected)) {
		cannot_be_there(l);
		return;
	}
	if (!lock_op_print(&l->op, record)) {
		etcd_watch_settle(&l->watch, 0);
		return;
	}
	ask_txn(l, record->token != 0 || record->state == RECORD_RELEASED ? ETCD_URGENT : ETCD_WRITE, l->op.text);
}

static void remove_key(struct lock *lock, const struct version *expected, struct instant by, lock_done_fn *done,
                       void *arg)
{
	struct etcd_lock *l = of(lock);

	begin(l, true, by, done, arg);
	if (expects(l, expected))
		ask_txn(l, ETCD_WRITE, NULL);
	else
		cannot_be_there(l);
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
static void range_of_prefix(const char *prefix, size_t len, char **from64, char **end64)
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

static void add_name(struct etcd_lock *l, const char *key64)
{
	size_t len = lock_listing_prefix(l->key);
	struct buf key = { 0 };

	/* A zero in it no URL can have. */
	if (key64 && http_unbase64(&key, key64, strlen(key64)) == 0 && key.len >= len && key.len > 0 &&
	    strlen(key.data) == key.len && memcmp(key.data, l->key, len) == 0)
		lock_listing_add(l->listing, key.data + len, LOCK_URL_PATH);
	buf_fini(&key);
}

static void on_listed(void *arg, const struct etcd_answer *a)
{
	struct etcd_lock *l = arg;
	const json_t *range = a->json ? range_of(l, a, true) : NULL, *kvs = json_object_get(range, "kvs");

	if (!range) {
		fail(l, a);
		return;
	}
	for (size_t i = 0; i < json_array_size(kvs); i++)
		add_name(l, json_string_value(json_object_get(json_array_get(kvs, i), "key")));
	l->listing->more |= json_is_true(json_object_get(range, "more"));
	etcd_watch_settle(&l->watch, 0);
	finish(l, a, &(struct lock_result){ .outcome = LOCK_OK });
}

static void list_keys(struct lock *lock, struct lock_listing *out, struct instant by, lock_done_fn *done, void *arg)
{
	struct etcd_lock *l = of(lock);
	char *from64, *end64;
	struct buf b = { 0 };

	begin(l, false, by, done, arg);
	l->listing = out;
	range_of_prefix(l->key, lock_listing_prefix(l->key), &from64, &end64);
	char *how = mem_printf(",\"range_end\":\"%s\",\"limit\":\"%d\",\"keys_only\":true", end64, LOCK_LISTING_MOST);
	next_stamp(l);
	buf_adds(&b, "{\"success\":");
	print_look(&b, l, from64, how);
	buf_adds(&b, "}");
	free(how);
	free(from64);
	free(end64);
	ask(l, ETCD_LOOK, b.data, on_listed);
}

/* ---- what the server is ---- */

#define ELECTION_MS \
	2500 /* a cluster at its defaults finds that its leader is gone after 1 to 2 s, and needs a round more */

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
		snprintf(about->warning, sizeof about->warning,
		         "a member that was killed may come back with other data than the rest (etcd's "
		         "issue 13766): 3.5.3 or later is needed");
	} else if (major == 3 && minor < 4) {
		snprintf(about->warning, sizeof about->warning,
		         "this version gets no more repairs; 3.4 to 3.6 are tested");
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
	l->call.kind = ETCD_WRITE;
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
	free(l->key);
	free(l->key64);
	free(l->base.url);
	free(l);
}

static int check(const struct lock_url *u, bool tls, struct err *err)
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

static struct lock *open_lock(struct lock_env *env, const char *text, const struct lock_ops *ops, bool tls,
                              struct err *err)
{
	struct lock_url u;

	if (lock_url_parse(&u, ops->scheme, text, PORT, etcd_options, err) < 0)
		return NULL;
	char *shown = lock_url_print(&u, ops->scheme), *key = mem_dup(u.path), *key64 = base64_of(key, strlen(key));
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
	l->key = key;
	l->key64 = key64;
	l->watch.key64 = key64;
	ev_init(&l->shown, on_shown);
	l->shown.data = l;
	return &l->base;
fail:
	free(shown);
	free(key);
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
	.list = list_keys,
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
	.list = list_keys,
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
