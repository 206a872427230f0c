#include "locks/lua/driver_server.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* ---- notices ---- */

static void server_listen(struct lock_server *base, const char *key, bool on)
{
	struct buf m = { 0 };

	if (!(driver_link_can(base->notices) & DRIVER_CAN_WATCH))
		return;
	driver_watch_put(&m, &(struct driver_watch){ .key = key, .on = on });
	driver_link_send(base->notices, &m);
	buf_fini(&m);
}

static void server_refuse(void *arg, const struct lock_channel *c)
{
	lock_board_answer(arg, c->name, false);
}

static void server_on_down(void *arg, enum lock_outcome outcome, const struct err *why)
{
	struct driver_server *s = arg;

	lock_board_each(&s->base.board, server_refuse, &s->base.board);
	lock_server_on_down(arg, outcome, why);
}

static void server_on_changed(void *arg, const char *key)
{
	struct driver_server *s = arg;

	lock_board_tell(&s->base.board, key, NULL);
}

static void server_on_watching(void *arg, const struct driver_watching *w)
{
	struct driver_server *s = arg;

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
		.link = { .up = lock_server_on_up, .down = server_on_down },
		.changed = server_on_changed,
		.watching = server_on_watching,
	};
	struct driver_server *s = mem_zero(sizeof *s);

	s->place = *(struct driver_place *)place;
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
