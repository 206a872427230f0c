/* Room lease: the rules of a lease as a pure state machine, and the record that a store keeps.
 *
 * The lease: the pure state machine that decides who may lead and for how long (docs/design.md, "Time").
 * It does no I/O, reads no clock, allocates nothing: events and instants come in, actions come out.
 * Used by the elector, the simulator and the unit tests, which all run the same code.
 *
 *            free and may_lead                 written in time
 *  FOLLOWING ------------------> (acquiring) ------------------> LEADING
 *      ^  ^                                                       |   |
 *      |  |    released, or not ours any more        asked to end |   | R passed, or a definite loss
 *      |  +------------------------ RELEASING <---- ENDING <------+   v
 *      |                           (or NEXT TERM)  (renews on)       LOST   (renews no more)
 *      +--------------------------- script reaped -------------------+
 *
 * At most one store operation is under way at a time. After every event the caller has lease_step's actions carried
 * out by lease_carry_out, then arms a timer for lease_wait. */
#pragma once

#include "base/clock.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All in nanoseconds. docs/design.md calls them L, R, P, G, K and D. */
struct lease_times {
	nsec lease; /* L: how long the lease lasts after a renewal; then others may acquire it */
	nsec renew; /* R: a holder that has not renewed for this time ends its term */
	nsec retry; /* P: how often a holder renews, and a standby polls */
	nsec grace; /* G: the script's time to stop */
	nsec kill;  /* K: the time from SIGKILL until the last process is reaped */
	nsec drift; /* D: spare time, for clocks that run at different rates */
};

/* Checks R+G+K+D <= L, R > 1.2 P and that each is positive. -1: the text names the numbers and the rule. */
int lease_times_check(const struct lease_times *t, struct err *err);

/* Fills what is 0: nothing given = 15/10/2/3/1/1 s; only L: R = 2L/3, P = 2L/15; L and R: L-R split G 60%, K 20%, D
 * 20%. */
void lease_times_default(struct lease_times *t);

/* The largest clock-rate difference these times tolerate, as a fraction: D/(L-D). */
double lease_drift_tolerance(const struct lease_times *t);

enum lease_reason { /* why a term ended */
	            LEASE_RESIGNED,
	            LEASE_DECLINED,
	            LEASE_SHUTDOWN,
	            LEASE_EXPIRED, /* could not renew until R */
	            LEASE_STOLEN,  /* "lost": another holder is in the record */
	            LEASE_DELETED, /* the record is gone, or is no longer a record of ours */
	            LEASE_ERROR,   /* the script raised */
	            LEASE_KILLED,  /* the script's hook had to be killed */
	            LEASE_WORKER,  /* the worker died, or was killed for another election's sake */
	            LEASE_RELOAD,
	            LEASE_DONE,         /* the command has ended by itself */
	            LEASE_FENCE_FAILED, /* the term has not begun: earlier ones could not be fenced */
	            LEASE_REASONS
};
const char *lease_reason_name(enum lease_reason r); /* "resigned" ... as scripts see them */

/* What a read of the store shows, as far as a decision depends on it. The elector makes it from a record. */
enum sight_kind {
	SIGHT_ABSENT,
	SIGHT_RELEASED, /* no holder, and the last holder wrote that itself */
	SIGHT_EMPTIED,  /* no holder, but the record still says "leading": a person emptied it */
	SIGHT_HELD,
	SIGHT_FOREIGN, /* not an election record: it is never written to */
};
struct lease_sight {
	enum sight_kind kind;
	/* Two sights with equal ids show the same record (record_sight_id): also not one that was created a second time
	 * by the same write, where the store can tell. */
	uint64_t id;
	uint64_t who;   /* two sights with equal numbers show the same holder in the same term */
	uint64_t write; /* name of the write that made the record, 0 = none */
	bool mine;      /* this process (its incarnation) holds the record */
	bool namesake;  /* not mine, but our identity holds it: an earlier run of ours, or another candidate */
	/* Our identity held it before the last boot, and the user said (--reclaim) that the identity lives only once:
	 * that holder is dead. */
	bool reclaim;
	nsec duration; /* what the record publishes: 0 = expired at once */
	uint64_t term;
	uint64_t count; /* how many writes the holder's incarnation had made with this one; 0 = not in the record */
	/* The record names another candidate, who tries first: it was released for that one, or (held) published that
	 * it comes next. This one holds back for a moment (lease_hold_back) once it might acquire. */
	bool other_first;
	/* It was written in another store than the one that shows it, as after a restore. The holder that it names
	 * may have been followed by others there. So it counts as nobody's, and is waited out whatever else it says.
	 * Its id differs in each store that shows it. */
	bool elsewhere;
	/* Its term has not begun: its holder fences earlier ones. So nobody leads by it. */
	bool fencing;
	/* Mine, but its token is not larger than the largest that this process has seen: no term may begin with it. */
	bool low_token;
};

