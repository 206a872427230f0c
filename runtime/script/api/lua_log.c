#include "script/api/api.h"
#include "script/bind.h"
#include "script/scheduler.h"

#include <lauxlib.h>

#define TEXT_MAX 16384 /* more than a line of the log takes: the rest is not read */

static const struct log_about *about(lua_State *L)
{
	struct scope *scope = sched_scope(sched_of(L));

	return scope ? scope->about : NULL;
}

/* emit(level, event, text [, fields]); fields: a JSON object */
static int log_emit(lua_State *L)
{
	static const char *const levels[] = { "debug", "info", "warn", "error", NULL };
	enum log_level level = (enum log_level)luaL_checkoption(L, 1, NULL, levels);

	log_fields(level, about(L), luaL_checkstring(L, 2), luaL_optstring(L, 4, NULL), luaL_checkstring(L, 3));
	return 0;
}

static int log_print(lua_State *L)
{
	int n = lua_gettop(L);
	luaL_Buffer b;

	/* A luaL_Buffer keeps a value on the stack, so the texts are pushed before it is made. */
	luaL_checkstack(L, n + LUA_MINSTACK, "too many arguments to print");
	for (int i = 1; i <= n; i++) {
		luaL_tolstring(L, i, NULL);
		lua_replace(L, i);
	}
	luaL_buffinit(L, &b);
	for (int i = 1; i <= n; i++) {
		if (i > 1)
			luaL_addchar(&b, '\t');
		size_t len;
		const char *text = lua_tolstring(L, i, &len);
		luaL_addlstring(&b, text, len < TEXT_MAX ? len : TEXT_MAX);
	}
	luaL_pushresult(&b);
	log_event(LOG_INFO, about(L), "print", "%s", lua_tostring(L, -1));
	return 0;
}

/* A lua_WarnFunction: a message comes in pieces. Messages that begin with '@' are for Lua's own warn function. */
static void warn(void *arg, const char *piece, int to_be_continued)
{
	struct buf *b = arg;

	buf_adds(b, piece);
	if (to_be_continued)
		return;
	if (b->data[0] != '@')
		log_event(LOG_WARN, NULL, "script_warning", "%s", b->data);
	buf_drop(b, b->len);
}

static int free_warning(lua_State *L)
{
	lua_setwarnf(L, NULL, NULL);
	buf_fini(lua_touserdata(L, 1));
	return 0;
}

/* Lua reports errors in finalizers as warnings: this puts warnings into the log. */
static void catch_warnings(lua_State *L)
{
	struct buf *b = lua_newuserdatauv(L, sizeof *b, 0);

	*b = (struct buf){ 0 };
	lua_createtable(L, 0, 1);
	lua_pushcfunction(L, free_warning);
	lua_setfield(L, -2, "__gc");
	lua_setmetatable(L, -2);
	lua_setwarnf(L, warn, b);
	lua_rawsetp(L, LUA_REGISTRYINDEX, b);
}

void api_open_log(lua_State *L)
{
	catch_warnings(L);
	lua_pushcfunction(L, log_emit);
	lua_setfield(L, -2, "emit");
	lua_pushcfunction(L, log_print);
	lua_setglobal(L, "print");
}
