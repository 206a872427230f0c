/* The lock in a Redis server: the record is the string at KEY, compared and swapped by a script on the server, which
 * also counts the token, in a hash beside it, and publishes the change. What a failover or a restart can lose is in
 * docs/locks.md. */
#include "locks/lock.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/module.h"
#include "locks/lock_op.h"
#include "locks/lock_server.h"
#include "locks/redis/redis_link.h"
#include "locks/redis/redis_roles.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT 6379
#define REPLICAS_MOST 100
#define DIGEST 40           /* digits of SHA-1, and of Redis' ids */
#define ACKNOWLEDGE_MS 1000 /* replicas have so long: meanwhile the connection waits (WAIT) */

/* KEYS: the record, the state. ARGV: the largest record, what the names of the state's fields end with, the primary (as
 * below). */
static const char read_script[] =
	"if ARGV[3] ~= '' and not string.find(redis.call('INFO', 'server'), 'run_id:' .. ARGV[3], 1, true) then return {'rival'} end\n"
	"local size = redis.pcall('STRLEN', KEYS[1])\n"
	"if type(size) == 'table' then\n"
	"  if string.find(size.err, 'WRONGTYPE', 1, true) then return {'type'} end\n"
	"  return size\n"
	"end\n"
	"if size > tonumber(ARGV[1]) then return {'large', size} end\n"
	"local text = redis.call('GET', KEYS[1])\n"
	"if not text then return {'absent'} end\n"
	"local known = redis.call('HMGET', KEYS[2], 'token', 'doubt' .. ARGV[2])\n"
	"return {'found', text, redis.sha1hex(text), known[1] or '0', known[2] or ''}\n";

/* ARGV: text, expected version, channel, our name, whether a token is wanted ('' = no, 'own' = what is there is our own
 * term's), our lease in us, replicas that must be there, the doubt that we have waited out, the largest token we have
 * seen, what the names of the state's fields end with, the run id of the one primary we have found ('' = we did not
 * look), for who comes from another server the replication id of that, and the one under which we last knew of no
 * doubt. A server whose replication id is not the one known here was promoted or restarted, and may have lost a
 * leader's record: that is a doubt (lock_failover.h), named here. One that knows nothing, was never promoted, and has
 * run for longer than a lease has lost none. Its uptime follows its wall clock, which may have been set: its main
 * thread must have computed for so long. */
static const char write_script[] =
	"local key, state, now, mark = KEYS[1], KEYS[2], redis.call('TIME'), ARGV[10]\n"
	"now = now[1] * 1000000 + now[2]\n"
	"if ARGV[11] ~= '' and not string.find(redis.call('INFO', 'server'), 'run_id:' .. ARGV[11], 1, true) then return {'rival'} end\n"
	"local info = redis.call('INFO', 'replication')\n"
	"local id = string.match(info, 'master_replid:(%x+)') or 'none'\n"
	"local former = string.match(info, 'master_replid2:(%x+)') or ''\n"
	"if ARGV[12] ~= '' and ARGV[12] ~= id and ARGV[12] ~= former then return {'stranger'} end\n"
	"local there = redis.pcall('GET', key)\n"
	"if type(there) == 'table' then\n"
	"  if string.find(there.err, 'WRONGTYPE', 1, true) then return {'conflict'} end\n"
	"  return there\n"
	"end\n"
	"if (there and redis.sha1hex(there) or '') ~= ARGV[2] then return {'conflict'} end\n"
	"local replicas = tonumber(string.match(info, 'connected_slaves:(%d+)') or 0)\n"
	"if replicas < tonumber(ARGV[7]) then return {'replicas', replicas} end\n"
	"local known = redis.call('HMGET', state, 'token', 'server' .. mark, 'doubt' .. mark, 'lease' .. mark)\n"
	"local doubt = known[3] or ''\n"
	"if known[2] ~= id then\n"
	"  local least, server, computed = tonumber(ARGV[6]) / 1000000 + 1, redis.call('INFO', 'server'), 0\n"
	"  for s in string.gmatch(redis.call('INFO', 'cpu'), 'used_cpu_%a+_main_thread:([%d.]+)') do computed = computed + (tonumber(s) or 0) end\n"
	"  local old = computed > least and tonumber(string.match(server, 'uptime_in_seconds:(%d+)') or 0) > least\n"
	"  local fresh = (old and string.match(former, '^0+$') or id == ARGV[13]) and not there and not known[1] and not known[2]\n"
	"  doubt = fresh and '' or ARGV[4] .. string.format('.%.0f', now)\n"
	"  redis.call('HSET', state, 'server' .. mark, id, 'doubt' .. mark, doubt)\n"
	"elseif doubt ~= '' and doubt == ARGV[8] then\n"
	"  doubt = ''\n"
	"  redis.call('HSET', state, 'doubt' .. mark, '')\n"
	"end\n"
	"local token = 0\n"
	"if ARGV[5] ~= '' then\n"
	"  if doubt ~= '' and ARGV[5] ~= 'own' then return {'doubt', doubt, known[4] or '0'} end\n"
	"  local before = tonumber(there and string.match(there, '\"token\":%s*(%d+)') or 0)\n"
	"  if before >= 2 ^ 53 then before = 0 end\n"
	"  token = math.max(math.max(tonumber(known[1]) or 0, before, tonumber(ARGV[9])) + 1, now)\n"
	"  if token >= 2 ^ 53 then return {'tokens'} end\n" /* numbers here are exact up to that */
	"  redis.call('HSET', state, 'token', string.format('%.0f', token), 'lease' .. mark, ARGV[6])\n"
	"end\n"
	"redis.call('PUBLISH', ARGV[3], ARGV[4])\n" /* first: it fails where it is not allowed, and nothing is changed
                                                       then */
	"redis.call('SET', key, ARGV[1])\n"
	"return {'ok', redis.sha1hex(ARGV[1]), string.format('%.0f', token), doubt, id}\n";

