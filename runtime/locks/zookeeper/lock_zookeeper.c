/* The lock in ZooKeeper: a persistent node, set on the condition of its version. A node that is deleted and made again
 * begins with version 0 again, so each has a child, named at random, that goes with it: a write also checks that this
 * is still there. */
#include "locks/lock.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/module.h"
#include "base/nonce.h"
#include "locks/lock_op.h"
#include "locks/lock_server.h"
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
	struct zk_lock *lock; /* NULL: closed; freed with the server */
	bool armed, primed;   /* with the server; something was seen */
	bool told;            /* the lock looks already: what it is told then is as new as what arming shows */
	int64_t seen;         /* zxid of the last change; 0: no node */
};

struct zk_lock {
	struct lock lock;
	struct zk_server *server;
	char *path;
	struct lock_op op;
	struct lock_call call;
	struct zk_ask *ask; /* under way */
	bool parents;       /* were made in this operation */

	struct version expected; /* of the write under way, as are these */
	bool acquiring, removing;
	int64_t own;              /* zxid of our last write: no news to us */
	struct lock_about *about; /* what the question under way fills; NULL: it is another operation */

	struct zk_watch *watch;
	struct lock_member member;
};

/* A flight of requests; ends when its last completion was called. */
struct zk_ask {
	struct zk_lock *lock; /* NULL: nobody wants it any more */
	int left;
	struct instant sent_at;
	char id[2 * ID_BYTES + 1]; /* of the node: "" = none */
	int rc;
	zoo_op_result_t results[3];
	struct Stat stat;
};

static struct zk_lock *of(struct lock *l)
{
	return (struct zk_lock *)l;
}

/* ---- asking ---- */

static struct zk_ask *new_ask(struct zk_lock *l, int completions)
{
	struct zk_ask *a = mem_zero(sizeof *a);

	a->lock = l;
	a->left = completions;
	a->sent_at = clock_now();
	l->ask = a;
	return a;
}

/* NULL: nobody wants it any more, or there are more completions to come. */
static struct zk_lock *last_of(struct zk_ask *a)
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

static const struct ACL_vector *acl_of(const struct zk_lock *l)
{
	return *l->server->url.user ? &ZOO_CREATOR_ALL_ACL : &ZOO_OPEN_ACL_UNSAFE;
}

/* A read has shown that it answers. */
static void tell_about(struct zk_lock *l)
{
	const char *version = zk_link_version(l->server->base.notices);
	int major = 0, minor = 0;

	*l->about = (struct lock_about){ .pause_ms = l->server->url.hosts > 1 ? ELECTION_MS : 0 };
	snprintf(l->about->server, sizeof l->about->server, "ZooKeeper %s",
	         *version ? version : "of no known version (srvr is not among its 4lw.commands.whitelist)");
	if (sscanf(version, "%d.%d", &major, &minor) == 2 && major * 100 + minor < 308)
		snprintf(l->about->warning, sizeof l->about->warning,
		         "this version gets no more repairs; 3.8 is tested");
	lock_op_finish(&l->op, &(struct lock_result){ .outcome = LOCK_OK });
}

static void want(struct zk_lock *l)
{
	lock_op_ask(&l->op, l->server->base.notices, &l->call);
}

static bool is_loss(int rc)
{
	return rc == ZCONNECTIONLOSS || rc == ZOPERATIONTIMEOUT || rc == ZCLOSING || rc == ZSESSIONEXPIRED ||
	       rc == ZSESSIONMOVED || rc == ZINVALIDSTATE;
}

