/* The record N in the simulated world: the real machine of runtime/lease/next.c on each node that knows it, one
 * copy of N with a bad network, stale reads and noise, and what M says of who comes next. */
#include "world.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MS NSEC_PER_MS
#define SEC NSEC_PER_SEC

static void run(struct world *w, int i, struct next_event e);

/* ---- what M says ---- */

/* What the record says of who comes next, as far as it counts: in the term that said it. */
static const struct advised *advice_in(const struct world *w, const struct content *c)
{
	static const struct advised nothing = { .write = 0 };
	const struct advised *a = &w->advised[c->write % NOTES];

	return c->exists && a->write == c->write && a->term == c->term ? a : &nothing;
}

bool next_is_other(const struct world *w, const struct node *n, const struct content *c)
{
	if (!w->nexts || !n->next.follows)
		return false;
	const struct advised *a = advice_in(w, c);
	uint64_t first = c->holder ? a->next : c->leading ? 0 : a->given;
	return first && first != n->incarnation;
}

void next_hear(struct world *w, int i, const struct content *c)
{
	struct node *n = &w->node[i];

	if (!w->nexts || !n->next.follows || c->holder == n->incarnation)
		return;
	const struct advised *a = advice_in(w, c);
	n->next.wanted = c->holder ? a->wanted_identity : 0;
	run(w, i,
	    (struct next_event){ .kind = NEXT_EV_NEWS,
	                         .news = { .held = c->holder != 0,
	                                   .holder = c->holder,
	                                   .term = c->term,
	                                   .next = a->next,
	                                   .next_priority = a->priority,
	                                   .wanted = a->wanted,
	                                   .wanted_mine = a->wanted && a->wanted_identity == n->identity,
	                                   .handed_over = a->handed && (!c->holder || a->given == c->holder) } });
}

/* Whom a leader publishes has written N while that leader looked on, and not long ago. */
static void check_published(struct world *w, const struct node *n)
{
	nsec since = elapsed_standby(n->next.changed_at, local(w, n));

	if (!n->next.changed || n->next.looked_in != lease_term(&n->lease))
		violate(w, (int)(n - w->node), "somebody is published whose record this term has not seen change");
	else if (since > 2 * n->next.machine.options.lease + MS)
		violate(w, (int)(n - w->node), "somebody is published who has not written for 2 L");
}

void next_advise(struct world *w, const struct node *n, enum lease_write what, const struct content *c)
{
	struct advised *to = &w->advised[c->write % NOTES], *kept = &w->advised[w->store.write % NOTES];
	const struct next_machine *m = &n->next.machine;

	if (!w->nexts)
		return;
	if (!n->next.follows) { /* a version that does not know these fields keeps them */
		*to = w->store.exists && kept->write == w->store.write ? *kept : (struct advised){ .term = 0 };
		to->write = c->write;
		return;
	}
	*to = (struct advised){ .write = c->write, .term = c->term };
	bool own = what == LEASE_RENEW && w->store.term == c->term;
	if ((own || what == LEASE_ACQUIRE) && kept->write == w->store.write && kept->given == n->incarnation) {
		to->given = kept->given; /* it goes on saying that the term before was handed over to it */
		to->handed = kept->handed;
	}
	bool leads = m->role == NEXT_LEADER && m->term == c->term; /* else it has not heard of the term yet */
	if (!leads || (what != LEASE_RENEW && what != LEASE_RELEASE))
		return;
	const struct next_sight *next = next_published(m, local(w, n));
	if (next)
		check_published(w, n);
	to->key = next ? w->noted[n->next.note % NOTES].key : 0;
	if (what == LEASE_RELEASE) {
		to->given = next ? next->who : 0;
		to->handed = m->handed;
		w->result.given += to->given && !w->released_for;
		w->released_for = to->given;
		return;
	}
	to->next = next ? next->who : 0;
	to->priority = next ? next->priority : 0;
	if (!next_wants(m, local(w, n), &to->wanted, &to->wanted_identity))
		to->wanted = to->wanted_identity = 0;
}

void next_leads(struct world *w, int i)
{
	w->result.taken += w->released_for && w->released_for == w->node[i].incarnation;
	w->released_for = 0;
}

/* ---- pokes ---- */

static void fill_key(char text[POKE_KEY + 1], uint64_t key)
{
	snprintf(text, POKE_KEY + 1, "%032" PRIx64, key);
}

