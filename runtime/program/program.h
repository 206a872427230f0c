/* Room program: what every elector's process has around its elections: how an election is opened, what is shown of it,
 * orders of operators, systemd.
 *
 * What a running elector's process has once: loop, lock environment, evidence about itself, signals, control socket.
 * Not an election and not a supervisor of processes: run and exec build those on it.
 * Used by campaign.c and the rooms run and exec. */
#pragma once

#include "config/options.h"
#include "election/death_proof.h"
#include "locks/lock.h"
#include "loop/timeline.h"
#include "process/supervisor_spec.h"
#include "program/admin.h"
#include "program/control.h"
#include "program/events.h"
#include "program/orders.h"
#include "program/state_file.h"

#include <ev.h>
#include <signal.h>

struct death_watches;
struct poke_sockets;

#define PROGRAM_SIGNALS 8

struct program_ops { /* all from the loop */
	void (*signal)(void *arg, int signal);
	void (*look)(void *arg);         /* the machine was suspended or its clock set: look at the deadlines */
	const struct orders_ops *orders; /* its list is the admin endpoint's, too */
};

struct program {
	struct ev_loop *loop;
	struct timeline timeline; /* of the loop */
	struct reaper *reaper;
	struct lock_env env;
	struct proof_self self;
	struct death_watches *death_watches;
	struct poke_sockets *pokes;    /* NULL: not asked for */
	struct changes *changes;       /* of the elections, for these */
	struct state_file *state_file; /* NULL: not asked for */
	struct admin *admin;           /* NULL: not asked for */
	struct events *events;         /* for admin and control */
	struct control *control;       /* NULL: none could be made; the log says why */
	const struct program_ops *ops;
	void *arg;
	const struct options *options; /* borrowed */
	sigset_t ignored; /* by whoever started this process, as nohup(1) does: they stay so, for a command too */
	ev_signal signals[PROGRAM_SIGNALS];
	int signal_count;
	ev_io clock_set;
	ev_timer watchdog;            /* tells systemd's that the loop turns */
	char *tree_var, *control_var; /* "NAME=value" for what is started */
	bool told_local;
	bool no_privileges; /* what is started has none (--no-new-privs) */
};

/* A command that goes on to program_init with the same signals (0-terminated) calls this first. Until program_init
 * watches the signals they wait, instead of ending a program that has only begun. What is started begins with none
 * blocked. */
void program_hold_signals(const int *signals);
/* For a command that does not go on to program_init after all. */
void program_release_signals(const int *signals);

/* signals: 0-terminated, at most PROGRAM_SIGNALS; those that were ignored at the start are not watched. None of them is
 * blocked after that, also if the process was started so. SIGPIPE is ignored besides. */
int program_init(struct program *p, const struct options *o, const int *signals, const struct program_ops *ops,
                 void *arg, struct err *err);
void program_fini(struct program *p);

/* The first guard, which is started before any lock is opened, is a fork of this process. worker: what the worker of
 * such a guard runs; for a command, NULL. */
struct guard_fork program_fork(struct program *p, guard_worker *worker);

/* Says once, on a terminal, that a lock which is a plain name is this machine's alone. */
void program_say_local(struct program *p, const char *lock);

/* Is stdin a terminal whose input belongs to others now, as in a shell's background job? A process that reads it in
 * another session than the shell's is not stopped, as a job would be, but takes what is typed for the shell. */
bool program_in_background(void);
