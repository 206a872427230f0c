#include "script/api/api.h"
#include "script/bind.h"
#include "script/scheduler.h"

#include <lauxlib.h>

/* These replace the library's functions. If a task waits inside a coroutine, the wait is passed on to the scheduler,
 * and the coroutine goes on after it. The caller of resume does not notice. */

static lua_State *coroutine_at(lua_State *L, int arg)
{
	lua_State *co = lua_tothread(L, arg);

	luaL_argexpected(L, co, arg, "coroutine");
	return co;
}

static bool is_error(int status)
{
	return status != LUA_OK && status != LUA_YIELD;
}

/* Moves co's results, or its error value, to L. */
static void coroutine_take(lua_State *L, lua_State *co, int status, int *n)
{
	if (is_error(status))
		*n = 1;
	if (!lua_checkstack(L, *n + 1)) {
		lua_pop(co, *n);
		luaL_error(L, "too many results to resume");
	}
	lua_xmove(co, L, *n);
}

/* Raises co's error in the caller. A text gets the caller's position, as in the library. */
static int rethrow(lua_State *L, lua_State *co)
{
	int n = 1;

	if (is_error(lua_status(co)))
		lua_resetthread(co); /* closes its <close> variables; leaves the error value */
	coroutine_take(L, co, LUA_ERRRUN, &n);
	if (lua_type(L, -1) == LUA_TSTRING && !sched_over(L)) {
		luaL_where(L, 1);
		lua_insert(L, -2);
		lua_concat(L, 2);
	}
	return lua_error(L);
}

static int coroutine_relayed(lua_State *L, int status, lua_KContext wrapped);

/* wrapped: for a function of coroutine.wrap, which raises co's error; else for coroutine.resume, whose first result says
 * whether there was one. */
static int coroutine_go(lua_State *L, lua_State *co, int nargs, bool wrapped)
{
	int n = 0, status = sched_resume_nested(L, co, nargs, &n);

	if (status == LUA_YIELD && sched_is_wait(co, n)) {
		lua_pop(co, n);
		return sched_relay(L, wrapped, coroutine_relayed);
	}
	if (wrapped && is_error(status))
		return rethrow(L, co);
	coroutine_take(L, co, status, &n);
	if (wrapped)
		return n;
	lua_pushboolean(L, !is_error(status));
	lua_insert(L, -(n + 1));
	return n + 1;
}

static int coroutine_relayed(lua_State *L, int, lua_KContext wrapped)
{
	sched_unpark(L);
	return coroutine_go(L, lua_tothread(L, wrapped ? lua_upvalueindex(1) : 1), 0, wrapped);
}

/* Whether co cannot be resumed at all. How many values are pushed: 0, or false and the error. */
static int coroutine_refuse(lua_State *L, lua_State *co, int nargs)
{
	lua_pushboolean(L, 0);
	if (sched_parked(co))
		lua_pushliteral(L, "cannot resume a coroutine that waits in another task");
	else if (!lua_checkstack(co, nargs))
		lua_pushliteral(L, "too many arguments to resume");
	else
		return lua_pop(L, 1), 0;
	return 2;
}

static int co_resume(lua_State *L)
{
	lua_State *co = coroutine_at(L, 1);
	int nargs = lua_gettop(L) - 1, refused = coroutine_refuse(L, co, nargs);

	if (refused)
		return refused;
	lua_xmove(L, co, nargs);
	return coroutine_go(L, co, nargs, false);
}

static int call_wrapped(lua_State *L)
{
	lua_State *co = lua_tothread(L, lua_upvalueindex(1));
	int nargs = lua_gettop(L);

	if (coroutine_refuse(L, co, nargs))
		return lua_error(L);
	lua_xmove(L, co, nargs);
	return coroutine_go(L, co, nargs, true);
}

static int co_wrap(lua_State *L)
{
	luaL_checktype(L, 1, LUA_TFUNCTION);
	lua_State *co = lua_newthread(L);
	lua_pushvalue(L, 1);
	lua_xmove(L, co, 1);
	lua_pushcclosure(L, call_wrapped, 1);
	return 1;
}

static int co_suspend(lua_State *L)
{
	if (sched_is_task(L))
		return luaL_error(L, "attempt to yield from outside a coroutine");
	if (!lua_isyieldable(L))
		return luaL_error(L, "coroutine.yield: " SCHED_CANNOT_YIELD);
	return lua_yield(L, lua_gettop(L));
}

/* Calls the library's function, which is the upvalue, with all arguments. */
static int call_original(lua_State *L)
{
	lua_pushvalue(L, lua_upvalueindex(1));
	lua_insert(L, 1);
	lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
	return lua_gettop(L);
}

static int co_status(lua_State *L)
{
	if (!sched_parked(coroutine_at(L, 1)))
		return call_original(L);
	lua_pushliteral(L, "normal");
	return 1;
}

static int co_close(lua_State *L)
{
	if (sched_parked(coroutine_at(L, 1)))
		return luaL_error(L, "cannot close a coroutine that waits in another task");
	return call_original(L);
}

static int co_isyieldable(lua_State *L)
{
	lua_State *co = lua_isthread(L, 1) ? lua_tothread(L, 1) : L;

	lua_pushboolean(L, lua_isyieldable(co) && !sched_is_task(co));
	return 1;
}

static const luaL_Reg replacements[] = {
	{ "resume", co_resume }, { "wrap", co_wrap },   { "yield", co_suspend },
	{ "status", co_status }, { "close", co_close }, { "isyieldable", co_isyieldable },
	{ NULL, NULL },
};

void api_open_coroutine(lua_State *L)
{
	lua_getglobal(L, "coroutine");
	for (const luaL_Reg *r = replacements; r->name; r++) {
		lua_getfield(L, -1, r->name);
		lua_pushcclosure(L, r->func, 1);
		lua_setfield(L, -2, r->name);
	}
	lua_pop(L, 1);
}