static void fail_rc(struct zk_lock *l, int rc)
{
	bool writing = l->op.writing;

	if (is_loss(rc) && lock_op_repeat(&l->op, true)) {
		want(l);
	} else if (rc == ZNOAUTH || rc == ZINVALIDACL || rc == ZAUTHFAILED || rc == ZSESSIONCLOSEDREQUIRESASLAUTH) {
		lock_op_fail(&l->op, LOCK_REFUSED, ERR_DENIED,
		             "the server refuses it (%s): the user, the password or the node's ACL", zerror(rc));
	} else if (rc == ZNOTREADONLY || rc == ZTHROTTLEDOP || rc == -125 /* quota exceeded */) {
		lock_op_fail(&l->op, LOCK_FAILED, ERR_FULL, "the server does not take the write (%s)", zerror(rc));
	} else if (rc == ZBADARGUMENTS || rc == ZUNIMPLEMENTED) {
		lock_op_fail(&l->op, LOCK_FAILED, ERR_USAGE, "the server does not understand it (%s)", zerror(rc));
	} else {
		lock_op_fail(&l->op, writing ? LOCK_UNKNOWN : LOCK_FAILED, ERR_UNREACHABLE, "no answer: %s",
		             zerror(rc));
	}
}

/* ---- reading ---- */

static void on_children(int rc, const struct String_vector *names, const void *data)
{
	struct zk_ask *a = (struct zk_ask *)data;

	a->rc = rc;
	for (int i = 0; rc == ZOK && names && i < names->count; i++)
		if (strncmp(names->data[i], CHILD, strlen(CHILD)) == 0 && !*a->id)
			snprintf(a->id, sizeof a->id, "%s", names->data[i] + strlen(CHILD));
	last_of(a); /* never the last: the record comes behind it */
}

static void on_record(int rc, const char *value, int len, const struct Stat *stat, const void *data)
{
	struct zk_ask *a = (struct zk_ask *)data;
	struct zk_lock *l = last_of(a);
	char what[400], version[64];

	if (!l)
		return;
	snprintf(version, sizeof version, "%s.%d", a->id, stat ? stat->version : 0);
	if (rc == ZOK && a->rc != ZOK && a->rc != ZNONODE)
		rc = a->rc;
	bool moved = rc == ZOK &&
	             a->rc == ZNONODE; /* made in between: its child was not seen, so nothing may be written on that */
	free(a);
	snprintf(what, sizeof what, "the node %.300s", l->path);
	if (rc != ZOK && rc != ZNONODE)
		fail_rc(l, rc);
	else if (l->about)
		tell_about(l);
	else if (rc == ZNONODE)
		lock_op_finish(&l->op, &(struct lock_result){ .outcome = LOCK_ABSENT });
	else
		lock_op_found(&l->op, what, value ? value : "", len > 0 ? (size_t)len : 0, moved ? "?.0" : version,
		              stat ? stat->mzxid : 0);
}

static void on_synced(int rc, const char *value, const void *data)
{
	(void)rc;
	(void)value;
	last_of((struct zk_ask *)data); /* never the last */
}

/* The session is beyond help: completions that were taken are called for nobody (and what is left of the flight is
 * leaked). */
static void not_sent(struct zk_lock *l, struct zk_ask *a, enum lock_outcome outcome, int rc)
{
	a->lock = NULL;
	l->ask = NULL;
	lock_op_fail_soon(&l->op, outcome, ERR_UNREACHABLE, "it cannot be asked: %s", zerror(rc));
}

/* Synchronised first, since a follower may be behind; the child before the record, so that a node that is made again in
 * between comes with the child of the old one, which no write passes. */
static void send_read(struct zk_lock *l, zhandle_t *handle)
{
	struct zk_ask *a = new_ask(l, 3);
	int rc = zoo_async(handle, l->path, on_synced, a);

	rc = rc == ZOK ? zoo_aget_children(handle, l->path, 0, on_children, a) : rc;
	rc = rc == ZOK ? zoo_aget(handle, l->path, 0, on_record, a) : rc;
	if (rc != ZOK)
		not_sent(l, a, LOCK_FAILED, rc);
}

/* ---- writing ---- */

static void wrote(struct zk_lock *l, const struct zk_ask *a, int version, int64_t zxid)
{
	struct lock_result r = { .outcome = LOCK_OK, .token = l->acquiring ? zxid : 0 };

	snprintf(r.version.text, sizeof r.version.text, "%s.%d", a->id, version);
	l->own = zxid;
	lock_op_finish(&l->op, &r);
}

