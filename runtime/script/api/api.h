/* Room script/api: what a script can call, in C: one file for each group of functions (`lua_NAME.c`).
 *
 * Not the hooks (script/election.c, script/term.c), nor tasks (script/lua_task.c). A function that waits leaves that to the scheduler.
 * Used by who makes a script: as script_spec.natives. The functions are [-0, +0, m]. */
#pragma once

#include <lua.h>
#include <stdint.h>

/* Adds all that follows to the table at the top of the stack. */
void api_open(lua_State *L);

void api_open_cron(lua_State *L);    /* cron: lua/api/cron.lua */
void api_open_exec(lua_State *L);    /* start, await, line ...: lua/api/exec.lua builds exec on them */
void api_open_json(lua_State *L);    /* json */
void api_open_lock(lua_State *L);    /* lock_open, lock_place, texts: lua/lunarch/lock.lua */
void api_open_log(lua_State *L);     /* emit, on which lua/api/log.lua builds log; and the global print */
void api_open_signals(lua_State *L); /* signal(): tasks wait until Lua code sets it */
void api_open_tcp(lua_State *L);     /* tcp() -> a connection: lua/lunarch/tcp.lua */
void api_open_time(lua_State *L);    /* time */

/* Replaces functions of the coroutine library, so that a wait inside a script's coroutine reaches the scheduler. */
void api_open_coroutine(lua_State *L);

/* Pushes what a lock's handle shows of a record: lua/commands/record_text.lua. r NULL: there is none. [-0, +1, m] */
struct record;
void api_push_record(lua_State *L, const char *lock, const struct record *r, int64_t now_us);
