/* Who comes next: the pure state machine that decides which standby is to lead after the present leader
 * (docs/design.md, "Who comes next").
 * It decides nothing about who may lead: its record N is advice, and a wrong one costs time. Like lease.h it does no
 * I/O, reads no clock and allocates nothing: events and instants come in, actions come out.
 * Used by the elector, the simulator and the unit tests.
 *
 * The lock's record M says who leads, who comes next, and who is wanted as next. The record N beside it holds the
 * candidate that comes next, which writes it anew every L. Only the leader and the next look at N all the time. The
 * leader publishes in M the candidate that it finds in N, as long as N changes. A standby takes N when M publishes
 * nobody, or a candidate of smaller priority than its own.
 *
 * At most one operation on N is under way at a time. Names and addresses are the caller's: here a candidate is a
 * number (next_sight.who), and the caller keeps what it read and wrote last. */
#pragma once

#include "lease/lease.h"

/* What people set about who comes next. */
struct next_options {
	int64_t priority;   /* -1000000000 to 1000000000: the ready standby with the largest comes next */
	bool preempt;       /* a leader hands over to a next that has had a larger priority for preempt_after */
	nsec preempt_after; /* doubled after each term that was shorter */
	nsec max_term;      /* after this time a leader hands over, if somebody comes next; 0 = never */
};

struct next_setup {
	nsec lease, renew, retry; /* L, R and P of struct lease_times */
	struct next_options next; /* without the priority, which is in next_event */
};

enum next_role {
	NEXT_NONE,    /* does not campaign */
	NEXT_STANDBY, /* campaigns, and does not lead */
	NEXT_LEADER,  /* from the term's begin until its lease is released or lost */
};

enum next_sight_kind {
	NEXT_UNKNOWN, /* not looked yet */
	NEXT_ABSENT,
	NEXT_NOBODY, /* N was written empty */
	NEXT_SOMEBODY,
	NEXT_FOREIGN, /* another lock's or program's: it is never written to */
};
/* What a read of N shows. */
struct next_sight {
	enum next_sight_kind kind;
	uint64_t write;    /* the write's name: two sights of one write have the same. 0 = none */
	uint64_t who;      /* identity and incarnation: the same candidate has the same */
	uint64_t identity; /* the identity alone */
	bool namesake;     /* another incarnation of its identity */
	bool mine;         /* `who` is this process. An earlier incarnation of its identity is another candidate */
	int64_t priority;
	uint64_t answers;  /* the request (next_news.wanted) that this write answers; 0 = none */
	uint64_t declines; /* the one to which the wanted candidate says no, which is another than `who`; 0 = none */
};

/* What M says, as far as the records of others matter here. Pass it on after each sight of M. */
struct next_news {
	bool held;       /* somebody leads */
	uint64_t holder; /* its next_sight.who */
	uint64_t term;
	uint64_t next; /* who, as M publishes it; 0 = nobody */
	int64_t next_priority;
	uint64_t wanted;  /* the name of the request that M publishes; 0 = none */
	bool wanted_mine; /* it wants this process' identity */
	/* The term before, or the one that has just ended, was handed over: its length says nothing of the next. */
	bool handed_over;
};

enum next_event_kind {
	NEXT_EV_TICK,
	NEXT_EV_AWAKE, /* the process does something else anyway: see next_shares */
	NEXT_EV_ROLE,  /* role, term */
	/* ready, priority: whether it could lead now. doubted: it is not ready for one reason alone, that the store
	 * did not take its last write. It is to find out whether the store takes one now */
	NEXT_EV_READY,
	NEXT_EV_NEWS,       /* news */
	NEXT_EV_CHANGED,    /* a watch says that N has changed */
	NEXT_EV_READ_DONE,  /* op, outcome OK or FAILED, refused, sight */
	NEXT_EV_WRITE_DONE, /* op, outcome, refused, sent_at; sight: with OK, what was written */
	NEXT_EV_HANDOVER,   /* request (not 0), identity (0: whoever comes next), timeout */
};
struct next_event {
	enum next_event_kind kind;
	enum next_role role;
	uint64_t term;
	bool ready, doubted;
	int64_t priority;
	struct next_news news;
	uint64_t op;
	enum lease_outcome outcome;
	bool refused; /* OUTCOME_FAILED, UNKNOWN: another try would hardly help */
	struct instant sent_at;
	struct next_sight sight;
	uint64_t request, identity;
	nsec timeout;
};

