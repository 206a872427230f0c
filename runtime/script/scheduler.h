/* The scheduler: the script's code runs as tasks (coroutines) inside scopes, waits look like calls.
 * Not preemptive, and it starts and ends nothing by itself: the worker's messages and the script do.
 * Used by the Lua bindings and by hooks.c. Every entry of C into the script's code is in scheduler.c.
 *
 * Cancelling is level-triggered: once a scope or task is over, every wait in it raises, again and again, and code that
 * does not wait is interrupted: it gets some room to clean up, each time less than before, until nothing runs any more.
 */
#ifndef LUNARCH_SCHEDULER_H
#define LUNARCH_SCHEDULER_H

#include "base/log.h"
#include "loop/timeline.h"
#include "process/deadline_page.h"
#include "script/environment.h"

#include <ev.h>
#include <lua.h>
#include <stdbool.h>

struct sched;
struct task;
struct outcome;
struct election;

#define SCHED_CANNOT_YIELD \
	"Lua cannot yield inside require, a table.sort comparator, a string.gsub callback, __gc, __tostring, or while a coroutine is being closed"
#define TERM_ENDED "term ended" /* what waits raise in a term that is over; the whole message, without a position */

/* Something else that ends with a scope, embedded in it. */
struct bond {
	struct bond *next, **link;   /* link NULL: it is bound to none */
	void (*over)(struct bond *); /* the scope is over; the bond is cut already. Must not call into Lua */
};

/* A child process of a scope, embedded in it (child.c). The scope's end waits for it, and asks it to stop, again if
 * there is less time than before. */
struct scope_child {
	struct scope_child *next, **link;
	void (*stop)(struct scope_child *, double kill_after_s);
};

/* What tasks and children belong to. Lives in its owner, who must not free it before `idle` has been called. */
struct scope {
	struct sched *sched;
	struct election *election;     /* borrowed; NULL: the program's own scope */
	const struct log_about *about; /* borrowed; whose lines its log lines are; NULL: the program's */
	const struct marker *marker;   /* borrowed; NULL: outside any term */
	struct page_slot *slot;        /* also over when the page says so; NULL: only when told */
	uint64_t term;
	const char *over; /* why the scope is over, as its waits raise it: static text; NULL: it is not over */
	struct task *tasks;
	struct scope_child *children;
	struct bond *bonds;
	void (*idle)(struct scope *); /* it is over, and its last task and child are gone; NULL: nobody cares */
	void (*failed)(struct scope *,
	               const struct outcome *); /* a task raised whose end nobody asked to be told; never NULL */
};

/* How a task ended. */
struct outcome {
	bool begun; /* false: it was over before its first instruction, and so never ran */
	bool ok;
	bool cancelled;     /* it ended because it was over: neither success nor an error of the script */
	lua_State *results; /* ok: `count` results are on top of this stack; the callee leaves them */
	int count;
	const char *message;   /* !ok: the error value as text, */
	const char *traceback; /*      and with where it happened */
};

typedef void task_ended(void *arg, const struct outcome *o);

/* Embedded in what a task waits for. Either side leaves by clearing its pointer, so a late completion finds nobody. */
struct wait {
	struct task *task; /* NULL: nobody waits */
	void (*left)(
		struct wait *); /* the task waits no longer, though nothing was completed. Must not call into Lua */
};

/* loop: of descriptors and children; timeline: of time. Both borrowed. */
struct sched *sched_new(struct ev_loop *loop, struct timeline *timeline, lua_State *L);
void sched_free(struct sched *s); /* after lua_close */
struct sched *sched_of(lua_State *L);
struct ev_loop *sched_loop(struct sched *s);
struct timeline *sched_timeline(struct sched *s);

void scope_init(struct scope *scope, struct sched *s, void (*failed)(struct scope *, const struct outcome *));
/* Cancels its tasks, whose waits then raise `over` (static text), and stops its children, killing them after kill_after
 * seconds. idle may be called inside. Again: the children get less time. */
void scope_end(struct scope *scope, const char *over, double kill_after);
bool scope_over(const struct scope *scope);
void bond_make(struct scope *scope, struct bond *b, void (*over)(struct bond *));
void bond_cut(struct bond *b); /* again: nothing */
void scope_add_child(struct scope *scope, struct scope_child *c);
void scope_drop_child(struct scope_child *c); /* it has ended; scope_check_idle follows */
void scope_check_idle(struct scope *scope);   /* calls idle, which may free the scope, if the scope is over */

/* Starts a task: calls the function that lies under nargs arguments on L's stack, and pops all of it. ended may be
 * NULL; it is called from the loop, never from inside sched_spawn. [-(nargs+1), +0, m] */
struct task *sched_spawn(struct scope *scope, lua_State *L, int nargs, task_ended *ended, void *arg);
void task_cancel(struct task *t, const char *over); /* static text, which its waits raise */
void task_insist(struct task *t); /* it begins even if it is cancelled before: then its first wait raises */
struct scope *task_scope(const struct task *t);

/* The task that runs now, and its scope; NULL while the loop does. */
struct task *sched_running(const struct sched *s);
struct scope *sched_scope(const struct sched *s);
struct scope *sched_program(
	struct sched *s);      /* the scope of what belongs to no election: loading, and what that starts */
bool sched_over(lua_State *L); /* the running task is cancelled, or its scope over */

/* Runs the tasks that are ready now, each once. false: none is left. */
bool sched_run(struct sched *s);

/* Raises this text, without a position. [-0, +0, v] */
int sched_raise(lua_State *L, const char *text);

/* Raises unless the running task may wait here: it is not over, and Lua can yield. Call it before starting what is
 * waited for. what: the function's name, for the message. [-0, +0, v] */
void sched_may_wait(lua_State *L, const char *what);

/* Leaves the running task until task_wake or, with timeout_s >= 0, until then; w may be NULL. Then k runs, which begins
 * with sched_resumed. Return its result: `return sched_wait(...)`. [-0, +?, v|yields] */
int sched_wait(lua_State *L, struct wait *w, double timeout_s, lua_KContext ctx, lua_KFunction k);

/* First thing in a continuation: raises if the task is over. true: woken; false: the time is up. [-0, +0, v] */
bool sched_resumed(lua_State *L);

/* What was waited for is there: w->task becomes ready, and waits no more. Does nothing if nobody waits. */
void wait_done(struct wait *w);

/* From a signal handler on the scheduler's thread: if the code that runs now is over, stop it at its next instruction.
 */
void sched_interrupt(struct sched *s);

/* For the Lua state's allocator, when it has to refuse: an error for want of memory then says where that was. */
void sched_refused(struct sched *s);

/* What the coroutine library needs (lua_coroutine.c), so that a wait inside a coroutine of the script reaches us. */
int sched_resume_nested(lua_State *L, lua_State *co, int nargs,
                        int *nresults);          /* lua_resume, remembering the nesting */
bool sched_is_wait(lua_State *co, int nresults); /* what co yielded is one of our waits */
int sched_relay(lua_State *L, lua_KContext ctx,
                lua_KFunction k); /* passes that wait on to whoever resumed L. [-0, +?, yields] */
bool sched_is_task(lua_State *L); /* L is a task's own coroutine */
bool sched_parked(lua_State *L);  /* L is inside a wait, its own or a relayed one */
void sched_unpark(lua_State *L);  /* the first thing in the continuation of sched_relay */

#endif
