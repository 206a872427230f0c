/* Room run: a script that runs (`lunarch run`, `cron`): its versions, its workers, and a candidate for each election.
 *
 * A script that runs, from its loading to the exit status: it carries out what life.h says for its workers
 * (worker_set.h), its versions (script_version.h) and its elections (candidate.h). Decides nothing but the exit
 * status.
 * Used by cmd_run.c and cmd_cron.c, and by the files of its parts: candidate.c, worker_set.c, reload.c,
 * run_control.c.
 *
 * All of it is on one loop, and nothing blocks. Every function here and in those headers is called from the loop's
 * callbacks, and may be called from inside another unless it says otherwise: what follows from an event is done in
 * the same turn of the loop, but never from inside the call that told it. */
#pragma once

#include "config/options.h"
#include "lease/lease.h"
#include "program/program.h"
#include "run/script_version.h"
#include "term/life.h"

struct candidate;
struct worker_set;

#define RUN_REQUESTS 64 /* as many as the control socket has clients (SERVER_CLIENTS) */

struct run { /* its parts read it; run.c and reload.c change it */
	struct program program;
	struct options options;
	const char *script; /* path, or the text itself */
	bool is_text;
	const char *const *crontabs; /* of `cron`, whose text `script` is; for people */
	int crontab_count;           /* 0: it is not `cron` */
	struct life life;
	struct script_version version[2]; /* by side */
	struct worker_set **worker_sets;  /* by number; NULL: there was none yet */
	struct candidate **candidates;    /* by number: those that leave are the last */
	char *fallback;                   /* the lock's name if nobody gives one; NULL: not known yet */
	struct instant out_until;         /* an operator's order: all elections sit out until then */
	/* an operator's order for the time of one lease, which was given before there was any lease */
	bool out_for_lease;
	uint32_t loads;          /* of versions that came into force */
	struct instant asked_at; /* when it was asked to end */
	enum lease_reason end_reason;
	bool ready;                        /* systemd has been told */
	uint32_t told_leading, told_count; /* what it was told last */
	int status;                        /* exit status */
	int failed_status;                 /* the exit status if the first version does not come into force */
	struct run_reload_request {
		uint64_t ticket; /* 0: none */
		bool loading;    /* it came before the version that is loaded now, or was last */
	} requests[RUN_REQUESTS];
	bool reload_failed;     /* the last reload has failed */
	char wrong[1000];       /* why the last version that was loaded did not come into force */
	struct guard_fork fork; /* for the first worker */
	bool forks;             /* the first worker has not begun */
	ev_timer soon;          /* never started: it is fed to the loop, and carries out what life.h says */
	ev_timer last;          /* after a kill: the program ends, whatever still runs */
};

/* The signals that a run watches, for program_hold_signals. */
extern const int run_signals[];

/* Runs it to its end. r: zeroed, but for options, script, is_text and crontabs, all borrowed. worker: what a worker
 * runs. ops: what is done about signals, orders and questions; their arg is r. The exit status (0 to 255); -1 with
 * *err: it could not begin. */
int run_script(struct run *r, guard_worker *worker, const struct program_ops *ops, struct err *err);

/* Tells life.h what happened; what follows from it is done soon. */
void run_tell(struct run *r, const struct life_event *e);
void run_look(struct run *r); /* the same, when a candidate's term has changed */

/* Loads the script anew; the worker of `cron` takes changed crontabs itself, in the same term, if it can be asked.
 * ticket: of the request that is answered then (control.h); 0: nobody waits. */
void run_reload(struct run *r, uint64_t ticket);

/* Ends all terms, releases the locks and leaves with this status. The first call counts, but a later one may turn
 * status 0 into another. */
void run_end(struct run *r, int status, enum lease_reason reason);

void run_kill(struct run *r); /* after run_end: kills the workers instead of waiting for on_stopped */

/* What a worker set reports. */
void run_loaded(struct run *r, struct worker_set *s); /* script_version_take was good */
void run_load_failed(struct run *r, struct worker_set *s, const char *text);
void run_started(struct run *r, struct worker_set *s);

/* What a candidate reports. */
/* The worker of this set has answered candidate_ask_reload. false: it was not asked. */
bool run_taken(struct run *r, uint32_t set, bool good, const char *text);
void run_term_over(struct run *r,
                   struct candidate *p); /* its hooks have run or never will; its lease may still be held */
/* Its lock can never be used: the run ends as one that could not begin, unless it has others that can, or a reload has
 * named the lock. */
void run_candidate_hopeless(struct run *r, const char *why);

/* reload.c: carries out LIFE_DO_CHECK for a version of the script that is to come into force: which of its elections go
 * on, which begin, and whether all of it is good. All or nothing. 0: the version is in force, r->candidates are its
 * elections, behind them those that leave, and life.h knows. -1 with *err: nothing has changed. */
int run_check_reload(struct run *r, struct err *err);
