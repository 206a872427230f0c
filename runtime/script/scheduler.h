/* The scheduler: the script's code runs as tasks (coroutines) inside scopes. A wait is a call that returns later.
 * It is not preemptive, and starts and ends no task by itself: messages of the elector and the script do.
 * Used by the Lua bindings, election.c and term.c. C calls the script's code only in scheduler.c.
 *
 * A scope or task that is cancelled is over for good: every wait in it raises, not only the first one. Code that does
 * not wait is interrupted with an error. It may then run some more instructions to clean up, and fewer after each
 * further interruption, until the task ends. */
#pragma once

#include "base/log.h"
#include "loop/timeline.h"
#include "process/deadline_page.h"
#include "script/environment.h"

#include <ev.h>
#include <lua.h>
#include <stdbool.h>
#include <sys/queue.h>

struct sched;
struct task;
struct outcome;
struct election;

#define SCHED_CANNOT_YIELD \
	"Lua cannot yield inside require, a table.sort comparator, a string.gsub callback, __gc, __tostring, or while a coroutine is being closed"
#define TERM_ENDED "term ended" /* the error that waits raise in a term that is over, without a position */

#define NEXT_ENDED "comes next no more" /* the same for what on_next started, when there is no term that takes it */

/* Embedded in an object that must know of a scope's end. */
struct bond {
	LIST_ENTRY(bond) place;      /* in its scope's list */
	bool tied;                   /* it is in that list */
	void (*over)(struct bond *); /* called at the scope's end, after bond_cut. Must not call into Lua */
};

/* Embedded in a child process (child.c). The scope's end stops the child and waits for it. stop is called again if
 * there is less time than before. */
struct scope_child {
	LIST_ENTRY(scope_child) place;
	void (*stop)(struct scope_child *, double kill_after_s);
};

/* Embedded in what a task waits for. When the wait ends, both pointers are cleared, so a late wait_done does
 * nothing. */
struct wait {
	struct task *task; /* NULL: nobody waits */
	/* Called when the task stops waiting without wait_done: cancelled, or its time is up. Must not call into
	 * Lua. */
	void (*left)(struct wait *);
	struct waits *list; /* NULL: it is in none */
	struct wait *next, *before;
};

/* Those who wait for the same, the first one first. Zeroed: nobody. */
struct waits {
	struct wait *first, *last;
};

/* Tasks and children belong to a scope. It is in its owner's memory, which must not be freed before `idle` is
 * called. */
struct scope {
	struct sched *sched;
	void *owner;                   /* its user's */
	struct election *election;     /* borrowed; NULL: the program's own scope */
	const struct log_about *about; /* borrowed; of its log lines; NULL: the program's */
	const struct marker *marker;   /* borrowed; NULL: outside any term */
	/* The scope is also over when the page says that the term, or the on_next, is. slot NULL: no page. */
	struct page_slot *slot;
	uint64_t term;
	uint32_t next;    /* the number of an on_next that no term has taken; 0: it is the term's */
	const char *over; /* static text: the error that its waits raise; NULL: the scope is not over */
	LIST_HEAD(scope_tasks, task) tasks;
	LIST_HEAD(scope_children, scope_child) children;
	LIST_HEAD(scope_bonds, bond) bonds;
	struct waits rests;           /* for their next turn: until a time, or until it drains */
	bool draining;                /* no task rests in it any more */
	void (*idle)(struct scope *); /* called when it is over and has no task and no child any more; may be NULL */
	/* Called when a task raised for which sched_spawn was given no `ended`. Never NULL. */
	void (*failed)(struct scope *, const struct outcome *);
};

/* How a task ended. */
struct outcome {
	bool begun; /* false: it was over before its first instruction */
	bool ok;
	bool cancelled;     /* it ended because it was cancelled: neither success nor an error of the script */
	lua_State *results; /* ok: `count` results are on top of this stack, which the callback must not change */
	int count;
	const char *message;   /* !ok: the error as text */
	const char *traceback; /* !ok: the error with its traceback */
};

typedef void task_ended(void *arg, const struct outcome *o);

/* loop: for descriptors and children; timeline: for timers; page: for what runs now, NULL: nobody looks. All of them
 * are borrowed. */
struct sched *sched_new(struct ev_loop *loop, struct timeline *timeline, struct page *page, lua_State *L);
void sched_free(struct sched *s); /* after lua_close */
struct sched *sched_of(lua_State *L);
struct ev_loop *sched_loop(struct sched *s);

