/* Room term: pure state machines that say what is done at each event for a term, its hooks and its workers; and what
 * goes with a term: may_lead, the order of a Service, a script's jobs and metrics.
 *
 * The life of a script: its versions, the workers that have loaded them, reloads, replacements, and the orders of
 * operators. Events come in, actions out: no I/O, no clock, no allocation. Not the lease (lease.h), and not what a
 * term does (term_hooks.h). Used by run.c, the simulation and tests.
 *
 * A script's VERSION is one load of it. There are two SIDES for versions: the one in force, and one beside it, on
 * which a reload loads the next version, or on which the last one ends. A SET is one worker of a version, and those
 * that follow it when it dies: one for all elections that share a worker (group 0), and one for each isolated
 * election (group 1 and above). A CANDIDATE is one election.
 *
 *            wanted                  it has loaded        its version is in force      it says so
 *     NONE ---------> LOADING ----------> LOADED ------------> STARTING --------------> READY
 *      ^  <---------.    |                  |                     |                       |
 *      |    timer   |    | silent, failed   +---------------------+----- unwanted --------+--> QUITTING
 *      |            |    v                                                                       | silent
 *      +-- gone, unwanted -- DYING <-- from every state: its process has ended, or is killed <---+
 *                   |          | gone, wanted
 *                   +------ WAITING
 *
 * A reload is all or nothing. Its version is loaded in all of its workers, then examined (LIFE_DO_CHECK), and only
 * then in force. Whatever fails before that leaves everything as it was. From then on a worker that dies is replaced
 * by one of the new version. A candidate goes over to the new version when nothing of its own runs, or when its old
 * worker is dead. It goes over even to a worker that never starts, once a later version is asked for, since that one
 * is loaded in the place of the old version. A candidate whose election is not in the new version ends for good, and
 * its hooks are the old version's. A new election campaigns when all of those have released their locks.
 *
 * A program that `takes` reloads within its worker instead, if that is ready and the only one: no version is loaded,
 * and the term goes on. A reload that the worker has not taken in its time has failed, and the next one loads a
 * version.
 *
 * What is kept in every state: a worker is told of the elections of its own version alone, by their names; each wait
 * for a worker has a timer; no set is forgotten while a candidate has it; each request for a reload is answered
 * once; whether a candidate may campaign is a function of what is here (life_bar), and stored nowhere. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define LIFE_NONE UINT32_MAX /* no candidate */
#define LIFE_FAILURES_MAX 7  /* failures in a row are counted up to this */

enum life_worker {
	WORKER_NONE,
	WORKER_WAITING, /* there is none; the next one starts when the timer says so */
	WORKER_LOADING,
	WORKER_LOADED, /* it waits for the word that its version is in force */
	WORKER_STARTING,
	WORKER_READY,    /* the only state in which it is told of terms */
	WORKER_QUITTING, /* it was told to leave */
	WORKER_DYING,    /* its process has ended, or is being killed; LIFE_EV_GONE follows */
};

/* What is known of a candidate's term (term_hooks.h, next_hooks.h). The caller writes it before each life_tell and
 * life_next. */
enum life_term {
	LIFE_IDLE, /* nothing of a term, or of an on_next, runs */
	LIFE_NEXT, /* an on_next does, and no term */
	LIFE_BUSY,
	LIFE_OWES,     /* a worker has died, and its replacement is to run on_stopped */
	LIFE_FINISHED, /* it has ended for good */
};

/* A reload within the worker that is ready, if the program is one that `takes`. */
enum life_take {
	TAKE_NONE,
	TAKE_ASKED, /* the worker was told LIFE_DO_TAKE; its timer runs */
	/* the timer ran out, and the request was answered. The worker may answer yet; until then a reload loads a
	 * version */
	TAKE_LATE,
};

struct life_set {
	uint8_t worker;   /* enum life_worker */
	uint8_t failures; /* workers that died in a row */
	bool started;     /* the worker of now, or the last one, has been ready */
	bool began;       /* a worker of this set has been ready: on_start is not run again */
	uint8_t doom;     /* enum life_cause: why the worker of now is to be killed */
	uint8_t take;     /* enum life_take, of the worker of now */
	bool untimed;     /* its timer is not set yet for the state that it is in */
};

