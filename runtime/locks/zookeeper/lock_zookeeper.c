/* The lock in ZooKeeper: a persistent node, set on the condition of its version. A node that is deleted and made again
 * begins with version 0 again, and servers that lost writes count the same versions again. So the node has a child,
 * named at random by the write that began the term: every write also checks that this is still there. A version of ours
 * is the child's random name, a dot, and the node's version. */
#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/module.h"
#include "base/nonce.h"
#include "locks/lock_listing.h"
#include "locks/lock_url.h"
#include "locks/lock_user.h"
#include "locks/zookeeper/zk_link.h"
#include "locks/zookeeper/zk_seen.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT 2181
#define CHILD "lunarch-"
#define ID_BYTES 8
#define ELECTION_MS 2000 /* an ensemble at its defaults finds that its leader is gone, and has another */

struct zk_server {               /* of locks with the same hosts, user and password */
	struct lock_server base; /* first; its link serves for all */
	struct lock_url url;
	struct zk_watch *watches;
};

/* What the children of one state of the node are: it is another one when it was made again, or has other children.
 * Servers that lost writes count changes of children again, as they do versions; not the zxid of the last one. */
struct zk_child {
	int64_t czxid; /* 0: nothing is known */
	int64_t pzxid;
	int32_t cversion;
	char id[2 * ID_BYTES + 1]; /* in the child's name; "" = there is none */
};

/* A lock's watch. The library's watchers cannot be taken back: what they point to outlives the lock. */
struct zk_watch {
	struct zk_watch *next;
	struct zk_lock *lock; /* NULL: closed; freed with the link */
	lock_changed_fn *changed;
	void *arg;
	bool armed;   /* the server has it */
	bool fresh;   /* the lock is being told of what our server has: a look needs no synchronising */
	int64_t seen; /* zxid of what the lock knows of, by a look, a write or a notice; 0: no node; -1: of nothing */
};

struct zk_lock {
	struct lock_user user;  /* first; its channel is the node's path */
	struct zk_ask *ask;     /* under way */
	struct zk_watch *watch; /* NULL: nobody wants notices */
	struct zk_child child;
	struct zk_state last; /* that was seen */
	uint64_t backs;       /* how often the servers have shown an older state than the last one */
	uint64_t caught_up;   /* number of the connection on which a look was synchronised, plus one */
	bool thorough;        /* the children are asked for in this operation */
	enum { PARENTS_UNTRIED, PARENTS_DUE, PARENTS_TRIED } parents; /* in this operation */
};

/* Requests that are sent together. They end when the last of their completions was called. */
struct zk_ask {
	struct zk_lock *lock; /* NULL: nobody wants it any more */
	struct zk_watch *watch;
	uint64_t number;                                                 /* of its connection */
	void (*take)(struct zk_lock *l, const struct zk_ask *a, int rc); /* rc: the last completion's */
	int left;                                                        /* completions */
	int failed;                                                      /* rc of a request that could not be sent */
	struct instant sent_at;
	int children;     /* rc of the look at them */
	const char *text; /* of the record; borrowed by the last completion */
	int len;
	struct Stat stat;
	char id[2 * ID_BYTES + 1]; /* of the child that a write checks or makes */
	zoo_op_result_t results[3];
};

static zhandle_t *zk_handle(const struct zk_lock *l)
{
	return zk_link_handle(l->user.server->notices);
}

/* ---- notices ---- */

/* Told by way of the loop (lock_channel.h). */
static void watch_tell(struct zk_watch *w)
{
	w->fresh = true;
	lock_member_tell(&w->lock->user.member);
}

/* What is there tells what was missed while there was no watch. */
static void watch_on_armed(int rc, const struct Stat *stat, const void *data)
{
	struct zk_watch *w = (struct zk_watch *)data;
	int64_t now = rc == ZOK ? stat->mzxid : 0;

	w->armed = rc == ZOK || rc == ZNONODE;
	if (!w->armed || !w->lock)
		return;
	if (w->seen >= 0 && now != w->seen)
		watch_tell(w);
	w->seen = now;
}

/* A watch fires once. It is set again when the requests under way have ended, and, if there are none, behind those with
 * which the lock answers the notice. */
