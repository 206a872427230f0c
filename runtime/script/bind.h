/* What the functions have in common that a script calls: how they fail, how they read an argument, and tasks.
 * Not the other groups of functions (the room api), which the script gets by script_spec.natives.
 * Used by script.c and by the files of the room api. The functions are [-0, +0, m] if they do not say otherwise.
 */
#ifndef LUNARCH_BIND_H
#define LUNARCH_BIND_H

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"

#include <lua.h>

/* These add to the table at the top of the stack. */
void bind_tasks(lua_State *L);    /* sleep, spawn, and groups of tasks: lua/api/tasks.lua */
void bind_failures(lua_State *L); /* fail(code, message) -> nil, err */

/* Starts a task in the scope, as sched_spawn, and pushes its handle. Raises if the scope is over. [-(nargs+1), +1, e]
 */
struct scope;
int bind_spawn(lua_State *L, struct scope *scope, int nargs);

/* An expected failure: pushes nil and an error with code and message, which prints as its message. [-0, +2, m] */
int bind_fail(lua_State *L, const char *code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int bind_fail_err(lua_State *L, const struct err *err);

/* The number of seconds at arg. Raises if it is negative or not finite; what: names it in the error. [-0, +0, v] */
double bind_seconds(lua_State *L, int arg, const char *what);

#endif
