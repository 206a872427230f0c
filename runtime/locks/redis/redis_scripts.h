/* What a Redis server is asked to do, as scripts in Lua, and how its answers, its errors and its INFO are read.
 * Not a connection, and no state: what an answer means for an operation is decided in lock_redis.c.
 * Used by the Redis lock. */
#pragma once

#include "locks/lock.h"

#include <stddef.h>

struct redisReply;

/* The server keeps these; their arguments are described with them. */
enum { REDIS_READ, REDIS_WRITE, REDIS_ADVISE, REDIS_REMOVE, REDIS_SCRIPTS };
extern const char *const redis_scripts[REDIS_SCRIPTS];

/* Whether a script's answer is an array of this word and what `rest` says. t: any text; h: a digest or an id; n: a
 * number; d: a doubt's name. */
bool redis_answer_is(const struct redisReply *r, const char *word, const char *rest);

/* The i-th element of an array; "": it is no string. */
const char *redis_word_at(const struct redisReply *r, size_t i);

/* The same as a number; -1: it is none, or too large. */
int64_t redis_number_at(const struct redisReply *r, size_t i);

#define REDIS_RIGHTS ": docs/stores/redis.md lists the rights that a lock needs"

/* What follows from an error. */
struct redis_error {
	const char *word;          /* with which its text begins */
	enum lock_outcome outcome; /* LOCK_UNKNOWN: a write may have been carried out. All others say that it was not */
	enum err_code code;
	const char *advice; /* what to do, to be put behind the text; "": there is nothing to say */
	bool elsewhere;     /* another server of a cluster may do it */
};

const struct redis_error *redis_error_of(const char *text); /* never NULL */

/* The value of a line "name:value" in the answer to INFO, but for its first line, which is a heading; without such a
 * line value stays as it is. */
void redis_info(const char *info, const char *name, char *value, size_t size);

/* Fills about by that answer: the version, and settings by which the server can lose a record that it has acknowledged.
 * replicas_asked: for how many the lock waits. */
void redis_about(struct lock_about *about, const char *info, int replicas_asked);
