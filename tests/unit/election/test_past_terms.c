/* The past terms of a record, against the terms that there were: real electors on a simulated store and simulated time,
 * which loses messages, deletes the record and crashes candidates. After each event the record is compared with what
 * this test has seen itself. */
#include "election/elector.h"

#include "base/mem.h"
#include "lease/past.h"
#include "loop/timeline.h"
#include "nobody.h"
#include "simulation/sim_store.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define NODES 3
#define LOCK "sim:lock"
#define END_S 900.
#define TERMS_MAX 4096
#define SEEDS 20
#define WALL_US INT64_C(1700000000000000)

struct term { /* as this test has seen it in the store, and heard from its elector */
	char who[8];
	int64_t token, from_us;
	const char *reason; /* as its elector said; NULL: it has said nothing */
	bool released;
};

struct world;
struct node {
	struct world *world;
	struct proof_self self;
	struct lock_env env;
	struct sim_link link;
	struct elector *elector;
	char identity[8];
	int64_t token; /* of its term, or its last one */
	bool leads, finished, hands_over;
};

struct world {
	uint64_t random;
	double now;
	struct clock_virtual clock;
	struct timeline time;
	struct sim_store *store;
	struct node node[NODES];
	struct term term[TERMS_MAX];
	int terms, first; /* first: the first one since the record was made */
	int restarts, compared, released, found;
	const char *wrong;
};

static uint64_t draw(struct world *w, uint64_t below)
{
	w->random ^= w->random >> 12;
	w->random ^= w->random << 25;
	w->random ^= w->random >> 27;
	return ((w->random * UINT64_C(0x2545f4914f6cdd1d)) >> 33) % below;
}

static struct term *term_of(struct world *w, int64_t token)
{
	for (int i = w->terms; i-- > 0;)
		if (w->term[i].token == token)
			return &w->term[i];
	return NULL;
}

static void on_lead(void *arg, const struct elector_term *t)
{
	struct node *n = arg;

	n->leads = true;
	n->hands_over = false;
	n->token = t->token;
}

static void on_stop(void *arg, enum lease_reason reason, bool held, struct instant stop_by)
{
	struct node *n = arg;
	struct term *t = term_of(n->world, n->token);

	(void)held, (void)stop_by;
	n->leads = false;
	if (t)
		t->reason = n->hands_over && reason == LEASE_RESIGNED ? "handed_over" : lease_reason_name(reason);
	elector_stopped(n->elector, true);
}

static void on_hand_over(void *arg, enum next_why why)
{
	struct node *n = arg;

	(void)why;
	n->hands_over = true;
	elector_end(n->elector, LEASE_RESIGNED, 0, 0);
}

static void on_finished(void *arg, bool left)
{
	struct node *n = arg;

	(void)left;
	n->finished = true;
}

static const struct elector_callbacks callbacks = {
	.lead = on_lead,
	.deadline = no_deadline,
	.stop = on_stop,
	.leader = no_leader,
	.no_leader = nobody_leads,
	.hand_over = on_hand_over,
	.finished = on_finished,
};

static void node_start(struct world *w, int i)
{
	struct node *n = &w->node[i];
	struct err err;

	*n = (struct node){ .world = w, .self = { .boot_id = "00", .tree_fd = -1 } };
	snprintf(n->self.incarnation, sizeof n->self.incarnation, "%d-%d", i, ++w->restarts);
	snprintf(n->identity, sizeof n->identity, "n%d", i);
	struct elector_config config = { .env = &n->env,
		                         .timeline = &w->time,
		                         .self = &n->self,
		                         .opened = sim_store_open(w->store, LOCK, &n->link, &w->time),
		                         .seed = (uint32_t)draw(w, 1 << 30) + 1,
		                         .identity = n->identity };
	lease_times_default(&config.times);
	n->elector = elector_new(&config, &callbacks, n, &err);
	if (!n->elector) {
		printf("Bail out! %s\n", err.text);
		exit(1);
	}
	elector_bar(n->elector, NULL);
}

static void node_end(struct node *n)
{
	elector_free(n->elector);
	lock_env_fini(&n->env);
}

/* ---- what must hold ---- */

static const char *judge_term(struct world *w, const struct past_term *p, const struct term *t, const char *successor)
{
	bool own = strcmp(successor, t->who) == 0; /* the next leader is the one that led, or has its name */

	if (strcmp(p->who, t->who) != 0 || p->token != t->token)
		return "it is another one's";
	if (p->from_us != t->from_us || p->to_us < p->from_us)
		return "its times are not those of its records";
	w->released += t->released;
	w->found += !t->released;
	if (strcmp(p->reason, PAST_UNKNOWN) == 0) /* as it is of a term that was acquired, but never began */
		return t->released && t->reason ? "it was released, and the reason is unknown" : NULL;
	if (!t->released && !own)
		return "somebody else knew why it ended";
	return t->reason && strcmp(p->reason, t->reason) == 0 ? NULL : "its reason is not what its leader said";
}

