/* The lock in ZooKeeper: a persistent node, set on the condition of its version. A node that is deleted and made again
 * begins with version 0 again, so each has a child, named at random, that goes with it: a write also checks that this
 * is still there. A version of ours is the child's random name, a dot, and the node's version. */
#include "base/buf.h"
#include "base/mem.h"
#include "base/module.h"
#include "base/nonce.h"
#include "locks/lock_listing.h"
#include "locks/lock_url.h"
#include "locks/lock_user.h"
#include "locks/zookeeper/zk_link.h"

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

/* The library's watchers cannot be taken back: what they point to outlives the lock. */
struct zk_watch {
	struct zk_watch *next;
	struct zk_lock *lock; /* NULL: closed; freed with the link */
	bool armed, primed;   /* the server has it; something was seen */
	bool told;            /* the lock looks already: what it is told then is as new as what arming shows */
	int64_t seen;         /* zxid of the last change; 0: no node */
};

struct zk_lock {
	struct lock_user user; /* first; its channel is the node's path */
	struct zk_ask *ask;    /* under way */
	bool parents;          /* were made in this operation */
	int64_t own;           /* zxid of our last write: no news to us */
	struct zk_watch *watch;
};

/* Requests that are sent together. They end when the last of their completions was called. */
struct zk_ask {
	struct zk_lock *lock; /* NULL: nobody wants it any more */
	int left;             /* completions */
	struct instant sent_at;
	char id[2 * ID_BYTES + 1]; /* in the child's name; "" = there is none */
	int rc;                    /* of the look at the children */
	zoo_op_result_t results[3];
	struct Stat stat;
};

static zhandle_t *zk_handle(const struct zk_lock *l)
{
	return zk_link_handle(l->user.server->notices);
}

/* ---- asking ---- */

static struct zk_ask *ask_new(struct zk_lock *l, int completions)
{
	struct zk_ask *a = mem_zero(sizeof *a);

	*a = (struct zk_ask){ .lock = l, .left = completions, .sent_at = clock_now() };
	l->ask = a;
	return a;
}

/* A completion was called. Whose the requests are, and the caller frees them; NULL: nobody wants them any more, or more
 * completions are to come. */
static struct zk_lock *ask_completed(struct zk_ask *a)
{
	struct zk_lock *l = a->lock;

	if (--a->left)
		return NULL;
	if (l)
		l->ask = NULL;
	else
		free(a);
	return l;
}

/* The session is beyond help: completions that were taken are called for nobody (and the memory is leaked, since not
 * all are). */
static void ask_not_sent(struct zk_ask *a, int rc)
{
	struct zk_lock *l = a->lock;

	a->lock = NULL;
	l->ask = NULL;
	lock_op_fail_soon(&l->user.op, LOCK_FAILED, ERR_UNREACHABLE, "it cannot be asked: %s", zerror(rc));
}

static void zk_begin(struct lock_user *u)
{
	((struct zk_lock *)u)->parents = false;
	lock_op_ask(&u->op, u->server->notices, &u->call);
}

static const struct ACL_vector *zk_acl(const struct zk_lock *l)
{
	const struct zk_server *s = (const struct zk_server *)l->user.server;

	return *s->url.user ? &ZOO_CREATOR_ALL_ACL : &ZOO_OPEN_ACL_UNSAFE;
}

