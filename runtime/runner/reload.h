/* A reload: the script is loaded anew, in workers beside those that run. When they have started, candidates without a
 * term move to them at once, the others when their term is over. Every lease is kept meanwhile, and if the new script
 * cannot be loaded, the old one runs on. Not the elections' new settings themselves (candidate_reload).
 * Used by run.c and run_control.c. */
#ifndef LUNARCH_RELOAD_H
#define LUNARCH_RELOAD_H

#include <stdbool.h>

struct candidate;
struct run;
struct worker_set;

void reload_begin(struct run *r);  /* now, or when the script that is being loaded has been */
void reload_if_due(struct run *r); /* what reload_begin put off */

/* s is pending: its script was loaded, could not be, or its elections have started. */
void reload_loaded(struct run *r, struct worker_set *s);
void reload_failed(struct run *r, const char *why);
void reload_started(struct run *r, struct worker_set *s);

/* The set whose `reloaded` is s; NULL if there is none. */
struct worker_set *reload_replaced_by(struct run *r, const struct worker_set *s);

/* Whether p is to move to a set that a reload has made, and has not yet; and moves it there if nothing of it runs any
 * more. false: it has not moved. */
bool reload_is_due_to_move(const struct candidate *p);
bool reload_move(struct candidate *p);

void reload_move_candidates(struct run *r, struct worker_set *old); /* all of them, to old->reloaded */
void reload_quit_if_unused(struct run *r, struct worker_set *s);    /* if no candidate has it any more */

#endif
