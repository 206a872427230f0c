/* The memory of a lease machine (lease.h): what it has seen, what it has sent, and when it acts next.
 * Not for other files, which use lease.h's functions: `make lint` refuses to let them include this header.
 * Used by lease.c and lease_waits.c, by the simulator (tests/sim/world.h), which copies whole machines and checks what
 * they know, and by the replay of the model's traces (tests/model/replay.c), which compares what they know. */
#pragma once

#include "lease/lease.h"

/* A write of ours that is, or may be, in the store, and the times that it publishes. */
struct lease_sent {
	uint64_t write, term;
	struct instant at;
	nsec lease, renew, grace;
	uint64_t save; /* the newest save that it carries */
	bool fenced;   /* it says that the term begins */
	enum lease_write what;
};

struct lease {
	struct lease_times times;
	bool observer, asks, keeps, watching;
	enum lease_phase phase;
	uint32_t noise; /* state of the polling's jitter */

	/* What the store shows. */
	struct lease_sight seen; /* the newest of: what the last read showed, what our last good write wrote */
	struct instant seen_at;  /* when exactly that record was first received */
	bool looked, had_record; /* a read has succeeded; there has been a record */
	struct lease_sight last; /* the last record, or its absence: went_back compares the next one with it */
	bool met;                /* `seen` is an absence that is over: a create conflicted since */
	bool own;                /* `seen` is by a write of ours, and has been in the store ever since that was known */
	bool dead;               /* the holder of `seen` is proved dead */
	struct instant dead_at;  /* since when */
	/* The last record is gone, or is of another store, and no process that had read it replaced it. Its holder
	 * may still be in its term, whatever is seen from then on. A standby waits for the longest duration that it
	 * has seen, since it may not have seen the last record. */
	bool gone;
	struct instant gone_at;
	nsec longest;

	/* What of ours may be in the store. */
	struct lease_sent good;      /* our last write that was applied in this term: the deadlines count from it */
	uint64_t writes, last_write; /* how many writes were sent, and the name of the last one */
	struct lease_sent limbo[LEASE_LIMBO]; /* the writes whose outcome is unknown, oldest first */
	int limbo_len;
	uint64_t term, top_term; /* our running or last term; the largest term seen of anybody */

	/* The operation under way, and when the next may start. */
	uint64_t op;
	bool busy, dirty; /* busy: it is under way. dirty: the watch told of a change meanwhile */
	enum lease_write writing;
	bool look_due, stale; /* a read is wanted next; a read must come before the next write, after a conflict */
	struct instant next_look, next_try, next_poll;
	int soon;          /* as often, the next poll comes twice as fast as the one after it (LEASE_EV_SOON) */
	int setbacks;      /* how many writes in a row conflicted or had an unknown outcome */
	int lows;          /* how many acquisitions in a row were released because their tokens were too low */
	int refusals;      /* how many operations in a row were refused */
	bool refused_look; /* the last refused operation was a read, not a write */

	/* The answer of the may_lead hook. */
	bool asked, yes;
	struct instant asked_at;

	/* How a term ends, and what comes after it. */
	enum lease_reason reason;
	bool started, paused, finish, finished, next_term;
	bool script_runs, unreaped;
	bool barred;
	bool fencing, fenced; /* fencing: the term, in all of its phases, has not begun. fenced: it may */
	struct instant stop_by, release_by;
	uint64_t save_wanted, saved; /* the newest save asked for; the newest that has been answered */
	bool save_due, renew_due;    /* the newest save is in no write yet; LEASE_EV_RENEW, and no write since */
	struct instant out_since;    /* the time in which nothing is acquired begins */
	nsec out_for, sit_out; /* out_for: the length of that time. sit_out: out_for after the term that is ending */

	/* What was reported. */
	bool reported;
	uint64_t reported_who;
	struct instant published_end, published_kill;
};

/* What the memory means at a time (lease_waits.c). None of these changes it. */
bool lease_in_term(const struct lease *l);       /* the script may run, and the lease is renewed */
bool lease_holds(const struct lease *l);         /* by our phase the record is ours; our writes keep or release it */
bool lease_campaigns(const struct lease *l);     /* it is a standby that may acquire */
bool lease_held_by_other(const struct lease *l); /* the record names another holder, who is not proved dead */
/* How long until the record lets others acquire; until this candidate may try, which it may put off for another one;
 * and until the time is over in which it does not campaign. 0: now. NSEC_NEVER: not as things are. */
nsec lease_wait_left(const struct lease *l, struct instant now);
nsec lease_try_left(const struct lease *l, struct instant now);
nsec lease_out_left(const struct lease *l, struct instant now);
