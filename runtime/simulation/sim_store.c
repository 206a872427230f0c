#include "simulation/sim_store.h"

#include "base/mem.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
	struct entry *next;
	char *key;
	bool there;
	struct record record;
	uint64_t version; /* of what is there, or was last */
	struct place *places;
};

struct place { /* one node's lock */
	struct lock lock;
	struct sim_store *store;
	struct entry *entry;
	const struct sim_link *link;
	struct timeline *node;
	struct place *next;    /* of the same entry */
	struct flight *flight; /* asked, not answered; NULL: nothing is under way, or it is answered already */
	bool write;
	struct timer late, deliver, notice;
	struct record answer;
	struct lock_result result;
	lock_done_fn *done; /* NULL: nothing is under way */
	void *arg;
	lock_changed_fn *changed;
	void *changed_arg;
	bool missed; /* a change, while it was cut off */
};

/* A request on its way, and its answer on the way back. It may outlive the patience of who sent it, and land all the
 * same. */
struct flight {
	struct timer timer;
	struct flight *next, **link;
	struct place *place; /* NULL: given up */
	struct sim_store *store;
	struct entry *entry;
	bool write, replying;
	const struct sim_link *way;
	struct record record;
	struct version expected;
	struct lock_result result;
};

struct sim_store {
	struct timeline *world;
	struct entry *entries;
	struct flight *flights;
	uint64_t random;
	double latency, loss;
	bool down;
};

/* ---- the network ---- */

/* 0 to 1: xorshift64*, for the same run with the same seed. */
static double chance(struct sim_store *s)
{
	s->random ^= s->random >> 12;
	s->random ^= s->random << 25;
	s->random ^= s->random >> 27;
	return (double)((s->random * UINT64_C(0x2545f4914f6cdd1d)) >> 11) / (double)(UINT64_C(1) << 53);
}

static double delay(struct sim_store *s)
{
	return s->latency * (0.5 + chance(s));
}

static bool lost(struct sim_store *s, const struct sim_link *link)
{
	return link->cut || (s->loss > 0 && chance(s) < s->loss);
}

static void drop_flight(struct flight *f)
{
	timer_stop(f->store->world, &f->timer);
	if (f->place)
		f->place->flight = NULL;
	*f->link = f->next;
	if (f->next)
		f->next->link = f->link;
	record_fini(&f->record);
	free(f);
}

/* ---- answers ---- */

static void finish(struct place *p)
{
	lock_done_fn *done = p->done;

	timer_stop(p->node, &p->late);
	timer_stop(p->node, &p->deliver);
	p->done = NULL;
	if (done)
		done(p->arg, &p->result);
}

static void give_up(struct place *p, const char *why)
{
	if (!p->done)
		return;
	if (p->flight) { /* whether or not the answer has come, a write may have been applied */
		p->flight->place = NULL;
		p->flight->way = NULL;
		p->flight = NULL;
	}
	p->result.outcome = p->write ? LOCK_UNKNOWN : LOCK_FAILED;
	p->result.record = NULL;
	err_set(&p->result.err, ERR_TIMEOUT, "%s: %s", p->lock.url, why);
	finish(p);
}

static struct place *place_of(struct timer *t, size_t offset)
{
	return (struct place *)((char *)t - offset);
}

static void on_late(struct timer *t)
{
	give_up(place_of(t, offsetof(struct place, late)), "no answer in time (simulated)");
}

static void on_deliver(struct timer *t)
{
	finish(place_of(t, offsetof(struct place, deliver)));
}

static void on_notice(struct timer *t)
{
	struct place *p = place_of(t, offsetof(struct place, notice));

	p->missed = p->link->cut;
	if (!p->missed && p->changed)
		p->changed(p->changed_arg);
}

static void notify(struct entry *e)
{
	for (struct place *p = e->places; p; p = p->next)
		if (p->changed)
			timer_start(p->node, &p->notice, delay(p->store));
}

/* ---- at the store ---- */

static void version_now(const struct entry *e, struct version *v)
{
	v->text[0] = '\0';
	if (e->there)
		snprintf(v->text, sizeof v->text, "%llu", (unsigned long long)e->version);
}

static void apply_read(struct flight *f)
{
	f->result.outcome = f->entry->there ? LOCK_OK : LOCK_ABSENT;
	if (f->entry->there)
		record_copy(&f->record, &f->entry->record);
	version_now(f->entry, &f->result.version);
}

static void apply_write(struct flight *f)
{
	struct version now;

	version_now(f->entry, &now);
	if (strcmp(now.text, f->expected.text) != 0) {
		f->result.outcome = LOCK_CONFLICT;
		return;
	}
	record_copy(&f->entry->record, &f->record);
	f->entry->there = true;
	f->entry->version++;
	f->result.outcome = LOCK_OK;
	version_now(f->entry, &f->result.version);
	notify(f->entry);
}

static void arrive(struct flight *f)
{
	struct sim_store *s = f->store;

	if (s->down) {
		f->result.outcome = LOCK_FAILED;
		err_set(&f->result.err, ERR_UNREACHABLE, "%s: the store refuses (simulated)", f->entry->key);
	} else if (f->write) {
		apply_write(f);
	} else {
		apply_read(f);
	}
	f->replying = true;
	timer_start(s->world, &f->timer, delay(s));
}

static void come_back(struct flight *f)
{
	struct place *p = f->place;

	p->result = f->result;
	if (!f->write && f->result.outcome == LOCK_OK) {
		record_take(&p->answer, &f->record);
		p->result.record = &p->answer;
	}
	timer_start(p->node, &p->deliver, 0);
}

