/* The lock in etcd: the record is the value of one key, compared by its mod revision and swapped by a transaction. It
 * has no lease of etcd's: standbys judge by what they have seen change, as in every store. */
#include "base/mem.h"
#include "base/module.h"
#include "locks/etcd/etcd_messages.h"
#include "locks/etcd/etcd_server.h"
#include "locks/etcd/etcd_watch.h"
#include "locks/lock_listing.h"
#include "locks/lock_user.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT 2379
#define LOGINS_MOST 2 /* a token may be old when it comes: rights change, clocks of members differ */

struct etcd_lock {
	struct lock_user user; /* first; its channel is the key */
	struct etcd_server *server;
	struct etcd_watch watch;

	/* Of the operation under way: */
	const struct etcd_ask *ask;
	struct buf request;
	bool urgent;
	int64_t expected; /* by a write; 0: no key */
	struct grpc_call call;
	void *answer;        /* what came as its answer; NULL: nothing, or nothing that makes sense */
	bool readable;       /* the last read was answered */
	int answers;         /* messages that came: one, if all is well */
	uint64_t number;     /* of its connection, or of the one that is waited for */
	unsigned generation; /* of its token */
	struct instant asked;
	int tries, logins;
	bool maybe;           /* an earlier try may have been acted upon */
	Etcd__KeyValue *seen; /* a read needs no question: the watch has shown this; NULL: it does */
};

/* What can be asked. */
struct etcd_ask {
	const char *path;
	const ProtobufCMessageDescriptor *answer;
	size_t header;                                         /* where the answer has it */
	void (*take)(struct etcd_lock *l, const void *answer); /* may close the lock */
};

static struct etcd_lock *etcd_of(struct lock_user *u)
{
	return (struct etcd_lock *)u;
}

/* ---- answers ---- */

/* revision: the lock has seen the store as of that one; 0: it learned nothing. */
static void etcd_end(struct etcd_lock *l, enum lock_outcome outcome, int64_t revision)
{
	etcd_watch_settle(&l->watch, revision);
	lock_user_end(&l->user, outcome);
}

__attribute__((format(printf, 4, 5))) static void etcd_fail(struct etcd_lock *l, enum lock_outcome outcome,
                                                            enum err_code code, const char *fmt, ...)
{
	struct err err;
	va_list ap;

	va_start(ap, fmt);
	err_vset(&err, code, fmt, ap);
	va_end(ap);
	etcd_watch_settle(&l->watch, 0);
	if (l->user.op.writing)
		outcome = l->maybe ? LOCK_UNKNOWN : outcome;
	else if (outcome != LOCK_REFUSED)
		outcome = LOCK_FAILED;
	if (!l->user.op.writing && outcome == LOCK_REFUSED)
		l->readable = false;
	lock_op_fail(&l->user.op, outcome, code, "%s", err.text);
}

static void etcd_on_nonsense(struct etcd_lock *l)
{
	etcd_fail(l, LOCK_UNKNOWN, ERR_INVALID, "etcd at %s gave an answer that makes no sense",
	          l->server->base.notices->peer);
}

/* Revisions of one cluster mean nothing in another. */
static void etcd_print_version(struct etcd_lock *l, int64_t revision, struct version *out)
{
	snprintf(out->text, sizeof out->text, "%" PRId64 "-%s", revision, lock_identity_of(&l->user.lock));
}

static void etcd_found(struct etcd_lock *l, const Etcd__KeyValue *kv, int64_t revision)
{
	struct version version;

	etcd_watch_settle(&l->watch, revision);
	etcd_print_version(l, kv->mod_revision, &version);
	lock_op_found(&l->user.op, "what is at this key", kv->value.len ? (const char *)kv->value.data : "",
	              kv->value.len, version.text, kv->mod_revision);
}

static void etcd_take_range(struct etcd_lock *l, const void *answer)
{
	const Etcd__RangeResponse *r = answer;

	l->readable = true;
	if (!r->header || r->header->revision <= 0 || (r->n_kvs && r->kvs[0]->mod_revision <= 0))
		etcd_on_nonsense(l);
	else if (r->n_kvs)
		etcd_found(l, r->kvs[0], r->header->revision);
	else
		etcd_end(l, LOCK_ABSENT, r->header->revision);
}

