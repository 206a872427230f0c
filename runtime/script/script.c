#include "script/script.h"

#include "base/mem.h"
#include "base/module.h"
#include "config/options.h"
#include "process/sources.h"
#include "process/wire.h"
#include "script/bind.h"
#include "script/election.h"
#include "script/jobs.h"
#include "script/kept.h"
#include "script/metrics.h"
#include "script/on_next.h"
#include "script/prelude.h"
#include "script/term.h"
#include "version.h"

#include <errno.h>
#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the prelude ---- */

/* Pushes the set of the library's modules: their names without PRELUDE_LIBRARY. */
static void push_library(lua_State *L)
{
	lua_newtable(L);
	for (const struct prelude_file *f = prelude_files; f->name; f++)
		if (strncmp(f->name, PRELUDE_LIBRARY, strlen(PRELUDE_LIBRARY)) == 0) {
			lua_pushboolean(L, 1);
			lua_setfield(L, -2, f->name + strlen(PRELUDE_LIBRARY));
		}
}

static void run_prelude_file(lua_State *L, const char *name)
{
	const struct prelude_file *f = prelude_find(name);

	if (!f)
		luaL_error(L, "no prelude file %s", name);
	lua_pushfstring(L, prelude_chunk(name), name);
	if (luaL_loadbufferx(L, f->text, f->len, lua_tostring(L, -1), "bt") != LUA_OK)
		lua_error(L);
	lua_getfield(L, lua_upvalueindex(1), "use");
	lua_call(L, 1, 1);
}

/* use(name): what the file NAME.lua of lua/ returns. It runs each file once, with `use` as its argument.
 * use("modules"): the set of the library's modules. Upvalue: a table of all results so far, and "use" itself. */
static int use(lua_State *L)
{
	const char *name = luaL_checkstring(L, 1);

	lua_settop(L, 1);
	if (lua_getfield(L, lua_upvalueindex(1), name) != LUA_TNIL)
		return 1;
	if (strcmp(name, "modules") == 0)
		push_library(L);
	else
		run_prelude_file(L, name);
	lua_pushvalue(L, -1);
	lua_setfield(L, lua_upvalueindex(1), name);
	return 1;
}

void script_push_use(lua_State *L)
{
	lua_newtable(L);
	lua_pushvalue(L, -1);
	lua_pushcclosure(L, use, 1);
	lua_pushvalue(L, -1);
	lua_setfield(L, -3, "use");
	lua_remove(L, -2);
}

/* lunarch.exit([code]): a clean stop of the whole program. The task does not go on. */
static int gone_on(lua_State *L, int, lua_KContext)
{
	sched_resumed(L);
	return 0;
}

static int script_exit(lua_State *L)
{
	struct script *s = lua_touserdata(L, lua_upvalueindex(1));
	lua_Integer code = lua_isboolean(L, 1) ? !lua_toboolean(L, 1) : luaL_optinteger(L, 1, 0);

	if (!s->spec.page)
		return luaL_error(L,
		                  "exit: a lock file cannot end its process, which ends with the one that started it");
	luaL_argcheck(L, code >= 0 && code <= 255, 1, "an exit status is a number from 0 to 255");
	if (!s->exiting) {
		s->exiting = true;
		script_tell(s, exit, .code = (uint32_t)code);
	}
	sched_may_wait(L, "exit");
	return sched_wait(L, NULL, -1, 0, gone_on);
}

/* module(name) -> the table that the loadable module of that name has for scripts. Raises if a library is missing. */
static int open_module(lua_State *L)
{
	const char *name = luaL_checkstring(L, 1);
	struct err err;
	const struct module *m = module_open(name, &err);

	if (!m || !m->open_lua)
		return luaL_error(L, "%s: %s", name, m ? "this module has nothing for scripts" : err.text);
	return m->open_lua(L);
}

static int ask_stub(lua_State *L)
{
	struct script *s = lua_touserdata(L, lua_upvalueindex(1));

	return s->spec.stub(L, s->spec.stub_arg);
}

/* Pushes what an election's table may say for an option: { lease_duration = "seconds", ... }. */
static void push_keys(lua_State *L)
{
	static const char *const kinds[] = { [OPTION_TEXT] = "text",
		                             [OPTION_FLAG] = "flag",
		                             [OPTION_NUMBER] = "number",
		                             [OPTION_DURATION] = "seconds",
		                             [OPTION_PERIOD] = "seconds" };
	char key[64];

	lua_newtable(L);
	for (enum option i = 0; i < OPTIONS; i++) {
		if (!option_table[i].is_key)
			continue;
		lua_pushstring(L, kinds[option_table[i].type]);
		lua_setfield(L, -2, option_key(i, key, sizeof key));
	}
}