static void watch_on_event(zhandle_t *, int type, int, const char *, void *context)
{
	struct zk_watch *w = context;

	if (type == ZOO_SESSION_EVENT || !w->lock)
		return;
	w->armed = false;
	if (!w->lock->ask)
		watch_tell(w);
}

static void watch_arm(struct zk_watch *w)
{
	zhandle_t *handle = w->lock && !w->armed ? zk_handle(w->lock) : NULL;

	if (!handle)
		return;
	w->armed = zoo_awexists(handle, w->lock->user.channel, watch_on_event, w, watch_on_armed, w) == ZOK;
	zk_link_send(w->lock->user.server->notices);
}

/* Sets the watch again, unless requests of the lock are under way, whose end does that. */
static void watch_arm_behind(struct zk_watch *w)
{
	if (w->lock && !w->lock->ask)
		watch_arm(w);
}

/* The changed callback of the lock's member. */
static void watch_on_told(void *arg)
{
	struct zk_watch *w = arg;
	struct lock_server *s = w->lock->user.server;

	lock_server_hold(s);
	w->changed(w->arg);
	w->fresh = false;
	watch_arm_behind(w);
	lock_server_put(s);
}

/* ---- asking ---- */

static struct zk_ask *ask_new(struct zk_lock *l, void (*take)(struct zk_lock *l, const struct zk_ask *a, int rc))
{
	struct zk_ask *a = mem_zero(sizeof *a);

	*a = (struct zk_ask){ .lock = l,
		              .watch = l->watch,
		              .number = l->user.server->notices->number,
		              .take = take,
		              .sent_at = clock_now() };
	l->ask = a;
	return a;
}

/* rc: of the call that sends one of the requests. A request that cannot be put into words had no memory for them
 * (recordio.c), and then zoo_amulti has freed a path that is ours: that of an operation before the one that failed. */
static void ask_add(struct zk_ask *a, int rc)
{
	if (rc == ZMARSHALLINGERROR)
		mem_end();
	if (rc == ZOK)
		a->left++;
	else
		a->failed = rc;
}

/* The last one was added. If one could not be sent, the session is beyond help: the completions of the others are
 * called for nobody. */
static void ask_sent(struct zk_ask *a)
{
	struct zk_lock *l = a->lock;

	zk_link_send(l->user.server->notices);
	if (a->failed == ZOK)
		return;
	lock_op_fail_soon(&l->user.op, LOCK_FAILED, ERR_UNREACHABLE, "it cannot be asked: %s", zerror(a->failed));
	l->ask = NULL;
	a->lock = NULL;
	if (a->left == 0)
		free(a);
}

static void ask_completed(struct zk_ask *a, int rc)
{
	struct zk_watch *w = a->watch;

	if (--a->left)
		return;
	if (a->lock) {
		a->lock->ask = NULL;
		a->take(a->lock, a, rc);
	}
	free(a);
	if (w)
		watch_arm_behind(w);
}

/* The completion of a request whose answer says nothing but rc. */
static void zk_on_string(int rc, const char *, const void *data)
{
	ask_completed((struct zk_ask *)data, rc);
}

/* A term may still go on whose record we saw the servers lose: no other term begins before its lease is over. */
static bool zk_in_doubt(struct zk_lock *l)
{
	struct lock_user *u = &l->user;
	struct instant now = clock_now();
	nsec left = lock_failover_left(&u->doubt, u->op.lease, now);

	if (!u->acquiring || left == 0 || lock_failover_own(&u->doubt, &u->expected, now))
		return false;
	lock_op_fail_soon(
		&u->op, LOCK_FAILED, ERR_UNREACHABLE,
		"the servers have lost a record that they had shown: this candidate is not elected for another "
		"%.1f s, since its leader may act until then",
		(double)left / NSEC_PER_SEC);
	return true;
}

static void zk_begin(struct lock_user *u)
{
	struct zk_lock *l = (struct zk_lock *)u;

	l->parents = PARENTS_UNTRIED;
	l->thorough = l->child.czxid == 0;
	if (!zk_in_doubt(l))
		lock_op_ask(&u->op, u->server->notices, &u->call);
}