/* The key that a candidate publishes; 0: it is told of changes, and needs none. */
static uint64_t key_of(struct world *w, struct node *n)
{
	if (n->lease.watching)
		return 0;
	if (!*n->next.gate.key)
		fill_key(n->next.gate.key, n->next.key = ++w->keys);
	return n->next.key;
}

static void send_poke(struct world *w, int i, uint64_t key, nsec after)
{
	push(w, (struct happening){
			.at = w->now + after, .kind = POKE, .node = i, .life = w->node[i].life, .stamp = key });
}

/* One datagram, which the network may lose, delay or repeat. */
void next_poke(struct world *w, int i, const struct content *c)
{
	struct node *n = &w->node[i];
	const struct advised *a = advice_in(w, c);
	uint64_t to = c->holder ? a->next : a->given;
	bool asks = c->holder == n->incarnation && a->wanted && a->wanted != n->next.poked_for;

	if (!w->nexts || !a->key || !to || !(asks || !c->holder))
		return;
	n->next.poked_for = a->wanted;
	for (int k = 0; k < w->nodes; k++) {
		if (w->node[k].incarnation != to)
			continue;
		if (w->now < n->cut_until || chance(w, 20))
			count(w, FAULT_POKE_LOST);
		else
			send_poke(w, k, a->key, travel(w, n));
		if (chance(w, 20)) {
			count(w, FAULT_POKE_AGAIN);
			send_poke(w, k, a->key, between(w, 0, 2 * n->times.lease));
		}
	}
}

static void arm_look(struct world *w, int i)
{
	struct node *n = &w->node[i];
	nsec wait = poke_gate_wait(&n->next.gate, local(w, n));

	if (wait != NSEC_NEVER)
		push(w, (struct happening){ .at = w->now + wait, .kind = POKE_LOOK, .node = i, .life = n->life });
}

static void poke_arrives(struct world *w, const struct happening *h)
{
	struct node *n = &w->node[h->node];
	char key[POKE_KEY + 1], datagram[POKE_BYTES];

	fill_key(key, h->stamp);
	poke_fill(datagram, key);
	if (!poke_gate_hear(&n->next.gate, datagram, sizeof datagram))
		return;
	if (h->stamp != n->next.key)
		violate(w, h->node, "a forged datagram leads to a look");
	if (h->stamp <= n->next.heard)
		violate(w, h->node, "a datagram leads to two looks");
	n->next.heard = h->stamp;
	arm_look(w, h->node);
}

/* The clocks of two nodes differ by less than a tenth. */
static void poke_looks(struct world *w, const struct happening *h)
{
	struct node *n = &w->node[h->node];

	if (poke_gate_wait(&n->next.gate, local(w, n)) != 0) {
		arm_look(w, h->node);
		return;
	}
	if (n->next.poked_at && w->now - n->next.poked_at < POKE_PAUSE * 9 / 10)
		violate(w, h->node, "two looks within 100 ms by datagrams");
	n->next.poked_at = w->now;
	poke_gate_looks(&n->next.gate, local(w, n));
	say(w, h->node, "is told to look", n->next.key);
	look_now(w, h->node, false);
}

/* ---- operations on N ---- */

static uint64_t name_of(const struct world *w, uint64_t number)
{
	const struct note *note = &w->noted[number % NOTES];

	return number && note->name ? note->name : number;
}

/* What a candidate's write makes of N, as it last saw it. */
static struct note written_note(struct world *w, struct node *n, const struct next_actions *a)
{
	struct note as_is = w->noted[n->next.note % NOTES];

	if (a->nobody)
		return (struct note){ .declines = a->answers };
	if (!a->as_is)
		return (struct note){ .who = n->incarnation,
			              .identity = n->identity,
			              .priority = n->next.priority,
			              .key = key_of(w, n),
			              .answers = a->answers };
	as_is.name = name_of(w, n->next.note);
	as_is.declines = a->answers;
	return as_is;
}

static struct next_sight look_at(const struct world *w, const struct node *n, uint64_t number)
{
	const struct note *note = &w->noted[number % NOTES];

	if (!number)
		return (struct next_sight){ .kind = NEXT_ABSENT };
	if (note->foreign || !note->who)
		return (struct next_sight){ .kind = note->foreign ? NEXT_FOREIGN : NEXT_NOBODY,
			                    .write = name_of(w, number),
			                    .declines = note->declines };
	return (struct next_sight){ .kind = NEXT_SOMEBODY,
		                    .write = name_of(w, number),
		                    .declines = note->declines,
		                    .who = note->who,
		                    .identity = note->identity,
		                    .mine = note->who == n->incarnation,
		                    .priority = note->priority,
		                    .answers = note->answers };
}