/* Pushes the table of C functions on which lua/ builds. [-0, +1, m] */
static void open_natives(struct script *s)
{
	lua_State *L = s->L;

	lua_newtable(L);
	s->spec.natives(L);
	bind_tasks(L);
	bind_failures(L);
	term_bind_checkpoint(L);
	term_bind_requests(L, s);
	metrics_bind(L, s->metrics);
	jobs_bind(L, s);
	kept_bind(L, s->spec.sources);
	lua_pushcfunction(L, open_module);
	lua_setfield(L, -2, "module");
	lua_pushlightuserdata(L, s);
	lua_pushcclosure(L, script_exit, 1);
	lua_setfield(L, -2, "exit");
	if (s->spec.stub) {
		lua_pushlightuserdata(L, s);
		lua_pushcclosure(L, ask_stub, 1);
		lua_setfield(L, -2, "stub");
	}
	lua_pushliteral(L, LUNARCH_VERSION);
	lua_setfield(L, -2, "version");
	push_keys(L);
	lua_setfield(L, -2, "keys");
	term_bind(L);
	lua_setfield(L, -2, "term_methods");
	next_bind(L);
	lua_setfield(L, -2, "next_methods");
	script_push_use(L);
	lua_setfield(L, -2, "use");
	election_bind(L, s);
}

/* Not protected: an error here is a mistake in lua/, or there is no memory. Both end the process. */
static void open_prelude(struct script *s)
{
	lua_State *L = s->L;

	open_natives(s);
	lua_getfield(L, -1, "use");
	lua_pushliteral(L, "prelude");
	lua_call(L, 1, 1);
	lua_insert(L, -2);
	lua_call(L, 1, 1); /* prelude(natives) -> internals */
	s->internals = luaL_ref(L, LUA_REGISTRYINDEX);
}

static int script_on_panic(lua_State *L)
{
	const char *text = lua_tostring(L, -1);

	log_event(LOG_ERROR, NULL, "script_host_failed", "the script cannot go on: %s", text ? text : "no message");
	abort();
}

/* lua_Alloc */
static void *allocate(void *arg, void *p, size_t old_size, size_t size)
{
	struct script *s = arg;
	size_t had = p ? old_size : 0; /* without p, old_size says what it is for */
	size_t rest = s->memory - had, most = s->spec.memory_max;

	if (size == 0) {
		free(p);
		s->memory = rest;
		return NULL;
	}
	void *q = most && size > had && rest + size > most ? NULL : realloc(p, size);
	if (q)
		s->memory = rest + size;
	else if (s->sched)
		sched_refused(s->sched);
	return q;
}

struct script *script_new(const struct script_spec *spec)
{
	struct script *s = mem_zero(sizeof *s);

	s->spec = *spec;
	s->on_request = LUA_NOREF;
	s->L = lua_newstate(allocate, s);
	if (!s->L) {
		fputs("lunarch: out of memory\n", stderr);
		abort();
	}
	lua_atpanic(s->L, script_on_panic);
	s->sched = sched_new(spec->loop, spec->timeline, spec->page, s->L);
	lua_pushboolean(s->L, 1);
	lua_setfield(s->L, LUA_REGISTRYINDEX, "LUA_NOENV"); /* then Lua ignores LUA_PATH and the like */
	bind_libraries(s->L);
	s->metrics = metrics_new(s);
	open_prelude(s);
	return s;
}

void script_free(struct script *s)
{
	lua_close(s->L);
	metrics_free(s->metrics);
	for (uint32_t i = 0; i < s->nelections; i++)
		next_forget_all(&s->elections[i]);
	for (uint32_t i = 0; i < s->nelections; i++)
		election_fini(&s->elections[i]);
	sched_free(s->sched);
	free(s->elections);
	free(s);
}

/* NULL: this worker does not have it. */
static struct election *script_election(const struct script *s, uint32_t index)
{
	return index < s->nelections && s->elections[index].kept ? &s->elections[index] : NULL;
}

/* ---- loading ---- */

static void load_failed(struct script *s, const char *text)
{
	script_tell(s, load_failed, .text = text);
}

void script_hook_failed(struct script *s, uint32_t slot, const struct log_about *about, const char *hook,
                        const struct outcome *o)
{
	log_event(LOG_ERROR, about, "hook_failed", "%s: %s", hook, o->traceback);
	if (!s->going) /* the elector knows no election yet */
		return;
	char *text = mem_printf("%s: %s", hook, o->message);
	script_tell(s, failed, .slot = slot, .text = text);
	free(text);
}

static const char *field_text(lua_State *L, const char *name)
{
	const char *text = bind_text(L, -1, name);

	return text ? text : "";
}

