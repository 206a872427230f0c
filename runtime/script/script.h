/* The script: its Lua state, how it is loaded, and the messages that drive its hooks.
 * Not the process around it (worker.c): no sockets, no signals, no exit. No lock code.
 * Used by the worker; election.c and term.c are its two halves that run hooks. */
#ifndef LUNARCH_SCRIPT_H
#define LUNARCH_SCRIPT_H

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
	struct page *page;
	bool eval; /* source is the text itself, not a path */
	const char *source;
	char *const *args; /* of the script, NULL-terminated */
	void (*send)(void *arg, const struct buf *message);
	void *arg;
	int (*stub)(lua_State *L, void *arg); /* what the script asks of the world outside goes there:
	                                         lua/test/simulated.lua; NULL: the world is real */
	void *stub_arg;
};

/* Shared by script.c, election.c and term.c alone. */
struct script {
	struct script_spec spec;
	lua_State *L; /* the main thread */
	struct sched *sched;
	int internals; /* registry reference: what lua/boot/prelude.lua returns */
	struct election *elections;
	uint32_t nelections;
	bool going;        /* it knows which elections it keeps */
	bool exiting;      /* the end of the program has been asked for */
	uint32_t starting; /* the next election whose on_start has to run */
};

struct script *script_new(const struct script_spec *spec);
void script_free(struct script *s); /* closes the Lua state: pending finalizers run */

/* Compiles the script and makes a task of its main chunk; the elections, or why there are none, are sent when that has
 * ended. */
void script_load(struct script *s);

/* A message of the elector. false: malformed, or against the order of things. */
bool script_message(struct script *s, enum wire_type type, struct wire *w);

/* Leaves the function use(name): what lua/NAME.lua returns, run once in this state. [-0, +1, m] */
void script_push_use(lua_State *L);

/* ---- for election.c and term.c ---- */

void script_send(struct script *s, struct buf *message);       /* and frees it */
void script_put_text(struct buf *m, const char *text);         /* wire_str, cut so that the message is no giant */
void script_push_internal(struct script *s, const char *name); /* [-0, +1, m] */
struct election *script_election(const struct script *s, uint32_t index); /* NULL: not kept in this worker */

#endif
