/* A crontab (lua/cron/crontab.lua), for a user or a system: any text is read as jobs, each with a time and a command,
 * or what is wrong is said with its line. */
#include "fuzz.h"

#include "script/api/api.h"
#include "script/script.h"

#include <lauxlib.h>
#include <lualib.h>

static lua_State *L;

/* Leaves crontab(text, path, options) on the stack. */
static void open_state(void)
{
	L = luaL_newstate();
	luaL_openlibs(L);
	script_push_use(L);
	lua_pushliteral(L, "crontab");
	lua_call(L, 1, 1);
	lua_newtable(L);
	api_open_cron(L);
	lua_getfield(L, -1, "cron");
	lua_replace(L, -2);
	lua_call(L, 1, 1);
}

static const char *text_of(int table, const char *key)
{
	lua_getfield(L, table, key);
	const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : NULL;
	lua_pop(L, 1);
	return text;
}

static void judge_jobs(int jobs)
{
	for (lua_Integer i = 1; i <= (lua_Integer)lua_rawlen(L, jobs); i++) {
		lua_rawgeti(L, jobs, i);
		int job = lua_gettop(L);
		must(text_of(job, "time") && *text_of(job, "time") && text_of(job, "zone"));
		must(text_of(job, "command") && text_of(job, "command")[strspn(text_of(job, "command"), " \t\r")] &&
		     strcmp(text_of(job, "path"), "tab") == 0);
		lua_getfield(L, job, "env");
		must(text_of(-1, "SHELL") && text_of(-1, "PATH"));
		must(strcmp(text_of(-1, "LOGNAME"), "me") == 0);
		lua_settop(L, job - 1);
	}
}

static void judge_errors(int errors)
{
	for (lua_Integer i = 1; i <= (lua_Integer)lua_rawlen(L, errors); i++) {
		lua_rawgeti(L, errors, i);
		must(lua_type(L, -1) == LUA_TSTRING && strncmp(lua_tostring(L, -1), "tab:", 4) == 0);
		lua_pop(L, 1);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };

	if (!L)
		open_state();
	uint8_t how = input_byte(&in);
	lua_pushvalue(L, 1);
	lua_pushlstring(L, (const char *)in.at, in.left);
	lua_pushliteral(L, "tab");
	lua_newtable(L);
	lua_pushboolean(L, how & 1);
	lua_setfield(L, -2, "system");
	lua_pushliteral(L, "me");
	lua_setfield(L, -2, "user");
	lua_pushliteral(L, "/home/me");
	lua_setfield(L, -2, "home");
	if (lua_pcall(L, 3, 2, 0) != LUA_OK) {
		fprintf(stderr, "%s\n", luaL_tolstring(L, -1, NULL));
		must(!"what is wrong is in the list, and nothing is raised");
	}
	must(lua_istable(L, 2) && lua_istable(L, 3));
	judge_jobs(2);
	judge_errors(3);
	lua_settop(L, 1);
	return 0;
}
