/* A worker that runs the hooks of some elections, and the workers that follow it when it dies. All elections that are
 * not isolated share one set; each isolated one has its own. Not a process (supervisor.h), and not what a term does
 * while no worker lives (term_hooks.h). Used by run.c, reload.c and candidate.c; it reports to run.h and candidate.h.
 */
#ifndef LUNARCH_WORKER_SET_H
#define LUNARCH_WORKER_SET_H

#include "process/supervisor.h"
#include "runner/election_settings.h"

#include <ev.h>

struct run;

struct worker_set { /* read by its users; pending, reloaded and on_start_ran are theirs */
	struct run *run;
	struct supervisor *supervisor;      /* of the worker that lives now; NULL: none does */
	uint32_t isolated;                  /* index + 1 of the isolated election it is for; 0: the shared set */
	struct election_settings *settings; /* what the worker's script says about them, until it is taken */
	uint32_t settings_count;
	bool ended;                  /* the worker has ended; what it left behind is being killed */
	bool loaded;                 /* the script is loaded: its elections are known */
	bool started;                /* its elections have been started (WIRE_STARTED): messages may be sent */
	bool leaving;                /* it was told to quit, and is not replaced */
	bool on_start_ran;           /* so a worker that follows does not run on_start again */
	struct worker_set *reloaded; /* a reload made it to take over this one's candidates; NULL: none */
	bool pending;                /* a reload made this one, and it has not started yet: it has no candidates */
	struct instant spawned_at;
	bool failed; /* its worker could not load the script */
	bool told;   /* run_worker_set_gone is under way, and frees it if it is to go: nobody else may */
	unsigned failures;
	ev_timer restart; /* until a worker follows the dead one */
	struct worker_set *next;
};

struct worker_set *worker_set_new(struct run *r, uint32_t isolated); /* in r's list; no worker yet */
void worker_set_free(struct worker_set *s);                          /* its worker must be gone */
/* Starts a worker; -1 with *err. fork: its guard may be one; NULL: it is executed. */
int worker_set_spawn(struct worker_set *s, const struct guard_fork *fork, struct err *err);
void worker_set_go(struct worker_set *s, bool first); /* WIRE_GO for its candidates; first: on_start is to run */
void worker_set_quit(struct worker_set *s);           /* WIRE_QUIT; no worker follows. Repeating it does nothing */
void worker_set_restart_now(struct worker_set *s);    /* if a restart is waiting: without the rest of its delay */
bool worker_set_ready(const struct worker_set *s);    /* messages about elections may be sent */

/* Its candidates or their times have changed: gives the supervisor the least K of theirs. */
void worker_set_allow(struct worker_set *s);

#endif
