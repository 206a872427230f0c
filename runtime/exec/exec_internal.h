/* One candidate of `exec`, and what its parts do for one another: the term (exec_term.c), a command before it
 * (exec_early.c), the end of a command (exec_end.c), what the elector says (exec_elector.c), signals (exec_stop.c), the
 * control socket (exec_control.c). Not for other rooms: exec.h is. Used by these files and exec_run.c. */
#pragma once

#include "election/elector.h"
#include "exec/exec_command.h"
#include "exec/exec_warm.h"
#include "process/supervisor.h"
#include "program/campaign.h"
#include "program/exit_status.h"
#include "program/program.h"
#include "term/service_order.h"
#include "term/term_effects.h"

#include <ev.h>
#include <stdbool.h>

/* What the supervisor, of which there is one at a time, is there for. Before a term there may be a guard whose command
 * waits for one, so that it starts sooner; or, with --warm, a command that makes itself ready, while this candidate
 * comes next. When it leads, they are the term's: whatever still runs is killed in time. */
enum stage {
	STAGE_NONE, /* there is no supervisor: neither a command nor anything that it left behind runs */
	STAGE_HELD,
	STAGE_WARM,
	STAGE_ENDING, /* one of those two is being ended. Nothing else is begun before it is gone */
	STAGE_TERM,   /* the command leads, or its term is over */
};

/* One of the locks in which exec may lead. With --slots there are several, and it leads in one at most. */
struct exec_slot {
	struct exec *x;
	uint32_t number;          /* from 1 on; 0: there are no slots, and this is the only one */
	char name[16];            /* of its election; "": there are no slots */
	struct campaign campaign; /* its elector NULL: not made yet */
	bool held;                /* another leads in it, or may be alive */
	nsec doubt;               /* the same: how long it may take to find out */
	bool finished;            /* its elector has */
};

struct exec {
	struct program program;
	struct options *options;
	struct exec_slot *slots, *at; /* at: the one of the term, or of the last term; never NULL */
	uint32_t slot_count;
	const char *barred; /* why it does not campaign any more; NULL: it does */
	nsec shutdown_grace, at_least;

	struct supervisor *supervisor;
	enum stage stage;
	struct exec_command command;
	struct exec_warm warm;
	bool is_next;            /* this candidate comes next */
	bool spent;              /* its command has ended by itself while this candidate comes next */
	bool ended;              /* STAGE_TERM: the command has; what it left behind is being killed */
	unsigned lost_held;      /* guards that have died before their command began */
	struct exec_term of;     /* the term, for a command that is started again in it */
	struct term_hooks hooks; /* of a script without on_stopped: the command runs, or is told to stop */
	struct instant began;    /* when the term began */
	struct instant started;  /* when the command was started */
	struct exec_restart restart;
	char *shell[4]; /* the command of --command: /bin/sh -c LINE */
	bool leaving;
	struct instant asked_at; /* when this process was asked to stop */
	int asked, status, wait_status;
	bool ran;      /* the command has led */
	char *trouble; /* why the lock cannot be used now; NULL */
	bool hopeless; /* the lock can never be used */
	ev_timer patience, hold, grace, again, refill, cool;
	int left_with; /* the status with which it leaves when it is known who leads after a hand-over; 0: it stays */
};

/* ---- exec_run.c ---- */

/* -n, or --wait 0. */
bool exec_waits_not(const struct exec *x);
void exec_begin_timer(struct exec *x, ev_timer *t, nsec after);

/* ---- exec_term.c: the term, and the command in it ---- */

void exec_tell(struct exec *x, struct term_event e);
/* A term keeps the other slots from campaigning. To be called whenever one may have begun or ended. */
void exec_bar(struct exec *x);
void exec_leave(struct exec *x, int status, enum lease_reason reason);
/* The exit status of a process that was asked to stop. */
int exec_leaving_status(const struct exec *x);
void exec_start_command(struct exec *x);
void exec_after_command(struct exec *x);
/* The term was lost: unless the command is to be started again, exec leaves. */
void exec_lost_status(struct exec *x, enum lease_reason reason);
void exec_handed_over(void *arg, const struct handover_result *result);
void exec_on_hold(struct ev_loop *loop, ev_timer *w, int revents);  /* --at-least is over */
void exec_on_again(struct ev_loop *loop, ev_timer *w, int revents); /* --restart: the pause is over */

/* ---- exec_early.c: a command that does not lead yet ---- */

void exec_hold(struct exec *x);      /* a guard, whose command waits for the term */
void exec_warm_up(struct exec *x);   /* --warm: the command, while this candidate comes next */
void exec_end_early(struct exec *x); /* ends a guard or a command that is not the term's */
void exec_tell_warm_ended(const struct exec *x);
/* The guard of such a command is gone. */
void exec_on_early_gone(struct exec *x, enum stage was);
void exec_on_cool(struct ev_loop *loop, ev_timer *w, int revents);   /* the time for its end is over */
void exec_on_refill(struct ev_loop *loop, ev_timer *w, int revents); /* exec_hold again */

/* ---- exec_end.c, exec_elector.c, exec_stop.c, exec_control.c: who is told what ---- */

extern const struct supervisor_callbacks exec_supervisor_callbacks;
extern const struct elector_callbacks exec_elector_callbacks;
void exec_on_patience(struct ev_loop *loop, ev_timer *w, int revents); /* --wait is over, or it is hopeless */
void exec_on_grace(struct ev_loop *loop, ev_timer *w, int revents);    /* --shutdown-grace is over */
void exec_on_signal(void *arg, int signal);
extern const struct orders_ops exec_orders;