/* ARGV: version expected. Takes what the lock keeps beside the record along: for a scratch lock alone. */
static const char remove_script[] =
	"local there = redis.call('GET', KEYS[1])\n"
	"if (there and redis.sha1hex(there) or '') ~= ARGV[1] then return {'conflict'} end\n"
	"redis.call('DEL', KEYS[1], KEYS[2])\n"
	"return {'removed'}\n";

enum { READ_SCRIPT, WRITE_SCRIPT };
static const char *const scripts[REDIS_SCRIPTS] = { [READ_SCRIPT] = read_script, [WRITE_SCRIPT] = write_script };

struct redis_place {
	struct lock_url url;
	int db, replicas;
};

struct redis_server {            /* of locks with the same hosts, user, password, database and replicas */
	struct lock_server base; /* first */
	struct redis_place place;
	struct lock_link *link;
	struct redis_roles *roles; /* the hosts are being asked */
	struct redis_lock *asking; /* for these, and for those who came too late for that */
	bool telling;              /* the first of them are being told */
	bool checked; /* since the link is up, all hosts were asked whether they are primaries, and its own is the one
	               */
};

enum stage { ASK, ASK_WHOLE, ACKNOWLEDGE, SETTLE, INQUIRE };

struct redis_lock {
	struct lock lock;
	struct redis_server *server;
	char *key, *state, *channel;
	const char *mark; /* what the names of the state's fields end with */
	struct lock_op op;
	struct lock_call call;
	enum stage stage;
	enum { NOT, NOW, NEXT } asks; /* the hosts are asked first; then comes the stage */
	struct redis_lock *next_asking;
	char primary[48]; /* the run id of the one that was found in this operation; "" = they were not asked */
	char history[48]; /* the replication id of the server of our last write, and its host */
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

static struct redis_lock *of(struct lock *l)
{
	return (struct redis_lock *)l;
}

/* ---- asking ---- */

static void send_script(struct redis_lock *l, int which, int argc, const char **argv)
{
	const char *words[20], *digest = redis_link_script(l->server->link, which);
	bool whole = l->stage == ASK_WHOLE || !digest;
	int n = 0;

	words[n++] = whole ? "EVAL" : "EVALSHA";
	words[n++] = whole ? scripts[which] : digest;
	words[n++] = "2";
	words[n++] = l->key;
	words[n++] = l->state;
	for (int i = 0; i < argc; i++)
		words[n++] = argv[i];
	redis_link_send(l->server->link, &l->call, n, words, NULL);
}

static void send_read(struct redis_lock *l)
{
	char most[16];

	snprintf(most, sizeof most, "%d", RECORD_MAX_BYTES);
	send_script(l, READ_SCRIPT, 3, (const char *[]){ most, l->mark, l->primary });
}

/* An older copy of our own record may be there. */
static bool moved(const struct redis_lock *l)
{
	return l->server->link->host != l->host;
}

static void send_write(struct redis_lock *l)
{
	char lease[24], replicas[8], least[24];
	struct instant now = clock_now();

	lock_failover_sends(&l->doubt, l->leads, l->lease, now);
	const char *term = !l->acquiring ? "" : lock_failover_own(&l->doubt, &l->expected, now) ? "own" : "new";

	snprintf(lease, sizeof lease, "%" PRId64, l->lease / 1000);
	snprintf(replicas, sizeof replicas, "%d", l->server->place.replicas);
	snprintf(least, sizeof least, "%" PRId64, l->lock.token_floor);
	send_script(l, WRITE_SCRIPT, 13,
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
			    !l->acquiring && moved(l) ? l->history : "",
			    *l->doubt.mark ? "" : l->history,
		    });
}

