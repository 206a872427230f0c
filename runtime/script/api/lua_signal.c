#include "script/api/api.h"
#include "script/bind.h"
#include "script/scheduler.h"

#include <lauxlib.h>

#define SIGNAL_TYPE "lunarch.signal"

/* Tasks that wait until Lua code wakes them (lua/api/queue.lua). The one that has waited longest is woken first. */
struct signal {
	struct waits waits;
};

/* A userdata on the waiting task's stack, so that it is freed with the wait. */
struct signal_waiter {
	struct wait wait; /* the first field, so that it can be cast */
	struct signal *signal;
	bool woken;
};

static struct signal *signal_at(lua_State *L)
{
	return luaL_checkudata(L, 1, SIGNAL_TYPE);
}

static int signal_new(lua_State *L)
{
	struct signal *s = lua_newuserdatauv(L, sizeof *s, 0);

	*s = (struct signal){ 0 };
	luaL_setmetatable(L, SIGNAL_TYPE);
	return 1;
}

static bool signal_wake_first(struct signal *s)
{
	struct signal_waiter *w = (struct signal_waiter *)s->waits.first;

	if (!w)
		return false;
	w->woken = true;
	wait_done(&w->wait);
	return true;
}

/* signal:wake() -> true: a task was woken; false: none waits */
static int signal_wake(lua_State *L)
{
	lua_pushboolean(L, signal_wake_first(signal_at(L)));
	return 1;
}

static int signal_waited(lua_State *L, int, lua_KContext ctx)
{
	struct signal_waiter *w = (struct signal_waiter *)ctx;

	if (w->woken && sched_over(L))
		signal_wake_first(w->signal); /* this task is over: wake another one instead */
	lua_pushboolean(L, sched_resumed(L));
	return 1;
}

/* signal:wait([timeout]) -> true: woken; false: the time is up */
static int signal_wait(lua_State *L)
{
	struct signal *s = signal_at(L);
	double timeout = luaL_optnumber(L, 2, -1);

	sched_may_wait(L, "waiting");
	struct signal_waiter *w = lua_newuserdatauv(L, sizeof *w, 0);
	*w = (struct signal_waiter){ .signal = s };
	wait_enter(&s->waits, &w->wait);
	return sched_wait(L, &w->wait, timeout, (lua_KContext)w, signal_waited);
}

static const luaL_Reg methods[] = {
	{ "wait", signal_wait },
	{ "wake", signal_wake },
	{ NULL, NULL },
};

void api_open_signals(lua_State *L)
{
	bind_class(L, SIGNAL_TYPE, methods, NULL);
	lua_pushcfunction(L, signal_new);
	lua_setfield(L, -2, "signal");
}
