/* Room simulation: `lunarch test`: nodes with the real elector and the real Lua half, on a simulated store, network
 * and time.
 *
 * A simulated cluster: several nodes that run the same script, each with the real elector and the real Lua half, on a
 * simulated store, network and time. Not processes: nothing is started, and a hook that computes takes no time. Not the
 * simulator of the lease (tests/sim). Used by the command test; sim.c and sim_node.c are its two halves. */
#pragma once

#include "config/election_settings.h"
#include "election/elector.h"
#include "program/campaign.h"
#include "run/term_supervision.h"
#include "script/script.h"
#include "simulation/sim_store.h"
#include "term/life.h"
#include "term/script_metrics.h"

struct testing;

struct testing_node { /* what a node's natives need to ask the test's stubs; borrowed by script_spec */
	struct testing *testing;
	const char *name;
};

struct testing_machine {
	const char *name;
	const char *const *args;      /* the script's; NULL-terminated */
	const char *const *arguments; /* as behind `lunarch run`: "run", then options; NULL-terminated */
	const char *const *env;       /* "NAME=VALUE", or "NAME" for a variable that it has not; NULL-terminated */
};

struct testing_setup {      /* what a test says, and who hears of it (testing.c) */
	const char *script; /* path */
	const struct testing_machine *machines;
	uint32_t count;
	uint32_t seed;
	struct testing *testing;
	/* A line of a node's log. node NULL: nobody's. */
	void (*event)(struct testing *t, double at, const char *node, enum log_level level, const char *event,
	              const char *text, const struct log_about *about);
	/* For script_spec: stub(kind, request) -> reply, or nil and why. [-2, +(1|2), e]; arg: struct testing_node */
	int (*stub)(lua_State *node, void *arg);
};

struct sim_message { /* as elector and worker send it to each other */
	struct sim_message *next;
	size_t len;
	char bytes[];
};

struct sim_messages { /* sent, and not received yet; oldest first */
	struct sim_message *first, **end;
};

struct sim;

struct sim_candidate { /* one election on one node: what candidate.c is to a running program */
	struct sim_node *node;
	struct election_settings settings;
	uint32_t index;
	char *url;
	struct campaign campaign;
	struct term_supervision term;
	struct script_metrics metrics;
	uint64_t sweeping;      /* TERM_EV_SWEPT is due for this term; 0: for none */
	uint32_t sweeping_next; /* and for this on_next */
};

struct sim_node {
	struct sim *sim;
	const struct testing_machine *machine;
	const char *name;
	char **environment;     /* what its scripts inherit; the entries are borrowed */
	char **environment_now; /* what its script makes of that (script/environment.h) */
	struct options options;
	uint32_t number;
	bool up;             /* its processes exist; they run unless the node is paused */
	bool holding;        /* its script is loaded and receives nothing yet: a test gives its stubs first */
	struct timer hold;   /* until that ends */
	double paused_until; /* 0 = it runs */
	int64_t ahead_us;    /* how far its wall clock is ahead of the others' */
	unsigned starts;
	struct sim_link link;
	struct timeline time; /* of its elector, and of what comes from the network */
	struct timeline script_time;
	struct lock_env env;
	struct proof_self self;
	struct page *page;
	struct script *script;
	struct script_spec spec;
	struct testing_node stubs;
	struct sim_messages to_script, to_elector;
	uint32_t described; /* elections that its script has described: WIRE_ELECTION */
	struct life life;   /* of one worker, and those that follow it */
	struct life_set sets[2];
	struct timer life_timer; /* LIFE_DO_TIMER */
	struct sim_candidate **candidates;
	uint32_t candidate_count;
	bool opened;   /* the candidates have their electors, and keep them when the worker is replaced */
	bool kill_due; /* its supervision wants the worker dead */
	bool look_due; /* whether its candidates may campaign is to be looked at */
};

struct sim_handover {                   /* the hand-over that a test has asked for last */
	const struct sim_candidate *of; /* which leads; NULL: there is none */
	struct err refused;             /* code 0: it is not refused */
};