/* WAIT counts what this connection has written: so that it covers an earlier write on another, something is written
 * first. */
static void send_settle(struct redis_lock *l)
{
	redis_link_send(l->server->link, NULL, 4, (const char *[]){ "HSET", l->state, "settled", l->member.name },
	                NULL);
}

static void send_wait(struct redis_lock *l)
{
	int left = lock_op_left_ms(&l->op) / 2;
	char replicas[8], time[16];

	snprintf(replicas, sizeof replicas, "%d", l->server->place.replicas);
	snprintf(time, sizeof time, "%d", left < 1 ? 1 : left < ACKNOWLEDGE_MS ? left : ACKNOWLEDGE_MS);
	redis_link_send(l->server->link, &l->call, 3, (const char *[]){ "WAIT", replicas, time }, NULL);
}

static void on_ready(struct lock_call *c)
{
	struct redis_lock *l = (struct redis_lock *)((char *)c - offsetof(struct redis_lock, call));

	lock_op_sent(&l->op);
	if (l->stage == SETTLE) {
		send_settle(l);
		send_wait(l);
	} else if (l->stage == INQUIRE) {
		redis_link_send(l->server->link, &l->call, 1, (const char *[]){ "INFO" }, NULL);
	} else if (l->removing) {
		lock_failover_sends(&l->doubt, false, 0, l->op.sent_at);
		redis_link_send(l->server->link, &l->call, 6,
		                (const char *[]){ "EVAL", remove_script, "2", l->key, l->state, l->expected.text },
		                NULL);
	} else if (l->op.writing) {
		send_write(l);
	} else {
		send_read(l);
	}
}

static void ask(struct redis_lock *l, enum stage stage)
{
	l->stage = stage;
	lock_op_ask(&l->op, l->server->link, &l->call);
}

/* Of several primaries one was replaced, and does not know it yet, or it came back: who asks that one sees an older
 * record. */
static void go_on(struct redis_lock *l, const struct redis_found *found)
{
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
	ask(l, l->stage);
}

static void stop_asking(struct redis_lock *l)
{
	struct redis_lock **at = &l->server->asking;

	if (l->asks == NOT)
		return;
	while (*at != l)
		at = &(*at)->next_asking;
	*at = l->next_asking;
	l->asks = NOT;
}

static struct redis_lock *first_of_now(const struct redis_server *s)
{
	struct redis_lock *l = s->asking;

	while (l && l->asks != NOW)
		l = l->next_asking;
	return l;
}

static void on_roles(void *arg, const struct redis_found *found);

static void ask_roles(struct redis_server *s)
{
	nsec patience = 0;

	if (s->roles || s->telling || !s->asking)
		return;
	for (struct redis_lock *l = s->asking; l; l = l->next_asking) {
		nsec third = (nsec)lock_op_left_ms(&l->op) * NSEC_PER_MS / 3;
		patience = third > patience ? third : patience;
		l->asks = NOW;
	}
	s->roles = redis_roles_ask(s->base.env, &s->place.url, patience, on_roles, s);
}

/* The locks of a process ask together, but each after its operation began. */
static void on_roles(void *arg, const struct redis_found *found)
{
	struct redis_server *s = arg;
	struct redis_lock *l;

	s->roles = NULL;
	s->telling = true;
	lock_server_hold(&s->base); /* what is told may close the last lock */
	if (lock_link_is_up(s->link) && found->replicas & 1U << s->link->host)
		redis_link_turn_away(s->link, "it has become a replica");
	while ((l = first_of_now(s))) {
		stop_asking(l);
		go_on(l, found);
	}
	s->telling = false;
	ask_roles(s);
	lock_server_put(&s->base);
}

/* The first question of an operation. */
static void start(struct redis_lock *l, enum stage stage)
{
	struct redis_server *s = l->server;
	bool elects = l->op.writing && l->acquiring;

	l->stage = stage;
	l->primary[0] = '\0';
	if (s->place.url.hosts == 1 || (s->checked && !elects)) {
		ask(l, stage);
		return;
	}
	l->asks = NEXT;
	l->next_asking = s->asking;
	s->asking = l;
	ask_roles(s);
}

/* ---- answers ---- */

/* Errors of the server that say by their first word that nothing was done. Servers before 7 put "ERR Error running
 * script ...: -" before those that a script met. */
