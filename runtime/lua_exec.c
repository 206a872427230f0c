#include "bind.h"
#include "child.h"

#include <lauxlib.h>
#include <sys/wait.h>

#define CHILD_TYPE "lunarch.child"

/* A userdata on the stack of the task that waits, so that the child is let go of whatever becomes of the task. */
static int release(lua_State *L)
{
	struct child **slot = lua_touserdata(L, 1);

	if (*slot)
		child_release(*slot);
	*slot = NULL;
	return 0;
}

/* The texts of the list in the field, as C wants them; they live as long as the list. NULL if there is none. */
static char **texts(lua_State *L, const char *field)
{
	if (lua_getfield(L, 1, field) == LUA_TNIL)
		return NULL;
	lua_Integer n = luaL_len(L, -1);
	const char **list = lua_newuserdatauv(L, (size_t)(n + 1) * sizeof *list, 0);
	for (lua_Integer i = 1; i <= n; i++) {
		lua_rawgeti(L, -2, i);
		list[i - 1] = luaL_checkstring(L, -1);
		lua_pop(L, 1);
	}
	list[n] = NULL;
	return (char **)list;
}

static const char *text(lua_State *L, const char *field, size_t *len)
{
	lua_getfield(L, 1, field);
	return luaL_optlstring(L, -1, NULL, len);
}

static double number(lua_State *L, const char *field, double preset)
{
	lua_getfield(L, 1, field);
	return luaL_optnumber(L, -1, preset);
}

static enum child_output output(lua_State *L, const char *field)
{
	static const char *const hows[] = { "capture", "inherit", "null", NULL };

	lua_getfield(L, 1, field);
	return (enum child_output)luaL_checkoption(L, -1, "capture", hows);
}

static void push_end(lua_State *L, const struct child_end *end)
{
	int status = end->wait_status;

	lua_createtable(L, 0, 6);
	lua_pushboolean(L, WIFEXITED(status) && WEXITSTATUS(status) == 0);
	lua_setfield(L, -2, "ok");
	if (WIFEXITED(status)) {
		lua_pushinteger(L, WEXITSTATUS(status));
		lua_setfield(L, -2, "code");
	} else {
		lua_pushinteger(L, WTERMSIG(status));
		lua_setfield(L, -2, "signal");
	}
	if (end->truncated) {
		lua_pushboolean(L, 1);
		lua_setfield(L, -2, "truncated");
	}
	for (int i = 0; i < CHILD_OUTPUTS; i++) {
		lua_pushlstring(L, end->output[i].data ? end->output[i].data : "", end->output[i].len);
		lua_setfield(L, -2, i == CHILD_STDOUT ? "stdout" : "stderr");
	}
}

/* Protected, so that the output is freed even when there is no memory for it in Lua. */
static int push_end_protected(lua_State *L)
{
	push_end(L, lua_touserdata(L, 1));
	return 1;
}

/* -> result | nil, err with what was written until then in err.result */
static int ended(lua_State *L, int status, lua_KContext ctx)
{
	struct child **slot = (struct child **)ctx;
	struct child_end end;

	(void)status;
	sched_resumed(L);
	child_take(*slot, &end);
	child_release(*slot);
	*slot = NULL;
	bool timed_out = end.timed_out;
	lua_pushcfunction(L, push_end_protected);
	lua_pushlightuserdata(L, &end);
	int error = lua_pcall(L, 1, 1, 0);
	child_end_fini(&end);
	if (error)
		return lua_error(L);
	if (!timed_out)
		return 1;
	bind_fail(L, "timeout", "exec: %s has not ended in time and was stopped", lua_tostring(L, 2));
	lua_pushvalue(L, -3);
	lua_setfield(L, -2, "result");
	return 2;
}

/* run(spec, name): lua/exec.lua has checked the fields of spec. */
static int run(lua_State *L)
{
	struct sched *s = sched_of(L);
	struct child_spec spec = { 0 };
	struct err err;

	sched_may_wait(L, "exec");
	lua_settop(L, 2);
	spec.argv = texts(L, "argv");
	spec.env = texts(L, "env");
	spec.directory = text(L, "cwd", NULL);
	spec.input = text(L, "stdin", &spec.input_len);
	spec.output[CHILD_STDOUT] = output(L, "stdout");
	spec.output[CHILD_STDERR] = output(L, "stderr");
	spec.output_max = (size_t)number(L, "max_output", 1024 * 1024);
	spec.timeout_s = number(L, "timeout", -1);
	spec.kill_after_s = number(L, "kill_after", 2);
	struct child **slot = lua_newuserdatauv(L, sizeof *slot, 0);
	*slot = NULL;
	luaL_setmetatable(L, CHILD_TYPE);
	*slot = child_start(sched_scope(s), &spec, &err);
	if (!*slot)
		return bind_fail_err(L, &err);
	return sched_wait(L, child_wait(*slot), -1, (lua_KContext)slot, ended);
}

void bind_exec(lua_State *L)
{
	luaL_newmetatable(L, CHILD_TYPE);
	lua_pushcfunction(L, release);
	lua_setfield(L, -2, "__gc");
	lua_pop(L, 1);
	lua_pushcfunction(L, run);
	lua_setfield(L, -2, "run");
}
