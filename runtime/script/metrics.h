/* The metrics that a script sets, on their way to the elector: sent at most every 50 ms, so that a script may set one
 * in a loop. Not their values over time: the elector keeps those (term/script_metrics.h). Used by script.c, and by
 * term.c when a term is over. lua/lunarch/metrics.lua checks names and labels. */
#pragma once

#include <lua.h>

struct metrics;
struct script;

struct metrics *metrics_new(struct script *s);
void metrics_free(struct metrics *m); /* what was not sent is lost */
void metrics_flush(struct metrics *m);

/* Adds to the table at the top of the stack: metric(counter, name, labels, value), for the election whose hook or task
 * calls it. Raises outside of all elections, where there are several. [-0, +0, m] */
void metrics_bind(lua_State *L, struct metrics *m);