static const struct refusal {
	const char *word;
	enum lock_outcome outcome;
	enum err_code code;
} refusals[] = {
	{ "NOPERM", LOCK_REFUSED, ERR_DENIED },
	{ "NOAUTH", LOCK_REFUSED, ERR_DENIED },
	{ "ERR The user executing the script can't", LOCK_REFUSED, ERR_DENIED },
	{ "READONLY", LOCK_FAILED, ERR_UNREACHABLE },
	{ "LOADING", LOCK_FAILED, ERR_UNREACHABLE },
	{ "BUSY", LOCK_FAILED, ERR_UNREACHABLE },
	{ "MASTERDOWN", LOCK_FAILED, ERR_UNREACHABLE },
	{ "CLUSTERDOWN", LOCK_FAILED, ERR_UNREACHABLE },
	{ "TRYAGAIN", LOCK_FAILED, ERR_UNREACHABLE },
	{ "NOREPLICAS", LOCK_FAILED, ERR_UNREACHABLE },
	{ "OOM", LOCK_FAILED, ERR_FULL },
	{ "MISCONF", LOCK_FAILED, ERR_FULL },
	{ "MOVED", LOCK_FAILED, ERR_USAGE },
	{ "ASK", LOCK_FAILED, ERR_USAGE },
	{ "CROSSSLOT", LOCK_FAILED, ERR_USAGE },
	{ "WRONGTYPE", LOCK_FAILED, ERR_FOREIGN },
	{ "NOSCRIPT", LOCK_FAILED, ERR_SYSTEM },
	{ "ERR unknown command", LOCK_FAILED, ERR_USAGE },
	{ "ERR Write commands are not allowed after", LOCK_FAILED, ERR_USAGE }, /* before version 5 */
};

static const struct refusal *refusal_of(const char *text)
{
	const char *inner = strstr(text, ": -");

	for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
		const char *word = refusals[i].word;
		if (strncmp(text, word, strlen(word)) == 0 || (inner && strncmp(inner + 3, word, strlen(word)) == 0))
			return &refusals[i];
	}
	return NULL;
}

static const char *advice(const char *word)
{
	static const struct {
		const char *word, *text;
	} known[] = {
		{ "MOVED", ": this is a cluster, and the key is with another of its servers: name that one" },
		{ "CROSSSLOT", ": put {braces} around a part of the key" },
		{ "WRONGTYPE", ": the key that holds the lock's token is used for something else" },
		{ "NOPERM", ": docs/locks.md lists the rights that a lock needs" },
		{ "ERR The user", ": docs/locks.md lists the rights that a lock needs" },
		{ "ERR Write", ": Redis 5 or later is needed" },
	};

	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (strncmp(word, known[i].word, strlen(known[i].word)) == 0)
			return known[i].text;
	return "";
}

/* After what was told of it, which may have closed the last lock there but for the caller's hold. */
static void turn_away(struct redis_server *s, const char *why)
{
	redis_link_turn_away(s->link, why);
	lock_server_put(&s->base);
}

static void on_error(struct redis_lock *l, const char *text)
{
	const struct refusal *f = refusal_of(text);
	const char *peer = l->server->link->peer;
	struct redis_server *s = l->server;

	if (strncmp(text, "NOSCRIPT", 8) == 0 && l->stage == ASK) {
		ask(l, ASK_WHOLE);
		return;
	}
	if (!f) {
		lock_op_fail(&l->op, l->op.writing ? LOCK_UNKNOWN : LOCK_FAILED, ERR_SYSTEM, "%s answered: %s", peer,
		             text);
		return;
	}
	if (strcmp(f->word, "READONLY") != 0) {
		lock_op_fail(&l->op, f->outcome, f->code, "%s answered: %s%s", peer, text, advice(f->word));
		return;
	}
	lock_server_hold(&s->base);
	lock_op_fail(&l->op, f->outcome, f->code, "%s answered: %s%s", peer, text, advice(f->word));
	turn_away(s, "it has become a replica");
}

/* What the scripts answer: a word, and what follows it. t: any text; h: a digest or an id; n: a number, as such or as
 * text; d: a doubt's name. Nothing else is looked at. */
static const struct shape {
	const char *word, *rest;
} read_shapes[] = { { "found", "thnd" }, { "absent", "" }, { "type", "" },
	            { "large", "n" },    { "rival", "" },  { NULL, NULL } },
  write_shapes[] = { { "ok", "hndh" }, { "removed", "" },  { "conflict", "" }, { "doubt", "dn" }, { "replicas", "n" },
	             { "rival", "" },  { "stranger", "" }, { "tokens", "" },   { NULL, NULL } };

static const char *word_at(const redisReply *r, size_t i)
{
	return i < r->elements && r->element[i]->type == REDIS_REPLY_STRING ? r->element[i]->str : "";
}

/* -1: it is none, or too large. */
static int64_t number_at(const redisReply *r, size_t i)
{
	const char *text = word_at(r, i);
	char *end = NULL;

	if (r->element[i]->type == REDIS_REPLY_INTEGER)
		return r->element[i]->integer < 0 ? -1 : r->element[i]->integer;
	errno = 0;
	long long n = *text >= '0' && *text <= '9' ? strtoll(text, &end, 10) : -1;
	return n < 0 || *end || errno ? -1 : n;
}

