/* The lock in a Redis server: the record is the string at KEY, compared and swapped by a script on the server, which
 * also counts the token, in a hash beside it, and publishes the change. What a failover or a restart can lose is in
 * docs/locks.md. */
#include "locks/lock.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/module.h"
#include "locks/lock_listing.h"
#include "locks/redis/redis_about.h"
#include "locks/redis/redis_link.h"
#include "locks/redis/redis_scripts.h"
#include "locks/redis/redis_server.h"

#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT 6379
#define REPLICAS_MOST 100
#define LIST_KEYS "1000" /* are looked at in one step of a list, which keeps the server from other work */
#define LIST_STEPS 1000
#define LIST_SPARE_MS 1000  /* a list ends with what it has when no more is left */
#define ACKNOWLEDGE_MS 1000 /* replicas have so long: meanwhile the connection waits (WAIT) */

/* What is asked: a script (redis_scripts.h), or one of these. */
enum {
	REDIS_ACKNOWLEDGE = REDIS_SCRIPTS, /* whether replicas have what the write script has just written */
	REDIS_SETTLE,                      /* the same of an earlier write; then follows REDIS_READ */
	REDIS_ABOUT,
	REDIS_LIST,
	REDIS_STAGES
};

struct redis_lock {
	struct lock lock;
	struct redis_server *server;
	char *key, *state, *channel;
	const char *mark; /* what the names of the state's fields end with */
	struct lock_failover doubt;
	struct lock_member member;
	char history[48]; /* the replication id of the server of our last write, */
	int host;         /* and which of the hosts it was */
	bool unsettled;   /* a write may be on the primary alone */

	/* Of the operation under way: */
	struct lock_op op;
	struct lock_call call;
	struct redis_asker asker; /* the hosts are asked first; then comes the stage */
	char primary[48];         /* the run id of the one that was found; "" = they were not asked */
	int stage;
	bool whole; /* a script is sent as its text: the server did not know the digest */
	struct version expected;
	bool durable, acquiring, leads;
	nsec lease;
	struct lock_result written;
	struct lock_about *about;
	struct lock_listing *listing;
	char cursor[24]; /* where the list goes on */
	int steps;       /* of it, that were done */
};

static struct redis_lock *redis_of(struct lock *l)
{
	return (struct redis_lock *)l;
}

/* ---- questions ---- */

static void redis_send(struct redis_lock *l, const char **words)
{
	redis_link_send(l->server->link, &l->call, words);
}

/* args: ARGV, NULL-terminated. */
static void redis_send_script(struct redis_lock *l, const char **args)
{
	const char *digest = l->whole ? NULL : redis_link_script(l->server->link, l->stage);
	const char *words[20] = {
		digest ? "EVALSHA" : "EVAL", digest ? digest : redis_scripts[l->stage], "2", l->key, l->state,
	};

	for (size_t n = 5; *args; args++)
		words[n++] = *args;
	redis_send(l, words);
}

static void redis_send_read(struct redis_lock *l)
{
	char most[16];

	snprintf(most, sizeof most, "%d", RECORD_MAX_BYTES);
	redis_send_script(l, (const char *[]){ most, l->mark, l->primary, NULL });
}

static void redis_send_write(struct redis_lock *l)
{
	char lease[24], replicas[8], floor[24];
	struct instant now = clock_now();
	/* Another host may have an older copy of our own record. */
	bool moved = !l->acquiring && l->server->link->host != l->host;

	lock_failover_sends(&l->doubt, l->leads, l->lease, now);
	const char *token = !l->acquiring ? "" : lock_failover_own(&l->doubt, &l->expected, now) ? "own" : "new";
	const char *over = lock_failover_over(&l->doubt, l->lease, now);
	const char *origin = moved ? l->history : "", *known = *l->doubt.mark ? "" : l->history;
	snprintf(lease, sizeof lease, "%" PRId64, l->lease / 1000);
	snprintf(replicas, sizeof replicas, "%d", l->server->place.replicas);
	snprintf(floor, sizeof floor, "%" PRId64, l->lock.token_floor);
	redis_send_script(l, (const char *[]){ l->op.text, l->expected.text, l->channel, l->member.name, token, lease,
	                                       replicas, over, floor, l->mark, l->primary, origin, known, NULL });
}

