#include "simulation/testing.h"

#include "base/mem.h"
#include "script/api/api.h"
#include "script/bind.h"
#include "script/environment.h"
#include "script/script.h"
#include "simulation/sim.h"

#include <lauxlib.h>
#include <lualib.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define DEPTH_MAX 32
#define PATIENCE_S 120 /* of the processor's time, for one test; ten times as much of the day's */

struct testing {
	lua_State *L;
	testing_fault *fault;
	struct sim *world;
	int events, answer; /* registry: the list of events; answer(kind, request), which finds the stub */
};

/* ---- values from one Lua state to another: data only ---- */

static void value_copy(lua_State *from, int index, lua_State *to, int depth);

static void value_copy_table(lua_State *from, int index, lua_State *to, int depth)
{
	lua_newtable(to);
	lua_pushnil(from);
	while (lua_next(from, index)) {
		int top = lua_gettop(from);
		value_copy(from, top - 1, to, depth + 1);
		value_copy(from, top, to, depth + 1);
		if (lua_isnil(to, -2))
			lua_pop(to, 2);
		else
			lua_rawset(to, -3);
		lua_settop(from, top - 1);
	}
}

static void value_copy(lua_State *from, int index, lua_State *to, int depth)
{
	size_t len;
	const char *text;

	luaL_checkstack(to, 4, "a value for a stub is nested too deeply");
	luaL_checkstack(from, 4, "a value for a stub is nested too deeply");
	switch (lua_type(from, index)) {
	case LUA_TBOOLEAN:
		lua_pushboolean(to, lua_toboolean(from, index));
		return;
	case LUA_TNUMBER:
		if (lua_isinteger(from, index))
			lua_pushinteger(to, lua_tointeger(from, index));
		else
			lua_pushnumber(to, lua_tonumber(from, index));
		return;
	case LUA_TSTRING:
		text = lua_tolstring(from, index, &len);
		lua_pushlstring(to, text, len);
		return;
	case LUA_TTABLE:
		if (depth < DEPTH_MAX) {
			value_copy_table(from, index, to, depth);
			return;
		}
	}
	lua_pushnil(to);
}

/* ---- stubs ---- */

/* Adds to the request who asks, and in which role. The request is at the top of L. */
static void add_circumstances(lua_State *L, const struct testing_node *n, lua_State *node)
{
	struct scope *scope = sched_scope(sched_of(node));

	bind_set_text(L, "node", n->name);
	bind_set_number(L, "time", sim_now(n->testing->world));
	bind_set_flag(L, "leading", scope && scope->slot && page_leading(scope->slot, scope->term));
	if (!scope || !scope->marker)
		return;
	if (scope->marker->token) { /* who only comes next has none */
		bind_set_integer(L, "token", scope->marker->token);
	}
	bind_set_text(L, "lock", scope->marker->lock);
}

static int testing_stub(lua_State *node, void *arg)
{
	const struct testing_node *n = arg;
	lua_State *L = n->testing->L;
	int top = lua_gettop(L);

	lua_settop(node, 2);
	if (!n->testing->world) {
		lua_pushnil(node);
		lua_pushliteral(
			node,
			"the script asks for it while it is loaded, before the test could give a stub: do it in on_start");
		return 2;
	}
	lua_rawgeti(L, LUA_REGISTRYINDEX, n->testing->answer);
	value_copy(node, 1, L, 0);
	value_copy(node, 2, L, 0);
	if (lua_istable(L, -1))
		add_circumstances(L, n, node);
	bool good = lua_pcall(L, 2, 2, 0) == LUA_OK;
	if (good)
		value_copy(L, top + 1, node, 0);
	else
		lua_pushnil(node);
	value_copy(L, lua_gettop(L), node, 0);
	lua_settop(L, top);
	return 2;
}

static void testing_event(struct testing *t, double at, const char *node, enum log_level level, const char *event,
                          const char *text, const struct log_about *about)
{
	static const char *const levels[] = { "debug", "info", "warn", "error" };
	lua_State *L = t->L;

	luaL_checkstack(L, 6, "no room for an event");
	lua_rawgeti(L, LUA_REGISTRYINDEX, t->events);
	lua_createtable(L, 0, 8);
	bind_set_number(L, "time", at);
	bind_set_text(L, "node", node ? node : "");
	bind_set_text(L, "level", levels[level]);
	bind_set_text(L, "event", event);
	bind_set_text(L, "message", text);
	if (about && about->lock)
		bind_set_text(L, "lock", about->lock);
	if (about && about->term) {
		bind_set_integer(L, "term", (lua_Integer)about->term);
		bind_set_integer(L, "token", about->token);
	}
	lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
	lua_pop(L, 1);
}

/* ---- natives ---- */

static struct testing *testing_of(lua_State *L)
{
	return lua_touserdata(L, lua_upvalueindex(1));
}

static struct sim *world_of(lua_State *L)
{
	if (!testing_of(L)->world)
		luaL_error(L, "this simulation is closed: each test opens its own with simulate { ... }");
	return testing_of(L)->world;
}

