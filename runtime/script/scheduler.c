#include "script/scheduler.h"

#include "base/mem.h"

#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* So many instructions may a task that is over run to clean up, before it is interrupted. After each interruption it
 * may run a tenth of that. So a loop that catches the error ends after little more than a million instructions. */
#define ROOM_INSTRUCTIONS 1000000
#define ROOM_OF_A_WAIT 10000 /* a wait that raises counts as so many instructions */

struct task {
	LIST_ENTRY(task) place; /* in its scope */
	struct task *ready_next;
	struct scope *scope;
	lua_State *co;
	int reference; /* keeps co alive, in the registry */
	int nargs;     /* arguments of the first resume */
	int room;
	bool begun, ready, finished, timed_out, insists, failed;
	bool starved;       /* it failed because there was no memory */
	size_t message_len; /* failed: length of the error's text, before its traceback */
	const char *over;   /* why this task is cancelled; NULL: it is not, but its scope may be */
	struct wait *wait;
	struct timer timer;
	task_ended *ended;
	void *arg;
	enum page_work work;
	uint32_t slot; /* of its election, for people */
};

/* A coroutine that has resumed another one, and waits for it; on the C stack. */
struct nesting {
	lua_State *L;
	struct nesting *outer;
};

struct sched {
	struct ev_loop *loop;
	struct timeline *timeline;
	struct page *page;             /* NULL: nobody looks */
	lua_State *L;                  /* the main thread: never runs the script's code */
	struct task *volatile running; /* this one and the next are read by sched_interrupt */
	lua_State *volatile innermost;
	struct nesting *nesting;
	struct task *ready, **ready_end;
	struct environment environment;
	struct scope program;
	char refused[LUA_IDSIZE + 48]; /* the error's text for the last time that there was no memory */
};

/* A yield that is a wait has this address as its first value. */
static const char wait_mark;

/* ---- the extra space of a lua_State: its scheduler, and in the lowest bit whether it is inside a wait ---- */

static uintptr_t *extra(lua_State *L)
{
	return lua_getextraspace(L);
}

struct sched *sched_of(lua_State *L)
{
	return (struct sched *)(*extra(L) & ~(uintptr_t)1);
}

bool sched_parked(lua_State *L)
{
	return *extra(L) & 1;
}

static void park(lua_State *L)
{
	*extra(L) |= 1;
}

void sched_unpark(lua_State *L)
{
	*extra(L) &= ~(uintptr_t)1;
}

static void log_failure(struct scope *scope, const struct outcome *o)
{
	log_event(LOG_ERROR, scope->about, "script_error", "%s", o->traceback);
}

struct sched *sched_new(struct ev_loop *loop, struct timeline *timeline, struct page *page, lua_State *L)
{
	struct sched *s = mem_zero(sizeof *s);

	s->loop = loop;
	s->timeline = timeline;
	s->page = page;
	s->L = L;
	s->ready_end = &s->ready;
	environment_init(&s->environment);
	scope_init(&s->program, s, log_failure);
	*extra(L) = (uintptr_t)s; /* Lua copies it into new coroutines */
	return s;
}

void sched_free(struct sched *s)
{
	scope_fini(&s->program);
	environment_fini(&s->environment);
	free(s);
}

struct ev_loop *sched_loop(struct sched *s)
{
	return s->loop;
}

struct scope *sched_program(struct sched *s)
{
	return &s->program;
}

struct task *sched_running(const struct sched *s)
{
	return s->running;
}

struct scope *sched_scope(const struct sched *s)
{
	return s->running ? s->running->scope : NULL;
}

struct scope *task_scope(const struct task *t)
{
	return t->scope;
}

/* ---- where the script is ---- */

#define LEVELS_LOOKED_AT 50

/* Whether it is of lua/: "=lunarch:boot/prelude", or of the library, "=lunarch.retry". A script's file begins with
 * '@'. */
static bool is_ours(const lua_Debug *ar)
{
	return strncmp(ar->source, "=lunarch", 8) == 0 && (ar->source[8] == ':' || ar->source[8] == '.');
}

/* The innermost line of the script's own code; false: there is none. */
static bool find_line(lua_State *L, lua_Debug *ar)
{
	for (int level = 0; level < LEVELS_LOOKED_AT && lua_getstack(L, level, ar); level++) {
		lua_getinfo(L, "Sl", ar);
		if (ar->currentline > 0 && !is_ours(ar))
			return true;
	}
	return false;
}