static void redis_send_remove(struct redis_lock *l)
{
	lock_failover_sends(&l->doubt, false, 0, l->op.sent_at);
	redis_send_script(l, (const char *[]){ l->expected.text, NULL });
}

static void redis_send_wait(struct redis_lock *l)
{
	int left = lock_op_left_ms(&l->op) / 2;
	char replicas[8], time[16];

	snprintf(replicas, sizeof replicas, "%d", l->server->place.replicas);
	snprintf(time, sizeof time, "%d", left < 1 ? 1 : left < ACKNOWLEDGE_MS ? left : ACKNOWLEDGE_MS);
	redis_send(l, (const char *[]){ "WAIT", replicas, time, NULL });
}

/* WAIT counts what this connection has written: so that it covers an earlier write on another, something is written
 * first. */
static void redis_send_settle(struct redis_lock *l)
{
	redis_link_send(l->server->link, NULL, (const char *[]){ "HSET", l->state, "settled", l->member.name, NULL });
	redis_send_wait(l);
}

static void redis_send_info(struct redis_lock *l)
{
	redis_send(l, (const char *[]){ "INFO", NULL });
}

/* The pattern that what begins with the key's prefix matches (Redis' documentation of KEYS). */
static char *redis_list_pattern(const struct redis_lock *l)
{
	size_t len = lock_listing_prefix(l->key);
	struct buf b = { 0 };

	for (size_t i = 0; i < len; i++)
		buf_printf(&b, "%s%c", strchr("*?[]\\", l->key[i]) ? "\\" : "", l->key[i]);
	buf_adds(&b, "*");
	return b.data;
}

/* SCAN and not KEYS, which keeps the server from all other work until it has seen all keys. */
static void redis_send_list(struct redis_lock *l)
{
	char *pattern = redis_list_pattern(l);

	redis_send(l, (const char *[]){ "SCAN", l->cursor, "MATCH", pattern, "COUNT", LIST_KEYS, NULL });
	free(pattern);
}

static void redis_ask(struct redis_lock *l, int stage)
{
	l->stage = stage;
	lock_op_ask(&l->op, l->server->link, &l->call);
}

/* Begins the operation, or repeats it. */
static void redis_start(struct redis_lock *l, int stage)
{
	struct redis_server *s = l->server;
	bool elects = l->op.writing && l->acquiring;

	l->stage = stage;
	l->primary[0] = '\0';
	l->whole = false;
	l->steps = 0;
	strcpy(l->cursor, "0"); /* another server or a new connection knows no other */
	if (s->place.url.hosts == 1 || (redis_server_is_checked(s) && !elects))
		redis_ask(l, stage);
	else
		redis_server_ask(s, &l->asker);
}

/* If there are several primaries, one was replaced and does not know it yet, or has come back: who asks that one sees
 * an older record. */
static void redis_on_primary(struct lock_call *c, const void *answer)
{
	struct redis_lock *l = (struct redis_lock *)(void *)((char *)c - offsetof(struct redis_lock, asker));
	const struct redis_found *found = answer;

	if (found->primaries > 1) {
		redis_server_check(l->server, false);
		lock_op_fail(&l->op, LOCK_FAILED, ERR_UNREACHABLE,
		             "%s and %s both say that they are primaries: nobody is elected until one of them is the "
		             "other's replica, or down",
		             found->peer[0], found->peer[1]);
	} else if (l->op.writing && l->acquiring && !*found->run_id && !found->cluster) {
		lock_op_fail(&l->op, found->outcome, found->why.code, "%s", found->why.text);
	} else {
		snprintf(l->primary, sizeof l->primary, "%s", found->run_id);
		redis_server_check(l->server, lock_link_is_up(l->server->link) && found->cluster);
		redis_ask(l, l->stage);
	}
}

