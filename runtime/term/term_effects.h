/* The one order in which the actions of term_hooks.h are carried out, and what they write into the page of deadlines.
 * Decides nothing, and does not know how a worker or a command is reached: that is the caller's table of effects.
 * Used by term_supervision.c (run and the simulation), the room exec and tests. */
#pragma once

#include "process/deadline_page.h"
#include "term/term_hooks.h"

/* The guard that looks at the page, and the worker, are to be told that it has changed. */
enum term_page_news {
	TERM_PAGE_LATER,     /* its deadlines are later: the guard may look at its leisure */
	TERM_PAGE_POKE,      /* the guard is to look now */
	TERM_PAGE_INTERRUPT, /* and the worker is to look as well, whatever it does */
};

/* What the caller does for an action. NULL: nothing. */
typedef void term_effect(void *arg, struct term_actions *a);
struct term_effects {
	struct page *(*page)(void *arg); /* NULL: there is no worker, so nothing is written */
	void (*page_changed)(void *arg, enum term_page_news what);
	term_effect *timer_off, *allow, *lead, *drain, *stop, *clean_up, *ask, *saved, *log, *kill, *sweep, *timer,
		*began, *over, *answer, *save, *end, *next_term, *report, *finished;
	term_effect *refused; /* the page has not taken its new deadlines: TERM_EV_REFUSED is told next */
	void (*tell)(void *arg, struct term_event e); /* has another event carried out */
};

/* Carries out the actions that h has just answered with, and tells what follows from them at once: TERM_EV_REFUSED or
 * TERM_EV_SWEPT. slot: of the page. */
void term_carry_out(const struct term_hooks *h, uint32_t slot, struct term_actions *a, const struct term_effects *f,
                    void *arg);