static void on_flight(struct timer *t)
{
	struct flight *f = (struct flight *)((char *)t - offsetof(struct flight, timer));
	bool gone = f->way && lost(f->store, f->way);

	if (!f->replying && !gone) {
		arrive(f);
		return;
	}
	if (f->place && !gone)
		come_back(f);
	drop_flight(f);
}

/* ---- the lock ---- */

static struct place *of(struct lock *l)
{
	return (struct place *)l;
}

static struct flight *take_off(struct place *p, bool write, struct instant by, lock_done_fn *done, void *arg)
{
	struct sim_store *s = p->store;
	struct flight *f = mem_zero(sizeof *f);
	struct instant now = clock_now();

	*f = (struct flight){ .place = p,
		              .store = s,
		              .entry = p->entry,
		              .write = write,
		              .way = p->link,
		              .next = s->flights,
		              .link = &s->flights,
		              .result.sent_at = now };
	if (f->next)
		f->next->link = &f->next;
	s->flights = f;
	record_init(&f->record);
	timer_init(s->world, &f->timer, on_flight);
	timer_start(s->world, &f->timer, delay(s));
	p->flight = f;
	p->write = write;
	p->done = done;
	p->arg = arg;
	p->result = (struct lock_result){ .sent_at = now };
	timer_start(p->node, &p->late, (double)instant_until(by, now) / NSEC_PER_SEC);
	return f;
}

static void read_sim(struct lock *l, struct instant by, lock_done_fn *done, void *arg)
{
	take_off(of(l), false, by, done, arg);
}

static void write_sim(struct lock *l, const struct record *r, const struct version *expected, bool durable,
                      struct instant by, lock_done_fn *done, void *arg)
{
	struct flight *f = take_off(of(l), true, by, done, arg);

	(void)durable;
	record_copy(&f->record, r);
	f->expected = *expected;
}

static void cancel_sim(struct lock *l)
{
	give_up(of(l), "cancelled");
}

/* Cut off, it notices nothing; when the link is back, that counts as a change. */
static bool watch_sim(struct lock *l, lock_changed_fn *changed, void *arg)
{
	of(l)->changed = changed;
	of(l)->changed_arg = arg;
	return !of(l)->link->cut;
}

static void close_sim(struct lock *l)
{
	struct place *p = of(l), **at = &p->entry->places;

	cancel_sim(l);
	timer_stop(p->node, &p->notice);
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	record_fini(&p->answer);
	free(l->url);
	free(p);
}

static const struct lock_ops lock_sim = {
	.scheme = "sim",
	.token_in_record = true,
	.read = read_sim,
	.write = write_sim,
	.cancel = cancel_sim,
	.watch = watch_sim,
	.close = close_sim,
};

/* ---- the store ---- */

static struct entry *entry_of(const struct sim_store *s, const char *key)
{
	struct entry *e = s->entries;

	while (e && strcmp(e->key, key) != 0)
		e = e->next;
	return e;
}

static struct entry *entry_new(struct sim_store *s, const char *key)
{
	struct entry *e = mem_zero(sizeof *e);

	e->key = mem_dup(key);
	record_init(&e->record);
	e->next = s->entries;
	s->entries = e;
	return e;
}

struct lock *sim_store_open(struct sim_store *s, const char *url, const struct sim_link *link, struct timeline *node)
{
	struct place *p = mem_zero(sizeof *p);
	struct entry *e = entry_of(s, url);

	*p = (struct place){
		.lock = { .ops = &lock_sim, .url = mem_dup(url) }, .store = s, .link = link, .node = node
	};
	p->entry = e ? e : entry_new(s, url);
	p->next = p->entry->places;
	p->entry->places = p;
	record_init(&p->answer);
	timer_init(node, &p->late, on_late);
	timer_init(node, &p->deliver, on_deliver);
	timer_init(node, &p->notice, on_notice);
	return &p->lock;
}

struct sim_store *sim_store_new(struct timeline *world, uint64_t seed)
{
	struct sim_store *s = mem_zero(sizeof *s);

	s->world = world;
	s->random = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
	s->latency = 0.005;
	return s;
}

void sim_store_free(struct sim_store *s)
{
	while (s->flights)
		drop_flight(s->flights);
	while (s->entries) {
		struct entry *e = s->entries;
		s->entries = e->next;
		record_fini(&e->record);
		free(e->key);
		free(e);
	}
	free(s);
}

void sim_store_latency(struct sim_store *s, double seconds)
{
	s->latency = seconds;
}

void sim_store_loss(struct sim_store *s, double part)
{
	s->loss = part;
}

void sim_store_refuse(struct sim_store *s, bool down)
{
	s->down = down;
}

void sim_store_healed(struct sim_store *s)
{
	for (struct entry *e = s->entries; e; e = e->next)
		for (struct place *p = e->places; p; p = p->next)
			if (p->changed && !p->link->cut)
				timer_start(p->node, &p->notice, delay(s));
}

const struct record *sim_store_record(const struct sim_store *s, const char *url)
{
	const struct entry *e = entry_of(s, url);

	return e && e->there ? &e->record : NULL;
}

bool sim_store_delete(struct sim_store *s, const char *url)
{
	struct entry *e = entry_of(s, url);

	if (!e || !e->there)
		return false;
	e->there = false;
	record_clear(&e->record);
	notify(e);
	return true;
}