struct sim_election {      /* that some node has had */
	char *name, *lock; /* as the script has them; "" = not there */
	char *url;
};

struct sim {
	struct testing_setup setup;
	char *fallback;       /* the lock's name where nobody gives one */
	struct ev_loop *loop; /* never run: nothing here waits for descriptors */
	double now;
	struct clock_virtual clock;
	struct timeline world;
	struct sim_store *store;
	struct sim_node **nodes;
	uint32_t count;
	struct sim_election *elections;
	uint32_t election_count;
	struct sim_node *current;             /* whose code runs; NULL: nobody's */
	struct waiting_fault *waiting_faults; /* they happen when no node's code runs */
	struct sim_handover handover;
	char *const *environment;
	bool failed;
	struct err err; /* failed: why */
};

/* sim.c, for testing.c: what a test may do to it, and ask. One simulation at a time, since it takes over the process'
 * clock and log. Texts are borrowed for the call, or until time goes on. -1 and NULL come with *err, where there is
 * one. url: what sim_election_url has returned. */
struct sim *sim_open(const struct testing_setup *setup, struct err *err);
void sim_close(struct sim *s);
int sim_run(struct sim *s, double until, bool one, struct err *err); /* one: the next event alone, if it is not later */
int sim_fault(struct sim *s, const char *what, const char *node, double number, struct err *err);
double sim_now(const struct sim *s);

/* The lock's URL of the election with this name or lock; NULL means the first one. "": no script has said yet which
 * elections it has. */
const char *sim_election_url(const struct sim *s, const char *name, struct err *err);
const char *sim_leader(const struct sim *s, const char *url);          /* node; NULL: nobody leads */
int sim_leads(const struct sim *s, const char *node, struct err *err); /* 1, 0, or -1: there is no such node */
const char *sim_next(const struct sim *s, const char *url);            /* as sim_leader: who comes next */

/* Begins what `lunarch ctl handover` does. to: node; NULL: whoever comes next. -1: it makes no sense. */
int sim_hand_over(struct sim *s, const char *url, const char *to, double timeout, struct err *err);
const char *sim_not_handed_over(const struct sim *s); /* why that does not happen; NULL: nothing says so */

/* The sum of this metric of the scripts' own over all nodes, or of one; labels as in its name on /metrics. false:
 * nobody has set it. */
bool sim_metric(const struct sim *s, const char *name, const char *labels, const char *node, double *value);
char *sim_record(const struct sim *s, const char *url);                     /* JSON; the caller frees. NULL: absent */
bool sim_edit_checkpoint(struct sim *s, const char *url, const char *json); /* false: there is no record */

/* sim.c, for sim_node.c. */
void sim_fail(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* the first one counts */
/* The code of n runs from now on, by its clock and in its environment; NULL: nobody's code runs. */
void sim_enter(struct sim *s, struct sim_node *n);
void sim_know_election(struct sim *s, const char *name, const char *lock, const char *url); /* once or more often */
void sim_check_leaders(struct sim *s, const struct sim_candidate *new_leader);

/* sim_node.c. Each of these that changes something then runs what is ready, until everything waits for time to pass. */
void sim_node_start(struct sim_node *n);
void sim_node_stop(struct sim_node *n);  /* as SIGTERM does */
void sim_node_crash(struct sim_node *n); /* as a power cut does: nothing is released, nobody can prove anything */
void sim_node_kill_worker(struct sim_node *n);
void sim_node_resign(struct sim_node *n, double seconds);       /* < 0: one lease */
void sim_node_wake(struct sim_node *n);                         /* from a pause */
void sim_node_fire(struct sim_node *n);                         /* the earliest of its timers */
double sim_node_first(const struct sim_node *n);                /* when that is */
bool sim_node_leads(const struct sim_node *n, const char *url); /* url NULL: any; by its script's own clock and page */
/* who comes next, as its elector has it; borrowed until time goes on. NULL: nobody */
const char *sim_node_next(const struct sim_node *n, const char *url);
/* Its candidate in that election is to hand over (s->handover). to: "" = whoever comes next. */
void sim_node_hand_over(struct sim_node *n, const char *url, const char *to, double timeout);
