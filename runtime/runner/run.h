/* The running script: its elections (posts) and the crews that run it (squads), and who tells whom what.
 * Not the election (elector.h) and not the processes (supervisor.h): it carries word between the two.
 * Used by cmd_run.c; run.c, reload.c, run_control.c, candidate.c and worker_set.c are one thing. */
#ifndef LUNARCH_RUN_H
#define LUNARCH_RUN_H

#include "election/elector.h"
#include "process/supervisor.h"
#include "process/wire_election.h"
#include "runner/program.h"
#include "runner/term_supervision.h"

struct run;
struct worker_set;

/* A plan that outlives the message it came in. name owns all the strings. */
struct election_settings {
	char *name, *lock, *identity, *address, *where;
	struct script_times times;
	uint32_t flags;
};

struct candidate { /* one election of the script */
	struct run *run;
	struct worker_set *worker_set;
	struct election_settings settings;
	uint32_t index; /* in the script's list; its slot of the page, too */
	struct lease_times times;
	nsec allowance; /* K, as worker_set_allow has it: while a term runs the least that may be published */
	struct elector *elector;
	struct term_supervision term;
	ev_timer timer;                  /* the supervision's */
	struct admin_renewals *renewals; /* NULL: nobody asked */
};

struct worker_set { /* one crew, and the replacement that follows it */
	struct run *run;
	struct supervisor *supervisor;      /* NULL between a crew's death and its replacement */
	uint32_t isolated;                  /* index + 1 of the election it is for; 0 = all that are not isolated */
	struct election_settings *settings; /* while loading */
	uint32_t settings_count;
	bool loaded, started;    /* on_start has run, or need not: messages may be sent */
	bool leaving;            /* WIRE_QUIT was sent */
	bool began;              /* on_start has run once: a replacement does not run it again */
	struct worker_set *heir; /* of a reload: takes the posts over when it has started */
	bool on_trial;           /* an heir that is not in charge yet */
	struct instant born;
	bool failed; /* its script could not be loaded */
	unsigned failures;
	ev_timer restart;
	struct worker_set *next;
};

struct run {
	struct program program;
	struct options options;
	const char *script;
	bool is_text;
	struct candidate **candidates;
	uint32_t candidate_count;
	struct worker_set *worker_sets;
	bool ending, killing;
	struct instant asked_at; /* to end */
	bool moving;             /* a reload changed lock or identity: release, then begin again */
	bool reload_due;         /* SIGHUP came while the script was being loaded: what was read may be old by now */
	bool ready;              /* systemd was told */
	int status;              /* exit status */
	ev_timer last_call;
};

/* run.c */
/* The whole of it: r has options and script. The exit status; -1 with *err: it could not begin. */
int run_script(struct run *r, struct err *err);
void run_loaded(struct run *r, struct worker_set *s); /* a squad's plans are complete */
void run_load_failed(struct run *r, struct worker_set *s, const char *text);
void run_started(struct run *r, struct worker_set *s); /* on_start has run: in charge */
void run_squad_gone(struct run *r, struct worker_set *s, bool had_started);
void run_post_finished(struct run *r);
void run_end(struct run *r, int status, enum lease_reason reason); /* stop everything, release, leave with status */
void run_term_began(struct run *r);
void run_term_over(struct run *r, struct candidate *p); /* --once */

void run_kill(struct run *r); /* a second signal: no more waiting for the script */
bool run_in_charge(const struct run *r, const struct worker_set *s); /* of any election */

/* reload.c */
void reload_begin(struct run *r);
void reload_if_due(struct run *r);
void reload_failed(struct run *r);
void reload_loaded(struct run *r, struct worker_set *heir);
void reload_started(struct run *r, struct worker_set *heir);
void reload_hand_over(struct run *r, struct candidate *p, struct worker_set *heir);
void reload_retire_if_idle(struct run *r, struct worker_set *old);
struct worker_set *reload_parent(struct run *r, const struct worker_set *heir);
void reload_inherit(struct run *r, struct worker_set *old);

/* run_control.c */
extern const struct program_ops run_control_ops; /* signals, the control socket, the admin endpoint */

/* worker_set.c */
struct worker_set *worker_set_new(struct run *r, uint32_t isolated);
int worker_set_spawn(struct worker_set *s, struct err *err);
void worker_set_go(struct worker_set *s, bool first); /* WIRE_GO for its posts */
void worker_set_quit(struct worker_set *s);
void worker_set_hurry(struct worker_set *s); /* no back-off now: its replacement is waited for */
void worker_set_free(struct worker_set *s);
bool worker_set_ready(const struct worker_set *s);
void worker_set_allow(struct worker_set *s); /* its elections or their times have changed: K is the least of theirs */
void election_settings_copy(struct election_settings *to, const struct wire_election *from);
void election_settings_fini(struct election_settings *p);

/* candidate.c */
struct candidate *candidate_new(struct run *r, struct worker_set *s, uint32_t index,
                                const struct election_settings *settings);
int candidate_open(struct candidate *p, bool several, const char *fallback, struct err *err); /* makes the elector */
void candidate_free(struct candidate *p);
void candidate_message(struct candidate *p, enum wire_type type, struct wire *w);
void candidate_worker_ready(struct candidate *p);             /* its worker can be talked to: campaign, or clean up */
void candidate_worker_dead(struct candidate *p, bool reaped); /* nothing of its worker runs any more */
void candidate_swept(struct candidate *p, uint64_t term, bool clean);
void candidate_resign(struct candidate *p, nsec sit_out);
void candidate_pause(struct candidate *p, bool pause);             /* by an operator */
void candidate_end(struct candidate *p, enum lease_reason reason); /* for good */
void candidate_kill(struct candidate *p);                          /* for good, without waiting for the script */
void candidate_reload(struct candidate *p, struct election_settings *settings_taken,
                      const struct lease_times *t); /* ends the term for the next one */
const char *candidate_name(const struct candidate *p);

#endif
