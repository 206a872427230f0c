/* Where an election stands, for people and for programs: who leads, what keeps this candidate from it, and who comes
 * next.
 * Not a decision, and not a socket: it puts into words what elector_status and may_lead.h know.
 * Used by run_control.c and the room exec for `lunarch ctl`, and by admin.c for /status. */
#pragma once

#include "base/buf.h"
#include "base/clock.h"
#include "lease/leadership.h"
#include "process/worker_doing.h"

struct admin_renewals;
struct elector;
struct elector_status;
struct may_lead;
struct script_jobs;
struct script_metrics;
struct service;

#define STANDING_SILENT NSEC_PER_SEC

struct standing {         /* an election as it is now; borrowed during the call */
	const char *name; /* of the election; "" = the lock's URL */
	const struct elector *elector;
	bool leaves; /* it is being ended, for good */
	const struct elector_status *status;
	const struct may_lead *may_lead; /* NULL: there is no such hook */
	nsec lease;                      /* L */
	nsec preempt_after;              /* as it was told */
	const char *warm;     /* exec --warm, of who comes next: "ready", "starting" or "cold"; NULL otherwise */
	unsigned hook_errors; /* hooks that raised, or were killed */
	const struct admin_renewals *renewals;
	const struct service *service;        /* of --service; NULL: none */
	const struct script_metrics *metrics; /* of the script's own; NULL: there is no script */
	const struct script_jobs *jobs;       /* the same */
	const char *script_error;             /* what a hook or a task raised last; NULL: nothing */
	nsec script_error_for;                /* since then */
	bool silent; /* its worker was told to lead longer ago than STANDING_SILENT, and has not answered */
	nsec silent_for;
	struct worker_doing worker; /* silent, or a hook blocks it: what it does */
	/* Appends what its user has to tell behind the elector's decisions; NULL: nothing. */
	void (*tell_more)(const void *arg, struct buf *out);
	const void *tell_more_arg;
};
/* Calls each once for every election there is now. */
typedef void standing_list(void *arg, void (*each)(void *each_arg, const struct standing *e), void *each_arg);

struct state_file;
struct standing_source {
	standing_list *list;
	void *arg;
	const struct state_file *state_file; /* of the process (state_file.h); NULL: none */
};

/* Whether somebody leads by the record, as this elector has watched it. */
enum leadership standing_state(const struct standing *e);

/* Appends one JSON object, without a newline; or its members, to an object that the caller has opened and closes. */
void standing_members(struct buf *out, const struct standing *e);
void standing_json(struct buf *out, const struct standing *e);

/* What it is called: its name, or its lock's URL. */
const char *standing_name(const struct standing *e);

/* Appends lines: that it leads, since when and for how long; or that it does not, and each reason; then who comes next;
 * then, under a heading, what elector_why and tell_more have. */
void standing_tell(struct buf *out, const struct standing *e);

/* Appends what `ctl resign` answers where there is nothing to resign. seconds: for which it does not campaign from now
 * on; -1: it goes on as before. */
void standing_not_resigned(struct buf *out, const struct standing *e, double seconds);

/* Appends the answer to `ctl handover` as the protocol has it (control.h), when it is known what came of it. */
struct handover_result;
void standing_handed_over(struct buf *out, const struct handover_result *result);

#define HAND_OVER_TIMEOUT (30 * NSEC_PER_SEC) /* for a request that names none */

/* Whether it can hand over at all: it leads. If not, appends the answer to `ctl handover`: who leads, and whom to
 * ask. */
bool standing_may_hand_over(struct buf *out, const struct standing *e);
bool standing_may_run(struct buf *out, const struct standing *e); /* the same for `cron run` */

/* Appends the answer to `ctl deadline`: until when it leads unless it renews, or that it does not lead. */
void standing_deadline(struct buf *out, const struct standing *e);