static uint64_t make_note(struct world *w, struct note note)
{
	note.write = ++w->notes;
	w->noted[note.write % NOTES] = note;
	return note.write;
}

static void start(struct world *w, int i, const struct next_actions *a)
{
	struct node *n = &w->node[i];
	struct happening h = { .kind = NOTE_ARRIVE,
		               .node = i,
		               .life = n->life,
		               .op = a->op,
		               .writing = (a->set & NEXT_DO_WRITE) != 0,
		               .sent_at = local(w, n),
		               .expected = n->next.version };
	bool own = w->noted[n->next.note % NOTES].who == n->incarnation && n->next.note;

	if (n->next.open)
		violate(w, i, "two operations on N at once");
	if (h.writing && a->as_is && (own || !n->next.note))
		violate(w, i, "N is written as it is, and is its own or absent");
	if (h.writing && !a->nobody && !a->as_is && !own && n->next.wanted && n->next.wanted != n->identity)
		violate(w, i, "N is taken while another is wanted");
	if (h.writing)
		h.stamp = make_note(w, written_note(w, n, a));
	n->next.open = a->op;
	h.reply_lost = lost(w, n);
	if (!lost(w, n)) {
		h.at = w->now + travel(w, n);
		push(w, h);
		if (h.writing && w->now < CALM_AT && chance(w, 2)) { /* twice, or late */
			h.at += between(w, 0, n->times.lease);
			push(w, h);
		}
	}
	h.kind = NOTE_TIMEOUT;
	h.at = w->now + n->times.retry;
	push(w, h);
}

static void replace(struct world *w, uint64_t note)
{
	w->note_past[w->note_versions % PAST].version = w->note_version;
	w->note_past[w->note_versions % PAST].note = w->note;
	w->note_version = ++w->note_versions;
	w->note = note;
}

/* Now and then a replica that is behind answers. In a noisy world, anything. */
static void note_arrives(struct world *w, struct happening h)
{
	struct node *n = &w->node[h.node];

	h.outcome = OUTCOME_OK;
	if (h.writing) {
		if (h.expected != w->note_version)
			h.outcome = OUTCOME_CONFLICT;
		else
			replace(w, h.stamp);
		h.expected = w->note_version;
	} else {
		h.expected = w->note_version;
		h.stamp = w->note;
		if (w->note_versions > PAST && chance(w, 3)) {
			unsigned back = 1 + (unsigned)(draw(w) % (PAST - 1));
			h.expected = w->note_past[(w->note_versions - back) % PAST].version;
			h.stamp = w->note_past[(w->note_versions - back) % PAST].note;
		}
	}
	if (h.reply_lost || !n->up || n->life != h.life)
		return;
	h.kind = NOTE_REPLY;
	h.at = w->now + travel(w, n);
	push(w, h);
}

static void note_looked(const struct world *w, struct node *n, uint64_t note)
{
	bool first = n->next.looked_in != lease_term(&n->lease);
	const struct note *shown = &w->noted[note % NOTES];

	if (n->next.machine.role != NEXT_LEADER)
		return;
	if (first)
		n->next.changed = false;
	if ((!first && name_of(w, note) != n->next.looked) ||
	    (note && shown->answers && shown->answers == n->next.asked)) {
		n->next.changed = true;
		n->next.changed_at = local(w, n);
	}
	n->next.looked_in = lease_term(&n->lease);
	n->next.looked = name_of(w, note);
}

static void note_replied(struct world *w, const struct happening *h)
{
	struct node *n = &w->node[h->node];
	struct next_event e = { .kind = h->writing ? NEXT_EV_WRITE_DONE : NEXT_EV_READ_DONE,
		                .op = h->op,
		                .outcome = h->outcome,
		                .sent_at = h->sent_at };

	if (h->op != n->next.open)
		return;
	n->next.open = 0;
	if (h->kind == NOTE_TIMEOUT) {
		e.outcome = h->writing ? OUTCOME_UNKNOWN : OUTCOME_FAILED;
	} else if (h->outcome == OUTCOME_OK) {
		n->next.version = h->expected;
		n->next.note = h->stamp;
		e.sight = look_at(w, n, h->stamp);
		if (!h->writing)
			note_looked(w, n, h->stamp);
	}
	run(w, h->node, e);
	if (h->writing && e.sight.mine && e.sight.answers)
		look_now(w, h->node, true);
}

/* ---- steps ---- */

