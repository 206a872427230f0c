/* The lock in a Redis server: the record is the string at KEY, compared and swapped by a script on the server, which
 * also counts the token, in a hash beside it, and publishes the change. What a failover or a restart can lose is in
 * docs/locks.md. */
#include "locks/lock.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/module.h"
#include "locks/redis/redis_about.h"
#include "locks/redis/redis_link.h"
#include "locks/redis/redis_refusal.h"
#include "locks/redis/redis_scripts.h"
#include "locks/redis/redis_server.h"

#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT 6379
#define REPLICAS_MOST 100
#define ACKNOWLEDGE_MS 1000 /* replicas have so long: meanwhile the connection waits (WAIT) */

enum stage { ASK, ASK_WHOLE, ACKNOWLEDGE, SETTLE, INQUIRE };

struct redis_lock {
	struct lock lock;
	struct redis_server *server;
	char *key, *state, *channel;
	const char *mark; /* what the names of the state's fields end with */
	struct lock_op op;
	struct lock_call call;
	enum stage stage;
	struct redis_asker asker; /* the hosts are asked first; then comes the stage */
	char primary[48];         /* the run id of the one that was found in this operation; "" = they were not asked */
	char history[48];         /* the replication id of the server of our last write, and its host */
	int host;
	bool unsettled; /* a write may be on the primary alone */

	struct version expected; /* of the write under way, as are these */
	bool durable, acquiring, leads, removing;
	struct lock_about *about;
	nsec lease;
	struct lock_result written;

	struct lock_failover doubt;

	struct lock_member member;
};

static struct redis_lock *redis_of(struct lock *l)
{
	return (struct redis_lock *)l;
}

/* ---- asking ---- */

static void redis_send_script(struct redis_lock *l, int which, int argc, const char **argv)
{
	const char *words[20], *digest = redis_link_script(l->server->link, which);
	bool whole = l->stage == ASK_WHOLE || !digest;
	int n = 0;

	words[n++] = whole ? "EVAL" : "EVALSHA";
	words[n++] = whole ? redis_scripts[which] : digest;
	words[n++] = "2";
	words[n++] = l->key;
	words[n++] = l->state;
	for (int i = 0; i < argc; i++)
		words[n++] = argv[i];
	redis_link_send(l->server->link, &l->call, n, words, NULL);
}

static void redis_send_read(struct redis_lock *l)
{
	char most[16];

	snprintf(most, sizeof most, "%d", RECORD_MAX_BYTES);
	redis_send_script(l, REDIS_READ, 3, (const char *[]){ most, l->mark, l->primary });
}

/* An older copy of our own record may be there. */
static bool redis_moved(const struct redis_lock *l)
{
	return l->server->link->host != l->host;
}

static void redis_send_write(struct redis_lock *l)
{
	char lease[24], replicas[8], least[24];
	struct instant now = clock_now();

	lock_failover_sends(&l->doubt, l->leads, l->lease, now);
	const char *term = !l->acquiring ? "" : lock_failover_own(&l->doubt, &l->expected, now) ? "own" : "new";

	snprintf(lease, sizeof lease, "%" PRId64, l->lease / 1000);
	snprintf(replicas, sizeof replicas, "%d", l->server->place.replicas);
	snprintf(least, sizeof least, "%" PRId64, l->lock.token_floor);
	redis_send_script(l, REDIS_WRITE, 13,
	                  (const char *[]){
				  l->op.text,
				  l->expected.text,
				  l->channel,
				  l->member.name,
				  term,
				  lease,
				  replicas,
				  lock_failover_over(&l->doubt, l->lease, now),
				  least,
				  l->mark,
				  l->primary,
				  !l->acquiring && redis_moved(l) ? l->history : "",
				  *l->doubt.mark ? "" : l->history,
			  });
}

/* WAIT counts what this connection has written: so that it covers an earlier write on another, something is written
 * first. */
static void redis_send_settle(struct redis_lock *l)
{
	redis_link_send(l->server->link, NULL, 4, (const char *[]){ "HSET", l->state, "settled", l->member.name },
	                NULL);
}

static void redis_send_wait(struct redis_lock *l)
{
	int left = lock_op_left_ms(&l->op) / 2;
	char replicas[8], time[16];

	snprintf(replicas, sizeof replicas, "%d", l->server->place.replicas);
	snprintf(time, sizeof time, "%d", left < 1 ? 1 : left < ACKNOWLEDGE_MS ? left : ACKNOWLEDGE_MS);
	redis_link_send(l->server->link, &l->call, 3, (const char *[]){ "WAIT", replicas, time }, NULL);
}

