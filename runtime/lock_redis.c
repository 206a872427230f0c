/* The lock in a Redis server: the record is the string at KEY, compared and swapped by a script on the server, which also counts
 * the token, in a hash beside it, and publishes the change. What a failover or a restart can lose is in docs/locks.md. */
#include "lock.h"

#include "buf.h"
#include "lock_notice.h"
#include "lock_op.h"
#include "lock_url.h"
#include "mem.h"
#include "module.h"
#include "redis_link.h"

#include <ev.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT 6379
#define REPLICAS_MOST 100
#define ACKNOWLEDGE_MS 1000  /* replicas have so long: meanwhile the connection waits (WAIT) */

/* KEYS: the record, the state. ARGV: the largest record. */
static const char read_script[] =
	"local size = redis.pcall('STRLEN', KEYS[1])\n"
	"if type(size) == 'table' then\n"
	"  if string.find(size.err, 'WRONGTYPE', 1, true) then return {'type'} end\n"
	"  return size\n"
	"end\n"
	"if size > tonumber(ARGV[1]) then return {'large', size} end\n"
	"local text = redis.call('GET', KEYS[1])\n"
	"if not text then return {'absent'} end\n"
	"local known = redis.call('HMGET', KEYS[2], 'token', 'doubt')\n"
	"return {'found', text, redis.sha1hex(text), known[1] or '0', known[2] or ''}\n";

/* ARGV: text, expected version, channel, our name, whether a token is wanted ('' = no, 'own' = what is there is our own term's), our
 * lease in us, replicas that must be there, the doubt that we have waited out. A server whose replication id is not the one known
 * here was promoted or restarted, and may have lost a leader's record: that is a doubt (lock_doubt.h), named here. One that knows
 * nothing, was never promoted, and has run for longer than a lease has lost none. */
static const char write_script[] =
	"local key, state, now = KEYS[1], KEYS[2], redis.call('TIME')\n"
	"now = now[1] * 1000000 + now[2]\n"
	"local there = redis.pcall('GET', key)\n"
	"if type(there) == 'table' then\n"
	"  if string.find(there.err, 'WRONGTYPE', 1, true) then return {'conflict'} end\n"
	"  return there\n"
	"end\n"
	"if (there and redis.sha1hex(there) or '') ~= ARGV[2] then return {'conflict'} end\n"
	"local info = redis.call('INFO', 'replication')\n"
	"local replicas = tonumber(string.match(info, 'connected_slaves:(%d+)') or 0)\n"
	"if replicas < tonumber(ARGV[7]) then return {'replicas', replicas} end\n"
	"local id = string.match(info, 'master_replid:(%x+)') or 'none'\n"
	"local known = redis.call('HMGET', state, 'token', 'server', 'doubt', 'lease')\n"
	"local doubt = known[3] or ''\n"
	"if known[2] ~= id then\n"
	"  local young = tonumber(string.match(redis.call('INFO', 'server'), 'uptime_in_seconds:(%d+)') or 0) * 1000000 < tonumber(ARGV[6]) + 1000000\n"
	"  local fresh = not known[2] and not young and string.match(info, 'master_replid2:0*%s')\n"
	"  doubt = fresh and '' or ARGV[4] .. string.format('.%.0f', now)\n"
	"  redis.call('HSET', state, 'server', id, 'doubt', doubt)\n"
	"elseif doubt ~= '' and doubt == ARGV[8] then\n"
	"  doubt = ''\n"
	"  redis.call('HSET', state, 'doubt', '')\n"
	"end\n"
	"local token = 0\n"
	"if ARGV[5] ~= '' then\n"
	"  if doubt ~= '' and ARGV[5] ~= 'own' then return {'doubt', doubt, known[4] or '0'} end\n"
	"  local before = tonumber(there and string.match(there, '\"token\":%s*(%d+)') or 0)\n"
	"  if before >= 2 ^ 53 then before = 0 end\n"
	"  token = math.max(math.max(tonumber(known[1]) or 0, before) + 1, now)\n"
	"  redis.call('HSET', state, 'token', string.format('%.0f', token), 'lease', ARGV[6])\n"
	"end\n"
	"redis.call('PUBLISH', ARGV[3], ARGV[4])\n" /* first: it fails where it is not allowed, and nothing is changed then */
	"redis.call('SET', key, ARGV[1])\n"
	"return {'ok', redis.sha1hex(ARGV[1]), string.format('%.0f', token), doubt}\n";