struct life_candidate {
	uint32_t group[2]; /* of its election in the version of each side it is in */
	uint8_t term;      /* enum life_term */
	uint8_t side;      /* whose worker runs its hooks */
	bool leaves;       /* its election is not in the version in force: it ends for good */
	bool fresh;        /* its election was in no earlier version: it waits for those that leave */
	bool paused;       /* by an operator */
	/* enum life_term: what the last LIFE_DO_STIR was for. A term may begin after the one for an on_next */
	uint8_t stirred;
	bool served;       /* LIFE_DO_SERVE was done since its worker is ready */
	bool told_end,     /* LIFE_DO_END was done */
		told_kill; /* LIFE_DO_KILL_TERM was done */
};

enum life_phase { LIFE_SETTLED, LIFE_LOADING, LIFE_CHECKING };

/* Caller's memory. Zeroed, with set and set_count >= 2, it is a program that is about to load its script for the first
 * time. Read by its users; changed by the functions below alone, but for the candidates' `term`. */
struct life {
	struct life_set *set; /* number = 2 * group + side */
	uint32_t set_count;
	struct life_candidate
		*candidate; /* those of the version in force, in its order; behind them those that leave */
	uint32_t candidate_count;
	uint8_t side;    /* in force */
	bool in_force;   /* a version is */
	uint8_t phase;   /* enum life_phase, of the version that is being loaded */
	uint8_t verdict; /* enum life_cause: what came of that one; told by LIFE_DO_ANSWER, or LIFE_DO_FAIL */
	uint32_t groups; /* of that version, once its first worker has loaded it: isolated elections */
	bool other;      /* something of a version is on the side that is not in force */
	bool judged;     /* verdict is to be told */
	bool asked;      /* somebody waits for LIFE_DO_ANSWER */
	bool reload_due; /* a reload was asked for while another version was not settled */
	bool paused;     /* by an operator: later elections are paused, too */
	bool ending, killing, over;
	bool takes;  /* set by its user, before the beginning: a worker can reload by itself (LIFE_DO_TAKE) */
	uint32_t at; /* where life_next goes on */
};

/* An election of a version that is to come into force. */
struct life_election {
	uint32_t group;   /* 0: it shares a worker; else the how many-th isolated one it is, from 1 */
	uint32_t keeps;   /* the candidate that goes on as this one; LIFE_NONE: none, it is fresh */
	uint32_t earlier; /* fresh: the candidate that had its name, whose orders hold for it; LIFE_NONE: none had */
};

enum life_event_kind {
	LIFE_EV_BEGIN,  /* the program begins: the first load */
	LIFE_EV_RELOAD, /* LIFE_DO_ANSWER follows, at some time */
	LIFE_EV_GOOD,   /* to LIFE_DO_CHECK: elections, count, into */
	LIFE_EV_BAD,    /* to LIFE_DO_CHECK */
	LIFE_EV_PAUSE,  /* candidate; LIFE_NONE: all that there are, and all later ones */
	LIFE_EV_RESUME, /* the same */
	LIFE_EV_END,    /* for good */
	LIFE_EV_KILL,   /* for good, and nobody waits for the script */

	/* These are about the set. An event that does not fit the worker's state is dropped. */
	LIFE_EV_NOT_SPAWNED, /* LIFE_DO_SPAWN could not be done */
	/* groups: of its version, if it is the first worker of it. The array of sets has place for them */
	LIFE_EV_LOADED,
	LIFE_EV_LOAD_FAILED,
	LIFE_EV_STARTED,
	LIFE_EV_TAKEN, /* to LIFE_DO_TAKE: good */
	LIFE_EV_ENDED, /* its process has ended, or is being killed because of a term; LIFE_EV_GONE follows */
	/* nothing of it is left. The candidates' `term` says what follows. worked: it had lived for long */
	LIFE_EV_GONE,
	LIFE_EV_TIMER, /* of LIFE_DO_TIMER */
};

struct life_event {
	enum life_event_kind kind;
	uint32_t set, candidate, groups;
	bool worked, good;
	const struct life_election *elections; /* borrowed during the call */
	uint32_t count;
	/* place for count + candidate_count, which is used from then on; the old one is the caller's again */
	struct life_candidate *into;
};