static void redis_on_ready(struct lock_call *c)
{
	struct redis_lock *l = (struct redis_lock *)((char *)c - offsetof(struct redis_lock, call));

	lock_op_sent(&l->op);
	if (l->stage == SETTLE) {
		redis_send_settle(l);
		redis_send_wait(l);
	} else if (l->stage == INQUIRE) {
		redis_link_send(l->server->link, &l->call, 1, (const char *[]){ "INFO" }, NULL);
	} else if (l->removing) {
		lock_failover_sends(&l->doubt, false, 0, l->op.sent_at);
		redis_link_send(
			l->server->link, &l->call, 6,
			(const char *[]){ "EVAL", redis_remove_script, "2", l->key, l->state, l->expected.text }, NULL);
	} else if (l->op.writing) {
		redis_send_write(l);
	} else {
		redis_send_read(l);
	}
}

static void redis_ask(struct redis_lock *l, enum stage stage)
{
	l->stage = stage;
	lock_op_ask(&l->op, l->server->link, &l->call);
}

/* Of several primaries one was replaced, and does not know it yet, or it came back: who asks that one sees an older
 * record. */
static void redis_go_on(struct redis_asker *a, const struct redis_found *found)
{
	struct redis_lock *l = (struct redis_lock *)(void *)((char *)a - offsetof(struct redis_lock, asker));
	struct redis_server *s = l->server;

	if (found->primaries > 1) {
		s->checked = false;
		lock_op_fail(&l->op, LOCK_FAILED, ERR_UNREACHABLE,
		             "%s and %s both say that they are primaries: nobody is elected until one of them is the "
		             "other's replica, or down",
		             found->peer[0], found->peer[1]);
		return;
	}
	if (l->op.writing && l->acquiring && !*found->run_id && !found->cluster) {
		lock_op_fail(&l->op, found->outcome, found->why.code, "%s", found->why.text);
		return;
	}
	snprintf(l->primary, sizeof l->primary, "%s", found->run_id);
	s->checked = lock_link_is_up(s->link) && found->cluster;
	redis_ask(l, l->stage);
}

/* The first question of an operation. */
static void redis_start(struct redis_lock *l, enum stage stage)
{
	struct redis_server *s = l->server;
	bool elects = l->op.writing && l->acquiring;

	l->stage = stage;
	l->primary[0] = '\0';
	if (s->place.url.hosts == 1 || (s->checked && !elects)) {
		redis_ask(l, stage);
		return;
	}
	redis_server_ask(s, &l->asker);
}

/* ---- answers ---- */

/* After what was told of it, which may have closed the last lock there but for the caller's hold. */
static void redis_turn_away(struct redis_server *s, const char *why)
{
	redis_link_turn_away(s->link, why);
	lock_server_put(&s->base);
}

static void redis_on_error(struct redis_lock *l, const char *text)
{
	const struct redis_refusal *f = redis_refusal_of(text);
	const char *peer = l->server->link->peer;
	struct redis_server *s = l->server;

	if (strncmp(text, "NOSCRIPT", 8) == 0 && l->stage == ASK) {
		redis_ask(l, ASK_WHOLE);
		return;
	}
	if (!f) {
		lock_op_fail(&l->op, l->op.writing ? LOCK_UNKNOWN : LOCK_FAILED, ERR_SYSTEM, "%s answered: %s", peer,
		             text);
		return;
	}
	if (strcmp(f->word, "READONLY") != 0) {
		lock_op_fail(&l->op, f->outcome, f->code, "%s answered: %s%s", peer, text, redis_refusal_advice(f));
		return;
	}
	lock_server_hold(&s->base);
	lock_op_fail(&l->op, f->outcome, f->code, "%s answered: %s%s", peer, text, redis_refusal_advice(f));
	redis_turn_away(s, "it has become a replica");
}

static void redis_found(struct redis_lock *l, const redisReply *r)
{
	char what[400];

	lock_failover_see(&l->doubt, redis_word_at(r, 4), clock_now());
	snprintf(what, sizeof what, "the key %.300s", l->key);
	lock_op_found(&l->op, what, r->element[1]->str, r->element[1]->len, redis_word_at(r, 2), redis_number_at(r, 3));
}

static void redis_on_rival(struct redis_lock *l)
{
	struct redis_server *s = l->server;

	s->checked = false;
	lock_server_hold(&s->base);
	lock_op_fail(&l->op, LOCK_FAILED, ERR_UNREACHABLE,
	             "%s is another server than the one that said that it is the primary", s->link->peer);
	redis_turn_away(s, "another server says that it is the primary");
}