enum lease_write { /* what a write is for */
	           LEASE_ACQUIRE,
	           LEASE_RENEW,
	           LEASE_RELEASE,
	           LEASE_NEXT_TERM, /* same holder, larger term and token (reload) */
};

enum lease_outcome {
	OUTCOME_OK,
	OUTCOME_CONFLICT,
	OUTCOME_UNKNOWN, /* the write may have been applied, or may be applied later */
	OUTCOME_FAILED,  /* the write was not and will not be applied; or a read got no answer */
};

enum lease_event_kind {
	LEASE_EV_TICK,        /* time passed; also the first event after any late wake-up */
	LEASE_EV_CAMPAIGN,    /* start (or go on) campaigning */
	LEASE_EV_READ_DONE,   /* op, outcome OK or FAILED, sight */
	LEASE_EV_WRITE_DONE,  /* op, outcome, sent_at */
	LEASE_EV_CHANGED,     /* the watch says that the record changed */
	LEASE_EV_HOLDER_DEAD, /* id: the holder of exactly that record is proved dead */
	LEASE_EV_ANSWER,      /* may_lead was answered: yes */
	LEASE_EV_END,     /* end the term (reason), release, acquire nothing for `sit_out` (NSEC_NEVER: never again) */
	LEASE_EV_STOPPED, /* the script has stopped; reaped: none of its processes is left; else one may be */
	LEASE_EV_PAUSE,   /* stop campaigning; the running term goes on */
	LEASE_EV_SAVE,    /* save: the script wants its checkpoint in the record; answered by SAVED or UNSAVED */
	LEASE_EV_RENEW,   /* what the next renewal says is to be in the record soon: it is due now */
	LEASE_EV_SOON,    /* a standby: the lock is about to be released for it, so it polls soon, then ever later */
	LEASE_EV_FENCED,  /* answers LEASE_DO_FENCE: the term may begin. Else the answer is END */
	LEASE_EV_SENT,    /* write, sent_at: the write that LEASE_DO_WRITE asked for is about to be sent */
};
struct lease_event {
	enum lease_event_kind kind;
	uint64_t op;    /* READ_DONE, WRITE_DONE: the action's number; an event with another one is late, and ignored */
	uint64_t write; /* SENT: the write's random name, not 0 */
	enum lease_outcome outcome;
	bool refused;           /* OUTCOME_FAILED: another try would hardly help, so a standby tries ever more rarely */
	struct instant sent_at; /* SENT, WRITE_DONE */
	struct lease_sight sight; /* READ_DONE with OUTCOME_OK; WRITE_DONE with OUTCOME_OK: what was written */
	uint64_t id;              /* HOLDER_DEAD */
	bool yes;                 /* ANSWER */
	enum lease_reason reason; /* END */
	nsec sit_out;             /* END; 0 with reason RELOAD: the next term follows without a release between */
	nsec grace;               /* END: the script's time to stop; 0 = G */
	bool reaped;              /* STOPPED */
	uint64_t save; /* SAVE: larger than any before it. The answer to a save also answers all earlier ones */
};

