/* One election of a script that runs: its settings, its elector, and the supervision of its term, which it connects
 * with the worker that runs its hooks. Not who leads (elector.h), not what follows for the hooks (term_hooks.h), not
 * which worker that is (life.h). Used by run.c, reload.c, run_control.c and worker_set.c; it reports to run.h. */
#pragma once

#include "config/election_settings.h"
#include "election/elector.h"
#include "run/term_supervision.h"
#include "term/life.h"
#include "term/script_jobs.h"
#include "term/script_metrics.h"

#include <ev.h>

struct run;

#define CANDIDATE_ASKED 64 /* as many as the control socket has clients (SERVER_CLIENTS) */

struct candidate { /* read by its users; number and election are theirs */
	struct run *run;
	uint32_t number;                          /* in struct life */
	uint32_t election[2];                     /* its place in the version of each side it is in */
	const struct election_settings *settings; /* the version's */
	char *lock;                               /* the URL of the lock that was opened */
	struct instant out_until;                 /* an operator's order: it sits out until then */
	struct campaign campaign;
	nsec allowance; /* its K for worker_set_allow: during a term the smallest that was in force in it */
	struct term_supervision term;
	struct script_metrics metrics;
	struct script_jobs jobs;
	/* Tickets of what its script was asked for, and has not replied to; 0: none. CANDIDATE_ASKED of them; NULL: nothing
	 * was asked in this term. */
	uint64_t *asked;
	char *script_error; /* the last one of a hook or a task; NULL: there was none */
	struct instant script_error_at;
};

/* settings: borrowed. */
struct candidate *candidate_new(struct run *r, const struct election_settings *settings);
void candidate_free(struct candidate *p); /* NULL: does nothing */

/* Makes the elector, which does not campaign yet. lock: its URL. several: the script has more elections. -1 with
 * *err. */
int candidate_open(struct candidate *p, const char *lock, bool several, struct err *err);

/* Whether p goes on as the election of these settings and this lock, without letting go of its lease. */
bool candidate_goes_on(const struct candidate *p, const struct election_settings *settings, const char *lock);

/* Checks the settings that a reload changes. -1 with *err. */
int candidate_check(const struct candidate *p, const struct election_settings *settings, struct err *err);

/* To be called when something happens to its worker. What the worker says goes to its term's supervision
 * (term_supervision_message). */
void candidate_worker_ready(struct candidate *p); /* it hears who leads, and runs an on_stopped that is owed */
void candidate_worker_dead(struct candidate *p, bool reaped); /* reaped: nothing of it runs. Its page is still there */

/* Takes a metric that its script has set. false: the message makes no sense. */
bool candidate_metric(struct candidate *p, struct wire *w);
bool candidate_job(struct candidate *p, struct wire *w);    /* the same for a job */
bool candidate_failed(struct candidate *p, struct wire *w); /* a hook or a task of it raised */

/* Fills both with what is told of this election; borrowed until the next event. */
struct standing;
void candidate_list(const struct candidate *p, struct standing *out, struct elector_status *status);

/* Takes what its script replies to candidate_ask. false: the message makes no sense. */
bool candidate_replied(struct candidate *p, struct wire *w);

/* These carry out an operator's orders. */
void candidate_resign(struct candidate *p, nsec sit_out); /* NSEC_NEVER: for one lease */
/* Hands over to `to` ("": whoever comes next), which has `timeout` to answer. The request with this ticket is
 * answered when it is known what came of that; -1 with *err: now. */
int candidate_hand_over(struct candidate *p, uint64_t ticket, const char *to, nsec timeout, struct err *err);
/* Asks the script of its term to run a job. The request with this ticket is answered when the script replies, or when
 * its worker dies; -1 with *err: now. It must lead. */
struct control_request;
int candidate_ask(struct candidate *p, const struct control_request *q, struct err *err);
/* Asks the script to take its files as they are now, in its worker, which is ready: run_taken is told. */
void candidate_ask_reload(struct candidate *p);
void candidate_end(struct candidate *p, enum lease_reason reason); /* for good */
void candidate_kill(struct candidate *p);                          /* the same, without waiting for the script */

/* A reload. Its new settings, of a version that is in force now: from the next term on. */
void candidate_configure(struct candidate *p, const struct election_settings *settings);
void candidate_stir(struct candidate *p);  /* its term ends for the next one, and so does what on_next runs */
void candidate_moved(struct candidate *p); /* to the worker of the other side */
void candidate_place(struct candidate *p); /* its worker has loaded the script: where it stands in that */
