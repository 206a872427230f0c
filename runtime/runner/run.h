/* The running script: its elections (posts) and the crews that run it (squads), and who tells whom what.
 * Not the election (elector.h) and not the processes (supervisor.h): it carries word between the two.
 * Used by cmd_run.c, candidate.c and worker_set.c, which are one thing in three files. */
#ifndef LUNARCH_RUN_H
#define LUNARCH_RUN_H

#include "election/elector.h"
#include "process/supervisor.h"
#include "process/wire_election.h"
#include "runner/program.h"

struct run;
struct squad;

/* A plan that outlives the message it came in. name owns all the strings. */
struct plan {
	char *name, *lock, *identity, *address, *where;
	struct script_times times;
	uint32_t flags;
};

enum post_hook { /* how far the term's hooks are, on the worker's side */
	HOOK_NONE,     /* no term, or its hooks never began */
	HOOK_LEADING,
	HOOK_STOPPING, /* the worker was told to stop */
	HOOK_OWED,     /* the worker died: its replacement runs on_stopped */
	HOOK_CLEANING, /* it does */
	HOOK_SWEEPING, /* on_stopped has run; leftovers are being looked for */
};

struct post { /* one election of the script */
	struct run *run;
	struct squad *squad;
	struct plan plan;
	uint32_t index, slot;         /* in the script's list; in its squad's page */
	const char *lock_url;         /* as opened; the elector's */
	struct lease_times times;
	nsec allowance;               /* K, as squad_allow has it: while a term runs the least that may be published */
	nsec shutdown_grace;

	struct elector *elector;
	enum post_hook hook;
	uint64_t term;
	int64_t token;
	struct instant kill;          /* as the guard knows it, or earlier */
	enum lease_reason reason;
	bool held;                    /* while stopping: the lease is kept */
	bool finished;
	bool paused;                  /* by an operator */
	bool let_go;                  /* the lease was released while on_stopped was still owed: stay out until it has run */
	unsigned failures, cleanups, hook_errors;
	struct admin_renewals *renewals; /* NULL: nobody asked */
	struct instant began;
	uint64_t ask;
	uint64_t save, save_number;   /* the worker's, on its way into the record (0 = none); and the elector's number for it */
	ev_timer cleanup_timer;
};

struct squad { /* one crew, and the replacement that follows it */
	struct run *run;
	struct crew *crew;            /* NULL between a crew's death and its replacement */
	uint32_t isolated;            /* index + 1 of the election it is for; 0 = all that are not isolated */
	struct plan *plans;           /* while loading */
	uint32_t plan_count;
	bool loaded, started;         /* on_start has run, or need not: messages may be sent */
	bool leaving;                 /* WIRE_QUIT was sent */
	bool began;                   /* on_start has run once: a replacement does not run it again */
	struct squad *heir;           /* of a reload: takes the posts over when it has started */
	bool candidate;               /* an heir that is not in charge yet */
	struct instant born;
	bool failed;                  /* its script could not be loaded */
	unsigned failures;
	ev_timer restart;
	struct squad *next;
};

struct run {
	struct program program;
	struct options options;
	const char *script;
	bool is_text;
	struct post **posts;
	uint32_t post_count;
	struct squad *squads;
	bool ending, killing;
	struct instant asked_at;      /* to end */
	bool moving;                  /* a reload changed lock or identity: release, then begin again */
	bool reload_due;              /* SIGHUP came while the script was being loaded: what was read may be old by now */
	bool ready;                   /* systemd was told */
	int status;                   /* exit status */
	uint64_t saves;               /* numbers them */
	ev_timer last_call;
};

/* cmd_run.c */
void run_loaded(struct run *r, struct squad *s);                 /* a squad's plans are complete */
void run_load_failed(struct run *r, struct squad *s, const char *text);
void run_started(struct run *r, struct squad *s);                /* on_start has run: in charge */
void run_squad_gone(struct run *r, struct squad *s, bool had_started);
void run_post_finished(struct run *r);
void run_end(struct run *r, int status, enum lease_reason reason); /* stop everything, release, leave with status */
void run_term_began(struct run *r);
void run_term_over(struct run *r, struct post *p);               /* --once */

/* worker_set.c */
struct squad *squad_new(struct run *r, uint32_t isolated);
int squad_spawn(struct squad *s, struct err *err);
void squad_go(struct squad *s, bool first);                      /* WIRE_GO for its posts */
void squad_quit(struct squad *s);
void squad_hurry(struct squad *s);                               /* no back-off now: its replacement is waited for */
void squad_free(struct squad *s);
bool squad_ready(const struct squad *s);
void squad_allow(struct squad *s);                               /* its elections or their times have changed: K is the least of theirs */
void plan_copy(struct plan *to, const struct wire_election *from);
void plan_fini(struct plan *p);

/* candidate.c */
struct post *post_new(struct run *r, struct squad *s, uint32_t index, const struct plan *plan);
int post_open(struct post *p, bool several, const char *fallback, struct err *err); /* makes the elector */
void post_free(struct post *p);
void post_message(struct post *p, enum wire_type type, struct wire *w);
void post_squad_ready(struct post *p);                           /* its worker can be talked to: campaign, or clean up */
void post_squad_dead(struct post *p, bool reaped);               /* nothing of its worker runs any more */
void post_swept(struct post *p, uint64_t term, bool clean);
void post_resign(struct post *p, nsec sit_out);
void post_pause(struct post *p, bool pause);                     /* by an operator */
void post_end(struct post *p, enum lease_reason reason);         /* for good */
void post_kill(struct post *p);                                  /* for good, without waiting for the script */
void post_reload(struct post *p, struct plan *plan_taken, const struct lease_times *t); /* ends the term for the next one */
const char *post_name(const struct post *p);

#endif
