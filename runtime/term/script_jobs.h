/* The jobs that the script of a running term has told of: when each runs, and what came of its last run. They end with
 * the term: what nobody keeps up to date is not shown. Not who runs them (lua/cron), and no metric (script_metrics.h).
 * Used by candidate.c and reload.c, which keep them, and by admin.c for /jobs. */
#pragma once

#include "process/wire.h"

#include <stdbool.h>

#define SCRIPT_JOBS_MAX 1000 /* of one election; more are not shown, and the log says so once */

struct script_job;

struct script_jobs { /* valid when zeroed */
	struct script_job *job;
	size_t count;
	bool full; /* and the log has said so */
};

/* Replaces the job of that name, or adds it. false: it makes no sense (a name or a time that is out of range), and
 * nothing is changed. term: the one that runs; 0: none does. A job of another term is late, and dropped. */
bool script_jobs_put(struct script_jobs *jobs, const struct wire_job *w, uint64_t term);
void script_jobs_clear(struct script_jobs *jobs);

/* Appends a JSON array of one line, in the order in which they were told first: name, schedule, zone, running, next and
 * last (times; null: not known), status, why and tookMs of the last run (null: none is known). jobs may be NULL. */
void script_jobs_json(struct buf *out, const struct script_jobs *jobs);
