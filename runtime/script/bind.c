#include "script/bind.h"

#include "base/module.h"

#include <lauxlib.h>
#include <limits.h>
#include <lualib.h>
#include <math.h>
#include <stdarg.h>

#define ERROR_TYPE "lunarch.error"

void bind_libraries(lua_State *L)
{
	char own[PATH_MAX];

	luaL_openlibs(L);
	if (!module_file("lua", own, sizeof own))
		return;
	lua_getglobal(L, "package");
	lua_getfield(L, -1, "cpath");
	lua_pushfstring(L, "%s;%s/?.so", lua_tostring(L, -1), own);
	lua_setfield(L, -3, "cpath");
	lua_pop(L, 2);
}

void bind_seed(lua_State *L, uint32_t seed)
{
	lua_getglobal(L, "math");
	lua_getfield(L, -1, "randomseed");
	lua_pushinteger(L, seed);
	lua_call(L, 1, 0);
	lua_pop(L, 1);
}

static int error_tostring(lua_State *L)
{
	lua_getfield(L, 1, "message");
	return 1;
}

/* The operator ".." on an error: it uses the error's text. */
static int error_concat(lua_State *L)
{
	luaL_tolstring(L, 1, NULL);
	luaL_tolstring(L, 2, NULL);
	lua_concat(L, 2);
	return 1;
}

static const luaL_Reg error_methods[] = {
	{ "__tostring", error_tostring },
	{ "__concat", error_concat },
	{ NULL, NULL },
};

int bind_fail(lua_State *L, const char *code, const char *fmt, ...)
{
	char text[sizeof((struct err *)0)->text];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	lua_pushnil(L);
	lua_createtable(L, 0, 2);
	bind_set_text(L, "code", code);
	bind_set_text(L, "message", text);
	if (luaL_newmetatable(L, ERROR_TYPE))
		luaL_setfuncs(L, error_methods, 0);
	lua_setmetatable(L, -2);
	return 2;
}

static const char *code_name(enum err_code code)
{
	switch (code) {
	case ERR_USAGE:
	case ERR_INVALID:
	case ERR_FOREIGN:
		return "invalid";
	case ERR_MISSING:
		return "missing";
	case ERR_DENIED:
		return "denied";
	case ERR_FULL:
		return "full";
	case ERR_TIMEOUT:
		return "timeout";
	case ERR_UNREACHABLE:
		return "unreachable";
	case ERR_CANCELLED:
		return "cancelled";
	case ERR_NONE:
	case ERR_SYSTEM:
		break;
	}
	return "system";
}

int bind_fail_err(lua_State *L, const struct err *err)
{
	return bind_fail(L, code_name(err->code), "%s", err->text);
}

static int failures_fail(lua_State *L)
{
	return bind_fail(L, luaL_checkstring(L, 1), "%s", luaL_checkstring(L, 2));
}

void bind_failures(lua_State *L)
{
	lua_pushcfunction(L, failures_fail);
	lua_setfield(L, -2, "fail");
}

/* The table keeps a text that is popped. */
const char *bind_text(lua_State *L, int table, const char *field)
{
	lua_getfield(L, table, field);
	const char *text = lua_tostring(L, -1);
	lua_pop(L, 1);
	return text;
}

double bind_number(lua_State *L, int table, const char *field, double preset)
{
	lua_getfield(L, table, field);
	double number = luaL_optnumber(L, -1, preset);
	lua_pop(L, 1);
	return number;
}

bool bind_flag(lua_State *L, int table, const char *field)
{
	lua_getfield(L, table, field);
	bool flag = lua_toboolean(L, -1);
	lua_pop(L, 1);
	return flag;
}

char **bind_texts(lua_State *L, int table, const char *field)
{
	if (lua_getfield(L, table, field) == LUA_TNIL)
		return NULL;
	lua_Integer n = luaL_len(L, -1);
	const char **list = lua_newuserdatauv(L, (size_t)(n + 1) * sizeof *list, 0);
	for (lua_Integer i = 1; i <= n; i++) {
		lua_rawgeti(L, -2, i);
		list[i - 1] = luaL_checkstring(L, -1);
		lua_pop(L, 1); /* the list keeps it */
	}
	list[n] = NULL;
	lua_remove(L, -2);
	return (char **)list;
}

void bind_set_text(lua_State *L, const char *field, const char *text)
{
	lua_pushstring(L, text);
	lua_setfield(L, -2, field);
}

void bind_set_integer(lua_State *L, const char *field, lua_Integer value)
{
	lua_pushinteger(L, value);
	lua_setfield(L, -2, field);
}

void bind_set_number(lua_State *L, const char *field, double value)
{
	lua_pushnumber(L, value);
	lua_setfield(L, -2, field);
}

void bind_set_flag(lua_State *L, const char *field, bool value)
{
	lua_pushboolean(L, value);
	lua_setfield(L, -2, field);
}

void bind_class(lua_State *L, const char *type, const luaL_Reg *methods, lua_CFunction gc)
{
	luaL_newmetatable(L, type);
	if (methods) {
		lua_newtable(L);
		luaL_setfuncs(L, methods, 0);
		lua_setfield(L, -2, "__index");
	}
	if (gc) {
		lua_pushcfunction(L, gc);
		lua_setfield(L, -2, "__gc");
	}
	lua_pop(L, 1);
}

double bind_seconds(lua_State *L, int arg, const char *what)
{
	double s = lua_tonumber(L, arg);

	if (lua_type(L, arg) != LUA_TNUMBER)
		luaL_error(L, "%s: expected a number of seconds, found %s", what,
		           lua_isstring(L, arg) ? lua_pushfstring(L, "the text \"%s\"", lua_tostring(L, arg))
		                                : luaL_typename(L, arg));
	if (!isfinite(s) || s < 0)
		luaL_error(L, "%s: expected a finite number of seconds, 0 or more, found %f", what, s);
	return s;
}

/* Upvalues: the methods, the class's name. */
static int class_index(lua_State *L)
{
	luaL_checkudata(L, 1, lua_tostring(L, lua_upvalueindex(2)));
	lua_pushvalue(L, 2);
	if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL)
		return 1;
	lua_getiuservalue(L, 1, 1);
	lua_pushvalue(L, 2);
	if (lua_rawget(L, -2) != LUA_TNIL)
		return 1;
	lua_pushvalue(L, 2);
	lua_gettable(L, lua_upvalueindex(1));
	return 1;
}

void bind_fields_class(lua_State *L, const char *type, const luaL_Reg *methods)
{
	luaL_newmetatable(L, type);
	lua_newtable(L);
	luaL_setfuncs(L, methods, 0);
	lua_pushvalue(L, -1);
	lua_pushstring(L, type);
	lua_pushcclosure(L, class_index, 2);
	lua_setfield(L, -3, "__index");
	lua_remove(L, -2);
}