static void zk_went_back(struct zk_lock *l, const struct zk_state *before, const struct zk_state *now)
{
	char mark[24];

	snprintf(mark, sizeof mark, "%" PRIu64, ++l->backs);
	lock_failover_see(&l->user.doubt, mark, clock_now());
	log_event(LOG_WARN, &(struct log_about){ .lock = l->user.lock.url }, "went_back",
	          "the servers show the node as zxid 0x%" PRIx64 " wrote it (version %d), and had shown what 0x%" PRIx64
	          " wrote (version %d): they have lost writes, by a defect, or were restored from an older copy, or a "
	          "server that is cut off answered",
	          now->mzxid, now->version, before->mzxid, before->version);
}

/* Takes the state that a look behind a synchronisation, or a write of ours, has shown. */
static void zk_see(struct zk_lock *l, const struct Stat *stat)
{
	struct zk_state before = l->last, now = { stat->czxid, stat->mzxid, stat->version };

	if (!l->user.lock.advice && zk_seen_back(&l->last, &now))
		zk_went_back(l, &before, &now);
}

static const struct ACL_vector *zk_acl(const struct zk_lock *l)
{
	const struct zk_server *s = (const struct zk_server *)l->user.server;

	return *s->url.user ? &ZOO_CREATOR_ALL_ACL : &ZOO_OPEN_ACL_UNSAFE;
}

static bool is_loss(int rc)
{
	return rc == ZCONNECTIONLOSS || rc == ZOPERATIONTIMEOUT || rc == ZCLOSING || rc == ZSESSIONEXPIRED ||
	       rc == ZSESSIONMOVED || rc == ZINVALIDSTATE;
}

static void zk_fail(struct zk_lock *l, int rc)
{
	struct lock_op *op = &l->user.op;

	if (is_loss(rc) && lock_op_repeat(op, true))
		lock_op_ask(op, op->link, op->call);
	else if (rc == ZNOAUTH || rc == ZINVALIDACL || rc == ZAUTHFAILED || rc == ZSESSIONCLOSEDREQUIRESASLAUTH)
		lock_op_fail(op, LOCK_REFUSED, ERR_DENIED,
		             "the server refuses it (%s): the user, the password or the node's ACL", zerror(rc));
	else if (rc == ZNOTREADONLY || rc == ZTHROTTLEDOP || rc == -125 /* quota exceeded */)
		lock_op_fail(op, LOCK_FAILED, ERR_FULL, "the server does not take the write (%s)", zerror(rc));
	else if (rc == ZBADARGUMENTS || rc == ZUNIMPLEMENTED)
		lock_op_fail(op, LOCK_FAILED, ERR_USAGE, "the server does not understand it (%s)", zerror(rc));
	else
		lock_op_fail(op, LOCK_UNKNOWN, ERR_UNREACHABLE, "no answer: %s", zerror(rc));
}

/* ---- reading ---- */

/* ZOOKEEPER-4785: a server that followed a new leader, and died before it had written what it lacked, could be elected;
 * mended in 3.8.5 and 3.9.2. ZOOKEEPER-4712: a server that follows no more goes on writing to its log; mended in 3.9.3
 * alone. ZOOKEEPER-4925 came with 3.9.3, and was mended in 3.9.4. */
static void zk_judge(struct lock_about *about, const char *version)
{
	int major = 0, minor = 0, patch = 0;

	if (sscanf(version, "%d.%d.%d", &major, &minor, &patch) < 2)
		return;
	int line = major * 100 + minor;
	const char *issue = (line == 308 && patch < 5) || (line == 309 && patch < 2) ? "4785"
	                    : line == 308 || (line == 309 && patch == 2)             ? "4712"
	                    : line == 309 && patch == 3                              ? "4925"
	                                                                             : NULL;
	if (line < 308)
		snprintf(about->warning, sizeof about->warning, "this version gets no more repairs; 3.9.5 is tested");
	else if (issue)
		snprintf(
			about->warning, sizeof about->warning,
			"an ensemble of this version can lose what it has acknowledged (ZOOKEEPER-%s): 3.9.5 is tested",
			issue);
}

