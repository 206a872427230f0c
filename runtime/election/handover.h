/* A hand-over that somebody has asked this elector for (`lunarch ctl handover`): from the order until it is known who
 * leads. Not the decision to whom and when, which is lease/successor.h's, and not the ending of the term.
 * Used by candidate.c and the room exec, which tell it what their elector's callbacks say. */
#ifndef LUNARCH_HANDOVER_H
#define LUNARCH_HANDOVER_H

#include "election/elector.h"

#include <ev.h>

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
/* From the loop, or from inside a handover_ function; once for each handover_begin that succeeded. It may end the
 * elector, but not free it. */
typedef void handover_done(void *arg, uint64_t ticket, const struct handover_result *r);

/* In the caller's memory; not to be looked into. */
struct handover {
	struct ev_loop *loop;
	ev_timer timer;
	handover_done *done;
	void *arg;
	struct elector *elector;
	uint64_t ticket;
	char request[33];
	enum { HANDOVER_NONE, HANDOVER_ASKED, HANDOVER_ENDING, HANDOVER_RELEASED } stage;
	struct instant released_at;
};

void handover_init(struct handover *h, struct ev_loop *loop, handover_done *done, void *arg);

/* Asks the elector to hand over to the candidate `to`, "" = whoever comes next, which may take so long to answer.
 * ticket: for done. -1 with *err: it cannot, or another request is under way. */
int handover_begin(struct handover *h, struct elector *e, uint64_t ticket, const char *to, nsec timeout,
                   struct err *err);
bool handover_pending(const struct handover *h);

/* What the elector says; each may be told at any time. */
void handover_ends(struct handover *h, enum successor_why why);                  /* its `hand_over` */
void handover_refused(struct handover *h, const char *request, const char *why); /* its `not_handed_over` */
void handover_leader(struct handover *h, const struct elector_leader *l);        /* its `leader` */
void handover_released(struct handover *h); /* elector_stopped was called: the release is on its way */

/* The process, or the election, ends: a request that is under way gets its answer. h may be zeroed. */
void handover_fini(struct handover *h);

#endif
