/* Room script: the worker: a Lua state, its tasks, the script's hooks and terms, and the programs it starts.
 *
 * The script: its Lua state, how it is loaded, and the elector's messages, which start its hooks.
 * Not the process around it (worker.c): it has no sockets, handles no signals, does not exit, and knows no lock.
 * Used by the worker, by check and by the simulation. The hooks are run by election.c and term.c. */
#pragma once

#include "process/wire.h"
#include "script/script_state.h"

#include <lua.h>
#include <stdbool.h>

struct script *script_new(const struct script_spec *spec);
void script_free(struct script *s); /* closes the Lua state, which runs its finalizers */

/* Compiles the script and starts its main chunk as a task. When that has ended, the script sends its elections, or the
 * error. */
void script_load(struct script *s);

/* Handles a message of the elector. false: it is malformed, or must not come now. */
bool script_message(struct script *s, enum wire_type type, struct wire *w);

/* Pushes the function use(name), which returns what the file NAME.lua of lua/ returns. It runs each file once. [-0, +1,
 * m] */
void script_push_use(lua_State *L);
