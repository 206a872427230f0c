#include "script/worker/inspect.h"

#include "base/module.h"
#include "script/api/api.h"
#include "script/script.h"

#include <lauxlib.h>
#include <lualib.h>

/* Pushes the set of the globals that a script finds. of: the Lua state of a new script, before anything is loaded. */
static void push_known(lua_State *L, lua_State *of, bool is_text)
{
	lua_newtable(L);
	lua_pushglobaltable(of);
	lua_pushnil(of);
	while (lua_next(of, -2)) {
		if (lua_type(of, -2) == LUA_TSTRING) {
			lua_pushboolean(L, 1);
			lua_setfield(L, -2, lua_tostring(of, -2));
		}
		lua_pop(of, 1);
	}
	lua_pop(of, 1);
	lua_pushboolean(L, 1);
	lua_setfield(L, -2, "arg"); /* loading a script sets it */
	lua_pushboolean(L, is_text);
	lua_setfield(L, -2, "term"); /* the text may be the body of on_leading */
}

/* Passes on what was found; the list is at the top of the stack. */
static void inspect_tell(lua_State *L, inspect_found *found, void *arg)
{
	for (lua_Integer i = 1; lua_rawgeti(L, -1, i) == LUA_TTABLE; i++) {
		lua_getfield(L, -1, "line");
		lua_getfield(L, -2, "kind");
		lua_getfield(L, -3, "text");
		found(arg, (uint32_t)lua_tointeger(L, -3), *lua_tostring(L, -2) == 'p', lua_tostring(L, -1));
		lua_pop(L, 4);
	}
}

/* missing(module) -> the error of a module that is not installed, which names its package; else nil */
static int inspect_missing(lua_State *L)
{
	const char *name = luaL_checkstring(L, 1);
	struct err err;

	if (module_installed(name) || module_open(name, &err))
		return 0;
	lua_pushstring(L, err.text);
	return 1;
}

static void send_nothing(void *, const struct buf *)
{
}

void inspect_script(const char *text, size_t len, bool is_text, bool is_lock, inspect_found *found, void *arg)
{
	static char *const none[] = { NULL };
	const struct script_spec spec = { .source = "", .args = none, .natives = api_open, .send = send_nothing };
	struct script *s = script_new(&spec);
	lua_State *L = luaL_newstate();

	if (!L)
		goto out;
	luaL_openlibs(L);
	script_push_use(L);
	lua_pushliteral(L, "inspect");
	lua_call(L, 1, 1);
	lua_pushlstring(L, text, len);
	lua_pushliteral(L, "=script");
	push_known(L, s->L, is_text);
	lua_pushboolean(L, is_lock);
	lua_pushcfunction(L, inspect_missing);
	if (lua_pcall(L, 5, 1, 0) == LUA_OK && lua_istable(L, -1))
		inspect_tell(L, found, arg);
	lua_close(L);
out:
	script_free(s);
}
