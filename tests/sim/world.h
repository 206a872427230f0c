/* The simulated world, for the files that make it go on: sim.c, and sim_next.c, which has the record N.
 * Not for others, which use sim.h. */
#pragma once

#include "sim.h"

#include "lease/lease_internal.h"
#include "lease/debt_record.h"
#include "lease/next.h"
#include "lease/poke.h"
#include "locks/lock_failover.h"

#define MAX_NODES 6 /* five, and a clone of one */
#define PAST 8      /* versions of the store that a replica may be behind */
#define HEAP 4096
#define MS NSEC_PER_MS
#define SEC NSEC_PER_SEC
#define SLOWEST_KILL (180 * MS) /* within K of the shortest lease */
#define CALM_AT (56 * SEC)      /* no faults from here on */
#define END_AT (90 * SEC)

struct saved { /* a checkpoint: the number-th of a term's script */
	uint64_t term, number;
};

struct content { /* the record, as far as the rules look at it */
	bool exists;
	uint64_t version, write, holder, identity, term; /* holder: an incarnation, 0 = nobody */
	uint64_t count;                                  /* of its writer's writes */
	int author;                                      /* the node that wrote it: what only the simulator knows */
	int64_t token;
	bool leading;
	nsec duration;
	struct saved saved;
	uint64_t born;      /* the version with which it came to be where there was none */
	unsigned place;     /* the store in which it was written */
	unsigned debt;      /* who may still act: a number in world.debt */
	uint64_t fencing;   /* the term that has not begun */
	unsigned elsewhere; /* the other store that showed it; 0: none but the one in which it was written */
};

enum kind {
	TICK,
	ARRIVE,
	REPLY,
	TIMEOUT,
	NOTICE,
	SCRIPT_ENDS,
	GUARD,
	REAPED,
	GONE,
	RESTART,
	FAULT_DUE,
	EVIDENCE,
	ANSWER,
	SAVE,
	NOTE_TICK, /* of the record N: sim_next.c */
	NOTE_ARRIVE,
	NOTE_REPLY,
	NOTE_TIMEOUT,
	NOTE_END,   /* the machine said that the term is to be handed over */
	NOTE_RENEW, /* it has a request to be published now */
	POKE,       /* a datagram arrives; stamp: its key's number */
	POKE_LOOK,  /* the look that is due */
	FENCE_ENDS,
};

/* A store that answers before all of its copies have a write, and names a doubt when it was promoted (lock_failover.h):
 * what it keeps beside the record. */
struct beside {
	uint64_t server, doubt; /* the server that it is known to be; 0 = none */
	int64_t token;
};

struct happening {
	nsec at;
	uint64_t order;
	enum kind kind;
	int node;
	uint64_t life, stamp; /* of the node's process; of the timer, script or operation it belongs to */
	uint64_t op;
	bool writing, reply_lost;
	enum lease_write what;
	enum lease_outcome outcome;
	struct instant sent_at;
	uint64_t expected, incarnation;
	uint64_t doubt, over; /* as the store names it; waited out by the sender */
	bool own;             /* the sender's own term is what it expects */
	int64_t floor;
	struct content content;
};

struct node {
	struct lease lease;
	struct lease_times times;
	bool up, asks, reclaims, slewed;
	uint64_t life, incarnation, identity, timer,
		open_op;                        /* incarnation: its life's, until it meets a copy of itself */
	bool open_writing, copied, copied_term; /* another node is a copy of it; its script is one too */
	bool noticed;                           /* something changed after the operation under way was begun */
	double boot_rate, raw_rate;
	nsec boot_base, raw_base, slept; /* slept: what raw has missed */
	nsec frozen_until, asleep_until, cut_until;

	/* The script, and what the shared page says of it. */
	bool runs, open, told, page_ended, unreaped; /* open: the elector has not heard that it is gone */
	uint64_t script;
	uint64_t save, checkpoint, first_save; /* wanted last; the same until it is answered, then 0; of this script */
	struct instant page_end, page_kill;
	uint64_t term;

