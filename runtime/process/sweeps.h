/* Which sweeps a guard was asked for, by slot, and to which of them a process with certain marks belongs. Pure: no
 * process is looked at here. Not the walk over the tree, nor what is killed in it: guard.c. Used by guard.c and its
 * tests. */
#pragma once

#include "process/deadline_page.h"

#include <stdbool.h>
#include <stdint.h>

struct sweep {
	uint64_t term; /* 0: of no term */
	uint32_t next; /* the number of an on_next; 0: of none */
	int killed;
	bool pending; /* asked for, and not answered */
};

struct sweeps { /* zeroed: nothing was asked for */
	struct sweep slot[PAGE_SLOTS];
	int pending;
};

/* Asks for a sweep of what the term, or that number of on_next, or both have left. What was asked for before in this
 * slot and is not answered yet is swept with it; false: there is no such slot. */
bool sweeps_ask(struct sweeps *s, uint32_t slot, uint64_t term, uint32_t next);

/* The pending sweep that a process with these marks belongs to, as its environment has them ("slot.number", "-");
 * NULL: none. next_mark may be NULL: it has none. */
struct sweep *sweeps_find(struct sweeps *s, const char *term_mark, const char *next_mark);

void sweeps_answered(struct sweeps *s, struct sweep *one);
