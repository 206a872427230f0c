/* The calls that wait for a connection that many locks share, and those whose answers come next on it. Not a
 * connection: it sends nothing, and no time passes in it. Used by the links of the locks whose servers answer in the
 * order in which they were asked. */
#pragma once

#include "locks/lock.h"

#include <stddef.h>

/* For `lost`: answers and questions do not belong together. */
#define LOCK_QUEUE_MIXED_UP \
	"an answer came that is not what was asked for, perhaps twice: nothing on that connection can be believed"

/* One question at a time: embedded in who asks it, zero before the first use but for the callbacks. */
struct lock_call {
	/* The link is up: send the question now. */
	void (*ready)(struct lock_call *c);
	/* answer: of the link's kind, borrowed. */
	void (*answered)(struct lock_call *c, const void *answer);
	/* There will be no answer. sent: the question may have reached the server. outcome: LOCK_FAILED or
	 * LOCK_REFUSED. */
	void (*lost)(struct lock_call *c, bool sent, enum lock_outcome outcome, const struct err *why);
	struct lock_call *prev, *next; /* private, as all that follows */
	enum { LOCK_CALL_IDLE, LOCK_CALL_WAITS, LOCK_CALL_SENT } state;
	size_t slot;
	uint64_t round;
	struct instant sent_at;
};

struct lock_pipeline {                  /* zero is empty */
	struct lock_call *first, *last; /* waiting */
	uint64_t round;
	struct lock_call **ring; /* sent; NULL: nobody wants that answer any more */
	size_t at, count, room;
	bool stopped; /* the link is being freed: no callback is called any more */
};

void lock_pipeline_wait(struct lock_pipeline *q, struct lock_call *c);
struct lock_call *lock_pipeline_next(struct lock_pipeline *q);         /* who waits longest, removed; NULL: nobody */
void lock_pipeline_push(struct lock_pipeline *q, struct lock_call *c); /* sent now; NULL: the answer goes nowhere */
struct lock_call *lock_pipeline_pop(struct lock_pipeline *q); /* whose answer this is, removed; only if count > 0 */
/* true: its answer is still to come, and will be dropped. */
bool lock_pipeline_forget(struct lock_pipeline *q, struct lock_call *c);

/* Calls `lost` of all whose answers would come, and of those who wait if `waiting`; who asks again from inside it waits
 * on. */
void lock_pipeline_lose(struct lock_pipeline *q, bool waiting, enum lock_outcome outcome, const struct err *why);
void lock_pipeline_fini(struct lock_pipeline *q);
