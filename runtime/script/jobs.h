/* What a script tells of the jobs that it runs at certain times, on its way to the elector, which shows it.
 * Not a schedule: lua/api/cron.lua runs them, and lua/cron tells of them. Used by script.c. */
#pragma once

#include <lua.h>

struct script;

/* Adds to the table at the top of the stack: job(table) with the fields of WIRE_JOB but slot and term, for the term
 * whose task calls it; outside of all terms it tells nothing. name is a must, the others have presets. Raises what is
 * of another type. [-0, +0, m] */
void jobs_bind(lua_State *L, struct script *s);
