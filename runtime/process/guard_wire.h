/* What guard and supervisor must agree upon: notes, orders, and how a process shows to which term it belongs.
 * Not the messages between elector and worker: those are wire.h.
 * Used by guard.c and supervisor.c; the marker also by who starts programs in a term. */
#pragma once

#include <stdint.h>

/* The environment marker of what a term starts: "LUNARCH_TERM=slot.term"; a worker outside any term has "-". */
#define TERM_MARK_ENV "LUNARCH_TERM"
/* The environment marker of what on_next starts, before any term: "LUNARCH_NEXT=slot.number", beside LUNARCH_TERM=-. */
#define NEXT_MARK_ENV "LUNARCH_NEXT"

/* A note goes from the guard to the supervisor, an order the other way. Each is one datagram, and all are of one size
 * but for GUARD_BEGIN. */

enum guard_note_type {
	GUARD_STARTED = 1, /* value: pid of the worker or command */
	GUARD_ENDED,       /* value: its wait status; what it left behind is being killed */
	GUARD_SWEPT,       /* value: how many were killed; slot, term, next: as the orders had them */
	GUARD_UNCLEAR,     /* the same, but some process cannot be attributed */
	GUARD_STOPPED,     /* the command was stopped by a signal */
	GUARD_CONTINUED,
	GUARD_FAILED, /* slot: enum guard_failure, value: errno or 0. It ends its tree because of that */
};

enum guard_failure {
	GUARD_CANNOT_READ = 1, /* its orders */
	GUARD_NO_ORDER,        /* what came is none */
	GUARD_CANNOT_BEGIN,    /* its worker waits for a byte that cannot be written */
};

struct guard_note {
	uint32_t type;
	int32_t value;
	uint32_t slot, next;
	uint64_t term;
};

/* Stands at the end of the guard's mode, which is one of its arguments, where struct supervisor_spec says no_privileges. */
#define GUARD_NO_PRIVILEGES "-no-privileges"

enum guard_order_type {
	GUARD_POKE = 1,  /* look at the page again */
	GUARD_INTERRUPT, /* SIGRTMIN to the worker */
	GUARD_SIGNAL,    /* signal, to the command's process group, or to the worker */
	GUARD_KILL,      /* everything, now */
	/* what term, or that number of on_next, or both (not 0) left behind on slot. GUARD_SWEPT or GUARD_UNCLEAR
	 * answers, perhaps two orders at once */
	GUARD_SWEEP,
	GUARD_BEGIN, /* struct guard_begin: a guard that is held starts its command */
};

struct guard_order {
	uint32_t type;
	int32_t signal;
	uint32_t slot, next;
	uint64_t term;
};

_Static_assert(sizeof(struct guard_note) == sizeof(struct guard_order), "one channel, one size");

/* The one order that is longer: the deadlines are in the page, and these variables take the places of those with the
 * same names in the guard's environment. */
struct guard_begin {
	struct guard_order order;
	char variables[16384]; /* "NAME=value" and a NUL, each; only so much of it is sent as there is */
};
