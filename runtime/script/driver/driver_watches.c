#include "script/driver/driver_watches.h"

#include "base/mem.h"
#include "script/driver/driver_state.h"

#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>

#define PAUSE_MIN_S 1
#define PAUSE_MAX_S 60
#define UNWATCHED "the key is watched no longer"

struct driver_notices {
	struct driver *driver;
	LIST_ENTRY(driver_notices) place; /* in the driver's list */
	char *key;
	bool wanted;
	uint64_t number;    /* of the task, told to its `changed`: one of an earlier task says nothing */
	struct task *task;  /* NULL: it waits to be begun again */
	bool yes;           /* no change is missed */
	nsec since;         /* when the task was begun */
	int pause_s;        /* before it is begun again */
	struct timer timer; /* for that */
	char *why;          /* it ended, the last time; NULL: it has not */
};

static void watch_free(struct driver_notices *w)
{
	timer_stop(w->driver->timeline, &w->timer);
	LIST_REMOVE(w, place);
	free(w->key);
	free(w->why);
	free(w);
}

static void say_watching(const struct driver_notices *w)
{
	char *why = driver_text(w->driver, w->why && !w->yes ? w->why : "");

	driver_tell(w->driver, watching, .key = w->key, .yes = w->yes, .why = why);
	free(why);
}

static struct driver_notices *watch_find(const struct driver *d, const char *key, uint64_t number)
{
	struct driver_notices *w = LIST_FIRST(&d->watches);

	while (w && (key ? strcmp(w->key, key) != 0 : w->number != number))
		w = LIST_NEXT(w, place);
	return w;
}

/* changed(): what the file's `watch` calls. The first call says that the notices have begun. */
static int watch_on_changed(lua_State *L)
{
	struct driver *d = lua_touserdata(L, lua_upvalueindex(1));
	struct driver_notices *w = watch_find(d, NULL, (uint64_t)lua_tointeger(L, lua_upvalueindex(2)));

	if (!w || !w->task || !w->wanted)
		return 0;
	if (!w->yes) {
		w->yes = true;
		say_watching(w);
		return 0;
	}
	driver_tell(d, changed, .key = w->key);
	return 0;
}

static void watch_on_ended(void *arg, const struct outcome *o);

static void watch_begin(struct driver_notices *w)
{
	struct driver *d = w->driver;
	lua_State *L = d->script->L;

	w->number = ++d->watches_begun;
	w->yes = false;
	w->since = clock_monotonic();
	driver_push(d, "watch");
	lua_pushstring(L, w->key);
	lua_pushlightuserdata(L, d);
	lua_pushinteger(L, (lua_Integer)w->number);
	lua_pushcclosure(L, watch_on_changed, 2);
	w->task = sched_spawn(sched_program(d->script->sched), L, 2, watch_on_ended, w);
}

static void watch_on_time(struct timer *t)
{
	watch_begin((struct driver_notices *)((char *)t - offsetof(struct driver_notices, timer)));
}

/* One that has lasted for longer than the pause before it is begun again soon. */
static int next_pause(const struct driver_notices *w)
{
	nsec lasted = clock_monotonic() - w->since;

	if (!w->pause_s || (w->yes && lasted >= w->pause_s * NSEC_PER_SEC))
		return PAUSE_MIN_S;
	return w->pause_s * 2 < PAUSE_MAX_S ? w->pause_s * 2 : PAUSE_MAX_S;
}

static void watch_on_ended(void *arg, const struct outcome *o)
{
	struct driver_notices *w = arg;
	struct driver *d = w->driver;

	w->task = NULL;
	if (!w->wanted) {
		watch_free(w);
		return;
	}
	if (o->cancelled || !o->begun) { /* it was wanted again meanwhile */
		watch_begin(w);
		return;
	}
	if (!o->ok)
		driver_complain(d, o->message, o->traceback);
	w->pause_s = next_pause(w);
	w->yes = false;
	mem_replace(&w->why, o->ok ? driver_result(o, 1, NULL) : o->message);
	say_watching(w);
	timer_start(d->timeline, &w->timer, w->pause_s);
}

static void watch_stop(struct driver_notices *w)
{
	w->wanted = w->yes = false;
	if (w->task)
		task_cancel(w->task, UNWATCHED);
	else
		watch_free(w);
}

static void watch_want(struct driver *d, const char *key)
{
	struct driver_notices *w = mem_zero(sizeof *w);

	*w = (struct driver_notices){ .driver = d, .key = mem_dup(key), .wanted = true };
	LIST_INSERT_HEAD(&d->watches, w, place);
	timer_init(d->timeline, &w->timer, watch_on_time);
	if (d->state == DRIVER_IS_OPEN)
		watch_begin(w);
}

void driver_watches_want(struct driver *d, const char *key, bool on)
{
	struct driver_notices *w = watch_find(d, key, 0);

	if (!on && w && w->wanted)
		watch_stop(w);
	if (!on)
		return;
	if (!w) {
		watch_want(d, key);
		return;
	}
	w->wanted = true; /* if its task is being stopped, the end of that starts another */
	if (w->yes || (!w->task && w->why))
		say_watching(w);
}

void driver_watches_opened(struct driver *d)
{
	for (struct driver_notices *w = LIST_FIRST(&d->watches); w; w = LIST_NEXT(w, place))
		watch_begin(w);
}

void driver_watches_fini(struct driver *d)
{
	while (!LIST_EMPTY(&d->watches))
		watch_free(LIST_FIRST(&d->watches));
}
