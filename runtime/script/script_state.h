/* What the parts of a script share: its Lua state, its elections, and the way to the elector.
 * Not how a script is loaded and driven (script.h).
 * Used by script.c, election.c, term.c and checkpoint.c; by others only for struct script_spec. */
#pragma once

#include "base/buf.h"
#include "process/deadline_page.h"
#include "process/wire.h"
#include "script/scheduler.h"

#include <lua.h>
#include <stdbool.h>
#include <stdint.h>

struct script_spec { /* borrowed for as long as the script lives */
	struct ev_loop *loop;
	struct timeline *timeline;
	/* NULL: there are no elections, nor a script to load, but only what can be called (the process of a lock
	 * file). */
	struct page *page;
	struct sources *sources; /* what it reads of its files is kept there; NULL: it is not kept */
	size_t memory_max;       /* bytes of its Lua state; 0: no limit. Beyond them Lua has no memory */
	bool eval;               /* source is the text itself, not a path */
	const char *source;
	char *const *args;             /* of the script, NULL-terminated */
	void (*natives)(lua_State *L); /* adds what the script can call to the table at the top: api_open */
	void (*send)(void *arg, const struct buf *message);
	void *arg;
	/* For `lunarch test`: lua/test/simulated.lua calls it instead of what exec, http and the like do. NULL: they do
	 * it. */
	int (*stub)(lua_State *L, void *arg);
	void *stub_arg;
};

struct script {
	struct script_spec spec;
	lua_State *L;  /* the main thread */
	size_t memory; /* bytes that it has */
	struct sched *sched;
	int internals; /* registry reference: what lua/boot/prelude.lua returns */
	struct metrics *metrics;
	int on_request; /* registry reference of the function for requests outside any term; LUA_NOREF: there is none */
	struct election *elections;
	uint32_t nelections;
	bool going;        /* the elector has said which elections this worker has */
	bool exiting;      /* lunarch.exit was called */
	uint32_t starting; /* the next election whose on_start has to run */
};

void script_send(struct script *s, struct buf *message); /* sends the message and frees it */

/* Sends the message of that name (process/wire_messages.h) with these fields. */
#define script_tell(s, name, ...)                                               \
	do {                                                                    \
		struct buf told = { 0 };                                        \
		wire_##name##_put(&told, &(struct wire_##name){ __VA_ARGS__ }); \
		script_send(s, &told);                                          \
	} while (0)

/* A hook of the election in this slot, or a task of it, has raised: the log has the traceback, the elector the
 * error. */
void script_hook_failed(struct script *s, uint32_t slot, const struct log_about *about, const char *hook,
                        const struct outcome *o);

void script_push_internal(struct script *s, const char *name); /* [-0, +1, m] */
