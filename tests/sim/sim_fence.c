/* Fences in the simulated world, by the real rules of who owes (lease/debt.h): what a term has started outside of its
 * process tree goes on when the elector is killed, until somebody fences that machine. */
#include "world.h"

#include "base/mem.h"
#include "lease/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct names { /* of a candidate, and of the holder that its record shows, as the rules want them */
	char identity[24], incarnation[37], holder[24];
};

static unsigned keep(struct world *w, char *text)
{
	if (!text)
		return 0;
	for (unsigned k = w->debts; k > 0; k--)
		if (strcmp(w->debt[k], text) == 0) {
			free(text);
			return k;
		}
	if (++w->debts == DEBTS)
		__builtin_trap();
	w->debt[w->debts] = text;
	return w->debts;
}

static void put(char *out, size_t size, uint64_t number)
{
	snprintf(out, size, "%" PRIu64, number);
}

static struct debt_candidate candidate(const struct node *n, struct names *names)
{
	put(names->identity, sizeof names->identity, n->identity);
	put(names->incarnation, sizeof names->incarnation, n->incarnation);
	return (struct debt_candidate){ .identity = names->identity,
		                        .address = "",
		                        .incarnation = names->incarnation,
		                        .books = n->fences,
		                        .fences = n->fences,
		                        .dead = n->saw.kind == SIGHT_HELD && n->proved == n->saw.id };
}

/* The record that it saw last. Texts are the world's and the names'. */
static struct record record_of(const struct world *w, const struct node *n, struct names *names)
{
	static char nothing[] = "";
	const struct content *c = &n->saw_content;
	struct record r = { .holder = nothing, .address = nothing, .previous_holder = nothing, .forced = nothing };

	if (!n->looked || !c->exists)
		return r;
	if (c->holder) {
		put(names->holder, sizeof names->holder, c->identity);
		r.holder = names->holder;
	}
	put(r.incarnation, sizeof r.incarnation, c->holder);
	r.acquired_us = RECORD_TIME_UNKNOWN;
	r.token = c->token;
	r.term = c->term;
	r.fencing = c->fencing;
	r.unfenced = w->debt[c->debt];
	return r;
}

static void acquire(struct debt *d, const struct world *w, const struct node *n, struct debt_candidate *self,
                    struct names *names)
{
	struct record r = record_of(w, n, names);

	*self = candidate(n, names);
	debt_acquire(d, &r, self, 0, RECORD_TIME_UNKNOWN);
}

/* An old version does not know the field, and writes it again as it is. */
void fence_make(struct world *w, int i)
{
	struct node *n = &w->node[i];

	if (!w->fences)
		return;
	n->old = i > 0 && chance(w, 15);
	n->fences = !n->old && (i == 0 || chance(w, 75));
}

void fence_boot(struct world *w, int i)
{
	struct node *n = &w->node[i];

	if (!w->fences)
		return;
	n->fencing = false;
	n->proved = n->bar_by = 0;
	n->saw_content = (struct content){ 0 };
	if (w->outside[i].runs)
		w->result.left++;
}

void fence_bar(struct world *w, int i)
{
	struct node *n = &w->node[i];
	struct debt_candidate self;
	struct names names;
	struct debt d = { 0 };

	if (!w->fences || n->old || lease_phase(&n->lease) != PHASE_FOLLOWING)
		return;
	if (n->bar_seen == n->saw.id && n->bar_proved == n->proved && n->bar_by == n->incarnation)
		return;
	n->bar_seen = n->saw.id;
	n->bar_proved = n->proved;
	n->bar_by = n->incarnation;
	acquire(&d, w, n, &self, &names);
	lease_bar(&n->lease, debt_bars(&d, &self) != NULL);
	debt_fini(&d);
}

