/* The lock in a Redis server: the record is the string at KEY, compared and swapped by a script on the server, which
 * also counts the token, in a hash beside it, and publishes the change. What a failover or a restart can lose is in
 * docs/stores/redis.md. */
#include "base/buf.h"
#include "base/mem.h"
#include "base/module.h"
#include "locks/lock_listing.h"
#include "locks/lock_user.h"
#include "locks/redis/redis_link.h"
#include "locks/redis/redis_scripts.h"
#include "locks/redis/redis_server.h"

#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOPS 5           /* from server to server of a cluster, in one operation */
#define LIST_KEYS "1000" /* are looked at in one step of a list, which keeps the server from other work */
#define LIST_STEPS 1000
#define LIST_SPARE_MS 1000  /* a list ends with what it has when no more is left */
#define ACKNOWLEDGE_MS 1000 /* replicas have so long: meanwhile the connection waits (WAIT) */

/* What is asked: a script (redis_scripts.h), or one of these. */
enum {
	REDIS_ACKNOWLEDGE = REDIS_SCRIPTS, /* whether replicas have what the write script has just written */
	/* whether replicas have an earlier write: something is written for that first */
	REDIS_SETTLE,
	REDIS_SETTLED, /* that write is waited for; then follows REDIS_READ */
	REDIS_ABOUT,
	REDIS_LIST,
	REDIS_STAGES
};

struct redis_lock {
	struct lock_user user;       /* first */
	struct redis_server *server; /* the user's */
	char *key, *state;
	const char *mark;       /* what the names of the state's fields end with */
	char history[48];       /* the replication id of the server of our last write */
	char home[72];          /* and its name in the state (redis_scripts.c) */
	struct lock_link *host; /* which of the hosts that server was; held */
	bool unsettled;         /* a write may be on the primary alone */
	/* The link to the server of a cluster that has the key, as another server has said; held. NULL: none has said
	 * so. */
	struct lock_link *moved;
	/* The link to the server to which the key's slot is being moved (ASK); held for one operation. */
	struct lock_link *asked;

	/* Of the operation under way: */
	bool inquires;              /* the call is with the server, which asks the hosts first; then comes the stage */
	struct instant inquired_at; /* when it began to */
	int stage, hops;            /* hops: how often a cluster has sent it elsewhere */
	struct lock_link *used;     /* on which it is asked; held: the Sentinels may name another server meanwhile */
	char epoch[24];             /* of the Sentinels' choice; "": there are none */
	bool whole;                 /* a script is sent as its text: the server did not know the digest */
	struct version written;     /* what the write script has made, and its token */
	int64_t token;
	char cursor[24]; /* where the list goes on */
	int steps;       /* of it, that were done */
};

/* ---- questions ---- */

static void redis_send(struct redis_lock *l, const char **words)
{
	redis_link_send(l->user.op.link, &l->user.call, words);
}

/* args: ARGV, NULL-terminated. */
static void redis_send_script(struct redis_lock *l, const char **args)
{
	const char *digest = l->whole ? NULL : redis_link_script(l->user.op.link, l->stage);
	const char *words[20] = {
		digest ? "EVALSHA" : "EVAL",
		digest ? digest : redis_scripts[l->stage],
		"1",
		l->key,
	};
	size_t n = 4;

	if (!l->user.lock.advice) { /* which has no state, and so needs no rights to one */
		words[2] = "2";
		words[n++] = l->state;
	}
	while (*args)
		words[n++] = *args++;
	redis_send(l, words);
}

static void redis_send_read(struct redis_lock *l)
{
	char most[16];

	snprintf(most, sizeof most, "%d", RECORD_MAX_BYTES);
	redis_send_script(l, (const char *[]){ most, l->mark, NULL });
}

