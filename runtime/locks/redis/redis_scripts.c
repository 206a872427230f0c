#include "locks/redis/redis_scripts.h"

#include "locks/lock_failover.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGEST 40 /* digits of SHA-1, and of Redis' ids */

/* KEYS: the record; the hash beside it, which is called the state, and which a next record has not. most: bytes of a
 * record. mark: what the names of the state's fields end with. */
static const char read_script[] =
	"local most, mark = unpack(ARGV)\n"
	"local size = redis.pcall('STRLEN', KEYS[1])\n"
	"if type(size) == 'table' then\n"
	"  if string.find(size.err, 'WRONGTYPE', 1, true) then return {'foreign', 'holds no string, so no election record. It is not touched: choose another name'} end\n"
	"  return size\n"
	"end\n"
	"if size > tonumber(most) then return {'foreign', 'holds ' .. size .. ' bytes, which is no election record. It is not touched'} end\n"
	"local text = redis.call('GET', KEYS[1])\n"
	"if not text then return {'absent'} end\n"
	"local known = KEYS[2] and redis.call('HMGET', KEYS[2], 'token', 'doubt' .. mark) or {}\n"
	"return {'found', text, redis.sha1hex(text), known[1] or '0', known[2] or ''}\n";

/* 'failed' is followed by what is said of the server, 'foreign' above by what is said of the key.
 *
 * expected: a version, "" = there must be no record. wanted: a token, "new" for a new term, "own" if the record there
 * is of our own one; "" = none. over: the doubt that we have waited out. floor: the largest token that we have seen.
 * mark: as above. origin: for who has changed servers, the replication id of the server of our last write.
 * known: the server's name, as below, under which we last knew of no doubt.
 * epoch: "@" and the number of the Sentinels' choice; "" = there are none.
 *
 * A server whose replication id is not the one in the state was promoted or restarted, and may have lost a leader's
 * record. Sentinels may also choose a server again that was never demoted, and has seen nothing of what others led
 * meanwhile: so the name of a server has the number of the choice behind its id. Another name is a doubt
 * (lock_failover.h), which is named here. There is none if the server knows nothing, was never promoted, is the first
 * choice, and has run for longer than a lease. Its uptime follows its wall clock, which may have been set, so
 * its main thread must also have computed for that long. */
static const char write_script[] =
	"local key, state, now = KEYS[1], KEYS[2], redis.call('TIME')\n"
	"local text, expected, channel, name, wanted, lease, asked, over, floor, mark, origin, known, epoch = unpack(ARGV)\n"
	"now = now[1] * 1000000 + now[2]\n"
	"local info = redis.pcall('INFO', 'replication')\n"
	/* -@dangerous takes it away, and Redis 7.0 does not say from which command. */
	"if type(info) == 'table' then return {err = info.err .. ' (INFO: +info allows it)'} end\n"
	"local id = string.match(info, 'master_replid:(%x+)') or 'none'\n"
	"local former = string.match(info, 'master_replid2:(%x+)') or ''\n"
	"if origin ~= '' and origin ~= id and origin ~= former then return {'failed', 'is no copy of the server that has the last renewal: what is there may be older'} end\n"
	"local there = redis.pcall('GET', key)\n"
	"if type(there) == 'table' then\n"
	"  if string.find(there.err, 'WRONGTYPE', 1, true) then return {'conflict'} end\n"
	"  return there\n"
	"end\n"
	"if (there and redis.sha1hex(there) or '') ~= expected then return {'conflict'} end\n"
	"local replicas = tonumber(string.match(info, 'connected_slaves:(%d+)') or 0)\n"
	"if replicas < tonumber(asked) then return {'failed', 'has ' .. replicas .. ' replicas, and the URL of the lock asks for ' .. asked} end\n"
	"local last, home, doubt, published = unpack(redis.call('HMGET', state, 'token', 'server' .. mark, 'doubt' .. mark, 'lease' .. mark))\n"
	"doubt = doubt or ''\n"
	"local here = id .. epoch\n"
	"if home ~= here then\n"
	"  local least, computed = tonumber(lease) / 1000000 + 1, 0\n"
	"  local uptime = tonumber(string.match(redis.call('INFO', 'server'), 'uptime_in_seconds:(%d+)') or 0)\n"
	"  for s in string.gmatch(redis.call('INFO', 'cpu'), 'used_cpu_%a+_main_thread:([%d.]+)') do computed = computed + (tonumber(s) or 0) end\n"
	"  local old = computed > least and uptime > least and string.match(former, '^0+$') and (epoch == '' or epoch == '@0')\n"
	"  local fresh = (old or here == known) and not there and not last and not home\n"
	"  doubt = fresh and '' or name .. string.format('.%.0f', now)\n"
	"  redis.call('HSET', state, 'server' .. mark, here, 'doubt' .. mark, doubt)\n"
	"elseif doubt ~= '' and doubt == over then\n"
	"  doubt = ''\n"
	"  redis.call('HSET', state, 'doubt' .. mark, '')\n"
	"end\n"
	"local token = 0\n"
	"if wanted ~= '' then\n"
	"  if doubt ~= '' and wanted ~= 'own' then return {'doubt', doubt, published or '0'} end\n"
	"  local before = tonumber(there and string.match(there, '\"token\":%s*(%d+)') or 0)\n"
	"  if before >= 2 ^ 53 then before = 0 end\n"
	"  token = math.max(math.max(tonumber(last) or 0, before, tonumber(floor)) + 1, now)\n"
	"  if token >= 2 ^ 53 then return {'failed', 'cannot count on exactly from the largest token that was seen, which is 2^53 or more'} end\n"
	"  redis.call('HSET', state, 'token', string.format('%.0f', token), 'lease' .. mark, lease)\n"
	"end\n"
	/* First, since it fails where it is not allowed: then the record is as it was. */
	"redis.call('PUBLISH', channel, name)\n"
	"redis.call('SET', key, text)\n"
	"return {'ok', redis.sha1hex(text), string.format('%.0f', token), doubt, id}\n";

