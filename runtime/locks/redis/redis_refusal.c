#include "locks/redis/redis_refusal.h"

#include <stddef.h>
#include <string.h>

/* Errors of the server that say by their first word that nothing was done. Servers before 7 put "ERR Error running
 * script ...: -" before those that a script met. */
static const struct redis_refusal refusals[] = {
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

const struct redis_refusal *redis_refusal_of(const char *text)
{
	const char *inner = strstr(text, ": -");

	for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
		const char *word = refusals[i].word;
		if (strncmp(text, word, strlen(word)) == 0 || (inner && strncmp(inner + 3, word, strlen(word)) == 0))
			return &refusals[i];
	}
	return NULL;
}

const char *redis_refusal_advice(const struct redis_refusal *f)
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
		if (strncmp(f->word, known[i].word, strlen(known[i].word)) == 0)
			return known[i].text;
	return "";
}