static void redis_send_write(struct redis_lock *l)
{
	char lease_us[24], replicas[8], floor[24];
	struct instant now = clock_now();
	nsec lease = l->user.op.lease;
	/* Another host may have an older copy of our own record. */
	bool moved = !l->user.acquiring && l->user.op.link != l->host;

	const char *token = !l->user.acquiring                                          ? ""
	                    : lock_failover_own(&l->user.doubt, &l->user.expected, now) ? "own"
	                                                                                : "new";
	const char *over = lock_failover_over(&l->user.doubt, lease, now);
	const char *origin = moved ? l->history : "", *known = *l->user.doubt.mark ? "" : l->home;
	snprintf(lease_us, sizeof lease_us, "%" PRId64, lease / 1000);
	snprintf(replicas, sizeof replicas, "%d", l->server->place.replicas);
	snprintf(floor, sizeof floor, "%" PRId64, l->user.lock.token_floor);
	redis_send_script(l, (const char *[]){ l->user.op.text, l->user.expected.text, l->user.channel,
	                                       l->user.member.name, token, lease_us, replicas, over, floor, l->mark,
	                                       origin, known, l->epoch, NULL });
}

static void redis_send_advise(struct redis_lock *l)
{
	redis_send_script(l, (const char *[]){ l->user.op.text, l->user.expected.text, l->user.channel,
	                                       l->user.member.name, NULL });
}

static void redis_send_remove(struct redis_lock *l)
{
	redis_send_script(l, (const char *[]){ l->user.expected.text, NULL });
}

static void redis_send_wait(struct redis_lock *l)
{
	int left = lock_op_left_ms(&l->user.op) / 2;
	char replicas[8], time[16];

	snprintf(replicas, sizeof replicas, "%d", l->server->place.replicas);
	snprintf(time, sizeof time, "%d", left < 1 ? 1 : left < ACKNOWLEDGE_MS ? left : ACKNOWLEDGE_MS);
	redis_send(l, (const char *[]){ "WAIT", replicas, time, NULL });
}

/* WAIT counts what this connection has written: so that it covers an earlier write on another, something is written
 * first. */
