/* The supervision of a term: the pure state machine that says what follows when the elector, the worker or its
 * processes report something. No I/O, no clock, no allocation: events and instants come in, actions come out. Not
 * the lease (lease.h), which decides who leads. Used by term_supervision.c (run and the simulation), the room exec
 * and tests.
 *
 *          the elector leads           it says stop            the worker has stopped          swept
 *     NONE ----------------> LEADING --------------> STOPPING -----------------------> SWEEPING -----> NONE
 *                             |   |                   |   ^                             ^
 *                             |   +----> DRAINING ----|---+                             |
 *                 worker dead |             |         | worker dead                     | the worker has stopped
 *                             +-------------+----+----+                                 |
 *                                                v         a worker is ready            |
 *                                              OWED ------------------------------> CLEANING
 *
 * A term that ends by somebody's will, and whose script has on_stopping, is DRAINING first: it still leads, and
 * on_stopping runs. It is STOPPING when the worker says that the hook has run, when the time for it is up, or when
 * the lease is lost. DRAINING and STOPPING together have the time that the elector gives the script to stop.
 *
 * A worker that is told to lead answers before any hook of the term runs. If it does not answer in time, since it is
 * stopped or its script is busy with something else, it is killed, and the term ends as with any worker that dies. A
 * worker that has answered has no deadline until its term is to end. A command (exec) is not waited for: its start
 * is the answer.
 *
 * A term is OWED when its worker died before on_stopped had run: a replacement runs the hook. If that one dies too,
 * the term is OWED once more; after the second replacement no hook is owed any more. A term that owes nothing when
 * its worker dies while it leads is GONE until the elector has said stop; then it is over. The same holds for a term
 * whose command (exec) has ended by itself.
 *
 * What is kept in every state: the kill deadline is in the page before the guard is poked, and the guard is poked
 * before the worker is told to lead; the elector hears `stopped` only when nothing of the term runs (reaped), or
 * that it may still run (!reaped), and once for each `stop`; a lease is held until the hook has run, or the wait for
 * a worker that could run it is over. Whether the candidate may campaign is not decided here: the caller derives it
 * from let_go and what it knows itself (life.h). */
#pragma once

#include "base/clock.h"
#include "lease/lease.h"

#include <stdbool.h>
#include <stdint.h>

enum term_state {
	TERM_NONE,     /* no term, or its hooks never began */
	TERM_LEADING,  /* the worker was told to lead */
	TERM_DRAINING, /* the worker runs on_stopping; the term still leads */
	TERM_STOPPING,
	TERM_OWED,     /* the worker died: its replacement runs on_stopped */
	TERM_CLEANING, /* a replacement runs on_stopped */
	TERM_SWEEPING, /* on_stopped has run; what the term left behind is being looked for */
	/* nothing of the term runs, and no hook is owed; the elector was asked to end the term, or will be */
	TERM_GONE,
};

enum term_event_kind {
	/* The elector. Those of enum elector_callbacks that decide something. */
	TERM_EV_LEAD,     /* term, token, kill */
	TERM_EV_DEADLINE, /* kill: the deadlines of the running term have moved */
	/* the page did not take the new deadlines: its readers have ended the term, because they saw the old
	 * deadlines pass, or because the worker has ended */
	TERM_EV_REFUSED,
	TERM_EV_STOP, /* reason, held, stop_by */
	TERM_EV_ASK,
	TERM_EV_SAVED, /* save, good */
	TERM_EV_FINISHED,

	/* The worker. An event of another term than the running one is dropped. */
	TERM_EV_ANSWER,      /* ask, yes */
	TERM_EV_LEADS,       /* term: it has heard that it leads */
	TERM_EV_DRAINED,     /* term */
	TERM_EV_STOPPED,     /* term */
	TERM_EV_ENDS,        /* term, reason, sit_out_ms: the script wants its term to end */
	TERM_EV_SAVE,        /* term, save */
	TERM_EV_SAVE_FAILED, /* the elector does not take that checkpoint */

