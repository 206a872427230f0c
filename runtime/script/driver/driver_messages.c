#include "base/log.h"
#include "base/mem.h"
#include "base/proc.h"
#include "lease/record.h"
#include "script/driver/driver_calls.h"
#include "script/driver/driver_file.h"
#include "script/driver/driver_state.h"
#include "script/driver/driver_watches.h"

#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX 4000 /* bytes of an error's text */

void driver_send(struct driver *d, struct buf *message)
{
	d->send(d->arg, message);
	buf_fini(message);
}

void driver_push(struct driver *d, const char *function)
{
	lua_State *L = d->script->L;

	lua_rawgeti(L, LUA_REGISTRYINDEX, d->functions);
	lua_getfield(L, -1, function);
	lua_remove(L, -2);
}

char *driver_text(const struct driver *d, const char *text)
{
	char *hidden = driver_log_hide(text, d->secret);

	if (strlen(hidden) > TEXT_MAX)
		hidden[TEXT_MAX] = '\0';
	return hidden;
}

const char *driver_result(const struct outcome *o, int index, size_t *len)
{
	int at = lua_gettop(o->results) - o->count + index;

	if (len)
		*len = 0;
	return index <= o->count && lua_type(o->results, at) == LUA_TSTRING ? lua_tolstring(o->results, at, len) : "";
}

void driver_complain(struct driver *d, const char *text, const char *whole)
{
	if (!driver_log_due(&d->log, text, clock_monotonic()))
		return;
	char *hidden = driver_log_hide(whole, d->secret);
	log_event(LOG_ERROR, NULL, "lock_driver_error", "%s", hidden);
	free(hidden);
}

/* ---- what driver.lua is given ---- */

static struct driver *driver_of(lua_State *L)
{
	return lua_touserdata(L, lua_upvalueindex(1));
}

/* complain(text): a mistake of the lock file that it has not raised */
static int host_complain(lua_State *L)
{
	const char *text = luaL_checkstring(L, 1);

	driver_complain(driver_of(L), text, text);
	return 0;
}

/* secret(text): no error's text has it from now on */
static int host_secret(lua_State *L)
{
	mem_replace(&driver_of(L)->secret, luaL_checkstring(L, 1));
	return 0;
}

/* named(name): the lock file's, for ps(1) */
static int host_named(lua_State *L)
{
	proc_title("lock", luaL_checkstring(L, 1));
	return 0;
}

/* read_file(path) -> the lock file's text. Raises. */
static int host_read_file(lua_State *L)
{
	struct buf text = { 0 };
	struct err err;
	int failed = driver_file_read(luaL_checkstring(L, 1), &text, &err);

	if (!failed)
		lua_pushlstring(L, text.data ? text.data : "", text.len);
	buf_fini(&text);
	return failed ? sched_raise(L, err.text) : 1;
}

/* cut() -> what becomes of the answer to the request that is sent next: "lost", "again"; nothing: it is for who
 * asked */
static int host_cut(lua_State *L)
{
	struct driver *d = driver_of(L);

	if (d->lose.left == 0 || --d->lose.left > 0)
		return 0;
	driver_tell(d, lost, .id = d->lose.id);
	lua_pushstring(L, d->lose.again ? "again" : "lost");
	return 1;
}

static void push_host(lua_State *L, struct driver *d)
{
	static const luaL_Reg host[] = {
		{ "complain", host_complain },   { "secret", host_secret }, { "named", host_named },
		{ "read_file", host_read_file }, { "cut", host_cut },       { NULL, NULL },
	};

	lua_newtable(L);
	lua_pushlightuserdata(L, d);
	luaL_setfuncs(L, host, 1);
	lua_pushinteger(L, RECORD_MAX_BYTES);
	lua_setfield(L, -2, "text_max");
}

static void driver_on_task_failed(struct scope *scope, const struct outcome *o)
{
	driver_complain(scope->owner, o->message, o->traceback);
}