static bool is_of(const redisReply *r, size_t i, char kind)
{
	const redisReply *e = r->element[i];

	if (kind == 'n')
		return number_at(r, i) >= 0;
	if (e->type != REDIS_REPLY_STRING)
		return false;
	if (kind == 't')
		return true;
	if (strlen(e->str) != e->len)
		return false;
	return kind == 'd' ? e->len < LOCK_FAILOVER_MARK
	                   : e->len > 0 && e->len <= DIGEST && strspn(e->str, "0123456789abcdefnone") == e->len;
}

/* The answer's word, which tells its shape; "" = it has none of them. */
static const char *shape_of(const redisReply *r, const struct shape *shapes)
{
	if (r->type != REDIS_REPLY_ARRAY || r->elements == 0)
		return "";
	for (; shapes->word; shapes++) {
		size_t i = 1, count = strlen(shapes->rest);
		if (strcmp(word_at(r, 0), shapes->word) != 0 || r->elements != 1 + count)
			continue;
		while (i <= count && is_of(r, i, shapes->rest[i - 1]))
			i++;
		return i > count ? shapes->word : "";
	}
	return "";
}

static void found(struct redis_lock *l, const redisReply *r)
{
	char what[400];

	lock_failover_see(&l->doubt, word_at(r, 4), clock_now());
	snprintf(what, sizeof what, "the key %.300s", l->key);
	lock_op_found(&l->op, what, r->element[1]->str, r->element[1]->len, word_at(r, 2), number_at(r, 3));
}

static void on_rival(struct redis_lock *l)
{
	struct redis_server *s = l->server;

	s->checked = false;
	lock_server_hold(&s->base);
	lock_op_fail(&l->op, LOCK_FAILED, ERR_UNREACHABLE,
	             "%s is another server than the one that said that it is the primary", s->link->peer);
	turn_away(s, "another server says that it is the primary");
}

static void on_read(struct redis_lock *l, const redisReply *r)
{
	const char *what = shape_of(r, read_shapes);

	if (*what && strcmp(what, "rival") != 0 && *l->primary)
		l->server->checked = true;
	if (strcmp(what, "found") == 0)
		found(l, r);
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
		             l->key, number_at(r, 1));
	else if (strcmp(what, "rival") == 0)
		on_rival(l);
	else
		lock_op_fail(&l->op, LOCK_FAILED, ERR_INVALID, "%s gave an answer that makes no sense",
		             l->server->link->peer);
}

static void finish_written(struct redis_lock *l)
{
	lock_failover_wrote(&l->doubt, &l->written.version, l->leads, l->lease, l->op.sent_at);
	lock_op_finish(&l->op, &l->written);
}

static void wrote(struct redis_lock *l, const redisReply *r)
{
	l->written = (struct lock_result){ .outcome = LOCK_OK, .token = number_at(r, 2) };
	snprintf(l->written.version.text, sizeof l->written.version.text, "%s", word_at(r, 1));
	lock_failover_see(&l->doubt, word_at(r, 3), clock_now());
	snprintf(l->history, sizeof l->history, "%s", word_at(r, 4));
	l->host = l->server->link->host;
	l->server->checked |= *l->primary;
	if (l->server->place.replicas && l->durable) {
		l->stage = ACKNOWLEDGE;
		send_wait(l);
		return;
	}
	finish_written(l);
}

/* Another term than the one it shows may have been lost with the server before. */
static void on_doubt(struct redis_lock *l, const redisReply *r)
{
	struct instant now = clock_now();

	int64_t us = number_at(r, 2);

	lock_failover_lease(&l->doubt, us > INT64_MAX / 1000 ? INT64_MAX : us * 1000);
	lock_failover_see(&l->doubt, word_at(r, 1), now);
	lock_op_fail(&l->op, LOCK_FAILED, ERR_UNREACHABLE,
	             "%s was restarted or promoted and may have lost a leader's record: nobody is elected for "
	             "another %.1f s",
	             l->server->link->peer, (double)lock_failover_left(&l->doubt, l->lease, now) / NSEC_PER_SEC);
}

/* The one that it comes from may be back. */
static void on_stranger(struct redis_lock *l)
{
	l->server->checked = false;
	lock_op_fail(&l->op, LOCK_FAILED, ERR_UNREACHABLE,
	             "%s is no copy of the server that has the last renewal: what is there may be older",
	             l->server->link->peer);
}

