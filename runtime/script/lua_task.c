#include "base/mem.h"
#include "script/bind.h"
#include "script/scheduler.h"

#include <lauxlib.h>
#include <stdlib.h>

#define HANDLE_TYPE "lunarch.task"
#define GROUP_TYPE "lunarch.group"

/* What spawn returns. Its user value holds the results, or the error's message and traceback, once the task has
 * ended. */
struct task_handle {
	struct task *task;     /* NULL: it has ended */
	struct waits joining;  /* tasks that wait for its end */
	struct member *groups; /* its places in groups */
	int reference;         /* keeps the handle while the task lives */
	int results;
	bool ok, cancelled;
	bool watched; /* its error does not end the term: the task that started it raises the error */
};

/* A place in the list, as a userdata on the waiting task's stack, so that it is freed with the wait. */
static struct wait *push_wait(lua_State *L, struct waits *list)
{
	struct wait *w = lua_newuserdatauv(L, sizeof *w, 0);

	*w = (struct wait){ .task = NULL };
	wait_enter(list, w);
	return w;
}

/* ---- sleep ---- */

static int slept(lua_State *L, int, lua_KContext)
{
	sched_resumed(L);
	return 0;
}

static int task_sleep(lua_State *L)
{
	double seconds = bind_seconds(L, 1, "sleep");

	sched_may_wait(L, "sleep");
	return sched_wait(L, NULL, seconds, 0, slept);
}

static int rested(lua_State *L, int, lua_KContext)
{
	lua_pushboolean(L, !sched_resumed(L));
	return 1;
}

/* rest(seconds) -> true; false: the term is about to end (on_stopping), and nothing new is to begin */
static int task_rest(lua_State *L)
{
	double seconds = bind_seconds(L, 1, "rest");

	sched_may_wait(L, "rest");
	if (sched_scope(sched_of(L))->draining) {
		lua_pushboolean(L, 0);
		return 1;
	}
	return sched_wait(L, push_wait(L, &sched_scope(sched_of(L))->rests), seconds, 0, rested);
}

/* ---- spawn ---- */

/* Moves the results from the top of the stack into a table, which becomes the handle's user value. */
static void keep_results(struct task_handle *h, const struct outcome *o)
{
	lua_State *L = o->results;

	if (!lua_checkstack(L, 4))
		return;
	if (o->ok) {
		lua_createtable(L, o->count, 0);
		lua_insert(L, -(o->count + 1));
		for (int i = o->count; i > 0; i--)
			lua_rawseti(L, -(i + 1), i);
		h->results = o->count;
	} else {
		lua_createtable(L, 2, 0);
		lua_pushstring(L, o->message);
		lua_rawseti(L, -2, 1);
		lua_pushstring(L, o->traceback);
		lua_rawseti(L, -2, 2);
	}
	lua_rawgeti(L, LUA_REGISTRYINDEX, h->reference);
	lua_insert(L, -2);
	lua_setiuservalue(L, -2, 1);
}

static void tell_groups(struct task_handle *h);

static void task_has_ended(void *arg, const struct outcome *o)
{
	struct task_handle *h = arg;
	struct scope *scope = task_scope(h->task);

	keep_results(h, o);
	h->ok = o->ok;
	h->cancelled = o->cancelled;
	h->task = NULL;
	while (h->joining.first)
		wait_done(h->joining.first);
	tell_groups(h);
	luaL_unref(o->results, LUA_REGISTRYINDEX, h->reference);
	if (!o->ok && !o->cancelled && !h->watched)
		scope->failed(scope, o);
}