enum life_timer { LIFE_TIMER_OFF, LIFE_TIMER_START, LIFE_TIMER_QUIT, LIFE_TIMER_BACK_OFF };

enum life_do {
	LIFE_DO_LOAD,  /* side: a reload begins; a worker of the next version is spawned there */
	LIFE_DO_TAKE,  /* set: a reload begins; its worker, which is ready, reloads by itself. LIFE_EV_TAKEN follows */
	LIFE_DO_SPAWN, /* set: a worker of the version of its side. LIFE_EV_LOADED or another follows */
	LIFE_DO_TIMER, /* set, timer: in place of one that runs. BACK_OFF: after so many failures in a row */
	LIFE_DO_CHECK, /* the version that was loaded: LIFE_EV_GOOD or LIFE_EV_BAD is told before the next life_next */
	LIFE_DO_GO,    /* set, first: tell its worker which elections it has; on_start is to run */
	LIFE_DO_QUIT,  /* set: tell its worker to leave */
	LIFE_DO_KILL,  /* set, cause: its worker; LIFE_EV_GONE follows */
	LIFE_DO_SERVE, /* candidate: the worker of its set is ready, or new to it */
	/* candidate: it has gone over to the other side. LIFE_DO_SERVE follows when the worker is ready */
	LIFE_DO_MOVE,
	LIFE_DO_STIR, /* candidate: it is to go over: its term ends for the next one, and so does what on_next runs */
	LIFE_DO_END,  /* candidate: for good */
	LIFE_DO_KILL_TERM, /* candidate: for good, without waiting for the script */
	LIFE_DO_FORGET,    /* candidate: it is removed. The last of the list takes its place */
	LIFE_DO_SETTLED,   /* side: nothing of its version is left; what is kept of it may be freed */
	/* requests for a reload that came before the last LIFE_DO_LOAD or _TAKE: good, cause. LIFE_SHUTDOWN: all */
	LIFE_DO_ANSWER,
	LIFE_DO_FAIL, /* the first version does not come into force: the program is to end */
	LIFE_DO_OVER, /* the program has ended */
};

/* Why a worker is killed, or a version does not come into force. */
enum life_cause {
	LIFE_FINE,
	LIFE_UNWANTED,
	LIFE_SILENT,      /* its timer ran out */
	LIFE_NOT_TAKEN,   /* the same, after LIFE_DO_TAKE: the worker stays */
	LIFE_FAILED_LOAD, /* it said so, or its check was bad */
	LIFE_DIED,
	LIFE_NO_PROCESS, /* it could not be spawned */
	LIFE_SHUTDOWN,
};

struct life_action {
	enum life_do what;
	uint32_t set, candidate;
	enum life_timer timer;
	enum life_cause cause;
	enum life_worker was; /* of LIFE_DO_KILL */
	uint8_t side;
	bool first, good;
};

void life_tell(struct life *l, const struct life_event *e);

/* The next thing to do, which counts as done; false: there is none. To be called until then after each life_tell, and
 * after each change of a candidate's term. */
bool life_next(struct life *l, struct life_action *a);

/* Does LIFE_DO_MOVE now, since a candidate's term is over and the next one may begin before life_next is called.
 * false: the candidate does not go over. */
bool life_move(struct life *l, uint32_t candidate);

/* ---- what follows from it ---- */

uint32_t life_set_of(const struct life *l, uint32_t candidate); /* whose worker runs its hooks */
bool life_ready(const struct life *l, uint32_t candidate);      /* that worker can be told of terms */
bool life_running(const struct life *l, uint32_t candidate); /* there is a process of it, or something that it left */
bool life_moves(const struct life *l, uint32_t candidate);   /* it is to go over to the other side */
/* Whether the worker of this set is told of the candidate. */
bool life_has(const struct life *l, uint32_t set, uint32_t candidate);

/* What keeps a candidate from campaigning, the first that holds. */
enum life_bar {
	LIFE_MAY_CAMPAIGN,
	LIFE_BAR_PAUSED,
	LIFE_BAR_OTHERS, /* it is fresh, and others have not released their locks yet */
	LIFE_BAR_WORKER, /* there is no worker that is ready */
};
enum life_bar life_bar(const struct life *l, uint32_t candidate);

/* The side on which a version is being loaded. */
uint8_t life_loading_side(const struct life *l);
