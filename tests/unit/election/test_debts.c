/* Who may still act, over all orders of what candidates with and without a fence, of this version and of one before it,
 * do to a record: the real author writes it, and this test knows what goes on outside. Where a term with a fence begins,
 * nothing of another one that had a fence goes on. */
#include "election/author.h"

#include "base/mem.h"
#include "tap.h"

#include <stdlib.h>

enum { A, B, OLD, C, CANDIDATES };
static const bool has_fence[CANDIDATES] = { [A] = true, [C] = true };
static const char *const names[CANDIDATES] = { "a", "b", "old", "c" };

enum act { ACQUIRE, RENEW, FENCED, RELEASE, LOSE, DIE, RELOAD, PROVE, DELETE, FORCE, ACTS };
static const char *const act_names[ACTS] = { "acquires", "renews",  "has fenced",     "releases", "loses",
	                                     "dies",     "reloads", "is proved dead", "deletes",  "forces" };

static const struct lease_times times = { .lease = 15 * NSEC_PER_SEC };

struct candidate {
	struct author author;
	struct proof_self self;
	unsigned life;
	bool holds, fencing; /* it is in a term; which has not begun */
	bool outside;        /* what one of its terms, or an earlier process, has started goes on */
};

struct world {
	struct candidate of[CANDIDATES];
	struct record record;
	bool exists, proved; /* proved: the holder that it shows is */
	bool blind;          /* a record was deleted, and who had seen it is gone */
	uint64_t term;
};

static int depth, at_most;
static char path[12][24];
static uint64_t states, begun, fenced, barred;
static char wrong[400];

static void become(struct candidate *c, int i)
{
	snprintf(c->self.incarnation, sizeof c->self.incarnation, "%x%u", 10 + i, ++c->life);
	author_init(&c->author, &c->self, names[i], "", false);
	c->author.fences = has_fence[i];
}

static void world_copy(struct world *to, const struct world *from)
{
	*to = *from;
	record_init(&to->record);
	record_copy(&to->record, &from->record);
	for (int i = 0; i < CANDIDATES; i++) {
		struct author *a = &to->of[i].author;
		a->self = &to->of[i].self;
		a->identity = mem_dup(a->identity);
		a->address = mem_dup(a->address);
		a->carried = mem_dup(a->carried);
	}
}

static void world_fini(struct world *w)
{
	record_fini(&w->record);
	for (int i = 0; i < CANDIDATES; i++)
		author_fini(&w->of[i].author);
}

static void fail(const char *what)
{
	size_t len = 0;

	if (*wrong)
		return;
	for (int k = 0; k < depth && len < sizeof wrong; k++)
		len += (size_t)snprintf(wrong + len, sizeof wrong - len, "%s; ", path[k]);
	if (len < sizeof wrong)
		snprintf(wrong + len, sizeof wrong - len, "%s", what);
}

/* The write of candidate i, as the elector makes it. A version before this one writes the two fields as they are. */
static void write_record(struct world *w, int i, enum lease_write what, bool done)
{
	struct candidate *c = &w->of[i];
	struct record *r = &w->record;
	bool begins = what == LEASE_ACQUIRE || what == LEASE_NEXT_TERM;
	struct author_write write = { .what = what,
		                      .times = &times,
		                      .exists = w->exists,
		                      .makes_token = true,
		                      .token = r->token,
		                      .term = begins ? w->term + 1 : w->term,
		                      .wall_us = 1000,
		                      .dead = what == LEASE_ACQUIRE && w->proved,
		                      .fencing = c->fencing && !done,
		                      .fenced = c->fencing && done };
	uint64_t fencing = r->fencing;
	char *unfenced = mem_dup(r->unfenced);

	author_write(&c->author, r, &write);
	if (i == OLD) {
		r->fencing = fencing;
		mem_replace(&r->unfenced, unfenced);
	}
	free(unfenced);
	w->term += begins;
	w->exists = true;
	w->proved = false;
	for (int k = 0; k < CANDIDATES; k++)
		if (k != OLD)
			author_saw(&w->of[k].author, r);
}