void fence_fill(struct world *w, struct node *n, enum lease_write what, struct content *c)
{
	struct debt_candidate self;
	struct names names;
	struct debt d = { 0 };

	c->debt = n->saw_content.debt;
	c->fencing = n->saw_content.fencing;
	if (!w->fences || n->old)
		return;
	if (what == LEASE_ACQUIRE || what == LEASE_NEXT_TERM) {
		acquire(&d, w, n, &self, &names);
		c->fencing = debt_to_fence(&d, &self) ? c->term : 0;
	} else {
		self = candidate(n, &names);
		debt_parse(&d, w->debt[c->debt]);
		c->fencing = what == LEASE_RENEW && lease_is_fencing(&n->lease) && !lease_has_fenced(&n->lease)
		                     ? c->term
		                     : 0;
		if (what == LEASE_RELEASE)
			debt_settle(&d, self.identity, self.incarnation);
		if (what == LEASE_RENEW && lease_has_fenced(&n->lease))
			debt_fenced(&d, &self);
		if (what == LEASE_RENEW && n->fences)
			debt_keep(&d, &self, n->saw_token, RECORD_TIME_UNKNOWN);
	}
	c->debt = keep(w, debt_text(&d));
	debt_fini(&d);
}

/* Most take less than a lease, some longer. */
void fence_begin(struct world *w, int i)
{
	struct node *n = &w->node[i];
	nsec takes = w->now >= CALM_AT || chance(w, 70) ? between(w, 10 * MS, 200 * MS) : between(w, SEC, 6 * SEC);

	if (n->open || n->unreaped)
		violate(w, i, "P5: a fence begins before the last term has ended");
	n->fencing = n->open = n->page_ended = true;
	n->acquiring = 0;
	n->fence = ++w->lives;
	say(w, i, "fences, term", lease_term(&n->lease));
	push(w, (struct happening){
			.at = w->now + takes, .kind = FENCE_ENDS, .node = i, .life = n->life, .stamp = n->fence });
}

/* What the fence has started is killed. */
bool fence_stop(struct world *w, int i)
{
	struct node *n = &w->node[i];

	if (!n->fencing)
		return false;
	n->fencing = false;
	n->fence = 0;
	say(w, i, "the fence is stopped, term", lease_term(&n->lease));
	push(w, (struct happening){ .at = w->now, .kind = GONE, .node = i, .life = n->life, .op = true });
	return true;
}

/* It acts on whole machines, by what the record names. Nobody's own is among them. */
static void fence_all(struct world *w, int i)
{
	struct node *n = &w->node[i];
	struct debt d = { 0 };

	debt_parse(&d, w->debt[n->saw_content.debt]);
	for (int k = 0; k < d.count; k++) {
		uint64_t identity = strtoull(d.of[k].identity, NULL, 10);
		for (int m = 0; m < MAX_NODES && identity != n->identity; m++)
			if (w->outside[m].identity == identity)
				w->outside[m].runs = false;
	}
	debt_fini(&d);
}

void fence_ends(struct world *w, const struct happening *h)
{
	struct node *n = &w->node[h->node];

	if (h->stamp != n->fence || !n->fencing)
		return;
	n->fence = 0;
	if (instant_passed(lease_kill(&n->lease), local(w, n))) {
		end_of_will(w, h->node, LEASE_FENCE_FAILED, SEC); /* its guard has killed it */
	} else if (w->now < CALM_AT && chance(w, 20)) {
		count(w, FAULT_FENCE_FAILED);
		end_of_will(w, h->node, LEASE_FENCE_FAILED, between(w, 0, 3 * SEC));
	} else {
		fence_all(w, h->node);
		w->result.fenced++;
		fence_done(w, h->node);
	}
}

/* Who has a fence begins: no other term that had one, and may be of another machine, has left anything that goes on. */
void fence_leads(struct world *w, int i)
{
	struct node *n = &w->node[i];

	if (!w->fences || !n->fences)
		return;
	for (int m = 0; m < MAX_NODES; m++)
		if (w->outside[m].runs)
			violate(w, i, "P1: what an earlier term has left outside goes on, although a fence is set");
	w->outside[i] = (struct outside){ .runs = true, .identity = n->identity, .incarnation = n->incarnation };
}

void fence_proved(struct world *w, int i, uint64_t life)
{
	if (w->outside[i].incarnation == life)
		w->outside[i].runs = false;
}

void fence_gone(struct world *w, int i)
{
	fence_proved(w, i, w->node[i].incarnation);
}

void fence_fini(struct world *w)
{
	for (unsigned k = 1; k <= w->debts; k++)
		free(w->debt[k]);
	w->debts = 0;
}