void driver_init(struct driver *d)
{
	lua_State *L = d->script->L;
	struct scope *program = sched_program(d->script->sched);

	program->owner = d;
	program->failed = driver_on_task_failed; /* of tasks that the file has started itself */
	script_push_internal(d->script, "driver");
	push_host(L, d);
	lua_call(L, 1, 1);
	d->functions = luaL_ref(L, LUA_REGISTRYINDEX);
}

void driver_fini(struct driver *d)
{
	driver_calls_fini(d);
	driver_watches_fini(d);
	free(d->secret);
}

/* ---- opening ---- */

static void driver_opened(struct driver *d, bool ok, enum err_code code, const char *text, uint8_t can)
{
	char *hidden = driver_text(d, text);

	driver_tell(d, opened, .ok = ok, .code = (uint32_t)code, .text = hidden, .can = can);
	free(hidden);
	d->leaving = !ok; /* the elector tries again with another process, as long as that can help */
}

static void driver_on_opened(void *arg, const struct outcome *o)
{
	struct driver *d = arg;
	int first = lua_gettop(o->results) - o->count + 1;

	if (!o->ok) {
		driver_opened(d, false, ERR_USAGE, o->message, 0);
		return;
	}
	if (!o->count || !lua_isinteger(o->results, first)) {
		driver_opened(d, false, driver_code(driver_result(o, 3, NULL)), driver_result(o, 2, NULL), 0);
		return;
	}
	driver_opened(d, true, ERR_NONE, "", (uint8_t)lua_tointeger(o->results, first));
	d->state = DRIVER_IS_OPEN;
	driver_calls_opened(d);
	driver_watches_opened(d);
}

static bool on_open(struct driver *d, struct wire *w)
{
	struct driver_open m;

	if (!driver_open_get(w, &m) || d->state != DRIVER_IS_NEW)
		return false;
	d->state = DRIVER_IS_OPENING;
	driver_push(d, "open");
	lua_pushstring(d->script->L, m.place);
	sched_spawn(sched_program(d->script->sched), d->script->L, 1, driver_on_opened, d);
	return true;
}

/* ---- messages ---- */

static bool on_ask(struct driver *d, struct wire *w)
{
	struct driver_ask m;

	if (!driver_ask_get(w, &m) || m.kind >= DRIVER_KINDS)
		return false;
	driver_calls_begin(d, &m);
	return true;
}

static bool on_cancel(struct driver *d, struct wire *w)
{
	struct driver_cancel m;

	if (!driver_cancel_get(w, &m))
		return false;
	driver_calls_cancel(d, m.id);
	return true;
}

static bool on_watch(struct driver *d, struct wire *w)
{
	struct driver_watch m;

	if (!driver_watch_get(w, &m))
		return false;
	driver_watches_want(d, m.key, m.on);
	return true;
}

/* Answered here, so that a lock file that blocks the process does not answer. */
static bool on_ping(struct driver *d, struct wire *w)
{
	struct driver_ping m;

	if (!driver_ping_get(w, &m))
		return false;
	driver_tell(d, pong, .number = m.number);
	return true;
}

static bool on_lose(struct driver *d, struct wire *w)
{
	struct driver_lose m;

	if (!driver_lose_get(w, &m) || m.nth == 0)
		return false;
	d->lose.id = m.id;
	d->lose.left = m.nth;
	d->lose.again = m.again;
	return true;
}

bool driver_message(struct driver *d, const void *bytes, size_t len)
{
	struct wire w;

	switch ((int)driver_message_open(&w, bytes, len)) {
	case DRIVER_OPEN:
		return on_open(d, &w);
	case DRIVER_ASK:
		return on_ask(d, &w);
	case DRIVER_CANCEL:
		return on_cancel(d, &w);
	case DRIVER_WATCH:
		return on_watch(d, &w);
	case DRIVER_PING:
		return on_ping(d, &w);
	case DRIVER_LOSE:
		return on_lose(d, &w);
	default:
		return false;
	}
}