static void etcd_take_txn(struct etcd_lock *l, const void *answer)
{
	const Etcd__TxnResponse *r = answer;
	int64_t revision = r->header ? r->header->revision : 0;
	struct lock_result done = { .outcome = LOCK_OK, .token = revision };

	if (revision <= 0) {
		etcd_on_nonsense(l);
	} else if (r->succeeded) {
		etcd_print_version(l, revision, &done.version);
		etcd_watch_settle(&l->watch, revision);
		lock_op_finish(&l->user.op, &done);
	} else if (l->maybe) {
		etcd_fail(l, LOCK_UNKNOWN, ERR_UNREACHABLE,
		          "it was sent more than once, and conflicts, perhaps with itself");
	} else {
		etcd_end(l, LOCK_CONFLICT, 0); /* whoever wrote it may be news */
	}
}

static void etcd_take_list(struct etcd_lock *l, const void *answer)
{
	const Etcd__RangeResponse *r = answer;
	const char *prefix = l->user.channel;
	size_t len = lock_listing_prefix(prefix);

	for (size_t i = 0; i < r->n_kvs; i++) {
		const ProtobufCBinaryData *key = &r->kvs[i]->key;
		char *name = mem_dupn(key->len ? (const char *)key->data : "", key->len);
		/* A zero in it no URL can have. */
		if (key->len && key->len >= len && strlen(name) == key->len && memcmp(name, prefix, len) == 0)
			lock_listing_add(l->user.listing, name + len, LOCK_URL_PATH);
		free(name);
	}
	l->user.listing->more |= r->more;
	etcd_end(l, LOCK_OK, 0);
}

/* A cluster at its defaults finds that its leader is gone after 1 to 2 s, and needs a round more. */
#define ELECTION_MS 2500

/* Versions that lose or fork what they have acknowledged: etcd's own announcement for 3.5.0 to 3.5.2 (issue 13766). */
static void etcd_take_status(struct etcd_lock *l, const void *answer)
{
	const char *version = ((const Etcd__StatusResponse *)answer)->version;
	struct lock_about *about = l->user.about;
	int major = 0, minor = 0, patch = 0;

	snprintf(about->server, sizeof about->server, "etcd %s", *version ? version : "of no known version");
	about->pause_ms = l->server->place.url.hosts > 1 ? ELECTION_MS : 0;
	if (sscanf(version, "%d.%d.%d", &major, &minor, &patch) == 3 && major == 3 && minor == 5 && patch <= 2) {
		about->unfit = true;
		snprintf(about->warning, sizeof about->warning,
		         "a member that was killed may come back with other data than the rest (etcd's "
		         "issue 13766): 3.5.3 or later is needed");
	} else if (major == 3 && minor < 4) {
		snprintf(about->warning, sizeof about->warning,
		         "this version gets no more repairs; 3.4 to 3.6 are tested");
	}
	etcd_end(l, LOCK_OK, 0);
}

#define RANGE_ANSWER &etcd__range_response__descriptor, offsetof(Etcd__RangeResponse, header)
#define TXN_ANSWER &etcd__txn_response__descriptor, offsetof(Etcd__TxnResponse, header)
#define STATUS_ANSWER &etcd__status_response__descriptor, offsetof(Etcd__StatusResponse, header)

static const struct etcd_ask ask_range = { "/etcdserverpb.KV/Range", RANGE_ANSWER, etcd_take_range };
static const struct etcd_ask ask_txn = { "/etcdserverpb.KV/Txn", TXN_ANSWER, etcd_take_txn };
static const struct etcd_ask ask_list = { "/etcdserverpb.KV/Range", RANGE_ANSWER, etcd_take_list };
static const struct etcd_ask ask_status = { "/etcdserverpb.Maintenance/Status", STATUS_ANSWER, etcd_take_status };

/* ---- tries ---- */

static void etcd_on_share(struct lock_op *op);

