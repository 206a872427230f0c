/* Room election: one election: a lease, a lock and timers; and the proof that a holder on this machine is dead.
 *
 * One election: a lease, a lock, a clock and the loop between them.
 * Not a supervisor and not a script host: it says when to start and stop, its user does it and reports back.
 * Used by the rooms term, program, run, exec and simulation. */
#pragma once

#include "base/log.h"
#include "election/death_proof.h"
#include "election/next.h"
#include "election/store_contact.h"
#include "lease/lease.h"
#include "lease/next.h"
#include "locks/lock.h"

struct ev_loop;
struct elector;
struct death_watches;
struct poke_sockets;
struct timeline;

/* borrowed for elector_new only, but for env, timeline, self and death_watches, which outlive it */
struct elector_config {
	struct lock_env *env;
	struct timeline *timeline; /* for its timer */
	const struct proof_self *self;
	struct death_watches *death_watches; /* NULL: no take-over on proof of death */
	struct poke_sockets *pokes;          /* NULL: none is heard or sent; else they outlive the elector */
	const char *lock;                    /* URL */
	struct lock *opened;  /* the lock, if it is opened already: taken, once elector_new succeeds; else NULL */
	uint32_t seed;        /* of the polling's jitter; 0: random */
	const char *name;     /* of the election, for the log; NULL or "" = it has none */
	const char *identity; /* "" = hostname_INCARNATION */
	const char *address;  /* may be "" */
	struct lease_times times;
	bool observer, asks, reclaim;
	bool no_release; /* leave the lease to expire at the end */
	struct next_options next;
	const struct elector_fence *fence;   /* NULL: no fence; else it outlives the elector */
	void *fence_arg;                     /* outlives the elector */
	const struct elector_before *before; /* NULL: nobody; else it outlives the elector */
	void *before_arg;                    /* outlives the elector */
};

struct elector_fence;

struct elector_term {
	uint64_t term;
	int64_t token;
	const char *identity, *address, *lock;
	struct instant end, kill;
};

/* The fence: what makes sure, before a term begins, that the holders of earlier ones do nothing any more. The user hears
 * of the term after that. All three are called as the user's callbacks of the same kind are. */
struct elector_fence {
	/* Fence those in `unfenced` (debt_parse) but for this identity's own; then call elector_fenced, or elector_end. */
	void (*begin)(void *arg, const struct elector_term *t, const char *unfenced);
	void (*deadline)(void *arg, struct instant end, struct instant kill);
	/* Kill what begin has started, and call elector_stopped. What lives then is to be dead by this instant. */
	void (*stop)(void *arg, struct instant stop_by);
};

/* What stands between the elector and its user. Both are called from the loop, in the place of the user's callbacks
 * of that name. */
struct elector_before {
	void (*lead)(void *arg, const struct elector_term *t); /* the user's lead follows */
	/* true: the user's stop is not called now. Whoever returned true calls it later, unless the elector's phase
	 * is no longer PHASE_ENDING by then. */
	bool (*stop)(void *arg, enum lease_reason reason, bool held, struct instant stop_by);
};

struct elector_leader {
	const char *identity, *address; /* never "" / may be "" */
	int64_t token;
	uint64_t term;
	bool self;
	bool above;           /* its elector is one that this process runs under: it may be waiting for us */
	nsec doubt;           /* how long it may take to find out whether it is dead; 0: nothing says that it is */
	const char *previous; /* the holder reported or read before it; "" = unknown */
};

/* All are called from the loop. lead, deadline, stop, ask, renewed, trouble, saved, next, hand_over and handed_over
 * may also be called from inside an elector_ function; leader from inside elector_tell_leader; the others never are. */
struct elector_callbacks {
	void (*lead)(void *arg, const struct elector_term *t);
	void (*deadline)(void *arg, struct instant end, struct instant kill); /* the running term's have moved */
	/* The user is to stop what lead started, and then to call elector_stopped. What still runs at the kill deadline
	 * or at stop_by, whichever comes first, is to be killed. held: the lease is kept and renewed until then, and
	 * `deadline` tells how the kill deadline moves. If the lease is lost meanwhile, stop is called again. */
	void (*stop)(void *arg, enum lease_reason reason, bool held, struct instant stop_by);
	void (*leader)(void *arg, const struct elector_leader *l);
	void (*no_leader)(void *arg, const char *previous);
	void (*ask)(void *arg); /* answer with elector_answer, now or later */
	void (*saved)(void *arg, uint64_t save,
	              bool good);              /* answers this elector_save and all earlier ones; may be NULL */
	void (*renewed)(void *arg, nsec took); /* a renewal was written, this time after it was sent; may be NULL */
	/* Called at each try that fails, or that finds no record in the lock. why NULL: the trouble is over. May be
	 * NULL. */
	void (*trouble)(void *arg, const char *why);
	/* The store, or what reaches it, says that the lock's URL or settings are wrong, and has never given another
	 * answer, so another try would not help. Called at each try, last in its turn. May be NULL. */
	void (*hopeless)(void *arg, const char *why);
	/* is: this candidate comes next from now on. Else it no longer comes next; leads: because it leads, and
	 * `lead` follows. May be NULL, as the two below. */
	void (*next)(void *arg, bool is, bool leads);
	/* The running term is to be handed over to the candidate that comes next: answer with elector_end, with the
	 * reason LEASE_RESIGNED and a sit_out of 0, as if an operator had asked for that. Once in a term. */
	void (*hand_over)(void *arg, enum next_why why);
	/* Answers elector_hand_over, once; elector_free may call it. It may end the elector, but not free it. May be
	 * NULL. */
	void (*handed_over)(void *arg, uint64_t ticket, const struct handover_result *r);
	void (*finished)(void *arg, bool left); /* after elector_end(.., NSEC_NEVER): released, or left to expire */
};

