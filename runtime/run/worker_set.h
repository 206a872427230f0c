/* A set of life.h with its processes: the worker that runs the hooks of some elections, and the workers that follow
 * it when it dies. Decides nothing: life.h says when a worker is started, told and ended, and script_version.h
 * whether it has loaded what it should. Used by run.c, which carries that out; what a worker says goes to run.h and
 * candidate.h. */
#pragma once

#include "config/election_settings.h"
#include "process/supervisor.h"
#include "term/life.h"

#include <ev.h>

struct candidate;
struct run;

struct worker_set { /* read by its users */
	struct run *run;
	uint32_t number;                    /* in struct life */
	struct supervisor *supervisor;      /* of the worker that lives now; NULL: none does */
	struct election_settings *settings; /* what the worker's script says about its elections, while it loads it */
	uint32_t settings_count;
	uint32_t *slot; /* by the version's elections: the place that this worker's script gives it; NULL: not known */
	uint32_t *election; /* the reverse */
	struct instant spawned_at;
	bool expected; /* its end is expected: it was told to quit, or killed for a reason that is reported elsewhere */
	ev_timer timer;
	double again; /* seconds: the second part of the timer's time; 0: none */
};

struct worker_set *worker_set_new(struct run *r, uint32_t number); /* no worker yet */
void worker_set_free(struct worker_set *s);                        /* NULL: does nothing. Its worker must be gone */

/* These do what life.h says. Spawn: -1 with *err. fork: its guard may be one; NULL: it is executed. */
int worker_set_spawn(struct worker_set *s, const struct guard_fork *fork, struct err *err);
void worker_set_time(struct worker_set *s, nsec after); /* LIFE_EV_TIMER after that time; NSEC_NEVER: none */
void worker_set_go(struct worker_set *s, bool first);   /* WIRE_GO for its candidates; first: on_start is to run */
void worker_set_quit(struct worker_set *s);
void worker_set_kill(struct worker_set *s);

/* The candidate whose messages have this slot; NULL: its election is not here any more. */
struct candidate *worker_set_candidate(const struct worker_set *s, uint32_t slot);

/* Its candidates or their times have changed: gives the supervisor the least K of theirs. */
void worker_set_allow(struct worker_set *s);
