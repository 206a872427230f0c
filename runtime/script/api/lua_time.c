#include "base/clock.h"
#include "lease/record.h"
#include "script/api/api.h"
#include "script/bind.h"

#include <lauxlib.h>
#include <math.h>

static int time_now(lua_State *L)
{
	lua_pushnumber(L, (double)clock_wall_us() / 1e6);
	return 1;
}

/* The clock of sleep. */
static int time_monotonic(lua_State *L)
{
	lua_pushnumber(L, (double)clock_monotonic() / NSEC_PER_SEC);
	return 1;
}

static int time_iso(lua_State *L)
{
	double seconds = luaL_optnumber(L, 1, (double)clock_wall_us() / 1e6);
	char text[32];

	luaL_argcheck(L, seconds >= -62135596800.0 && seconds < 253402300800.0, 1,
	              "seconds since 1970, years 1 to 9999");
	record_time_print(llround(seconds * 1e6), text, sizeof text);
	lua_pushstring(L, text);
	return 1;
}

static int time_parse(lua_State *L)
{
	const char *text = luaL_checkstring(L, 1);
	int64_t us;

	if (record_time_parse(text, &us) < 0)
		return bind_fail(L, "invalid", "not a time like 2024-01-31T12:00:00Z: \"%.60s\"", text);
	lua_pushnumber(L, (double)us / 1e6);
	return 1;
}

static const luaL_Reg functions[] = {
	{ "now", time_now }, { "monotonic", time_monotonic }, { "iso", time_iso }, { "parse", time_parse },
	{ NULL, NULL },
};

void api_open_time(lua_State *L)
{
	luaL_newlib(L, functions);
	lua_setfield(L, -2, "time");
}