	/* What the simulator itself knows of the standby's wait. */
	struct lease_sight saw;
	int64_t saw_token, top_token;
	uint64_t saw_version, saw_count, saw_holder, saw_born;
	bool gone; /* the record that it saw last was not replaced by who had read it: since gone_at it knows that */
	struct instant gone_at;
	struct saved kept, promised; /* of our newest record; what the script loaded, or was told to be saved */
	uint64_t kept_count, common; /* common: writes made before it was cloned */
	struct lock_failover doubt;
	struct saved saw_saved;
	struct instant saw_at;
	/* In a world with fences. `proved`: the sight whose holder is proved dead. */
	bool fences, old, fencing;
	struct content saw_content;
	uint64_t fence, proved;
	uint64_t bar_seen, bar_proved, bar_by; /* of which record, and as whom, it has asked whether it is barred */
	bool looked;
	uint64_t reported, acquiring; /* acquiring: the last write that wanted to */
	struct instant acquiring_at;
	nsec acquiring_renew;
	bool reported_any;

	/* Who comes next, by runtime/lease/next.c. */
	struct {
		struct next_machine machine;
		bool follows; /* false: a version that does not know N, nor what M says of it */
		bool willing; /* it could lead now */
		int64_t priority;
		uint64_t open, timer,
			version; /* the operation on N under way; N's version, as it was last read or written */
		uint64_t note;   /* the note it shows */
		uint64_t wanted; /* whose identity M wants, as it was last seen; 0 = nobody's */
		uint64_t asked, asked_in; /* the last request to hand over, and the term that was asked */
		/* What the checks know themselves: the term whose leader looked at N, its last look, and when that
		 * differed. */
		uint64_t looked_in, looked;
		bool changed, is;
		struct instant changed_at;
		struct poke_gate gate;
		uint64_t key, poked_for; /* of the gate, as a number; the request of which a datagram told */
		uint64_t heard;          /* the last key that led to a look */
		nsec poked_at;           /* the last look that a datagram led to; 0: there was none */
	} next;
};

#define NOTES 4096            /* writes of M, and of N, that may still be somewhere */
struct advised {              /* what a write of M says of who comes next */
	uint64_t write, term; /* the term that said it */
	uint64_t next, given, wanted, wanted_identity;
	int64_t priority;
	uint64_t key; /* by which the candidate named as next, or as given, hears a poke */
	bool handed;  /* with given: the term before was handed over */
};
struct note { /* a write of N */
	uint64_t write, who, identity, answers, declines;
	uint64_t key;  /* by which it hears a poke; 0: it does not */
	uint64_t name; /* of the write that this one repeats; 0: it has its own */
	int64_t priority;
	bool foreign;
};

/* Work that a term has started outside of its process tree: a container, say. It goes on until the elector has heard
 * that all of the term has ended, and until somebody fences its machine. */
struct outside {
	bool runs;
	uint64_t identity, incarnation;
};

