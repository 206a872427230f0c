#include "script/request.h"

#include "base/mem.h"
#include "script/script_state.h"

#include <stdlib.h>

struct request_task {
	const struct election *election;
	uint64_t request;
};

static void request_reply(const struct election *e, uint64_t request, bool ok, const char *text, uint32_t code)
{
	script_tell(e->script, reply, .slot = e->index, .request = request, .ok = ok, .code = code, .text = text);
}

void request_refuse(const struct election *e, uint64_t request, const char *why)
{
	request_reply(e, request, false, why, 0);
}

static void request_on_ended(void *arg, const struct outcome *o)
{
	struct request_task *t = arg;
	lua_State *L = o->results;

	if (!o->ok)
		request_refuse(t->election, t->request,
		               o->cancelled ? "the term has ended, and what ran in it was stopped" : o->message);
	else if (o->count != 3 || !lua_isstring(L, -2))
		request_refuse(t->election, t->request, "the script has not said what came of it");
	else
		request_reply(t->election, t->request, lua_toboolean(L, -3), lua_tostring(L, -2),
		              (uint32_t)lua_tointeger(L, -1));
	free(t);
}

void request_begin(struct scope *scope, struct election *e, int function, const struct wire_request *m)
{
	lua_State *L = e->script->L;
	struct request_task *t = mem_zero(sizeof *t);

	*t = (struct request_task){ .election = e, .request = m->request };
	lua_rawgeti(L, LUA_REGISTRYINDEX, function);
	lua_pushstring(L, m->job);
	lua_pushboolean(L, m->wait);
	lua_pushinteger(L, m->uid);
	task_name(sched_spawn(scope, L, 3, request_on_ended, t), PAGE_TASK, e->index);
}