/* ---- answers ---- */

/* Whoever turns the server away after an end, which may close the lock and free its server, keeps the link at hand:
 * that stays until it has returned from its callback. */
static void redis_on_error(struct redis_lock *l, const char *text)
{
	const struct redis_error *e = redis_error_of(text);
	struct lock_link *link = l->server->link;

	if (l->stage == REDIS_ACKNOWLEDGE) {
		lock_op_fail(&l->op, LOCK_UNKNOWN, ERR_SYSTEM, "%s answered WAIT with: %s", link->peer, text);
		return;
	}
	if (strncmp(text, "NOSCRIPT", 8) == 0 && !l->whole) {
		l->whole = true;
		redis_ask(l, l->stage);
		return;
	}
	lock_op_fail(&l->op, e->outcome, e->code, "%s answered: %s%s", link->peer, text, e->advice);
	if (strcmp(e->word, "READONLY") == 0)
		redis_link_turn_away(link, "it has become a replica");
}

static void redis_on_rival(struct redis_lock *l)
{
	struct lock_link *link = l->server->link;

	redis_server_check(l->server, false);
	lock_op_fail(&l->op, LOCK_FAILED, ERR_UNREACHABLE,
	             "%s is another server than the one that said that it is the primary", link->peer);
	redis_link_turn_away(link, "another server says that it is the primary");
}

static void redis_on_found(struct redis_lock *l, const redisReply *r)
{
	char what[400];

	lock_failover_see(&l->doubt, redis_word_at(r, 4), clock_now());
	snprintf(what, sizeof what, "the key %.300s", l->key);
	lock_op_found(&l->op, what, r->element[1]->str, r->element[1]->len, redis_word_at(r, 2), redis_number_at(r, 3));
}

static void redis_finish_written(struct redis_lock *l)
{
	lock_failover_wrote(&l->doubt, &l->written.version, l->leads, l->lease, l->op.sent_at);
	lock_op_finish(&l->op, &l->written);
}

static void redis_on_written(struct redis_lock *l, const redisReply *r)
{
	l->written = (struct lock_result){ .outcome = LOCK_OK, .token = redis_number_at(r, 2) };
	snprintf(l->written.version.text, sizeof l->written.version.text, "%s", redis_word_at(r, 1));
	lock_failover_see(&l->doubt, redis_word_at(r, 3), clock_now());
	snprintf(l->history, sizeof l->history, "%s", redis_word_at(r, 4));
	l->host = l->server->link->host;
	if (l->server->place.replicas && l->durable) {
		l->stage = REDIS_ACKNOWLEDGE;
		redis_send_wait(l);
		return;
	}
	redis_finish_written(l);
}

/* A term may have been lost with the server before, other than the one that the record shows. */
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

