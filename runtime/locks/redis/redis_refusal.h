/* The errors of a Redis server that say that nothing was done.
 * Not all its errors: after any other a write may have been carried out. Used by the Redis lock. */
#ifndef LUNARCH_REDIS_REFUSAL_H
#define LUNARCH_REDIS_REFUSAL_H

#include "locks/lock.h"

struct redis_refusal {
	const char *word; /* which the error begins with */
	enum lock_outcome outcome;
	enum err_code code;
};

/* Of the text of an error. NULL: it is none of them. */
const struct redis_refusal *redis_refusal_of(const char *text);

/* What to do, to be put behind the text; "": there is nothing to say. */
const char *redis_refusal_advice(const struct redis_refusal *f);

#endif
