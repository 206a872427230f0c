#include "script/election.h"

#include "base/mem.h"
#include "process/wire.h"
#include "script/bind.h"

#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>

/* A leader, or the news that there is none. Shared by the queue of news and election:leader(). */
struct news {
	struct news *next;
	int references;
	bool leader, is_self;
	int64_t token;
	char *identity, *address, *previous; /* one block of memory, which begins at identity */
};

static void news_unref(struct news *n)
{
	if (!n || --n->references > 0)
		return;
	free(n->identity);
	free(n);
}

static void election_task_failed(struct scope *scope, const struct outcome *o)
{
	const struct election *e = (struct election *)((char *)scope - offsetof(struct election, scope));

	script_hook_failed(e->script, e->index, scope->about, "a task outside any term", o);
}

void election_init(struct election *e, struct script *s, uint32_t index, const char *name, uint32_t slot)
{
	*e = (struct election){ .script = s, .index = index, .slot = slot, .news_end = &e->news };
	e->name = mem_dup(name ? name : "");
	e->table = luaL_ref(s->L, LUA_REGISTRYINDEX);
	scope_init(&e->scope, s->sched, election_task_failed);
	e->scope.election = e;
	e->scope.about = &e->about;
}

void election_fini(struct election *e)
{
	scope_fini(&e->scope);
	while (e->news) {
		struct news *n = e->news;
		e->news = n->next;
		news_unref(n);
	}
	news_unref(e->leader);
	free(e->name);
	free(e->ask_error);
	free(e->lock);
}

void election_keep(struct election *e, const char *lock, const char *identity)
{
	char *copies[2];

	e->kept = true;
	free(e->lock);
	mem_pack(2, (const char *const[]){ lock, identity }, copies);
	e->lock = copies[0]; /* the block of memory that holds both */
	e->identity = copies[1];
	e->about = (struct log_about){ .lock = e->lock, .identity = e->identity, .election = e->name };
}

bool election_push_hook(struct election *e, const char *name)
{
	lua_State *L = e->script->L;

	lua_rawgeti(L, LUA_REGISTRYINDEX, e->table);
	lua_pushstring(L, name);
	lua_rawget(L, -2);
	lua_remove(L, -2);
	if (lua_isfunction(L, -1))
		return true;
	lua_pop(L, 1);
	return false;
}

/* ---- on_start ---- */

static void election_on_started(void *arg, const struct outcome *o)
{
	struct election *e = arg;

	if (o->ok)
		election_start_all(e->script);
	else
		script_tell(e->script, started, .ok = false, .text = o->traceback);
}

void election_start_all(struct script *s)
{
	while (s->starting < s->nelections) {
		struct election *e = &s->elections[s->starting++];
		bool again = e->slot > 1; /* the slots of an election have one on_start */
		if (e->kept && !again && election_push_hook(e, "on_start")) {
			task_name(sched_spawn(&e->scope, s->L, 0, election_on_started, e), PAGE_ON_START, e->index);
			return;
		}
	}
	script_tell(s, started, .ok = true);
}

/* ---- on_new_leader, on_no_leader: one at a time, in order ---- */

static void push_leader(lua_State *L, const struct election *e, const struct news *n)
{
	lua_createtable(L, 0, 6);
	bind_set_text(L, "identity", n->identity);
	bind_set_text(L, "address", n->address);
	bind_set_integer(L, "token", n->token);
	bind_set_flag(L, "is_self", n->is_self);
	bind_set_text(L, "previous", *n->previous ? n->previous : NULL);
	if (e->slot)
		bind_set_integer(L, "slot", e->slot);
}

static void tell_next(struct election *e);

static void election_on_told(void *arg, const struct outcome *o)
{
	struct election *e = arg;

	if (!o->ok)
		script_hook_failed(e->script, e->index, e->scope.about, "on_new_leader or on_no_leader", o);
	e->telling = false;
	tell_next(e);
}

/* Starts the hook for the news. false: the script has none */
static bool election_tell(struct election *e, const struct news *n)
{
	lua_State *L = e->script->L;

	if (!election_push_hook(e, n->leader ? "on_new_leader" : "on_no_leader"))
		return false;
	int arguments = 1;
	if (n->leader) {
		push_leader(L, e, n);
	} else {
		lua_pushstring(L, *n->previous ? n->previous : NULL);
		if (e->slot) {
			lua_pushinteger(L, e->slot);
			arguments = 2;
		}
	}
	task_name(sched_spawn(&e->scope, L, arguments, election_on_told, e),
	          n->leader ? PAGE_ON_NEW_LEADER : PAGE_ON_NO_LEADER, e->index);
	return true;
}

static void tell_next(struct election *e)
{
	while (!e->telling && e->news) {
		struct news *n = e->news;
		e->news = n->next;
		if (!e->news)
			e->news_end = &e->news;
		e->untold--;
		e->telling = election_tell(e, n);
		news_unref(n);
	}
}

#define UNTOLD_MANY 64

