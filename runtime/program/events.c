#include "program/events.h"

#include "base/json_out.h"
#include "base/mem.h"
#include "lease/record_time.h"
#include "net/serve/server.h"
#include "program/changes.h"

#include <inttypes.h>
#include <stdlib.h>

#define SERVERS 2

struct events {
	struct standing_source source;
	struct changes *changes;
	struct changes_follower follower; /* while somebody follows these events */
	struct server *servers[SERVERS];
	bool joining;   /* who asks for the events does not stream yet */
	struct buf out; /* what one look has found */
};

/* ---- what is told ---- */

static void add_begin(struct buf *out, uint64_t id)
{
	char at[32];

	record_time_print(clock_wall_us(), at, sizeof at);
	buf_printf(out, "id: %" PRIu64 "\ndata: {", id);
	json_out_text(out, "at", at);
}

static void add_election(struct buf *out, uint64_t id, const struct standing *e)
{
	add_begin(out, id);
	standing_members(out, e); /* in one line, since a newline in a text is escaped */
	buf_adds(out, "}\n\n");
}

static void add_gone(struct buf *out, uint64_t id, const char *name)
{
	add_begin(out, id);
	json_out_text(out, "name", name);
	json_out_bool(out, "gone", true);
	buf_adds(out, "}\n\n");
}

static void events_on_changed(void *arg, uint64_t number, const struct standing *e)
{
	add_election(&((struct events *)arg)->out, number, e);
}

static void events_on_gone(void *arg, uint64_t number, const char *name)
{
	add_gone(&((struct events *)arg)->out, number, name);
}

static bool is_followed(const struct events *e)
{
	for (int i = 0; i < SERVERS; i++)
		if (e->servers[i] && server_streams(e->servers[i]))
			return true;
	return false;
}

/* When the last client has gone, nobody need look. */
static void events_on_looked(void *arg)
{
	struct events *e = arg;

	for (int i = 0; i < SERVERS && e->out.len; i++)
		if (e->servers[i])
			server_push(e->servers[i], &e->out);
	buf_fini(&e->out);
	if (!e->joining && !is_followed(e))
		changes_leave(e->changes, &e->follower);
}

/* ---- who follows ---- */

struct joined {
	struct events *events;
	struct http_answer *answer;
};

static void join_election(void *arg, const struct standing *e)
{
	struct joined *j = arg;

	add_election(&j->answer->body, changes_number(j->events->changes), e);
}

void events_join(struct events *e, struct http_answer *a)
{
	struct joined j = { e, a };

	a->type = "text/event-stream";
	a->streams = true;
	e->joining = true;
	if (!changes_followed_by(e->changes, &e->follower))
		changes_follow(e->changes, &e->follower);
	e->joining = false;
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

struct events *events_new(const struct standing_source *source, struct changes *changes)
{
	struct events *e = mem_zero(sizeof *e);

	*e = (struct events){ .source = *source, .changes = changes };
	e->follower = (struct changes_follower){
		.changed = events_on_changed, .gone = events_on_gone, .looked = events_on_looked, .arg = e
	};
	return e;
}

void events_free(struct events *e)
{
	if (!e)
		return;
	changes_leave(e->changes, &e->follower);
	free(e);
}