static void redis_send_settle(struct redis_lock *l)
{
	redis_send(l, (const char *[]){ "HSET", l->state, "settled", l->user.member.name, NULL });
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

/* The next question, on the same connection. */
static void redis_go_on(struct redis_lock *l, int stage)
{
	l->stage = stage;
	lock_op_ask(&l->user.op, l->user.op.link, &l->user.call);
}

/* Begins the operation, or repeats it. */
static void redis_start(struct redis_lock *l, int stage)
{
	struct redis_server *s = l->server;

	l->stage = stage;
	l->whole = false;
	l->steps = 0;
	strcpy(l->cursor, "0"); /* another server or a new connection knows no other */
	redis_server_hold(s, &l->asked, NULL);
	if (l->moved && lock_link_is_up(l->moved)) {
		lock_op_ask(&l->user.op, l->moved, &l->user.call);
		return;
	}
	redis_server_hold(s, &l->moved, NULL);
	/* Sentinels are asked before each operation: the primary of before may go on where they cannot reach it. */
	l->inquires = s->place.master || (s->place.url.hosts > 1 && (l->user.acquiring || !redis_server_is_checked(s)));
	l->inquired_at = clock_now();
	if (l->inquires)
		redis_server_ask(s, &l->user);
	else
		lock_op_ask(&l->user.op, s->link, &l->user.call);
}

/* The hosts have been asked. */
static void redis_on_inquired(struct redis_lock *l)
{
	struct redis_server *s = l->server;

	l->inquires = false;
	redis_server_hold(s, &l->used, s->link);
	if (s->place.master)
		snprintf(l->epoch, sizeof l->epoch, "@%" PRId64, s->epoch);
	if (s->place.master ? !s->link : s->several || (l->user.acquiring && !redis_server_is_checked(s)))
		lock_op_fail(&l->user.op, s->outcome, s->why.code, "%s", s->why.text);
	else
		lock_op_ask(&l->user.op, s->link, &l->user.call);
}

/* ---- answers ---- */

/* "MOVED SLOT HOST:PORT": nothing was done, so that server is asked the same. Without a host it is on the one that
 * answers. ASK: so is it, but in this operation alone, since the slot is still being moved there. false: the text says
 * something else, or has said it too often. */
static bool redis_follow(struct redis_lock *l, const char *text)
{
	const struct lock_link *from = l->user.op.link;
	const char *space = strrchr(text, ' '), *colon = strrchr(text, ':');
	int port = colon ? atoi(colon + 1) : 0;
	bool asks = strncmp(text, "ASK ", 4) == 0;

	if ((!asks && strncmp(text, "MOVED ", 6) != 0) || !colon || colon < space || l->hops++ == HOPS ||
	    l->server->place.master)
		return false;
	char *name = mem_dupn(space + 1, (size_t)(colon - space - 1));
	struct lock_link *to = redis_server_at(l->server, *name ? name : from->url->host[0].name, port);
	free(name);
	redis_server_hold(l->server, &l->asked, asks ? to : NULL);
	if (!asks)
		redis_server_hold(l->server, &l->moved, to);
	l->whole = false;
	lock_op_ask(&l->user.op, to, &l->user.call);
	return true;
}

/* A user may have the keys of one prefix, which "{KEY}:lunarch" never begins with: which name to choose then. malloc'd;
 * "": it is something else. */
static char *redis_key_advice(const struct redis_lock *l, const struct redis_error *e, const char *text)
{
	const char *colon = strrchr(l->key, ':');
	int prefix = colon ? (int)(colon + 1 - l->key) : 0;

	if (e->outcome != LOCK_REFUSED || !strstr(text, "key") || strchr(l->key, '}'))
		return mem_dup("");
	return mem_printf(
		". The lock needs the keys %s, %s and {%s}:next. If this user has those of one prefix, name the "
		"lock %.*s{%s}: then all its keys begin as that name does",
		l->key, l->state, l->key, prefix ? prefix : 7, prefix ? l->key : "PREFIX:", l->key + prefix);
}

/* The end may close the lock and free its server, but the link stays until it has returned from its callback. */
static void redis_on_error(struct redis_lock *l, const char *text)
{
	const struct redis_error *e = redis_error_of(text);
	struct lock_link *link = l->user.op.link;

	if (l->stage == REDIS_ACKNOWLEDGE) {
		lock_op_fail(&l->user.op, LOCK_UNKNOWN, ERR_SYSTEM, "%s answered WAIT with: %s", link->peer, text);
		return;
	}
	if (strncmp(text, "NOSCRIPT", 8) == 0 && !l->whole) {
		l->whole = true;
		redis_go_on(l, l->stage);
		return;
	}
	if (redis_follow(l, text))
		return;
	if (e->elsewhere) {
		redis_server_hold(l->server, &l->moved, NULL);
		redis_server_pass(l->server);
	}
	char *name = redis_key_advice(l, e, text);
	lock_op_fail(&l->user.op, e->outcome, e->code, "%s answered: %s%s%s", link->peer, text, name, e->advice);
	free(name);
	if (strcmp(e->word, "READONLY") == 0 && lock_link_is_up(link))
		lock_link_lose(link, LOCK_FAILED, ERR_UNREACHABLE, "it has become a replica");
}

static void redis_on_found(struct redis_lock *l, const redisReply *r)
{
	char what[400];

	lock_failover_see(&l->user.doubt, redis_word_at(r, 4), clock_now());
	snprintf(what, sizeof what, "the key %.300s", l->key);
	lock_op_found(&l->user.op, what, r->element[1]->str, r->element[1]->len, redis_word_at(r, 2),
	              redis_number_at(r, 3));
}

static void redis_on_written(struct redis_lock *l, const redisReply *r)
{
	snprintf(l->written.text, sizeof l->written.text, "%s", redis_word_at(r, 1));
	l->token = redis_number_at(r, 2);
	lock_failover_see(&l->user.doubt, redis_word_at(r, 3), clock_now());
	snprintf(l->history, sizeof l->history, "%s", redis_word_at(r, 4));
	snprintf(l->home, sizeof l->home, "%s%s", l->history, l->epoch);
	redis_server_hold(l->server, &l->host, l->user.op.link);
	if (l->server->place.replicas && l->user.durable) {
		l->stage = REDIS_ACKNOWLEDGE;
		redis_send_wait(l);
		return;
	}
	lock_user_wrote(&l->user, l->written.text, l->token);
}

static void redis_on_advised(struct redis_lock *l, const redisReply *r)
{
	lock_user_wrote(&l->user, redis_word_at(r, 1), 0);
}

static void redis_on_doubt(struct redis_lock *l, const redisReply *r)
{
	int64_t us = redis_number_at(r, 2);
	char why[400];

	lock_failover_lease(&l->user.doubt, us > INT64_MAX / 1000 ? INT64_MAX : us * 1000);
	snprintf(why, sizeof why, "%s was restarted or promoted and may have lost a leader's record",
	         l->user.op.link->peer);
	lock_user_doubts(&l->user, redis_word_at(r, 1), why);
}

static void redis_on_nonsense(struct redis_lock *l, const redisReply *)
{
	lock_op_fail(&l->user.op, LOCK_UNKNOWN, ERR_INVALID, "%s gave an answer that makes no sense",
	             l->user.op.link->peer);
}

static void redis_on_foreign(struct redis_lock *l, const redisReply *r)
{
	lock_op_fail(&l->user.op, LOCK_FOREIGN, ERR_FOREIGN, "the key %.300s %s", l->key, redis_word_at(r, 1));
}

/* Perhaps another server is the right one: the hosts are asked again. */
static void redis_on_failed(struct redis_lock *l, const redisReply *r)
{
	l->server->checked = 0;
	lock_op_fail(&l->user.op, LOCK_FAILED, ERR_UNREACHABLE, "%s %s", l->user.op.link->peer, redis_word_at(r, 1));
}

/* What the scripts answer, and what follows. No other answer is looked at. */
static const struct redis_reaction {
	int script;
	const char *word, *rest; /* see redis_answer_is */
	void (*take)(struct redis_lock *l, const redisReply *r);
	enum lock_outcome outcome; /* without `take`: all that there is to say */
} redis_reactions[] = {
	{ REDIS_READ, "found", "thnd", redis_on_found, LOCK_OK },
	{ REDIS_READ, "absent", "", NULL, LOCK_ABSENT },
	{ REDIS_READ, "foreign", "t", redis_on_foreign, LOCK_FOREIGN },
	{ REDIS_WRITE, "ok", "hndh", redis_on_written, LOCK_OK },
	{ REDIS_WRITE, "conflict", "", NULL, LOCK_CONFLICT },
	{ REDIS_WRITE, "doubt", "dn", redis_on_doubt, LOCK_FAILED },
	{ REDIS_WRITE, "failed", "t", redis_on_failed, LOCK_FAILED },
	{ REDIS_ADVISE, "ok", "h", redis_on_advised, LOCK_OK },
	{ REDIS_ADVISE, "conflict", "", NULL, LOCK_CONFLICT },
	{ REDIS_REMOVE, "removed", "", NULL, LOCK_OK },
	{ REDIS_REMOVE, "conflict", "", NULL, LOCK_CONFLICT },
	{ REDIS_STAGES, "", "", redis_on_nonsense, LOCK_UNKNOWN }, /* the end */
};

static void redis_on_answer(struct redis_lock *l, const redisReply *r)
{
	const struct redis_reaction *a = redis_reactions;

	while (*a->word && (a->script != l->stage || !redis_answer_is(r, a->word, a->rest)))
		a++;
	if (a->take)
		a->take(l, r);
	else
		lock_user_end(&l->user, a->outcome);
}

static void redis_on_settling(struct redis_lock *l, const redisReply *)
{
	l->stage = REDIS_SETTLED;
	redis_send_wait(l);
}

/* How many replicas have what was written. */
static void redis_on_acknowledged(struct redis_lock *l, const redisReply *r)
{
	long long have = r->integer; /* 0 if it is something else */

	l->unsettled = have < l->server->place.replicas;
	if (r->type != REDIS_REPLY_INTEGER)
		redis_on_nonsense(l, r);
	else if (l->unsettled)
		lock_op_fail(&l->user.op, LOCK_UNKNOWN, ERR_UNREACHABLE, "%lld of %d replicas have the record", have,
		             l->server->place.replicas);
	else if (l->stage == REDIS_SETTLED)
		redis_go_on(l, REDIS_READ);
	else
		lock_user_wrote(&l->user, l->written.text, l->token);
}

static void redis_on_info(struct redis_lock *l, const redisReply *r)
{
	redis_about(l->user.about, r->str ? r->str : "", l->server->place.replicas);
	lock_user_end(&l->user, LOCK_OK);
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
		redis_on_nonsense(l, r);
		return;
	}
	for (size_t i = 0; i < keys->elements; i++)
		if (redis_list_takes(l, keys->element[i]))
			lock_listing_add(l->user.listing, keys->element[i]->str + len, LOCK_URL_PATH);
	snprintf(l->cursor, sizeof l->cursor, "%s", cursor);
	bool whole = strcmp(l->cursor, "0") == 0;
	if (!whole && !l->user.listing->more && ++l->steps < LIST_STEPS &&
	    lock_op_left_ms(&l->user.op) > LIST_SPARE_MS) {
		redis_go_on(l, REDIS_LIST);
		return;
	}
	l->user.listing->more |= !whole;
	lock_user_end(&l->user, LOCK_OK);
}

