/* A script that runs: its elections (candidates) and the processes that run its hooks (worker sets).
 * Not who leads (elector.h), not what follows for the hooks (term_hooks.h), not a process (supervisor.h).
 * Used by cmd_run.c. run.c, reload.c, run_control.c, candidate.c and worker_set.c share these structs: a candidate and
 * a worker set tell the run what happened to them, and the run walks both.
 *
 * All of it runs on one loop, and nothing blocks. Everything is called from the loop's callbacks, and may be called
 * from inside each other unless it says otherwise. */
#ifndef LUNARCH_RUN_H
#define LUNARCH_RUN_H

#include "election/elector.h"
#include "process/supervisor.h"
#include "runner/election_settings.h"
#include "runner/program.h"
#include "runner/term_supervision.h"

struct run;
struct worker_set;

/* One election of the script: its elector, and the supervision of its term. */
struct candidate {
	struct run *run;
	struct worker_set *worker_set; /* whose worker runs its hooks */
	struct election_settings settings;
	uint32_t index; /* in the script's list; its slot of the page, too */
	struct lease_times times;
	nsec allowance; /* its K for worker_set_allow: during a term the smallest that was in force in it */
	struct elector *elector;
	struct term_supervision term;
	ev_timer timer;                  /* the supervision's */
	struct admin_renewals *renewals; /* NULL: there is no admin endpoint, or no renewal yet */
};

/* A worker that runs hooks of some elections, and the workers that follow it when it dies. All elections that are not
 * isolated share one set; each isolated one has its own. */
struct worker_set {
	struct run *run;
	struct supervisor *supervisor;      /* of the worker that lives now; NULL: none does */
	uint32_t isolated;                  /* index + 1 of the isolated election it is for; 0: the shared set */
	struct election_settings *settings; /* what the worker's script says about them, until it is taken */
	uint32_t settings_count;
	bool loaded;                 /* the script is loaded: its elections are known */
	bool started;                /* its elections have been started (WIRE_STARTED): messages may be sent */
	bool leaving;                /* it was told to quit, and is not replaced */
	bool on_start_ran;           /* so a worker that follows does not run on_start again */
	struct worker_set *reloaded; /* a reload made it to take over this one's candidates; NULL: none */
	bool pending;                /* a reload made this one, and it has not started yet: it has no candidates */
	struct instant spawned_at;
	bool failed; /* its worker could not load the script */
	unsigned failures;
	ev_timer restart; /* until a worker follows the dead one */
	struct worker_set *next;
};

struct run {
	struct program program;
	struct options options;
	const char *script; /* path, or the text itself */
	bool is_text;
	struct candidate **candidates; /* NULL until the script is loaded for the first time */
	uint32_t candidate_count;
	struct worker_set *worker_sets;
	bool ending;             /* run_end was called */
	bool killing;            /* nobody waits for the script any more */
	struct instant asked_at; /* to end */
	bool starting_over;      /* a reload changed the elections themselves: all are released, then begun anew */
	bool reload_due;         /* a reload was asked for while the script was being loaded: it follows */
	bool ready;              /* systemd has been told */
	int status;              /* exit status */
	ev_timer quit_timer;     /* what has not left by then is killed */
};

/* ---- run.c: from loading the script to the exit status ---- */

/* Runs it to its end. r: zeroed, but for options, script and is_text, all borrowed. The exit status (0 to 255); -1 with
 * *err: it could not begin. */
int run_script(struct run *r, struct err *err);

/* Ends all terms, releases the locks and leaves with this status. The first call counts, but that a later one may turn
 * status 0 into another. */
void run_end(struct run *r, int status, enum lease_reason reason);

void run_kill(struct run *r); /* after run_end: kills the workers instead of waiting for on_stopped */

/* Whether s runs the hooks of any candidate. */
bool run_in_charge(const struct run *r, const struct worker_set *s);

/* What a worker set reports. */
void run_loaded(struct run *r, struct worker_set *s); /* s->settings is complete, and may be taken */
void run_load_failed(struct run *r, struct worker_set *s, const char *text);
void run_started(struct run *r, struct worker_set *s);
void run_worker_set_gone(struct run *r, struct worker_set *s, bool had_started); /* its worker is dead; may free s */

