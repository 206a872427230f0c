/* The supervision of on_next: the pure state machine that says what follows when the elector, the worker or its
 * processes report something about a candidate that comes next. Like term_hooks.h it does no I/O, reads no clock and
 * allocates nothing: events come in, actions come out. Not who comes next: the elector says that (elector.h). Used
 * by term_supervision.c and tests.
 *
 *           it comes next              it leads                the worker has taken it
 *     IDLE ---------------> RUNNING ---------------> TAKING ------------------------------> TAKEN
 *      ^                     |   |                     |                                      |
 *      |     not any more    |   | it failed           | no answer in time, or it failed      | the term is over
 *      |                     v   +---------+           v                                      v
 *      |                   ENDING <--------|-------- ENDING                                 IDLE
 *      |                     |             |
 *      |                     v the worker has ended it
 *      +------------------ SWEEPING
 *
 * What is kept in every state: the worker has at most one on_next that no term has taken and that is not over; each
 * NEXT is answered before the following one is sent; what an on_next of one number left behind is swept before the
 * next number begins; a term never waits for an on_next that does not answer: after the grace the on_next is over,
 * also for code that reads no messages, and after a second grace its worker is killed. */
#pragma once

#include "base/clock.h"

#include <stdbool.h>
#include <stdint.h>

enum on_next_state {
	ON_NEXT_IDLE,
	ON_NEXT_RUNNING,  /* the worker was told that it comes next */
	ON_NEXT_TAKING,   /* a term was told to take what it runs */
	ON_NEXT_TAKEN,    /* it has: what on_next started belongs to the term */
	ON_NEXT_ENDING,   /* the worker was told to end it */
	ON_NEXT_SWEEPING, /* what it left behind is being looked for */
};

enum on_next_event_kind {
	ON_NEXT_EV_NEXT,     /* the elector: this candidate comes next */
	ON_NEXT_EV_NOT_NEXT, /* the elector: it no longer comes next, and does not lead either */
	/* the elector: it leads, and the worker is told: next_hooks_takes is what the term takes */
	ON_NEXT_EV_LEAD,
	ON_NEXT_EV_TERM_OVER, /* nothing of that term runs any more */
	ON_NEXT_EV_STOPPED,   /* the worker: number, end */
	ON_NEXT_EV_SWEPT,     /* number, clean */
	ON_NEXT_EV_DEAD,      /* the worker is, with all that it started */
	ON_NEXT_EV_READY,     /* a worker can be talked to */
	ON_NEXT_EV_MOVE,      /* a reload: what runs is to end, since another worker takes over */
	ON_NEXT_EV_TIMER,     /* of ON_NEXT_DO_TIMER */
};

enum on_next_end { ON_NEXT_END_DONE, ON_NEXT_END_FAILED, ON_NEXT_END_TAKEN }; /* as enum wire_next_end */

struct on_next_event {
	enum on_next_event_kind kind;
	uint32_t number;
	enum on_next_end end;
	bool clean;
	bool ready; /* a worker can be talked to now */
	bool moves; /* another worker is to take over what this one has, so nothing begins */
};

/* Actions, in the order in which they are carried out. */
enum on_next_do {
	ON_NEXT_DO_TIMER_OFF = 1 << 0,
	ON_NEXT_DO_BEGIN = 1 << 1, /* tell the worker: number, grace */
	ON_NEXT_DO_OVER =
		1 << 2, /* write into the page that it is over, interrupt the worker, and tell it: number, grace */
	ON_NEXT_DO_SWEEP = 1 << 3, /* kill what it left behind: ON_NEXT_EV_SWEPT follows */
	ON_NEXT_DO_KILL = 1 << 4,  /* the worker: ON_NEXT_EV_DEAD follows */
	ON_NEXT_DO_TIMER = 1 << 5, /* after the grace; in place of one that runs */
	ON_NEXT_DO_IDLE =
		1 << 6, /* nothing of it runs any more: a reload goes on, and so does the end of the program */
};

struct on_next_actions {
	unsigned set; /* of enum on_next_do */
	enum on_next_note { ON_NEXT_NOTE_NONE, ON_NEXT_NOTE_LATE, ON_NEXT_NOTE_KILLS, ON_NEXT_NOTE_LEFTOVER } note;
};

/* Caller's memory. Zeroed: no on_next. Read state, number, failed; the rest is private to next_hooks.c. */
struct next_hooks {
	enum on_next_state state;
	uint32_t number; /* of the on_next that runs, or the last one; 0: there was none */
	unsigned failed; /* how many have failed */
	nsec grace;
	bool has;  /* the script has on_next or on_next_over */
	bool next; /* this candidate comes next */
	bool cold; /* it comes next, but its on_next is over, and is begun only once for that */
};

void next_hooks_configure(struct next_hooks *h, bool has, nsec grace);
struct on_next_actions next_hooks_step(struct next_hooks *h, const struct on_next_event *e);

/* After ON_NEXT_EV_LEAD: the number of the on_next that the term is to take; 0: none. */
uint32_t next_hooks_takes(const struct next_hooks *h);

/* The number of the on_next whose leftovers the sweep of the term looks for, too; 0: none. */
uint32_t next_hooks_swept_with_term(const struct next_hooks *h);
