#include "script/term.h"

#include "base/mem.h"
#include "lease/lease.h"
#include "script/bind.h"
#include "script/checkpoint.h"
#include "script/metrics.h"
#include "script/on_next.h"
#include "script/request.h"

#include <lauxlib.h>
#include <stdlib.h>

#define HANDLE_TYPE "lunarch.term"

/* Parts of the time to stop. Children get half of it between SIGTERM and SIGKILL. on_stopped is cancelled when a tenth
 * is left, since at the end the worker would be killed. */
#define CHILDREN_PART 0.5
#define HOOK_PART 0.9

struct term {
	struct election *election;
	uint64_t term;
	struct marker marker;
	char *address;
	struct log_about about;
	struct scope *scope; /* on_leading and what it starts: own, or that of the on_next which the term has taken */
	struct scope own;
	struct next *warm;  /* NULL: it has taken none */
	struct scope after; /* on_stopped and what it starts */
	struct timer limit; /* of on_stopped */
	double stop_by;     /* if stopping: the end of the time to stop, by the timeline */
	struct checkpoint *checkpoint;
	struct term_handle *handle;
	int reference;  /* registry reference of the handle */
	int on_request; /* registry reference of the function for requests; LUA_NOREF: there is none */
	enum lease_reason reason;
	bool begun, end_sent, draining, stopping, cleaning;
};

/* The script's `term` object. The script may keep it when the term is over. Its user value holds the fields. */
struct term_handle {
	struct term *term; /* NULL: the term has ended */
	struct page_slot *slot;
	uint64_t number;
};

/* ---- asking for the end ---- */

static void ask_for_end(struct term *t, enum lease_reason reason, int64_t sit_out_ms, const char *text)
{
	if (t->end_sent || t->draining || t->stopping)
		return;
	t->end_sent = true;
	script_tell(t->election->script, end, .slot = t->election->index, .term = t->term, .reason = (uint8_t)reason,
	            .sit_out_ms = sit_out_ms, .text = text);
}

static void term_failed(struct term *t, const char *what, const struct outcome *o)
{
	script_hook_failed(t->election->script, t->election->index, &t->about, what, o);
	ask_for_end(t, LEASE_ERROR, -1, o->message);
}

static void term_task_failed(struct scope *scope, const struct outcome *o)
{
	term_failed(scope->owner, "a task of the term", o);
}

static void task_after_failed(struct scope *scope, const struct outcome *o)
{
	const struct term *t = scope->owner;

	script_hook_failed(t->election->script, t->election->index, scope->about, "a task of on_stopped", o);
}

/* on_leading has returned, or raised. */
static void term_on_led(void *arg, const struct outcome *o)
{
	struct term *t = arg;
	lua_State *L = o->results;

	t->begun = o->begun;
	if (!o->ok) {
		if (!o->cancelled)
			term_failed(t, "on_leading", o);
		return;
	}
	if (o->count == 0 || !lua_isboolean(L, -o->count) || lua_toboolean(L, -o->count))
		return; /* the term goes on after on_leading */
	const char *why = o->count > 1 ? lua_tostring(L, -o->count + 1) : NULL;
	ask_for_end(t, LEASE_DECLINED, -1, why ? why : "");
}

/* ---- the end ---- */

static void term_finish(struct term *t)
{
	struct election *e = t->election;
	struct script *s = e->script;
	uint64_t number = t->term;

	timer_stop(s->spec.timeline, &t->limit);
	t->handle->term = NULL;
	checkpoint_flush(t->checkpoint);
	checkpoint_free(t->checkpoint);
	next_free(t->warm);
	luaL_unref(s->L, LUA_REGISTRYINDEX, t->reference);
	luaL_unref(s->L, LUA_REGISTRYINDEX, t->on_request);
	free(t->address);
	e->term = NULL;
	free(t);
	metrics_flush(s->metrics);
	script_tell(e->script, stopped, .slot = e->index, .term = number);
}

static double time_left(const struct term *t)
{
	double left = t->stop_by - timeline_now(t->election->script->spec.timeline);

	return left > 0 ? left : 0;
}

static void term_on_limit(struct timer *timer)
{
	struct term *t = (struct term *)((char *)timer - offsetof(struct term, limit));

	log_event(LOG_WARN, &t->about, "on_stopped_slow",
	          "on_stopped has taken almost all of the time to stop: it is cancelled");
	scope_end(&t->after, "no time left to stop", time_left(t) * CHILDREN_PART);
}

static void limit_hook(struct term *t)
{
	timer_start(t->election->script->spec.timeline, &t->limit, time_left(t) * HOOK_PART);
}

