/* The metrics of one election that its script has set. A counter stays as long as this process. A gauge ends with
 * the term in which it was set, or, if that was outside any term, with its worker: what nobody keeps up to date is
 * not shown. Not the page of all metrics (admin_metrics.h). Used by candidate.c, by admin_metrics.c, which shows
 * them, and by the simulation. */
#pragma once

#include "process/wire.h"

#define SCRIPT_METRICS_MAX 1000 /* of one election; more are dropped, and the log says so once */

struct script_metric {
	struct script_metric *next;
	uint64_t term; /* of a gauge; 0: it was set outside any term */
	bool counter;
	char *name, *labels; /* one block of memory, which begins at name */
	double value;
};

struct script_metrics { /* valid when zeroed. Read by its users; newest series last */
	struct script_metric *first;
	unsigned count;
	bool full; /* and the log has said so */
};
void script_metrics_fini(struct script_metrics *m);

/* false: it makes no sense (a name, a label or a number that Prometheus does not take), and nothing is changed. term:
 * the one that runs; 0: none does. A gauge of another term is late, and dropped. */
bool script_metrics_put(struct script_metrics *m, const struct wire_metric *w, uint64_t term);
void script_metrics_term_over(struct script_metrics *m);
void script_metrics_worker_gone(struct script_metrics *m);