/* Whether a text can be written into a record. what: its name in *err. text may be NULL. */
int elector_check_text(const char *what, const char *text, struct err *err);

struct elector *elector_new(const struct elector_config *c, const struct elector_callbacks *cb, void *arg,
                            struct err *err);
/* why NULL: the candidate campaigns: it reads the record, and leads when the lock is free. A new elector does not
 * campaign yet. why not NULL: static text that says what keeps the candidate from campaigning; a running term goes
 * on. Call it whenever the answer may have changed; the same answer again does nothing. */
void elector_bar(struct elector *e, const char *why);
/* address NULL, priority NULL: as it was. May also be called without having been asked. */
void elector_answer(struct elector *e, bool yes, const char *address, const int64_t *priority);
void elector_answer_late(struct elector *e); /* may_lead has not answered in time: until it does, it is no yes */
void elector_stopped(struct elector *e, bool reaped); /* reaped: nothing of the term runs */
void elector_fenced(struct elector *e);               /* all are: `lead` follows when the record says so */

/* Ends the term, if one runs, for this reason, and releases the lease when the script has stopped. The candidate does
 * not campaign for sit_out, also if no term runs. NSEC_NEVER: never again; `finished` follows. grace: the time that the
 * script has to stop; 0: G. */
void elector_end(struct elector *e, enum lease_reason reason, nsec sit_out, nsec grace);
/* For a reload: ends the term, and leads again without releasing the lease. grace: as for elector_end. */
void elector_next_term(struct elector *e, nsec grace);
void elector_configure(struct elector *e, const struct lease_times *t); /* published by the next write */
void elector_configure_next(struct elector *e, const struct next_options *o);
/* Changes what else a reload may change. address NULL: as it was; "": none. asks: as in elector_config, for the next
 * acquisition. */
void elector_configure_user(struct elector *e, const char *address, bool asks);
/* Whether its user could lead now (a worker is there); true from the start. Part of elector_status.lacks. */
void elector_ready(struct elector *e, bool ready);
/* Another store has answered in place of the lock's: from now on it is the lock's. Does nothing if none has. */
void elector_accept_store(struct elector *e);
void elector_look(struct elector *e); /* after a suspend: looks at the deadlines now */

/* For a worker that is new: calls `leader` again, if another candidate leads. Of a term of our own it hears from
 * `lead`. */
void elector_tell_leader(struct elector *e);

/* Writes a checkpoint into the record, at once, by the same compare-and-swap as every other write. A later save takes
 * the place of one that is still on its way. `saved` follows. It is good if the write, or that of a later save, is
 * known to be in the store while the term that ran at this call still leads. It is not good if that term ended first,
 * or if none ran. If the outcome of a write is unknown, the record is read, and the write repeated, until it is known.
 * save: larger than any before. -1: this cannot be a checkpoint (ERR_FULL: it is too long), and `saved` does not
 * follow. */
int elector_save(struct elector *e, uint64_t save, const char *json, struct err *err);
/* of the record as it was last seen; NULL: it has none; borrowed until the next elector_ call */
const char *elector_checkpoint(const struct elector *e);

/* Hands over to the candidate with the identity `to` ("": whoever comes next), once that one has answered, within
 * `timeout`; handed_over follows when it is known who leads then. -1 with *err: this candidate does not lead, its term
 * ends already, the lock has no place for who comes next, or another request is under way. */
int elector_hand_over(struct elector *e, uint64_t ticket, const char *to, nsec timeout, struct err *err);

struct elector_status { /* texts are borrowed until the next elector_ call; "" = none */
	enum lease_phase phase;
	bool leading;
	bool fencing; /* it holds the lease, and fences earlier holders before its term begins */
	uint64_t term;
	int64_t token;
	nsec remaining;     /* until is_leading turns false */
	nsec until;         /* when it turns false unless it renews, by CLOCK_BOOTTIME; 0 while it does not lead */
	nsec since_began;   /* of a term that has not ended; -1: there is none */
	nsec since_renewal; /* since the last good write of a term that has not ended was sent; -1: there is none */
	const char *identity, *address, *lock, *leader;
	const char *name;         /* of the election; "" = it has none */
	struct lease_times times; /* in force */
	uint64_t renewals_ok, renewals_failed, slow_paths, transitions;

	/* Why it could not lead now, by all that is known (readiness.h): NULL: it could, or it leads. The rest says
	 * more of what keeps it from leading. */
	const char *lacks;
	bool worker; /* its user could lead: elector_ready */
	struct lease_standing standing;
	uint64_t namesake_writes; /* writes of other candidates with this identity that were seen */
	nsec namesake_for;        /* since the last of those writes; -1: there was none */
	const char *paused_why;
	const char *barred; /* why it must not acquire the lock, as long as earlier holders may still act; "": it may */
	const char *trouble; /* what was last wrong with the store or the record, and is not over */
	nsec trouble_for;

	/* The store. */
	struct store_contact store;
	nsec store_silence; /* since it answered last; before it ever did, since the elector was made */

	struct elector_next next;
	const struct record *record; /* as it was last seen; nobody holds it where there is none */
	uint64_t pokes_sent, pokes_heard;
	const char *poke; /* where this candidate hears a poke while it comes next; "": nowhere */
};
void elector_status(const struct elector *e, struct elector_status *out);

/* elector_status.leading alone. */
bool elector_leads(const struct elector *e);

/* Appends the last decisions with their times, oldest first, one line each. */
struct buf;
void elector_why(const struct elector *e, struct buf *out);

void elector_free(struct elector *e); /* cancels what is under way; no callback follows but handed_over */
