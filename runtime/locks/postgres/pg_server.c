#include "locks/postgres/pg_server.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

struct pg_hub { /* one per process */
	struct pg_server *servers;
	uint64_t asked; /* questions */
};

/* ---- notices ---- */

static void server_listen(struct pg_server *s, const char *command, const char *channel)
{
	char sql[80];

	snprintf(sql, sizeof sql, "%s %s", command, channel);
	pg_link_send(s->pools[PG_RENEWALS], NULL, 1, &(struct pg_statement){ .sql = sql });
}

/* The server carries it out before any look that follows on this connection. */
static void server_listen_again(void *arg, const struct lock_channel *c)
{
	struct pg_server *s = arg;

	server_listen(s, "LISTEN", c->name);
	if (s->was_up)
		lock_board_tell(&s->board, c->name, NULL);
}

static void server_on_renewals_up(void *arg)
{
	struct pg_server *s = arg;

	if (pg_link_pooled(s->pools[PG_RENEWALS]))
		lock_board_deafen(&s->board);
	else
		lock_board_each(&s->board, server_listen_again, s);
	s->was_up = true;
	s->refusals = 0;
	pg_rehearsal_renewals_up(&s->rehearsal);
}

static void server_on_terms_up(void *arg)
{
	struct pg_server *s = arg;

	pg_rehearsal_terms_up(&s->rehearsal);
}

static void server_on_renewals_down(void *arg, enum lock_outcome why)
{
	struct pg_server *s = arg;

	pg_rehearsal_down(&s->rehearsal);
	ev_timer_set(&s->raise, lock_channel_again_s(&s->refusals, why), 0.);
	ev_timer_start(s->env->loop, &s->raise);
}

static void server_on_raise(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct pg_server *s = w->data;

	(void)loop;
	(void)revents;
	if (s->board.channels)
		pg_link_raise(s->pools[PG_RENEWALS]);
}

static void server_on_notice(void *arg, const char *channel, const char *payload)
{
	struct pg_server *s = arg;

	lock_board_tell(&s->board, channel, payload);
}

bool pg_server_watch(struct pg_server *s, struct lock_member *m, const char *channel, const char *table,
                     lock_changed_fn *changed, void *arg)
{
	const struct lock_channel *fresh = lock_member_enter(m, channel, changed, arg);

	if (!fresh)
		return !s->board.deaf;
	if (pg_link_is_up(s->pools[PG_RENEWALS]) && !s->board.deaf)
		server_listen(s, "LISTEN", fresh->name);
	else if (!ev_is_active(&s->raise))
		pg_link_raise(s->pools[PG_RENEWALS]);
	pg_rehearsal_use(&s->rehearsal, table);
	if (s->locks > 1) /* or the first handover would wait for it */
		pg_link_raise(s->pools[PG_TERMS]);
	return !s->board.deaf;
}

void pg_server_unwatch(struct pg_server *s, struct lock_member *m)
{
	char *channel;

	if (!lock_member_leave(m, &channel))
		return;
	server_listen(s, "UNLISTEN", channel);
	free(channel);
}

/* ---- which link ---- */

struct pg_link *pg_server_link(const struct pg_server *s, bool acquiring)
{
	return s->pools[acquiring && s->locks > 1 ? PG_TERMS : PG_RENEWALS];
}

uint64_t pg_server_number(struct pg_server *s)
{
	return ++s->hub->asked;
}

void pg_server_led(struct pg_server *s)
{
	pg_rehearsal_led(&s->rehearsal);
}

/* ---- shared by the locks with the same URI ---- */

static void *hub_make(struct lock_env *env, struct err *err)
{
	(void)env;
	(void)err;
	return mem_zero(sizeof(struct pg_hub));
}

static struct pg_server *server_new(struct pg_hub *h, struct lock_env *env, struct pg_place *place)
{
	static const struct pg_link_events renewals = { .up = server_on_renewals_up,
		                                        .down = server_on_renewals_down,
		                                        .notice = server_on_notice };
	static const struct pg_link_events terms = { .up = server_on_terms_up };
	struct pg_server *s = mem_zero(sizeof *s);

	*s = (struct pg_server){
		.env = env, .board = { .loop = env->loop }, .hub = h, .next = h->servers, .place = place
	};
	s->pools[PG_RENEWALS] = pg_link_new(env, place, &renewals, s);
	s->pools[PG_TERMS] = pg_link_new(env, place, &terms, s);
	pg_rehearsal_init(&s->rehearsal, env->loop, s->pools[PG_RENEWALS], s->pools[PG_TERMS]);
	ev_init(&s->raise, server_on_raise);
	s->raise.data = s;
	h->servers = s;
	return s;
}

static void server_free(struct pg_server *s)
{
	struct pg_server **at = &s->hub->servers;

	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	ev_timer_stop(s->env->loop, &s->raise);
	pg_rehearsal_fini(&s->rehearsal);
	for (int i = 0; i < PG_POOLS; i++)
		pg_link_free(s->pools[i]);
	pg_place_free(s->place);
	free(s);
}

static void server_count(struct pg_server *s, int change)
{
	s->locks += change;
	pg_rehearsal_alone(&s->rehearsal, s->locks == 1);
}

struct pg_server *pg_server_get(struct lock_env *env, struct pg_place *place)
{
	static const char key;
	struct pg_hub *h = lock_env_share(env, &key, hub_make, free, NULL);
	struct pg_server *s = h->servers;

	while (s && !pg_place_same(s->place, place))
		s = s->next;
	if (s)
		pg_place_free(place);
	else
		s = server_new(h, env, place);
	server_count(s, 1);
	return s;
}

void pg_server_put(struct pg_server *s)
{
	server_count(s, -1);
	if (s->locks == 0)
		server_free(s);
}
