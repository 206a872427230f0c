/* The lease: the pure state machine that decides who may lead and for how long (docs/design.md, "Time").
 * No I/O, no clock, no allocation, no randomness: events and instants come in, actions come out.
 * Driven by the elector, by the simulator and by the tests, all with the same code.
 *
 *            free and may_lead                 written in time
 *  FOLLOWING ------------------> (acquiring) ------------------> LEADING
 *      ^  ^                                                       |   |
 *      |  |    released, or not ours any more        asked to end |   | R passed, or a definite loss
 *      |  +------------------------ RELEASING <---- ENDING <------+   v
 *      |                           (or NEXT TERM)  (renews on)       LOST   (renews no more)
 *      +--------------------------- script reaped -------------------+
 *
 * At most one store operation is under way at a time. After every event the caller carries out lease_step's actions
 * in the order in which enum lease_do lists them, then arms a timer for lease_wait. */
#ifndef LUNARCH_LEASE_H
#define LUNARCH_LEASE_H

#include "base/clock.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All in nanoseconds; names as in DESIGN: L R P G K D. */
struct lease_times {
	nsec lease; /* L: others may take over after it */
	nsec renew; /* R: stop trying to renew */
	nsec retry; /* P: renew, and poll, this often */
	nsec grace; /* G: the script's time to stop */
	nsec kill;  /* K: from SIGKILL to reaped */
	nsec drift; /* D: stays untouched, for clocks of different rates */
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
	            LEASE_REASONS
};
const char *lease_reason_name(enum lease_reason r); /* "resigned" ... as scripts see them */

/* What a look at the store shows, as far as deciding needs it. The elector makes it from a record. */
enum sight_kind {
	SIGHT_ABSENT,
	SIGHT_RELEASED, /* no holder, and the last holder wrote that itself */
	SIGHT_EMPTIED,  /* no holder, but the record still says leading: somebody emptied it by hand */
	SIGHT_HELD,
	SIGHT_FOREIGN, /* something that is not an election record: never written to */
};
struct lease_sight {
	enum sight_kind kind;
	uint64_t id;    /* equal for equal records only (record_sight_id) */
	uint64_t who;   /* equal for the same holder in the same term only: a change of it is a new leader */
	uint64_t write; /* name of the write that made it, 0 = none */
	bool mine;      /* this process' own incarnation holds it */
	bool reclaim;   /* our identity's earlier incarnation, known to live only once, and nothing speaks against it */
	nsec duration;  /* what the record publishes: 0 = expired at once */
	uint64_t term;
	uint64_t count; /* the record's write was so many-th of its holder's incarnation; 0 = not said */
	bool low_token; /* mine: its token is not above the largest that this process has seen, so it must not be led
	                   with */
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
	OUTCOME_UNKNOWN, /* may have been applied, may still be */
	OUTCOME_FAILED,  /* surely not applied: failed, refused, invalid; or a read that got no answer */
};

enum lease_event_kind {
	LEASE_EV_TICK,        /* time passed; also the first thing after any late wake-up */
	LEASE_EV_CAMPAIGN,    /* start (or go on) campaigning */
	LEASE_EV_READ_DONE,   /* op, outcome OK or FAILED, sight */
	LEASE_EV_WRITE_DONE,  /* op, outcome, sent_at */
	LEASE_EV_CHANGED,     /* the watch says that something changed */
	LEASE_EV_HOLDER_DEAD, /* id: the holder of exactly that record is proved dead */
	LEASE_EV_ANSWER,      /* may_lead was answered: yes */
	LEASE_EV_END,         /* end the term (reason), release, and stay out for `sit_out` (NSEC_NEVER: for good) */
	LEASE_EV_STOPPED,     /* the script has stopped and everything it started is reaped (reaped), or may not be */
	LEASE_EV_PAUSE,       /* stop campaigning; a term that runs goes on */
	LEASE_EV_SAVE,        /* save: the script wants its checkpoint in the record; answered by SAVED or UNSAVED */
	LEASE_EV_SENT,        /* write, sent_at: the write that LEASE_DO_WRITE asked for is sent next */
};
struct lease_event {
	enum lease_event_kind kind;
	uint64_t op;    /* READ_DONE, WRITE_DONE: the number the action had; another number is stale and dropped */
	uint64_t write; /* SENT: the write's random name, not 0 */
	enum lease_outcome outcome;
	bool refused; /* OUTCOME_FAILED: trying again will hardly help, so who holds nothing does it ever more rarely */
	struct instant sent_at;   /* SENT, WRITE_DONE */
	struct lease_sight sight; /* READ_DONE with OUTCOME_OK; WRITE_DONE with OUTCOME_OK: what was written */
	uint64_t id;              /* HOLDER_DEAD */
	bool yes;                 /* ANSWER */
	enum lease_reason reason; /* END */
	nsec sit_out;             /* END; reason RELOAD with 0: the next term follows without letting go */
	nsec grace;               /* END: the script's time to stop; 0 = G */
	bool reaped;              /* STOPPED */
	uint64_t save; /* SAVE: a number larger than any before it; a later one stands for the earlier ones too */
};