/* The past terms that the record tells are the last of those that there were. */
static const char *judge(struct world *w, const struct record *r)
{
	int over = w->terms - w->first - (r->state == RECORD_LEADING);
	struct past p;

	past_parse(&p, r->past);
	if (p.count != (over < PAST_TERMS ? over : PAST_TERMS))
		return "there are more, or fewer, past terms than there were";
	for (int i = 0; i < p.count; i++) {
		int at = w->first + over - p.count + i;
		const char *wrong =
			judge_term(w, &p.term[i], &w->term[at], at + 1 < w->terms ? w->term[at + 1].who : "");
		if (wrong)
			return wrong;
		if (i > 0 && p.term[i].token <= p.term[i - 1].token)
			return "the tokens do not rise";
		if (i > 0 && p.term[i].from_us < p.term[i - 1].to_us)
			return "a term begins before the one before has ended";
	}
	w->compared += p.count > 0;
	return NULL;
}

static void look(struct world *w)
{
	const struct record *r = sim_store_record(w->store, LOCK);

	if (!r) {
		w->first = w->terms;
		return;
	}
	bool same = w->terms > w->first && w->term[w->terms - 1].token == r->token;
	if (!same && r->state == RECORD_LEADING && w->terms < TERMS_MAX) {
		struct term *t = &w->term[w->terms++];
		*t = (struct term){ .token = r->token, .from_us = r->acquired_us };
		snprintf(t->who, sizeof t->who, "%s", r->holder);
	}
	if (r->state == RECORD_RELEASED)
		w->term[w->terms - 1].released = true;
	const char *wrong = judge(w, r);
	if (wrong && !w->wrong) {
		w->wrong = wrong;
		printf("# at %.3f s: %s\n", w->now, r->past ? r->past : "no past terms");
	}
}

/* ---- what happens ---- */

static struct node *leader(struct world *w)
{
	for (int i = 0; i < NODES; i++)
		if (w->node[i].leads)
			return &w->node[i];
	return NULL;
}

static void happen(struct world *w)
{
	struct node *n = leader(w);
	int i = n ? (int)(n - w->node) : (int)draw(w, NODES);
	struct err err;

	n = &w->node[i];
	switch (draw(w, 9)) {
	case 0:
		elector_end(n->elector, LEASE_RESIGNED, 2 * NSEC_PER_SEC, 0);
		return;
	case 1:
		elector_end(n->elector, LEASE_ERROR, 2 * NSEC_PER_SEC, 0);
		return;
	case 2:
		elector_next_term(n->elector, 0);
		return;
	case 3:
		elector_end(n->elector, LEASE_SHUTDOWN, NSEC_NEVER, 0);
		return;
	case 4: /* a crash */
		node_end(n);
		node_start(w, i);
		return;
	case 5:
		n->link.cut = true;
		return;
	case 6:
		elector_hand_over(n->elector, 0, "", 5 * NSEC_PER_SEC, &err);
		return;
	case 7:
		if (draw(w, 4) == 0)
			sim_store_delete(w->store, LOCK, false);
		return;
	default:
		sim_store_loss(w->store, (double)draw(w, 30) / 100);
		return;
	}
}

static void mend(struct world *w)
{
	for (int i = 0; i < NODES; i++) {
		struct node *n = &w->node[i];
		if (n->link.cut && draw(w, 2)) {
			n->link.cut = false;
			sim_store_healed(w->store);
		}
		if (n->finished) {
			node_end(n);
			node_start(w, i);
		}
	}
}

static void play(struct world *w, uint64_t seed)
{
	double fault = 5;

	*w = (struct world){ .random = seed * UINT64_C(0x9e3779b97f4a7c15) | 1, .clock.wall_us = WALL_US };
	clock_pretend(&w->clock);
	timeline_init_virtual(&w->time, &w->now);
	w->store = sim_store_new(&w->time, seed);
	for (int i = 0; i < NODES; i++)
		node_start(w, i);
	while (w->now < END_S && !w->wrong) {
		double at = timeline_first(&w->time);
		bool due = fault <= at;
		w->now = fmin(at, fault);
		w->clock.now = (nsec)(w->now * NSEC_PER_SEC);
		if (due) {
			mend(w);
			happen(w);
			fault = w->now + 2 + (double)draw(w, 14);
		} else {
			timeline_fire(&w->time);
		}
		look(w);
	}
	for (int i = 0; i < NODES; i++)
		node_end(&w->node[i]);
	sim_store_free(w->store);
	timeline_fini(&w->time);
	clock_pretend(NULL);
}

static void on_log(void *arg, enum log_level level, const struct log_about *about, const char *event, const char *text)
{
	(void)arg, (void)level, (void)about, (void)event, (void)text;
}

int main(void)
{
	struct world *w = mem_zero(sizeof *w);
	int terms = 0, compared = 0, released = 0, found = 0;
	const char *wrong = NULL;

	log_divert(on_log, NULL);
	for (uint64_t seed = 1; seed <= SEEDS && !wrong; seed++) {
		play(w, seed);
		wrong = w->wrong;
		if (wrong)
			printf("# seed %d: %s\n", (int)seed, wrong);
		terms += w->terms;
		compared += w->compared;
		released += w->released;
		found += w->found;
	}
	printf("# %d terms, %d comparisons\n", terms, compared);
	ok(!wrong, "the record's past terms are the last ones that there were, whoever wrote it%s%s", wrong ? ": " : "",
	   wrong ? wrong : "");
	ok(terms > 20 * SEEDS && compared > 100 * SEEDS && released > 0 && found > 0,
	   "terms that were released and terms that were not have been compared");
	free(w);
	return tap_done();
}
