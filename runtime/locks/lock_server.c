#include "locks/lock_server.h"

#include <stdlib.h>

static void server_on_raise(struct ev_loop *, ev_timer *w, int)
{
	const struct lock_server *s = w->data;

	if (s->board.channels)
		lock_link_raise(s->notices);
}

struct lock_server *lock_server_get(struct lock_env *env, const struct lock_server_ops *ops, void *place)
{
	struct lock_server *s = env->servers;

	while (s && (s->ops != ops || !ops->serves(s, place)))
		s = s->next;
	if (s) {
		ops->spare(place);
	} else {
		s = ops->make(env, place);
		s->ops = ops;
		s->env = env;
		s->next = env->servers;
		s->board.loop = env->loop;
		ev_init(&s->raise, server_on_raise);
		s->raise.data = s;
		env->servers = s;
	}
	s->users++;
	return s;
}

void lock_server_hold(struct lock_server *s)
{
	s->users++;
}

void lock_server_put(struct lock_server *s)
{
	struct lock_server **at = &s->env->servers;

	if (--s->users)
		return;
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	ev_timer_stop(s->env->loop, &s->raise);
	s->ops->free(s);
}

/* ---- notices ---- */

static void server_listen(void *arg, const struct lock_channel *c)
{
	struct lock_server *s = arg;

	s->ops->listen(s, c->name, true);
}

void lock_server_on_up(void *arg)
{
	struct lock_server *s = arg;

	s->refusals = 0;
	if (s->ops->listen)
		lock_board_each(&s->board, server_listen, s);
}

void lock_server_on_down(void *arg, enum lock_outcome outcome, const struct err *)
{
	struct lock_server *s = arg;

	ev_timer_stop(s->env->loop, &s->raise);
	ev_timer_set(&s->raise, lock_channel_again_s(&s->refusals, outcome), 0.);
	ev_timer_start(s->env->loop, &s->raise);
}

bool lock_server_watch(struct lock_server *s, struct lock_member *m, const char *channel, lock_changed_fn *changed,
                       void *arg)
{
	const struct lock_channel *fresh = lock_member_enter(m, channel, changed, arg);

	if (fresh && lock_link_is_up(s->notices) && s->ops->listen)
		s->ops->listen(s, fresh->name, true);
	else if (fresh && !ev_is_active(&s->raise))
		lock_link_raise(s->notices);
	return fresh;
}

void lock_server_unwatch(struct lock_server *s, struct lock_member *m)
{
	char *channel;

	if (!lock_member_leave(m, &channel))
		return;
	if (s->users > 1 && s->ops->listen && lock_link_is_up(s->notices))
		s->ops->listen(s, channel, false);
	free(channel);
}