static void on_written(struct redis_lock *l, const redisReply *r)
{
	const char *what = shape_of(r, write_shapes), *peer = l->server->link->peer;

	if (strcmp(what, "ok") == 0)
		wrote(l, r);
	else if (strcmp(what, "removed") == 0)
		lock_op_finish(&l->op, &(struct lock_result){ .outcome = LOCK_OK });
	else if (strcmp(what, "conflict") == 0)
		lock_op_finish(&l->op, &(struct lock_result){ .outcome = LOCK_CONFLICT });
	else if (strcmp(what, "doubt") == 0)
		on_doubt(l, r);
	else if (strcmp(what, "replicas") == 0)
		lock_op_fail(&l->op, LOCK_FAILED, ERR_UNREACHABLE,
		             "%s has %" PRId64 " replicas, and the lock's URL asks for %d", peer, number_at(r, 1),
		             l->server->place.replicas);
	else if (strcmp(what, "rival") == 0)
		on_rival(l);
	else if (strcmp(what, "stranger") == 0)
		on_stranger(l);
	else if (strcmp(what, "tokens") == 0)
		lock_op_fail(&l->op, LOCK_FAILED, ERR_INVALID,
		             "the largest token that was seen is 2^53 or more, and Redis cannot count on from there");
	else
		lock_op_fail(&l->op, LOCK_UNKNOWN, ERR_INVALID, "%s gave an answer that makes no sense", peer);
}

/* How many replicas have what was written. */
static void on_acknowledged(struct redis_lock *l, long long have)
{
	bool enough = have >= l->server->place.replicas;

	l->unsettled = !enough;
	if (!enough)
		lock_op_fail(&l->op, l->op.writing ? LOCK_UNKNOWN : LOCK_FAILED, ERR_UNREACHABLE,
		             "%lld of %d replicas have the record", have, l->server->place.replicas);
	else if (l->stage == SETTLE)
		ask(l, ASK);
	else
		finish_written(l);
}

/* A line of INFO: "name:value". Nothing is written where there is none. */
static void info_of(const char *info, const char *name, char *value, size_t size)
{
	size_t len = strlen(name);

	for (const char *line = info; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, name, len) != 0 || line[len] != ':')
			continue;
		snprintf(value, size, "%.*s", (int)strcspn(line + len + 1, "\r\n"), line + len + 1);
		return;
	}
}

__attribute__((format(printf, 2, 3))) static void warn(struct lock_about *about, const char *fmt, ...)
{
	size_t len = strlen(about->warning);
	va_list ap;

	if (len && len < sizeof about->warning - 2)
		len += (size_t)snprintf(about->warning + len, sizeof about->warning - len, "; ");
	va_start(ap, fmt);
	vsnprintf(about->warning + len, sizeof about->warning - len, fmt, ap);
	va_end(ap);
}

/* The lock's keys never expire: only policies for all keys evict them. */
static void judge_eviction(struct lock_about *about, const char *info)
{
	char most[24] = "0", policy[24] = "noeviction";

	info_of(info, "maxmemory", most, sizeof most);
	info_of(info, "maxmemory_policy", policy, sizeof policy);
	if (strcmp(policy, "noeviction") == 0)
		return;
	if (strncmp(policy, "volatile", 8) == 0)
		warn(about,
		     "maxmemory-policy is %s, which spares the lock as long as nobody gives its keys an expiry (noeviction is right)",
		     policy);
	else if (strcmp(most, "0") == 0)
		warn(about,
		     "maxmemory-policy is %s: as soon as maxmemory is set it may evict the record, and then two lead (noeviction is right)",
		     policy);
	else
		warn(about,
		     "maxmemory-policy is %s, and maxmemory %s: it may evict the record, and then two lead (noeviction is right)",
		     policy, most);
	about->unfit = strncmp(policy, "volatile", 8) != 0 && strcmp(most, "0") != 0;
}

/* What of its settings can lose a record that it has acknowledged. */
static void on_info(struct redis_lock *l, const char *info)
{
	struct lock_about *about = l->about;
	char version[40] = "of no known version", mode[20] = "standalone", aof[8] = "", replicas[12] = "0";

	info_of(info, "redis_version", version, sizeof version);
	info_of(info, "redis_mode", mode, sizeof mode);
	info_of(info, "aof_enabled", aof, sizeof aof);
	info_of(info, "connected_slaves", replicas, sizeof replicas);
	*about = (struct lock_about){ .pause_ms = 0 };
	snprintf(about->server, sizeof about->server, "Redis %s, %s, %s replicas", version, mode, replicas);
	judge_eviction(about, info);
	if (strcmp(replicas, "0") != 0 && l->server->place.replicas == 0)
		warn(about,
		     "it has replicas, and the lock does not wait for them: after a failover a term's record may be lost, and what it saved "
		     "(?replicas=N waits for N of them)");
	else if (strcmp(aof, "0") == 0)
		warn(about,
		     "appendonly is off: a restart may lose the record; nobody is elected for a lease after it, and tokens go on by the "
		     "server's clock");
	lock_op_finish(&l->op, &(struct lock_result){ .outcome = LOCK_OK });
}