static void election_learn(struct election *e, struct news *n)
{
	n->references = 1;
	*e->news_end = n;
	e->news_end = &n->next;
	if (++e->untold % UNTOLD_MANY == 0)
		log_event(LOG_WARN, &e->about, "hook_slow",
		          "%u changes of the leader wait for on_new_leader or on_no_leader to return", e->untold);
	news_unref(e->leader);
	e->leader = NULL;
	if (n->leader) {
		n->references++;
		e->leader = n;
	}
	tell_next(e);
}

bool election_leader(struct election *e, struct wire *w)
{
	struct wire_leader m;

	if (!wire_leader_get(w, &m))
		return false;
	struct news *n = mem_zero(sizeof *n);
	char *copies[3];
	mem_pack(3, (const char *const[]){ m.identity, m.address, m.previous }, copies);
	*n = (struct news){ .leader = true,
		            .is_self = m.is_self,
		            .token = m.token,
		            .identity = copies[0],
		            .address = copies[1],
		            .previous = copies[2] };
	election_learn(e, n);
	return true;
}

bool election_no_leader(struct election *e, struct wire *w)
{
	struct wire_no_leader m;

	if (!wire_no_leader_get(w, &m))
		return false;
	struct news *n = mem_zero(sizeof *n);
	n->identity = n->address = n->previous = mem_dup(m.previous); /* nothing reads the first two */
	election_learn(e, n);
	return true;
}

/* ---- may_lead ---- */

struct asking {
	struct election *election;
	struct task *task;
	uint64_t ask;
};

static void send_answer(const struct asking *a, bool yes, const char *why, const char *address, int64_t priority)
{
	script_tell(a->election->script, answer, .slot = a->election->index, .ask = a->ask, .yes = yes, .why = why,
	            .address = address, .priority = priority);
}

/* The results of the hook are yes, why, address, priority: lua/boot/prelude.lua checks them. */
static void election_on_answered(void *arg, const struct outcome *o)
{
	struct asking *a = arg;
	struct election *e = a->election;
	bool current = e->asking == a; /* false: the elector has asked again, and this answer is too late */

	if (o->ok)
		mem_replace(&e->ask_error, NULL);
	if (current && o->ok) {
		lua_settop(o->results, lua_gettop(o->results) - o->count + 4);
		send_answer(a, lua_toboolean(o->results, -4), lua_tostring(o->results, -3),
		            lua_tostring(o->results, -2), luaL_optinteger(o->results, -1, WIRE_PRIORITY_UNSET));
	} else if (!o->ok && !o->cancelled) {
		if (!e->ask_error || strcmp(e->ask_error, o->message) != 0)
			script_hook_failed(e->script, e->index, e->scope.about, "may_lead", o);
		mem_replace(&e->ask_error, o->message);
		if (current)
			send_answer(a, false, o->message, "", WIRE_PRIORITY_UNSET);
	}
	if (current)
		e->asking = NULL;
	free(a);
}

bool election_ask(struct election *e, struct wire *w)
{
	struct script *s = e->script;
	struct wire_ask m;

	if (!wire_ask_get(w, &m))
		return false;
	if (e->asking)
		task_cancel(e->asking->task, "asked again");
	struct asking *a = mem_zero(sizeof *a);
	script_push_internal(s, "ask");
	lua_rawgeti(s->L, LUA_REGISTRYINDEX, e->table);
	*a = (struct asking){ .election = e, .ask = m.ask };
	a->task = sched_spawn(&e->scope, s->L, 1, election_on_answered, a);
	task_name(a->task, PAGE_MAY_LEAD, e->index);
	e->asking = a;
	return true;
}

/* ---- the global `election` ---- */

struct election *election_here(lua_State *L, struct script *s, const char *what)
{
	struct scope *scope = sched_scope(sched_of(L));
	struct election *only = s->nelections == 1 ? &s->elections[0] : NULL;
	struct election *e = scope && scope->election ? scope->election : only;

	if (!e)
		luaL_error(L, "%s: %s", what,
		           s->nelections ? "the script has several elections: call it from a hook of one of them"
		                         : "no election is known while the script loads");
	if (!e->kept)
		luaL_error(L, "%s: the election is not known before on_start", what);
	return e;
}

static struct election *here(lua_State *L, const char *what)
{
	return election_here(L, lua_touserdata(L, lua_upvalueindex(1)), what);
}

static int here_leader(lua_State *L)
{
	struct election *e = here(L, "election:leader");

	if (e->leader)
		push_leader(L, e, e->leader);
	else
		lua_pushnil(L);
	return 1;
}

static int here_is_leading(lua_State *L)
{
	const struct election *e = here(L, "election:is_leading");

	lua_pushboolean(L, e->term && page_leading(&e->script->spec.page->slot[e->index], e->term_number));
	return 1;
}

static int here_lock(lua_State *L)
{
	lua_pushstring(L, here(L, "election:lock")->lock);
	return 1;
}

static const luaL_Reg methods[] = {
	{ "leader", here_leader },
	{ "is_leading", here_is_leading },
	{ "lock", here_lock },
	{ NULL, NULL },
};

void election_bind(lua_State *L, struct script *s)
{
	luaL_newlibtable(L, methods);
	lua_pushlightuserdata(L, s);
	luaL_setfuncs(L, methods, 1);
	lua_setglobal(L, "election");
}