static void redis_on_read(struct redis_lock *l, const redisReply *r)
{
	const char *what = redis_read_answer(r);

	if (*what && strcmp(what, "rival") != 0 && *l->primary)
		l->server->checked = true;
	if (strcmp(what, "found") == 0)
		redis_found(l, r);
	else if (strcmp(what, "absent") == 0)
		lock_op_finish(&l->op, &(struct lock_result){ .outcome = LOCK_ABSENT });
	else if (strcmp(what, "type") == 0)
		lock_op_fail(
			&l->op, LOCK_FOREIGN, ERR_FOREIGN,
			"the key %.300s holds no string, so no election record. It is not touched: choose another name",
			l->key);
	else if (strcmp(what, "large") == 0)
		lock_op_fail(&l->op, LOCK_FOREIGN, ERR_INVALID,
		             "the key %.300s holds %" PRId64 " bytes, which is no election record. It is not touched",
		             l->key, redis_number_at(r, 1));
	else if (strcmp(what, "rival") == 0)
		redis_on_rival(l);
	else
		lock_op_fail(&l->op, LOCK_FAILED, ERR_INVALID, "%s gave an answer that makes no sense",
		             l->server->link->peer);
}

static void redis_finish_written(struct redis_lock *l)
{
	lock_failover_wrote(&l->doubt, &l->written.version, l->leads, l->lease, l->op.sent_at);
	lock_op_finish(&l->op, &l->written);
}

static void redis_wrote(struct redis_lock *l, const redisReply *r)
{
	l->written = (struct lock_result){ .outcome = LOCK_OK, .token = redis_number_at(r, 2) };
	snprintf(l->written.version.text, sizeof l->written.version.text, "%s", redis_word_at(r, 1));
	lock_failover_see(&l->doubt, redis_word_at(r, 3), clock_now());
	snprintf(l->history, sizeof l->history, "%s", redis_word_at(r, 4));
	l->host = l->server->link->host;
	l->server->checked |= *l->primary;
	if (l->server->place.replicas && l->durable) {
		l->stage = ACKNOWLEDGE;
		redis_send_wait(l);
		return;
	}
	redis_finish_written(l);
}

/* Another term than the one it shows may have been lost with the server before. */
static void redis_on_doubt(struct redis_lock *l, const redisReply *r)
{
	struct instant now = clock_now();

	int64_t us = redis_number_at(r, 2);

	lock_failover_lease(&l->doubt, us > INT64_MAX / 1000 ? INT64_MAX : us * 1000);
	lock_failover_see(&l->doubt, redis_word_at(r, 1), now);
	lock_op_fail(&l->op, LOCK_FAILED, ERR_UNREACHABLE,
	             "%s was restarted or promoted and may have lost a leader's record: nobody is elected for "
	             "another %.1f s",
	             l->server->link->peer, (double)lock_failover_left(&l->doubt, l->lease, now) / NSEC_PER_SEC);
}

/* The one that it comes from may be back. */
static void redis_on_stranger(struct redis_lock *l)
{
	l->server->checked = false;
	lock_op_fail(&l->op, LOCK_FAILED, ERR_UNREACHABLE,
	             "%s is no copy of the server that has the last renewal: what is there may be older",
	             l->server->link->peer);
}

static void redis_on_written(struct redis_lock *l, const redisReply *r)
{
	const char *what = redis_write_answer(r), *peer = l->server->link->peer;

	if (strcmp(what, "ok") == 0)
		redis_wrote(l, r);
	else if (strcmp(what, "removed") == 0)
		lock_op_finish(&l->op, &(struct lock_result){ .outcome = LOCK_OK });
	else if (strcmp(what, "conflict") == 0)
		lock_op_finish(&l->op, &(struct lock_result){ .outcome = LOCK_CONFLICT });
	else if (strcmp(what, "doubt") == 0)
		redis_on_doubt(l, r);
	else if (strcmp(what, "replicas") == 0)
		lock_op_fail(&l->op, LOCK_FAILED, ERR_UNREACHABLE,
		             "%s has %" PRId64 " replicas, and the lock's URL asks for %d", peer, redis_number_at(r, 1),
		             l->server->place.replicas);
	else if (strcmp(what, "rival") == 0)
		redis_on_rival(l);
	else if (strcmp(what, "stranger") == 0)
		redis_on_stranger(l);
	else if (strcmp(what, "tokens") == 0)
		lock_op_fail(&l->op, LOCK_FAILED, ERR_INVALID,
		             "the largest token that was seen is 2^53 or more, and Redis cannot count on from there");
	else
		lock_op_fail(&l->op, LOCK_UNKNOWN, ERR_INVALID, "%s gave an answer that makes no sense", peer);
}

