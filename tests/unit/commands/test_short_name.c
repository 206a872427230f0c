/* Names that are cut still differ. */
#include "script/api/api.h"
#include "script/script.h"
#include "tap.h"

#include <lauxlib.h>
#include <lualib.h>
#include <stdlib.h>
#include <string.h>

#define HOST "worker-pool-a.example.org_503e0e3f-8581-4e34-9e4f-"

static const char *const names[] = { HOST "545286b677a1", HOST "545286b677b2", HOST "645286b677b2", "web-1",
	                             "build-17.example.org_8f1c9e2a" };
#define NAMES (sizeof names / sizeof *names)

/* The function `short` of lua/commands/history_text.lua is at the top of the stack. The caller frees the result. */
static char *short_of(lua_State *L, const char *name, int most)
{
	lua_pushvalue(L, -1);
	lua_pushstring(L, name);
	lua_createtable(L, NAMES, 0);
	for (size_t i = 0; i < NAMES; i++) {
		lua_pushstring(L, names[i]);
		lua_rawseti(L, -2, (lua_Integer)i + 1);
	}
	lua_pushinteger(L, most);
	lua_call(L, 3, 1);
	char *got = strdup(lua_tostring(L, -1));
	lua_pop(L, 1);
	return got;
}

static void is_short(lua_State *L, const char *name, int most, const char *want, const char *what)
{
	char *got = short_of(L, name, most);

	is_str(got, want, what);
	free(got);
}

static void all_differ(lua_State *L, int most)
{
	char *got[NAMES];

	for (size_t i = 0; i < NAMES; i++) {
		got[i] = short_of(L, names[i], most);
		if (strlen(got[i]) > (size_t)most)
			ok(0, "%s is of more than %d characters", got[i], most);
		for (size_t k = 0; k < i; k++)
			if (strcmp(got[i], got[k]) == 0)
				ok(0, "%d characters: %s and %s are both %s", most, names[i], names[k], got[i]);
	}
	for (size_t i = 0; i < NAMES; i++)
		free(got[i]);
	ok(1, "cut to %d characters all differ, and none is longer", most);
}

static lua_State *open_names(void)
{
	lua_State *L = luaL_newstate();

	luaL_openlibs(L);
	script_push_use(L);
	lua_pushliteral(L, "commands/history_text");
	lua_call(L, 1, 1);
	lua_newtable(L);
	api_open_lock(L);
	lua_call(L, 1, 1);
	lua_getfield(L, -1, "short");
	return L;
}

int main(void)
{
	lua_State *L = open_names();

	is_short(L, "web-1", 10, "web-1", "what fits stays as it is");
	is_short(L, "build-17.example.org_8f1c9e2a", 20, "build-17.example.org",
	         "what differs in its beginning is cut behind it");
	is_short(L, HOST "545286b677a1", 20, "worker..545286b677a1", "else it keeps its beginning, and what differs");
	is_short(L, "a\033[2Jb", 10, "a\\x1b[2Jb", "nothing moves the cursor");
	is_short(L, "äöüäöüäöüäöü", 10, "äöüäöüäöüä", "a character of two bytes is one, and is not cut");
	for (int most = 10; most < 60; most += 7)
		all_differ(L, most);
	lua_close(L);
	return tap_done();
}
