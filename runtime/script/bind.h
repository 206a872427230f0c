/* What all functions have in common that a script calls: how they fail, how they read an argument, and tasks.
 * Not the other groups of functions (script/api), which the script gets by script_spec.natives.
 * Used by the files of script and of the rooms above it. The functions are [-0, +0, m] if they do not say otherwise. */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"

#include <lauxlib.h>
#include <lua.h>
#include <stdbool.h>

/* Opens Lua's own libraries. `require` also finds modules in C that were installed with ours (the tarball's lua-cjson),
 * after the system's. [-0, +0, e] */
void bind_libraries(lua_State *L);

/* math.random gives the same numbers in each run, as a simulation does (math.randomseed in Lua's manual, 6.7).
 * [-0, +0, e] */
void bind_seed(lua_State *L, uint32_t seed);

/* These add to the table at the top of the stack. */
void bind_tasks(lua_State *L);    /* sleep, spawn, and groups of tasks: lua/api/tasks.lua */
void bind_failures(lua_State *L); /* fail(code, message) -> nil, err */

/* Starts a task in the scope, as sched_spawn, and pushes its handle. Raises if the scope is over. [-(nargs+1), +1,
 * e] */
struct scope;
int bind_spawn(lua_State *L, struct scope *scope, int nargs);

/* An expected failure: pushes nil and an error with code and message, which prints as its message. [-0, +2, m] */
int bind_fail(lua_State *L, const char *code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int bind_fail_err(lua_State *L, const struct err *err);

/* What a field of the table at that index has, which lua/ has checked; the text is the table's. NULL, the preset and
 * false: it is not there. [-0, +0, m] */
const char *bind_text(lua_State *L, int table, const char *field);
double bind_number(lua_State *L, int table, const char *field, double preset);
bool bind_flag(lua_State *L, int table, const char *field);

/* The texts of the list in that field, NULL-terminated, in a userdata that is pushed: they live as long as the list and
 * the userdata do. NULL, with a value pushed all the same: there is no list. Raises if it has anything else. [-0, +1,
 * v] */
char **bind_texts(lua_State *L, int table, const char *field);

/* Sets a field of the table at the top of the stack. text NULL: nil. [-0, +0, m] */
void bind_set_text(lua_State *L, const char *field, const char *text);
void bind_set_integer(lua_State *L, const char *field, lua_Integer value);
void bind_set_number(lua_State *L, const char *field, double value);
void bind_set_flag(lua_State *L, const char *field, bool value);

/* Defines a class of userdata: its methods, and what __gc does. Each may be NULL. [-0, +0, m] */
void bind_class(lua_State *L, const char *type, const luaL_Reg *methods, lua_CFunction gc);

/* Defines a class, and pushes the table of its methods. An object also has the fields of the table that is its first
 * user value. Any other name raises (lua/boot/unknown.lua). [-0, +1, m] */
void bind_fields_class(lua_State *L, const char *type, const luaL_Reg *methods);

/* The number of seconds at arg. Raises if it is negative or not finite; what: names it in the error. [-0, +0, v] */
double bind_seconds(lua_State *L, int arg, const char *what);