/* Writes a next record: it makes no token, and no failover casts a doubt on it. */
static const char advise_script[] =
	"local text, expected, channel, name = unpack(ARGV)\n"
	"local there = redis.pcall('GET', KEYS[1])\n"
	"if type(there) == 'table' then\n"
	"  if string.find(there.err, 'WRONGTYPE', 1, true) then return {'conflict'} end\n"
	"  return there\n"
	"end\n"
	"if (there and redis.sha1hex(there) or '') ~= expected then return {'conflict'} end\n"
	"redis.call('PUBLISH', channel, name)\n"
	"redis.call('SET', KEYS[1], text)\n"
	"return {'ok', redis.sha1hex(text)}\n";

/* ARGV: the expected version. Removes what the lock keeps beside the record, too: doctor's scratch lock alone is
 * removed. */
static const char remove_script[] =
	"local there = redis.call('GET', KEYS[1])\n"
	"if (there and redis.sha1hex(there) or '') ~= ARGV[1] then return {'conflict'} end\n"
	"redis.call('DEL', unpack(KEYS))\n"
	"return {'removed'}\n";

const char *const redis_scripts[REDIS_SCRIPTS] = {
	[REDIS_READ] = read_script,
	[REDIS_WRITE] = write_script,
	[REDIS_ADVISE] = advise_script,
	[REDIS_REMOVE] = remove_script,
};

/* ---- answers ---- */

const char *redis_word_at(const redisReply *r, size_t i)
{
	return i < r->elements && r->element[i]->type == REDIS_REPLY_STRING ? r->element[i]->str : "";
}

