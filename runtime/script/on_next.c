#include "script/on_next.h"

#include "base/mem.h"
#include "script/bind.h"

#include <lauxlib.h>
#include <stdlib.h>

#define HANDLE_TYPE "lunarch.next"

/* As in term.c: children get half of the time between SIGTERM and SIGKILL, and on_next_over is cancelled when a tenth
 * is left, since at the end the worker would be killed. */
#define CHILDREN_PART 0.5
#define HOOK_PART 0.9

enum { VALUE_FIELDS = 1, VALUE_TERM, VALUES = VALUE_TERM };

struct next {
	struct next *link; /* in the election's list */
	struct election *election;
	uint32_t number;
	struct marker marker;
	struct scope scope; /* on_next and what it starts */
	struct scope after; /* on_next_over and what it starts */
	struct timer limit; /* of on_next_over */
	double grace;       /* for on_next_over, if on_next fails */
	double stop_by;     /* if it is over: the end of the time for on_next_over, by the timeline */
	struct next_handle *handle;
	int reference; /* registry reference of the handle */
	struct waiting *waiting;
	bool failed, over, cleaning, taken;
};

/* The script's `s` object. The script may keep it. Its user values: the fields; the term's object, once it leads. */
struct next_handle {
	struct next *next; /* NULL: it is over, or its term is */
};

/* A task inside s:wait. On the task's stack. */
struct waiting {
	struct wait wait; /* the first field, so that it can be cast */
	struct waiting *link;
	struct next *next;
};

/* ---- life ---- */

static struct timeline *next_timeline(const struct next *n)
{
	return n->election->script->spec.timeline;
}

static struct next *next_find(const struct election *e, uint32_t number)
{
	struct next *n = e->nexts;

	while (n && n->number != number)
		n = n->link;
	return n;
}

static void next_unlink(struct next *n)
{
	struct next **at = &n->election->nexts;

	while (*at != n)
		at = &(*at)->link;
	*at = n->link;
}

void next_free(struct next *n)
{
	if (!n)
		return;
	timer_stop(next_timeline(n), &n->limit);
	n->handle->next = NULL;
	luaL_unref(n->election->script->L, LUA_REGISTRYINDEX, n->reference);
	next_unlink(n);
	free(n);
}

void next_forget_all(struct election *e)
{
	while (e->nexts) {
		struct next *n = e->nexts;
		e->nexts = n->link;
		timer_stop(next_timeline(n), &n->limit);
		scope_fini(&n->scope);
		if (n->cleaning)
			scope_fini(&n->after);
		free(n);
	}
}

static void next_send_stopped(const struct election *e, uint32_t number, enum wire_next_end how)
{
	struct buf m = { 0 };

	wire_next_stopped_put(&m,
	                      &(struct wire_next_stopped){ .slot = e->index, .number = number, .how = (uint8_t)how });
	script_send(e->script, &m);
}

static void next_finish(struct next *n)
{
	const struct election *e = n->election;
	uint32_t number = n->number;
	enum wire_next_end how = n->failed ? WIRE_NEXT_FAILED : WIRE_NEXT_DONE;

	next_free(n);
	next_send_stopped(e, number, how);
}

/* ---- the end, without a term ---- */

static double next_time_left(const struct next *n)
{
	double left = n->stop_by - timeline_now(next_timeline(n));

	return left > 0 ? left : 0;
}

static void next_on_limit(struct timer *timer)
{
	struct next *n = (struct next *)((char *)timer - offsetof(struct next, limit));

	log_event(LOG_WARN, &n->election->about, "on_next_over_slow",
	          "on_next_over has taken almost all of its time: it is cancelled");
	scope_end(&n->after, NEXT_ENDED, next_time_left(n) * CHILDREN_PART);
}

static void next_limit(struct next *n)
{
	timer_start(next_timeline(n), &n->limit, next_time_left(n) * HOOK_PART);
}

static void next_after_failed(struct scope *scope, const struct outcome *o)
{
	const struct next *n = scope->owner;

	script_hook_failed(n->election->script, n->election->index, scope->about, "on_next_over", o);
}

