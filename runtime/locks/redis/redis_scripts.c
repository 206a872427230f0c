#include "locks/redis/redis_scripts.h"

#include "locks/lock_failover.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

#define DIGEST 40 /* digits of SHA-1, and of Redis' ids */

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
const char redis_remove_script[] = "local there = redis.call('GET', KEYS[1])\n"
				   "if (there and redis.sha1hex(there) or '') ~= ARGV[1] then return {'conflict'} end\n"
				   "redis.call('DEL', KEYS[1], KEYS[2])\n"
				   "return {'removed'}\n";

const char *const redis_scripts[REDIS_SCRIPTS] = { [REDIS_READ] = read_script, [REDIS_WRITE] = write_script };

/* ---- answers ---- */

/* What the scripts answer: a word, and what follows it. t: any text; h: a digest or an id; n: a number, as such or as
 * text; d: a doubt's name. Nothing else is looked at. */
static const struct shape {
	const char *word, *rest;
} read_shapes[] = { { "found", "thnd" }, { "absent", "" }, { "type", "" },
	            { "large", "n" },    { "rival", "" },  { NULL, NULL } },
  write_shapes[] = { { "ok", "hndh" }, { "removed", "" },  { "conflict", "" }, { "doubt", "dn" }, { "replicas", "n" },
	             { "rival", "" },  { "stranger", "" }, { "tokens", "" },   { NULL, NULL } };

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

static const char *answer_word(const redisReply *r, const struct shape *shapes)
{
	if (r->type != REDIS_REPLY_ARRAY || r->elements == 0)
		return "";
	for (; shapes->word; shapes++) {
		size_t i = 1, count = strlen(shapes->rest);
		if (strcmp(redis_word_at(r, 0), shapes->word) != 0 || r->elements != 1 + count)
			continue;
		while (i <= count && answer_has(r, i, shapes->rest[i - 1]))
			i++;
		return i > count ? shapes->word : "";
	}
	return "";
}

const char *redis_read_answer(const redisReply *r)
{
	return answer_word(r, read_shapes);
}

const char *redis_write_answer(const redisReply *r)
{
	return answer_word(r, write_shapes);
}
