/* The memory of a lease machine (lease.h): what it has seen, what it has sent, and when it acts next.
 * Not for users: they have lease.h's events, actions and accessors. `make lint` refuses this header in other files.
 * Included by lease.c, and by the simulator, which copies whole machines and compares what they know with its world. */
#ifndef LUNARCH_LEASE_INTERNAL_H
#define LUNARCH_LEASE_INTERNAL_H

#include "lease/lease.h"

/* A write of ours that is, or may be, in the store, and the times it publishes. */
struct lease_sent {
	uint64_t write, term;
	struct instant at;
	nsec lease, renew, grace;
	uint64_t save; /* the newest it carries */
	enum lease_write what;
};

struct lease {
	struct lease_times times;
	bool observer, asks, keeps, watching;
	enum lease_phase phase;
	uint32_t noise; /* state of the polling's jitter */

	/* What the store shows. */
	struct lease_sight seen; /* the last look, or what our last good write made of it */
	struct instant seen_at;  /* receipt of the first sight of exactly that record */
	bool looked, had_record; /* looked at all; ever saw a record */
	bool dead;               /* the holder of `seen` is proved dead */
	nsec longest; /* duration seen: what an absence is waited out for, since the record that is gone may not have
	                 been seen */

	/* What of ours may be in the store. */
	struct lease_sent good;      /* the write our term rests on */
	uint64_t own_write;          /* the last write of ours known to have been in the store */
	uint64_t writes, last_write; /* how many were sent, and the name of the last */
	struct lease_sent limbo[LEASE_LIMBO];
	int limbo_len;
	uint64_t term, top_term; /* ours, running or last; the largest ever seen */

	/* The operation under way, and when the next may start. */
	uint64_t op;
	bool busy, dirty; /* dirty: something changed while it was under way */
	enum lease_write writing;
	bool look_due, stale; /* read before the next write: should, must */
	struct instant next_look, next_try, next_poll;
	int setbacks;      /* conflicts and unknown outcomes in a row */
	int lows;          /* terms let go in a row, for their tokens */
	int refusals;      /* in a row, */
	bool refused_look; /*     of looks (else of writes) */

	/* may_lead. */
	bool asked, yes;
	struct instant asked_at;

	/* How a term ends, and what comes after it. */
	enum lease_reason reason;
	bool started, paused, finish, finished, next_term;
	bool script_runs, unreaped;
	struct instant stop_by, release_by;
	uint64_t save_wanted, saved; /* the newest asked for, and known to be in the record */
	bool save_due;               /* wanted, and not in any write yet */
	struct instant out_since;    /* sitting out from here, */
	nsec out_for, sit_out;       /* this long; and after the term that is ending */

	/* What was reported. */
	bool reported;
	uint64_t reported_who;
	struct instant published_end, published_kill;
};

#endif