int bind_spawn(lua_State *L, struct scope *scope, int nargs)
{
	luaL_argexpected(L, lua_isfunction(L, -(nargs + 1)), 1, "function");
	if (scope_over(scope))
		return sched_raise(L, scope_over_text(scope));
	struct task_handle *h = lua_newuserdatauv(L, sizeof *h, 1);
	*h = (struct task_handle){ 0 };
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

static struct task_handle *handle_at(lua_State *L)
{
	return luaL_checkudata(L, 1, HANDLE_TYPE);
}

static int results(lua_State *L, struct task_handle *h)
{
	lua_getiuservalue(L, 1, 1);
	if (!h->ok) {
		lua_rawgeti(L, -1, 1);
		lua_rawgeti(L, -2, 2);
		bind_fail(L, h->cancelled ? "cancelled" : "failed", "%s", lua_tostring(L, -2));
		lua_pushvalue(L, -3);
		lua_setfield(L, -2, "traceback");
		return 2;
	}
	luaL_checkstack(L, h->results, "too many results");
	for (int i = 1; i <= h->results; i++)
		lua_rawgeti(L, -i, i);
	return h->results;
}

static int joined(lua_State *L, int, lua_KContext)
{
	if (!sched_resumed(L))
		return bind_fail(L, "timeout", "the task has not ended in time");
	return results(L, handle_at(L));
}

static int task_wait(lua_State *L)
{
	struct task_handle *h = handle_at(L);
	double timeout = lua_isnoneornil(L, 2) ? -1 : bind_seconds(L, 2, "task:wait");

	if (!h->task)
		return results(L, h);
	if (h->task == sched_running(sched_of(L)))
		return luaL_error(L, "a task cannot wait for its own end");
	sched_may_wait(L, "task:wait");
	lua_settop(L, 1);
	return sched_wait(L, push_wait(L, &h->joining), timeout, 0, joined);
}

static int task_stop(lua_State *L)
{
	struct task_handle *h = handle_at(L);

	if (h->task)
		task_cancel(h->task, "task cancelled");
	return 0;
}

static int task_is_done(lua_State *L)
{
	lua_pushboolean(L, !handle_at(L)->task);
	return 1;
}

/* ---- groups: a task waits for the end of whichever of several tasks ends next ---- */

struct member {
	struct group *group;
	struct task_handle *handle;
	struct member *next;       /* of the same task */
	struct member *group_next; /* of the same group: all, or those that have ended */
	int key;                   /* the task's key in the group's user value */
};

struct group {
	struct wait wait;
	struct member *running;
	struct member *ended, **ended_end;
	int keys;
};

static struct group *group_at(lua_State *L)
{
	return luaL_checkudata(L, 1, GROUP_TYPE);
}

static void unlink_from(struct member **at, struct member *m, bool of_group)
{
	for (; *at; at = of_group ? &(*at)->group_next : &(*at)->next)
		if (*at == m) {
			*at = of_group ? m->group_next : m->next;
			return;
		}
}

static void member_ends(struct member *m)
{
	struct group *g = m->group;

	m->group_next = NULL;
	*g->ended_end = m;
	g->ended_end = &m->group_next;
	wait_done(&g->wait);
}

static void tell_groups(struct task_handle *h)
{
	while (h->groups) {
		struct member *m = h->groups;
		h->groups = m->next;
		unlink_from(&m->group->running, m, true);
		member_ends(m);
	}
}

static int group_new(lua_State *L)
{
	struct group *g = lua_newuserdatauv(L, sizeof *g, 1);

	*g = (struct group){ .ended_end = &g->ended };
	luaL_setmetatable(L, GROUP_TYPE);
	lua_newtable(L);
	lua_setiuservalue(L, -2, 1);
	return 1;
}

/* group_add(group, task) -> its number in the group */
static int group_add(lua_State *L)
{
	struct group *g = group_at(L);
	struct task_handle *h = luaL_checkudata(L, 2, HANDLE_TYPE);
	struct member *m = mem_zero(sizeof *m);

	*m = (struct member){ .group = g, .handle = h, .key = ++g->keys };
	if (h->task) {
		m->next = h->groups;
		h->groups = m;
		m->group_next = g->running;
		g->running = m;
	} else {
		member_ends(m);
	}
	lua_getiuservalue(L, 1, 1);
	lua_pushvalue(L, 2);
	lua_rawseti(L, -2, m->key); /* so that the task's handle is not freed before it leaves the group */
	lua_pushinteger(L, m->key);
	return 1;
}

/* Pushes the number of the next task that has ended, and the task; nil: none is left. */
static int next_ended(lua_State *L, struct group *g)
{
	struct member *m = g->ended;

	if (!m) {
		lua_pushnil(L);
		return 1;
	}
	int key = m->key;
	g->ended = m->group_next;
	if (!g->ended)
		g->ended_end = &g->ended;
	free(m);
	lua_pushinteger(L, key);
	lua_getiuservalue(L, 1, 1);
	lua_rawgeti(L, -1, key);
	lua_pushnil(L);
	lua_rawseti(L, -3, key);
	lua_remove(L, -2);
	return 2;
}

static int group_woken(lua_State *L, int, lua_KContext)
{
	if (sched_resumed(L))
		return next_ended(L, group_at(L));
	lua_pushboolean(L, 0);
	return 1;
}

/* group_next(group, timeout or nil) -> number, task | nil: none is left | false: the time is up */
static int group_next(lua_State *L)
{
	struct group *g = group_at(L);
	double timeout = luaL_optnumber(L, 2, -1);

	sched_may_wait(L, "waiting for tasks");
	if (g->ended || !g->running)
		return next_ended(L, g);
	lua_settop(L, 1);
	return sched_wait(L, &g->wait, timeout, 0, group_woken);
}

static int group_gc(lua_State *L)
{
	struct group *g = group_at(L);

	while (g->running) {
		struct member *m = g->running;
		g->running = m->group_next;
		unlink_from(&m->handle->groups, m, false);
		free(m);
	}
	while (g->ended) {
		struct member *m = g->ended;
		g->ended = m->group_next;
		free(m);
	}
	return 0;
}

/* ---- for lua/api/tasks.lua ---- */

/* spawn_watched(f, ...) -> a task whose error does not end the term */
static int spawn_watched(lua_State *L)
{
	struct sched *s = sched_of(L);
	struct scope *scope = sched_scope(s);

	bind_spawn(L, scope ? scope : sched_program(s), lua_gettop(L) - 1);
	((struct task_handle *)lua_touserdata(L, -1))->watched = true;
	return 1;
}

/* disown(task): an error that it raises from now on ends the term, as with any task */
static int disown(lua_State *L)
{
	handle_at(L)->watched = false;
	return 0;
}

/* outcome(task) -> "ok", "failed", "cancelled"; nil while it runs */
static int outcome_of(lua_State *L)
{
	struct task_handle *h = handle_at(L);

	lua_pushstring(L, h->task ? NULL : h->ok ? "ok" : h->cancelled ? "cancelled" : "failed");
	return 1;
}

static int is_task(lua_State *L)
{
	lua_pushboolean(L, luaL_testudata(L, 1, HANDLE_TYPE) != NULL);
	return 1;
}

static const luaL_Reg methods[] = {
	{ "wait", task_wait },
	{ "cancel", task_stop },
	{ "done", task_is_done },
	{ NULL, NULL },
};

static const luaL_Reg natives[] = {
	{ "sleep", task_sleep },
	{ "rest", task_rest },
	{ "spawn", task_spawn },
	{ "spawn_watched", spawn_watched },
	{ "disown", disown },
	{ "outcome", outcome_of },
	{ "is_task", is_task },
	{ "group", group_new },
	{ "group_add", group_add },
	{ "group_next", group_next },
	{ NULL, NULL },
};

void bind_tasks(lua_State *L)
{
	bind_class(L, GROUP_TYPE, NULL, group_gc);
	luaL_newlib(L, methods);
	luaL_newmetatable(L, HANDLE_TYPE);
	lua_pushvalue(L, -2);
	lua_setfield(L, -2, "__index");
	lua_pop(L, 1);
	lua_setfield(L, -2, "task_methods");
	luaL_setfuncs(L, natives, 0);
}