/* A read has shown that it answers. */
static void zk_tell_about(struct zk_lock *l)
{
	const struct zk_server *s = (const struct zk_server *)l->user.server;
	const char *version = zk_link_version(s->base.notices);
	struct lock_about *about = l->user.about;
	int major = 0, minor = 0;

	*about = (struct lock_about){ .pause_ms = s->url.hosts > 1 ? ELECTION_MS : 0 };
	snprintf(about->server, sizeof about->server, "ZooKeeper %s",
	         *version ? version : "of no known version (srvr is not among its 4lw.commands.whitelist)");
	if (sscanf(version, "%d.%d", &major, &minor) == 2 && major * 100 + minor < 308)
		snprintf(about->warning, sizeof about->warning, "this version gets no more repairs; 3.8 is tested");
	lock_user_end(&l->user, LOCK_OK);
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

/* Completions but the last of a read: the record's. */
static void zk_on_synced(int rc, const char *value, const void *data)
{
	(void)rc;
	(void)value;
	ask_completed((struct zk_ask *)data);
}

static void zk_on_children(int rc, const struct String_vector *names, const void *data)
{
	struct zk_ask *a = (struct zk_ask *)data;

	a->rc = rc;
	for (int i = 0; rc == ZOK && names && i < names->count; i++)
		if (strncmp(names->data[i], CHILD, strlen(CHILD)) == 0 && !*a->id)
			snprintf(a->id, sizeof a->id, "%s", names->data[i] + strlen(CHILD));
	ask_completed(a);
}

static void zk_on_record(int rc, const char *value, int len, const struct Stat *stat, const void *data)
{
	struct zk_ask *a = (struct zk_ask *)data;
	struct zk_lock *l = ask_completed(a);
	char what[400], version[64];

	if (!l)
		return;
	snprintf(version, sizeof version, "%s.%d", a->id, stat ? stat->version : 0);
	if (rc == ZOK && a->rc == ZNONODE) /* made in between: its child was not seen, so no write may pass on that */
		snprintf(version, sizeof version, "?.0");
	else if (rc == ZOK)
		rc = a->rc;
	free(a);
	snprintf(what, sizeof what, "the node %.300s", l->user.channel);
	if (rc != ZOK && rc != ZNONODE)
		zk_fail(l, rc);
	else if (l->user.about)
		zk_tell_about(l);
	else if (rc == ZNONODE)
		lock_user_end(&l->user, LOCK_ABSENT);
	else
		lock_op_found(&l->user.op, what, value ? value : "", len > 0 ? (size_t)len : 0, version,
		              stat ? stat->mzxid : 0);
}

/* Synchronised first, since a follower may be behind; the child before the record, so that a node that is made again in
 * between comes with the child of the old one, which no write passes. */
static void zk_send_read(struct zk_lock *l, zhandle_t *handle)
{
	const char *path = l->user.channel;
	struct zk_ask *a = ask_new(l, 3);
	int rc = zoo_async(handle, path, zk_on_synced, a);

	rc = rc == ZOK ? zoo_aget_children(handle, path, 0, zk_on_children, a) : rc;
	rc = rc == ZOK ? zoo_aget(handle, path, 0, zk_on_record, a) : rc;
	if (rc != ZOK)
		ask_not_sent(a, rc);
}

/* ---- list ---- */

static bool is_child_of_record(const char *name)
{
	return strncmp(name, CHILD, strlen(CHILD)) == 0 && strlen(name) == strlen(CHILD) + 2 * ID_BYTES &&
	       strspn(name + strlen(CHILD), "0123456789abcdef") == 2 * ID_BYTES;
}

static void zk_add_names(const struct zk_lock *l, const struct String_vector *names)
{
	const char *prefix = strrchr(l->user.channel, '/') + 1;
	size_t len = lock_listing_prefix(prefix);

	for (int i = 0; i < names->count; i++)
		if (strncmp(names->data[i], prefix, len) == 0 && !is_child_of_record(names->data[i]))
			lock_listing_add(l->user.listing, names->data[i] + len, LOCK_URL_PATH);
}

static void zk_on_listed(int rc, const struct String_vector *names, const void *data)
{
	struct zk_ask *a = (struct zk_ask *)data;
	struct zk_lock *l = ask_completed(a);

	if (!l)
		return;
	free(a);
	if (rc == ZOK && names)
		zk_add_names(l, names);
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
	struct zk_ask *a = ask_new(l, 2);
	int rc = zoo_async(handle, parent, zk_on_synced, a);

	rc = rc == ZOK ? zoo_aget_children(handle, parent, 0, zk_on_listed, a) : rc;
	free(parent);
	if (rc != ZOK)
		ask_not_sent(a, rc);
}

/* ---- writing ---- */

static void zk_on_parent(int rc, const char *value, const void *data)
{
	struct zk_ask *a = (struct zk_ask *)data;
	struct zk_lock *l = ask_completed(a);

	(void)value;
	if (!l)
		return;
	free(a);
	if (rc == ZOK || rc == ZNODEEXISTS)
		lock_op_ask(&l->user.op, l->user.op.link, &l->user.call);
	else if (is_loss(rc))
		lock_op_fail(&l->user.op, LOCK_FAILED, ERR_UNREACHABLE, "no answer: %s", zerror(rc));
	else
		zk_fail(l, rc);
}

static void zk_make_parents(struct zk_lock *l)
{
	const char *path = l->user.channel;
	zhandle_t *handle = zk_handle(l);
	int count = 0, rc = ZOK;

	l->parents = true;
	for (const char *p = path + 1; (p = strchr(p, '/')); p++)
		count++;
	if (!handle || count == 0) {
		lock_op_fail(&l->user.op, LOCK_FAILED, ERR_UNREACHABLE, "the node cannot be made");
		return;
	}
	struct zk_ask *a = ask_new(l, count);
	for (const char *p = path + 1; rc == ZOK && (p = strchr(p, '/')); p++) {
		char *parent = mem_dupn(path, (size_t)(p - path));
		rc = zoo_acreate(handle, parent, "", 0, zk_acl(l), 0, zk_on_parent, a);
		free(parent);
	}
	if (rc != ZOK)
		ask_not_sent(a, rc);
}

static void zk_written(struct zk_lock *l, const struct zk_ask *a)
{
	struct lock_result r = { .outcome = LOCK_OK, .token = l->user.acquiring ? a->stat.mzxid : 0 };

	snprintf(r.version.text, sizeof r.version.text, "%s.%d", a->id, a->stat.version);
	l->own = a->stat.mzxid;
	lock_op_finish(&l->user.op, &r);
}

static void zk_on_written(int rc, const void *data)
{
	struct zk_ask *a = (struct zk_ask *)data;
	struct zk_lock *l = ask_completed(a);

	if (!l)
		return;
	if (rc == ZNONODE && !l->user.op.removing && !*l->user.expected.text && !l->parents)
		zk_make_parents(l);
	else if (rc == ZOK && l->user.op.removing)
		lock_user_end(&l->user, LOCK_OK);
	else if (rc == ZOK)
		zk_written(l, a);
	else if (rc == ZBADVERSION || rc == ZNONODE || rc == ZNODEEXISTS || rc == ZNOTEMPTY)
		lock_user_end(&l->user, LOCK_CONFLICT);
	else
		zk_fail(l, rc);
	free(a);
}

/* What is expected has a child: it must still. It has none, since somebody made the node by hand, or there is no node:
 * it gets one. A node that is made gets its record by a change of its own: the creation does not say its zxid, and what
 * would be asked for behind it could be another node. */
static void zk_send_write(struct zk_lock *l, zhandle_t *handle)
{
	const char *path = l->user.channel, *text = l->user.op.text, *expected = l->user.expected.text;
	const char *dot = strchr(expected, '.');
	int version = dot ? atoi(dot + 1) : 0, n = 0;
	struct zk_ask *a = ask_new(l, 1);
	zoo_op_t ops[3];

	if (dot > expected)
		snprintf(a->id, sizeof a->id, "%.*s", (int)(dot - expected), expected);
	else
		nonce_hex(a->id, ID_BYTES);
	char *child = mem_printf("%s/%s%s", path, CHILD, a->id);
	if (l->user.op.removing) {
		zoo_delete_op_init(&ops[n++], child, -1);
		zoo_delete_op_init(&ops[n++], path, version);
	} else {
		if (!*expected)
			zoo_create_op_init(&ops[n++], path, "", 0, zk_acl(l), 0, NULL, 0);
		if (dot > expected)
			zoo_check_op_init(&ops[n++], child, -1);
		else
			zoo_create_op_init(&ops[n++], child, "", 0, zk_acl(l), 0, NULL, 0);
		zoo_set_op_init(&ops[n++], path, text, (int)strlen(text), version, &a->stat);
	}
	int rc = zoo_amulti(handle, n, ops, a->results, zk_on_written, a);
	free(child);
	if (rc != ZOK)
		ask_not_sent(a, rc);
}

static void zk_on_ready(struct lock_call *c)
{
	struct zk_lock *l = (struct zk_lock *)lock_user_of_call(c);
	zhandle_t *handle = zk_handle(l);

	if (!handle)
		return; /* seen by the link, which will tell */
	lock_op_sent(&l->user.op);
	if (l->user.op.writing)
		zk_send_write(l, handle);
	else if (l->user.listing)
		zk_send_list(l, handle);
	else
		zk_send_read(l, handle);
}

static void zk_on_lost(struct lock_call *c, bool sent, enum lock_outcome outcome, const struct err *why)
{
	(void)sent; /* what was sent has a completion of its own */
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

/* ---- notices ---- */

static void watch_arm(struct zk_watch *w);

/* A watch fires once, and is set again; what is there then tells what was missed. Our own writes are no news. */
static void watch_on_armed(int rc, const struct Stat *stat, const void *data)
{
	struct zk_watch *w = (struct zk_watch *)data;
	int64_t now = rc == ZOK ? stat->mzxid : 0;

	w->armed = rc == ZOK || rc == ZNONODE;
	if (!w->armed || !w->lock)
		return;
	if (w->primed && !w->told && now != w->seen && (now == 0 || now != w->lock->own))
		lock_member_tell(&w->lock->user.member);
	w->primed = true;
	w->told = false;
	w->seen = now;
}

static void watch_on_event(zhandle_t *handle, int type, int state, const char *path, void *context)
{
	struct zk_watch *w = context;

	(void)handle;
	(void)state;
	(void)path;
	if (type == ZOO_SESSION_EVENT || !w->lock)
		return;
	w->armed = false;
	watch_arm(w);
	if (!w->armed || w->lock->ask)
		return; /* it may be our own write: arming tells */
	w->told = true;
	lock_member_tell(&w->lock->user.member);
}

static void watch_arm(struct zk_watch *w)
{
	zhandle_t *handle = w->lock ? zk_handle(w->lock) : NULL;

	if (handle)
		w->armed = zoo_awexists(handle, w->lock->user.channel, watch_on_event, w, watch_on_armed, w) == ZOK;
}

/* ---- servers ---- */

static void server_on_up(void *arg)
{
	const struct zk_server *s = arg;

	for (struct zk_watch *w = s->watches; w; w = w->next)
		watch_arm(w);
	lock_server_notices.up(arg);
}

static void server_on_down(void *arg, enum lock_outcome outcome, const struct err *why)
{
	(void)outcome; /* who is refused is asked as often as who is not reached */
	lock_server_notices.down(arg, LOCK_FAILED, why);
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

	lock_user_watch(lock, changed, arg);
	if (l->watch)
		return true;
	l->watch = mem_zero(sizeof *l->watch);
	*l->watch = (struct zk_watch){ .next = s->watches, .lock = l };
	s->watches = l->watch;
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
	.read = lock_user_read,
	.write = lock_user_write,
	.cancel = lock_user_cancel,
	.watch = zk_watch,
	.close = lock_user_close,
	.list = lock_user_list,
	.about = lock_user_about,
	.remove = lock_user_remove,
};
static const struct lock_ops *const locks[] = { &ops, NULL };

static void name_libraries(struct buf *out)
{
	buf_printf(out, "zookeeper_st %s", ZOO_VERSION);
}

const struct module lunarch_module = { .build = LUNARCH_BUILD, .libraries = name_libraries, .locks = locks };