/* A read has shown that it answers. */
static void zk_tell_about(struct zk_lock *l)
{
	const struct zk_server *s = (const struct zk_server *)l->user.server;
	const char *version = zk_link_version(s->base.notices);
	struct lock_about *about = l->user.about;

	*about = (struct lock_about){ .pause_ms = s->url.hosts > 1 ? ELECTION_MS : 0 };
	snprintf(about->server, sizeof about->server, "ZooKeeper %s",
	         *version ? version : "of no known version (srvr is not among its 4lw.commands.whitelist)");
	zk_judge(about, version);
	lock_user_end(&l->user, LOCK_OK);
}

/* What the Stat tells of the children, without the child's name. */
static struct zk_child child_of(const struct Stat *stat)
{
	return (struct zk_child){ .czxid = stat->czxid, .pzxid = stat->pzxid, .cversion = stat->cversion };
}

static void zk_on_children(int rc, const struct String_vector *names, const struct Stat *stat, const void *data)
{
	struct zk_ask *a = (struct zk_ask *)data;
	struct zk_child c = { 0 };

	a->children = rc;
	if (rc == ZOK)
		c = child_of(stat);
	for (int i = 0; rc == ZOK && i < names->count; i++)
		if (strncmp(names->data[i], CHILD, strlen(CHILD)) == 0 && !*c.id)
			snprintf(c.id, sizeof c.id, "%s", names->data[i] + strlen(CHILD));
	if (a->lock)
		a->lock->child = c;
	ask_completed(a, rc);
}

static void zk_on_record(int rc, const char *value, int len, const struct Stat *stat, const void *data)
{
	struct zk_ask *a = (struct zk_ask *)data;

	a->text = value ? value : "";
	a->len = value && len > 0 ? len : 0;
	if (rc == ZOK)
		a->stat = *stat;
	ask_completed(a, rc);
}

static void zk_found(struct zk_lock *l, const struct zk_ask *a)
{
	bool known = a->stat.czxid == l->child.czxid && a->stat.pzxid == l->child.pzxid &&
	             a->stat.cversion == l->child.cversion;
	char what[400], version[64];

	if (!known && !l->thorough) {
		l->thorough = true;
		lock_op_ask(&l->user.op, l->user.op.link, &l->user.call);
		return;
	}
	zk_see(l, &a->stat);
	/* Changed in between: its child was not seen, so no write may pass on that. */
	snprintf(version, sizeof version, "%s.%d", known ? l->child.id : "?", known ? a->stat.version : 0);
	snprintf(what, sizeof what, "the node %.300s", l->user.channel);
	lock_op_found(&l->user.op, what, a->text, (size_t)a->len, version, a->stat.mzxid);
}

static void zk_take_read(struct zk_lock *l, const struct zk_ask *a, int rc)
{
	if (rc == ZOK && a->children != ZNONODE)
		rc = a->children;
	if (l->watch && (rc == ZOK || rc == ZNONODE))
		l->watch->seen = rc == ZOK ? a->stat.mzxid : 0;
	if (rc == ZOK || rc == ZNONODE)
		l->caught_up = a->number + 1;
	if (rc != ZOK && rc != ZNONODE)
		zk_fail(l, rc);
	else if (l->user.about)
		zk_tell_about(l);
	else if (rc == ZNONODE)
		lock_user_end(&l->user, LOCK_ABSENT);
	else
		zk_found(l, a);
}

/* Synchronised first, since a follower may be behind, but not behind what it has just told. On a new connection, what
 * it tells may itself be older than what the last server has shown. The children are asked for only if what is known of
 * them is not those of the record: a handover asks for one thing. */
static void zk_send_read(struct zk_lock *l, zhandle_t *handle)
{
	const char *path = l->user.channel;
	struct zk_ask *a = ask_new(l, zk_take_read);

	if (!l->watch || !l->watch->fresh || l->caught_up != a->number + 1)
		ask_add(a, zoo_async(handle, path, zk_on_string, a));
	if (l->thorough)
		ask_add(a, zoo_aget_children2(handle, path, 0, zk_on_children, a));
	ask_add(a, zoo_aget(handle, path, 0, zk_on_record, a));
	ask_sent(a);
}

/* ---- list ---- */

static bool is_child_of_record(const char *name)
{
	return strncmp(name, CHILD, strlen(CHILD)) == 0 && strlen(name) == strlen(CHILD) + 2 * ID_BYTES &&
	       strspn(name + strlen(CHILD), "0123456789abcdef") == 2 * ID_BYTES;
}