/* ---- over, and interrupted ---- */

const char *scope_over_text(const struct scope *scope) /* async-signal-safe */
{
	if (scope->over || !scope->slot)
		return scope->over;
	if (scope->next)
		return page_next_over(scope->slot, scope->next) ? NEXT_ENDED : NULL;
	return page_stopping(scope->slot, scope->term) ? TERM_ENDED : NULL;
}

bool scope_over(const struct scope *scope)
{
	return scope_over_text(scope);
}

static const char *task_over(const struct task *t) /* async-signal-safe */
{
	return t->over ? t->over : scope_over_text(t->scope);
}

bool sched_over(lua_State *L)
{
	struct task *t = sched_of(L)->running;

	return t && task_over(t);
}

int sched_raise(lua_State *L, const char *text)
{
	lua_pushstring(L, text);
	return lua_error(L);
}

static void enforce(lua_State *L, lua_Debug *ar);

/* Not if the hook is already set for fewer instructions: setting it again would begin counting again. */
static void task_arm(struct task *t, lua_State *L)
{
	if (lua_gethook(L) != enforce || lua_gethookcount(L) > t->room)
		lua_sethook(L, enforce, LUA_MASKCOUNT, t->room);
}

/* The count hook, which interrupts a task that is over. It stays set, so that a script cannot go on by catching the
 * error. If a coroutine has run in such a task, and now runs in one that is not over, the hook is removed. */
static void enforce(lua_State *L, lua_Debug *)
{
	struct task *t = sched_of(L)->running;
	const char *why = t ? task_over(t) : NULL;

	if (!why) {
		lua_sethook(L, NULL, 0, 0);
		return;
	}
	lua_sethook(L, enforce, LUA_MASKCOUNT, t->room);
	t->room = t->room > 10 ? t->room / 10 : 1;
	sched_raise(L, why);
}

/* lua_sethook may be called from a signal handler on the thread that runs Lua (ldebug.c). */
void sched_interrupt(struct sched *s)
{
	struct task *t = s->running;
	lua_State *L = s->innermost;

	if (t && L && lua_gethook(L) != enforce && task_over(t)) /* else it is cleaning up already */
		lua_sethook(L, enforce, LUA_MASKCOUNT, 1);
}

/* Raises the error of a wait in a task that is over. */
static int raise_in_wait(lua_State *L, struct task *t, const char *why)
{
	t->room = t->room > 2 * ROOM_OF_A_WAIT ? t->room - ROOM_OF_A_WAIT : 1;
	task_arm(t, L);
	return sched_raise(L, why);
}

/* ---- waiting ---- */

static void make_ready(struct task *t)
{
	struct sched *s = t->scope->sched;

	if (t->ready || t->finished)
		return;
	t->ready = true;
	t->ready_next = NULL;
	*s->ready_end = t;
	s->ready_end = &t->ready_next;
}

void wait_enter(struct waits *list, struct wait *w)
{
	w->list = list;
	w->next = NULL;
	w->before = list->last;
	*(w->before ? &w->before->next : &list->first) = w;
	list->last = w;
}

static void wait_leave(struct wait *w)
{
	if (!w->list)
		return;
	*(w->before ? &w->before->next : &w->list->first) = w->next;
	*(w->next ? &w->next->before : &w->list->last) = w->before;
	w->list = NULL;
}

/* The task stops waiting, for whatever reason. */
static struct wait *leave_wait(struct task *t)
{
	struct wait *w = t->wait;

	timer_stop(t->scope->sched->timeline, &t->timer);
	t->wait = NULL;
	if (w) {
		w->task = NULL;
		wait_leave(w);
	}
	return w;
}

static void give_up_wait(struct task *t)
{
	struct wait *w = leave_wait(t);

	if (w && w->left)
		w->left(w);
	make_ready(t);
}

void wait_done(struct wait *w)
{
	struct task *t = w->task;

	if (!t)
		return;
	leave_wait(t);
	make_ready(t);
}

static void task_on_timer(struct timer *timer)
{
	struct task *t = (struct task *)((char *)timer - offsetof(struct task, timer));

	t->timed_out = true;
	give_up_wait(t);
}

static void refuse_to_wait(lua_State *L, const char *what)
{
	lua_Debug ar;

	if (find_line(L, &ar))
		lua_pushfstring(L, "%s:%d: %s cannot wait here: " SCHED_CANNOT_YIELD, ar.short_src, ar.currentline,
		                what);
	else
		lua_pushfstring(L, "%s cannot wait here: " SCHED_CANNOT_YIELD, what);
	lua_error(L);
}

