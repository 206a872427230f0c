/* What a ZooKeeper server says of nodes: the whole lock, whose requests are answered with the input's bytes: a code, a
 * state of the node, its data, names of children. zk_link.h's functions stand here, and the library's that send (the
 * linker's --wrap). Each operation ends once. */
#include "fuzz.h"

#include "base/mem.h"
#include "base/module.h"
#include "locks/lock_listing.h"
#include "locks/zookeeper/zk_link.h"

#include <ev.h>

extern const struct module lunarch_module; /* of lock_zookeeper.c */

static struct input in;

static void answer_all(void);

/* ---- the link: up at once ---- */

/* As the library does when its handle is closed: every completion is called. */
static void link_close(struct lock_link *k)
{
	(void)k;
	answer_all();
}

static void no_events(struct lock_link *k)
{
	(void)k;
}

struct lock_link *zk_link_new(struct lock_env *env, const struct lock_url *url, const struct lock_link_events *events,
                              void *arg)
{
	static const struct lock_link_ops ops = { .attempt = NSEC_PER_SEC,
		                                  .dial = lock_link_dialed,
		                                  .greet = lock_link_up,
		                                  .send = no_events,
		                                  .parse = no_events,
		                                  .tick = no_events,
		                                  .overdue = no_events,
		                                  .close = link_close };
	struct lock_link *k = mem_zero(sizeof *k);

	lock_link_init(k, env, url, &ops, events, arg);
	return k;
}

const char *zk_link_version(const struct lock_link *link)
{
	(void)link;
	return "3.8.0";
}

zhandle_t *zk_link_handle(struct lock_link *link)
{
	return lock_link_is_up(link) ? (zhandle_t *)link : NULL;
}

void zk_link_send(struct lock_link *link)
{
	(void)link;
}

void zk_link_late(struct lock_link *link, struct instant sent_at)
{
	(void)link, (void)sent_at;
}

/* ---- requests, in the order in which they are answered ---- */

#define MOST 64

enum request_kind { STRING, STAT, DATA, STRINGS, STRINGS_STAT, VOID };

static struct request {
	enum request_kind kind;
	union {
		string_completion_t string;
		stat_completion_t stat;
		data_completion_t data;
		strings_completion_t strings;
		strings_stat_completion_t strings_stat;
		void_completion_t nothing;
	} done;
	const void *context;
	zoo_op_result_t *results;
	int count;
} asked[MOST];
static int first, last;

static struct {
	watcher_fn fn;
	void *context;
} watcher;

static int request(struct request r)
{
	if (last == MOST)
		return ZINVALIDSTATE;
	asked[last++] = r;
	return ZOK;
}

#define WRAPPED(name, ...)                                                   \
	int __wrap_zoo_##name(zhandle_t *zh, const char *path, __VA_ARGS__); \
	int __wrap_zoo_##name(zhandle_t *zh, const char *path, __VA_ARGS__)

WRAPPED(async, string_completion_t done, const void *data)
{
	(void)zh, (void)path;
	return request((struct request){ STRING, { .string = done }, data });
}

WRAPPED(aget, int watch, data_completion_t done, const void *data)
{
	(void)zh, (void)path, (void)watch;
	return request((struct request){ DATA, { .data = done }, data });
}

WRAPPED(aget_children, int watch, strings_completion_t done, const void *data)
{
	(void)zh, (void)path, (void)watch;
	return request((struct request){ STRINGS, { .strings = done }, data });
}

WRAPPED(aget_children2, int watch, strings_stat_completion_t done, const void *data)
{
	(void)zh, (void)path, (void)watch;
	return request((struct request){ STRINGS_STAT, { .strings_stat = done }, data });
}

WRAPPED(acreate, const char *value, int len, const struct ACL_vector *acl, int mode, string_completion_t done,
        const void *data)
{
	(void)zh, (void)path, (void)value, (void)len, (void)acl, (void)mode;
	return request((struct request){ STRING, { .string = done }, data });
}

WRAPPED(awexists, watcher_fn fn, void *context, stat_completion_t done, const void *data)
{
	(void)zh, (void)path;
	watcher.fn = fn;
	watcher.context = context;
	return request((struct request){ STAT, { .stat = done }, data });
}

int __wrap_zoo_amulti(zhandle_t *zh, int count, const zoo_op_t *ops, zoo_op_result_t *results, void_completion_t done,
                      const void *data);
int __wrap_zoo_amulti(zhandle_t *zh, int count, const zoo_op_t *ops, zoo_op_result_t *results, void_completion_t done,
                      const void *data)
{
	(void)zh, (void)ops;
	return request((struct request){ VOID, { .nothing = done }, data, results, count });
}

static bool closing;