static int push_failure(lua_State *L, const struct err *err)
{
	lua_pushnil(L);
	lua_pushstring(L, err->text);
	return 2;
}

/* status < 0: it has failed. */
static int push_done(lua_State *L, int status, const struct err *err)
{
	if (status < 0)
		return push_failure(L, err);
	lua_pushboolean(L, 1);
	return 1;
}

/* The list of texts in that field of the table at the top; keep is the index of a table that keeps it. */
static const char **texts_of_field(lua_State *L, const char *field, int keep)
{
	const char **list = (const char **)bind_texts(L, -1, field);

	luaL_argcheck(L, list, keep, "each node has lists of texts");
	lua_rawseti(L, keep, (lua_Integer)lua_rawlen(L, keep) + 1);
	return list;
}

/* The nodes { name =, args =, arguments =, env = } of the list at arg. */
static void read_machines(lua_State *L, int arg, int keep, struct testing_setup *setup)
{
	setup->count = (uint32_t)lua_rawlen(L, arg);
	struct testing_machine *machines = lua_newuserdatauv(L, setup->count * sizeof *machines, 0);

	lua_rawseti(L, keep, (lua_Integer)lua_rawlen(L, keep) + 1);
	for (uint32_t i = 0; i < setup->count; i++) {
		lua_rawgeti(L, arg, (lua_Integer)i + 1);
		machines[i].name = bind_text(L, -1, "name");
		luaL_argcheck(L, machines[i].name, arg, "each node has a name");
		machines[i].args = texts_of_field(L, "args", keep);
		machines[i].arguments = texts_of_field(L, "arguments", keep);
		machines[i].env = texts_of_field(L, "env", keep);
		lua_pop(L, 1);
	}
	setup->machines = machines;
}

/* open(script, nodes, seed, events) -> what the test must keep as long as the world: the world borrows it */
static int world_open(lua_State *L)
{
	struct testing *t = testing_of(L);
	struct testing_setup setup = { .script = luaL_checkstring(L, 1),
		                       .seed = (uint32_t)luaL_checkinteger(L, 3),
		                       .testing = t,
		                       .event = testing_event,
		                       .stub = testing_stub };
	struct err err;

	lua_pushvalue(L, 4);
	lua_rawseti(L, LUA_REGISTRYINDEX, t->events);
	lua_createtable(L, 8, 0);
	int keep = lua_gettop(L);
	for (int i = 1; i <= 2; i++) {
		lua_pushvalue(L, i);
		lua_rawseti(L, keep, i);
	}
	read_machines(L, 2, keep, &setup);
	t->world = NULL;
	struct sim *world = sim_open(&setup, &err);
	if (!world)
		return push_failure(L, &err);
	t->world = world;
	lua_settop(L, keep);
	return 1;
}

static int world_close(lua_State *L)
{
	struct testing *t = testing_of(L);

	if (t->world)
		sim_close(t->world);
	t->world = NULL;
	return 0;
}

static int world_run(lua_State *L)
{
	struct err err;

	return push_done(L, sim_run(world_of(L), luaL_checknumber(L, 1), lua_toboolean(L, 2), &err), &err);
}

static int world_fault(lua_State *L)
{
	struct err err;

	return push_done(L,
	                 testing_of(L)->fault(world_of(L), luaL_checkstring(L, 1), luaL_optstring(L, 2, NULL),
	                                      luaL_optnumber(L, 3, -1), &err),
	                 &err);
}

static int world_now(lua_State *L)
{
	lua_pushnumber(L, sim_now(world_of(L)));
	return 1;
}

/* The URL of the election that the first argument names; NULL comes with *err. */
static const char *election_of(lua_State *L, struct err *err)
{
	return sim_election_url(world_of(L), luaL_optstring(L, 1, NULL), err);
}

static int world_leader(lua_State *L)
{
	struct err err;
	const char *url = election_of(L, &err);

	if (!url)
		return push_failure(L, &err);
	lua_pushstring(L, sim_leader(world_of(L), url));
	return 1;
}

static int world_leads(lua_State *L)
{
	struct err err;
	int leads = sim_leads(world_of(L), luaL_checkstring(L, 1), &err);

	if (leads < 0)
		return push_failure(L, &err);
	lua_pushboolean(L, leads);
	return 1;
}

static int world_next(lua_State *L)
{
	struct err err;
	const char *url = election_of(L, &err);

	if (!url)
		return push_failure(L, &err);
	lua_pushstring(L, sim_next(world_of(L), url));
	return 1;
}

/* hand_over(election, node, seconds) -> true, or nil and why not */
static int world_hand_over(lua_State *L)
{
	struct err err;
	const char *url = election_of(L, &err);

	return push_done(
		L, url ? sim_hand_over(world_of(L), url, luaL_optstring(L, 2, NULL), luaL_checknumber(L, 3), &err) : -1,
		&err);
}