void sched_may_wait(lua_State *L, const char *what)
{
	struct sched *s = sched_of(L);
	struct task *t = s->running;
	bool able = t && lua_isyieldable(L);

	for (struct nesting *n = s->nesting; n && able; n = n->outer)
		able = lua_isyieldable(n->L);
	if (!able)
		refuse_to_wait(L, what);
	const char *why = task_over(t);
	if (why)
		raise_in_wait(L, t, why);
}

int sched_wait(lua_State *L, struct wait *w, double timeout_s, lua_KContext ctx, lua_KFunction k)
{
	struct sched *s = sched_of(L);
	struct task *t = s->running;

	t->timed_out = false;
	t->wait = w;
	if (w)
		w->task = t;
	if (timeout_s >= 0)
		timer_start(s->timeline, &t->timer, timeout_s);
	return sched_relay(L, ctx, k);
}

void scope_drain(struct scope *scope)
{
	scope->draining = true;
	while (scope->rests.first)
		wait_done(scope->rests.first);
}

bool sched_resumed(lua_State *L)
{
	struct task *t = sched_of(L)->running;

	sched_unpark(L);
	const char *why = task_over(t);
	if (why)
		raise_in_wait(L, t, why);
	return !t->timed_out;
}

/* ---- coroutines of the script ---- */

int sched_relay(lua_State *L, lua_KContext ctx, lua_KFunction k)
{
	park(L);
	lua_pushlightuserdata(L, (void *)&wait_mark);
	return lua_yieldk(L, 1, ctx, k);
}

bool sched_is_wait(lua_State *co, int nresults)
{
	return nresults == 1 && lua_touserdata(co, -1) == &wait_mark;
}

bool sched_is_task(lua_State *L)
{
	struct task *t = sched_of(L)->running;

	return t && t->co == L;
}

int sched_resume_nested(lua_State *L, lua_State *co, int nargs, int *nresults)
{
	struct sched *s = sched_of(L);
	struct task *t = s->running;
	struct nesting here = { .L = L, .outer = s->nesting };

	s->nesting = &here;
	s->innermost = co;
	if (t && task_over(t))
		task_arm(t, co);
	int status = lua_resume(co, L, nargs, nresults);
	s->innermost = L;
	s->nesting = here.outer;
	if (t && task_over(t))
		task_arm(t, L); /* the inner coroutine was interrupted: so is this one */
	return status;
}

/* ---- tasks ---- */

/* An error of another task has that task's traceback, which begins with the same message. */
static const char *inner_traceback(lua_State *L, const char *message)
{
	if (!lua_istable(L, 1))
		return message;
	lua_pushliteral(L, "traceback");
	if (lua_rawget(L, 1) == LUA_TSTRING && strncmp(lua_tostring(L, -1), message, strlen(message)) == 0)
		return lua_tostring(L, -1);
	return message;
}

/* Adds the script's line to the message if it is not there: error objects and an overflow of the C stack have none.
 * [message -> message] */
static void add_line(lua_State *L)
{
	const char *message = lua_tostring(L, -1);
	lua_Debug ar;

	if (!find_line(L, &ar))
		return;
	size_t len = strlen(ar.short_src);
	if (strncmp(message, ar.short_src, len) == 0 && message[len] == ':')
		return;
	lua_pushfstring(L, "%s:%d: %s", ar.short_src, ar.currentline, message);
	lua_remove(L, -2);
}

#define ERROR_MAX (1024 * 1024) /* bytes of an error's text */

/* Pushes the error as a text; for a table without __tostring, its field `message`. [+1] */
static void error_describe(lua_State *L)
{
	if (lua_isstring(L, 1) || luaL_getmetafield(L, 1, "__tostring") != LUA_TNIL) {
		size_t len;
		const char *text = luaL_tolstring(L, 1, &len);
		if (len > ERROR_MAX)
			lua_pushlstring(L, text, ERROR_MAX);
		return;
	}
	if (lua_istable(L, 1)) {
		lua_pushliteral(L, "message");
		if (lua_rawget(L, 1) == LUA_TSTRING)
			return;
	}
	lua_pushfstring(
		L, "(the error is a %s, not a text: expected error(\"why\"), or a table with a message or __tostring)",
		luaL_typename(L, 1));
}