/* Each endpoint gets a share of the time that is left, so that one that does not answer leaves some to the others. */
static void etcd_try(struct etcd_lock *l)
{
	struct lock_op *op = &l->user.op;
	int left = l->server->place.url.hosts - l->tries;

	op->sent = l->maybe;
	l->asked = clock_now();
	l->number = l->server->base.notices->number;
	lock_op_after(op, left > 1 ? instant_until(op->by, l->asked) / left : 0, left > 1 ? etcd_on_share : NULL);
	lock_op_ask(&l->user.op, l->server->base.notices, &l->user.call);
}

/* Once more at the next endpoint; if there is one alone, once on a new connection (lost). An earlier try may still be
 * applied. The next one has the same comparison and content, so at most one of them is. false: there is none. */
static bool etcd_try_again(struct etcd_lock *l, bool lost)
{
	int hosts = l->server->place.url.hosts;

	if (++l->tries >= (hosts == 1 && lost ? 2 : hosts) || lock_op_is_late(&l->user.op))
		return false;
	etcd_try(l);
	return true;
}

/* There was no answer in time. Where there are other endpoints, this one is left, unless it has answered others since:
 * a member that is cut off from the rest keeps its connections. */
static void etcd_blame(const struct etcd_lock *l)
{
	const struct etcd_server *s = l->server;
	struct err why;

	if (s->place.url.hosts == 1) {
		etcd_link_late(s->base.notices, l->asked);
	} else if (elapsed_standby(s->answered, l->asked) >= 0) {
		err_set(&why, ERR_TIMEOUT, "the server does not answer in time");
		etcd_link_leave(s->base.notices, l->number, &why);
	}
}

/* From now on, what is under way for the operation does not come back to it. */
static void etcd_forget_try(struct etcd_lock *l, bool late)
{
	bool sent = grpc_under_way(&l->call), crowded = etcd_server_forget(l->server, &l->user.call);

	etcd_link_cancel(l->server->base.notices, &l->call);
	if (sent)
		etcd_server_done(l->server, l->urgent);
	etcd_drop(l->answer);
	l->answer = NULL;
	if (late && !crowded)
		etcd_blame(l);
}

static void etcd_on_share(struct lock_op *op)
{
	struct etcd_lock *l = etcd_of(lock_user_of_op(op));
	struct lock_server *s = &l->server->base;

	lock_server_hold(s); /* whose calls are lost may close their locks */
	l->maybe |= grpc_under_way(&l->call);
	etcd_forget_try(l, true);
	etcd_try_again(l, true);
	lock_server_put(s);
}

static void etcd_on_detach(struct lock_op *op)
{
	struct etcd_lock *l = etcd_of(lock_user_of_op(op));

	etcd_forget_try(l, lock_op_is_late(op));
	etcd_drop(l->seen);
	l->seen = NULL;
	etcd_watch_settle(&l->watch, 0);
}

static void etcd_on_cannot_be_there(struct lock_op *op)
{
	etcd_end(etcd_of(lock_user_of_op(op)), LOCK_CONFLICT, 0);
}

/* What a write expects was read in this cluster, as far as it is known by now. */
static bool etcd_read_here(const struct etcd_lock *l)
{
	const char *here = l->server->base.identity.known, *id = strchr(l->user.expected.text, '-');

	return !l->user.op.writing || !id || !*here || strcmp(id + 1, here) == 0;
}

static bool etcd_makes_key(const struct etcd_lock *l)
{
	return l->user.op.writing && !l->user.op.removing && !l->user.lock.advice && !*l->user.expected.text;
}

static void etcd_on_ready(struct lock_call *c)
{
	struct etcd_lock *l = etcd_of(lock_user_of_call(c));
	struct etcd_server *s = l->server;
	struct err why;

	if (!etcd_read_here(l)) {
		lock_op_soon(&l->user.op, etcd_on_cannot_be_there);
		return;
	}
	if (etcd_makes_key(l) && etcd_server_disputed(s, &why)) {
		lock_op_fail_soon(&l->user.op, LOCK_FAILED, why.code, "%s", why.text);
		return;
	}
	if ((etcd_makes_key(l) && etcd_server_asks_all(s, c)) ||
	    !etcd_server_admits(s, c, l->urgent, l->user.op.writing))
		return;
	struct etcd_metadata with = etcd_server_metadata(s);
	lock_op_sent(&l->user.op);
	l->asked = clock_now();
	l->number = s->base.notices->number;
	l->generation = s->generation;
	l->answers = 0;
	etcd_link_start(s->base.notices, &l->call, l->ask->path, with.pair, &l->request, false);
	if (lock_user_hands_over(&l->user))
		etcd_link_flush(s->base.notices);
}