#define CREATED 4
#define DEBTS 4096
struct world {
	uint64_t random, order, versions, lives, writes;
	nsec now;
	struct node node[MAX_NODES];
	int nodes;
	struct content store;
	struct beside beside;
	struct {
		struct content store;
		struct beside beside;
	} past[PAST];
	unsigned writings, pasts; /* as many went into past; so many of the last are there */
	uint64_t server, doubts;
	unsigned place; /* one more with each restore from a copy: another store, which says so */
	nsec behind;    /* the server's clock */
	bool clones, cloned, falls_back, fell, unrestored; /* unrestored: an acknowledged save was lost with a server */
	bool counts;       /* its tokens are its own count, whatever a candidate has seen */
	bool makes_tokens; /* so are they where nothing falls back: a create that lands again gets another one */
	int64_t last_token;
	struct saved acknowledged; /* the newest */
	struct saved deleted;      /* what the record had when a person deleted it */
	uint64_t last_leader;
	nsec last_act, closed_until; /* closed: no process starts */
	unsigned deletions;
	struct happening created[CREATED]; /* the last creates that were sent */
	unsigned creations;
	bool trace, rolling, slewing;
	/* The record N (sim_next.c). nexts: this world has one. */
	bool nexts, noisy;
	uint64_t keys;                                     /* how many were made: each is larger than the last */
	uint64_t note_versions, note_version, note, notes; /* N's version and note, 0: absent; how many were written */
	struct {
		uint64_t version, note;
	} note_past[PAST];
	bool fences;                       /* some candidates have one */
	struct outside outside[MAX_NODES]; /* by machine */
	unsigned debts;
	char *debt[DEBTS];     /* the first is NULL: nobody owes */
	uint64_t released_for; /* incarnation, until somebody leads */
	nsec calm_since; /* since when nothing hinders an election, and nobody leads; 0: something does, or somebody */
	struct sim_result result;

	/* What is to come, last since it is not cleared for every seed: a heap of small entries, since they move about;
	 * what they stand for stays where it is. */
	int heap_len, slots, spares;
	struct due {
		nsec at;
		uint64_t order;
		int slot;
	} heap[HEAP];
	int spare[HEAP];
	struct happening slot[HEAP];
	struct advised advised[NOTES];
	struct note noted[NOTES];
};

/* sim.c */
uint64_t draw(struct world *w);
bool chance(struct world *w, unsigned percent);
nsec between(struct world *w, nsec low, nsec high);
void push(struct world *w, struct happening h);
void say(const struct world *w, int node, const char *what, uint64_t n);
void violate(struct world *w, int node, const char *what);
void count(struct world *w, enum fault f);
struct instant local(const struct world *w, const struct node *n);
bool frozen(const struct world *w, const struct node *n);
nsec travel(struct world *w, const struct node *n);
bool lost(struct world *w, const struct node *n);
void end_of_will(struct world *w, int i, enum lease_reason why, nsec out);
void renew_now(struct world *w, int i);
void fence_done(struct world *w, int i);
void look_now(struct world *w, int i, bool soon); /* soon: it has agreed to take over */

/* sim_fence.c. Each does nothing in a world without fences. */
void fence_make(struct world *w, int i);
void fence_boot(struct world *w, int i);
void fence_bar(struct world *w, int i); /* before each step of the lease */
void fence_fill(struct world *w, struct node *n, enum lease_write what, struct content *c);
void fence_begin(struct world *w, int i);
bool fence_stop(struct world *w, int i); /* true: the term was one that had not begun */
void fence_leads(struct world *w, int i);
void fence_ends(struct world *w, const struct happening *h);
void fence_proved(struct world *w, int i, uint64_t life); /* with all that it started: a cleanup ended well, too */
void fence_gone(struct world *w, int i); /* the elector of machine i has heard that its term has ended */
void fence_fini(struct world *w);

/* sim_next.c. Each does nothing in a world without N. */
void next_make(struct world *w, int i);
void next_boot(struct world *w, int i);
void next_cloned(struct world *w, int k);
void next_renamed(struct world *w, int i);                       /* it took another incarnation */
void next_follow(struct world *w, int i);                        /* after each step of the lease */
void next_hear(struct world *w, int i, const struct content *c); /* what it saw of M */
void next_advise(struct world *w, const struct node *n, enum lease_write what, const struct content *c);
bool next_is_other(const struct world *w, const struct node *n, const struct content *c); /* lease_sight.other_first */
void next_leads(struct world *w, int i);
void next_poke(struct world *w, int i, const struct content *c); /* a write of node i was answered as done */
bool next_fault(struct world *w, int i);                         /* false: another fault is due */
void next_happen(struct world *w, const struct happening *h);
