#include "commands/commands.h"

#include "loop/timeline.h"
#include "script/script.h"

#include <ev.h>

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

static void lua_run_drop(void *arg, const struct buf *message)
{
	(void)arg, (void)message; /* there are no elections to tell of */
}

/* Pushes a table of the options that have a value, and of the words. */
static void push_options(lua_State *L, const struct options *o)
{
	char key[64];

	lua_newtable(L);
	for (int i = 0; i < o->words; i++) {
		lua_pushstring(L, o->word[i]);
		lua_rawseti(L, -2, i + 1);
	}
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
}

/* The exit status. */
static int lua_command(const struct options *o)
{
	struct lua_run r = { .options = o };
	struct timeline timeline;
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);

	if (!loop)
		return command_fail(o->command, EXIT_UNREACHABLE, "cannot make an event loop");
	timeline_init(&timeline, loop);
	const struct script_spec spec = { .loop = loop, .timeline = &timeline, .send = lua_run_drop };
	struct script *s = script_new(&spec);
	script_push_internal(s, "command");
	lua_pushstring(s->L, command_names[o->command]);
	push_options(s->L, o);
	sched_spawn(sched_program(s->sched), s->L, 2, lua_run_on_ended, &r);
	while (!r.ended) {
		bool more = sched_run(s->sched);
		if (!r.ended)
			ev_run(loop, more ? EVRUN_NOWAIT : EVRUN_ONCE);
	}
	script_free(s);
	timeline_fini(&timeline);
	ev_loop_destroy(loop);
	return r.status;
}

static int lua_command_main(enum command command, int argc, char **argv)
{
	struct options o;
	int status = command_begin(&o, command, argc, argv);

	return status >= 0 ? status : lua_command(&o);
}

int cmd_list(int argc, char **argv)
{
	return lua_command_main(COMMAND_LIST, argc, argv);
}
