#include "cron/cron.h"
#include "cron/zone.h"
#include "script/api/api.h"
#include "script/bind.h"

#include <lauxlib.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

#define CRON_TYPE "lunarch.cron"

struct cron_job {
	struct cron cron;
	struct zone *zone;
};

static struct cron_job *job_at(lua_State *L)
{
	return luaL_checkudata(L, 1, CRON_TYPE);
}

/* cron(expression, seed, zone) -> job | nil, err */
static int job_new(lua_State *L)
{
	const char *text = luaL_checkstring(L, 1), *seed = luaL_checkstring(L, 2), *zone = luaL_checkstring(L, 3);
	struct cron_job *j = lua_newuserdatauv(L, sizeof *j, 0);
	struct err err;

	*j = (struct cron_job){ .zone = NULL };
	luaL_setmetatable(L, CRON_TYPE);
	if (cron_parse(&j->cron, text, seed, &err) < 0)
		return bind_fail_err(L, &err);
	j->zone = zone_open(zone, &err);
	return j->zone ? 1 : bind_fail_err(L, &err);
}

static int64_t seconds(lua_State *L, int arg)
{
	double s = luaL_checknumber(L, arg);

	luaL_argcheck(L, s >= -1e11 && s < 1e11, arg, "seconds since 1970");
	return (int64_t)floor(s);
}

static int push_time(lua_State *L, int64_t time)
{
	if (time == CRON_NEVER)
		lua_pushnil(L);
	else
		lua_pushinteger(L, time);
	return 1;
}

/* job:due(last, now, catch_up) -> the time that is due or nil, when to look again or nil */
static int job_due(lua_State *L)
{
	static const char *const hows[] = { "skip", "last", "all", NULL };
	struct cron_job *j = job_at(L);
	int64_t wake = CRON_NEVER, last = seconds(L, 2), now = seconds(L, 3);
	int64_t due =
		cron_due(&j->cron, j->zone, last, now, (enum cron_catch_up)luaL_checkoption(L, 4, NULL, hows), &wake);

	return push_time(L, due) + push_time(L, wake);
}

/* job:text(time) -> the time in the job's zone, as "Thu 2026-11-26 03:30 +0100" */
static int job_text(lua_State *L)
{
	const struct cron_job *j = job_at(L);
	int64_t time = seconds(L, 2);
	int32_t offset = zone_offset(j->zone, time, NULL, NULL), east = offset < 0 ? -offset : offset;
	time_t local = (time_t)(time + offset);
	struct tm tm;
	char text[80];

	gmtime_r(&local, &tm);
	size_t len = strftime(text, sizeof text, "%a %Y-%m-%d %H:%M", &tm);
	snprintf(text + len, sizeof text - len, " %c%02d%02d", offset < 0 ? '-' : '+', east / 3600 % 100,
	         east / 60 % 60);
	lua_pushstring(L, text);
	return 1;
}

static int job_gc(lua_State *L)
{
	struct cron_job *j = job_at(L);

	zone_free(j->zone);
	j->zone = NULL;
	return 0;
}

static const luaL_Reg methods[] = {
	{ "due", job_due },
	{ "text", job_text },
	{ NULL, NULL },
};

void api_open_cron(lua_State *L)
{
	bind_class(L, CRON_TYPE, methods, job_gc);
	lua_pushcfunction(L, job_new);
	lua_setfield(L, -2, "cron");
}
