/* Templates of the library (lua/lunarch/template.lua): any text is filled with values, or refused with a message that
 * names its line. It ends, and runs no code. */
#include "fuzz.h"

#include "script/script.h"

#include <lauxlib.h>
#include <lualib.h>

static lua_State *L;

static const char values[] = "return { name = 'a<b', list = { 1, 'two', { x = 3 } }, map = { k = 'v', [2] = true }, "
			     "no = false, deep = { deep = { name = \"it's\" } }, n = 1.5, f = print }";

/* Leaves render and the values on the stack. */
static void open_state(void)
{
	L = luaL_newstate();
	luaL_openlibs(L);
	must(luaL_dostring(
		     L,
		     "package.loaded.lunarch = { json = { encode = function(v) return '\"' .. tostring(v) .. '\"' end } }"
		     "json = package.loaded.lunarch.json") == LUA_OK);
	script_push_use(L);
	lua_pushliteral(L, "lunarch.template");
	lua_call(L, 1, 1);
	lua_call(L, 0, 1);
	lua_getfield(L, -1, "render");
	lua_replace(L, 1);
	lua_settop(L, 1);
	must(luaL_dostring(L, values) == LUA_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const escapes[] = { "raw", "html", "shell", "url", "json" };
	struct input in = { data, size };

	if (!L)
		open_state();
	int escape = input_byte(&in) % 5;
	lua_pushvalue(L, 1);
	lua_pushlstring(L, (const char *)in.at, in.left);
	lua_pushvalue(L, 2);
	lua_newtable(L);
	lua_pushstring(L, escapes[escape]);
	lua_setfield(L, -2, "escape");
	int status = lua_pcall(L, 3, 1, 0);
	must(lua_type(L, -1) == LUA_TSTRING);
	if (status != LUA_OK) {
		const char *text = lua_tostring(L, -1);
		if (strncmp(text, "lunarch.template:", 17) == 0 || strncmp(text, "?:", 2) == 0) { /* Lua's own */
			fprintf(stderr, "%s\n", text);
			must(!"a failure is the template's, in words");
		}
	}
	lua_settop(L, 2);
	return 0;
}
