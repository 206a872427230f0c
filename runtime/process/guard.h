/* The guard: the small process between elector and worker that makes sure the tree dies in time.
 * No heap, no threads, no Lua, no lock code, nothing that can fail once it runs; a session of its own (but for a
 * command on a terminal), the tree's subreaper. Used by main.c for the role `-x guard ...`, whose arguments only
 * supervisor.c makes; the notes and orders are between those two. */
#ifndef LUNARCH_GUARD_H
#define LUNARCH_GUARD_H

#include <stdint.h>

/* argv: CONTROLFD WIREFD PAGEFD MARKSFD TREEFD ELECTORFD worker|command|foreground, then what to run: the arguments of
 * the role worker after MARKSFD, or the command. -1 for a descriptor there is none of. Signals are blocked by who
 * starts it, so that there is no moment in which one ends it. The environment is the worker's. Exit status: 0 = nothing
 * of the tree lives any more. */
int guard_main(int argc, char **argv);

/* One note or order is one datagram. */
enum guard_note_type {                    /* guard -> elector */
	               GUARD_STARTED = 1, /* value: pid of the worker or command */
	               GUARD_ENDED,       /* value: its wait status; what it left behind is being killed */
	               GUARD_SWEPT,       /* value: how many were killed; slot, term; clean */
	               GUARD_STOPPED,     /* the command was stopped by a signal */
	               GUARD_CONTINUED,
};

struct guard_note {
	uint32_t type;
	int32_t value;
	uint32_t slot, clean;
	uint64_t term;
};

enum guard_order_type {                  /* elector -> guard */
	                GUARD_POKE = 1,  /* look at the page again */
	                GUARD_INTERRUPT, /* SIGRTMIN to the worker */
	                GUARD_SIGNAL,    /* signal, to the command's process group, or to the worker */
	                GUARD_KILL,      /* everything, now */
	                GUARD_SWEEP,     /* what term left behind on slot; GUARD_SWEPT answers */
};

struct guard_order {
	uint32_t type;
	int32_t signal;
	uint32_t slot, unused;
	uint64_t term;
};

#endif