static void make_parents(struct zk_lock *l);

static void on_set(int rc, const void *data)
{
	struct zk_ask *a = (struct zk_ask *)data;
	struct zk_lock *l = last_of(a);

	if (!l)
		return;
	if (rc == ZNONODE && !*l->expected.text && !l->parents)
		make_parents(l);
	else if (rc == ZOK)
		wrote(l, a, a->stat.version, a->stat.mzxid);
	else if (rc == ZBADVERSION || rc == ZNONODE || rc == ZNODEEXISTS)
		lock_op_finish(&l->op, &(struct lock_result){ .outcome = LOCK_CONFLICT });
	else
		fail_rc(l, rc);
	free(a);
}

/* What is there has a child: it must still. It has none, since somebody made it by hand: it gets one. */
static void send_set(struct zk_lock *l, zhandle_t *handle)
{
	const char *dot = strchr(l->expected.text, '.');
	struct zk_ask *a = new_ask(l, 1);
	zoo_op_t ops[2];
	int known = dot > l->expected.text;

	snprintf(a->id, sizeof a->id, "%.*s", dot ? (int)(dot - l->expected.text) : 0, l->expected.text);
	if (!known)
		nonce_hex(a->id, ID_BYTES);
	char *child = mem_printf("%s/%s%s", l->path, CHILD, a->id);
	zoo_set_op_init(&ops[known], l->path, l->op.text, (int)strlen(l->op.text), dot ? atoi(dot + 1) : 0, &a->stat);
	if (known)
		zoo_check_op_init(&ops[0], child, -1);
	else
		zoo_create_op_init(&ops[1], child, "", 0, acl_of(l), 0, NULL, 0);
	int rc = zoo_amulti(handle, 2, ops, a->results, on_set, a);
	free(child);
	if (rc != ZOK)
		not_sent(l, a, LOCK_FAILED, rc);
}

static void on_removed(int rc, const void *data)
{
	struct zk_ask *a = (struct zk_ask *)data;
	struct zk_lock *l = last_of(a);

	if (!l)
		return;
	free(a);
	if (rc == ZOK)
		lock_op_finish(&l->op, &(struct lock_result){ .outcome = LOCK_OK });
	else if (rc == ZBADVERSION || rc == ZNONODE || rc == ZNOTEMPTY)
		lock_op_finish(&l->op, &(struct lock_result){ .outcome = LOCK_CONFLICT });
	else
		fail_rc(l, rc);
}

/* With its child, or not at all. */
static void send_remove(struct zk_lock *l, zhandle_t *handle)
{
	const char *dot = strchr(l->expected.text, '.');
	struct zk_ask *a = new_ask(l, 1);
	zoo_op_t ops[2];
	char *child =
		mem_printf("%s/%s%.*s", l->path, CHILD, dot ? (int)(dot - l->expected.text) : 0, l->expected.text);

	zoo_delete_op_init(&ops[0], child, -1);
	zoo_delete_op_init(&ops[1], l->path, dot ? atoi(dot + 1) : 0);
	int rc = zoo_amulti(handle, 2, ops, a->results, on_removed, a);
	free(child);
	if (rc != ZOK)
		not_sent(l, a, LOCK_FAILED, rc);
}

/* The creation says nothing of its zxid, a change does; and what is asked for behind it could be another node. */
static void send_create(struct zk_lock *l, zhandle_t *handle)
{
	struct zk_ask *a = new_ask(l, 1);
	zoo_op_t ops[3];

	nonce_hex(a->id, ID_BYTES);
	char *child = mem_printf("%s/%s%s", l->path, CHILD, a->id);
	zoo_create_op_init(&ops[0], l->path, "", 0, acl_of(l), 0, NULL, 0);
	zoo_create_op_init(&ops[1], child, "", 0, acl_of(l), 0, NULL, 0);
	zoo_set_op_init(&ops[2], l->path, l->op.text, (int)strlen(l->op.text), 0, &a->stat);
	int rc = zoo_amulti(handle, 3, ops, a->results, on_set, a);
	free(child);
	if (rc != ZOK)
		not_sent(l, a, LOCK_FAILED, rc);
}

