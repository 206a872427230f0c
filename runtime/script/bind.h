/* The Lua bindings: what the script can call, each group in a file of its own.
 * Not the hooks (hooks.c) and nothing with a life of its own: waits belong to the scheduler.
 * Used by script.c, once, before the script is loaded. Each open function is [-0, +0, m]. */
#ifndef LUNARCH_BIND_H
#define LUNARCH_BIND_H

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"

#include <lua.h>

/* Replace functions of the coroutine library, so that a wait inside a coroutine of the script reaches the scheduler. */
void bind_coroutine(lua_State *L);

/* Add to the table at the top of the stack. */
void bind_tasks(lua_State *L);    /* sleep, spawn, and groups of tasks: lua/api/tasks.lua */
void bind_signals(lua_State *L);  /* signal(): what tasks wait for that Lua code decides */
void bind_exec(lua_State *L);     /* start, await, line ...: see lua/api/exec.lua, which makes exec of them */
void bind_json(lua_State *L);     /* json */
void bind_log(lua_State *L);      /* emit (which lua/api/log.lua makes log of) and the global print */
void bind_time(lua_State *L);     /* time */
void bind_cron(lua_State *L);     /* cron: lua/api/cron.lua */
void bind_failures(lua_State *L); /* fail(code, message) -> nil, err */

/* Starts a task in the scope, as sched_spawn, and leaves its handle. Raises if the scope is over. [-(nargs+1), +1, e]
 */
struct scope;
int bind_spawn(lua_State *L, struct scope *scope, int nargs);

/* An expected failure: returns nil and an error with code and message, which prints as its message. [-0, +2, m] */
int bind_fail(lua_State *L, const char *code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int bind_fail_err(lua_State *L, const struct err *err);

/* A number of seconds at arg: finite, not negative. Raises, naming what it is for. [-0, +0, v] */
double bind_seconds(lua_State *L, int arg, const char *what);

#endif