static void term_on_stopped_run(void *arg, const struct outcome *o)
{
	struct term *t = arg;

	timer_stop(t->election->script->spec.timeline, &t->limit);
	if (!o->ok && !o->cancelled)
		script_hook_failed(t->election->script, t->election->index, &t->about, "on_stopped", o);
	scope_end(&t->after, TERM_ENDED,
	          time_left(t) * CHILDREN_PART); /* the tasks and children of on_stopped end with it */
}

static void term_on_after_idle(struct scope *scope)
{
	term_finish(scope->owner);
}

/* No task or child of on_leading is left: runs on_stopped, once. */
static void run_on_stopped(struct term *t)
{
	struct script *s = t->election->script;

	if (!t->begun || !election_push_hook(t->election, "on_stopped")) {
		term_finish(t);
		return;
	}
	scope_init(&t->after, s->sched, task_after_failed);
	t->after.owner = t;
	t->after.election = t->election;
	t->after.about = &t->about;
	t->after.marker = &t->marker;
	t->after.idle = term_on_after_idle;
	lua_rawgeti(s->L, LUA_REGISTRYINDEX, t->reference);
	lua_pushstring(s->L, lease_reason_name(t->reason));
	t->cleaning = true;
	struct task *hook = sched_spawn(&t->after, s->L, 2, term_on_stopped_run, t);
	task_name(hook, PAGE_ON_STOPPED, t->election->index);
	task_insist(hook);
	limit_hook(t);
}

static void term_on_idle(struct scope *scope)
{
	run_on_stopped(scope->owner);
}

/* ---- the messages ---- */

static void make_handle(struct term *t, int64_t token, const char *address)
{
	struct script *s = t->election->script;
	lua_State *L = s->L;

	t->handle = lua_newuserdatauv(L, sizeof *t->handle, 1);
	*t->handle =
		(struct term_handle){ .term = t, .slot = &s->spec.page->slot[t->election->index], .number = t->term };
	luaL_setmetatable(L, HANDLE_TYPE);
	lua_createtable(L, 0, 4);
	bind_set_integer(L, "token", token);
	bind_set_text(L, "identity", t->election->identity);
	bind_set_text(L, "lock", t->election->lock);
	bind_set_text(L, "address", address);
	if (t->election->slot)
		bind_set_integer(L, "slot", t->election->slot);
	lua_setiuservalue(L, -2, 1);
	t->reference = luaL_ref(L, LUA_REGISTRYINDEX);
}

static struct term *term_new(struct election *e, uint64_t number, int64_t token, const char *address,
                             const char *checkpoint)
{
	struct term *t = mem_zero(sizeof *t);

	t->election = e;
	t->term = number;
	t->on_request = LUA_NOREF;
	t->about = e->about;
	t->about.term = number;
	t->about.token = token;
	t->address = *address ? mem_dup(address) : NULL;
	t->marker = (struct marker){ .slot = e->index,
		                     .term = number,
		                     .token = token,
		                     .lock = e->lock,
		                     .identity = e->identity,
		                     .address = t->address ? t->address : "" };
	timer_init(e->script->spec.timeline, &t->limit, term_on_limit);
	make_handle(t, token, address);
	t->checkpoint = checkpoint_new(e, number, checkpoint);
	e->term = t;
	e->term_number = number;
	return t;
}

/* The fields of `term` are not the script's to change, and `warm` is the only one that is not a text or a number. */
static void term_set_warm(struct term *t)
{
	lua_State *L = t->election->script->L;

	lua_rawgeti(L, LUA_REGISTRYINDEX, t->reference);
	lua_getiuservalue(L, -1, 1);
	lua_pushvalue(L, -2);
	next_meet_term(t->warm, L);
	lua_setfield(L, -3, "warm");
	lua_pop(L, 3);
}

/* What on_next started is the term's from here on: it is stopped with it, and an error in it ends it. */
static void term_take_scope(struct term *t, uint32_t next)
{
	t->warm = next ? next_take(t->election, next) : NULL;
	t->scope = t->warm ? next_scope(t->warm) : &t->own;
	if (t->warm)
		term_set_warm(t);
	else
		scope_init(t->scope, t->election->script->sched, term_task_failed);
	t->scope->owner = t;
	t->scope->failed = term_task_failed;
	t->scope->election = t->election;
	t->scope->about = &t->about;
	t->scope->marker = &t->marker;
	t->scope->slot = t->handle->slot;
	t->scope->term = t->term;
	t->scope->next = 0;
	t->scope->idle = term_on_idle;
}