static int code(void)
{
	static const int codes[] = { ZOK,
		                     ZOK,
		                     ZOK,
		                     ZNONODE,
		                     ZNODEEXISTS,
		                     ZBADVERSION,
		                     ZNOAUTH,
		                     ZNOTEMPTY,
		                     ZNOTREADONLY,
		                     ZCONNECTIONLOSS,
		                     ZSESSIONEXPIRED,
		                     ZAPIERROR,
		                     ZBADARGUMENTS,
		                     -125,
		                     ZMARSHALLINGERROR,
		                     ZNOCHILDRENFOREPHEMERALS };

	return closing ? ZCLOSING : codes[input_byte(&in) % 16];
}

static void answer(const struct request *r)
{
	int rc = code();
	struct Stat stat = { .czxid = input_byte(&in) % 4,
		             .mzxid = input_byte(&in),
		             .version = (int32_t)((uint32_t)input_byte(&in) << 24 | input_byte(&in)),
		             .cversion = input_byte(&in) % 4 };
	char *names[4];
	size_t len;
	struct String_vector list = { .count = 0, .data = names };

	if (r->kind == DATA) {
		char *text = input_text(&in, &len), *data = input_copy(text, len); /* it is not terminated */
		r->done.data(rc, rc == ZOK ? data : NULL, rc == ZOK ? (int)len : -1, &stat, r->context);
		free(data);
		free(text);
		return;
	}
	if (r->kind == STRINGS || r->kind == STRINGS_STAT)
		for (list.count = 0; list.count < (int)(stat.mzxid % 5);)
			names[list.count++] = input_text(&in, NULL);
	for (int i = 0; i < r->count; i++)
		r->results[i].err = rc == ZOK ? ZOK : code();
	switch (r->kind) {
	case STRING:
		r->done.string(rc, "/x", r->context);
		break;
	case STAT:
		r->done.stat(rc, &stat, r->context);
		break;
	case STRINGS:
		r->done.strings(rc, &list, r->context);
		break;
	case STRINGS_STAT:
		r->done.strings_stat(rc, &list, &stat, r->context);
		break;
	case VOID:
		r->done.nothing(rc, r->context);
		break;
	case DATA:
		break;
	}
	while (list.count)
		free(names[--list.count]);
}

static void answer_all(void)
{
	closing = true;
	while (first < last)
		answer(&asked[first++]);
	closing = false;
}

/* ---- the operation ---- */

static int ends;

static void on_done(void *arg, const struct lock_result *r)
{
	(void)arg;
	ends++;
	must(r->outcome != LOCK_OK || r->err.code == ERR_NONE);
	if (r->record)
		must(r->record->holder && *r->version.text);
}

static void on_change(void *arg)
{
	(void)arg;
}

static void operate(struct lock_env *env, struct lock *l, uint8_t what, const struct record *r)
{
	struct lock_about about = { 0 };
	struct lock_listing listing = { 0 };
	struct version expected = { "" };
	struct instant by = instant_add(clock_now(), 3600 * NSEC_PER_SEC);

	ends = 0;
	if (what & 32)
		snprintf(expected.text, sizeof expected.text, "0123456789abcdef.7");
	if (what % 5 == 0)
		l->ops->read(l, by, on_done, NULL);
	else if (what % 5 == 1)
		l->ops->write(l, r, &expected, true, by, on_done, NULL);
	else if (what % 5 == 2)
		l->ops->list(l, &listing, by, on_done, NULL);
	else if (what % 5 == 3)
		l->ops->about(l, &about, by, on_done, NULL);
	else
		l->ops->remove(l, &expected, by, on_done, NULL);
	for (int i = 0; i < 40 && !ends; i++) {
		ev_run(env->loop, EVRUN_NOWAIT);
		if (first < last)
			answer(&asked[first++]);
		else if (watcher.fn && what & 64)
			watcher.fn(NULL, ZOO_CHANGED_EVENT, ZOO_CONNECTED_STATE, "/k", watcher.context);
	}
	l->ops->cancel(l);
	must(ends == 1);
	lock_listing_fini(&listing);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct record r;
	struct err err;

	in = (struct input){ data, size };
	uint8_t what = input_byte(&in), then = input_byte(&in);
	fuzz_silence();
	struct lock_env env = { .loop = ev_loop_new(EVBACKEND_SELECT | EVFLAG_NOSIGMASK | EVFLAG_NOENV) };
	first = last = 0;
	watcher.fn = NULL;
	record_init(&r);
	struct lock *l = lunarch_module.locks[0]->open(&env, "//h/k" LOCK_PREFIX_END, &err);
	must(l);
	if (what & 16)
		l->ops->watch(l, on_change, NULL);
	operate(&env, l, what, &r);
	operate(&env, l, then, &r);
	l->ops->close(l);
	must(first == last);
	lock_env_fini(&env);
	record_fini(&r);
	ev_loop_destroy(env.loop);
	return 0;
}