static void on_parent(int rc, const char *value, const void *data)
{
	struct zk_ask *a = (struct zk_ask *)data;

	(void)value;
	a->rc = rc;
	struct zk_lock *l = last_of(a);
	if (!l)
		return;
	free(a);
	if (rc == ZOK || rc == ZNODEEXISTS)
		want(l);
	else if (is_loss(rc))
		lock_op_fail(&l->op, LOCK_FAILED, ERR_UNREACHABLE, "no answer: %s", zerror(rc));
	else
		fail_rc(l, rc);
}

static void make_parents(struct zk_lock *l)
{
	zhandle_t *handle = zk_link_handle(l->server->base.notices);
	int count = 0, rc = ZOK;

	l->parents = true;
	for (const char *p = l->path + 1; (p = strchr(p, '/')); p++)
		count++;
	if (!handle || count == 0) {
		lock_op_fail(&l->op, LOCK_FAILED, ERR_UNREACHABLE, "the node cannot be made");
		return;
	}
	struct zk_ask *a = new_ask(l, count);
	for (const char *p = l->path + 1; rc == ZOK && (p = strchr(p, '/')); p++) {
		char *parent = mem_dupn(l->path, (size_t)(p - l->path));
		rc = zoo_acreate(handle, parent, "", 0, acl_of(l), 0, on_parent, a);
		free(parent);
	}
	zk_link_sent(l->server->base.notices);
}

static void on_ready(struct lock_call *c)
{
	struct zk_lock *l = (struct zk_lock *)(void *)((char *)c - offsetof(struct zk_lock, call));
	zhandle_t *handle = zk_link_handle(l->server->base.notices);

	if (!handle)
		return; /* seen by the link, which will tell */
	lock_op_sent(&l->op);
	if (!l->op.writing)
		send_read(l, handle);
	else if (l->removing)
		send_remove(l, handle);
	else if (*l->expected.text)
		send_set(l, handle);
	else
		send_create(l, handle);
	zk_link_sent(l->server->base.notices);
}

static void on_lost(struct lock_call *c, bool sent, enum lock_outcome outcome, const struct err *why)
{
	struct zk_lock *l = (struct zk_lock *)(void *)((char *)c - offsetof(struct zk_lock, call));

	(void)sent; /* what was sent has a completion of its own */
	lock_op_fail(&l->op, outcome, why->code, "%s", why->text);
}

static void on_detach(struct lock_op *op)
{
	struct zk_lock *l = (struct zk_lock *)(void *)((char *)op - offsetof(struct zk_lock, op));
	struct zk_ask *a = l->ask;

	if (!a)
		return;
	a->lock = NULL;
	l->ask = NULL;
	if (lock_op_is_late(op))
		zk_link_late(l->server->base.notices, a->sent_at);
}

/* ---- notices ---- */

static void arm(struct zk_server *s, struct zk_watch *w);

/* A watch fires once, and is set again; what is there then tells what was missed. Our own writes are no news. */
static void on_armed(int rc, const struct Stat *stat, const void *data)
{
	struct zk_watch *w = (struct zk_watch *)data;
	int64_t now = rc == ZOK ? stat->mzxid : 0;

	w->armed = rc == ZOK || rc == ZNONODE;
	if (!w->armed || !w->lock)
		return;
	if (w->primed && !w->told && now != w->seen && (now == 0 || now != w->lock->own))
		lock_member_tell(&w->lock->member);
	w->primed = true;
	w->told = false;
	w->seen = now;
}

static void on_watch(zhandle_t *handle, int type, int state, const char *path, void *context)
{
	struct zk_watch *w = context;

	(void)handle;
	(void)state;
	(void)path;
	if (type == ZOO_SESSION_EVENT || !w->lock)
		return;
	w->armed = false;
	arm(w->lock->server, w);
	if (!w->armed || w->lock->ask)
		return; /* it may be our own write: arming tells */
	w->told = true;
	lock_member_tell(&w->lock->member);
}