static void next_on_over_ran(void *arg, const struct outcome *o)
{
	struct next *n = arg;

	timer_stop(next_timeline(n), &n->limit);
	if (!o->ok && !o->cancelled)
		next_after_failed(&n->after, o);
	scope_end(&n->after, NEXT_ENDED, next_time_left(n) * CHILDREN_PART);
}

static void next_on_after_idle(struct scope *scope)
{
	next_finish(scope->owner);
}

static void next_scope_init(struct next *n, struct scope *scope, void (*failed)(struct scope *, const struct outcome *),
                            void (*idle)(struct scope *))
{
	scope_init(scope, n->election->script->sched, failed);
	scope->owner = n;
	scope->election = n->election;
	scope->about = &n->election->about;
	scope->marker = &n->marker;
	scope->idle = idle;
}

/* No task or child of on_next is left: runs on_next_over, once. */
static void next_on_idle(struct scope *scope)
{
	struct next *n = scope->owner;
	lua_State *L = n->election->script->L;

	if (n->cleaning)
		return;
	if (!election_push_hook(n->election, "on_next_over")) {
		next_finish(n);
		return;
	}
	next_scope_init(n, &n->after, next_after_failed, next_on_after_idle);
	n->cleaning = true;
	lua_rawgeti(L, LUA_REGISTRYINDEX, n->reference);
	struct task *hook = sched_spawn(&n->after, L, 1, next_on_over_ran, n);
	task_name(hook, PAGE_ON_NEXT_OVER, n->election->index);
	task_insist(hook);
	next_limit(n);
}

static void next_wake(struct next *n)
{
	while (n->waiting) {
		struct waiting *one = n->waiting;
		n->waiting = one->link;
		wait_done(&one->wait);
	}
}

/* Repeated, it can only give less time. n may be freed by this. */
static void next_end(struct next *n, double grace)
{
	double by = timeline_now(next_timeline(n)) + (grace > 0 ? grace : 0);

	if (n->over && by >= n->stop_by)
		return;
	n->stop_by = by;
	n->over = true;
	next_wake(n);
	if (!n->cleaning)
		scope_end(&n->scope, NEXT_ENDED, next_time_left(n) * CHILDREN_PART);
	else if (n->after.over)
		scope_end(&n->after, NEXT_ENDED, next_time_left(n) * CHILDREN_PART);
	else
		next_limit(n);
}

static void next_task_failed(struct scope *scope, const struct outcome *o)
{
	struct next *n = scope->owner;

	script_hook_failed(n->election->script, n->election->index, scope->about, "on_next", o);
	n->failed = true;
	next_end(n, n->grace);
}

/* ---- the messages ---- */

static void next_make_handle(struct next *n)
{
	struct election *e = n->election;
	lua_State *L = e->script->L;

	n->handle = lua_newuserdatauv(L, sizeof *n->handle, VALUES);
	*n->handle = (struct next_handle){ .next = n };
	luaL_setmetatable(L, HANDLE_TYPE);
	lua_createtable(L, 0, 3);
	lua_newtable(L);
	lua_setfield(L, -2, "data");
	lua_pushstring(L, e->identity);
	lua_setfield(L, -2, "identity");
	lua_pushstring(L, e->lock);
	lua_setfield(L, -2, "lock");
	lua_setiuservalue(L, -2, VALUE_FIELDS);
	n->reference = luaL_ref(L, LUA_REGISTRYINDEX);
}

static struct next *next_new(struct election *e, uint32_t number, double grace)
{
	struct next *n = mem_zero(sizeof *n);

	n->election = e;
	n->number = number;
	n->grace = grace;
	n->marker = (struct marker){ .slot = e->index, .next = number };
	timer_init(e->script->spec.timeline, &n->limit, next_on_limit);
	next_scope_init(n, &n->scope, next_task_failed, next_on_idle);
	n->scope.slot = &e->script->spec.page->slot[e->index];
	n->scope.next = number;
	next_make_handle(n);
	n->link = e->nexts;
	e->nexts = n;
	return n;
}