/* How many replicas have what was written. */
static void redis_on_acknowledged(struct redis_lock *l, long long have)
{
	bool enough = have >= l->server->place.replicas;

	l->unsettled = !enough;
	if (!enough)
		lock_op_fail(&l->op, l->op.writing ? LOCK_UNKNOWN : LOCK_FAILED, ERR_UNREACHABLE,
		             "%lld of %d replicas have the record", have, l->server->place.replicas);
	else if (l->stage == SETTLE)
		redis_ask(l, ASK);
	else
		redis_finish_written(l);
}

static void redis_on_info(struct redis_lock *l, const char *info)
{
	redis_about(l->about, info, l->server->place.replicas);
	lock_op_finish(&l->op, &(struct lock_result){ .outcome = LOCK_OK });
}

static void redis_on_answered(struct lock_call *c, const void *answer)
{
	const redisReply *r = answer;
	struct redis_lock *l = (struct redis_lock *)((char *)c - offsetof(struct redis_lock, call));

	if (r->type == REDIS_REPLY_ERROR && l->stage == ACKNOWLEDGE)
		lock_op_fail(&l->op, LOCK_UNKNOWN, ERR_SYSTEM, "%s answered WAIT with: %s", l->server->link->peer,
		             r->str);
	else if (r->type == REDIS_REPLY_ERROR)
		redis_on_error(l, r->str);
	else if (l->stage == INQUIRE)
		redis_on_info(l, r->str ? r->str : "");
	else if (r->type == REDIS_REPLY_INTEGER && (l->stage == ACKNOWLEDGE || l->stage == SETTLE))
		redis_on_acknowledged(l, r->integer);
	else if (l->op.writing)
		redis_on_written(l, r);
	else
		redis_on_read(l, r);
}

static void redis_on_lost(struct lock_call *c, bool sent, enum lock_outcome outcome, const struct err *why)
{
	struct redis_lock *l = (struct redis_lock *)((char *)c - offsetof(struct redis_lock, call));

	l->server->checked = false;
	if (lock_op_repeat(&l->op, sent)) {
		redis_start(l, l->stage == ASK_WHOLE ? ASK : l->stage);
		return;
	}
	l->unsettled |= l->op.writing && sent;
	lock_op_fail(&l->op, l->op.writing && sent ? LOCK_UNKNOWN : outcome, why->code, "%s", why->text);
}

static void redis_on_detach(struct lock_op *op)
{
	struct redis_lock *l = (struct redis_lock *)((char *)op - offsetof(struct redis_lock, op));

	redis_server_unask(l->server, &l->asker);
	l->unsettled |= op->writing && op->sent;
}

/* ---- the lock ---- */

/* The state and the channel are in the record's slot of a cluster: the part of the name in braces decides that. A name
 * that has a closing brace gets no braces around it, which would end there. lua/lunarch/redis.lua names the state so
 * too. */
static char *redis_key_beside(const char *key, const char *what)
{
	return mem_printf(strchr(key, '}') ? "%s:%s" : "{%s}:%s", key, what);
}

/* K and {K} have one state between them, and count their tokens together; what is doubted of one says nothing of the
 * other. */
static const char *redis_key_mark(const char *key)
{
	const char *close = strchr(key, '}');

	return *key == '{' && close && close > key + 1 && !close[1] ? "{}" : "";
}

/* "DB/KEY", if DB is a number. */
static const char *redis_key_of(const char *path, int *db)
{
	size_t digits = strspn(path, "0123456789");

	*db = 0;
	if (digits == 0 || digits > 5 || path[digits] != '/' || !path[digits + 1])
		return path;
	*db = atoi(path);
	return path + digits + 1;
}

static const struct lock_ops ops;

static struct lock *redis_open(struct lock_env *env, const char *text, struct err *err)
{
	static const char *const known[] = { "replicas", NULL };
	struct redis_place place;
	struct lock_url *u = &place.url;