static void begin(struct world *w, int i)
{
	struct candidate *c = &w->of[i];

	begun++;
	c->fencing = false;
	if (!has_fence[i])
		return;
	for (int k = 0; k < CANDIDATES && !w->blind; k++)
		if (w->of[k].outside)
			fail(k == i ? "begins beside what its own earlier run left"
			            : "begins beside what another one left");
	c->outside = true;
}

static void open_term(struct world *w, int i)
{
	w->of[i].holds = true;
	w->of[i].fencing = i != OLD && record_fences(&w->record);
	if (!w->of[i].fencing)
		begin(w, i);
}

static void fence(struct world *w, int i)
{
	struct debt d = { 0 };

	fenced++;
	debt_parse(&d, w->record.unfenced);
	for (int k = 0; k < d.count; k++)
		for (int n = 0; n < CANDIDATES; n++)
			if (n != i && strcmp(names[n], d.of[k].identity) == 0)
				w->of[n].outside = false;
	debt_fini(&d);
	write_record(w, i, LEASE_RENEW, true);
	begin(w, i);
}

/* Whose death nobody has seen, and no process can tell of any more. */
static void die(struct world *w, int i)
{
	struct candidate *c = &w->of[i];

	w->blind = w->blind || c->author.carried;
	c->holds = c->fencing = false;
	author_fini(&c->author);
	become(c, i);
}

static void delete (struct world *w)
{
	for (int k = 0; k < CANDIDATES; k++) {
		struct candidate *c = &w->of[k];
		if (k != OLD)
			author_lost(&c->author, &w->record, w->proved);
		c->outside = c->outside && !c->holds; /* who still runs ends its term: the record is gone */
		c->holds = c->fencing = false;
	}
	record_clear(&w->record);
	w->exists = w->proved = false;
}

static void force(struct world *w)
{
	struct record *r = &w->record;

	mem_replace(&r->previous_holder, r->holder);
	mem_replace(&r->holder, "");
	mem_replace(&r->address, "");
	mem_replace(&r->forced, "by somebody");
	r->state = RECORD_RELEASED;
	w->proved = false;
}

static bool held_by_a_term(const struct world *w)
{
	for (int i = 0; i < CANDIDATES; i++)
		if (w->of[i].holds)
			return true;
	return false;
}

/* The holder's own identity, if it is of a process that has died. */
static int dead_holder(const struct world *w)
{
	for (int i = 0; i < CANDIDATES; i++)
		if (!w->of[i].holds && strcmp(w->record.holder, names[i]) == 0 &&
		    strcmp(w->record.incarnation, w->of[i].self.incarnation) != 0)
			return i;
	return -1;
}

static bool may_acquire(struct world *w, int i)
{
	if (held_by_a_term(w))
		return false;
	bool is_barred = i != OLD && author_barred(&w->of[i].author, &w->record, w->proved);

	barred += is_barred;
	return !is_barred;
}

/* false: it cannot happen now. */
static bool happens(struct world *w, enum act act, int i)
{
	struct candidate *c = &w->of[i];

	switch (act) {
	case ACQUIRE:
		if (!may_acquire(w, i))
			return false;
		write_record(w, i, LEASE_ACQUIRE, false);
		open_term(w, i);
		return true;
	case RENEW: /* what it says of a term that has begun already it says again */
		if (!c->fencing)
			return false;
		write_record(w, i, LEASE_RENEW, false);
		return true;
	case FENCED:
		if (!c->fencing)
			return false;
		fence(w, i);
		return true;
	case RELEASE:
		if (!c->holds)
			return false;
		c->outside = c->outside && c->fencing; /* a term that has not begun ends nothing of earlier ones */
		c->holds = c->fencing = false;
		write_record(w, i, LEASE_RELEASE, false);
		return true;
	case LOSE: /* all of the term has ended, but the record does not say so */
		if (!c->holds)
			return false;
		c->outside = c->outside && c->fencing;
		c->holds = c->fencing = false;
		return true;
	case DIE:
		if (!c->holds)
			return false;
		die(w, i);
		return true;
	case RELOAD:
		if (!c->holds || c->fencing)
			return false;
		c->outside = false;
		write_record(w, i, LEASE_NEXT_TERM, false);
		open_term(w, i);
		return true;
	case PROVE: /* with all that it started: its cleanup ended well */
		if (dead_holder(w) != i || w->proved)
			return false;
		w->proved = true;
		c->outside = c->outside && record_fences(&w->record);
		return true;
	case DELETE:
		if (i != A || !w->exists)
			return false;
		delete (w);
		return true;
	case FORCE:
		if (i != A || dead_holder(w) < 0)
			return false;
		force(w);
		return true;
	case ACTS:
		break;
	}
	return false;
}

