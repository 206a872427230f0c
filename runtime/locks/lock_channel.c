#include "locks/lock_channel.h"

#include "base/mem.h"
#include "base/nonce.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_S 2.  /* where there are no notices */
#define RAISE_S 1. /* between tries to get them back */

static void member_on_timer(struct ev_loop *, ev_timer *w, int)
{
	struct lock_member *m = w->data;

	m->changed(m->arg);
}

void lock_member_rename(struct lock_member *m)
{
	nonce_hex(m->name, sizeof m->name / 2);
}

void lock_member_init(struct lock_member *m, struct lock_board *b)
{
	lock_member_rename(m);
	m->board = b;
	ev_init(&m->timer, member_on_timer);
	m->timer.data = m;
}

static int channel_compare(const void *a, const void *b)
{
	return strcmp(((const struct lock_channel *)a)->name, ((const struct lock_channel *)b)->name);
}

static struct lock_channel *board_find(struct lock_board *b, const char *name)
{
	const struct lock_channel sought = { .name = (char *)name };
	struct lock_channel *const *at = tfind(&sought, &b->channels, channel_compare);

	return at ? *at : NULL;
}

void lock_member_tell(struct lock_member *m)
{
	ev_feed_event(m->board->loop, &m->timer, EV_TIMER);
}

static void member_look_now_and_then(struct lock_member *m)
{
	if (ev_is_active(&m->timer))
		return;
	ev_timer_set(&m->timer, LOOK_S * (double)(clock_now().raw % 1000) / 1000., LOOK_S);
	ev_timer_start(m->board->loop, &m->timer);
}

bool lock_member_is_deaf(const struct lock_member *m)
{
	return m->board->deaf || (m->channel && m->channel->deaf);
}

struct lock_channel *lock_member_enter(struct lock_member *m, const char *channel, lock_changed_fn *changed, void *arg)
{
	struct lock_channel *c = board_find(m->board, channel);
	bool made = !c;

	m->changed = changed;
	m->arg = arg;
	if (m->channel)
		return NULL;
	if (made) {
		c = mem_zero(sizeof *c);
		c->name = mem_dup(channel);
		if (!tsearch(c, &m->board->channels, channel_compare))
			mem_end();
	} else {
		/* Tells of what happened before. The first member on a channel is told when the server has confirmed
		 * the channel. */
		lock_member_tell(m);
	}
	m->channel = c;
	m->next = c->members;
	c->members = m;
	if (lock_member_is_deaf(m))
		member_look_now_and_then(m);
	return made ? c : NULL;
}

bool lock_member_leave(struct lock_member *m, char **channel)
{
	struct lock_channel *c = m->channel;

	ev_timer_stop(m->board->loop, &m->timer);
	if (!c)
		return false;
	struct lock_member **at = &c->members;
	while (*at != m)
		at = &(*at)->next;
	*at = m->next;
	m->channel = NULL;
	if (c->members)
		return false;
	tdelete(c, &m->board->channels, channel_compare);
	*channel = c->name;
	free(c);
	return true;
}

void lock_board_tell(struct lock_board *b, const char *channel, const char *but)
{
	const struct lock_channel *c = board_find(b, channel);

	for (struct lock_member *m = c ? c->members : NULL; m; m = m->next)
		if (!but || strcmp(but, m->name) != 0)
			lock_member_tell(m);
}

struct board_visit {
	void (*act)(void *arg, const struct lock_channel *c);
	void *arg;
};

static void board_on_node(const void *node, VISIT visit, void *arg)
{
	const struct board_visit *v = arg;

	if (visit == postorder || visit == leaf)
		v->act(v->arg, *(struct lock_channel *const *)node);
}

void lock_board_each(struct lock_board *b, void (*act)(void *arg, const struct lock_channel *c), void *arg)
{
	struct board_visit v = { act, arg };

	twalk_r(b->channels, board_on_node, &v);
}

static void channel_look(void *, const struct lock_channel *c)
{
	for (struct lock_member *m = c->members; m; m = m->next)
		member_look_now_and_then(m);
}

void lock_board_deafen(struct lock_board *b)
{
	if (b->deaf)
		return;
	b->deaf = true;
	lock_board_each(b, channel_look, NULL);
}

void lock_board_deafen_channel(struct lock_board *b, const char *channel)
{
	struct lock_channel *c = board_find(b, channel);

	if (!c || c->deaf)
		return;
	c->deaf = true;
	channel_look(NULL, c);
}

void lock_board_answer(struct lock_board *b, const char *channel, bool yes)
{
	struct lock_channel *c = board_find(b, channel);

	if (!c || (!yes && !c->given))
		return;
	c->given = yes;
	lock_board_tell(b, channel, NULL);
}

bool lock_member_is_given(const struct lock_member *m)
{
	return m->channel && m->channel->given;
}

double lock_channel_again_s(int *refusals, enum lock_outcome why)
{
	const int most = 6;

	if (why != LOCK_REFUSED) {
		*refusals = 0;
		return RAISE_S;
	}
	*refusals += *refusals < most;
	return *refusals < most ? RAISE_S * (double)(1 << (*refusals - 1)) : 60.;
}