static void zk_on_listed(int rc, const struct String_vector *names, const void *data)
{
	struct zk_ask *a = (struct zk_ask *)data;
	const struct zk_lock *l = a->lock;
	const char *prefix = l ? strrchr(l->user.channel, '/') + 1 : "";
	size_t len = lock_listing_prefix(prefix);

	for (int i = 0; l && rc == ZOK && i < names->count; i++)
		if (strncmp(names->data[i], prefix, len) == 0 && !is_child_of_record(names->data[i]))
			lock_listing_add(l->user.listing, names->data[i] + len, LOCK_URL_PATH);
	ask_completed(a, rc);
}

static void zk_take_list(struct zk_lock *l, const struct zk_ask *, int rc)
{
	if (rc == ZOK || rc == ZNONODE)
		lock_user_end(&l->user, LOCK_OK);
	else
		zk_fail(l, rc);
}

/* ZooKeeper gives all names or none, and no more than a megabyte of them. */
static void zk_send_list(struct zk_lock *l, zhandle_t *handle)
{
	const char *path = l->user.channel, *slash = strrchr(path, '/');
	char *parent = mem_dupn(path, slash == path ? 1 : (size_t)(slash - path));
	struct zk_ask *a = ask_new(l, zk_take_list);

	ask_add(a, zoo_async(handle, parent, zk_on_string, a));
	ask_add(a, zoo_aget_children(handle, parent, 0, zk_on_listed, a));
	free(parent);
	ask_sent(a);
}

/* ---- writing ---- */

static void zk_take_parents(struct zk_lock *l, const struct zk_ask *, int rc)
{
	if (rc == ZOK || rc == ZNODEEXISTS)
		lock_op_ask(&l->user.op, l->user.op.link, &l->user.call);
	else if (is_loss(rc))
		lock_op_fail(&l->user.op, LOCK_FAILED, ERR_UNREACHABLE, "no answer: %s", zerror(rc));
	else
		zk_fail(l, rc);
}

static void zk_send_parents(struct zk_lock *l, zhandle_t *handle)
{
	const char *path = l->user.channel;
	struct zk_ask *a = ask_new(l, zk_take_parents);

	l->parents = PARENTS_TRIED;
	for (const char *p = path + 1; (p = strchr(p, '/')); p++) {
		char *parent = mem_dupn(path, (size_t)(p - path));
		ask_add(a, zoo_acreate(handle, parent, "", 0, zk_acl(l), 0, zk_on_string, a));
		free(parent);
	}
	ask_sent(a);
}

static void zk_written(struct zk_lock *l, const struct zk_ask *a)
{
	char version[64];

	snprintf(version, sizeof version, "%s.%d", a->id, a->stat.version);
	l->child = child_of(&a->stat);
	memcpy(l->child.id, a->id, sizeof a->id);
	zk_see(l, &a->stat);
	if (l->watch)
		l->watch->seen = a->stat.mzxid; /* our own write is no news to us */
	lock_user_wrote(&l->user, version, l->user.acquiring ? a->stat.mzxid : 0);
}

static bool zk_lacks_parents(const struct zk_lock *l)
{
	return !l->user.op.removing && !*l->user.expected.text && l->parents == PARENTS_UNTRIED &&
	       strchr(l->user.channel + 1, '/');
}

static void zk_take_write(struct zk_lock *l, const struct zk_ask *a, int rc)
{
	if (rc == ZNONODE && zk_lacks_parents(l)) {
		l->parents = PARENTS_DUE;
		lock_op_ask(&l->user.op, l->user.op.link, &l->user.call);
	} else if (rc == ZOK && l->user.op.removing) {
		lock_user_end(&l->user, LOCK_OK);
	} else if (rc == ZOK) {
		zk_written(l, a);
	} else if (rc == ZBADVERSION || rc == ZNONODE || rc == ZNODEEXISTS || rc == ZNOTEMPTY) {
		lock_user_end(&l->user, LOCK_CONFLICT);
	} else {
		zk_fail(l, rc);
	}
}

static void zk_on_multi(int rc, const void *data)
{
	ask_completed((struct zk_ask *)data, rc);
}

