#include "simulation/sim_store.h"

#include "base/mem.h"
#include "lease/record.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

struct sim_entry {
	struct sim_entry *next;
	char *key;
	bool there, denied; /* denied: nobody has a right to it */
	struct record record;
	uint64_t version; /* of the record that is there, or was there last */
	struct sim_lock *locks;
};

struct sim_lock { /* one node's lock on an entry */
	struct lock lock;
	struct sim_store *store;
	struct sim_entry *entry;
	const struct sim_link *link;
	struct timeline *node;
	struct sim_lock *next;       /* of the same entry */
	struct sim_request *request; /* under way and not answered; NULL: there is none */
	bool write;
	struct timer late, deliver, notice;
	struct record answer;
	struct lock_result result;
	lock_done_fn *done; /* of the operation under way; NULL: there is none */
	void *arg;
	lock_changed_fn *changed;
	void *changed_arg;
	bool missed; /* a notice was lost since its link is cut */
};

/* A request on its way to the store, and its answer on the way back. A write that its sender has given up may still
 * reach the store. */
struct sim_request {
	struct timer timer;
	LIST_ENTRY(sim_request) place; /* in the store's list */
	struct sim_lock *asker;        /* NULL: it has given up */
	struct sim_store *store;
	struct sim_entry *entry;
	bool write, replying;
	const struct sim_link *link; /* NULL: it cannot be lost any more */
	struct record record;
	struct version expected;
	struct lock_result result;
};

struct sim_store {
	struct timeline *world;
	struct sim_entry *entries;
	LIST_HEAD(sim_request_list, sim_request) requests;
	uint64_t random;
	double latency, loss;
	bool down;
};

/* ---- the network ---- */

/* A number from 0 to 1, by xorshift64*: the same seed gives the same run. */
static double network_chance(struct sim_store *s)
{
	s->random ^= s->random >> 12;
	s->random ^= s->random << 25;
	s->random ^= s->random >> 27;
	return (double)((s->random * UINT64_C(0x2545f4914f6cdd1d)) >> 11) / (double)(UINT64_C(1) << 53);
}

static double network_delay(struct sim_store *s)
{
	return s->latency * (0.5 + network_chance(s));
}

static bool network_loses(struct sim_store *s, const struct sim_link *link)
{
	return link->cut || (s->loss > 0 && network_chance(s) < s->loss);
}

static void request_drop(struct sim_request *q)
{
	timer_stop(q->store->world, &q->timer);
	if (q->asker)
		q->asker->request = NULL;
	LIST_REMOVE(q, place);
	record_fini(&q->record);
	free(q);
}

/* ---- answers ---- */

static void sim_lock_finish(struct sim_lock *p)
{
	lock_done_fn *done = p->done;

	timer_stop(p->node, &p->late);
	timer_stop(p->node, &p->deliver);
	p->done = NULL;
	if (done)
		done(p->arg, &p->result);
}

static void sim_lock_give_up(struct sim_lock *p, const char *why)
{
	if (!p->done)
		return;
	if (p->request) { /* whether or not the answer has come, a write may have been applied */
		p->request->asker = NULL;
		p->request->link = NULL;
		p->request = NULL;
	}
	p->result.outcome = p->write ? LOCK_UNKNOWN : LOCK_FAILED;
	p->result.record = NULL;
	err_set(&p->result.err, ERR_TIMEOUT, "%s: %s", p->lock.url, why);
	sim_lock_finish(p);
}

static struct sim_lock *sim_lock_of_timer(struct timer *t, size_t offset)
{
	return (struct sim_lock *)((char *)t - offset);
}

static void sim_lock_on_late(struct timer *t)
{
	sim_lock_give_up(sim_lock_of_timer(t, offsetof(struct sim_lock, late)), "no answer in time (simulated)");
}

static void sim_lock_on_deliver(struct timer *t)
{
	sim_lock_finish(sim_lock_of_timer(t, offsetof(struct sim_lock, deliver)));
}

static void sim_lock_on_notice(struct timer *t)
{
	struct sim_lock *p = sim_lock_of_timer(t, offsetof(struct sim_lock, notice));

	p->missed = p->link->cut;
	if (!p->missed && p->changed)
		p->changed(p->changed_arg);
}

