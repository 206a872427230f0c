#include "locks/lock_pipeline.h"

#include "base/mem.h"

#include <stdlib.h>

void lock_pipeline_wait(struct lock_pipeline *q, struct lock_call *c)
{
	c->state = LOCK_CALL_WAITS;
	c->round = q->round;
	c->next = NULL;
	c->prev = q->last;
	*(q->last ? &q->last->next : &q->first) = c;
	q->last = c;
}

static void pipeline_remove(struct lock_pipeline *q, struct lock_call *c)
{
	*(c->prev ? &c->prev->next : &q->first) = c->next;
	*(c->next ? &c->next->prev : &q->last) = c->prev;
	c->prev = c->next = NULL;
	c->state = LOCK_CALL_IDLE;
}

struct lock_call *lock_pipeline_next(struct lock_pipeline *q)
{
	struct lock_call *c = q->first;

	if (c)
		pipeline_remove(q, c);
	return c;
}

static void pipeline_grow(struct lock_pipeline *q)
{
	size_t room = q->room ? q->room * 2 : 16;
	struct lock_call **ring = mem_zero(room * sizeof *ring);

	for (size_t i = 0; i < q->count; i++) {
		ring[i] = q->ring[(q->at + i) % q->room];
		if (ring[i])
			ring[i]->slot = i;
	}
	free(q->ring);
	q->ring = ring;
	q->room = room;
	q->at = 0;
}

void lock_pipeline_push(struct lock_pipeline *q, struct lock_call *c)
{
	if (q->count == q->room)
		pipeline_grow(q);
	size_t slot = (q->at + q->count++) % q->room;
	q->ring[slot] = c;
	if (!c)
		return;
	c->slot = slot;
	c->state = LOCK_CALL_SENT;
	c->sent_at = clock_now();
}

struct lock_call *lock_pipeline_pop(struct lock_pipeline *q)
{
	struct lock_call *c = q->ring[q->at];

	q->at = (q->at + 1) % q->room;
	q->count--;
	if (c)
		c->state = LOCK_CALL_IDLE;
	return c;
}

bool lock_pipeline_forget(struct lock_pipeline *q, struct lock_call *c)
{
	if (c->state == LOCK_CALL_WAITS)
		pipeline_remove(q, c);
	if (c->state != LOCK_CALL_SENT)
		return false;
	q->ring[c->slot] = NULL;
	c->state = LOCK_CALL_IDLE;
	return true;
}

void lock_pipeline_lose(struct lock_pipeline *q, bool waiting, enum lock_outcome outcome, const struct err *why)
{
	uint64_t round = q->round++;
	struct lock_call *c;

	for (size_t n = q->count; n && !q->stopped; n--) {
		c = lock_pipeline_pop(q);
		if (c)
			c->lost(c, true, outcome, why);
	}
	while (waiting && !q->stopped && q->first && q->first->round <= round) {
		c = lock_pipeline_next(q);
		c->lost(c, false, outcome, why);
	}
}

void lock_pipeline_fini(struct lock_pipeline *q)
{
	free(q->ring);
	q->ring = NULL;
}