static bool is_ready(const struct world *w, const struct node *n)
{
	const struct lease *l = &n->lease;

	return n->up && l->phase == PHASE_FOLLOWING && !l->finish && !l->paused && !l->unreaped && n->next.willing &&
	       elapsed_standby(l->out_since, local(w, n)) >= l->out_for;
}

static void arm_note(struct world *w, int i)
{
	struct node *n = &w->node[i];
	nsec wait = next_wait(&n->next.machine, local(w, n));

	n->next.timer = ++w->order;
	if (wait < 1000 * SEC)
		push(w, (struct happening){ .at = w->now + wait + MS / 20,
		                            .kind = NOTE_TICK,
		                            .node = i,
		                            .life = n->life,
		                            .stamp = n->next.timer });
}

static void hand_over(struct world *w, int i, const struct next_actions *a)
{
	struct node *n = &w->node[i];

	say(w, i, "is to hand over, term", lease_term(&n->lease));
	if (!next_published(&n->next.machine, local(w, n)))
		violate(w, i, "a term is to be handed over to nobody");
	if (a->why == NEXT_REQUEST && n->next.asked_in != lease_term(&n->lease))
		violate(w, i, "a request ends a term that was not asked");
	push(w, (struct happening){
			.at = w->now, .kind = NOTE_END, .node = i, .life = n->life, .stamp = lease_term(&n->lease) });
}

static void run(struct world *w, int i, struct next_event e)
{
	struct node *n = &w->node[i];
	struct next_actions a = next_step(&n->next.machine, &e, local(w, n));

	if (a.set & NEXT_DO_NOT_NEXT) {
		if (!n->next.is)
			violate(w, i, "is next no more, and never was");
		n->next.is = false;
		say(w, i, "is next no more", n->incarnation);
	}
	if (a.set & NEXT_DO_NEXT) {
		if (n->next.is)
			violate(w, i, "is next twice");
		n->next.is = true;
		say(w, i, "is next", n->incarnation);
	}
	if (a.set & NEXT_DO_HAND_OVER)
		hand_over(w, i, &a);
	uint64_t request, identity;
	if ((a.set & NEXT_DO_PUBLISH) && !n->next.machine.handed &&
	    next_wants(&n->next.machine, local(w, n), &request, &identity))
		push(w, (struct happening){ .at = w->now, .kind = NOTE_RENEW, .node = i, .life = n->life });
	if (a.set & (NEXT_DO_READ | NEXT_DO_WRITE))
		start(w, i, &a);
	arm_note(w, i);
}

static struct next_setup options_of(const struct node *n)
{
	struct next_setup o = n->next.machine.options;

	o.lease = n->times.lease;
	o.renew = n->times.renew;
	o.retry = n->times.retry;
	return o;
}

void next_follow(struct world *w, int i)
{
	struct node *n = &w->node[i];
	struct next_machine *m = &n->next.machine;
	enum lease_phase phase = lease_phase(&n->lease);
	enum next_role role = phase == PHASE_FOLLOWING                     ? NEXT_STANDBY
	                      : phase == PHASE_IDLE || phase == PHASE_LOST ? NEXT_NONE
	                                                                   : NEXT_LEADER;
	uint64_t term = role == NEXT_LEADER ? lease_term(&n->lease) : 0;
	bool ready;

	if (!w->nexts || !n->next.follows || !n->up)
		return;
	if (role != NEXT_STANDBY)
		n->next.gate = (struct poke_gate){ .key = "" }; /* its socket is closed */
	if (m->options.lease != n->times.lease) {
		struct next_setup o = options_of(n);
		next_configure(m, &o);
	}
	if (m->role != role || m->term != term)
		run(w, i, (struct next_event){ .kind = NEXT_EV_ROLE, .role = role, .term = term });
	ready = is_ready(w, n);
	if (m->ready != ready || m->priority != n->next.priority)
		run(w, i,
		    (struct next_event){ .kind = NEXT_EV_READY,
		                         .ready = ready,
		                         .doubted = !n->next.willing,
		                         .priority = n->next.priority });
	if (next_shares(m, local(w, n)))
		run(w, i, (struct next_event){ .kind = NEXT_EV_AWAKE });
	if (n->next.is && !ready)
		violate(w, i, "who is not ready is next");
}