/* The numbers that the description at the top of the stack says by the keys of options. */
static void add_said(lua_State *L, struct buf *list)
{
	char key[64];

	lua_getfield(L, -1, "said");
	for (enum option i = 0; i < OPTIONS; i++) {
		lua_getfield(L, -1, option_key(i, key, sizeof key));
		if (option_table[i].is_key && lua_isinteger(L, -1))
			wire_said_put(list, &(struct wire_said){ .option = i, .number = lua_tointeger(L, -1) });
		lua_pop(L, 1);
	}
	lua_pop(L, 1);
}

static lua_Integer field_number(lua_State *L, const char *name)
{
	lua_getfield(L, -1, name);
	lua_Integer n = lua_tointeger(L, -1);
	lua_pop(L, 1);
	return n;
}

/* Sends an election, whose checked description is at the top of the stack. */
static void send_election(struct script *s, uint32_t index)
{
	lua_State *L = s->L;
	struct wire_election e = {
		.index = index,
		.name = field_text(L, "name"),
		.lock = field_text(L, "lock"),
		.identity = field_text(L, "identity"),
		.address = field_text(L, "address"),
		.hooks = field_text(L, "hooks"),
		.where = field_text(L, "where"),
		.slot = (uint32_t)field_number(L, "slot"),
	};
	static const struct {
		const char *field;
		enum wire_election_flag flag;
	} flags[] = {
		{ "observer", WIRE_ELECTION_OBSERVER },
		{ "may_lead", WIRE_ELECTION_MAY_LEAD },
		{ "isolate", WIRE_ELECTION_ISOLATE },
		{ "address_function", WIRE_ELECTION_ADDRESS_FUNCTION },
		{ "on_stopped", WIRE_ELECTION_ON_STOPPED },
		{ "on_stopping", WIRE_ELECTION_ON_STOPPING },
		{ "on_next", WIRE_ELECTION_ON_NEXT },
		{ "on_next_over", WIRE_ELECTION_ON_NEXT_OVER },
		{ "priority_function", WIRE_ELECTION_PRIORITY_FUNCTION },
	};
	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
		e.flags |= bind_flag(L, -1, flags[i].field) ? flags[i].flag : 0;
	}
	struct buf m = { 0 }, said = { 0 };
	add_said(L, &said);
	e.said = wire_parts(&said);
	wire_election_put(&m, &e);
	script_send(s, &m);
	buf_fini(&said);
}

/* Sends all elections. The list of checked descriptions is at the top of the stack. */
static void take_elections(struct script *s)
{
	lua_State *L = s->L;
	uint32_t n = (uint32_t)lua_rawlen(L, -1);

	s->elections = mem_zero(n * sizeof *s->elections);
	for (uint32_t i = 0; i < n; i++) {
		lua_rawgeti(L, -1, i + 1);
		send_election(s, i);
		const char *name = field_text(L, "name");
		uint32_t slot = (uint32_t)field_number(L, "slot");
		lua_getfield(L, -1, "table");
		election_init(&s->elections[i], s, i, name, slot);
		lua_pop(L, 1);
	}
	s->nelections = n;
	script_tell(s, loaded, .count = n);
}

/* The error is at the top of the stack: a text, or a table where the file is a lock file. */
static void elections_refused(struct script *s)
{
	lua_State *L = s->L;

	if (lua_istable(L, -1))
		script_tell(s, load_failed, .text = field_text(L, "text"), .lock_file = field_text(L, "lock_file"),
		            .schemes = field_text(L, "schemes"));
	else
		load_failed(s, lua_tostring(L, -1));
}

/* The main chunk has returned, or raised. */
static void script_on_loaded(void *arg, const struct outcome *o)
{
	struct script *s = arg;
	lua_State *L = s->L;
	int top = lua_gettop(L);

	if (!o->ok) {
		load_failed(s, o->traceback);
		return;
	}
	script_push_internal(s, "elections");
	luaL_checkstack(L, o->count, "a script returns one table");
	lua_xmove(o->results, L, o->count);
	if (lua_pcall(L, o->count, 1, 0) != LUA_OK)
		elections_refused(s);
	else if (lua_rawlen(L, -1) > s->spec.page->slots)
		load_failed(s,
		            lua_pushfstring(
				    L,
				    "a script has at most %d elections, and this one has %d: spread them over several",
				    (int)s->spec.page->slots, (int)lua_rawlen(L, -1)));
	else
		take_elections(s);
	lua_settop(L, top);
	lua_gc(L, LUA_GCCOLLECT); /* compiling and checking leave much garbage */
}