/* The message handler: it runs before the stack is unwound. [error -> message and traceback] */
static int error_report(lua_State *L)
{
	struct task *t = sched_of(L)->running;

	error_describe(L);
	if (!task_over(t))
		add_line(L);
	const char *message = lua_tostring(L, -1);
	t->message_len = strlen(message);
	luaL_traceback(L, L, inner_traceback(L, message), 1);
	/* No pcall of the script can catch this error any more: its <close> variables may run all the instructions. */
	if (task_over(t)) {
		t->room = ROOM_INSTRUCTIONS;
		lua_sethook(L, enforce, LUA_MASKCOUNT, t->room);
	}
	return 1;
}

static int body_ended(lua_State *L, int status, lua_KContext)
{
	struct task *t = sched_of(L)->running;

	if (status == LUA_OK || status == LUA_YIELD)
		return lua_gettop(L) - 1; /* the results, above the handler */
	t->failed = true;
	t->starved = status == LUA_ERRMEM;
	if (status != LUA_ERRRUN) /* no memory, or errors in the handler itself */
		t->message_len = lua_isstring(L, -1) ? strlen(lua_tostring(L, -1)) : 0;
	return 1;
}

/* Called by the allocator, so it must not allocate. Lua's own error, "not enough memory", has no line. */
void sched_refused(struct sched *s)
{
	lua_Debug ar;

	if (s->innermost && find_line(s->innermost, &ar))
		snprintf(s->refused, sizeof s->refused, "%s:%d: not enough memory", ar.short_src, ar.currentline);
	else
		snprintf(s->refused, sizeof s->refused, "not enough memory");
}

/* The first function of every task. It catches errors itself instead of leaving that to lua_resume: only then do hooks
 * work, and may <close> variables wait, while an error unwinds the stack. */
static int body(lua_State *L)
{
	lua_pushcfunction(L, error_report);
	lua_insert(L, 1);
	return body_ended(L, lua_pcallk(L, lua_gettop(L) - 2, LUA_MULTRET, 1, 0, body_ended), 0);
}

struct task *sched_spawn(struct scope *scope, lua_State *L, int nargs, task_ended *ended, void *arg)
{
	lua_State *co = lua_newthread(L);

	lua_insert(L, -(nargs + 2));
	luaL_checkstack(co, nargs + 2, "too many arguments for a task");
	lua_pushcfunction(co, body);
	lua_xmove(L, co, nargs + 1);
	struct task *t = mem_zero(sizeof *t);
	*t = (struct task){
		.scope = scope,
		.co = co,
		.nargs = nargs + 1,
		.room = ROOM_INSTRUCTIONS,
		.ended = ended,
		.arg = arg,
		.work = PAGE_TASK,
		.slot = scope->sched->running ? scope->sched->running->slot : PAGE_NO_SLOT,
	};
	timer_init(scope->sched->timeline, &t->timer, task_on_timer);
	t->reference = luaL_ref(L, LUA_REGISTRYINDEX);
	LIST_INSERT_HEAD(&scope->tasks, t, place);
	make_ready(t);
	return t;
}

void task_name(struct task *t, enum page_work work, uint32_t slot)
{
	t->work = work;
	t->slot = slot;
}

void task_insist(struct task *t)
{
	t->insists = true;
}

void scope_fini(struct scope *scope)
{
	struct task *t;

	while ((t = LIST_FIRST(&scope->tasks))) {
		timer_stop(scope->sched->timeline, &t->timer);
		LIST_REMOVE(t, place);
		free(t);
	}
}

static bool ends_with(const char *text, const char *end)
{
	size_t a = strlen(text), b = strlen(end);

	return a >= b && strcmp(text + a - b, end) == 0;
}

/* The error is at the top of the task's stack. o's texts point into strings on that stack. */
static void task_fail(struct task *t, struct outcome *o)
{
	const char *why = task_over(t);

	o->ok = false;
	o->traceback = t->starved                ? t->scope->sched->refused
	               : lua_isstring(t->co, -1) ? lua_tostring(t->co, -1)
	                                         : "(an error that cannot be described)";
	if (!t->starved && t->message_len < strlen(o->traceback) && lua_checkstack(t->co, 1))
		o->message = lua_pushlstring(t->co, o->traceback, t->message_len);
	else
		o->message = o->traceback;
	o->cancelled = why && ends_with(o->message, why);
}