/* Actions, in the order in which they are carried out. What others wait for comes first: the worker's hook, then the
 * store. Then it is said who leads. */
enum lease_do {
	/* The sight was written by a copy of this process: its machine was cloned while it ran. Take a new incarnation.
	 * From now on the records of the old one belong to another holder. */
	LEASE_DO_TWIN = 1 << 0,
	/* The sight was written by a namesake after this process had begun to read the record: two candidates have
	 * one identity. */
	LEASE_DO_NAMESAKE = 1 << 1,
	LEASE_DO_SAVED = 1 << 2, /* the record holds save number `saved`, and the save's term still leads */
	/* The term that wanted the unanswered saves does not hold the lease any more. The saves failed, whether or not
	 * their writes were applied. Put them into no other term's record. */
	LEASE_DO_UNSAVED = 1 << 3,
	LEASE_DO_STOP = 1 << 4,  /* stop the script: reason, held, stop_by; answer with STOPPED */
	LEASE_DO_START = 1 << 5, /* start the hooks of a new term */
	/* The lease is held for a term that has not begun: fence those before it. Answer with FENCED, or END. START
	 * follows once the record says that this is done; STOP may come first, as in any term. */
	LEASE_DO_FENCE = 1 << 6,
	LEASE_DO_DEADLINE = 1 << 7,   /* publish lease_end and lease_kill */
	LEASE_DO_ASK = 1 << 8,        /* ask may_lead; answer with ANSWER */
	LEASE_DO_READ = 1 << 9,       /* op, by */
	LEASE_DO_WRITE = 1 << 10,     /* op, by, write; conditional on the last sight; pass LEASE_EV_SENT first */
	LEASE_DO_LEADER = 1 << 11,    /* report a new leader: the holder in the last sight, or (self) this candidate */
	LEASE_DO_NO_LEADER = 1 << 12, /* the reported leader does not lead any more, and nobody else does */
	/* After an END with NSEC_NEVER: the lease is not held any more, or (left) it is left to expire. */
	LEASE_DO_FINISHED = 1 << 13,
};
struct lease_actions {
	unsigned set; /* of enum lease_do */
	uint64_t op;  /* READ, WRITE */
	enum lease_write write;
	struct instant by;        /* READ, WRITE: the operation's deadline */
	enum lease_reason reason; /* STOP */
	bool held;                /* STOP: the lease is kept while the script stops */
	/* STOP: the script's time ends then. What runs past lease_kill is killed before that, if it is earlier; while
	 * the lease is held, renewals move lease_kill up to stop_by. */
	struct instant stop_by;
	bool self;      /* LEADER */
	bool left;      /* FINISHED: the lease may still be held, and is left to expire */
	bool saves;     /* WRITE: it carries a save that the record is not known to hold */
	uint64_t saved; /* SAVED */
};

/* What the caller does for an action. NULL: nothing. */
typedef void lease_effect(void *arg, const struct lease_actions *a);
struct lease_effects {
	lease_effect *twin, *namesake, *saved, *unsaved, *stop, *start, *fence, *deadline, *ask, *read, *write, *leader,
		*no_leader, *finished;
};
/* Carries out the actions in a, in their order. */
void lease_carry_out(const struct lease_actions *a, const struct lease_effects *effects, void *arg);

enum lease_phase {
	PHASE_IDLE, /* not campaigning: an observer, which reads and reports; or not begun; or finished */
	PHASE_FOLLOWING,
	PHASE_LEADING,
	PHASE_ENDING, /* the script is stopping; the lease is renewed meanwhile */
	PHASE_LOST,   /* the script is stopping; the lease is gone or going */
	PHASE_RELEASING,
	PHASE_NEXT, /* writing the next term after a reload */
};

/* The limbo lists the writes whose outcome is unknown. When it is full, the oldest is forgotten for a new one. */
#define LEASE_LIMBO 4