void scope_init(struct scope *scope, struct sched *s, void (*failed)(struct scope *, const struct outcome *));
/* Frees the tasks that still wait, without running them. The Lua state is closed. */
void scope_fini(struct scope *scope);
/* Cancels its tasks, whose waits then raise `over` (static text), and stops its children, which are killed after
 * kill_after seconds. idle may be called inside. May be called again, to give the children less time. */
void scope_end(struct scope *scope, const char *over, double kill_after);
bool scope_over(const struct scope *scope);
const char *scope_over_text(const struct scope *scope); /* what its waits raise; NULL: it is not over */
/* Wakes the tasks that rest. From now on none rests in it. Its tasks and children go on. */
void scope_drain(struct scope *scope);
void bond_make(struct scope *scope, struct bond *b, void (*over)(struct bond *));
void bond_cut(struct bond *b); /* may be called again */
void scope_add_child(struct scope *scope, struct scope_child *c);
void scope_drop_child(struct scope_child *c); /* it has ended; call scope_check_idle after this */
void scope_check_idle(struct scope *scope);   /* calls idle, which may free the scope, if the scope is over */

/* Starts a task that calls the function below nargs arguments on L's stack; pops them all. ended may be NULL; it is
 * called from the loop, never from inside sched_spawn. [-(nargs+1), +0, m] */
struct task *sched_spawn(struct scope *scope, lua_State *L, int nargs, task_ended *ended, void *arg);
void task_cancel(struct task *t, const char *over); /* over: static text, which its waits raise */
void task_insist(struct task *t); /* it begins even if it is cancelled before that; then its first wait raises */
/* What people are told that it is; else PAGE_TASK. slot: of its election. Tasks that it starts have the slot, too. */
void task_name(struct task *t, enum page_work work, uint32_t slot);
struct scope *task_scope(const struct task *t);

/* The task that runs now, and its scope; NULL: none runs. */
struct task *sched_running(const struct sched *s);
struct scope *sched_scope(const struct sched *s);
struct scope *sched_program(struct sched *s); /* of tasks that belong to no election: the main chunk, and its tasks */
bool sched_over(lua_State *L);                /* the running task is cancelled, or its scope over */

/* Runs the tasks that are ready now, each once. false: none is left. */
bool sched_run(struct sched *s);

/* Raises the text without adding a position. [-0, +0, v] */
int sched_raise(lua_State *L, const char *text);

/* Raises if the running task must not wait: it is over, or Lua cannot yield here. Call it before you start what the
 * task will wait for. what: the function's name, for the error. [-0, +0, v] */
void sched_may_wait(lua_State *L, const char *what);

/* The running task waits until wait_done(w) or, with timeout_s >= 0, until that time has passed; w may be NULL. Then k
 * runs, which must begin with sched_resumed. Use it as `return sched_wait(...)`. [-0, +?, v|yields] */
int sched_wait(lua_State *L, struct wait *w, double timeout_s, lua_KContext ctx, lua_KFunction k);

/* The wait, which is about to begin, is the last one in the list until it ends, for whatever reason. */
void wait_enter(struct waits *list, struct wait *w);

/* The first call of a continuation. Raises if the task is over. true: wait_done; false: the time is up. [-0, +0, v] */
bool sched_resumed(lua_State *L);

/* Ends the wait: w->task becomes ready, and w is in no list. Does nothing if no task waits. */
void wait_done(struct wait *w);

/* For a signal handler on the scheduler's thread: if the running task is over, an error interrupts it at its next
 * instruction. */
void sched_interrupt(struct sched *s);

/* The Lua state's allocator calls this when it has no memory, so that the error can say the script's line. */
void sched_refused(struct sched *s);

/* For lua_coroutine.c: a wait inside a coroutine of the script is passed on to the task. */
int sched_resume_nested(lua_State *L, lua_State *co, int nargs,
                        int *nresults);                           /* lua_resume, and notes who resumed co */
bool sched_is_wait(lua_State *co, int nresults);                  /* what co yielded is one of our waits */
int sched_relay(lua_State *L, lua_KContext ctx, lua_KFunction k); /* yields that wait from L, too. [-0, +?, yields] */
bool sched_is_task(lua_State *L);                                 /* L is a task's own coroutine */
bool sched_parked(lua_State *L);                                  /* L is inside a wait, its own or a passed-on one */
void sched_unpark(lua_State *L);                                  /* the first call of sched_relay's continuation */
