/* The command of --fence: makes sure, before a term begins, that the holders of earlier ones do nothing any more. It
 * runs once for each of them, in a process tree of its own, under the deadlines of the term's lease.
 * Not a decision who is fenced (lease/debt.h), and not a term: its user hears of that later.
 * Used by campaign.c. */
#pragma once

#include "base/clock.h"
#include "election/elector.h"

struct fence;
struct program;

/* p, options and elector (where its pointer will be) are borrowed. kill: K. NULL: no --fence. */
struct fence *fence_new(struct program *p, const struct lease_times *times, struct elector *const *elector);
void fence_free(struct fence *f); /* after its elector, and when nothing of it runs any more; NULL: nothing */

/* For elector_config. */
extern const struct elector_fence fence_of_elector;
