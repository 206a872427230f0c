#include "locks/postgres/pg_server.h"

#include "base/mem.h"
#include "base/nonce.h"
#include "locks/postgres/pg_sql.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SETTLED_S 0.1 /* after a link is up: then nobody is in a hurry any more */

/* ---- rehearsals ---- */

/* Nobody reads the answer. */
static void server_rehearse(const struct pg_server *s, enum pg_asked what, struct lock_link *link)
{
	static const char *const values[PG_VALUES] = {
		[PG_NAME] = "",   [PG_EXPECTED] = "none", [PG_RECORD] = "", [PG_CHANNEL] = "",
		[PG_MEMBER] = "", [PG_WAITED_OUT] = "",   [PG_OWN] = "f",   [PG_FLOOR] = "0",
	};

	if (s->table && lock_link_is_up(link))
		pg_sql_ask(&(struct pg_question){ .link = link, .table = s->table, .stamp = "" }, what, values);
}

static void server_on_tick(void *arg)
{
	const struct pg_server *s = arg;

	server_rehearse(s, PG_WRITE, s->pools[PG_RENEWALS]);
	server_rehearse(s, PG_BEGIN, pg_server_link(s, true));
}

void pg_server_expect(struct pg_server *s, const char *table)
{
	if (!s->table && table) {
		s->table = mem_dup(table);
		lock_link_tick(s->base.notices, SETTLED_S);
	}
	if (pg_server_locks(s) > 1) /* or the first handover would wait for it */
		lock_link_raise(s->pools[PG_TERMS]);
}

/* ---- links and notices ---- */

static void server_listen(struct lock_server *base, const char *channel, bool on)
{
	char sql[80];

	if (on && base->board.deaf)
		return;
	snprintf(sql, sizeof sql, "%s %s", on ? "LISTEN" : "UNLISTEN", channel);
	pg_link_send(base->notices, NULL, 1, &(struct pg_statement){ .sql = sql });
}

static void server_missed(void *arg, const struct lock_channel *c)
{
	lock_board_tell(arg, c->name, NULL);
}

/* The server carries out each LISTEN before any look that follows on this connection. */
static void server_on_renewals_up(void *arg)
{
	struct pg_server *s = arg;
	struct lock_board *board = &s->base.board;

	if (pg_link_pooled(s->base.notices))
		lock_board_deafen(board);
	lock_server_on_up(s);
	if (s->was_up && !board->deaf)
		lock_board_each(board, server_missed, board);
	s->was_up = true;
	lock_link_tick(s->base.notices, SETTLED_S); /* somebody may be waiting right now: rehearsed is later */
}

static void server_on_terms_up(void *arg)
{
	struct pg_server *s = arg;

	server_rehearse(s, PG_BEGIN, s->pools[PG_TERMS]);
}

static void server_on_notice(void *arg, const char *channel, const char *payload)
{
	struct pg_server *s = arg;

	lock_board_tell(&s->base.board, channel, payload);
}

/* ---- questions ---- */

int pg_server_locks(const struct pg_server *s)
{
	return s->base.users - s->advice;
}

struct lock_link *pg_server_link(const struct pg_server *s, bool acquiring)
{
	return s->pools[acquiring && pg_server_locks(s) > 1 ? PG_TERMS : PG_RENEWALS];
}

void pg_server_stamp(struct pg_server *s, char *out)
{
	snprintf(out, PG_STAMP, "%s.%" PRIu64, s->mark, ++s->asked);
}

/* ---- shared by the locks with the same URI ---- */

static bool server_serves(const struct lock_server *base, const void *place)
{
	const struct pg_place *own = ((const struct pg_server *)base)->place, *p = place;

	return strcmp(own->uri, p->uri) == 0 && own->max_age == p->max_age;
}

static struct lock_server *server_make(struct lock_env *env, void *place)
{
	static const struct pg_link_events renewals = {
		.link = { .up = server_on_renewals_up, .down = lock_server_on_down },
		.notice = server_on_notice,
		.tick = server_on_tick,
	};
	static const struct pg_link_events terms = { .link = { .up = server_on_terms_up } };
	struct pg_server *s = mem_zero(sizeof *s);

	s->place = place;
	s->pools[PG_RENEWALS] = s->base.notices = pg_link_new(env, place, &renewals, s);
	s->pools[PG_TERMS] = pg_link_new(env, place, &terms, s);
	nonce_hex(s->mark, sizeof s->mark / 2);
	return &s->base;
}

static void server_spare(void *place)
{
	pg_place_free(place);
}

static void server_free(struct lock_server *base)
{
	struct pg_server *s = (struct pg_server *)base;

	for (int i = 0; i < PG_POOLS; i++)
		lock_link_free(s->pools[i]);
	pg_place_free(s->place);
	free(s->table);
	free(s);
}

struct pg_server *pg_server_get(struct lock_env *env, struct pg_place *place)
{
	static const struct lock_server_ops ops = {
		.serves = server_serves,
		.make = server_make,
		.spare = server_spare,
		.free = server_free,
		.listen = server_listen,
	};

	return (struct pg_server *)lock_server_get(env, &ops, place);
}
