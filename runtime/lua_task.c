#include "bind.h"
#include "scheduler.h"

#include <lauxlib.h>

#define HANDLE_TYPE "lunarch.task"

/* What spawn returns. Its user value holds the results, or the error's text, once the task has ended. */
struct handle {
	struct task *task;      /* NULL: it has ended */
	struct joining *joining;
	int reference;          /* keeps the handle while the task lives */
	int results;
	bool ok, cancelled;
};

/* A task that waits for another one; a userdata on its own stack, so that it goes when the wait goes. */
struct joining {
	struct wait wait;
	struct handle *handle;
	struct joining *next;
};

/* ---- sleep ---- */

static int slept(lua_State *L, int status, lua_KContext ctx)
{
	(void)status;
	(void)ctx;
	sched_resumed(L);
	return 0;
}

static int task_sleep(lua_State *L)
{
	double seconds = bind_seconds(L, 1, "sleep");

	sched_may_wait(L, "sleep");
	return sched_wait(L, NULL, seconds, 0, slept);
}

/* ---- spawn ---- */

/* Replaces the results on top of the stack by their table, the handle's user value. */
static void keep_results(struct handle *h, const struct outcome *o)
{
	lua_State *L = o->results;

	if (!lua_checkstack(L, 3))
		return;
	if (o->ok) {
		lua_createtable(L, o->count, 0);
		lua_insert(L, -(o->count + 1));
		for (int i = o->count; i > 0; i--)
			lua_rawseti(L, -(i + 1), i);
		h->results = o->count;
	} else {
		lua_pushstring(L, o->message);
	}
	lua_rawgeti(L, LUA_REGISTRYINDEX, h->reference);
	lua_insert(L, -2);
	lua_setiuservalue(L, -2, 1);
}

static void task_has_ended(void *arg, const struct outcome *o)
{
	struct handle *h = arg;
	struct scope *scope = task_scope(h->task);

	keep_results(h, o);
	h->ok = o->ok;
	h->cancelled = o->cancelled;
	h->task = NULL;
	while (h->joining) {
		struct joining *j = h->joining;
		h->joining = j->next;
		wait_done(&j->wait);
	}
	luaL_unref(o->results, LUA_REGISTRYINDEX, h->reference);
	if (!o->ok && !o->cancelled)
		scope->failed(scope, o);
}

int bind_spawn(lua_State *L, struct scope *scope, int nargs)
{
	luaL_argexpected(L, lua_isfunction(L, -(nargs + 1)), 1, "function");
	if (scope_over(scope))
		return sched_raise(L, scope->over ? scope->over : TERM_ENDED);
	struct handle *h = lua_newuserdatauv(L, sizeof *h, 1);
	*h = (struct handle){ 0 };
	luaL_setmetatable(L, HANDLE_TYPE);
	lua_pushvalue(L, -1);
	lua_insert(L, -(nargs + 3));
	h->reference = luaL_ref(L, LUA_REGISTRYINDEX);
	h->task = sched_spawn(scope, L, nargs, task_has_ended, h);
	return 1;
}

static int task_spawn(lua_State *L)
{
	struct sched *s = sched_of(L);
	struct scope *scope = sched_scope(s);

	return bind_spawn(L, scope ? scope : sched_program(s), lua_gettop(L) - 1);
}

/* ---- task:wait, task:cancel, task:done ---- */

static struct handle *handle_at(lua_State *L)
{
	return luaL_checkudata(L, 1, HANDLE_TYPE);
}

static int results(lua_State *L, struct handle *h)
{
	lua_getiuservalue(L, 1, 1);
	if (!h->ok)
		return bind_fail(L, h->cancelled ? "cancelled" : "failed", "%s", lua_tostring(L, -1));
	luaL_checkstack(L, h->results, "too many results");
	for (int i = 1; i <= h->results; i++)
		lua_rawgeti(L, -i, i);
	return h->results;
}

static void leave(struct wait *w)
{
	struct joining *j = (struct joining *)((char *)w - offsetof(struct joining, wait));

	for (struct joining **at = &j->handle->joining; *at; at = &(*at)->next)
		if (*at == j) {
			*at = j->next;
			return;
		}
}

static int joined(lua_State *L, int status, lua_KContext ctx)
{
	(void)status;
	(void)ctx;
	if (!sched_resumed(L))
		return bind_fail(L, "timeout", "the task has not ended in time");
	return results(L, handle_at(L));
}

static int task_wait(lua_State *L)
{
	struct handle *h = handle_at(L);
	double timeout = lua_isnoneornil(L, 2) ? -1 : bind_seconds(L, 2, "task:wait");

	if (!h->task)
		return results(L, h);
	if (h->task == sched_running(sched_of(L)))
		return luaL_error(L, "a task cannot wait for its own end");
	sched_may_wait(L, "task:wait");
	lua_settop(L, 1);
	struct joining *j = lua_newuserdatauv(L, sizeof *j, 0);
	*j = (struct joining){ .wait = { .left = leave }, .handle = h, .next = h->joining };
	h->joining = j;
	return sched_wait(L, &j->wait, timeout, 0, joined);
}

static int task_stop(lua_State *L)
{
	struct handle *h = handle_at(L);

	if (h->task)
		task_cancel(h->task, "task cancelled");
	return 0;
}

static int task_is_done(lua_State *L)
{
	lua_pushboolean(L, !handle_at(L)->task);
	return 1;
}

static const luaL_Reg methods[] = {
	{ "wait", task_wait },
	{ "cancel", task_stop },
	{ "done", task_is_done },
	{ NULL, NULL },
};

void bind_tasks(lua_State *L)
{
	luaL_newmetatable(L, HANDLE_TYPE);
	luaL_newlib(L, methods);
	lua_setfield(L, -2, "__index");
	lua_pop(L, 1);
	lua_pushcfunction(L, task_sleep);
	lua_setfield(L, -2, "sleep");
	lua_pushcfunction(L, task_spawn);
	lua_setfield(L, -2, "spawn");
}
