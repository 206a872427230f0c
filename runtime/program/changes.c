#include "program/changes.h"

#include "base/hash.h"
#include "base/mem.h"
#include "election/elector.h"
#include "term/may_lead.h"

#include <ev.h>
#include <stdlib.h>
#include <string.h>

/* A process of a thousand busy elections needs its time for them. */
#define LOOK_AFTER_S 0.02
#define LOOK_EVERY_S 1. /* for what changes by the time alone */

struct known_election {
	char *name;
	uint64_t digest; /* of all that is no time and no count */
	bool there;
};

struct changes {
	struct ev_loop *loop;
	struct standing_source source;
	struct changes_follower *followers;
	ev_prepare before_wait;
	ev_timer look;
	ev_tstamp looked_at;
	struct known_election *known;
	size_t count, at; /* at: so many were listed in this look */
	uint64_t number;
};

/* ---- what has changed ---- */

static uint64_t add_text(uint64_t h, const char *text)
{
	const char *s = text ? text : "";

	return hash_fnv(h, s, strlen(s) + 1); /* with its end, so that no two texts run into each other */
}

/* 64 bits: that a change is missed since two standings have the same digest does not happen. The numbers and texts are
 * taken one by one, since a structure has gaps. */
static uint64_t election_digest(const struct standing *e)
{
	const struct elector_status *s = e->status;
	const struct elector_next *n = &s->next;
	const int64_t numbers[] = {
		s->phase,
		s->leading,
		standing_state(e),
		s->standing.paused,
		s->standing.seen,
		s->standing.unreaped,
		s->standing.looked,
		s->standing.out_left > 0,
		s->store.answered,
		s->store.lost,
		s->store.failing,
		s->store.unwritable,
		n->known,
		n->self,
		n->able,
		(int64_t)s->term,
		s->token,
		e->silent,
		worker_doing_blocks(&e->worker),
		s->namesake_for >= 0,
		e->may_lead ? (int64_t)e->may_lead->last : -1,
	};
	const char *const texts[] = { e->script_error,
		                      e->warm,
		                      s->leader,
		                      s->address,
		                      s->lacks,
		                      s->trouble,
		                      n->identity,
		                      n->wanted,
		                      n->trouble,
		                      n->unable_why,
		                      e->may_lead ? e->may_lead->why : NULL };
	uint64_t h = hash_bytes(HASH_SEED, numbers, sizeof numbers);

	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		h = add_text(h, texts[i]);
	return h;
}

/* ---- looking ---- */

/* Elections are listed in the same order as last time, most often. *is_new: it was not there. */
static struct known_election *find_known(struct changes *c, size_t guess, const char *name, bool *is_new)
{
	*is_new = false;
	if (guess < c->count && strcmp(c->known[guess].name, name) == 0)
		return &c->known[guess];
	for (size_t i = 0; i < c->count; i++)
		if (strcmp(c->known[i].name, name) == 0)
			return &c->known[i];
	c->known = mem_resize(c->known, (c->count + 1) * sizeof *c->known);
	c->known[c->count] = (struct known_election){ .name = mem_dup(name) };
	*is_new = true;
	return &c->known[c->count++];
}

static void look_at(void *arg, const struct standing *e)
{
	struct changes *c = arg;
	uint64_t digest = election_digest(e);
	bool is_new;
	struct known_election *k = find_known(c, c->at++, standing_name(e), &is_new);

	k->there = true;
	if (!is_new && k->digest == digest)
		return;
	k->digest = digest;
	c->number++;
	for (struct changes_follower *f = c->followers; f; f = f->next)
		f->changed(f->arg, c->number, e);
}

static void drop_gone(struct changes *c)
{
	size_t kept = 0;

	for (size_t i = 0; i < c->count; i++) {
		if (c->known[i].there) {
			c->known[kept++] = c->known[i];
			continue;
		}
		c->number++;
		for (struct changes_follower *f = c->followers; f; f = f->next)
			f->gone(f->arg, c->number, c->known[i].name);
		free(c->known[i].name);
	}
	c->count = kept;
}

static void changes_rest(struct changes *c)
{
	ev_prepare_stop(c->loop, &c->before_wait);
	ev_timer_stop(c->loop, &c->look);
	for (size_t i = 0; i < c->count; i++)
		free(c->known[i].name);
	c->count = 0;
}

static void changes_look(struct changes *c)
{
	struct changes_follower *next;

	c->at = 0;
	for (size_t i = 0; i < c->count; i++)
		c->known[i].there = false;
	c->source.list(c->source.arg, look_at, c);
	drop_gone(c);
	c->looked_at = ev_now(c->loop);
	ev_timer_again(c->loop, &c->look);
	for (struct changes_follower *f = c->followers; f; f = next) {
		next = f->next;
		f->looked(f->arg);
	}
}

static void changes_before_wait(struct ev_loop *loop, ev_prepare *w, int)
{
	struct changes *c = w->data;

	if (ev_now(loop) - c->looked_at >= LOOK_AFTER_S || ev_now(loop) < c->looked_at) {
		changes_look(c);
	} else {
		ev_timer_stop(loop, &c->look);
		ev_timer_set(&c->look, LOOK_AFTER_S, LOOK_EVERY_S);
		ev_timer_start(loop, &c->look);
	}
}

/* The loop wakes up, and so looks before it waits again. */
static void changes_on_timer(struct ev_loop *, ev_timer *, int)
{
}

/* ---- who follows ---- */

bool changes_followed_by(const struct changes *c, const struct changes_follower *f)
{
	for (const struct changes_follower *i = c->followers; i; i = i->next)
		if (i == f)
			return true;
	return false;
}

void changes_follow(struct changes *c, struct changes_follower *f)
{
	bool first = !c->followers;

	f->next = c->followers;
	c->followers = f;
	if (!first)
		return;
	ev_prepare_start(c->loop, &c->before_wait);
	changes_look(c);
}

void changes_leave(struct changes *c, struct changes_follower *f)
{
	for (struct changes_follower **at = &c->followers; *at; at = &(*at)->next)
		if (*at == f) {
			*at = f->next;
			break;
		}
	if (!c->followers)
		changes_rest(c);
}

uint64_t changes_number(const struct changes *c)
{
	return c->number;
}

struct changes *changes_new(struct ev_loop *loop, const struct standing_source *source)
{
	struct changes *c = mem_zero(sizeof *c);

	*c = (struct changes){ .loop = loop, .source = *source };
	ev_prepare_init(&c->before_wait, changes_before_wait);
	ev_init(&c->look, changes_on_timer);
	c->look.repeat = LOOK_EVERY_S;
	c->before_wait.data = c->look.data = c;
	return c;
}

void changes_free(struct changes *c)
{
	if (!c)
		return;
	changes_rest(c);
	free(c->known);
	free(c);
}