static void entry_notify(struct sim_entry *e)
{
	for (struct sim_lock *p = e->locks; p; p = p->next)
		if (p->changed)
			timer_start(p->node, &p->notice, network_delay(p->store));
}

/* ---- at the store ---- */

static void entry_version(const struct sim_entry *e, struct version *v)
{
	v->text[0] = '\0';
	if (e->there)
		snprintf(v->text, sizeof v->text, "%llu", (unsigned long long)e->version);
}

static void request_read(struct sim_request *q)
{
	q->result.outcome = q->entry->there ? LOCK_OK : LOCK_ABSENT;
	if (q->entry->there)
		record_copy(&q->record, &q->entry->record);
	entry_version(q->entry, &q->result.version);
}

static void request_write(struct sim_request *q)
{
	struct version now;

	entry_version(q->entry, &now);
	if (strcmp(now.text, q->expected.text) != 0) {
		q->result.outcome = LOCK_CONFLICT;
		return;
	}
	record_copy(&q->entry->record, &q->record);
	q->entry->there = true;
	q->entry->version++;
	q->result.outcome = LOCK_OK;
	entry_version(q->entry, &q->result.version);
	entry_notify(q->entry);
}

static void request_arrive(struct sim_request *q)
{
	struct sim_store *s = q->store;

	if (s->down) {
		q->result.outcome = LOCK_FAILED;
		err_set(&q->result.err, ERR_UNREACHABLE, "%s: the store refuses (simulated)", q->entry->key);
	} else if (q->entry->denied) {
		q->result.outcome = LOCK_REFUSED;
		err_set(&q->result.err, ERR_DENIED, "%s: the store denies it (simulated)", q->entry->key);
	} else if (q->write) {
		request_write(q);
	} else {
		request_read(q);
	}
	q->replying = true;
	timer_start(s->world, &q->timer, network_delay(s));
}

static void request_come_back(struct sim_request *q)
{
	struct sim_lock *p = q->asker;

	p->result = q->result;
	if (!q->write && q->result.outcome == LOCK_OK) {
		record_take(&p->answer, &q->record);
		p->result.record = &p->answer;
	}
	timer_start(p->node, &p->deliver, 0);
}

static void request_on_timer(struct timer *t)
{
	struct sim_request *q = (struct sim_request *)((char *)t - offsetof(struct sim_request, timer));
	bool gone = q->link && network_loses(q->store, q->link);

	if (!q->replying && !gone) {
		request_arrive(q);
		return;
	}
	if (q->asker && !gone)
		request_come_back(q);
	request_drop(q);
}

/* ---- the lock ---- */

static struct sim_lock *sim_lock_of(struct lock *l)
{
	return (struct sim_lock *)l;
}

static struct sim_request *sim_lock_send(struct sim_lock *p, bool write, struct instant by, lock_done_fn *done,
                                         void *arg)
{
	struct sim_store *s = p->store;
	struct sim_request *q = mem_zero(sizeof *q);
	struct instant now = clock_now();

	*q = (struct sim_request){
		.asker = p, .store = s, .entry = p->entry, .write = write, .link = p->link, .result.sent_at = now
	};
	LIST_INSERT_HEAD(&s->requests, q, place);
	record_init(&q->record);
	timer_init(s->world, &q->timer, request_on_timer);
	timer_start(s->world, &q->timer, network_delay(s));
	p->request = q;
	p->write = write;
	p->done = done;
	p->arg = arg;
	p->result = (struct lock_result){ .sent_at = now };
	timer_start(p->node, &p->late, (double)instant_until(by, now) / NSEC_PER_SEC);
	return q;
}

static void read_sim(struct lock *l, struct instant by, lock_done_fn *done, void *arg)
{
	sim_lock_send(sim_lock_of(l), false, by, done, arg);
}

static void write_sim(struct lock *l, const struct record *r, const struct version *expected, bool, struct instant by,
                      lock_done_fn *done, void *arg)
{
	struct sim_request *q = sim_lock_send(sim_lock_of(l), true, by, done, arg);

	record_copy(&q->record, r);
	q->expected = *expected;
}