/* Actions, in the order in which they are carried out. */
enum lease_do {
	LEASE_DO_TWIN = 1 << 0,  /* the sight is a copy of this process: its machine was cloned while it ran. Take a new
	                          * incarnation; the	  old one's records are another's from now on, whatever sights
	                          * of them say */
	LEASE_DO_SAVED = 1 << 1, /* the record is known to hold save number `saved`, and its term leads still */
	LEASE_DO_UNSAVED = 1 << 2,   /* the term in which the unanswered saves were wanted holds the lease no more: they
	                              * failed,   whatever became of their writes. Put them into no other term's record */
	LEASE_DO_STOP = 1 << 3,      /* cancel the script: reason, held, stop_by; answer with STOPPED */
	LEASE_DO_START = 1 << 4,     /* start the hooks of a new term */
	LEASE_DO_DEADLINE = 1 << 5,  /* publish lease_end and lease_kill */
	LEASE_DO_LEADER = 1 << 6,    /* somebody leads that has not been reported: the last sight, or (self) us */
	LEASE_DO_NO_LEADER = 1 << 7, /* the reported leader leads no more, and nobody else does */
	LEASE_DO_ASK = 1 << 8,       /* ask may_lead; answer with ANSWER */
	LEASE_DO_READ = 1 << 9,      /* op, by */
	LEASE_DO_WRITE = 1 << 10,    /* op, by, write; conditional on the last sight; pass LEASE_EV_SENT first */
	LEASE_DO_FINISHED =
		1 << 11, /* after an END for good: nothing is held any more, or it is left to expire (left) */
};
struct lease_actions {
	unsigned set; /* of enum lease_do */
	uint64_t op;  /* READ, WRITE */
	enum lease_write write;
	struct instant by;        /* READ, WRITE: give up then */
	enum lease_reason reason; /* STOP */
	bool held;                /* STOP: the lease is kept while the script stops */
	struct instant stop_by;   /* STOP: kill what still runs then (never later than lease_kill) */
	bool self;                /* LEADER */
	bool left;                /* FINISHED: the lease is left to expire */
	bool saves;               /* WRITE: it carries a save that is not known to be in the record */
	uint64_t saved;           /* SAVED */
};

enum lease_phase {
	PHASE_IDLE, /* not campaigning: an observer, paused, or finished; reads and reports all the same */
	PHASE_FOLLOWING,
	PHASE_LEADING,
	PHASE_ENDING, /* the script is stopping; the lease is renewed meanwhile */
	PHASE_LOST,   /* the script is stopping; the lease is gone or going */
	PHASE_RELEASING,
	PHASE_NEXT, /* writing the next term after a reload */
};

#define LEASE_LIMBO 4 /* so many writes of unknown outcome are remembered; the oldest is forgotten for a new one */

/* The machine, in the caller's memory of lease_size() bytes. Its fields are in lease_internal.h, so
 * that nobody decides anything from them but lease.c. It owns nothing: its memory may be copied, and freed at any time.
 */
struct lease;
size_t lease_size(void);

/* asks: a may_lead hook has to be asked before acquiring. seed: jitter of the polling. */
void lease_init(struct lease *l, const struct lease_times *t, bool observer, bool asks, uint32_t seed);

/* Other settings from now on; published by the next write. Legal while leading. */
void lease_configure(struct lease *l, const struct lease_times *t);

/* Never release: let the lease expire at the end of a term (--no-release). */
void lease_keeps(struct lease *l, bool on);

/* A watch delivers changes (true) or we poll (false). */
void lease_watching(struct lease *l, bool on);

/* The machine takes events here alone. It looks at the deadlines first, then at the event, then chooses the next
 * operation. LEASE_EV_SENT is the exception: it belongs to the carrying out of LEASE_DO_WRITE, is passed before
 * anything is sent, and decides nothing. Its one possible action is LEASE_DO_DEADLINE, since a write that publishes a
 * shorter duration counts as applied from then on: that deadline must be published before the write is sent. */
struct lease_actions lease_step(struct lease *l, const struct lease_event *e, struct instant now);

/* The count of the next write, to be put into its record: 1, 2, ... (lease_sight.count). */
uint64_t lease_next_count(const struct lease *l);

/* Nanoseconds until lease_step wants a TICK; NSEC_NEVER if it wants none. Never early by either clock. */
nsec lease_wait(const struct lease *l, struct instant now);

enum lease_phase lease_phase(const struct lease *l);
bool lease_is_leading(const struct lease *l, struct instant now); /* bounded by time, not only by the phase */
uint64_t lease_term(const struct lease *l); /* of the running or the last term; the acquiring write's is next_term */
uint64_t lease_next_term(const struct lease *l);                  /* the term an ACQUIRE or NEXT_TERM write publishes */
struct instant lease_renewed_at(const struct lease *l);           /* when the write on which the term rests was sent */
struct instant lease_end(const struct lease *l);                  /* is_leading turns false */
struct instant lease_kill(const struct lease *l);                 /* what runs then is killed */
const struct lease_times *lease_publishes(const struct lease *l); /* the times a write publishes now */

#endif
