/* Room runner: `run` and `exec` as programs: options, candidates, workers, control socket, systemd.
 *
 * A script that runs, from its loading to the exit status: what its elections (candidate.h) and the processes that run
 * its hooks (worker_set.h) share and report. Not who leads (elector.h), not what follows for the hooks (term_hooks.h).
 * Used by cmd_run.c, and by the files of its parts: candidate.c, worker_set.c, reload.c, run_control.c.
 *
 * All of it is on one loop, and nothing blocks. Every function here and in those headers is called from the loop's
 * callbacks, and may be called from inside another unless it says otherwise. */
#ifndef LUNARCH_RUN_H
#define LUNARCH_RUN_H

#include "lease/lease.h"
#include "runner/options.h"
#include "runner/program.h"

struct candidate;
struct worker_set;

struct run { /* its parts read it; run.c and reload.c change it */
	struct program program;
	struct options options;
	const char *script; /* path, or the text itself */
	bool is_text;
	const char *const *crontabs;   /* of `cron`, whose text `script` is; for people */
	int crontab_count;             /* 0: it is not `cron` */
	struct candidate **candidates; /* NULL until the script is loaded for the first time */
	uint32_t candidate_count;
	struct worker_set *worker_sets; /* a list: their `next` */
	bool ending;                    /* run_end was called */
	bool killing;                   /* nobody waits for the script any more */
	struct instant asked_at;        /* to end */
	bool starting_over;  /* a reload changed the elections themselves: all are released, then begun anew */
	bool started_over;   /*     which has happened */
	bool reload_due;     /* a reload was asked for while the script was being loaded: it follows */
	bool ready;          /* systemd has been told */
	int status;          /* exit status */
	ev_timer quit_timer; /* what has not left by then is killed */
};

/* Runs it to its end. r: zeroed, but for options, script, is_text and crontabs, all borrowed. worker: what a worker
 * runs. ops: what is done about signals, orders and questions; their arg is r. The exit status (0 to 255); -1 with
 * *err: it could not begin. */
int run_script(struct run *r, guard_worker *worker, const struct program_ops *ops, struct err *err);

/* Ends all terms, releases the locks and leaves with this status. The first call counts, but a later one may turn
 * status 0 into another. */
void run_end(struct run *r, int status, enum lease_reason reason);

void run_kill(struct run *r); /* after run_end: kills the workers instead of waiting for on_stopped */

/* Whether the worker of s runs the hooks of any candidate. */
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
void run_next_idle(struct candidate *p);    /* nothing of its on_next runs any more */
void run_candidate_finished(struct run *r); /* for good */
/* Its lock can never be used: the run ends as one that could not begin, unless it has others that can, or a reload has
 * named the lock. */
void run_candidate_hopeless(struct run *r, const char *why);

#endif