/* What a candidate reports. */
void run_term_began(struct run *r);
void run_term_over(struct run *r,
                   struct candidate *p);    /* its hooks have run or never will; its lease may still be held */
void run_candidate_finished(struct run *r); /* for good */

/* ---- reload.c: the script is loaded anew, in workers beside those that run ----
 * When the new workers have started, candidates without a term move to them at once, the others when their term is
 * over. A lease is kept meanwhile. If the new script cannot be loaded, the old one runs on. */

void reload_begin(struct run *r);  /* now, or when the script that is being loaded has been */
void reload_if_due(struct run *r); /* what reload_begin put off */

/* s is pending: its script was loaded, could not be, or its elections have started. */
void reload_loaded(struct run *r, struct worker_set *s);
void reload_failed(struct run *r);
void reload_started(struct run *r, struct worker_set *s);

/* The set whose `reloaded` is s; NULL if there is none. */
struct worker_set *reload_replaced_by(struct run *r, const struct worker_set *s);

void reload_move_candidates(struct run *r, struct worker_set *old); /* all of them, to old->reloaded */
void reload_quit_if_unused(struct run *r, struct worker_set *s);    /* if no candidate has it any more */

/* ---- run_control.c: signals, the control socket and the admin endpoint; arg is the run ---- */

extern const struct program_ops run_control_ops;

/* ---- worker_set.c ---- */

struct worker_set *worker_set_new(struct run *r, uint32_t isolated); /* in r's list; no worker yet */
void worker_set_free(struct worker_set *s);                          /* its worker must be gone */
int worker_set_spawn(struct worker_set *s, struct err *err);         /* starts a worker; -1 with *err */
void worker_set_go(struct worker_set *s, bool first); /* WIRE_GO for its candidates; first: on_start is to run */
void worker_set_quit(struct worker_set *s);           /* WIRE_QUIT; no worker follows. Repeating it does nothing */
void worker_set_restart_now(struct worker_set *s);    /* if a restart is waiting: without the rest of its delay */
bool worker_set_ready(const struct worker_set *s);    /* messages about elections may be sent */

/* Its candidates or their times have changed: gives the supervisor the least K of theirs. */
void worker_set_allow(struct worker_set *s);

/* ---- candidate.c ---- */

/* settings_taken: its strings are the candidate's from now on. */
struct candidate *candidate_new(struct run *r, struct worker_set *s, uint32_t index,
                                const struct election_settings *settings_taken);
void candidate_free(struct candidate *p); /* NULL: does nothing */

/* Makes the elector, which does not campaign yet. several: the script has more elections. fallback: the lock's name if
 * nobody gives one. -1 with *err. */
int candidate_open(struct candidate *p, bool several, const char *fallback, struct err *err);

const char *candidate_name(const struct candidate *p); /* "" = it has none */

/* What its worker says, and what happens to the worker. */
void candidate_message(struct candidate *p, enum wire_type type, struct wire *w); /* w: at its slot */
void candidate_worker_ready(struct candidate *p);             /* campaigns, or runs an on_stopped that is owed */
void candidate_worker_dead(struct candidate *p, bool reaped); /* reaped: nothing of it runs. Its page is still there */
void candidate_swept(struct candidate *p, uint64_t term, bool clean); /* clean: nothing of the term is left */

/* Orders. */
void candidate_resign(struct candidate *p, nsec sit_out);          /* NSEC_NEVER: for one lease */
void candidate_pause(struct candidate *p, bool pause);             /* by an operator */
void candidate_end(struct candidate *p, enum lease_reason reason); /* for good: run_candidate_finished follows */
void candidate_kill(struct candidate *p);                          /* the same, without waiting for the script */

/* New settings. A term that runs ends, the lease is kept, and the next term begins with them. */
void candidate_reload(struct candidate *p, struct election_settings *settings_taken, const struct lease_times *t);

#endif
