#include "script/jobs.h"

#include "process/wire.h"
#include "script/election.h"

#include <ctype.h>
#include <lauxlib.h>
#include <string.h>

/* The field, as a message may have it: cut, with spaces for control characters. It stays on the stack, so that it
 * lives. */
static const char *job_text(lua_State *L, const char *name, size_t max, const char *preset)
{
	luaL_Buffer b;

	lua_getfield(L, 1, name);
	const char *text = preset ? luaL_optstring(L, -1, preset) : luaL_checkstring(L, -1);
	size_t len = strnlen(text, max);
	if (text[len])
		while (len && ((unsigned char)text[len] & 0xC0) == 0x80) /* not within a character of UTF-8 */
			len--;
	char *to = luaL_buffinitsize(L, &b, len);
	for (size_t i = 0; i < len; i++)
		to[i] = iscntrl((unsigned char)text[i]) ? ' ' : text[i];
	luaL_pushresultsize(&b, len);
	return lua_tostring(L, -1);
}

static int64_t job_number(lua_State *L, const char *name, int64_t preset)
{
	lua_getfield(L, 1, name);
	return luaL_optinteger(L, -1, preset);
}

static int jobs_job(lua_State *L)
{
	struct script *s = lua_touserdata(L, lua_upvalueindex(1));
	const struct election *e = election_here(L, s, "jobs");
	const struct scope *scope = sched_scope(sched_of(L));

	luaL_checktype(L, 1, LUA_TTABLE);
	if (!scope || !scope->marker || !scope->marker->term)
		return 0;
	script_tell(s, job, .slot = e->index, .term = e->term_number,
	            .name = job_text(L, "name", WIRE_JOB_NAME_MAX, NULL),
	            .schedule = job_text(L, "schedule", WIRE_JOB_TEXT_MAX, ""),
	            .zone = job_text(L, "zone", WIRE_JOB_TEXT_MAX, ""), .next_s = job_number(L, "next", -1),
	            .last_s = job_number(L, "last", -1), .took_ms = job_number(L, "took_ms", -1),
	            .status = job_text(L, "status", WIRE_JOB_TEXT_MAX, ""),
	            .why = job_text(L, "why", WIRE_JOB_TEXT_MAX, ""), .running = (uint32_t)job_number(L, "running", 0));
	return 0;
}

void jobs_bind(lua_State *L, struct script *s)
{
	lua_pushlightuserdata(L, s);
	lua_pushcclosure(L, jobs_job, 1);
	lua_setfield(L, -2, "job");
}