/* Of a script: what its words mean stands there. */
static void redis_on_answer(struct redis_lock *l, const redisReply *r)
{
	const char *what = redis_answer(l->stage, r), *peer = l->server->link->peer;

	/* Each of these came after a comparison with l->primary, which a rival fails. */
	if (*l->primary && *what && (l->stage == REDIS_READ || strcmp(what, "ok") == 0))
		redis_server_check(l->server, true);
	if (strcmp(what, "found") == 0)
		redis_on_found(l, r);
	else if (strcmp(what, "absent") == 0)
		lock_op_finish(&l->op, &(struct lock_result){ .outcome = LOCK_ABSENT });
	else if (strcmp(what, "ok") == 0)
		redis_on_written(l, r);
	else if (strcmp(what, "removed") == 0)
		lock_op_finish(&l->op, &(struct lock_result){ .outcome = LOCK_OK });
	else if (strcmp(what, "conflict") == 0)
		lock_op_finish(&l->op, &(struct lock_result){ .outcome = LOCK_CONFLICT });
	else if (strcmp(what, "doubt") == 0)
		redis_on_doubt(l, r);
	else if (strcmp(what, "rival") == 0)
		redis_on_rival(l);
	else if (strcmp(what, "stranger") == 0) {
		redis_server_check(l->server, false); /* the one that it comes from may be back */
		lock_op_fail(&l->op, LOCK_FAILED, ERR_UNREACHABLE,
		             "%s is no copy of the server that has the last renewal: what is there may be older", peer);
	} else if (strcmp(what, "type") == 0)
		lock_op_fail(
			&l->op, LOCK_FOREIGN, ERR_FOREIGN,
			"the key %.300s holds no string, so no election record. It is not touched: choose another name",
			l->key);
	else if (strcmp(what, "large") == 0)
		lock_op_fail(&l->op, LOCK_FOREIGN, ERR_INVALID,
		             "the key %.300s holds %" PRId64 " bytes, which is no election record. It is not touched",
		             l->key, redis_number_at(r, 1));
	else if (strcmp(what, "replicas") == 0)
		lock_op_fail(&l->op, LOCK_FAILED, ERR_UNREACHABLE,
		             "%s has %" PRId64 " replicas, and the lock's URL asks for %d", peer, redis_number_at(r, 1),
		             l->server->place.replicas);
	else if (strcmp(what, "tokens") == 0)
		lock_op_fail(&l->op, LOCK_FAILED, ERR_INVALID,
		             "the largest token that was seen is 2^53 or more, and Redis cannot count on from there");
	else
		lock_op_fail(&l->op, LOCK_UNKNOWN, ERR_INVALID, "%s gave an answer that makes no sense", peer);
}

/* How many replicas have what was written. */
static void redis_on_acknowledged(struct redis_lock *l, const redisReply *r)
{
	long long have = r->type == REDIS_REPLY_INTEGER ? r->integer : 0;

	l->unsettled = have < l->server->place.replicas;
	if (l->unsettled)
		lock_op_fail(&l->op, LOCK_UNKNOWN, ERR_UNREACHABLE, "%lld of %d replicas have the record", have,
		             l->server->place.replicas);
	else if (l->stage == REDIS_SETTLE)
		redis_ask(l, REDIS_READ);
	else
		redis_finish_written(l);
}

static void redis_on_info(struct redis_lock *l, const redisReply *r)
{
	redis_about(l->about, r->str ? r->str : "", l->server->place.replicas);
	lock_op_finish(&l->op, &(struct lock_result){ .outcome = LOCK_OK });
}

/* Not the state beside a lock, and no name with a zero, which a URL cannot have. */
static bool redis_list_takes(const struct redis_lock *l, const redisReply *key)
{
	static const char state[] = "}:lunarch";
	size_t len = key->type == REDIS_REPLY_STRING ? key->len : 0, end = strlen(state);

	if (len == 0 || strlen(key->str) != len || strncmp(key->str, l->key, lock_listing_prefix(l->key)) != 0)
		return false;
	return *key->str != '{' || len < end || strcmp(key->str + len - end, state) != 0;
}

static void redis_on_listed(struct redis_lock *l, const redisReply *r)
{
	size_t len = lock_listing_prefix(l->key);
	const redisReply *keys = r->type == REDIS_REPLY_ARRAY && r->elements == 2 ? r->element[1] : NULL;

	const char *cursor = keys ? redis_word_at(r, 0) : "";

	if (!*cursor || strspn(cursor, "0123456789") >= sizeof l->cursor || keys->type != REDIS_REPLY_ARRAY) {
		lock_op_fail(&l->op, LOCK_FAILED, ERR_INVALID, "%s gave an answer that makes no sense",
		             l->server->link->peer);
		return;
	}
	for (size_t i = 0; i < keys->elements; i++)
		if (redis_list_takes(l, keys->element[i]))
			lock_listing_add(l->listing, keys->element[i]->str + len, LOCK_URL_PATH);
	snprintf(l->cursor, sizeof l->cursor, "%s", cursor);
	bool whole = strcmp(l->cursor, "0") == 0;
	if (!whole && !l->listing->more && ++l->steps < LIST_STEPS && lock_op_left_ms(&l->op) > LIST_SPARE_MS) {
		redis_ask(l, REDIS_LIST);
		return;
	}
	l->listing->more |= !whole;
	lock_op_finish(&l->op, &(struct lock_result){ .outcome = LOCK_OK });
}