/* Actions, in the order in which they are carried out. */
enum next_do {
	NEXT_DO_NOT_NEXT = 1 << 0, /* this process is no longer next; leads: because it leads */
	NEXT_DO_NEXT = 1 << 1,     /* this process is next */
	/* What the leader's next renewal publishes has changed: next_published, next_wants. */
	NEXT_DO_PUBLISH = 1 << 2,
	NEXT_DO_HAND_OVER = 1 << 3, /* end the term, and release for next_published; why. Once in a term */
	/* request: it is given up, since its candidate was not there in time, or a later request replaced it, or its
	 * term has ended. It ends no term */
	NEXT_DO_NO_HANDOVER = 1 << 4,
	NEXT_DO_READ = 1 << 5,     /* op */
	NEXT_DO_WRITE = 1 << 6,    /* op, nobody, as_is, answers; conditional on the last sight */
	NEXT_DO_NAMESAKE = 1 << 7, /* leader: a candidate with this one's identity is alive, and writes N */
};
enum next_why { NEXT_REQUEST, NEXT_PRIORITY, NEXT_ROTATION };
struct next_actions {
	unsigned set; /* of enum next_do */
	uint64_t op;
	bool nobody;      /* WRITE: empties N; else it names this process */
	bool as_is;       /* WRITE: repeats what the last sight shows of another candidate, under that write's name */
	uint64_t answers; /* WRITE: the request that it answers: yes, or no with nobody or as_is; 0 = none */
	enum next_why why;
	uint64_t request; /* NO_HANDOVER; HAND_OVER by NEXT_REQUEST */
	bool leads;       /* NOT_NEXT */
};

/* The machine, in the caller's memory. Fields are for next.c, and for the simulator's checks. It owns nothing. */
struct next_machine {
	struct next_setup options;
	enum next_role role;
	uint64_t term;
	struct instant role_since;
	bool ready, doubted;
	int64_t priority;
	uint32_t noise; /* state of the random pauses */

	/* What M says. */
	struct next_news news;
	struct instant news_since; /* since when it shows this holder and term */
	bool heard, timed;         /* there was news before. timed: the term that M shows began after it */
	uint64_t withdrawn;        /* whom M published in this term, and does not any more; 0 = nobody */

	/* What N shows. */
	struct next_sight seen; /* the newest of: what the last read showed, what our last good write wrote */
	bool stale, unsure;     /* stale: N may be newer. unsure: by a write of ours whose outcome is unknown */
	bool fresh;             /* leader: N has changed while it looked on, the last time at changed_at */
	struct instant changed_at;

	/* The operation on N under way, and when the next one may start. */
	uint64_t op;
	bool busy, changed;                /* changed: a watch told of a change meanwhile */
	bool naming;                       /* the write under way names this process */
	uint64_t saying;                   /* the request that the write under way answers; 0 = none */
	struct instant next_op, shared_op; /* shared_op: then, if the process is awake anyway; never after next_op */
	int refusals;                      /* how many operations in a row were refused */

	/* A standby. */
	bool is_next;
	uint64_t said; /* the request that it has answered: yes if it is next, else no; 0 = none */
	/* The next write of N by this standby. If it is able, it takes N. If not, it writes back what it sees: that
	 * shows whether the store takes its writes, or tells the leader that it does not come. */
	struct next_try {
		bool is, able;
		bool go;           /* N was looked at: write now */
		uint64_t request;  /* the request that the try is for; 0 = none */
		struct instant at; /* when it looks at N */
	} try;
	bool took; /* it last tried to take N at taken_at */
	struct instant taken_at;
	struct instant good_at; /* when its last good write was sent */
	uint64_t left_alone;    /* a write of another candidate, which may be alive: first seen at left_at */
	struct instant left_at;
	int patience; /* how many times in a row that candidate was found alive, and not published */

	/* A leader. */
	bool handed,
		/* handed: HAND_OVER was said. larger: the next candidate's priority is larger, since larger_since */
		larger;
	struct instant larger_since;
	nsec preempt_after; /* options.preempt_after, or longer after short terms */
	uint64_t published; /* who */
	int64_t published_priority;
	struct {
		uint64_t request, identity;
		struct instant by;
		int looks; /* at N, for its answer */
	} wanted;
};

void next_init(struct next_machine *s, const struct next_setup *o, uint32_t seed);
void next_configure(struct next_machine *s, const struct next_setup *o);

struct next_actions next_step(struct next_machine *s, const struct next_event *e, struct instant now);

/* Nanoseconds until next_step needs a TICK; NSEC_NEVER if it needs none. */
nsec next_wait(const struct next_machine *s, struct instant now);

/* Whether an AWAKE event now begins the work that is due every L. That work may be done at any time within P (at
 * most L/4), so it shares a wake-up with a renewal, or with the notice of one. The next candidate does it early, and
 * the leader late, so that the leader never looks twice between two writes. */
bool next_shares(const struct next_machine *s, struct instant now);

/* The leader: who comes next, to be published and to be released for; NULL: nobody. Valid until the next step. */
const struct next_sight *next_published(const struct next_machine *s, struct instant now);

/* The leader: the request and the identity to be published as wanted, which is the one that comes next where the
 * request names none. false: nobody is wanted. */
bool next_wants(const struct next_machine *s, struct instant now, uint64_t *request, uint64_t *identity);

/* The leader: how long until it hands over to a larger priority, and until its term has lasted for max_term; -1: it
 * does not. For people. */
void next_plans(const struct next_machine *s, struct instant now, nsec *preempts_in, nsec *rotates_in);
