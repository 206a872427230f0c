/* The script's json (runtime/script/api/lua_json.c) in a Lua state: what is decoded is encoded and decoded again as the same
 * text, and nothing but a failure with a message comes of any bytes. */
#include "fuzz.h"

#include "script/api/api.h"

#include <lauxlib.h>
#include <lualib.h>

static lua_State *L;

static void open_state(void)
{
	L = luaL_newstate();
	luaL_openlibs(L);
	lua_newtable(L);
	api_open_json(L);
	lua_getfield(L, -1, "json");
	lua_replace(L, 1); /* which stays there */
	lua_settop(L, 1);
}

/* json.NAME of what is at the top, in whose place the result is. false: the message of the failure is. */
static bool call(const char *name)
{
	lua_getfield(L, 1, name);
	lua_insert(L, -2);
	if (lua_pcall(L, 1, 2, 0) != LUA_OK)
		return false;
	bool good = lua_isnil(L, -1);
	if (good)
		lua_pop(L, 1);
	return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!L)
		open_state();
	lua_pushlstring(L, (const char *)data, size);
	if (!call("decode")) {
		must(luaL_tolstring(L, -1, NULL) && *lua_tostring(L, -1));
	} else if (call("encode")) { /* else: not UTF-8, which decode lets through */
		lua_pushvalue(L, -1);
		must(call("decode"));
		must(call("encode"));
		must(lua_rawlen(L, -1) == lua_rawlen(L, -2)); /* the order of keys may be another */
	}
	lua_settop(L, 1);
	return 0;
}