/* ---- stages ---- */

static const struct redis_stage {
	void (*send)(struct redis_lock *l);
	void (*take)(struct redis_lock *l, const redisReply *r); /* its answer, which is no error */
} redis_stages[REDIS_STAGES] = {
	[REDIS_READ] = { redis_send_read, redis_on_answer },
	[REDIS_WRITE] = { redis_send_write, redis_on_answer },
	[REDIS_REMOVE] = { redis_send_remove, redis_on_answer },
	[REDIS_ACKNOWLEDGE] = { redis_send_wait, redis_on_acknowledged },
	[REDIS_SETTLE] = { redis_send_settle, redis_on_acknowledged },
	[REDIS_ABOUT] = { redis_send_info, redis_on_info },
	[REDIS_LIST] = { redis_send_list, redis_on_listed },
};

static struct redis_lock *redis_of_call(struct lock_call *c)
{
	return (struct redis_lock *)((char *)c - offsetof(struct redis_lock, call));
}

static void redis_on_ready(struct lock_call *c)
{
	struct redis_lock *l = redis_of_call(c);

	lock_op_sent(&l->op);
	redis_stages[l->stage].send(l);
}

static void redis_on_answered(struct lock_call *c, const void *answer)
{
	struct redis_lock *l = redis_of_call(c);
	const redisReply *r = answer;

	if (r->type == REDIS_REPLY_ERROR)
		redis_on_error(l, r->str);
	else
		redis_stages[l->stage].take(l, r);
}

static void redis_on_lost(struct lock_call *c, bool sent, enum lock_outcome outcome, const struct err *why)
{
	struct redis_lock *l = redis_of_call(c);

	redis_server_check(l->server, false);
	if (lock_op_repeat(&l->op, sent)) {
		redis_start(l, l->stage);
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
			.asker = { .call = { .answered = redis_on_primary }, .op = &l->op },
			.call = { .ready = redis_on_ready, .answered = redis_on_answered, .lost = redis_on_lost },
		};
		l->server = redis_server_get(env, &place);
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
}

static void redis_read(struct lock *lock, struct instant by, lock_done_fn *done, void *arg)
{
	struct redis_lock *l = redis_of(lock);

	redis_begin(l, false, by, done, arg);
	redis_start(l, l->unsettled && l->server->place.replicas ? REDIS_SETTLE : REDIS_READ);
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
	redis_start(l, REDIS_WRITE);
}

static void redis_remove(struct lock *lock, const struct version *expected, struct instant by, lock_done_fn *done,
                         void *arg)
{
	struct redis_lock *l = redis_of(lock);

	redis_begin(l, true, by, done, arg);
	l->expected = *expected;
	l->acquiring = false;
	redis_start(l, REDIS_REMOVE);
}

static void redis_inquire(struct lock *lock, struct lock_about *about, struct instant by, lock_done_fn *done, void *arg)
{
	struct redis_lock *l = redis_of(lock);

	redis_begin(l, false, by, done, arg);
	l->about = about;
	redis_start(l, REDIS_ABOUT);
}

static void redis_list(struct lock *lock, struct lock_listing *out, struct instant by, lock_done_fn *done, void *arg)
{
	struct redis_lock *l = redis_of(lock);

	redis_begin(l, false, by, done, arg);
	l->listing = out;
	redis_start(l, REDIS_LIST);
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
	.list = redis_list,
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
