#include "script/metrics.h"

#include "base/mem.h"
#include "loop/timeline.h"
#include "process/wire.h"
#include "script/election.h"

#include <float.h>
#include <lauxlib.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAUSE_S 0.05
#define UNSENT_MAX 100

struct unsent_metric {
	struct unsent_metric *next;
	uint32_t slot;
	uint64_t term;
	bool counter;
	char *name, *labels; /* one block of memory, which begins at name */
	double value;
};

struct metrics {
	struct script *script;
	struct timer timer;
	struct unsent_metric *first, **end;
	unsigned count;
};

void metrics_flush(struct metrics *m)
{
	struct unsent_metric *u;

	if (m->count == 0)
		return;
	timer_stop(m->script->spec.timeline, &m->timer);
	while ((u = m->first)) {
		char value[40];
		snprintf(value, sizeof value, "%.17g", u->value);
		script_tell(m->script, metric, .slot = u->slot, .term = u->term, .counter = u->counter, .name = u->name,
		            .labels = u->labels, .value = value);
		m->first = u->next;
		free(u->name);
		free(u);
	}
	m->end = &m->first;
	m->count = 0;
}

static void metrics_on_timer(struct timer *t)
{
	metrics_flush((struct metrics *)((char *)t - offsetof(struct metrics, timer)));
}

/* A script that is only inspected has no timeline, and sets no metric. */
static void metrics_flush_later(struct metrics *m)
{
	timer_init(m->script->spec.timeline, &m->timer, metrics_on_timer);
	timer_start(m->script->spec.timeline, &m->timer, PAUSE_S);
}

static bool unsent_is(const struct unsent_metric *u, const struct wire_metric *w)
{
	return u->slot == w->slot && u->term == w->term && u->counter == w->counter && strcmp(u->name, w->name) == 0 &&
	       strcmp(u->labels, w->labels) == 0;
}

/* The value of w is not looked at. */
static void metrics_set(struct metrics *m, const struct wire_metric *w, double value)
{
	for (struct unsent_metric *u = m->first; u; u = u->next)
		if (unsent_is(u, w)) {
			u->value = u->counter ? fmin(u->value + value, DBL_MAX) : value; /* no message has more */
			return;
		}
	struct unsent_metric *u = mem_zero(sizeof *u);
	char *copies[2];
	mem_pack(2, (const char *const[]){ w->name, w->labels }, copies);
	*u = (struct unsent_metric){ .slot = w->slot,
		                     .term = w->term,
		                     .counter = w->counter,
		                     .name = copies[0],
		                     .labels = copies[1],
		                     .value = value };
	*m->end = u;
	m->end = &u->next;
	if (++m->count == UNSENT_MAX)
		metrics_flush(m);
	else if (m->count == 1)
		metrics_flush_later(m);
}

static int metrics_metric(lua_State *L)
{
	struct metrics *m = lua_touserdata(L, lua_upvalueindex(1));
	const struct election *e = election_here(L, m->script, "metrics");
	const struct scope *scope = sched_scope(sched_of(L));
	struct wire_metric w = { .slot = e->index,
		                 .term = scope && scope->marker && scope->marker->term ? e->term_number : 0,
		                 .counter = lua_toboolean(L, 1),
		                 .name = luaL_checkstring(L, 2),
		                 .labels = luaL_checkstring(L, 3) };

	metrics_set(m, &w, luaL_checknumber(L, 4));
	return 0;
}

void metrics_bind(lua_State *L, struct metrics *m)
{
	lua_pushlightuserdata(L, m);
	lua_pushcclosure(L, metrics_metric, 1);
	lua_setfield(L, -2, "metric");
}

struct metrics *metrics_new(struct script *s)
{
	struct metrics *m = mem_zero(sizeof *m);

	m->script = s;
	m->end = &m->first;
	return m;
}

void metrics_free(struct metrics *m)
{
	struct unsent_metric *u;

	if (m->count)
		timer_stop(m->script->spec.timeline, &m->timer);
	while ((u = m->first)) {
		m->first = u->next;
		free(u->name);
		free(u);
	}
	free(m);
}