int64_t redis_number_at(const redisReply *r, size_t i)
{
	const char *text = redis_word_at(r, i);
	char *end = NULL;

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

bool redis_answer_is(const redisReply *r, const char *word, const char *rest)
{
	if (r->type != REDIS_REPLY_ARRAY || r->elements != 1 + strlen(rest) || strcmp(redis_word_at(r, 0), word) != 0)
		return false;
	for (size_t i = 1; i < r->elements; i++)
		if (!answer_has(r, i, rest[i - 1]))
			return false;
	return true;
}

/* ---- errors ---- */

#define BEING_MOVED ": the key is being moved to another server of the cluster"

static const struct redis_error redis_errors[] = {
	{ "NOPERM", LOCK_REFUSED, ERR_DENIED, REDIS_RIGHTS },
	{ "NOAUTH", LOCK_REFUSED, ERR_DENIED, "" },
	{ "ERR The user executing the script can't", LOCK_REFUSED, ERR_DENIED, REDIS_RIGHTS },
	{ "ERR ACL failure in script", LOCK_REFUSED, ERR_DENIED, REDIS_RIGHTS }, /* 7.2 and later */
	{ "READONLY", LOCK_FAILED, ERR_UNREACHABLE, "" },
	{ "LOADING", LOCK_FAILED, ERR_UNREACHABLE, "" },
	{ "BUSY", LOCK_FAILED, ERR_UNREACHABLE, "" },
	{ "MASTERDOWN", LOCK_FAILED, ERR_UNREACHABLE, "" },
	{ "CLUSTERDOWN", LOCK_FAILED, ERR_UNREACHABLE, "", true },
	{ "TRYAGAIN", LOCK_FAILED, ERR_UNREACHABLE, BEING_MOVED, true },
	{ "ASK", LOCK_FAILED, ERR_UNREACHABLE, BEING_MOVED, true },
	{ "NOREPLICAS", LOCK_FAILED, ERR_UNREACHABLE, "" },
	{ "OOM", LOCK_FAILED, ERR_FULL, "" },
	{ "MISCONF", LOCK_FAILED, ERR_FULL, "" },
	{ "MOVED", LOCK_FAILED, ERR_UNREACHABLE, ": the cluster's servers do not agree which one has the key", true },
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

/* ---- INFO ---- */

void redis_info(const char *info, const char *name, char *value, size_t size)
{
	char line[40];

	snprintf(line, sizeof line, "\n%s:", name);
	const char *at = strstr(info, line);
	if (at)
		snprintf(value, size, "%.*s", (int)strcspn(at + strlen(line), "\r\n"), at + strlen(line));
}

/* The lock's keys never expire: only policies for all keys evict them. */
static void about_eviction(struct lock_about *about, const char *info)
{
	char most[24] = "0", policy[24] = "noeviction", risk[100];

	redis_info(info, "maxmemory", most, sizeof most);
	redis_info(info, "maxmemory_policy", policy, sizeof policy);
	if (strcmp(policy, "noeviction") == 0)
		return;
	if (strncmp(policy, "volatile", 8) == 0)
		snprintf(risk, sizeof risk, ", which spares the lock as long as nobody gives its keys an expiry");
	else if (strcmp(most, "0") == 0)
		snprintf(risk, sizeof risk, ": as soon as maxmemory is set it may evict the record, and then two lead");
	else
		snprintf(risk, sizeof risk, ", and maxmemory %s: it may evict the record, and then two lead", most);
	about->unfit = strncmp(policy, "volatile", 8) != 0 && strcmp(most, "0") != 0;
	snprintf(about->warning, sizeof about->warning, "maxmemory-policy is %s%s (noeviction is right)", policy, risk);
}

void redis_about(struct lock_about *about, const char *info, int replicas_asked)
{
	char version[40] = "of no known version", mode[20] = "standalone", aof[8] = "", replicas[12] = "0";
	const char *lost = "";

	redis_info(info, "redis_version", version, sizeof version);
	redis_info(info, "redis_mode", mode, sizeof mode);
	redis_info(info, "aof_enabled", aof, sizeof aof);
	redis_info(info, "connected_slaves", replicas, sizeof replicas);
	*about = (struct lock_about){ .pause_ms = 0 };
	snprintf(about->server, sizeof about->server, "Redis %s, %s, %s replicas", version, mode, replicas);
	about_eviction(about, info);
	if (strcmp(replicas, "0") != 0 && replicas_asked == 0)
		lost = "it has replicas, and the lock does not wait for them: after a failover a term's record may be lost, "
		       "and what it saved (?replicas=N waits for N of them)";
	else if (strcmp(aof, "0") == 0)
		lost = "appendonly is off: a restart may lose the record; nobody is elected for a lease after it, and tokens "
		       "go on by the server's clock";
	size_t len = strlen(about->warning);
	snprintf(about->warning + len, sizeof about->warning - len, "%s%s", len && *lost ? "; " : "", lost);
}
