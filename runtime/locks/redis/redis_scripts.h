/* What the Redis lock has its server carry out, as scripts in Lua, and the form of their answers.
 * Not a connection, and no state: what an answer means for an operation is the lock's.
 * Used by the Redis lock. */
#ifndef LUNARCH_REDIS_SCRIPTS_H
#define LUNARCH_REDIS_SCRIPTS_H

#include <stddef.h>
#include <stdint.h>

struct redisReply;

/* The server keeps these; their arguments are described with them. */
enum { REDIS_READ, REDIS_WRITE, REDIS_SCRIPTS };
extern const char *const redis_scripts[REDIS_SCRIPTS];
extern const char redis_remove_script[]; /* this one is sent whole */

/* The word that an answer begins with, if all that follows has the form which belongs to it; else "". */
const char *redis_read_answer(const struct redisReply *r);
const char *redis_write_answer(const struct redisReply *r);

/* The i-th element of an array; "": it is no string. */
const char *redis_word_at(const struct redisReply *r, size_t i);

/* The same as a number, which an integer or a text may say; -1: it is none, or too large. */
int64_t redis_number_at(const struct redisReply *r, size_t i);

#endif