/* What is expected has a child: it must still. A new term takes another, so that no write of an earlier one can pass,
 * not even by a version that the servers have counted twice. A node that was made by hand has no child, and one that is
 * to be made has none either: it gets one. A node that is made gets its record by a change of its own: the creation
 * does not say its zxid, and what would be asked for behind it could be another node. */
static void zk_send_write(struct zk_lock *l, zhandle_t *handle)
{
	const char *path = l->user.channel, *text = l->user.op.text, *expected = l->user.expected.text;
	const char *dot = strchr(expected, '.');
	int version = dot ? atoi(dot + 1) : 0, len = dot ? (int)(dot - expected) : 0, n = 0;
	struct zk_ask *a = ask_new(l, zk_take_write);
	bool other = len == 0 || l->user.acquiring;
	zoo_op_t ops[3];

	if (other)
		nonce_hex(a->id, ID_BYTES);
	else
		snprintf(a->id, sizeof a->id, "%.*s", len, expected);
	char *child = mem_printf("%s/%s%s", path, CHILD, a->id);
	char *before = mem_printf("%s/%s%.*s", path, CHILD, len, expected);
	if (l->user.op.removing) {
		zoo_delete_op_init(&ops[n++], before, -1);
		zoo_delete_op_init(&ops[n++], path, version);
	} else {
		if (!*expected)
			zoo_create_op_init(&ops[n++], path, "", 0, zk_acl(l), 0, NULL, 0);
		else if (!other)
			zoo_check_op_init(&ops[n++], before, -1);
		else if (len)
			zoo_delete_op_init(&ops[n++], before, -1);
		if (other)
			zoo_create_op_init(&ops[n++], child, "", 0, zk_acl(l), 0, NULL, 0);
		zoo_set_op_init(&ops[n++], path, text, (int)strlen(text), version, &a->stat);
	}
	ask_add(a, zoo_amulti(handle, n, ops, a->results, zk_on_multi, a));
	free(child);
	free(before);
	ask_sent(a);
}

/* ---- the call ---- */

static void zk_on_ready(struct lock_call *c)
{
	struct zk_lock *l = (struct zk_lock *)lock_user_of_call(c);
	zhandle_t *handle = zk_handle(l);

	if (!handle)
		return; /* seen by the link, which will tell */
	lock_op_sent(&l->user.op);
	if (l->parents == PARENTS_DUE)
		zk_send_parents(l, handle);
	else if (l->user.op.writing)
		zk_send_write(l, handle);
	else if (l->user.listing)
		zk_send_list(l, handle);
	else
		zk_send_read(l, handle);
}

/* What was sent has a completion of its own. */
static void zk_on_lost(struct lock_call *c, bool, enum lock_outcome outcome, const struct err *why)
{
	lock_op_fail(&lock_user_of_call(c)->op, outcome, why->code, "%s", why->text);
}

static void zk_on_detach(struct lock_op *op)
{
	struct zk_lock *l = (struct zk_lock *)lock_user_of_op(op);
	struct zk_ask *a = l->ask;

	if (!a)
		return;
	a->lock = NULL;
	l->ask = NULL;
	if (lock_op_is_late(op))
		zk_link_late(op->link, a->sent_at);
}

/* ---- servers ---- */

static void server_on_up(void *arg)
{
	const struct zk_server *s = arg;

	for (struct zk_watch *w = s->watches; w; w = w->next) {
		w->armed = false;
		watch_arm(w);
	}
	lock_server_on_up(arg);
}

/* A server that refuses us is asked as often as one that is not reached. */
static void server_on_down(void *arg, enum lock_outcome, const struct err *why)
{
	lock_server_on_down(arg, LOCK_FAILED, why);
}

/* The library calls all that it has under way when it closes a session. It does that later if it is just calling. */
static void server_on_freed(void *arg)
{
	struct zk_server *s = arg;

	while (s->watches) {
		struct zk_watch *w = s->watches;
		s->watches = w->next;
		free(w);
	}
	lock_url_fini(&s->url);
	free(s);
}

static bool server_serves(const struct lock_server *s, const void *place)
{
	return lock_url_same_servers(&((const struct zk_server *)s)->url, place);
}

