#include "locks/redis/redis_server.h"

#include "base/mem.h"
#include "locks/redis/redis_link.h"
#include "locks/redis/redis_scripts.h"

#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

/* ---- which of the hosts is the primary ---- */

void redis_server_unask(struct redis_server *s, struct redis_asker *a)
{
	struct redis_asker **at = &s->asking;

	if (a->asks == REDIS_ASKS_NOT)
		return;
	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	a->asks = REDIS_ASKS_NOT;
}

static struct redis_asker *server_first_asker(const struct redis_server *s)
{
	struct redis_asker *a = s->asking;

	while (a && a->asks != REDIS_ASKS_NOW)
		a = a->next;
	return a;
}

static void server_on_roles(void *arg, const struct redis_found *found);

static void server_ask_roles(struct redis_server *s)
{
	nsec patience = 0;

	if (s->roles || s->telling || !s->asking)
		return;
	for (struct redis_asker *a = s->asking; a; a = a->next) {
		nsec third = (nsec)lock_op_left_ms(a->op) * NSEC_PER_MS / 3;
		patience = third > patience ? third : patience;
		a->asks = REDIS_ASKS_NOW;
	}
	s->roles = redis_roles_ask(s->base.env, &s->place.url, patience, server_on_roles, s);
}

/* The locks of a process ask together, but each after its operation began. */
static void server_on_roles(void *arg, const struct redis_found *found)
{
	struct redis_server *s = arg;
	struct redis_asker *a;

	s->roles = NULL;
	s->telling = true;
	lock_server_hold(&s->base); /* what is told may close the last lock */
	if (lock_link_is_up(s->link) && found->replicas & 1U << s->link->host)
		redis_link_turn_away(s->link, "it has become a replica");
	while ((a = server_first_asker(s))) {
		redis_server_unask(s, a);
		a->told(a, found);
	}
	s->telling = false;
	server_ask_roles(s);
	lock_server_put(&s->base);
}

void redis_server_ask(struct redis_server *s, struct redis_asker *a)
{
	a->asks = REDIS_ASKS_NEXT;
	a->next = s->asking;
	s->asking = a;
	server_ask_roles(s);
}

/* ---- notices ---- */

static void server_listen(struct lock_server *s, const char *channel)
{
	redis_link_send(s->notices, NULL, 2, (const char *[]){ "SUBSCRIBE", channel }, NULL);
}

static void server_unlisten(struct lock_server *s, const char *channel)
{
	redis_link_send(s->notices, NULL, 2, (const char *[]){ "UNSUBSCRIBE", channel }, NULL);
}

/* A confirmation counts as a notice: what happened before it was not told. */
static void server_on_push(void *arg, const redisReply *r)
{
	struct lock_server *s = arg;
	const char *kind = redis_word_at(r, 0);

	if (r->type == REDIS_REPLY_ERROR) /* no rights */
		lock_board_deafen(&s->board);
	else if (strcmp(kind, "message") == 0)
		lock_board_tell(&s->board, redis_word_at(r, 1), redis_word_at(r, 2));
	else if (strcmp(kind, "subscribe") == 0)
		lock_board_tell(&s->board, redis_word_at(r, 1), NULL);
}

/* ---- servers ---- */

static void server_on_up(void *arg)
{
	struct redis_server *s = arg;

	s->checked = false;
}

static void server_on_down(void *arg, enum lock_outcome outcome, const struct err *why)
{
	struct redis_server *s = arg;

	(void)outcome;
	(void)why;
	s->checked = false;
}

static bool server_serves(const struct lock_server *server, const void *place)
{
	const struct redis_server *s = (const struct redis_server *)server;
	const struct redis_place *p = place;

	return s->place.db == p->db && s->place.replicas == p->replicas &&
	       lock_url_same_servers(&s->place.url, &p->url);
}

static struct lock_server *server_make(struct lock_env *env, void *place)
{
	static const struct lock_link_events events = { .up = server_on_up, .down = server_on_down };
	struct redis_server *s = mem_zero(sizeof *s);

	s->place = *(struct redis_place *)place;
	s->link = redis_link_new(env, &s->place.url, s->place.db, redis_scripts, &events, NULL, s);
	s->base.notices = redis_link_new(env, &s->place.url, 0, NULL, &lock_server_notices, server_on_push, s);
	return &s->base;
}

static void server_spare(void *place)
{
	lock_url_fini(&((struct redis_place *)place)->url);
}

static void server_free(struct lock_server *server)
{
	struct redis_server *s = (struct redis_server *)server;

	redis_roles_cancel(s->roles);
	lock_link_free(s->link);
	lock_link_free(s->base.notices);
	lock_url_fini(&s->place.url);
	free(s);
}

static const struct lock_server_ops server_ops = {
	.serves = server_serves,
	.make = server_make,
	.spare = server_spare,
	.free = server_free,
	.listen = server_listen,
	.unlisten = server_unlisten,
};

struct redis_server *redis_server_get(struct lock_env *env, struct redis_place *place)
{
	return (struct redis_server *)lock_server_get(env, &server_ops, place);
}