/* again: see etcd_server_admits. */
static void etcd_on_lost(struct lock_call *c, bool again, enum lock_outcome outcome, const struct err *why)
{
	struct etcd_lock *l = etcd_of(lock_user_of_call(c));

	if (!again || !etcd_try_again(l, true))
		etcd_fail(l, outcome, why->code, "%s", why->text);
}

static struct etcd_lock *etcd_of_grpc(struct grpc_call *c)
{
	return (struct etcd_lock *)(void *)((char *)c - offsetof(struct etcd_lock, call));
}

static void etcd_on_message(struct grpc_call *c, const void *bytes, size_t len)
{
	struct etcd_lock *l = etcd_of_grpc(c);

	if (l->answers++ == 0)
		l->answer = etcd_unpack(l->ask->answer, bytes, len);
}

static void etcd_go_after_login(struct etcd_lock *l, const struct etcd_meaning *m)
{
	if (!*l->server->place.url.user || ++l->logins > LOGINS_MOST) {
		etcd_fail(l, LOCK_REFUSED, m->err.code, "%s", m->err.text);
		return;
	}
	etcd_server_drop_token(l->server, l->generation);
	etcd_try(l);
}

static void etcd_go_elsewhere(struct etcd_lock *l, const struct etcd_meaning *m, bool lost)
{
	struct etcd_server *s = l->server;

	l->maybe |= m->maybe;
	if (!lost && s->place.url.hosts > 1)
		etcd_link_leave(s->base.notices, l->number, &m->err);
	if (!etcd_try_again(l, lost))
		etcd_fail(l, m->outcome, m->err.code, "%s", m->err.text);
}

/* What another cluster answers counts for nothing: a write of ours that it has taken is not in this one. */
static bool etcd_is_elsewhere(const struct etcd_lock *l, const void *answer, struct etcd_meaning *m)
{
	const char *at = answer;
	Etcd__ResponseHeader *header;

	if (!answer)
		return false;
	memcpy(&header, at + l->ask->header, sizeof header);
	if (etcd_server_heard(l->server, l->number, header, &m->err))
		return false;
	m->verdict = ETCD_ELSEWHERE;
	m->maybe = l->user.op.writing;
	m->outcome = LOCK_UNKNOWN;
	return true;
}

/* The request need not be sent again. A process may have thousands of locks. */
static void etcd_take(struct etcd_lock *l, void *answer)
{
	buf_fini(&l->request);
	l->ask->take(l, answer);
}

static void etcd_on_ended(struct grpc_call *c, const struct grpc_end *end)
{
	struct etcd_lock *l = etcd_of_grpc(c);
	struct etcd_server *s = l->server;
	struct lock_link *link = s->base.notices;
	const struct err *lost = link->state == LOCK_LINK_DOWN ? &link->why : NULL;
	struct etcd_meaning m = etcd_understand(end, link->peer, s->place.url.user, lost);
	void *answer = l->answer;

	l->answer = NULL;
	lock_server_hold(&s->base); /* the end of the operation may close the last lock */
	if (end->replied)
		s->answered = clock_now();
	etcd_server_done(s, l->urgent);
	switch (m.verdict) {
	case ETCD_ANSWERED:
		if (etcd_is_elsewhere(l, answer, &m))
			etcd_go_elsewhere(l, &m, false);
		else if (answer && l->answers == 1)
			etcd_take(l, answer);
		else
			etcd_on_nonsense(l);
		break;
	case ETCD_ELSEWHERE:
		etcd_go_elsewhere(l, &m, lost || end->unseen);
		break;
	case ETCD_LOGIN:
		etcd_go_after_login(l, &m);
		break;
	case ETCD_FINAL:
		l->maybe |= m.maybe;
		etcd_fail(l, m.outcome, m.err.code, "%s", m.err.text);
		break;
	}
	etcd_drop(answer);
	lock_server_put(&s->base);
}