static void on_answered(struct lock_call *c, const void *answer)
{
	const redisReply *r = answer;
	struct redis_lock *l = (struct redis_lock *)((char *)c - offsetof(struct redis_lock, call));

	if (r->type == REDIS_REPLY_ERROR && l->stage == ACKNOWLEDGE)
		lock_op_fail(&l->op, LOCK_UNKNOWN, ERR_SYSTEM, "%s answered WAIT with: %s", l->server->link->peer,
		             r->str);
	else if (r->type == REDIS_REPLY_ERROR)
		on_error(l, r->str);
	else if (l->stage == INQUIRE)
		on_info(l, r->str ? r->str : "");
	else if (r->type == REDIS_REPLY_INTEGER && (l->stage == ACKNOWLEDGE || l->stage == SETTLE))
		on_acknowledged(l, r->integer);
	else if (l->op.writing)
		on_written(l, r);
	else
		on_read(l, r);
}

static void on_lost(struct lock_call *c, bool sent, enum lock_outcome outcome, const struct err *why)
{
	struct redis_lock *l = (struct redis_lock *)((char *)c - offsetof(struct redis_lock, call));

	l->server->checked = false;
	if (lock_op_repeat(&l->op, sent)) {
		start(l, l->stage == ASK_WHOLE ? ASK : l->stage);
		return;
	}
	l->unsettled |= l->op.writing && sent;
	lock_op_fail(&l->op, l->op.writing && sent ? LOCK_UNKNOWN : outcome, why->code, "%s", why->text);
}

static void on_detach(struct lock_op *op)
{
	struct redis_lock *l = (struct redis_lock *)((char *)op - offsetof(struct redis_lock, op));

	stop_asking(l);
	l->unsettled |= op->writing && op->sent;
}

/* ---- notices ---- */

static void server_listen(struct lock_server *s, const char *channel)
{
	redis_link_send(s->notices, NULL, 2, (const char *[]){ "SUBSCRIBE", channel }, NULL);
}

static void server_unlisten(struct lock_server *s, const char *channel)
{
	redis_link_send(s->notices, NULL, 2, (const char *[]){ "UNSUBSCRIBE", channel }, NULL);
}

/* A confirmation counts as a notice: what happened before it was not told. */
static void on_push(void *arg, const redisReply *r)
{
	struct lock_server *s = arg;
	const char *kind = word_at(r, 0);

	if (r->type == REDIS_REPLY_ERROR) /* no rights */
		lock_board_deafen(&s->board);
	else if (strcmp(kind, "message") == 0)
		lock_board_tell(&s->board, word_at(r, 1), word_at(r, 2));
	else if (strcmp(kind, "subscribe") == 0)
		lock_board_tell(&s->board, word_at(r, 1), NULL);
}

/* ---- servers ---- */

static void on_link_up(void *arg)
{
	struct redis_server *s = arg;

	s->checked = false;
}

static void on_link_down(void *arg, enum lock_outcome outcome, const struct err *why)
{
	struct redis_server *s = arg;

	(void)outcome;
	(void)why;
	s->checked = false;
}

static bool server_serves(const struct lock_server *server, const void *place)
{
	const struct redis_server *s = (const struct redis_server *)server;
	const struct redis_place *p = place;

	return s->place.db == p->db && s->place.replicas == p->replicas &&
	       lock_url_same_servers(&s->place.url, &p->url);
}

static struct lock_server *server_make(struct lock_env *env, void *place)
{
	static const struct lock_link_events events = { .up = on_link_up, .down = on_link_down };
	struct redis_server *s = mem_zero(sizeof *s);

	s->place = *(struct redis_place *)place;
	s->link = redis_link_new(env, &s->place.url, s->place.db, scripts, &events, NULL, s);
	s->base.notices = redis_link_new(env, &s->place.url, 0, NULL, &lock_server_notices, on_push, s);
	return &s->base;
}

static void server_spare(void *place)
{
	lock_url_fini(&((struct redis_place *)place)->url);
}

static void server_free(struct lock_server *server)
{
	struct redis_server *s = (struct redis_server *)server;

	redis_roles_cancel(s->roles);
	lock_link_free(s->link);
	lock_link_free(s->base.notices);
	lock_url_fini(&s->place.url);
	free(s);
}

static const struct lock_server_ops server_ops = {
	.serves = server_serves,
	.make = server_make,
	.spare = server_spare,
	.free = server_free,
	.listen = server_listen,
	.unlisten = server_unlisten,
};

/* ---- the lock ---- */