/* ARGV: version expected. Takes what the lock keeps beside the record along: for a scratch lock alone. */
static const char remove_script[] =
	"local there = redis.call('GET', KEYS[1])\n"
	"if not there or redis.sha1hex(there) ~= ARGV[1] then return {'conflict'} end\n"
	"redis.call('DEL', KEYS[1], KEYS[2])\n"
	"return {'removed'}\n";

enum { READ_SCRIPT, WRITE_SCRIPT };
static const char *const scripts[REDIS_SCRIPTS] = { [READ_SCRIPT] = read_script, [WRITE_SCRIPT] = write_script };

struct redis_hub { /* one per process: its connections */
	struct lock_env *env;
	struct redis_server *servers;
};

struct redis_server { /* what locks with the same hosts, user, password, database and replicas share */
	struct redis_server *next;
	struct redis_hub *hub;
	struct lock_url url;
	int db, replicas;
	int locks;
	struct redis_link *link, *notices;
	ev_timer raise;              /* brings the notices back */
	int refusals;
	struct lock_board board;
};

enum stage { ASK, ASK_WHOLE, ACKNOWLEDGE, SETTLE, INQUIRE };

struct redis_lock {
	struct lock lock;
	struct redis_server *server;
	char *key, *state, *channel;
	struct lock_op op;
	struct lock_call call;
	enum stage stage;
	bool again;                  /* a read was repeated on a new connection */
	bool unsettled;              /* a write may be on the primary alone */

	char *text;                  /* of the write under way, as are these */
	struct version expected;
	bool durable, acquiring, leads, removing;
	struct lock_about *about;
	nsec lease;
	struct lock_result written;

	struct lock_doubt doubt;

	struct lock_member member;
};

static struct redis_lock *of(struct lock *l)
{
	return (struct redis_lock *)l;
}

/* ---- asking ---- */

static void send_script(struct redis_lock *l, int which, int argc, const char **argv)
{
	const char *words[16], *digest = redis_link_script(l->server->link, which);
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
	send_script(l, READ_SCRIPT, 1, (const char *[]){ most });
}

static void send_write(struct redis_lock *l)
{
	char lease[24], replicas[8];
	struct instant now = clock_now();

	lock_doubt_sends(&l->doubt, l->leads, l->lease, now);
	const char *term = !l->acquiring ? "" : lock_doubt_own(&l->doubt, &l->expected, now) ? "own" : "new";

	snprintf(lease, sizeof lease, "%" PRId64, l->lease / 1000);
	snprintf(replicas, sizeof replicas, "%d", l->server->replicas);
	send_script(l, WRITE_SCRIPT, 8, (const char *[]){
		l->text, l->expected.text, l->channel, l->member.name, term, lease, replicas, lock_doubt_over(&l->doubt, l->lease, now),
	});
}

/* WAIT counts what this connection has written: so that it covers an earlier write on another, something is written first. */
static void send_settle(struct redis_lock *l)
{
	redis_link_send(l->server->link, NULL, 4, (const char *[]){ "HSET", l->state, "settled", l->member.name }, NULL);
}

static void send_wait(struct redis_lock *l)
{
	int left = lock_op_left_ms(&l->op) / 2;
	char replicas[8], time[16];

	snprintf(replicas, sizeof replicas, "%d", l->server->replicas);
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
		lock_doubt_sends(&l->doubt, false, 0, l->op.sent_at);
		redis_link_send(l->server->link, &l->call, 6,
		                (const char *[]){ "EVAL", remove_script, "2", l->key, l->state, l->expected.text }, NULL);
	} else if (l->op.writing) {
		send_write(l);
	} else {
		send_read(l);
	}
}