static void arm(struct zk_server *s, struct zk_watch *w)
{
	zhandle_t *handle = zk_link_handle(s->base.notices);

	if (!handle || !w->lock)
		return;
	w->armed = zoo_awexists(handle, w->lock->path, on_watch, w, on_armed, w) == ZOK;
	zk_link_sent(s->base.notices);
}

/* ---- servers ---- */

static void server_on_up(void *arg)
{
	struct zk_server *s = arg;

	for (struct zk_watch *w = s->watches; w; w = w->next)
		arm(s, w);
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

static struct lock *open_lock(struct lock_env *env, const char *text, struct err *err)
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
	*l = (struct zk_lock){
		.lock = { .ops = &ops, .url = shown },
		.path = mem_printf("/%s", path),
		.call = { .ready = on_ready, .lost = on_lost },
	};
	l->server = (struct zk_server *)lock_server_get(env, &server_ops, &u);
	lock_member_init(&l->member, &l->server->base.board);
	return &l->lock;
}

static void begin(struct zk_lock *l, bool writing, struct instant by, lock_done_fn *done, void *arg)
{
	lock_op_begin(&l->op, l->server->base.env, &l->lock, on_detach, writing, by, done, arg);
	l->parents = l->removing = false;
	l->about = NULL;
}

static void read_record(struct lock *lock, struct instant by, lock_done_fn *done, void *arg)
{
	struct zk_lock *l = of(lock);

	begin(l, false, by, done, arg);
	want(l);
}

static void write_record(struct lock *lock, const struct record *r, const struct version *expected, bool durable,
                         struct instant by, lock_done_fn *done, void *arg)
{
	struct zk_lock *l = of(lock);

	(void)durable; /* always */
	begin(l, true, by, done, arg);
	if (!lock_op_print(&l->op, r))
		return;
	l->expected = *expected;
	l->acquiring = r->token == 0;
	want(l);
}

static void remove_record(struct lock *lock, const struct version *expected, struct instant by, lock_done_fn *done,
                          void *arg)
{
	struct zk_lock *l = of(lock);

	begin(l, true, by, done, arg);
	l->removing = true;
	l->expected = *expected;
	want(l);
}

static void ask_server(struct lock *lock, struct lock_about *about, struct instant by, lock_done_fn *done, void *arg)
{
	struct zk_lock *l = of(lock);

	begin(l, false, by, done, arg);
	l->about = about;
	want(l);
}

static void cancel(struct lock *lock)
{
	lock_op_cancel(&of(lock)->op);
}

static bool watch(struct lock *lock, lock_changed_fn *changed, void *arg)
{
	struct zk_lock *l = of(lock);

	lock_server_watch(&l->server->base, &l->member, l->path, changed, arg);
	if (l->watch)
		return true;
	l->watch = mem_zero(sizeof *l->watch);
	*l->watch = (struct zk_watch){ .next = l->server->watches, .lock = l };
	l->server->watches = l->watch;
	arm(l->server, l->watch);
	return true;
}

static void close_lock(struct lock *lock)
{
	struct zk_lock *l = of(lock);

	lock_op_cancel(&l->op);
	if (l->watch)
		l->watch->lock = NULL;
	lock_server_unwatch(&l->server->base, &l->member);
	lock_server_put(&l->server->base);
	free(l->path);
	free(l->lock.url);
	free(l);
}

static const struct lock_ops ops = {
	.scheme = "zookeeper",
	.open = open_lock,
	.read = read_record,
	.write = write_record,
	.cancel = cancel,
	.watch = watch,
	.close = close_lock,
	.about = ask_server,
	.remove = remove_record,
};
static const struct lock_ops *const locks[] = { &ops, NULL };

static void name_libraries(struct buf *out)
{
	buf_printf(out, "zookeeper_st %s", ZOO_VERSION);
}

const struct module lunarch_module = { .build = LUNARCH_BUILD, .libraries = name_libraries, .locks = locks };