/* ---- stages ---- */

static const struct redis_stage {
	void (*send)(struct redis_lock *l);
	void (*take)(struct redis_lock *l, const redisReply *r); /* its answer, which is no error */
} redis_stages[REDIS_STAGES] = {
	[REDIS_READ] = { redis_send_read, redis_on_answer },
	[REDIS_WRITE] = { redis_send_write, redis_on_answer },
	[REDIS_ADVISE] = { redis_send_advise, redis_on_answer },
	[REDIS_REMOVE] = { redis_send_remove, redis_on_answer },
	[REDIS_ACKNOWLEDGE] = { redis_send_wait, redis_on_acknowledged },
	[REDIS_SETTLE] = { redis_send_settle, redis_on_settling },
	[REDIS_SETTLED] = { redis_send_wait, redis_on_acknowledged },
	[REDIS_ABOUT] = { redis_send_info, redis_on_info },
	[REDIS_LIST] = { redis_send_list, redis_on_listed },
};

static void redis_on_ready(struct lock_call *c)
{
	struct redis_lock *l = (struct redis_lock *)lock_user_of_call(c);

	bool first = !l->user.op.sent;
	lock_op_sent(&l->user.op);
	/* A lease counts from before the Sentinels were asked: then it is over when the doubt of a server is that a later
	 * majority has named (docs/stores/redis.md). */
	if (first && l->server->place.master)
		l->user.op.sent_at = l->inquired_at;
	if (l->user.op.link == l->asked)
		redis_link_send_asking(l->asked);
	redis_stages[l->stage].send(l);
}