bool term_lead(struct election *e, struct wire *w)
{
	struct script *s = e->script;
	struct wire_lead m;

	if (!wire_lead_get(w, &m) || e->term)
		return false;
	struct term *t = term_new(e, m.term, m.token, m.address, m.checkpoint);
	/* The elector waits for it: a worker that is stopped, or whose script is busy, must not be thought to lead. */
	script_tell(e->script, leads, .slot = e->index, .term = m.term);
	term_take_scope(t, m.next);
	if (!election_push_hook(e, "on_leading"))
		return true;
	lua_rawgeti(s->L, LUA_REGISTRYINDEX, t->reference);
	t->begun = true;
	task_name(sched_spawn(t->scope, s->L, 1, term_on_led, t), PAGE_ON_LEADING, e->index);
	return true;
}

static void set_stop_by(struct term *t, int64_t grace_ms)
{
	t->stop_by = timeline_now(t->election->script->spec.timeline) + (grace_ms > 0 ? (double)grace_ms / 1000 : 0);
}

static void term_on_drained(void *arg, const struct outcome *o)
{
	struct term *t = arg;

	if (!o->ok && !o->cancelled)
		term_failed(t, "on_stopping", o);
	if (!t->stopping)
		script_tell(t->election->script, drained, .slot = t->election->index, .term = t->term);
}

bool term_drain(struct election *e, struct wire *w)
{
	struct term *t = e->term;
	struct script *s = e->script;
	struct wire_drain m;

	if (!wire_drain_get(w, &m) || m.reason >= LEASE_REASONS)
		return false;
	if (!t || t->term != m.term) { /* this worker has no such term */
		script_tell(e->script, drained, .slot = e->index, .term = m.term);
		return true;
	}
	if (t->draining || t->stopping)
		return false;
	t->draining = true;
	scope_drain(t->scope);
	if (!election_push_hook(e, "on_stopping")) {
		script_tell(e->script, drained, .slot = e->index, .term = m.term);
		return true;
	}
	lua_rawgeti(s->L, LUA_REGISTRYINDEX, t->reference);
	lua_pushstring(s->L, lease_reason_name(m.reason));
	task_name(sched_spawn(t->scope, s->L, 2, term_on_drained, t), PAGE_ON_STOPPING, e->index);
	return true;
}

/* The elector has sent WIRE_STOP again: there may be less time than before, never more. */
static void term_hurry(struct term *t, int64_t grace_ms)
{
	double before = t->stop_by;

	set_stop_by(t, grace_ms);
	if (t->stop_by >= before)
		t->stop_by = before;
	else if (!t->cleaning)
		scope_end(t->scope, TERM_ENDED, time_left(t) * CHILDREN_PART);
	else if (t->after.over)
		scope_end(&t->after, TERM_ENDED, time_left(t) * CHILDREN_PART);
	else
		limit_hook(t);
}

bool term_stop(struct election *e, struct wire *w)
{
	struct term *t = e->term;
	struct wire_stop m;

	if (!wire_stop_get(w, &m) || m.reason >= LEASE_REASONS)
		return false;
	if (!t || t->term != m.term) { /* this worker has no such term */
		script_tell(e->script, stopped, .slot = e->index, .term = m.term);
		return true;
	}
	if (t->stopping) {
		term_hurry(t, m.grace_ms);
		return true;
	}
	t->stopping = true;
	t->reason = m.reason;
	set_stop_by(t, m.grace_ms);
	scope_end(t->scope, TERM_ENDED, time_left(t) * CHILDREN_PART); /* t may be freed by this */
	return true;
}

bool term_cleanup(struct election *e, struct wire *w)
{
	struct wire_cleanup m;

	if (!wire_cleanup_get(w, &m) || m.reason >= LEASE_REASONS || e->term)
		return false;
	struct term *t = term_new(e, m.term, m.token, "", m.checkpoint);
	t->begun = t->stopping = true;
	t->reason = m.reason;
	set_stop_by(t, m.grace_ms);
	run_on_stopped(t);
	return true;
}

bool term_saved(struct election *e, struct wire *w)
{
	struct wire_saved m;

	if (!wire_saved_get(w, &m) || m.how > WIRE_SAVED_REFUSED)
		return false;
	if (e->term && e->term->term == m.term)
		checkpoint_answered(e->term->checkpoint, &m);
	return true;
}

bool term_request(struct election *e, struct wire *w)
{
	const struct term *t = e->term;
	struct wire_request m;

	if (!wire_request_get(w, &m))
		return false;
	if (!m.term && e->script->on_request != LUA_NOREF)
		request_begin(&e->scope, e, e->script->on_request, &m);
	else if (!t || t->term != m.term || t->draining || t->stopping)
		request_refuse(e, m.request, "the term is ending");
	else if (t->on_request == LUA_NOREF)
		request_refuse(e, m.request, "this script runs no crontab");
	else
		request_begin(t->scope, e, t->on_request, &m);
	return true;
}

/* ---- the script's object ---- */

static struct term_handle *handle_at(lua_State *L)
{
	return luaL_checkudata(L, 1, HANDLE_TYPE);
}

