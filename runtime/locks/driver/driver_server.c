#include "locks/driver/driver_server.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define PATIENCE_S 10. /* for a lock file to say whether there are notices */

struct driver_asked {
	struct driver_asked *next;
	ev_tstamp until; /* by the loop's clock */
	char key[];
};

/* ---- notices ---- */

static void server_drop_asked(struct driver_server *s, struct driver_asked **at)
{
	struct driver_asked *a = *at;

	*at = a->next;
	if (!*at)
		s->last = at;
	free(a);
}

static void server_forget_asked(struct driver_server *s, const char *key)
{
	for (struct driver_asked **at = &s->asked; *at; at = &(*at)->next)
		if (strcmp((*at)->key, key) == 0) {
			server_drop_asked(s, at);
			return;
		}
}

/* The timer may be at work for a key that was forgotten: then it ends too early, and looks again. */
static void server_await_asked(struct driver_server *s)
{
	struct ev_loop *loop = s->base.env->loop;

	if (!s->asked || ev_is_active(&s->silent))
		return;
	ev_now_update(loop);
	ev_timer_set(&s->silent, s->asked->until > ev_now(loop) ? s->asked->until - ev_now(loop) : 0., 0.);
	ev_timer_start(loop, &s->silent);
}

static void server_note_asked(struct driver_server *s, const char *key)
{
	struct driver_asked *a = mem_zero(sizeof *a + strlen(key) + 1);

	ev_now_update(s->base.env->loop);
	a->until = ev_now(s->base.env->loop) + s->patience_s;
	memcpy(a->key, key, strlen(key) + 1);
	*s->last = a;
	s->last = &a->next;
	server_await_asked(s);
}

/* A lock file that does not say whether there are notices has none, as far as anybody knows. */
static void server_on_silent(struct ev_loop *loop, ev_timer *w, int)
{
	struct driver_server *s = w->data;

	ev_now_update(loop);
	while (s->asked && s->asked->until <= ev_now(loop)) {
		char *key = mem_dup(s->asked->key);
		server_drop_asked(s, &s->asked);
		lock_board_answer(&s->base.board, key, false);
		free(key);
	}
	server_await_asked(s);
}

static void server_listen(struct lock_server *base, const char *key, bool on)
{
	struct driver_server *s = (struct driver_server *)base;
	struct buf m = { 0 };

	if (!(driver_link_can(base->notices) & DRIVER_CAN_WATCH)) {
		lock_board_answer(&base->board, key, false);
		return;
	}
	driver_watch_put(&m, &(struct driver_watch){ .key = key, .on = on });
	driver_link_send(base->notices, &m);
	buf_fini(&m);
	server_forget_asked(s, key);
	if (on)
		server_note_asked(s, key);
}

static void server_on_up(void *arg)
{
	lock_server_notices.up(arg);
}

static void server_refuse(void *arg, const struct lock_channel *c)
{
	lock_board_answer(arg, c->name, false);
}

static void server_on_down(void *arg, enum lock_outcome outcome, const struct err *why)
{
	struct driver_server *s = arg;

	while (s->asked)
		server_drop_asked(s, &s->asked);
	lock_board_each(&s->base.board, server_refuse, &s->base.board);
	lock_server_notices.down(arg, outcome, why);
}

static void server_on_changed(void *arg, const char *key)
{
	struct driver_server *s = arg;

	lock_board_tell(&s->base.board, key, NULL);
}

static void server_on_watching(void *arg, const struct driver_watching *w)
{
	struct driver_server *s = arg;

	server_forget_asked(s, w->key);
	lock_board_answer(&s->base.board, w->key, w->yes);
	if (!w->yes)
		log_event(LOG_DEBUG, NULL, "lock_driver_no_notices", "the driver of %s has no notices of %s now: %s",
		          s->place.name, w->key, w->why);
}

/* ---- shared by the locks at the same place ---- */

static bool server_serves(const struct lock_server *base, const void *place)
{
	return strcmp(((const struct driver_server *)base)->place.json, ((const struct driver_place *)place)->json) ==
	       0;
}

static struct lock_server *server_make(struct lock_env *env, void *place)
{
	static const struct driver_link_events events = {
		.link = { .up = server_on_up, .down = server_on_down },
		.changed = server_on_changed,
		.watching = server_on_watching,
	};
	struct driver_server *s = mem_zero(sizeof *s);

	s->place = *(struct driver_place *)place;
	s->last = &s->asked;
	s->patience_s = PATIENCE_S;
	ev_init(&s->silent, server_on_silent);
	s->silent.data = s;
	s->base.notices = driver_link_new(env, s->place.json, s->place.name, &events, s);
	return &s->base;
}

static void server_spare(void *place)
{
	driver_place_fini(place);
}

/* The link's memory may stay a little, but it asks for no place any more. */
static void server_free(struct lock_server *base)
{
	struct driver_server *s = (struct driver_server *)base;

	ev_timer_stop(base->env->loop, &s->silent);
	while (s->asked)
		server_drop_asked(s, &s->asked);
	lock_link_free(s->base.notices);
	driver_place_fini(&s->place);
	free(s);
}

struct driver_server *driver_server_get(struct lock_env *env, struct driver_place *place)
{
	static const struct lock_server_ops ops = {
		.serves = server_serves,
		.make = server_make,
		.spare = server_spare,
		.free = server_free,
		.listen = server_listen,
	};

	return (struct driver_server *)lock_server_get(env, &ops, place);
}