/* ---- questions ---- */

static void etcd_ask(struct etcd_lock *l, const struct etcd_ask *ask, const ProtobufCMessage *request)
{
	l->ask = ask;
	buf_drop(&l->request, l->request.len);
	etcd_pack(&l->request, request);
	etcd_try(l);
}

static ProtobufCBinaryData etcd_key(const struct etcd_lock *l)
{
	return etcd_bytes(l->user.channel, strlen(l->user.channel));
}

static void etcd_on_shown(struct lock_op *op)
{
	struct etcd_lock *l = etcd_of(lock_user_of_op(op));
	Etcd__KeyValue *kv = l->seen;

	l->seen = NULL;
	etcd_found(l, kv, kv->mod_revision);
	etcd_drop(kv);
}

static void etcd_ask_range(struct etcd_lock *l)
{
	Etcd__RangeRequest range = ETCD__RANGE_REQUEST__INIT;

	range.key = etcd_key(l);
	etcd_ask(l, &ask_range, &range.base);
}

/* Every answered write is on the disks of a majority: there is nothing more for `durable`. */
static void etcd_ask_txn(struct etcd_lock *l)
{
	Etcd__Compare compare = ETCD__COMPARE__INIT, *compares = &compare;
	Etcd__PutRequest put = ETCD__PUT_REQUEST__INIT;
	Etcd__DeleteRangeRequest removal = ETCD__DELETE_RANGE_REQUEST__INIT;
	Etcd__RequestOp success = ETCD__REQUEST_OP__INIT, *successes = &success;
	Etcd__TxnRequest txn = ETCD__TXN_REQUEST__INIT;

	compare.target = ETCD__COMPARE__COMPARE_TARGET__MOD;
	compare.key = put.key = removal.key = etcd_key(l);
	compare.target_union_case = ETCD__COMPARE__TARGET_UNION_MOD_REVISION;
	compare.mod_revision = l->expected;
	if (l->user.op.removing) {
		success.request_case = ETCD__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
		success.request_delete_range = &removal;
	} else {
		success.request_case = ETCD__REQUEST_OP__REQUEST_REQUEST_PUT;
		success.request_put = &put;
		put.value = etcd_bytes(l->user.op.text, strlen(l->user.op.text));
	}
	txn.n_compare = txn.n_success = 1;
	txn.compare = &compares;
	txn.success = &successes;
	etcd_ask(l, &ask_txn, &txn.base);
}

/* false: that is no version of etcd's, so it cannot be what is there. */
static bool etcd_expects(struct etcd_lock *l)
{
	const char *v = l->user.expected.text;
	char *end;

	errno = 0;
	l->expected = 0;
	if (!*v)
		return true;
	l->expected = strtoll(v, &end, 10);
	return *v != '-' && errno == 0 && *end == '-';
}

/* From the key's prefix, or the byte zero for all keys, to the first key that does not begin with it, or the byte zero
 * if there is none (etcd's api/etcdserverpb/rpc.proto, RangeRequest). */
static void etcd_ask_list(struct etcd_lock *l)
{
	Etcd__RangeRequest range = ETCD__RANGE_REQUEST__INIT;
	size_t len = lock_listing_prefix(l->user.channel), n = len;
	char *end = mem_dupn(l->user.channel, len);

	while (n > 0 && (unsigned char)end[n - 1] == 0xff)
		n--;
	if (n > 0)
		end[n - 1]++;
	range.key = len ? etcd_bytes(l->user.channel, len) : etcd_bytes("", 1);
	range.range_end = n ? etcd_bytes(end, n) : etcd_bytes("", 1);
	range.limit = LOCK_LISTING_MOST;
	range.keys_only = true;
	etcd_ask(l, &ask_list, &range.base);
	free(end);
}

