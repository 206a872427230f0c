#include "script/kept.h"

#include "process/sources.h"

#include <lauxlib.h>

/* Pushes the text, and frees it; or nil if there is none, and what is wrong if something is. */
static int kept_push(lua_State *L, int found, struct buf *text, const struct err *err)
{
	if (found > 0)
		lua_pushlstring(L, text->data ? text->data : "", text->len);
	else
		lua_pushnil(L);
	buf_fini(text);
	if (found < 0)
		lua_pushfstring(L, "%s: %s", lua_tostring(L, 1), err->text);
	return found < 0 ? 2 : 1;
}

static int kept_find(lua_State *L)
{
	struct sources *sources = lua_touserdata(L, lua_upvalueindex(1));
	const char *name = luaL_checkstring(L, 1);
	struct buf text = { 0 };
	struct err err;

	return kept_push(L, sources ? sources_find(sources, name, &text, &err) : 0, &text, &err);
}

/* keep(name, text, replace) */
static int kept_keep(lua_State *L)
{
	struct sources *sources = lua_touserdata(L, lua_upvalueindex(1));
	size_t len;
	const char *name = luaL_checkstring(L, 1), *bytes = luaL_checklstring(L, 2, &len);
	struct buf text = { 0 };
	struct err err;

	bool replace = lua_toboolean(L, 3);
	lua_settop(L, 2);
	if (!sources)
		return 1;
	buf_add(&text, bytes, len);
	int result = replace ? sources_replace(sources, name, &text, &err) : sources_keep(sources, name, &text, &err);
	return kept_push(L, result < 0 ? -1 : 1, &text, &err);
}

void kept_bind(lua_State *L, struct sources *sources)
{
	static const luaL_Reg functions[] = { { "kept_find", kept_find }, { "keep", kept_keep }, { NULL, NULL } };

	lua_pushlightuserdata(L, sources);
	luaL_setfuncs(L, functions, 1);
}