static int read_file(const char *path, struct buf *text, struct err *err)
{
	char bytes[65536];
	size_t n;
	FILE *f = fopen(path, "re");

	if (!f)
		return err_sys(err, "cannot open the script %s", path);
	while ((n = fread(bytes, 1, sizeof bytes, f)) > 0 && text->len <= SOURCES_TEXT_MAX)
		buf_add(text, bytes, n);
	int failed = ferror(f);
	if (failed)
		err_sys(err, "cannot read the script %s", path);
	fclose(f);
	if (text->len > SOURCES_TEXT_MAX)
		return err_set(err, ERR_INVALID, "the script %s is larger than %d MB", path, SOURCES_TEXT_MAX >> 20);
	return failed ? -1 : 0;
}

/* The text that an earlier worker of this version has read, or else the file's. */
static int script_take_text(struct script *s, struct buf *text, struct err *err)
{
	struct sources *kept = s->spec.sources;
	int found = kept ? sources_find(kept, "script", text, err) : 0;

	if (found)
		return found < 0 ? -1 : 0;
	if (read_file(s->spec.source, text, err) < 0)
		return -1;
	return kept ? sources_keep(kept, "script", text, err) : 0;
}

/* Calls compile(text, source, is_text, args), which returns the chunk and its arguments, or nil and an error. */
static int push_chunk(struct script *s, const char *text, size_t len)
{
	lua_State *L = s->L;
	int top = lua_gettop(L);

	script_push_internal(s, "compile");
	lua_pushlstring(L, text, len);
	lua_pushstring(L, s->spec.source);
	lua_pushboolean(L, s->spec.eval);
	lua_newtable(L);
	for (int i = 0; s->spec.args[i]; i++) {
		lua_pushstring(L, s->spec.args[i]);
		lua_rawseti(L, -2, i + 1);
	}
	if (lua_pcall(L, 4, LUA_MULTRET, 0) == LUA_OK)
		return lua_gettop(L) - top;
	load_failed(s, lua_tostring(L, -1));
	lua_settop(L, top);
	return 0;
}

void script_load(struct script *s)
{
	struct buf text = { 0 };
	struct err err;

	if (s->spec.eval)
		buf_adds(&text, s->spec.source);
	else if (script_take_text(s, &text, &err) < 0) {
		load_failed(s, err.text);
		goto out;
	}
	int n = push_chunk(s, text.data ? text.data : "", text.len);
	if (n)
		task_name(sched_spawn(sched_program(s->sched), s->L, n - 1, script_on_loaded, s), PAGE_LOADS,
		          PAGE_NO_SLOT);
out:
	buf_fini(&text);
}

/* ---- messages ---- */

/* The lines of the log about the script have the identity that all of its elections share, and the only election. */
static void script_name_log(const struct script *s)
{
	const struct election *first = NULL;
	const char *identity = NULL;

	for (uint32_t i = 0; i < s->nelections; i++) {
		const struct election *e = &s->elections[i];
		if (!e->kept)
			continue;
		identity = !first || (identity && strcmp(identity, e->identity) == 0) ? e->identity : NULL;
		first = first ? first : e;
	}
	if (first)
		log_program(identity, s->nelections > 1 ? NULL : *first->name ? first->name : first->lock);
}

static bool keep_one(struct script *s, struct wire *w)
{
	struct wire_kept k = { 0 };

	if (!wire_kept_get(w, &k) || k.index >= s->nelections || s->elections[k.index].kept)
		return false;
	election_keep(&s->elections[k.index], k.lock, k.identity);
	return true;
}

static bool script_go(struct script *s, struct wire *w)
{
	struct wire_go m;

	if (!wire_go_get(w, &m) || s->going || m.what > WIRE_GO_MORE)
		return false;
	while (!wire_done(&m.elections))
		if (!keep_one(s, &m.elections))
			return false;
	if (m.what == WIRE_GO_MORE)
		return true;
	script_name_log(s);
	s->going = true;
	s->starting = m.what == WIRE_GO_FIRST ? 0 : s->nelections;
	election_start_all(s);
	return true;
}

bool script_message(struct script *s, enum wire_type type, struct wire *w)
{
	if (type == WIRE_GO)
		return script_go(s, w);
	struct election *e = script_election(s, wire_slot(w));
	if (!e)
		return false;
	switch ((int)type) {
	case WIRE_LEAD:
		return term_lead(e, w);
	case WIRE_DRAIN:
		return term_drain(e, w);
	case WIRE_STOP:
		return term_stop(e, w);
	case WIRE_CLEANUP:
		return term_cleanup(e, w);
	case WIRE_SAVED:
		return term_saved(e, w);
	case WIRE_REQUEST:
		return term_request(e, w);
	case WIRE_LEADER:
		return election_leader(e, w);
	case WIRE_NO_LEADER:
		return election_no_leader(e, w);
	case WIRE_ASK:
		return election_ask(e, w);
	case WIRE_NEXT:
		return next_begin(e, w);
	case WIRE_NEXT_OVER:
		return next_over(e, w);
	}
	return false;
}