static void cancel_sim(struct lock *l)
{
	sim_lock_give_up(sim_lock_of(l), "cancelled");
}

/* While the link is cut no notice comes; when it is healed, that counts as a change. */
static bool watch_sim(struct lock *l, lock_changed_fn *changed, void *arg)
{
	sim_lock_of(l)->changed = changed;
	sim_lock_of(l)->changed_arg = arg;
	return !sim_lock_of(l)->link->cut;
}

static void close_sim(struct lock *l)
{
	struct sim_lock *p = sim_lock_of(l), **at = &p->entry->locks;

	cancel_sim(l);
	timer_stop(p->node, &p->notice);
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	record_fini(&p->answer);
	free(l->url);
	free(p);
}

/* ---- the store ---- */

static struct sim_entry *entry_of(const struct sim_store *s, const char *key)
{
	struct sim_entry *e = s->entries;

	while (e && strcmp(e->key, key) != 0)
		e = e->next;
	return e;
}

static struct sim_entry *entry_new(struct sim_store *s, const char *key)
{
	struct sim_entry *e = mem_zero(sizeof *e);

	e->key = mem_dup(key);
	record_init(&e->record);
	e->next = s->entries;
	s->entries = e;
	return e;
}

static struct sim_entry *entry_get(struct sim_store *s, const char *key)
{
	struct sim_entry *e = entry_of(s, key);

	return e ? e : entry_new(s, key);
}

static char *next_key(const char *url)
{
	return mem_printf("%s.next", url);
}

static struct lock *open_next_sim(const struct lock *l, struct err *)
{
	const struct sim_lock *p = (const struct sim_lock *)l;
	char *key = next_key(l->url);
	struct lock *next = sim_store_open(p->store, key, p->link, p->node);

	free(key);
	return next;
}

static const struct lock_ops lock_sim = {
	.scheme = "sim",
	.token_in_record = true,
	.read = read_sim,
	.write = write_sim,
	.cancel = cancel_sim,
	.watch = watch_sim,
	.close = close_sim,
	.open_next = open_next_sim,
};

struct lock *sim_store_open(struct sim_store *s, const char *url, const struct sim_link *link, struct timeline *node)
{
	struct sim_lock *p = mem_zero(sizeof *p);

	*p = (struct sim_lock){
		.lock = { .ops = &lock_sim, .url = mem_dup(url) }, .store = s, .link = link, .node = node
	};
	p->entry = entry_get(s, url);
	p->next = p->entry->locks;
	p->entry->locks = p;
	record_init(&p->answer);
	timer_init(node, &p->late, sim_lock_on_late);
	timer_init(node, &p->deliver, sim_lock_on_deliver);
	timer_init(node, &p->notice, sim_lock_on_notice);
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
	while (!LIST_EMPTY(&s->requests))
		request_drop(LIST_FIRST(&s->requests));
	while (s->entries) {
		struct sim_entry *e = s->entries;
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
	for (struct sim_entry *e = s->entries; e; e = e->next)
		for (struct sim_lock *p = e->locks; p; p = p->next)
			if (p->changed && !p->link->cut)
				timer_start(p->node, &p->notice, network_delay(s));
}

const struct record *sim_store_record(const struct sim_store *s, const char *url)
{
	const struct sim_entry *e = entry_of(s, url);

	return e && e->there ? &e->record : NULL;
}

void sim_store_delete(struct sim_store *s, const char *url, bool next)
{
	char *key = next ? next_key(url) : mem_dup(url);
	struct sim_entry *e = entry_of(s, key);

	free(key);
	if (!e || !e->there)
		return;
	e->there = false;
	record_clear(&e->record);
	entry_notify(e);
}

void sim_store_deny_next(struct sim_store *s, const char *url, bool deny)
{
	char *key = next_key(url);

	entry_get(s, key)->denied = deny;
	free(key);
}

bool sim_store_edit_checkpoint(struct sim_store *s, const char *url, const char *json)
{
	struct sim_entry *e = entry_of(s, url);

	if (!e || !e->there)
		return false;
	mem_replace(&e->record.checkpoint, json);
	e->version++;
	entry_notify(e);
	return true;
}