/* -> why it does not happen, or nil */
static int world_not_handed_over(lua_State *L)
{
	lua_pushstring(L, sim_not_handed_over(world_of(L)));
	return 1;
}

static int world_metric(lua_State *L)
{
	double value;
	bool found = sim_metric(world_of(L), luaL_checkstring(L, 1), luaL_checkstring(L, 2), luaL_optstring(L, 3, NULL),
	                        &value);

	if (found)
		lua_pushnumber(L, value);
	else
		lua_pushnil(L);
	return 1;
}

static int world_record(lua_State *L)
{
	struct err err;
	const char *url = election_of(L, &err);

	if (!url)
		return push_failure(L, &err);
	char *text = sim_record(world_of(L), url);
	lua_pushstring(L, text);
	free(text);
	return 1;
}

static int world_edit_checkpoint(lua_State *L)
{
	struct err err;
	const char *url = election_of(L, &err);

	if (!url)
		return push_failure(L, &err);
	lua_pushboolean(L, sim_edit_checkpoint(world_of(L), url, luaL_checkstring(L, 2)));
	return 1;
}

/* answers(f): what finds the stubs. */
static int set_answer(lua_State *L)
{
	luaL_checktype(L, 1, LUA_TFUNCTION);
	lua_settop(L, 1);
	lua_rawseti(L, LUA_REGISTRYINDEX, testing_of(L)->answer);
	return 0;
}

static void bail_out(int)
{
	static const char text[] =
		"Bail out! A test has computed for two minutes: does a hook, or the test, loop without waiting?\n";

	if (write(STDOUT_FILENO, text, sizeof text - 1) < 0)
		_exit(2);
	_exit(1);
}

/* Limits the processor's time for a test: on a busy machine a good test takes long, but not more of that time than
 * elsewhere. A test that waits for a file that nobody writes takes none, so the day's time is limited, too. 0:
 * removes the limits. */
static void limit(int seconds)
{
	struct itimerval computing = { .it_value = { .tv_sec = seconds } };

	setitimer(ITIMER_PROF, &computing, NULL);
	alarm(10 * (unsigned)seconds);
}

static int set_limit(lua_State *)
{
	signal(SIGPROF, bail_out);
	signal(SIGALRM, bail_out);
	limit(PATIENCE_S);
	return 0;
}

static const luaL_Reg natives[] = {
	{ "open", world_open },
	{ "close", world_close },
	{ "run", world_run },
	{ "fault", world_fault },
	{ "now", world_now },
	{ "leader", world_leader },
	{ "leads", world_leads },
	{ "next", world_next },
	{ "hand_over", world_hand_over },
	{ "not_handed_over", world_not_handed_over },
	{ "metric", world_metric },
	{ "record", world_record },
	{ "answers", set_answer },
	{ "limit", set_limit },
	{ "edit_checkpoint", world_edit_checkpoint },
	{ NULL, NULL },
};

static int traceback(lua_State *L)
{
	luaL_traceback(L, L, luaL_tolstring(L, 1, NULL), 1);
	return 1;
}

/* Leaves main(path, chunk, first) -> count and failed, or nil and why the file is no test. */
static void open_natives(struct testing *t)
{
	lua_State *L = t->L;

	script_push_use(L);
	lua_pushliteral(L, "testing");
	lua_call(L, 1, 1);
	lua_newtable(L);
	api_open_json(L);
	bind_failures(L);
	lua_pushlightuserdata(L, t);
	luaL_setfuncs(L, natives, 1);
	lua_call(L, 1, 1);
}

static int new_reference(lua_State *L)
{
	lua_newtable(L);
	return luaL_ref(L, LUA_REGISTRYINDEX);
}

int testing_run(const char *path, testing_fault *fault, int first, int *count, struct err *err)
{
	struct testing t = { .L = luaL_newstate(), .fault = fault };
	int bad = -1;

	if (!t.L)
		return err_set(err, ERR_SYSTEM, "out of memory");
	bind_libraries(t.L);
	bind_seed(t.L, 1);
	t.events = new_reference(t.L);
	t.answer = new_reference(t.L);
	lua_pushcfunction(t.L, traceback);
	open_natives(&t);
	lua_pushstring(t.L, path);
	if (luaL_loadfilex(t.L, path, "t") != LUA_OK) {
		err_set(err, ERR_INVALID, "%s", lua_tostring(t.L, -1));
		goto out;
	}
	lua_pushinteger(t.L, first);
	if (lua_pcall(t.L, 3, 2, 1) != LUA_OK) {
		err_set(err, ERR_INVALID, "%s", lua_tostring(t.L, -1));
		goto out;
	}
	if (lua_isnil(t.L, -2)) {
		err_set(err, ERR_INVALID, "%s", lua_tostring(t.L, -1));
		goto out;
	}
	*count = (int)lua_tointeger(t.L, -2);
	bad = (int)lua_tointeger(t.L, -1);
out:
	if (t.world)
		sim_close(t.world);
	limit(0);
	lua_close(t.L);
	return bad;
}