void next_happen(struct world *w, const struct happening *h)
{
	struct node *n = &w->node[h->node];

	if (h->kind == NOTE_ARRIVE) {
		note_arrives(w, *h);
	} else if (h->kind == NOTE_END) {
		bool late = w->now > END_AT - 6 * SEC; /* somebody is to lead at the end */
		if (!late && lease_phase(&n->lease) == PHASE_LEADING && lease_term(&n->lease) == h->stamp)
			end_of_will(w, h->node, LEASE_RESIGNED, 0);
	} else if (h->kind == POKE) {
		poke_arrives(w, h);
	} else if (h->kind == POKE_LOOK) {
		poke_looks(w, h);
	} else if (h->kind == NOTE_RENEW) {
		renew_now(w, h->node);
	} else if (h->kind != NOTE_TICK) {
		note_replied(w, h);
	} else if (h->stamp == n->next.timer) {
		run(w, h->node, (struct next_event){ .kind = NEXT_EV_TICK });
	}
	next_follow(w, h->node);
}

/* ---- nodes ---- */

void next_make(struct world *w, int i)
{
	if (!w->nexts)
		return;
	w->node[i].next.follows = !chance(w, 15);
	w->node[i].next.priority = (int64_t)(draw(w) % 3);
}

void next_boot(struct world *w, int i)
{
	struct node *n = &w->node[i];
	struct next_setup o = { .next = { .preempt = false } };

	if (!w->nexts)
		return;
	o.next.preempt = chance(w, 30);
	o.next.preempt_after = between(w, SEC, 6 * SEC);
	o.next.max_term = chance(w, 20) ? between(w, 5 * SEC, 20 * SEC) : 0;
	next_init(&n->next.machine, &o, (uint32_t)draw(w));
	o = options_of(n);
	next_configure(&n->next.machine, &o);
	n->next.willing = true;
	n->next.is = n->next.changed = false;
	n->next.gate = (struct poke_gate){ .key = "" };
	n->next.poked_at = 0;
	n->next.open = n->next.version = n->next.note = n->next.wanted = n->next.asked_in = n->next.asked = 0;
	n->next.looked_in = 0;
}

void next_renamed(struct world *w, int i)
{
	struct node *n = &w->node[i];
	struct next_setup o = n->next.machine.options;

	if (!w->nexts)
		return;
	n->next.is = false;
	n->next.open = n->next.wanted = 0;
	next_init(&n->next.machine, &o, (uint32_t)draw(w));
}

void next_cloned(struct world *w, int k)
{
	struct node *n = &w->node[k];

	if (!w->nexts || !n->next.follows)
		return;
	if (n->next.open)
		push(w, (struct happening){ .at = w->now + n->times.retry,
		                            .kind = NOTE_TIMEOUT,
		                            .node = k,
		                            .life = n->life,
		                            .op = n->next.open });
	arm_note(w, k);
}

static void make_noise(struct world *w)
{
	struct note note = { .foreign = chance(w, 10), .priority = (int64_t)(draw(w) % 5), .answers = draw(w) % 1000 };

	count(w, FAULT_NOISE);
	if (chance(w, 80)) {
		const struct node *n = &w->node[draw(w) % (uint64_t)w->nodes];
		note.who = chance(w, 70) ? n->incarnation : draw(w);
		note.identity = n->identity;
	}
	replace(w, chance(w, 90) ? make_note(w, note) : 0);
	if (!w->note)
		w->note_version = 0;
}

bool next_fault(struct world *w, int i)
{
	struct node *n = &w->node[i];

	if (!w->nexts || !chance(w, 25))
		return false;
	if (chance(w, 30)) {
		count(w, FAULT_POKE_FORGED);
		send_poke(w, (int)(draw(w) % (uint64_t)w->nodes), UINT64_MAX - draw(w) % 16, 0);
	}
	unsigned dice = (unsigned)(draw(w) % 4);
	if (dice == 0 && w->noisy) {
		make_noise(w);
	} else if (dice <= 1 && n->next.follows) {
		const struct node *to = &w->node[draw(w) % (uint64_t)w->nodes];
		count(w, FAULT_ASKED);
		n->next.asked_in = lease_term(&n->lease);
		n->next.asked = ++w->notes;
		run(w, i,
		    (struct next_event){ .kind = NEXT_EV_HANDOVER,
		                         .request = n->next.asked,
		                         .identity = chance(w, 30) ? 0 : to->identity,
		                         .timeout = between(w, SEC, 6 * SEC) });
	} else if (dice == 2) {
		count(w, FAULT_UNWILLING);
		n->next.willing = !n->next.willing;
	} else {
		count(w, FAULT_PRIORITY);
		n->next.priority = (int64_t)(draw(w) % 3);
	}
	next_follow(w, i);
	return true;
}
