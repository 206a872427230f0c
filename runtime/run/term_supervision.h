/* Carries out what term_hooks.h says for one election, between its elector and the worker that runs its hooks.
 * Decides nothing, and knows no process: how the worker is reached, swept and killed is the owner's (struct term_ops).
 * Used by candidate.c, with real processes, and sim_node.c, without any. */
#pragma once

#include "election/elector.h"
#include "loop/timeline.h"
#include "process/wire.h"
#include "process/worker_doing.h"
#include "program/campaign.h"
#include "term/life.h"
#include "term/may_lead.h"
#include "term/next_hooks.h"
#include "term/term_effects.h"

enum term_news { /* for the owner, which may call term_supervision_tell from inside all but the first */
	         TERM_NEWS_ALLOW,    /* a term begins: TERM_DO_ALLOW */
	         TERM_NEWS_BEGAN,    /* a term has begun */
	         TERM_NEWS_OVER,     /* a term is over */
	         TERM_NEWS_IDLE,     /* nothing of an on_next runs any more */
	         TERM_NEWS_FINISHED, /* TERM_DO_FINISHED */
};

/* leads_another, elsewhere, page_changed, doing and hopeless may be NULL. They may be called from inside any term_supervision_
 * function and from the elector's callbacks; none may call term_supervision_tell from inside but `tell`. */
struct term_ops {
	struct term_context (*context)(void *arg);
	struct page *(*page)(void *arg); /* while a worker is there */
	void (*page_changed)(void *arg, enum term_page_news what);
	void (*send)(void *arg, const struct buf *m);
	/* Kills what the term, or the on_next of this number (0: none), left behind. true: nothing of any term or
	 * on_next is left. false: term_supervision_swept follows, later */
	bool (*sweep)(void *arg, uint64_t term, uint32_t next);
	void (*kill)(void *arg);                                  /* the worker; TERM_EV_DEAD follows, later */
	void (*doing)(const void *arg, struct worker_doing *out); /* what the worker does now; NULL: nobody knows */
	/* Its worker leads in another election, too: who kills it ends that term. NULL: it never does */
	bool (*leads_another)(const void *arg);
	/* This process leads in another slot of the election, or something of a term there is not over: here it does
	 * not campaign, and starts nothing. NULL: there are no slots */
	bool (*elsewhere)(const void *arg);
	void (*tell)(void *arg, enum term_news what);
	void (*hopeless)(void *arg, const char *why); /* as the elector's */
};

struct term_supervision { /* caller's memory, inside the owner; zeroed and filled before the elector is made */
	struct term_hooks hooks;
	struct next_hooks next;
	const struct term_ops *ops;
	void *arg;
	uint32_t slot;             /* in the page and in messages */
	struct campaign *campaign; /* the owner's */
	struct may_lead may_lead;  /* the owner sets its timeout */
	bool priority_given;       /* by an option: what the script's function says does not count */
	bool finishing;            /* TERM_DO_FINISHED waits for what on_next_over does */
	struct timeline *timeline;
	struct timer timer, next_timer; /* of the term, and of on_next */
};

/* _init: to be called once it is zeroed and filled. _fini: before its memory is freed, after the elector. */
void term_supervision_init(struct term_supervision *t, struct timeline *timeline);
void term_supervision_fini(struct term_supervision *t);

/* For elector_new, with the term_supervision as its arg. */
extern const struct elector_callbacks term_elector_callbacks;

/* A message of the worker about this election, with its slot still to be read: ANSWER, LEADS, DRAINED, STOPPED, END,
 * SAVE, NEXT_STOPPED. false: it is malformed, and nothing has changed. Then the owner ends the worker, whose death
 * follows as any other. */
bool term_supervision_message(struct term_supervision *t, enum wire_type type, struct wire *w);

/* Takes what a term, on_next and may_lead need from the settings that its campaign has read. */
void term_supervision_configure(struct term_supervision *t, const struct election_settings *s);

/* Anything else that happened. Fills in at and now. */
void term_supervision_tell(struct term_supervision *t, struct term_event e);

/* The context may have changed: tells the elector whether a worker is ready, and whether the candidate may campaign. */
void term_supervision_look(struct term_supervision *t);

/* The supervision of on_next, which goes on beside the term's (next_hooks.h). It hears of what concerns both from
 * term_supervision_tell: LEAD, READY, the term's end. */
void term_supervision_swept(struct term_supervision *t, uint64_t term, uint32_t next, bool clean);
void term_supervision_ask(struct term_supervision *t); /* may_lead, and what comes with its answer, although it leads */
void term_supervision_move(struct term_supervision *t); /* what runs of it is to end: another worker takes over */
bool term_supervision_finished(
	const struct term_supervision *t); /* no term, nothing of an on_next, and the elector has finished */

/* The worker is dead. late is read from the page, which must be there still. */
void term_supervision_dead(struct term_supervision *t, bool reaped);

/* What struct life knows of a candidate, and what it is to know of its term. once: it leaves after this term. */
struct term_context term_context_of(const struct life *l, uint32_t candidate, bool once);
enum life_term term_supervision_life(const struct term_supervision *t);

/* What a script is given of a record's checkpoint: NULL if there is none, or one that is too long for a message, since
 * what somebody else put there may be of any size. */
const char *term_checkpoint(const char *checkpoint, const struct log_about *about);