static void task_finish(struct task *t, int nresults)
{
	struct scope *scope = t->scope;
	struct outcome o = { .begun = t->begun,
		             .ok = t->begun,
		             .cancelled = !t->begun,
		             .results = t->co,
		             .count = nresults,
		             .message = TERM_ENDED,
		             .traceback = TERM_ENDED };

	if (t->failed)
		task_fail(t, &o);
	scope->sched->running = NULL;
	scope->sched->innermost = NULL;
	t->finished = true;
	if (t->ended)
		t->ended(t->arg, &o);
	else if (!o.ok && !o.cancelled)
		scope->failed(scope, &o);
	luaL_unref(scope->sched->L, LUA_REGISTRYINDEX, t->reference);
	LIST_REMOVE(t, place);
	free(t);
	scope_check_idle(scope);
}

/* The script's code runs only from here. */
static void resume(struct task *t)
{
	struct sched *s = t->scope->sched;
	int nresults = 0;

	s->innermost = t->co;
	s->running = t; /* set before task_over is asked, so that no signal after that is lost */
	environment_enter(&s->environment, t->scope->marker);
	const char *why = task_over(t);
	if (why && !t->begun && !t->insists) {
		task_finish(t, 0);
		return;
	}
	if (why)
		task_arm(t, t->co);
	t->begun = true;
	if (s->page)
		page_work(s->page, t->work, t->slot);
	int status = lua_resume(t->co, s->L, t->nargs, &nresults);
	t->nargs = 0;
	if (status == LUA_YIELD) {
		s->running = NULL;
		s->innermost = NULL;
		lua_pop(t->co, nresults);
		return;
	}
	if (status != LUA_OK) { /* no memory even for the protected call */
		t->failed = true;
		t->starved = status == LUA_ERRMEM;
		t->message_len = SIZE_MAX;
	}
	task_finish(t, nresults);
}

bool sched_run(struct sched *s)
{
	struct task *t = s->ready;

	/* A task that becomes ready meanwhile runs in the next call, so that messages are read in between. */
	s->ready = NULL;
	s->ready_end = &s->ready;
	while (t) {
		struct task *next = t->ready_next;
		t->ready = false;
		resume(t);
		t = next;
	}
	environment_enter(&s->environment, NULL);
	if (s->page)
		page_work(s->page, PAGE_WAITS, PAGE_NO_SLOT);
	return s->ready != NULL;
}

static void task_cancel_now(struct task *t)
{
	if (t != t->scope->sched->running)
		give_up_wait(t);
}

void task_cancel(struct task *t, const char *why)
{
	if (t->over)
		return;
	t->over = why;
	task_cancel_now(t);
}

/* ---- scopes ---- */

void scope_init(struct scope *scope, struct sched *s, void (*failed)(struct scope *, const struct outcome *))
{
	*scope = (struct scope){ .sched = s, .failed = failed };
}

void bond_make(struct scope *scope, struct bond *b, void (*over_now)(struct bond *))
{
	*b = (struct bond){ .tied = true, .over = over_now };
	LIST_INSERT_HEAD(&scope->bonds, b, place);
}

void bond_cut(struct bond *b)
{
	if (b->tied)
		LIST_REMOVE(b, place);
	b->tied = false;
}

static void end_bonds(struct scope *scope)
{
	struct bond *b;

	while ((b = LIST_FIRST(&scope->bonds))) {
		bond_cut(b);
		b->over(b);
	}
}

void scope_end(struct scope *scope, const char *why, double kill_after)
{
	bool first = !scope->over;

	if (first)
		scope->over = why;
	/* They are stopped before the tasks: one that waits for a child stops it, too, and with less time. */
	for (struct scope_child *c = LIST_FIRST(&scope->children); c; c = LIST_NEXT(c, place))
		c->stop(c, kill_after);
	for (struct task *t = LIST_FIRST(&scope->tasks); first && t; t = LIST_NEXT(t, place))
		task_cancel_now(t);
	if (first)
		end_bonds(scope);
	scope_check_idle(scope);
}

void scope_add_child(struct scope *scope, struct scope_child *c)
{
	LIST_INSERT_HEAD(&scope->children, c, place);
}

void scope_drop_child(struct scope_child *c)
{
	LIST_REMOVE(c, place);
}

void scope_check_idle(struct scope *scope)
{
	if (scope->over && LIST_EMPTY(&scope->tasks) && LIST_EMPTY(&scope->children) && scope->idle)
		scope->idle(scope);
}