/* The machine, in the caller's memory of lease_size() bytes. Its fields are in lease_internal.h, so that only this
 * room makes decisions from them. It owns nothing: its memory may be copied, and freed at any time. */
struct lease;
size_t lease_size(void);

/* asks: the may_lead hook must answer yes before the lease is acquired. seed: for the jitter of the polling. */
void lease_init(struct lease *l, const struct lease_times *t, bool observer, bool asks, uint32_t seed);
/* Sets whether the hook is asked from now on. A lease that is held is kept, whatever the hook would answer. */
void lease_asks(struct lease *l, bool asks);

/* Sets other times from now on; the next write publishes them. May be called while leading. */
void lease_configure(struct lease *l, const struct lease_times *t);

/* How long a candidate holds back for the one that a record names: at most half a second, a small part of R. */
nsec lease_hold_back(const struct lease_times *t);
/* The same for the one that a release names. That one finds the release by a poll where the store tells of no changes
 * (watching: it does), so this is longer by the longest pause between two polls. */
nsec lease_hold_back_released(const struct lease_times *t, bool watching);
/* The longest pause between two polls of a standby that does not watch: 2.2 P. */
nsec lease_longest_poll(const struct lease_times *t);

/* While it is set, this candidate acquires nothing: it must not fence those that may still act (debt.h). */
void lease_bar(struct lease *l, bool on);

/* Never release: let the lease expire at the end of a term (--no-release). */
void lease_keeps(struct lease *l, bool on);

/* true: a watch tells of changes. false: the machine polls. */
void lease_watching(struct lease *l, bool on);

/* Passes one event. The machine looks at the deadlines first, then at the event, and then chooses the next operation.
 * LEASE_EV_SENT is an exception: the caller passes it while it carries out LEASE_DO_WRITE, before it sends anything,
 * and no decision follows. Its only action is LEASE_DO_DEADLINE: a write that publishes a shorter duration counts as
 * applied from then on, so the earlier deadline must be published before that write is sent. */
struct lease_actions lease_step(struct lease *l, const struct lease_event *e, struct instant now);

/* The number of the next write, which its record says: 1, 2, ... (lease_sight.count). */
uint64_t lease_next_count(const struct lease *l);

/* Nanoseconds until lease_step needs a TICK; NSEC_NEVER if it needs none. Never too short by either clock. */
nsec lease_wait(const struct lease *l, struct instant now);

/* What keeps this candidate from acquiring the lease now. It is for people; no decision depends on it. */
struct lease_standing {
	bool observer, paused;
	bool unreaped; /* something of its last term could not be killed */
	bool barred;   /* lease_bar */
	bool fencing;  /* lease_is_fencing */
	bool looked;   /* the store was read; the rest is about what it showed */
	enum sight_kind seen;
	nsec seen_for;  /* since exactly that record was first seen */
	bool dead;      /* the holder is proved dead */
	nsec wait_left; /* until the record lets others acquire; NSEC_NEVER: as long as it stays as it is */
	nsec out_left;  /* of the time in which this candidate does not campaign; NSEC_NEVER: for good */
};
void lease_stands(const struct lease *l, struct instant now, struct lease_standing *out);

enum lease_phase lease_phase(const struct lease *l);
bool lease_is_leading(const struct lease *l, struct instant now); /* false also when lease_end has passed */
bool lease_is_fencing(const struct lease *l);                     /* the lease is held for a term that has not begun */
bool lease_has_fenced(const struct lease *l);           /* the same, and FENCED was passed: the next renewal says so */
uint64_t lease_term(const struct lease *l);             /* the running term, else the last one */
uint64_t lease_next_term(const struct lease *l);        /* the term an ACQUIRE or NEXT_TERM write publishes */
struct instant lease_renewed_at(const struct lease *l); /* when the last good write of the term was sent */
struct instant lease_end(const struct lease *l);        /* when lease_is_leading turns false */
struct instant lease_kill(const struct lease *l);       /* when what still runs is killed */
const struct lease_times *lease_publishes(const struct lease *l); /* the times that the next write publishes */