static struct lock_server *server_make(struct lock_env *env, void *place)
{
	static const struct lock_link_events events = { .up = server_on_up,
		                                        .down = server_on_down,
		                                        .freed = server_on_freed };
	struct zk_server *s = mem_zero(sizeof *s);

	s->url = *(struct lock_url *)place;
	s->base.notices = zk_link_new(env, &s->url, &events, s);
	return &s->base;
}

static void server_spare(void *place)
{
	lock_url_fini(place);
}

static void server_free(struct lock_server *s)
{
	lock_link_free(s->notices);
}

static const struct lock_server_ops server_ops = {
	.serves = server_serves,
	.make = server_make,
	.spare = server_spare,
	.free = server_free,
};

/* ---- the lock ---- */

/* ZooKeeper's rules for names (its programmer's guide, "data model"), of which these are those that a URL can break. */
static const char *wrong_path(const char *path)
{
	size_t n = strlen(path);

	if (n == 0 || path[n - 1] == '/')
		return "the node's path is missing or ends with a slash (expected zookeeper://HOST:PORT/PATH)";
	for (const char *p = path; *p; p++) {
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			return "a node's name has no control characters";
		if (*p == '/' && p[1] == '/')
			return "a node's name is missing between two slashes";
	}
	for (const char *p = path; p; p = strchr(p, '/') ? strchr(p, '/') + 1 : NULL)
		if (strncmp(p, "./", 2) == 0 || strcmp(p, ".") == 0 || strncmp(p, "../", 3) == 0 ||
		    strcmp(p, "..") == 0)
			return "a node cannot be called . or ..";
	return strncmp(path, "zookeeper/", 10) == 0 ? "what is under /zookeeper is the server's own" : NULL;
}

static const struct lock_ops ops;
static const struct lock_user_ops zk_ops;

static struct lock *zk_open(struct lock_env *env, const char *text, struct err *err)
{
	static const char *const known[] = { NULL };
	struct lock_url u;

	if (lock_url_parse(&u, ops.scheme, text, PORT, known, err) < 0)
		return NULL;
	const char *path = u.path + (*u.path == '/'), *wrong = wrong_path(path);
	char *shown = lock_url_print(&u, ops.scheme);
	if (wrong) {
		err_set(err, ERR_USAGE, "lock \"%s\": %s", shown, wrong);
		free(shown);
		lock_url_fini(&u);
		return NULL;
	}
	struct zk_lock *l = mem_zero(sizeof *l);
	char *node = mem_printf("/%s", path);
	lock_user_init(&l->user, &ops, &zk_ops, shown, lock_server_get(env, &server_ops, &u), node);
	return &l->user.lock;
}

static bool zk_watch(struct lock *lock, lock_changed_fn *changed, void *arg)
{
	struct zk_lock *l = (struct zk_lock *)lock;
	struct zk_server *s = (struct zk_server *)l->user.server;
	bool fresh = !l->watch;

	if (fresh) {
		l->watch = mem_zero(sizeof *l->watch);
		*l->watch = (struct zk_watch){ .next = s->watches, .lock = l, .seen = -1 };
		s->watches = l->watch;
	}
	l->watch->changed = changed;
	l->watch->arg = arg;
	lock_user_watch(lock, watch_on_told, l->watch);
	if (fresh)
		watch_arm(l->watch);
	return true;
}

static void zk_free(struct lock_user *u)
{
	struct zk_lock *l = (struct zk_lock *)u;

	if (l->watch)
		l->watch->lock = NULL;
	free(l);
}

static const struct lock_user_ops zk_ops = {
	.begin = zk_begin,
	.detach = zk_on_detach,
	.free = zk_free,
	.call = { .ready = zk_on_ready, .lost = zk_on_lost },
};

static const struct lock_ops ops = {
	.scheme = "zookeeper",
	.open = zk_open,
	.watch = zk_watch,
	LOCK_USER_OPS,
	.next = ".next",
};
static const struct lock_ops *const locks[] = { &ops, NULL };

static void name_libraries(struct buf *out)
{
	buf_printf(out, "zookeeper_st %s", ZOO_VERSION);
}

const struct module lunarch_module = { .build = LUNARCH_BUILD, .libraries = name_libraries, .locks = locks };