/* The state and the channel are in the record's slot of a cluster: the part of the name in braces decides that. */
static char *beside(const char *key, const char *what)
{
	const char *open = strchr(key, '{'), *close = open ? strchr(open + 1, '}') : NULL;
	bool tagged = close && close > open + 1;

	return mem_printf(tagged || strchr(key, '}') ? "%s:%s" : "{%s}:%s", key, what);
}

/* K and {K} have one state between them, and count their tokens together; what is doubted of one says nothing of the
 * other. */
static const char *mark_of(const char *key)
{
	const char *close = strchr(key, '}');

	return *key == '{' && close && close > key + 1 && !close[1] ? "{}" : "";
}

/* "DB/KEY", if DB is a number. */
static const char *split_path(const char *path, int *db)
{
	size_t digits = strspn(path, "0123456789");

	*db = 0;
	if (digits == 0 || digits > 5 || path[digits] != '/' || !path[digits + 1])
		return path;
	*db = atoi(path);
	return path + digits + 1;
}

static const struct lock_ops ops;

static struct lock *open_plain(struct lock_env *env, const char *text, struct err *err)
{
	static const char *const known[] = { "replicas", NULL };
	struct redis_place place;
	struct lock_url *u = &place.url;

	if (lock_url_parse(u, ops.scheme, text, PORT, known, err) < 0)
		return NULL;
	const char *key = split_path(u->path, &place.db);
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
			.state = beside(key, "lunarch"),
			.channel = beside(key, "changed"),
			.mark = mark_of(key),
			.call = { .ready = on_ready, .answered = on_answered, .lost = on_lost },
		};
		l->server = (struct redis_server *)lock_server_get(env, &server_ops, &place);
		lock_member_init(&l->member, &l->server->base.board);
		return &l->lock;
	}
	free(shown);
	lock_url_fini(u);
	return NULL;
}

static struct lock *open_tls(struct lock_env *env, const char *text, struct err *err)
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

static void begin(struct redis_lock *l, bool writing, struct instant by, lock_done_fn *done, void *arg)
{
	lock_op_begin(&l->op, l->server->base.env, &l->lock, on_detach, writing, by, done, arg);
	l->op.doubt = &l->doubt;
	l->removing = false;
}

static void read_record(struct lock *lock, struct instant by, lock_done_fn *done, void *arg)
{
	struct redis_lock *l = of(lock);

	begin(l, false, by, done, arg);
	start(l, l->unsettled && l->server->place.replicas ? SETTLE : ASK);
}

static void write_record(struct lock *lock, const struct record *r, const struct version *expected, bool durable,
                         struct instant by, lock_done_fn *done, void *arg)
{
	struct redis_lock *l = of(lock);

	begin(l, true, by, done, arg);
	if (!lock_op_print(&l->op, r))
		return;
	l->expected = *expected;
	l->durable = durable;
	l->acquiring = r->token == 0;
	if (l->acquiring)
		lock_member_rename(&l->member);
	l->leads = r->state == RECORD_LEADING && *r->holder;
	l->lease = r->lease_ms * NSEC_PER_MS;
	start(l, ASK);
}

static void remove_record(struct lock *lock, const struct version *expected, struct instant by, lock_done_fn *done,
                          void *arg)
{
	struct redis_lock *l = of(lock);

	begin(l, true, by, done, arg);
	l->expected = *expected;
	l->removing = true;
	l->acquiring = false;
	l->leads = false;
	start(l, ASK);
}

static void ask_server(struct lock *lock, struct lock_about *about, struct instant by, lock_done_fn *done, void *arg)
{
	struct redis_lock *l = of(lock);

	begin(l, false, by, done, arg);
	l->about = about;
	start(l, INQUIRE);
}

static void cancel(struct lock *lock)
{
	lock_op_cancel(&of(lock)->op);
}

static bool watch(struct lock *lock, lock_changed_fn *changed, void *arg)
{
	struct redis_lock *l = of(lock);

	lock_server_watch(&l->server->base, &l->member, l->channel, changed, arg);
	return !l->server->base.board.deaf;
}

static void close_lock(struct lock *lock)
{
	struct redis_lock *l = of(lock);

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
	.open = open_plain,
	.read = read_record,
	.write = write_record,
	.cancel = cancel,
	.watch = watch,
	.close = close_lock,
	.about = ask_server,
	.remove = remove_record,
};
static const struct lock_ops tls_ops = {
	.scheme = "rediss",
	.open = open_tls,
};
static const struct lock_ops *const locks[] = { &ops, &tls_ops, NULL };

static void name_libraries(struct buf *out)
{
	buf_printf(out, "hiredis %d.%d.%d", HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
}

const struct module lunarch_module = { .build = LUNARCH_BUILD, .libraries = name_libraries, .locks = locks };