static int handle_is_leading(lua_State *L)
{
	struct term_handle *h = handle_at(L);

	lua_pushboolean(L, page_leading(h->slot, h->number));
	return 1;
}

static int handle_remaining(lua_State *L)
{
	struct term_handle *h = handle_at(L);

	lua_pushnumber(L, (double)page_remaining(h->slot, h->number) / NSEC_PER_SEC);
	return 1;
}

/* term:deadline() -> seconds since 1970, by the wall clock as it is now; nil: the term does not lead */
static int handle_deadline(lua_State *L)
{
	struct term_handle *h = handle_at(L);
	int64_t now = clock_wall_us(); /* before the other clock: what passes between the two makes it earlier */
	nsec left = page_remaining(h->slot, h->number);

	if (left == 0)
		lua_pushnil(L);
	else
		lua_pushnumber(L, ((double)now + (double)left / 1e3) / 1e6);
	return 1;
}

/* term:stopping() -> whether nothing new is to be begun: from on_stopping on */
static int handle_stopping(lua_State *L)
{
	struct term_handle *h = handle_at(L);

	lua_pushboolean(L, !h->term || h->term->draining || page_stopping(h->slot, h->number));
	return 1;
}

/* term:resign([seconds]) -> true; false: the term is ending already */
static int handle_resign(lua_State *L)
{
	struct term_handle *h = handle_at(L);
	double seconds = lua_isnoneornil(L, 2) ? -1 : bind_seconds(L, 2, "term:resign");
	bool running = h->term && !h->term->draining && !h->term->stopping && !h->term->end_sent;

	if (seconds > 1e9)
		return luaL_error(L, "term:resign: %f seconds are longer than 30 years", seconds);
	if (running)
		ask_for_end(h->term, LEASE_RESIGNED, seconds < 0 ? -1 : (int64_t)(seconds * 1000), "");
	lua_pushboolean(L, running);
	return 1;
}

static int handle_spawn(lua_State *L)
{
	struct term_handle *h = handle_at(L);

	if (!h->term)
		return sched_raise(L, TERM_ENDED);
	luaL_checktype(L, 2, LUA_TFUNCTION);
	if (h->term->cleaning)
		return luaL_error(
			L, "term:spawn: the term is over, and on_stopped ends what it starts: call the function, "
			   "or `spawn` it and await it");
	return bind_spawn(L, h->term->scope, lua_gettop(L) - 2);
}

static int handle_tostring(lua_State *L)
{
	lua_pushfstring(L, "term %I", (LUAI_UACINT)handle_at(L)->number);
	return 1;
}

static const luaL_Reg methods[] = {
	{ "is_leading", handle_is_leading },
	{ "remaining", handle_remaining },
	{ "deadline", handle_deadline },
	{ "stopping", handle_stopping },
	{ "resign", handle_resign },
	{ "spawn", handle_spawn },
	{ NULL, NULL },
};

static struct checkpoint *handle_checkpoint(lua_State *L)
{
	struct term_handle *h = handle_at(L);

	return h->term ? h->term->checkpoint : NULL;
}

static int handle_push_checkpoint(lua_State *L)
{
	return checkpoint_push(L, handle_checkpoint(L));
}

static int handle_save(lua_State *L)
{
	return checkpoint_save(L, handle_checkpoint(L));
}

void term_bind_checkpoint(lua_State *L)
{
	lua_pushcfunction(L, handle_push_checkpoint);
	lua_setfield(L, -2, "checkpoint");
	lua_pushcfunction(L, handle_save);
	lua_setfield(L, -2, "save");
}

static int handle_on_request(lua_State *L)
{
	struct script *s = lua_touserdata(L, lua_upvalueindex(1));
	struct term_handle *h = lua_isnil(L, 1) ? NULL : handle_at(L);

	luaL_checktype(L, 2, LUA_TFUNCTION);
	if (h && !h->term)
		return sched_raise(L, TERM_ENDED);
	int *place = h ? &h->term->on_request : &s->on_request;
	lua_settop(L, 2);
	luaL_unref(L, LUA_REGISTRYINDEX, *place);
	*place = luaL_ref(L, LUA_REGISTRYINDEX);
	return 0;
}

void term_bind_requests(lua_State *L, struct script *s)
{
	lua_pushlightuserdata(L, s);
	lua_pushcclosure(L, handle_on_request, 1);
	lua_setfield(L, -2, "on_request");
}

void term_bind(lua_State *L)
{
	bind_fields_class(L, HANDLE_TYPE, methods);
	luaL_getmetatable(L, HANDLE_TYPE);
	lua_pushcfunction(L, handle_tostring);
	lua_setfield(L, -2, "__tostring");
	lua_pop(L, 1);
}