static void redis_on_answered(struct lock_call *c, const void *answer)
{
	struct redis_lock *l = (struct redis_lock *)lock_user_of_call(c);
	const redisReply *r = answer;

	if (l->inquires)
		redis_on_inquired(l);
	else if (r->type == REDIS_REPLY_ERROR)
		redis_on_error(l, r->str);
	else
		redis_stages[l->stage].take(l, r);
}

static void redis_on_lost(struct lock_call *c, bool sent, enum lock_outcome outcome, const struct err *why)
{
	struct redis_lock *l = (struct redis_lock *)lock_user_of_call(c);

	if (lock_op_repeat(&l->user.op, sent)) {
		redis_start(l, l->stage);
		return;
	}
	l->unsettled |= l->user.op.writing && sent;
	lock_op_fail(&l->user.op, l->user.op.writing && sent ? LOCK_UNKNOWN : outcome, why->code, "%s", why->text);
}

static void redis_on_detach(struct lock_op *op)
{
	struct redis_lock *l = (struct redis_lock *)lock_user_of_op(op);

	if (l->inquires)
		lock_pipeline_forget(&l->server->askers, &l->user.call);
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

static void redis_begin(struct lock_user *u)
{
	struct redis_lock *l = (struct redis_lock *)u;
	l->hops = 0;
	bool settles = l->unsettled && l->server->place.replicas && !u->lock.advice;
	int other = u->about ? REDIS_ABOUT : u->listing ? REDIS_LIST : settles ? REDIS_SETTLE : REDIS_READ;
	int write = u->lock.advice ? REDIS_ADVISE : REDIS_WRITE;

	redis_start(l, u->op.removing ? REDIS_REMOVE : u->op.writing ? write : other);
}

static void redis_free(struct lock_user *u)
{
	struct redis_lock *l = (struct redis_lock *)u;

	redis_server_hold(l->server, &l->moved, NULL);
	redis_server_hold(l->server, &l->asked, NULL);
	redis_server_hold(l->server, &l->host, NULL);
	redis_server_hold(l->server, &l->used, NULL);
	free(l->key);
	free(l->state);
	free(l);
}

static const struct lock_user_ops redis_ops = {
	.begin = redis_begin,
	.detach = redis_on_detach,
	.free = redis_free,
	.call = { .ready = redis_on_ready, .answered = redis_on_answered, .lost = redis_on_lost },
};

static struct lock *redis_open(struct lock_env *env, const char *text, const struct lock_ops *ops, struct err *err)
{
	struct redis_place place;
	char *key, *shown;

	if (redis_place_parse(&place, &key, &shown, ops->scheme, text, err) < 0)
		return NULL;
	struct redis_lock *l = mem_zero(sizeof *l);
	l->key = key;
	l->state = redis_key_beside(key, "lunarch");
	l->mark = redis_key_mark(key);
	char *channel = redis_key_beside(key, "changed");
	l->server = (struct redis_server *)lock_server_get(env, &redis_server_ops, &place);
	lock_user_init(&l->user, ops, &redis_ops, shown, &l->server->base, channel);
	return &l->user.lock;
}

/* In the record's slot of a cluster, as the state: "{KEY}:next". */
static char *redis_next_url(const struct lock *base, const char *url)
{
	const struct redis_lock *l = (const struct redis_lock *)base;
	char *key = redis_key_beside(l->key, "next");
	const char *path = strstr(url, "//") + 2;
	struct buf b = { 0 };

	if (base->ops->key_last) {
		buf_add(&b, url, strcspn(url, "#"));
		buf_adds(&b, "#");
		lock_url_encode(&b, key, LOCK_URL_PATH);
		free(key);
		return b.data;
	}
	path += strcspn(path, "/?");
	buf_add(&b, url, (size_t)(path - url));
	buf_adds(&b, "/");
	if (l->server->place.db || strspn(key, "0123456789"))
		buf_printf(&b, "%d/", l->server->place.db);
	lock_url_encode(&b, key, LOCK_URL_PATH);
	buf_adds(&b, path + strcspn(path, "?"));
	free(key);
	return b.data;
}

static struct lock *redis_open_plain(struct lock_env *env, const char *text, struct err *err);
static struct lock *redis_open_tls(struct lock_env *env, const char *text, struct err *err);
static struct lock *redis_open_sentinel(struct lock_env *env, const char *text, struct err *err);
static struct lock *redis_open_sentinel_tls(struct lock_env *env, const char *text, struct err *err);

#define REDIS_OPS .watch = lock_user_watch, LOCK_USER_OPS, .next_url = redis_next_url

static const struct lock_ops lock_redis = { .scheme = "redis", .open = redis_open_plain, REDIS_OPS };
static const struct lock_ops lock_rediss = { .scheme = "rediss", .open = redis_open_tls, REDIS_OPS };
static const struct lock_ops lock_sentinel = {
	.scheme = "redis+sentinel",
	.open = redis_open_sentinel,
	REDIS_OPS,
	.key_last = true,
};
static const struct lock_ops lock_sentinel_tls = {
	.scheme = "rediss+sentinel",
	.open = redis_open_sentinel_tls,
	REDIS_OPS,
	.key_last = true,
};

static struct lock *redis_open_plain(struct lock_env *env, const char *text, struct err *err)
{
	return redis_open(env, text, &lock_redis, err);
}

static struct lock *redis_open_tls(struct lock_env *env, const char *text, struct err *err)
{
	return redis_open(env, text, &lock_rediss, err);
}

static struct lock *redis_open_sentinel(struct lock_env *env, const char *text, struct err *err)
{
	return redis_open(env, text, &lock_sentinel, err);
}

static struct lock *redis_open_sentinel_tls(struct lock_env *env, const char *text, struct err *err)
{
	return redis_open(env, text, &lock_sentinel_tls, err);
}

static const struct lock_ops *const locks[] = { &lock_redis, &lock_rediss, &lock_sentinel, &lock_sentinel_tls, NULL };

static void name_libraries(struct buf *out)
{
	buf_printf(out, "hiredis %d.%d.%d", HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
}

const struct module lunarch_module = { .build = LUNARCH_BUILD, .libraries = name_libraries, .locks = locks };