static void etcd_begin(struct lock_user *u)
{
	struct etcd_lock *l = etcd_of(u);
	Etcd__StatusRequest status = ETCD__STATUS_REQUEST__INIT;

	l->tries = l->logins = 0;
	l->maybe = false;
	l->watch.busy = true;
	/* Renewals and releases go before looks, candidates and advice. */
	l->urgent = u->op.writing && !u->op.removing && !u->lock.advice && !(u->acquiring && u->op.leads);
	if (u->about)
		etcd_ask(l, &ask_status, &status.base);
	else if (u->listing)
		etcd_ask_list(l);
	else if (u->op.writing && etcd_expects(l))
		etcd_ask_txn(l);
	else if (u->op.writing)
		lock_op_soon(&u->op, etcd_on_cannot_be_there);
	else if ((l->seen = etcd_watch_take_seen(&l->watch)))
		lock_op_soon(&u->op, etcd_on_shown);
	else
		etcd_ask_range(l);
}

/* ---- the lock ---- */

static bool etcd_watch(struct lock *lock, lock_changed_fn *changed, void *arg)
{
	struct etcd_lock *l = (struct etcd_lock *)lock;

	/* Who may not read a next record may not watch it, and asking would end the notices of all locks here. */
	l->watch.advice = lock->advice;
	if (lock->advice && !l->readable)
		return false;
	etcd_watch_start(l->server->hub, &l->watch, changed, arg);
	return true;
}

static void etcd_free(struct lock_user *u)
{
	struct etcd_lock *l = etcd_of(u);

	etcd_watch_stop(&l->watch);
	buf_fini(&l->request);
	free(l);
}

static const struct lock_user_ops etcd_ops = {
	.begin = etcd_begin,
	.detach = etcd_on_detach,
	.free = etcd_free,
	.call = { .ready = etcd_on_ready, .lost = etcd_on_lost },
};

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
	struct etcd_place place = { .tls = tls };

	if (lock_url_parse(&place.url, ops->scheme, text, PORT, etcd_options, err) < 0)
		return NULL;
	char *shown = lock_url_print(&place.url, ops->scheme), *key = mem_dup(place.url.path);
	if (url_check(&place.url, tls, err) < 0) {
		err_wrap(err, "lock %s", shown);
		lock_url_fini(&place.url);
		free(shown);
		free(key);
		return NULL;
	}
	struct etcd_lock *l = mem_zero(sizeof *l);
	l->server = (struct etcd_server *)lock_server_get(env, &etcd_server_ops, &place);
	l->call = (struct grpc_call){ .message = etcd_on_message, .ended = etcd_on_ended };
	l->watch.key = key;
	l->watch.member = &l->user.member;
	lock_user_init(&l->user, ops, &etcd_ops, shown, &l->server->base, key);
	return &l->user.lock;
}

static struct lock *etcd_open_plain(struct lock_env *env, const char *text, struct err *err);
static struct lock *etcd_open_tls(struct lock_env *env, const char *text, struct err *err);

static const struct lock_ops lock_etcd = {
	.scheme = "etcd",
	.open = etcd_open_plain,
	.watch = etcd_watch,
	.next = ".next",
	LOCK_USER_OPS,
	.identity = lock_user_identity,
};
static const struct lock_ops lock_etcds = {
	.scheme = "etcds",
	.open = etcd_open_tls,
	.watch = etcd_watch,
	.next = ".next",
	LOCK_USER_OPS,
	.identity = lock_user_identity,
};

static struct lock *etcd_open_plain(struct lock_env *env, const char *text, struct err *err)
{
	return etcd_open(env, text, &lock_etcd, false, err);
}

static struct lock *etcd_open_tls(struct lock_env *env, const char *text, struct err *err)
{
	return etcd_open(env, text, &lock_etcds, true, err);
}

static void etcd_libraries(struct buf *out)
{
	grpc_libraries(out);
	buf_printf(out, ", libprotobuf-c %s", protobuf_c_version());
}

const struct module lunarch_module = {
	.build = LUNARCH_BUILD,
	.locks = (const struct lock_ops *const[]){ &lock_etcd, &lock_etcds, NULL },
	.libraries = etcd_libraries,
};
