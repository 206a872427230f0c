#include "admin/events.h"

#include "base/mem.h"
#include "election/elector.h"
#include "election/may_lead.h"
#include "serve/server.h"

#include <ev.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SERVERS 2
/* All elections are looked at before the loop waits, since whatever changes one is done by the loop; but not more often
 * than this, so that a process of a thousand busy elections has time for them. */
#define LOOK_AFTER_S 0.02
#define LOOK_EVERY_S 1. /* what changes by the time alone */

struct known_election {
	char *name, *key; /* key: what has changed if it differs */
	bool there;
};

struct events {
	struct ev_loop *loop;
	struct standing_source source;
	struct server *servers[SERVERS];
	ev_prepare before_wait;
	ev_timer look;
	ev_tstamp looked_at;
	struct known_election *known;
	size_t count;
	uint64_t changes;
};

/* ---- what is told ---- */

static void add_begin(struct buf *out, uint64_t id)
{
	char at[32];

	record_time_print(clock_wall_us(), at, sizeof at);
	buf_printf(out, "id: %" PRIu64 "\ndata: {\"at\":\"%s\",", id, at);
}

static void add_election(struct buf *out, uint64_t id, const struct standing *e)
{
	struct buf json = { 0 };

	add_begin(out, id);
	standing_json(&json, e);
	buf_adds(out, json.data + 1); /* behind its brace; buf_json escapes newlines, so this is one line */
	buf_adds(out, "\n\n");
	buf_fini(&json);
}

static void add_gone(struct buf *out, uint64_t id, const char *name)
{
	add_begin(out, id);
	buf_adds(out, "\"name\":");
	buf_json(out, name);
	buf_adds(out, ",\"gone\":true}\n\n");
}

/* All of the standing that is no time and no count. */
static char *election_key(const struct standing *e)
{
	const struct elector_status *s = e->status;
	const struct elector_next *n = &s->next;
	struct buf key = { 0 };

	buf_printf(&key, "%d%d%d%d%d%d%d", s->phase, s->leading, s->standing.paused, s->standing.seen,
	           s->standing.unreaped, s->standing.looked, s->standing.out_left > 0);
	buf_printf(&key, " %d%d%d %d%d%d", s->store.answered, s->store.lost, s->store.failing, n->known, n->self,
	           n->able);
	buf_printf(&key, " %" PRIu64 " %" PRId64 " %d %s", s->term, s->token, e->may_lead ? (int)e->may_lead->last : -1,
	           e->warm ? e->warm : "");
	const char *const texts[] = { s->leader, s->address, s->trouble,    n->identity,
		                      n->wanted, n->trouble, n->unable_why, e->may_lead ? e->may_lead->why : NULL };
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		buf_printf(&key, "\n%s", texts[i] ? texts[i] : "");
	return key.data;
}

/* ---- looking ---- */

struct events_look {
	struct events *events;
	size_t at; /* so many were listed */
	struct buf out;
};

/* Elections are listed in the same order as last time, most often. */
static struct known_election *find_known(struct events *e, size_t guess, const char *name)
{
	if (guess < e->count && strcmp(e->known[guess].name, name) == 0)
		return &e->known[guess];
	for (size_t i = 0; i < e->count; i++)
		if (strcmp(e->known[i].name, name) == 0)
			return &e->known[i];
	e->known = mem_resize(e->known, (e->count + 1) * sizeof *e->known);
	e->known[e->count] = (struct known_election){ .name = mem_dup(name) };
	return &e->known[e->count++];
}

static void look_at(void *arg, const struct standing *e)
{
	struct events_look *l = arg;
	struct known_election *k = find_known(l->events, l->at++, standing_name(e));
	char *key = election_key(e);

	k->there = true;
	if (k->key && strcmp(k->key, key) == 0) {
		free(key);
		return;
	}
	free(k->key);
	k->key = key;
	add_election(&l->out, ++l->events->changes, e);
}

static void known_fini(struct known_election *k)
{
	free(k->name);
	free(k->key);
}

static void drop_gone(struct events_look *l)
{
	struct events *e = l->events;
	size_t kept = 0;

	for (size_t i = 0; i < e->count; i++) {
		if (e->known[i].there) {
			e->known[kept++] = e->known[i];
			continue;
		}
		add_gone(&l->out, ++e->changes, e->known[i].name);
		known_fini(&e->known[i]);
	}
	e->count = kept;
}

static void events_look(struct events *e)
{
	struct events_look l = { .events = e };

	for (size_t i = 0; i < e->count; i++)
		e->known[i].there = false;
	e->source.list(e->source.arg, look_at, &l);
	drop_gone(&l);
	for (int i = 0; i < SERVERS && l.out.len; i++)
		if (e->servers[i])
			server_push(e->servers[i], &l.out);
	buf_fini(&l.out);
	e->looked_at = ev_now(e->loop);
	ev_timer_again(e->loop, &e->look);
}

static bool is_followed(const struct events *e)
{
	for (int i = 0; i < SERVERS; i++)
		if (e->servers[i] && server_streams(e->servers[i]))
			return true;
	return false;
}

static void events_rest(struct events *e)
{
	ev_prepare_stop(e->loop, &e->before_wait);
	ev_timer_stop(e->loop, &e->look);
	for (size_t i = 0; i < e->count; i++)
		known_fini(&e->known[i]);
	e->count = 0;
}

static void events_before_wait(struct ev_loop *loop, ev_prepare *w, int revents)
{
	struct events *e = w->data;

	(void)revents;
	if (!is_followed(e)) {
		events_rest(e);
	} else if (ev_now(loop) - e->looked_at >= LOOK_AFTER_S || ev_now(loop) < e->looked_at) {
		events_look(e);
	} else {
		ev_timer_stop(loop, &e->look);
		ev_timer_set(&e->look, LOOK_AFTER_S, LOOK_EVERY_S);
		ev_timer_start(loop, &e->look);
	}
}

/* The loop wakes up, and so looks before it waits again. */
static void events_on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)w, (void)revents;
}

/* ---- who follows ---- */

struct joined {
	struct events *events;
	struct http_answer *answer;
};

static void join_election(void *arg, const struct standing *e)
{
	struct joined *j = arg;

	add_election(&j->answer->body, j->events->changes, e);
}

void events_join(struct events *e, struct http_answer *a)
{
	struct joined j = { e, a };

	a->type = "text/event-stream";
	a->streams = true;
	if (!ev_is_active(&e->before_wait)) {
		events_look(e);
		ev_prepare_start(e->loop, &e->before_wait);
	}
	buf_adds(&a->body, "retry: 2000\n\n");
	e->source.list(e->source.arg, join_election, &j);
}

void events_serve(struct events *e, struct server *s)
{
	for (int i = 0; i < SERVERS; i++)
		if (!e->servers[i]) {
			e->servers[i] = s;
			return;
		}
}

void events_leave(struct events *e, const struct server *s)
{
	for (int i = 0; i < SERVERS; i++)
		if (e->servers[i] == s)
			e->servers[i] = NULL;
}

struct events *events_new(struct ev_loop *loop, const struct standing_source *source)
{
	struct events *e = mem_zero(sizeof *e);

	*e = (struct events){ .loop = loop, .source = *source };
	ev_prepare_init(&e->before_wait, events_before_wait);
	ev_init(&e->look, events_on_timer);
	e->look.repeat = LOOK_EVERY_S;
	e->before_wait.data = e->look.data = e;
	return e;
}

void events_free(struct events *e)
{
	if (!e)
		return;
	events_rest(e);
	free(e->known);
	free(e);
}