	if (lock_url_parse(u, ops.scheme, text, PORT, known, err) < 0)
		return NULL;
	const char *key = redis_key_of(u->path, &place.db);
	char *shown = lock_url_print(u, ops.scheme);
	if (!*key)
		err_set(err, ERR_USAGE, "lock \"%s\": the key's name is missing (expected redis://HOST:PORT/KEY)",
		        shown);
	else if (lock_url_number(u, "replicas", 0, REPLICAS_MOST, 0, &place.replicas, err) < 0)
		err_wrap(err, "lock \"%s\"", shown);
	else {
		struct redis_lock *l = mem_zero(sizeof *l);
		*l = (struct redis_lock){
			.lock = { .ops = &ops, .url = shown },
			.key = mem_dup(key),
			.state = redis_key_beside(key, "lunarch"),
			.channel = redis_key_beside(key, "changed"),
			.mark = redis_key_mark(key),
			.asker = { .told = redis_go_on },
			.call = { .ready = redis_on_ready, .answered = redis_on_answered, .lost = redis_on_lost },
		};
		l->server = redis_server_get(env, &place);
		l->asker.op = &l->op;
		lock_member_init(&l->member, &l->server->base.board);
		return &l->lock;
	}
	free(shown);
	lock_url_fini(u);
	return NULL;
}

static struct lock *redis_open_tls(struct lock_env *env, const char *text, struct err *err)
{
	char *shown = lock_url_redact(text);

	(void)env;
	err_set(err, ERR_MISSING,
	        "lock \"rediss:%s\": this hiredis (%d.%d.%d) has no TLS. Use redis:// over a network that is private, or to a "
	        "stunnel on this host",
	        shown, HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
	free(shown);
	return NULL;
}

static void redis_begin(struct redis_lock *l, bool writing, struct instant by, lock_done_fn *done, void *arg)
{
	lock_op_begin(&l->op, l->server->base.env, &l->lock, redis_on_detach, writing, by, done, arg);
	l->op.doubt = &l->doubt;
	l->removing = false;
}

static void redis_read(struct lock *lock, struct instant by, lock_done_fn *done, void *arg)
{
	struct redis_lock *l = redis_of(lock);

	redis_begin(l, false, by, done, arg);
	redis_start(l, l->unsettled && l->server->place.replicas ? SETTLE : ASK);
}

static void redis_write(struct lock *lock, const struct record *r, const struct version *expected, bool durable,
                        struct instant by, lock_done_fn *done, void *arg)
{
	struct redis_lock *l = redis_of(lock);

	redis_begin(l, true, by, done, arg);
	if (!lock_op_print(&l->op, r))
		return;
	l->expected = *expected;
	l->durable = durable;
	l->acquiring = r->token == 0;
	if (l->acquiring)
		lock_member_rename(&l->member);
	l->leads = r->state == RECORD_LEADING && *r->holder;
	l->lease = r->lease_ms * NSEC_PER_MS;
	redis_start(l, ASK);
}

static void redis_remove(struct lock *lock, const struct version *expected, struct instant by, lock_done_fn *done,
                         void *arg)
{
	struct redis_lock *l = redis_of(lock);

	redis_begin(l, true, by, done, arg);
	l->expected = *expected;
	l->removing = true;
	l->acquiring = false;
	l->leads = false;
	redis_start(l, ASK);
}

static void redis_inquire(struct lock *lock, struct lock_about *about, struct instant by, lock_done_fn *done, void *arg)
{
	struct redis_lock *l = redis_of(lock);

	redis_begin(l, false, by, done, arg);
	l->about = about;
	redis_start(l, INQUIRE);
}

static void redis_cancel(struct lock *lock)
{
	lock_op_cancel(&redis_of(lock)->op);
}

static bool redis_watch(struct lock *lock, lock_changed_fn *changed, void *arg)
{
	struct redis_lock *l = redis_of(lock);

	lock_server_watch(&l->server->base, &l->member, l->channel, changed, arg);
	return !l->server->base.board.deaf;
}

static void redis_close(struct lock *lock)
{
	struct redis_lock *l = redis_of(lock);

	lock_op_cancel(&l->op);
	lock_server_unwatch(&l->server->base, &l->member);
	lock_server_put(&l->server->base);
	free(l->key);
	free(l->state);
	free(l->channel);
	free(l->lock.url);
	free(l);
}

static const struct lock_ops ops = {
	.scheme = "redis",
	.open = redis_open,
	.read = redis_read,
	.write = redis_write,
	.cancel = redis_cancel,
	.watch = redis_watch,
	.close = redis_close,
	.about = redis_inquire,
	.remove = redis_remove,
};
static const struct lock_ops tls_ops = {
	.scheme = "rediss",
	.open = redis_open_tls,
};
static const struct lock_ops *const locks[] = { &ops, &tls_ops, NULL };

static void name_libraries(struct buf *out)
{
	buf_printf(out, "hiredis %d.%d.%d", HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
}

const struct module lunarch_module = { .build = LUNARCH_BUILD, .libraries = name_libraries, .locks = locks };