	/* Processes. */
	TERM_EV_SWEPT, /* term, clean: what was left is killed; or something cannot be attributed */
	TERM_EV_DEAD,  /* reaped; late: the kill deadline in the page had passed */
	TERM_EV_READY, /* a worker has started: it can be talked to */
	/* the timer of TERM_DO_TIMER; leads_another: the worker has answered that it leads another election, too */
	TERM_EV_TIMER,

	/* Orders of an operator. */
	TERM_EV_RESIGN, /* sit_out; NSEC_NEVER: one lease */
	TERM_EV_END,    /* reason: for good */
	TERM_EV_KILL,   /* for good, without waiting for the script */
	TERM_EV_RELOAD, /* a term that runs ends for the next one, without letting go of the lease */

	/* Commands, which run in the worker's place (exec). */
	TERM_EV_EXITED,  /* the command has ended by itself, and nothing of it runs */
	TERM_EV_STARTED, /* it runs again, in the same term */
};

/* What the caller knows besides, at the time of the event. */
struct term_context {
	bool ready;   /* a worker can be talked to; false from its end on */
	bool moves;   /* another worker is to take over what this one has, once nothing of it runs */
	bool running; /* there is a worker's process, ready or not, or something that it left */
	bool ending;  /* the program leaves */
	bool killing; /* it leaves without waiting for hooks */
	bool once;    /* it leaves after this term */
	/* Not looked at by the machine: what keeps the candidate from campaigning, beside let_go; static text, or
	 * NULL */
	const char *bar;
};

struct term_event {
	enum term_event_kind kind;
	struct instant at; /* now, by the caller's clocks */
	uint64_t term;
	int64_t token;
	struct instant end, kill; /* end: not looked at */
	enum lease_reason reason;
	bool held, good, yes, clean, reaped, late, has_priority, leads_another;
	struct instant stop_by;
	uint64_t ask, save;
	int64_t sit_out_ms; /* -1: the default */
	nsec sit_out;
	int64_t priority;                        /* not looked at either */
	const char *text, *address, *checkpoint; /* borrowed for the step, and not looked at: they are for the caller */
	struct term_context now;
};

/* Actions, in the order in which term_effects.h has them carried out. A call of the elector may bring the next event
 * from inside it: that one is complete before the rest is carried out. */
enum term_do {
	TERM_DO_TIMER_OFF = 1 << 0,
	TERM_DO_ALLOW = 1 << 1,      /* a term with the present times begins: the guard's K is to be at most theirs */
	TERM_DO_PAGE_BEGIN = 1 << 2, /* term, token, end, kill */
	TERM_DO_PAGE_EXTEND =
		1 << 3, /* end and kill of the event. Not taken: TERM_EV_REFUSED follows, after these actions */
	TERM_DO_PAGE_STOP = 1 << 4, /* held, kill */
	TERM_DO_PAGE_IDLE = 1 << 5,
	TERM_DO_POKE = 1 << 6,      /* the guard is to look at the page */
	TERM_DO_INTERRUPT = 1 << 7, /* the guard and the worker are to look at the page, whatever the worker does */
	TERM_DO_LEAD = 1 << 8,      /* tell the worker that it leads */
	TERM_DO_DRAIN = 1 << 9,     /* tell the worker to run on_stopping: reason */
	TERM_DO_STOP = 1 << 10,     /* tell the worker to stop: reason, kill */
	TERM_DO_CLEAN_UP = 1 << 11, /* tell the worker to run the on_stopped that is owed: reason */
	TERM_DO_ASK = 1 << 12,      /* ask the worker whether it may lead: ask */
	TERM_DO_SAVED = 1 << 13,    /* tell the worker what came of a save: saved_term, save, how */
	TERM_DO_LOG = 1 << 14,      /* note. The worker does not wait for the log */
	/* the worker, and all that descends from it; TERM_EV_DEAD follows. What the worker did is logged before */
	TERM_DO_KILL = 1 << 15,
	/* kill what the term left behind; TERM_EV_SWEPT follows, at once, after these actions, or later */
	TERM_DO_SWEEP = 1 << 16,
	TERM_DO_TIMER = 1 << 17,  /* after; in place of one that runs */
	TERM_DO_BEGAN = 1 << 18,  /* a term has begun */
	TERM_DO_OVER = 1 << 19,   /* it is over, with `reason` (term_hooks.reason) */
	TERM_DO_ANSWER = 1 << 20, /* tell the elector may_lead's answer: yes, and the event's address */
	/* have the elector write the event's checkpoint as number `save`. Not taken: TERM_EV_SAVE_FAILED */
	TERM_DO_SAVE = 1 << 21,
	TERM_DO_END = 1 << 22,       /* have the elector end the term: reason, sit_out, grace */
	TERM_DO_NEXT_TERM = 1 << 23, /* have the elector end the term for the next one: grace */
	TERM_DO_REPORT = 1 << 24,    /* tell the elector that the term's hooks have stopped: reaped */
	TERM_DO_FINISHED = 1 << 25,  /* after an end for good: neither the elector nor a hook is waited for */
};

