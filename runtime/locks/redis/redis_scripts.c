#include "locks/redis/redis_scripts.h"

#include "locks/lock_failover.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

#define DIGEST 40 /* digits of SHA-1, and of Redis' ids */

/* KEYS of all scripts: the record; the hash beside it, which is called the state. ARGV: the largest size of a record;
 * what the names of the state's fields end with; the run id of the primary (as below). */
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

/* ARGV:
 *  1 text: of the record
 *  2 expected version: a digest of the text, "" = there must be no record
 *  3 channel: where the change is published
 *  4 our name: which is published there
 *  5 "" = no token is wanted; "new" = one is, for a new term; "own" = one is, and the record there is of our own term
 *  6 our lease: in microseconds
 *  7 replicas: how many must be connected
 *  8 doubt: the name of the one that we have waited out; "" = none
 *  9 token: the largest that we have seen
 * 10 mark: what the names of the state's fields end with
 * 11 primary: the run id of the only one that was found; "" = the hosts were not asked
 * 12 origin: for who has changed servers, the replication id of the server of our last write; else ""
 * 13 known: the replication id under which we last knew of no doubt; else ""
 *
 * A server whose replication id is not the one in the state was promoted or restarted, and may have lost a leader's
 * record. That is a doubt (lock_failover.h), which gets its name here. There is none if the server knows nothing, was
 * never promoted, and has run for longer than a lease. Its uptime follows its wall clock, which may have been set, so
 * its main thread must also have computed for that long. */
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
	/* First, since it fails where it is not allowed: then the record is as it was. */
	"redis.call('PUBLISH', ARGV[3], ARGV[4])\n"
	"redis.call('SET', key, ARGV[1])\n"
	"return {'ok', redis.sha1hex(ARGV[1]), string.format('%.0f', token), doubt, id}\n";

/* ARGV: the expected version. Removes what the lock keeps beside the record, too: doctor's scratch lock alone is
 * removed. */
static const char remove_script[] =
	"local there = redis.call('GET', KEYS[1])\n"
	"if (there and redis.sha1hex(there) or '') ~= ARGV[1] then return {'conflict'} end\n"
	"redis.call('DEL', KEYS[1], KEYS[2])\n"
	"return {'removed'}\n";

const char *const redis_scripts[REDIS_SCRIPTS] = {
	[REDIS_READ] = read_script,
	[REDIS_WRITE] = write_script,
	[REDIS_REMOVE] = remove_script,
};

/* ---- answers ---- */

/* What each script answers: a word, and what follows it. t: any text; h: a digest or an id; n: a number, as such or as
 * text; d: a doubt's name. No other answer is looked at. */
static const struct redis_form {
	const char *word, *rest;
} redis_forms[REDIS_SCRIPTS][9] = {
	[REDIS_READ] = { { "found", "thnd" }, { "absent", "" }, { "type", "" }, { "large", "n" }, { "rival", "" } },
	[REDIS_WRITE] = { { "ok", "hndh" },
	                  { "conflict", "" },
	                  { "doubt", "dn" },
	                  { "replicas", "n" },
	                  { "rival", "" },
	                  { "stranger", "" },
	                  { "tokens", "" } },
	[REDIS_REMOVE] = { { "removed", "" }, { "conflict", "" } },
};

const char *redis_word_at(const redisReply *r, size_t i)
{
	return i < r->elements && r->element[i]->type == REDIS_REPLY_STRING ? r->element[i]->str : "";
}

int64_t redis_number_at(const redisReply *r, size_t i)
{
	const char *text = redis_word_at(r, i);
	char *end = NULL;

	if (r->element[i]->type == REDIS_REPLY_INTEGER)
		return r->element[i]->integer < 0 ? -1 : r->element[i]->integer;
	errno = 0;
	long long n = *text >= '0' && *text <= '9' ? strtoll(text, &end, 10) : -1;
	return n < 0 || *end || errno ? -1 : n;
}

static bool answer_has(const redisReply *r, size_t i, char kind)
{
	const redisReply *e = r->element[i];

	if (kind == 'n')
		return redis_number_at(r, i) >= 0;
	if (e->type != REDIS_REPLY_STRING)
		return false;
	if (kind == 't')
		return true;
	if (strlen(e->str) != e->len)
		return false;
	return kind == 'd' ? e->len < LOCK_FAILOVER_MARK
	                   : e->len > 0 && e->len <= DIGEST && strspn(e->str, "0123456789abcdefnone") == e->len;
}

const char *redis_answer(int script, const redisReply *r)
{
	if (r->type != REDIS_REPLY_ARRAY || r->elements == 0)
		return "";
	for (const struct redis_form *f = redis_forms[script]; f->word; f++) {
		size_t i = 1, count = strlen(f->rest);
		if (strcmp(redis_word_at(r, 0), f->word) != 0 || r->elements != 1 + count)
			continue;
		while (i <= count && answer_has(r, i, f->rest[i - 1]))
			i++;
		return i > count ? f->word : "";
	}
	return "";
}

/* ---- errors ---- */

#define RIGHTS ": docs/locks.md lists the rights that a lock needs"

static const struct redis_error redis_errors[] = {
	{ "NOPERM", LOCK_REFUSED, ERR_DENIED, RIGHTS },
	{ "NOAUTH", LOCK_REFUSED, ERR_DENIED, "" },
	{ "ERR The user executing the script can't", LOCK_REFUSED, ERR_DENIED, RIGHTS },
	{ "READONLY", LOCK_FAILED, ERR_UNREACHABLE, "" },
	{ "LOADING", LOCK_FAILED, ERR_UNREACHABLE, "" },
	{ "BUSY", LOCK_FAILED, ERR_UNREACHABLE, "" },
	{ "MASTERDOWN", LOCK_FAILED, ERR_UNREACHABLE, "" },
	{ "CLUSTERDOWN", LOCK_FAILED, ERR_UNREACHABLE, "" },
	{ "TRYAGAIN", LOCK_FAILED, ERR_UNREACHABLE, "" },
	{ "NOREPLICAS", LOCK_FAILED, ERR_UNREACHABLE, "" },
	{ "OOM", LOCK_FAILED, ERR_FULL, "" },
	{ "MISCONF", LOCK_FAILED, ERR_FULL, "" },
	{ "MOVED", LOCK_FAILED, ERR_USAGE,
	  ": this is a cluster, and the key is with another of its servers: name that one" },
	{ "ASK", LOCK_FAILED, ERR_USAGE, "" },
	{ "CROSSSLOT", LOCK_FAILED, ERR_USAGE, ": put {braces} around a part of the key" },
	{ "WRONGTYPE", LOCK_FAILED, ERR_FOREIGN, ": the key that holds the lock's token is used for something else" },
	{ "NOSCRIPT", LOCK_FAILED, ERR_SYSTEM, "" },
	{ "ERR unknown command", LOCK_FAILED, ERR_USAGE, "" },
	{ "ERR Write commands are not allowed after", LOCK_FAILED, ERR_USAGE, ": Redis 5 or later is needed" },
	{ "", LOCK_UNKNOWN, ERR_SYSTEM, "" }, /* any other */
};

/* Servers before 7 put "ERR Error running script ...: -" before the error that a script met. */
const struct redis_error *redis_error_of(const char *text)
{
	const char *inner = strstr(text, ": -");
	const struct redis_error *e = redis_errors;

	while (strncmp(text, e->word, strlen(e->word)) != 0 &&
	       (!inner || strncmp(inner + 3, e->word, strlen(e->word)) != 0))
		e++;
	return e;
}
