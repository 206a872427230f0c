/* Room api: what a script can call, in C: one file for each group of functions (`lua_NAME.c`).
 *
 * The Lua bindings: what a script can call, in C. Each group of functions has a file in runtime/api/.
 * Not the hooks (election.c, term.c). A function that waits leaves that to the scheduler.
 * Used by script.c, once, before the script is loaded. The functions are [-0, +0, m] if they do not say otherwise.
 */
#ifndef LUNARCH_BIND_H
#define LUNARCH_BIND_H

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"

#include <lua.h>

/* Replaces functions of the coroutine library, so that a wait inside a script's coroutine reaches the scheduler. */
void bind_coroutine(lua_State *L);

/* These add to the table at the top of the stack. */
void bind_tasks(lua_State *L);    /* sleep, spawn, and groups of tasks: lua/api/tasks.lua */
void bind_signals(lua_State *L);  /* signal(): tasks wait until Lua code sets it */
void bind_exec(lua_State *L);     /* start, await, line ...: lua/api/exec.lua builds exec on them */
void bind_json(lua_State *L);     /* json */
void bind_log(lua_State *L);      /* emit, on which lua/api/log.lua builds log; and the global print */
void bind_time(lua_State *L);     /* time */
void bind_cron(lua_State *L);     /* cron: lua/api/cron.lua */
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