/* What is to be logged. */
enum term_note {
	TERM_NOTE_MAY_NOT_LEAD, /* text of the event */
	TERM_NOTE_SCRIPT_ENDS,  /* reason, text */
	TERM_NOTE_LEFTOVER,
	/* the worker has not answered that it leads. Without TERM_DO_KILL it is waited for once more */
	TERM_NOTE_SILENT,
	TERM_NOTE_DRAINS,
	TERM_NOTE_DRAIN_CUT, /* on_stopping has taken too long */
	TERM_NOTE_OWED,      /* term_hooks.reason */
	TERM_NOTE_LATE,      /* the lease is released before on_stopped has run */
	TERM_NOTE_DROPPED,   /* the lease is released, and on_stopped will not run */
	TERM_NOTE_GIVEN_UP,  /* the second replacement has died in on_stopped, too */
};

enum term_saved { TERM_SAVED_NOT, TERM_SAVED_GOOD, TERM_SAVED_REFUSED }; /* as enum wire_save_result */

struct term_actions {
	unsigned set;                   /* of enum term_do */
	const struct term_event *event; /* borrowed for the step; not used by the machine */
	bool swept; /* set by the effect of SWEEP: nothing is left, so TERM_EV_SWEPT follows at once */
	enum term_note note;
	struct instant end, kill;
	bool held, reaped, yes;
	enum lease_reason reason;
	uint64_t ask, save, saved_term;
	enum term_saved how;
	nsec after, sit_out, grace;
};

/* Caller's memory. Read state, term, token, reason, hook_errors, let_go, finished, began, unanswered; the rest is
 * private to term_hooks.c. */
struct term_hooks {
	enum term_state state;
	uint64_t term; /* running, or the last */
	int64_t token;
	enum lease_reason reason; /* why it ends, or ended */
	unsigned hook_errors;

	/* how long the worker may take to answer that it leads; 0: nobody answers. Set by the user */
	nsec answer_timeout;
	unsigned unanswered; /* LEADING, and the worker has not answered: how many parts of that time are left */

	nsec lease, grace, shutdown_grace;
	bool has_on_stopping, has_on_stopped;
	bool drains;            /* the script of the running term has on_stopping; a reload may bring one without it */
	struct instant stop_by; /* DRAINING: the end of the time to stop */
	struct instant kill;    /* the page's deadline, or a later one that it refused */
	struct instant began;
	unsigned failures, cleanups;
	bool unbegun; /* the worker has not answered that it leads, so no hook of the term has run */
	bool let_go;  /* OWED, CLEANING or SWEEPING, but the lease was released: no campaign until on_stopped has run */
	bool finished; /* the elector has finished */
	bool timing;   /* the timer runs */
	uint64_t ask;
	/* the worker's, on its way into the record (0 = none); the elector's number for it; the last such number */
	uint64_t save, save_number, saves;
};

/* Fills in and changes (a reload) what is configured. A zeroed struct is a machine without a term. */
void term_hooks_configure(struct term_hooks *h, const struct lease_times *t, nsec shutdown_grace, bool has_on_stopping,
                          bool has_on_stopped);

struct term_actions term_hooks_step(struct term_hooks *h, const struct term_event *e);

/* How long a candidate does not campaign after this number of failures in a row: 1 s after the first, twice as long
 * after each, up to 60 s. */
nsec term_back_off(unsigned failures);