static void search(const struct world *w)
{
	states++;
	if (depth == at_most || *wrong)
		return;
	for (int i = 0; i < CANDIDATES; i++)
		for (int act = 0; act < ACTS; act++) {
			struct world next;
			world_copy(&next, w);
			snprintf(path[depth], sizeof *path, "%s %s", names[i], act_names[act]);
			if (happens(&next, (enum act)act, i)) {
				depth++;
				search(&next);
				depth--;
			}
			world_fini(&next);
		}
}

static void world_init(struct world *w)
{
	*w = (struct world){ 0 };
	record_init(&w->record);
	for (int i = 0; i < CANDIDATES; i++)
		become(&w->of[i], i);
}

/* The walk of the design: one with a fence dies, others lead in between, and another one with a fence comes. */
static void walk(const int *order, const char *what)
{
	struct world w;
	bool good = true;

	world_init(&w);
	good = happens(&w, ACQUIRE, A) && happens(&w, DIE, A);
	for (; *order >= 0; order++)
		good = good && happens(&w, ACQUIRE, *order) && happens(&w, *order == OLD ? RELEASE : DIE, *order);
	good = good && happens(&w, ACQUIRE, C) && w.of[C].fencing && w.of[A].outside;
	good = good && happens(&w, FENCED, C) && !w.of[A].outside && !record_fences(&w.record);
	ok(good, "%s", what);
	world_fini(&w);
}

static void walks(void)
{
	walk((const int[]){ -1 }, "what one with a fence left is fenced by the next one that has one");
	walk((const int[]){ B, -1 }, "also after a leader without a fence");
	walk((const int[]){ OLD, -1 }, "and after one of a version that does not know of debts");
	walk((const int[]){ B, OLD, -1 }, "and after one of each");
	walk((const int[]){ OLD, B, OLD, B, -1 }, "in whatever order");

	struct world w;
	world_init(&w);
	bool none = true;
	for (int round = 0; round < 2; round++)
		for (int act = DIE; act >= RELEASE; act--) {
			none = none && happens(&w, ACQUIRE, B) && !w.record.unfenced && happens(&w, (enum act)act, B);
			none = none && happens(&w, ACQUIRE, OLD) && !w.record.unfenced &&
			       happens(&w, (enum act)act, OLD);
		}
	ok(none && !w.record.fencing, "where nobody has a fence no record says anything new");
	world_fini(&w);
}

int main(int argc, char **argv)
{
	struct world w;

	walks();
	at_most = argc > 1 ? atoi(argv[1]) : 7;
	world_init(&w);
	search(&w);
	world_fini(&w);
	printf("# %llu states, %llu terms, %llu fences, %llu times barred, to a depth of %d\n",
	       (unsigned long long)states, (unsigned long long)begun, (unsigned long long)fenced,
	       (unsigned long long)barred, at_most);
	ok(!*wrong, "no term with a fence begins beside what another one with a fence left%s%s", *wrong ? ": " : "",
	   wrong);
	ok(fenced > 100 && barred > 100, "and many orders had somebody fenced, or kept from leading");
	return tap_done();
}
