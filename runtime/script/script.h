/* The script: its Lua state, how it is loaded, and the messages that drive its hooks.
 * Not the process around it (worker.c): no sockets, no signals, no exit. No lock code.
 * Used by the worker, by check and by the simulation. The hooks are run by election.c and term.c. */
#ifndef LUNARCH_SCRIPT_H
#define LUNARCH_SCRIPT_H

#include "process/wire.h"
#include "script/script_state.h"

#include <lua.h>
#include <stdbool.h>

struct script *script_new(const struct script_spec *spec);
void script_free(struct script *s); /* closes the Lua state: pending finalizers run */

/* Compiles the script and makes a task of its main chunk; the elections, or why there are none, are sent when that has
 * ended. */
void script_load(struct script *s);

/* A message of the elector. false: malformed, or against the order of things. */
bool script_message(struct script *s, enum wire_type type, struct wire *w);

/* Leaves the function use(name): what lua/NAME.lua returns, run once in this state. [-0, +1, m] */
void script_push_use(lua_State *L);

#endif