bool next_begin(struct election *e, struct wire *w)
{
	lua_State *L = e->script->L;
	struct wire_next m;

	if (!wire_next_get(w, &m) || !m.number || next_find(e, m.number))
		return false;
	for (const struct next *n = e->nexts; n; n = n->link)
		if (!n->over && !n->taken)
			return false;
	struct next *n = next_new(e, m.number, (double)m.grace_ms / 1000);
	if (!election_push_hook(e, "on_next"))
		return true;
	lua_rawgeti(L, LUA_REGISTRYINDEX, n->reference);
	task_name(sched_spawn(&n->scope, L, 1, NULL, NULL), PAGE_ON_NEXT, e->index);
	return true;
}

bool next_over(struct election *e, struct wire *w)
{
	struct wire_next_over m;

	if (!wire_next_over_get(w, &m))
		return false;
	struct next *n = next_find(e, m.number);
	if (n && !n->taken) /* else it has been answered */
		next_end(n, (double)m.grace_ms / 1000);
	return true;
}

struct next *next_take(struct election *e, uint32_t number)
{
	struct next *n = next_find(e, number);

	if (!n || n->over)
		return NULL;
	if (scope_over(&n->scope)) { /* the elector has given up waiting for code that does not wait */
		next_end(n, n->grace);
		return NULL;
	}
	n->taken = true;
	next_send_stopped(e, number, WIRE_NEXT_TAKEN);
	next_wake(n);
	return n;
}

struct scope *next_scope(struct next *n)
{
	return &n->scope;
}

void next_meet_term(struct next *n, lua_State *L)
{
	lua_rawgeti(L, LUA_REGISTRYINDEX, n->reference);
	lua_pushvalue(L, -2);
	lua_setiuservalue(L, -2, VALUE_TERM);
	lua_getiuservalue(L, -1, VALUE_FIELDS);
	lua_getfield(L, -1, "data");
	lua_replace(L, -3);
	lua_pop(L, 1);
}

/* ---- the script's object ---- */

static struct next_handle *handle_at(lua_State *L)
{
	return luaL_checkudata(L, 1, HANDLE_TYPE);
}

static void waiting_left(struct wait *w)
{
	struct waiting *one = (struct waiting *)w;

	for (struct waiting **at = &one->next->waiting; *at; at = &(*at)->link)
		if (*at == one) {
			*at = one->link;
			return;
		}
}

static int waited(lua_State *L, int, lua_KContext)
{
	const struct next_handle *h = handle_at(L);

	sched_resumed(L);
	lua_getiuservalue(L, 1, VALUE_TERM); /* nil: the time is up */
	if (lua_isnil(L, -1) && (!h->next || h->next->over))
		return sched_raise(L, NEXT_ENDED);
	return 1;
}

/* s:wait([timeout]) -> the term's object, once this candidate leads; nil: it does not in time */
static int handle_wait(lua_State *L)
{
	struct next_handle *h = handle_at(L);
	double timeout = lua_isnoneornil(L, 2) ? -1 : bind_seconds(L, 2, "s:wait");

	lua_getiuservalue(L, 1, VALUE_TERM);
	if (!lua_isnil(L, -1))
		return 1;
	if (!h->next || h->next->over)
		return sched_raise(L, NEXT_ENDED);
	sched_may_wait(L, "s:wait");
	struct waiting *one = lua_newuserdatauv(L, sizeof *one, 0);
	*one = (struct waiting){ .wait = { .left = waiting_left }, .link = h->next->waiting, .next = h->next };
	h->next->waiting = one;
	return sched_wait(L, &one->wait, timeout, 0, waited);
}

static int handle_spawn(lua_State *L)
{
	struct next_handle *h = handle_at(L);

	if (!h->next)
		return sched_raise(L, NEXT_ENDED);
	luaL_checktype(L, 2, LUA_TFUNCTION);
	if (h->next->cleaning)
		return luaL_error(
			L, "spawn: this candidate comes next no more, and on_next_over ends what it starts: call "
			   "the function, or `spawn` it and await it");
	return bind_spawn(L, &h->next->scope, lua_gettop(L) - 2);
}

static const luaL_Reg methods[] = {
	{ "wait", handle_wait },
	{ "spawn", handle_spawn },
	{ NULL, NULL },
};

void next_bind(lua_State *L)
{
	bind_fields_class(L, HANDLE_TYPE, methods);
}