static void ask(struct redis_lock *l, enum stage stage)
{
	l->stage = stage;
	redis_link_want(l->server->link, &l->call);
}

/* ---- answers ---- */

static void finish(struct redis_lock *l, struct lock_result *r)
{
	free(l->text);
	l->text = NULL;
	lock_op_finish(&l->op, r);
}

__attribute__((format(printf, 4, 5))) static void fail(struct redis_lock *l, enum lock_outcome outcome, enum err_code code,
                                                       const char *fmt, ...)
{
	struct lock_result r = { .outcome = outcome };
	char text[700];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	err_set(&r.err, code, "%s", text);
	finish(l, &r);
}

/* Errors of the server that say by their first word that nothing was done. Servers before 7 put "ERR Error running script ...: -"
 * before those that a script met. */
static const struct refusal {
	const char *word;
	enum lock_outcome outcome;
	enum err_code code;
} refusals[] = {
	{ "NOPERM", LOCK_REFUSED, ERR_DENIED },          { "NOAUTH", LOCK_REFUSED, ERR_DENIED },
	{ "ERR The user executing the script can't", LOCK_REFUSED, ERR_DENIED },
	{ "READONLY", LOCK_FAILED, ERR_UNREACHABLE },    { "LOADING", LOCK_FAILED, ERR_UNREACHABLE },
	{ "BUSY", LOCK_FAILED, ERR_UNREACHABLE },        { "MASTERDOWN", LOCK_FAILED, ERR_UNREACHABLE },
	{ "CLUSTERDOWN", LOCK_FAILED, ERR_UNREACHABLE }, { "TRYAGAIN", LOCK_FAILED, ERR_UNREACHABLE },
	{ "NOREPLICAS", LOCK_FAILED, ERR_UNREACHABLE },  { "OOM", LOCK_FAILED, ERR_FULL },
	{ "MISCONF", LOCK_FAILED, ERR_FULL },            { "MOVED", LOCK_FAILED, ERR_USAGE },
	{ "ASK", LOCK_FAILED, ERR_USAGE },               { "CROSSSLOT", LOCK_FAILED, ERR_USAGE },
	{ "WRONGTYPE", LOCK_FAILED, ERR_FOREIGN },       { "NOSCRIPT", LOCK_FAILED, ERR_SYSTEM },
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

static void on_error(struct redis_lock *l, const char *text)
{
	const struct refusal *f = refusal_of(text);
	const char *peer = redis_link_peer(l->server->link);
	struct redis_server *s = l->server;

	if (strncmp(text, "NOSCRIPT", 8) == 0 && l->stage == ASK) {
		ask(l, ASK_WHOLE);
		return;
	}
	if (!f) {
		fail(l, l->op.writing ? LOCK_UNKNOWN : LOCK_FAILED, ERR_SYSTEM, "%s answered: %s", peer, text);
		return;
	}
	bool replica = strcmp(f->word, "READONLY") == 0;
	fail(l, f->outcome, f->code, "%s answered: %s%s", peer, text, advice(f->word));
	if (replica && s->locks) /* it was demoted */
		redis_link_turn_away(s->link, "it has become a replica");
}

static const char *word_at(const redisReply *r, size_t i)
{
	return i < r->elements && r->element[i]->type == REDIS_REPLY_STRING ? r->element[i]->str : "";
}

static long long number_at(const redisReply *r, size_t i)
{
	return i < r->elements && r->element[i]->type == REDIS_REPLY_INTEGER ? r->element[i]->integer : strtoll(word_at(r, i), NULL, 10);
}

static void found(struct redis_lock *l, const redisReply *r)
{
	char what[400];

	lock_doubt_see(&l->doubt, word_at(r, 4), clock_now());
	snprintf(what, sizeof what, "the key %.300s", l->key);
	lock_op_found(&l->op, what, word_at(r, 1), r->elements > 1 ? r->element[1]->len : 0, word_at(r, 2), number_at(r, 3));
}

static void on_read(struct redis_lock *l, const redisReply *r)
{
	const char *what = word_at(r, 0);

	if (strcmp(what, "found") == 0 && r->elements == 5)
		found(l, r);
	else if (strcmp(what, "absent") == 0)
		finish(l, &(struct lock_result){ .outcome = LOCK_ABSENT });
	else if (strcmp(what, "type") == 0)
		fail(l, LOCK_FOREIGN, ERR_FOREIGN, "the key %.300s holds no string, so no election record. It is not touched: choose another name",
		     l->key);
	else if (strcmp(what, "large") == 0)
		fail(l, LOCK_FOREIGN, ERR_INVALID, "the key %.300s holds %lld bytes, which is no election record. It is not touched", l->key,
		     number_at(r, 1));
	else
		fail(l, LOCK_FAILED, ERR_INVALID, "%s gave an answer that makes no sense", redis_link_peer(l->server->link));
}

static void finish_written(struct redis_lock *l)
{
	lock_doubt_wrote(&l->doubt, &l->written.version, l->leads, l->lease, l->op.sent_at);
	finish(l, &l->written);
}

static void wrote(struct redis_lock *l, const redisReply *r)
{
	l->written = (struct lock_result){ .outcome = LOCK_OK, .token = number_at(r, 2) };
	snprintf(l->written.version.text, sizeof l->written.version.text, "%s", word_at(r, 1));
	lock_doubt_see(&l->doubt, word_at(r, 3), clock_now());
	if (l->server->replicas && l->durable) {
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

	lock_doubt_lease(&l->doubt, number_at(r, 2) * 1000);
	lock_doubt_see(&l->doubt, word_at(r, 1), now);
	fail(l, LOCK_FAILED, ERR_UNREACHABLE, "%s was restarted or promoted and may have lost a leader's record: nobody is elected for "
	     "another %.1f s", redis_link_peer(l->server->link), (double)lock_doubt_left(&l->doubt, l->lease, now) / NSEC_PER_SEC);
}

static void on_written(struct redis_lock *l, const redisReply *r)
{
	const char *what = word_at(r, 0), *peer = redis_link_peer(l->server->link);

	if (strcmp(what, "ok") == 0 && r->elements == 4)
		wrote(l, r);
	else if (strcmp(what, "removed") == 0)
		finish(l, &(struct lock_result){ .outcome = LOCK_OK });
	else if (strcmp(what, "conflict") == 0)
		finish(l, &(struct lock_result){ .outcome = LOCK_CONFLICT });
	else if (strcmp(what, "doubt") == 0)
		on_doubt(l, r);
	else if (strcmp(what, "replicas") == 0)
		fail(l, LOCK_FAILED, ERR_UNREACHABLE, "%s has %lld replicas, and the lock's URL asks for %d", peer, number_at(r, 1),
		     l->server->replicas);
	else
		fail(l, LOCK_UNKNOWN, ERR_INVALID, "%s gave an answer that makes no sense", peer);
}

/* How many replicas have what was written. */
static void on_acknowledged(struct redis_lock *l, long long have)
{
	bool enough = have >= l->server->replicas;

	l->unsettled = !enough;
	if (!enough)
		fail(l, l->op.writing ? LOCK_UNKNOWN : LOCK_FAILED, ERR_UNREACHABLE, "%lld of %d replicas have the record", have,
		     l->server->replicas);
	else if (l->stage == SETTLE)
		ask(l, ASK);
	else
		finish_written(l);
}

/* A line of INFO: "name:value". 0: it is not there. */
static size_t info_of(const char *info, const char *name, char *value, size_t size)
{
	const char *at = strstr(info, name);

	if (!at || at[strlen(name)] != ':')
		return 0;
	at += strlen(name) + 1;
	size_t len = strcspn(at, "\r\n");
	snprintf(value, size, "%.*s", (int)len, at);
	return len;
}

/* What of its settings can lose a record that it has acknowledged. */
static void on_info(struct redis_lock *l, const char *info)
{
	struct lock_about *about = l->about;
	char version[40] = "", mode[20] = "", aof[8] = "", replicas[12] = "0";

	info_of(info, "redis_version", version, sizeof version);
	info_of(info, "redis_mode", mode, sizeof mode);
	info_of(info, "aof_enabled", aof, sizeof aof);
	info_of(info, "connected_slaves", replicas, sizeof replicas);
	*about = (struct lock_about){ .pause_ms = 0 };
	snprintf(about->server, sizeof about->server, "Redis %s, %s, %s replicas", *version ? version : "of no known version",
	         *mode ? mode : "standalone", replicas);
	if (strcmp(replicas, "0") != 0 && l->server->replicas == 0)
		snprintf(about->warning, sizeof about->warning, "it has replicas, and the lock does not wait for them: after a failover a term's "
		         "record may be lost (?replicas=N waits for N of them)");
	else if (strcmp(aof, "0") == 0)
		snprintf(about->warning, sizeof about->warning, "appendonly is off: a restart may lose the record; nobody is elected for a lease "
		         "after it, and tokens go on by the server's clock");
	finish(l, &(struct lock_result){ .outcome = LOCK_OK });
}

static void on_answered(struct lock_call *c, const void *answer)
{
	const redisReply *r = answer;
	struct redis_lock *l = (struct redis_lock *)((char *)c - offsetof(struct redis_lock, call));

	if (r->type == REDIS_REPLY_ERROR && l->stage == ACKNOWLEDGE)
		fail(l, LOCK_UNKNOWN, ERR_SYSTEM, "%s answered WAIT with: %s", redis_link_peer(l->server->link), r->str);
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

/* What only looks is repeated once: a connection that was idle may have been cut long ago. */
static void on_lost(struct lock_call *c, bool sent, enum lock_outcome outcome, const struct err *why)
{
	struct redis_lock *l = (struct redis_lock *)((char *)c - offsetof(struct redis_lock, call));

	if (!l->op.writing && sent && !l->again && lock_op_left_ms(&l->op) > 1) {
		l->again = true;
		ask(l, l->stage == ASK_WHOLE ? ASK : l->stage);
		return;
	}
	l->unsettled |= l->op.writing && sent;
	fail(l, l->op.writing && sent ? LOCK_UNKNOWN : outcome, why->code, "%s", why->text);
}

static void on_detach(struct lock_op *op)
{
	struct redis_lock *l = (struct redis_lock *)((char *)op - offsetof(struct redis_lock, op));

	free(l->text);
	l->text = NULL;
	l->unsettled |= op->writing && op->sent;
	redis_link_forget(l->server->link, &l->call, instant_passed(op->by, clock_now()));
}

/* ---- notices ---- */

static void subscribe(void *arg, const struct lock_channel *c)
{
	const struct redis_server *s = arg;

	redis_link_send(s->notices, NULL, 2, (const char *[]){ "SUBSCRIBE", c->name }, NULL);
}

static void on_notices_up(void *arg)
{
	struct redis_server *s = arg;

	s->refusals = 0;
	lock_board_each(&s->board, subscribe, s);
}

static void on_notices_down(void *arg, enum lock_outcome outcome, const struct err *why)
{
	struct redis_server *s = arg;

	(void)why;
	ev_timer_set(&s->raise, lock_notice_again_s(&s->refusals, outcome), 0.);
	ev_timer_start(s->hub->env->loop, &s->raise);
}

static void on_raise(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct redis_server *s = w->data;

	(void)loop;
	(void)revents;
	if (s->board.channels)
		redis_link_raise(s->notices);
}

/* A confirmation counts as a notice: what happened before it was not told. */
static void on_push(void *arg, const redisReply *r)
{
	struct redis_server *s = arg;
	const char *kind = word_at(r, 0);

	if (r->type == REDIS_REPLY_ERROR) /* no rights */
		lock_board_deafen(&s->board);
	else if (strcmp(kind, "message") == 0)
		lock_board_tell(&s->board, word_at(r, 1), word_at(r, 2));
	else if (strcmp(kind, "subscribe") == 0)
		lock_board_tell(&s->board, word_at(r, 1), NULL);
}

static void leave_channel(struct redis_lock *l)
{
	char *channel;

	if (!lock_member_leave(&l->member, &channel))
		return;
	redis_link_send(l->server->notices, NULL, 2, (const char *[]){ "UNSUBSCRIBE", channel }, NULL);
	free(channel);
}

/* ---- servers ---- */

static const struct redis_link_events command_events = { .up = NULL };
static const struct redis_link_events notice_events = { .up = on_notices_up, .down = on_notices_down, .push = on_push };

static const char hub_key;

static void *make_hub(struct lock_env *env, struct err *err)
{
	struct redis_hub *h = mem_zero(sizeof *h);

	(void)err;
	h->env = env;
	return h;
}

static bool serves(const struct redis_server *s, const struct lock_url *u, int db, int replicas)
{
	return s->db == db && s->replicas == replicas && lock_url_same_servers(&s->url, u);
}

/* Takes u. */
static struct redis_server *server_get(struct redis_hub *h, struct lock_url *u, int db, int replicas)
{
	struct redis_server *s;

	for (s = h->servers; s; s = s->next)
		if (serves(s, u, db, replicas))
			break;
	if (s) {
		lock_url_fini(u);
	} else {
		s = mem_zero(sizeof *s);
		*s = (struct redis_server){ .next = h->servers, .hub = h, .url = *u, .db = db, .replicas = replicas };
		s->link = redis_link_new(h->env, &s->url, db, scripts, &command_events, s);
		s->notices = redis_link_new(h->env, &s->url, 0, NULL, &notice_events, s);
		ev_init(&s->raise, on_raise);
		s->raise.data = s;
		s->board.loop = h->env->loop;
		h->servers = s;
	}
	s->locks++;
	return s;
}

static void server_put(struct redis_server *s)
{
	struct redis_server **at = &s->hub->servers;

	if (--s->locks)
		return;
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	ev_timer_stop(s->hub->env->loop, &s->raise);
	redis_link_free(s->link);
	redis_link_free(s->notices);
	lock_url_fini(&s->url);
	free(s);
}

/* ---- the lock ---- */

/* The state and the channel are in the record's slot of a cluster: the part of the name in braces decides that. */
static char *beside(const char *key, const char *what)
{
	const char *open = strchr(key, '{'), *close = open ? strchr(open + 1, '}') : NULL;
	bool tagged = close && close > open + 1;

	return mem_printf(tagged || strchr(key, '}') ? "%s:%s" : "{%s}:%s", key, what);
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
	struct redis_hub *h = lock_env_share(env, &hub_key, make_hub, free, err);
	struct lock_url u;
	int db, replicas;

	if (lock_url_parse(&u, ops.scheme, text, PORT, known, err) < 0)
		return NULL;
	const char *key = split_path(u.path, &db);
	char *shown = lock_url_print(&u, ops.scheme);
	if (!*key)
		err_set(err, ERR_USAGE, "lock \"%s\": the key's name is missing (expected redis://HOST:PORT/KEY)", shown);
	else if (lock_url_number(&u, "replicas", 0, REPLICAS_MOST, 0, &replicas, err) < 0)
		err_wrap(err, "lock \"%s\"", shown);
	else {
		struct redis_lock *l = mem_zero(sizeof *l);
		*l = (struct redis_lock){
			.lock = { .ops = &ops, .url = shown }, .key = mem_dup(key), .state = beside(key, "lunarch"), .channel = beside(key, "changed"),
			.call = { .ready = on_ready, .answered = on_answered, .lost = on_lost },
		};
		l->server = server_get(h, &u, db, replicas);
		lock_member_init(&l->member, &l->server->board);
		return &l->lock;
	}
	free(shown);
	lock_url_fini(&u);
	return NULL;
}

static struct lock *open_tls(struct lock_env *env, const char *text, struct err *err)
{
	char *shown = lock_url_redact(text);

	(void)env;
	err_set(err, ERR_MISSING, "lock \"rediss:%s\": this hiredis (%d.%d.%d) has no TLS. Use redis:// over a network that is private, or to a "
	        "stunnel on this host", shown, HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
	free(shown);
	return NULL;
}

static void begin(struct redis_lock *l, bool writing, struct instant by, lock_done_fn *done, void *arg)
{
	lock_op_begin(&l->op, l->server->hub->env, &l->lock, on_detach, writing, by, done, arg);
	l->op.doubt = &l->doubt;
	l->again = l->removing = false;
}

static void read_record(struct lock *lock, struct instant by, lock_done_fn *done, void *arg)
{
	struct redis_lock *l = of(lock);

	begin(l, false, by, done, arg);
	ask(l, l->unsettled && l->server->replicas ? SETTLE : ASK);
}

static void write_record(struct lock *lock, const struct record *r, const struct version *expected, bool durable, struct instant by,
                         lock_done_fn *done, void *arg)
{
	struct redis_lock *l = of(lock);

	begin(l, true, by, done, arg);
	if (!lock_op_print(&l->op, r, &l->text))
		return;
	l->expected = *expected;
	l->durable = durable;
	l->acquiring = r->token == 0;
	l->leads = r->state == RECORD_LEADING && *r->holder;
	l->lease = r->lease_ms * NSEC_PER_MS;
	ask(l, ASK);
}

static void remove_record(struct lock *lock, const struct version *expected, struct instant by, lock_done_fn *done, void *arg)
{
	struct redis_lock *l = of(lock);

	begin(l, true, by, done, arg);
	l->expected = *expected;
	l->removing = true;
	l->leads = false;
	ask(l, ASK);
}

static void ask_server(struct lock *lock, struct lock_about *about, struct instant by, lock_done_fn *done, void *arg)
{
	struct redis_lock *l = of(lock);

	begin(l, false, by, done, arg);
	l->about = about;
	ask(l, INQUIRE);
}

static void cancel(struct lock *lock)
{
	lock_op_cancel(&of(lock)->op);
}

static bool watch(struct lock *lock, lock_changed_fn *changed, void *arg)
{
	struct redis_lock *l = of(lock);
	const struct lock_channel *fresh = lock_member_enter(&l->member, l->channel, changed, arg);

	if (fresh && redis_link_is_up(l->server->notices))
		subscribe(l->server, fresh);
	else if (fresh && !ev_is_active(&l->server->raise))
		redis_link_raise(l->server->notices);
	return !l->server->board.deaf;
}

static void close_lock(struct lock *lock)
{
	struct redis_lock *l = of(lock);

	lock_op_cancel(&l->op);
	leave_channel(l);
	server_put(l->server);
	free(l->key);
	free(l->state);
	free(l->channel);
	free(l->lock.url);
	free(l);
}

static const struct lock_ops ops = {
	.scheme = "redis", .open = open_plain, .read = read_record, .write = write_record, .cancel = cancel, .watch = watch, .close = close_lock,
	.about = ask_server, .remove = remove_record,
};
static const struct lock_ops tls_ops = {
	.scheme = "rediss", .open = open_tls,
};
static const struct lock_ops *const locks[] = { &ops, &tls_ops, NULL };

static void name_libraries(struct buf *out)
{
	buf_printf(out, "hiredis %d.%d.%d", HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
}

const struct module lunarch_module = { .build = LUNARCH_BUILD, .libraries = name_libraries, .locks = locks };
