/* Who comes next in an election, as its user sees it and sets it (docs/design.md, "Who comes next").
 * Not the decision: that is lease/next.h. Only declarations.
 * Used by the elector and its users. */
#pragma once

#include "base/clock.h"

#include <stdbool.h>
#include <stdint.h>

struct elector_next { /* texts are borrowed until the next elector_ call; "" = none */
	bool known;   /* somebody comes next; if not, the identity, priority and since are "", 0 and -1 */
	bool self;    /* this candidate does */
	const char *identity, *address; /* address: may be "" */
	int64_t priority;
	nsec since;          /* for how long this process has known it; -1: unknown */
	const char *trouble; /* why this candidate cannot read or write who comes next, with the record's name */
	const char *wanted;  /* the identity that the leader wants as next */
	nsec absent;         /* leader: for how long nobody has come next; 0 */
	nsec preempts_in; /* leader: until it hands over to a larger priority; NSEC_NEVER, or -1 on a standby: it does not */
	nsec preempt_after;     /* how long it waits for that: as it was told, or longer after short terms */
	nsec rotates_in;        /* leader: until its term is as long as a term may be; -1: that has no end */
	int64_t priority_self;  /* of this candidate */
	bool able;              /* this candidate could come next now */
	const char *unable_why; /* if not: why not, for people */
	bool handing_over;      /* a request to hand over is under way: `handed_over` follows */
	uint64_t handovers[3];  /* terms that were handed over, by enum next_why */
};

enum handover_end {
	HANDOVER_DONE,   /* another candidate leads */
	HANDOVER_NOT,    /* the term goes on, or it is not known who leads; another try may succeed */
	HANDOVER_UNSEEN, /* the lock was released for the next one, and this process ended before it saw who leads */
};
struct handover_result { /* borrowed during the call */
	enum handover_end end;
	const char *identity, *address; /* DONE: who leads now */
	/* DONE: for how long nobody led: from the sending of the release until the new leader's record was seen. -1:
	 * not known, since the lease was lost before it was released. */
	nsec gap;
	const char *why; /* the others: for people */
};
