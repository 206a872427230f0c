#include "commands/commands.h"

#include "base/clock.h"
#include "base/mem.h"
#include "client/screen.h"
#include "commands/named_lock.h"
#include "loop/timeline.h"
#include "script/api/api.h"
#include "script/bind.h"
#include "script/script.h"

#include <ev.h>
#include <lauxlib.h>

/* The commands that are written in Lua: lua/commands/NAME.lua, run in this process as a task. There is no worker, and no
 * script. */

struct lua_run {
	const struct options *options;
	bool ended;
	int status;
};

static void lua_run_on_ended(void *arg, const struct outcome *o)
{
	struct lua_run *r = arg;

	r->ended = true;
	r->status = o->ok ? (int)lua_tointeger(o->results, -1)
	                  : command_fail(r->options->command, EXIT_FAILED_SCRIPT, "%s", o->traceback);
}

/* ---- what surrounds it ---- */

struct lua_host {
	struct ev_loop *loop;
	struct timeline timeline;
	struct script_spec spec;
	struct script *script;
};

/* There are no elections to tell of. */
static void lua_drop(void *, const struct buf *)
{
}

static int lua_host_open(struct lua_host *h, struct err *err)
{
	h->loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
	if (!h->loop) {
		err_set(err, ERR_SYSTEM, "cannot make an event loop");
		return -1;
	}
	timeline_init(&h->timeline, h->loop);
	h->spec = (struct script_spec){
		.loop = h->loop, .timeline = &h->timeline, .natives = api_open, .send = lua_drop
	};
	h->script = script_new(&h->spec);
	return 0;
}

static void lua_host_close(struct lua_host *h)
{
	script_free(h->script);
	timeline_fini(&h->timeline);
	ev_loop_destroy(h->loop);
}

/* ---- a terminal that is drawn on: screen.h ---- */

static int lua_screen_possible(lua_State *L)
{
	lua_pushboolean(L, screen_possible());
	return 1;
}

static int lua_screen_enter(lua_State *)
{
	screen_enter();
	return 0;
}

static int lua_screen_leave(lua_State *)
{
	screen_leave();
	return 0;
}

static int lua_screen_write(lua_State *L)
{
	size_t len;
	const char *text = luaL_checklstring(L, 1, &len);

	screen_write(text, len);
	return 0;
}

/* measure() -> columns, lines, whether there are colours */
static int lua_screen_measure(lua_State *L)
{
	struct screen s;

	screen_measure(&s);
	lua_pushinteger(L, s.columns);
	lua_pushinteger(L, s.lines);
	lua_pushboolean(L, s.colour);
	return 3;
}

static const luaL_Reg screen_functions[] = {
	{ "possible", lua_screen_possible }, { "enter", lua_screen_enter },     { "leave", lua_screen_leave },
	{ "write", lua_screen_write },       { "measure", lua_screen_measure }, { NULL, NULL },
};

/* ---- the options ---- */

static void push_list(lua_State *L, char *const *texts, size_t count)
{
	lua_createtable(L, (int)count, 0);
	for (size_t i = 0; i < count; i++) {
		lua_pushstring(L, texts[i]);
		lua_rawseti(L, -2, (lua_Integer)i + 1);
	}
}

/* Pushes a table of the options that have a value, of the words, of the locks that are meant, and the screen. */
static void push_options(lua_State *L, const struct options *o, const struct named_locks *locks)
{
	char key[64];

	push_list(L, (char *const *)o->word, (size_t)o->words);
	for (enum option i = 0; i < OPTIONS; i++) {
		if (!(option_table[i].commands & 1u << o->command))
			continue;
		if (option_table[i].type == OPTION_TEXT)
			lua_pushstring(L, o->value[i].text); /* NULL: nil */
		else if (option_table[i].type == OPTION_FLAG)
			lua_pushboolean(L, o->value[i].number != 0);
		else
			lua_pushinteger(L, o->value[i].number);
		lua_setfield(L, -2, option_key(i, key, sizeof key));
	}
	push_list(L, locks->url, locks->count);
	lua_setfield(L, -2, "locks");
	luaL_newlib(L, screen_functions);
	lua_setfield(L, -2, "screen");
}

/* The exit status. */
static int lua_command(const struct options *o, const struct named_locks *locks)
{
	struct lua_run r = { .options = o };
	struct lua_host host;
	struct err err;

	if (lua_host_open(&host, &err) < 0)
		return command_fail(o->command, EXIT_UNREACHABLE, "%s", err.text);
	struct script *s = host.script;
	script_push_internal(s, "command");
	lua_pushstring(s->L, command_names[o->command]);
	push_options(s->L, o, locks);
	sched_spawn(sched_program(s->sched), s->L, 2, lua_run_on_ended, &r);
	while (!r.ended) {
		bool more = sched_run(s->sched);
		if (!r.ended)
			ev_run(host.loop, more ? EVRUN_NOWAIT : EVRUN_ONCE);
	}
	lua_host_close(&host);
	return r.status;
}

char *command_record_text(const char *form, const char *lock, const struct record *r)
{
	struct lua_host host;
	struct err err;

	if (lua_host_open(&host, &err) < 0)
		return mem_dup(err.text);
	lua_State *L = host.script->L;
	script_push_internal(host.script, "command");
	lua_pushliteral(L, "text");
	api_push_record(L, lock, r, clock_wall_us());
	lua_pushstring(L, form);
	lua_setfield(L, -2, "form");
	lua_call(L, 2, 1);
	char *text = mem_dup(lua_tostring(L, -1));
	lua_host_close(&host);
	return text;
}

/* ---- the commands ---- */

int cmd_list(int argc, char **argv)
{
	struct options o;
	int status = command_begin(&o, COMMAND_LIST, argc, argv);

	return status >= 0 ? status : lua_command(&o, &(struct named_locks){ 0 });
}

/* Of one lock, or of several. */
static int lua_command_named(const struct options *o, bool several)
{
	struct named_locks locks = { 0 };
	int status = named_locks(o, several, &locks);

	if (status < 0)
		status = lua_command(o, &locks);
	named_locks_fini(&locks);
	return status;
}

/* A command that reads one lock. */
static int lua_command_one(enum command command, int argc, char **argv)
{
	struct options o;
	int status = command_begin(&o, command, argc, argv);

	return status >= 0 ? status : lua_command_named(&o, false);
}

int cmd_history(int argc, char **argv)
{
	return lua_command_one(COMMAND_HISTORY, argc, argv);
}

int cmd_leader(int argc, char **argv)
{
	return lua_command_one(COMMAND_LEADER, argc, argv);
}

int cmd_status(int argc, char **argv)
{
	struct options o;
	int status = command_begin(&o, COMMAND_STATUS, argc, argv);

	if (status >= 0)
		return status;
	bool watch = o.value[OPTION_WATCH].number;
	const char *prefix = o.value[OPTION_PREFIX].text;
	if ((prefix || o.lock_count > 1) && !watch)
		return command_fail(
			COMMAND_STATUS, EXIT_USAGE,
			"several locks: add --watch to see them as they change; `lunarch list` prints them once");
	if (prefix && (o.words || o.lock_count))
		return command_fail(COMMAND_STATUS, EXIT_USAGE, "--prefix, or locks by their names: not both");
	return prefix ? lua_command(&o, &(struct named_locks){ 0 }) : lua_command_named(&o, watch);
}
