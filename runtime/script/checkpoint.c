#include "script/checkpoint.h"

#include "base/mem.h"
#include "lease/record.h"
#include "script/bind.h"

#include <lauxlib.h>
#include <stdlib.h>

struct checkpoint {
	struct election *election;
	uint64_t term, number; /* number: of the last save asked for */
	char *known;           /* the record is known to hold it; NULL = none */
	char *sent, *next;     /* sent and not answered; to be sent after that. The newer text replaces the older */
	uint64_t sent_number;
	struct waits savers;
};

/* A task that waits for the answer to its save. It is a userdata on the task's stack, so that it is freed with the
 * wait. */
struct saver {
	struct wait wait; /* the first field, so that it can be cast */
	uint64_t number;
	enum wire_save_result how;
	char why[sizeof((struct err *)0)->text];
};

struct checkpoint *checkpoint_new(struct election *e, uint64_t term, const char *checkpoint)
{
	struct checkpoint *s = mem_zero(sizeof *s);

	s->election = e;
	s->term = term;
	s->known = *checkpoint ? mem_dup(checkpoint) : NULL;
	return s;
}

/* Answers the tasks that wait for save `number` or an earlier one. */
static void checkpoint_answer(struct checkpoint *s, uint64_t number, enum wire_save_result how, const char *why)
{
	for (struct wait *w = s->savers.first, *next; w; w = next) {
		struct saver *r = (struct saver *)w;
		next = w->next;
		if (r->number > number)
			continue;
		r->how = how;
		snprintf(r->why, sizeof r->why, "%s", why);
		wait_done(w);
	}
}

static void send_next(struct checkpoint *s)
{
	s->sent = s->next;
	s->sent_number = s->number;
	s->next = NULL;
	script_tell(s->election->script, save, .slot = s->election->index, .term = s->term, .save = s->sent_number,
	            .checkpoint = s->sent);
}

void checkpoint_flush(struct checkpoint *s)
{
	if (!s->next)
		return;
	free(s->sent); /* s->next is newer and replaces it */
	send_next(s);
}

void checkpoint_free(struct checkpoint *s)
{
	if (!s)
		return;
	checkpoint_answer(s, s->number, WIRE_SAVED_NOT, "");
	free(s->known);
	free(s->sent);
	free(s->next);
	free(s);
}

void checkpoint_answered(struct checkpoint *s, const struct wire_saved *r)
{
	if (!s->sent || r->save != s->sent_number)
		return;
	free(r->how == WIRE_SAVED_GOOD ? s->known : s->sent);
	if (r->how == WIRE_SAVED_GOOD)
		s->known = s->sent;
	s->sent = NULL;
	checkpoint_answer(s, r->save, r->how, r->why);
	if (s->next)
		send_next(s);
}

/* ---- natives ---- */

static int checkpoint_over(lua_State *L)
{
	return bind_fail(L, "ended", "the term is over: a save without an answer counts as failed");
}

int checkpoint_push(lua_State *L, struct checkpoint *s)
{
	if (!s)
		return checkpoint_over(L);
	lua_pushstring(L, s->known ? s->known : "");
	lua_pushstring(L, s->next ? s->next : s->sent ? s->sent : s->known ? s->known : "");
	return 2;
}

static int saved(lua_State *L, int, lua_KContext ctx)
{
	struct saver *r = (struct saver *)ctx;

	if (!sched_resumed(L))
		return bind_fail(L, "timeout",
		                 "term:save: not known to be in the record within %f s (it may get there yet)",
		                 lua_tonumber(L, 3));
	if (r->how == WIRE_SAVED_GOOD) {
		lua_pushboolean(L, 1);
		return 1;
	}
	if (r->how == WIRE_SAVED_REFUSED)
		return bind_fail(L, "invalid", "term:save: %s", r->why);
	return checkpoint_over(L);
}

static void checkpoint_queue(struct checkpoint *s, const char *text)
{
	s->number++;
	mem_replace(&s->next, text);
	if (!s->sent)
		send_next(s);
}

int checkpoint_save(lua_State *L, struct checkpoint *s)
{
	const char *text = luaL_checkstring(L, 2);
	double timeout = luaL_optnumber(L, 3, -1);
	struct err err;

	if (!lua_toboolean(L, 4))
		sched_may_wait(L, "term:save");
	if (!s)
		return checkpoint_over(L);
	if (record_checkpoint_check(text, &err) < 0) {
		err_wrap(&err, "term:save");
		return bind_fail_err(L, &err);
	}
	if (lua_toboolean(L, 4)) {
		checkpoint_queue(s, text);
		lua_pushboolean(L, 1);
		return 1;
	}
	struct saver *r = lua_newuserdatauv(L, sizeof *r, 0);
	*r = (struct saver){ .number = s->number + 1 };
	wait_enter(&s->savers, &r->wait);
	checkpoint_queue(s, text);
	return sched_wait(L, &r->wait, timeout, (lua_KContext)r, saved);
}
