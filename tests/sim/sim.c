#include "world.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const fault_names[FAULTS] = {
	"delay",
	"lost request",
	"lost reply",
	"late write",
	"duplicate",
	"pause",
	"suspend",
	"crash",
	"resign",
	"reload",
	"configure",
	"shutdown",
	"slow script",
	"not reaped",
	"deleted",
	"landed again",
	"emptied",
	"edited",
	"partition",
	"cloned",
	"fell back",
	"noise",
	"asked to hand over",
	"unwilling",
	"priority",
	"poke lost",
	"poke again",
	"poke forged",
	"fence failed",
};

/* ---- chance ---- */

uint64_t draw(struct world *w)
{
	w->random += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */
	uint64_t z = w->random;
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

bool chance(struct world *w, unsigned percent)
{
	return draw(w) % 100 < percent;
}

nsec between(struct world *w, nsec low, nsec high)
{
	return low + (nsec)(draw(w) % (uint64_t)(high - low));
}

static double spread(struct world *w, double width)
{
	return ((double)(draw(w) >> 11) / (double)(UINT64_C(1) << 53) * 2 - 1) * width;
}

/* ---- happenings ---- */

static bool before(const struct due *a, const struct due *b)
{
	return a->at < b->at || (a->at == b->at && a->order < b->order);
}

void push(struct world *w, struct happening h)
{
	int i = w->heap_len++;

	if (w->heap_len == HEAP)
		__builtin_trap();
	h.order = ++w->order;
	struct due due = { .at = h.at, .order = h.order, .slot = w->spares > 0 ? w->spare[--w->spares] : w->slots++ };
	w->slot[due.slot] = h;
	while (i > 0 && before(&due, &w->heap[(i - 1) / 2])) {
		w->heap[i] = w->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	w->heap[i] = due;
}

static struct happening pop(struct world *w)
{
	struct due first = w->heap[0], last = w->heap[--w->heap_len];
	int i = 0;

	for (int child; (child = 2 * i + 1) < w->heap_len; i = child) {
		if (child + 1 < w->heap_len && before(&w->heap[child + 1], &w->heap[child]))
			child++;
		if (!before(&w->heap[child], &last))
			break;
		w->heap[i] = w->heap[child];
	}
	w->heap[i] = last;
	w->spare[w->spares++] = first.slot;
	return w->slot[first.slot];
}

void say(const struct world *w, int node, const char *what, uint64_t n)
{
	if (w->trace)
		printf("%10.4f  %c  %-28s %" PRIu64 "\n", (double)w->now / SEC, node < 0 ? '*' : 'a' + node, what, n);
}

/* what: P1 to P7 are the promises of docs/design.md, in their order. */
void violate(struct world *w, int node, const char *what)
{
	say(w, node, what, 0);
	if (w->result.violated)
		return;
	w->result.violated = what;
	w->result.violated_at_ms = w->now / MS;
}

void count(struct world *w, enum fault f)
{
	w->result.faults[f]++;
}

/* ---- clocks ---- */

struct instant local(const struct world *w, const struct node *n)
{
	return (struct instant){
		.boot = n->boot_base + (nsec)((double)w->now * n->boot_rate),
		.raw = n->raw_base + (nsec)((double)(w->now - n->slept) * n->raw_rate),
	};
}

bool frozen(const struct world *w, const struct node *n)
{
	return w->now < n->frozen_until || w->now < n->asleep_until;
}

/* ---- what is carried out, at which node ---- */

struct at {
	struct world *world;
	int node;
};

static struct node *node_of(const struct at *at)
{
	return &at->world->node[at->node];
}

static void violate_at(const struct at *at, const char *what)
{
	violate(at->world, at->node, what);
}

/* ---- the script ---- */

static void step(struct world *w, int i, struct lease_event e);

static bool older(struct saved a, struct saved b)
{
	return a.term < b.term || (a.term == b.term && a.number < b.number);
}

/* A script saves now and then, several times in a row, and the last times when it is told to stop. */
static void save_later(struct world *w, int i, nsec soonest)
{
	push(w, (struct happening){ .at = w->now + soonest + (chance(w, 30) ? 0 : between(w, 0, 2 * SEC)),
	                            .kind = SAVE,
	                            .node = i,
	                            .life = w->node[i].life,
	                            .stamp = w->node[i].script });
}

static void save(struct world *w, const struct happening *h)
{
	struct node *n = &w->node[h->node];

	if (!n->runs || h->stamp != n->script)
		return;
	save_later(w, h->node, MS);
	n->checkpoint = ++n->save;
	step(w, h->node, (struct lease_event){ .kind = LEASE_EV_SAVE, .save = n->save });
}

/* true was returned to a script. From then on the record has this checkpoint, or a later one. */
static void check_saved(struct world *w, int i, uint64_t number)
{
	struct node *n = &w->node[i];
	struct saved s = { lease_term(&n->lease), number };

	say(w, i, "saved", number);
	if (!n->open || n->term != s.term || number < n->first_save)
		violate(w, i, "a save was acknowledged to no term, or to another one's script");
	if (!lease_is_leading(&n->lease, local(w, n)))
		violate(w, i, "a save was acknowledged after the term had ended");
	if (w->store.exists && w->store.term > s.term && !w->cloned)
		violate(w, i, "a deposed term's save was acknowledged");
	n->promised = s;
	/* Deleted while the reply was on its way; another may have made a new record since. */
	if (!older(w->deleted, s))
		return;
	if (w->store.exists && older(w->store.saved, s) && !w->fell && !w->cloned)
		violate(w, i, "a save was acknowledged that the record does not have");
	if (w->store.exists && older(w->store.saved, s))
		w->unrestored = true;
	if (w->store.exists && older(w->acknowledged, s))
		w->acknowledged = s;
}

static void watch_kill(struct world *w, int i)
{
	struct node *n = &w->node[i];
	nsec left = instant_until(n->page_kill, local(w, n));

	push(w, (struct happening){ .at = w->now + (nsec)((double)left * 0.95) + MS / 10,
	                            .kind = GUARD,
	                            .node = i,
	                            .stamp = n->script });
}

static void script_gone(struct world *w, int i, bool reaped)
{
	struct node *n = &w->node[i];

	if (!n->runs)
		return;
	n->runs = false;
	n->page_ended = true;
	n->unreaped = !reaped;
	w->last_act = w->now;
	say(w, i, reaped ? "script gone, term" : "script not reaped, term", n->term);
	push(w, (struct happening){ .at = w->now, .kind = GONE, .node = i, .life = n->life, .op = reaped });
	if (!reaped)
		push(w, (struct happening){
				.at = w->now + between(w, SEC, 5 * SEC), .kind = REAPED, .node = i, .life = n->life });
}

static void tell_script(struct world *w, int i)
{
	struct node *n = &w->node[i];
	nsec grace = n->times.grace, after;

	if (n->told)
		return;
	n->told = true;
	if (chance(w, 60)) {
		after = between(w, 0, grace / 3);
	} else {
		after = chance(w, 50) ? between(w, 0, 2 * grace) : 3600 * SEC;
		count(w, FAULT_SLOW_SCRIPT);
	}
	push(w, (struct happening){ .at = w->now + after, .kind = SCRIPT_ENDS, .node = i, .stamp = n->script });
}

static void check_alone(struct world *w, int i)
{
	for (int k = 0; k < w->nodes; k++) {
		struct node *o = &w->node[k];
		if (k == i || o->copied_term) /* what a clone does until it meets itself nobody can prevent */
			continue;
		if (o->runs && w->now >= o->asleep_until)
			violate(w, i, "P1: two scripts act at once");
		if (o->runs && w->now >= o->asleep_until && !o->page_ended && !instant_passed(o->page_end, local(w, o)))
			violate(w, i, "P1: two nodes say is_leading");
	}
}

static void start_script(void *arg, const struct lease_actions *a)
{
	struct world *w = ((struct at *)arg)->world;
	int i = ((struct at *)arg)->node;
	struct node *n = &w->node[i];

	(void)a;
	check_alone(w, i);
	fence_leads(w, i);
	if ((n->open && !n->fencing) || n->unreaped)
		violate(w, i, "P5: a new term begins before the old one has ended");
	if (n->saw_token <= (w->fell ? n->top_token : w->last_token))
		violate(w, i, "P4: the token did not grow");
	if (n->saw_token > w->last_token)
		w->last_token = n->saw_token;
	n->top_token = n->saw_token;
	if (elapsed_holder(n->lease.good.at, local(w, n)) >= n->lease.good.renew)
		violate(w, i, "an acquiring write answered too late started the hooks");
	if (older(n->saw_saved, w->acknowledged) && !w->unrestored && !w->cloned)
		violate(w, i, "an acknowledged save is lost to the next term");
	if (older(n->saw_saved, w->acknowledged))
		w->acknowledged = n->saw_saved;
	w->unrestored = w->fell && older(w->store.saved, w->acknowledged);
	n->copied_term = n->fencing = false;
	n->promised = n->saw_saved;
	n->runs = n->open = true;
	n->first_save = n->save + 1;
	n->acquiring = 0;
	n->told = n->page_ended = false;
	n->script = ++w->lives;
	n->term = lease_term(&n->lease);
	n->page_end = lease_end(&n->lease);
	n->page_kill = lease_kill(&n->lease);
	next_leads(w, i);
	w->result.terms++;
	w->result.handovers += w->last_leader != 0 && w->last_leader != (uint64_t)i + 1;
	w->last_leader = (uint64_t)i + 1;
	say(w, i, "LEADS, term", n->term);
	watch_kill(w, i);
	save_later(w, i, 0);
}

static void stop_script(void *arg, const struct lease_actions *a)
{
	struct world *w = ((struct at *)arg)->world;
	int i = ((struct at *)arg)->node;
	struct node *n = &w->node[i];
	/* An older write of ours may land once the record is deleted: after the look that showed that, before its
	 * answer. */
	bool mine = w->store.exists && w->store.holder == n->incarnation && w->store.count >= n->kept_count &&
	            !w->fell && !w->cloned;

	if (fence_stop(w, i))
		return;
	if (!n->open)
		violate(w, i, "P5: stopped what never started");
	if ((a->reason == LEASE_STOLEN || a->reason == LEASE_DELETED) && mine && !n->told)
		violate(w, i, "a term was called lost while the record was ours");
	n->page_ended = n->page_ended || !a->held;
	n->page_kill = instant_min(n->page_kill, a->stop_by);
	say(w, i, lease_reason_name(a->reason), n->term);
	if (!n->runs)
		return;
	watch_kill(w, i);
	tell_script(w, i);
}

/* ---- operations ---- */

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static bool begins(enum lease_write what)
{
	return what == LEASE_ACQUIRE || what == LEASE_NEXT_TERM;
}

static struct content fill(struct world *w, struct node *n, enum lease_write what, uint64_t write)
{
	struct content c = w->store;
	int64_t previous = n->saw_token;
	int64_t clock = w->now / 1000;
	bool older_of_ours = n->saw_holder == n->incarnation && n->saw_count < n->kept_count;

	c.exists = true;
	c.place = w->place;
	c.write = write;
	c.duration = lease_publishes(&n->lease)->lease;
	c.holder = what == LEASE_RELEASE ? 0 : n->incarnation;
	c.count = lease_next_count(&n->lease);
	c.author = (int)(n - w->node);
	c.identity = n->identity;
	c.leading = what != LEASE_RELEASE;
	c.saved = older_of_ours ? n->kept : n->saw_saved;
	if (what == LEASE_RENEW && n->checkpoint)
		c.saved = (struct saved){ n->term, n->checkpoint };
	c.term = begins(what)            ? lease_next_term(&n->lease)
	         : what == LEASE_RELEASE ? n->saw.term
	                                 : lease_term(&n->lease);
	fence_fill(w, n, what, &c);
	c.token = begins(what) ? larger(larger(previous, n->top_token) + 1, clock) : previous;
	return c;
}

static struct lease_sight look(const struct world *w, const struct node *n, const struct content *c)
{
	struct lease_sight s = { .kind = SIGHT_ABSENT };

	if (!c->exists)
		return s;
	s.kind = c->holder ? SIGHT_HELD : c->leading ? SIGHT_EMPTIED : SIGHT_RELEASED;
	s.write = c->write;
	s.id = c->write * 4 + (c->holder == 0) + 2 * (uint64_t)(c->duration == 1);
	s.who = c->holder << 20 | (c->term & 0xfffff);
	s.mine = c->holder == n->incarnation;
	s.count = c->count;
	s.reclaim = !s.mine && n->reclaims && c->identity == n->identity;
	s.duration = c->duration;
	s.term = c->term;
	s.elsewhere = c->elsewhere;
	s.id += ((uint64_t)c->elsewhere << 48) + (uint64_t)c->token * UINT64_C(0x9e3779b97f4a7c15);
	s.low_token = s.mine && !n->open && c->token <= n->top_token;
	s.other_first = next_is_other(w, n, c);
	s.fencing = !n->old && c->fencing && c->fencing == c->term;
	return s;
}

/* Half a round trip. Now and then one takes longer than a lease. */
nsec travel(struct world *w, const struct node *n)
{
	unsigned dice = (unsigned)(draw(w) % 1000);

	if (w->now >= CALM_AT || dice < 940)
		return between(w, MS / 10, 20 * MS);
	count(w, FAULT_DELAY);
	return dice < 990 ? between(w, 20 * MS, n->times.retry) : between(w, n->times.retry, 2 * n->times.lease);
}

bool lost(struct world *w, const struct node *n)
{
	return w->now < n->cut_until || (w->now < CALM_AT && chance(w, 2));
}

static void send_request(struct world *w, int i, struct happening h)
{
	struct node *n = &w->node[i];
	nsec give_up = h.at;

	h.kind = ARRIVE;
	h.node = i;
	h.life = n->life;
	h.reply_lost = lost(w, n);
	if (lost(w, n)) {
		count(w, FAULT_LOST_REQUEST);
	} else {
		h.at = w->now + travel(w, n);
		if (h.reply_lost)
			count(w, FAULT_LOST_REPLY);
		if (h.writing && h.reply_lost && chance(w, 50)) {
			h.at += between(w, 0, 2 * n->times.lease);
			count(w, FAULT_LATE_WRITE);
		}
		push(w, h);
		if (h.writing && w->now < CALM_AT && chance(w, h.what == LEASE_ACQUIRE ? 15 : 1)) {
			h.at += between(w, 0, n->times.lease);
			count(w, FAULT_DUPLICATE);
			push(w, h);
		}
	}
	h.kind = TIMEOUT;
	h.at = give_up;
	push(w, h);
}

static void start_read(void *arg, const struct lease_actions *a)
{
	struct world *w = ((struct at *)arg)->world;
	int i = ((struct at *)arg)->node;
	struct node *n = &w->node[i];

	n->open_op = a->op;
	n->open_writing = n->noticed = false;
	nsec left = instant_until(a->by, local(w, n));
	send_request(w, i, (struct happening){ .at = w->now + left + MS, .op = a->op });
}

/* What the backend does (lock_redis.c, lock_postgres.c): as text, since the doubt's name and the version are. */
static void name(char *out, size_t size, uint64_t n)
{
	snprintf(out, size, n ? "%" PRIu64 : "", n);
}

static void ask_about_doubt(const struct world *w, struct node *n, struct happening *h)
{
	struct instant now = local(w, n);
	struct version expected;

	name(expected.text, sizeof expected.text, h->expected);
	h->over = strtoull(lock_failover_over(&n->doubt, h->content.duration, now), NULL, 10);
	h->own = begins(h->what) && lock_failover_own(&n->doubt, &expected, now);
	h->floor = n->top_token;
	lock_failover_sends(&n->doubt, h->what != LEASE_RELEASE, h->content.duration, now);
}

static void hear_of_doubt(const struct world *w, struct node *n, const struct happening *h)
{
	struct instant now = local(w, n);
	struct version version;
	char mark[24];

	if (h->content.exists && !h->writing)
		lock_failover_lease(&n->doubt, h->content.duration);
	name(version.text, sizeof version.text, h->content.version);
	name(mark, sizeof mark, h->doubt);
	if (h->outcome == OUTCOME_OK && !h->writing)
		lock_failover_found(&n->doubt, &version);
	if (h->outcome != OUTCOME_CONFLICT)
		lock_failover_see(&n->doubt, mark, now);
	if (h->outcome == OUTCOME_OK && h->writing)
		lock_failover_wrote(&n->doubt, &version, h->what != LEASE_RELEASE, h->content.duration, h->sent_at);
}

static void say_sent(struct world *w, int i, uint64_t write)
{
	struct node *n = &w->node[i];
	struct lease_event e = { .kind = LEASE_EV_SENT, .write = write, .sent_at = local(w, n) };
	struct lease_actions a = lease_step(&n->lease, &e, e.sent_at);
	struct instant end = lease_end(&n->lease), kill = lease_kill(&n->lease);

	if (a.set & ~(unsigned)LEASE_DO_DEADLINE)
		violate(w, i, "the sending of a write decided something");
	if (!n->runs)
		return;
	bool nearer = end.boot < n->page_end.boot || end.raw < n->page_end.raw || kill.boot < n->page_kill.boot ||
	              kill.raw < n->page_kill.raw;
	if (nearer && !n->page_ended && !(a.set & LEASE_DO_DEADLINE))
		violate(w, i, "a deadline came nearer by a write and was not published before it");
	n->page_end = instant_min(n->page_end, end);
	n->page_kill = instant_min(n->page_kill, kill);
	watch_kill(w, i);
}

static void start_write(void *arg, const struct lease_actions *a)
{
	struct world *w = ((struct at *)arg)->world;
	int i = ((struct at *)arg)->node;
	struct node *n = &w->node[i];
	struct instant now = local(w, n);
	uint64_t write = ++w->writes;
	struct happening h = {
		.op = a->op, .writing = true, .what = a->write, .sent_at = now, .incarnation = n->incarnation
	};

	if (n->open_op)
		violate(w, i, "two operations at once");
	if (a->write == LEASE_RELEASE && (n->runs || n->unreaped))
		violate(w, i, "released before everything was reaped");
	h.content = fill(w, n, a->write, write);
	next_advise(w, n, a->write, &h.content);
	h.expected = n->saw_version;
	if (n->runs && n->saw_holder == n->incarnation && older(h.content.saved, n->promised) && !w->cloned)
		violate(w, i, "a renewal goes without a save that was acknowledged");
	if (w->falls_back)
		ask_about_doubt(w, n, &h);
	n->acquiring = 0;
	if (a->write == LEASE_ACQUIRE) {
		n->acquiring = write;
		n->acquiring_at = now;
		n->acquiring_renew = lease_publishes(&n->lease)->renew;
	}
	say_sent(w, i, write);
	n->open_op = a->op;
	n->open_writing = true;
	n->noticed = false;
	h.at = w->now + instant_until(a->by, now) + MS;
	if (a->write == LEASE_ACQUIRE && !h.expected) {
		struct happening *c = &w->created[w->creations++ % CREATED];
		*c = h;
		c->kind = ARRIVE;
		c->node = i;
		c->life = n->life;
		c->reply_lost = true;
	}
	send_request(w, i, h);
}

static void notify_watchers(struct world *w)
{
	for (int k = 0; k < w->nodes; k++)
		if (w->node[k].up && w->node[k].lease.watching && !lost(w, &w->node[k]))
			push(w, (struct happening){ .at = w->now + travel(w, &w->node[k]),
			                            .kind = NOTICE,
			                            .node = k,
			                            .life = w->node[k].life });
}

/* Whoever writes names the doubt that a promotion is; who has waited it out ends it. false: nobody is elected while it
 * lasts. */
static bool doubted(struct world *w, struct happening *h)
{
	struct beside *b = &w->beside;

	if (b->server != w->server) {
		b->doubt = b->server ? ++w->doubts : 0;
		b->server = w->server;
	} else if (b->doubt && b->doubt == h->over) {
		b->doubt = 0;
	}
	h->doubt = b->doubt;
	if (!begins(h->what))
		return false;
	if (b->doubt && !h->own)
		return true;
	b->token = larger(b->token, w->store.token) + 1;
	if (!w->counts)
		b->token = larger(larger(b->token, h->floor + 1), (w->now - w->behind) / 1000);
	h->content.token = b->token;
	return false;
}

static enum lease_outcome write_store(struct world *w, struct happening *h)
{
	uint64_t version = w->store.exists ? w->store.version : 0;

	if (version != h->expected)
		return OUTCOME_CONFLICT;
	if (w->falls_back && doubted(w, h))
		return OUTCOME_FAILED;
	if (h->what == LEASE_RELEASE && w->store.holder != h->incarnation)
		violate(w, h->node, "P7: a release replaced another's record");
	if (w->makes_tokens && begins(h->what))
		h->content.token = (int64_t)w->versions + 1;
	h->content.born = version ? w->store.born : w->versions + 1;
	w->past[w->writings % PAST].store = w->store;
	w->past[w->writings++ % PAST].beside = w->beside;
	w->pasts += w->pasts < PAST;
	w->store = h->content;
	w->store.version = ++w->versions;
	w->unrestored = w->unrestored && older(w->store.saved, w->acknowledged);
	notify_watchers(w);
	return OUTCOME_OK;
}

static void arrive(struct world *w, struct happening h)
{
	struct node *n = &w->node[h.node];

	h.outcome = h.writing ? write_store(w, &h) : OUTCOME_OK;
	if (h.writing && h.outcome == OUTCOME_OK && (!n->up || n->life != h.life || n->open_op != h.op))
		w->calm_since = 0;
	if (!h.writing)
		h.doubt = w->beside.doubt;
	if (h.outcome == OUTCOME_OK)
		h.content = w->store;
	h.content.elsewhere = h.content.place != w->place ? w->place : 0;
	if (h.reply_lost || !n->up || n->life != h.life)
		return;
	h.kind = REPLY;
	h.at = w->now + travel(w, n);
	push(w, h);
}

/* ---- what the checks know themselves ---- */

static void note_sight(struct world *w, struct node *n, const struct lease_sight *s, const struct content *c)
{
	bool known = c->exists && (c->born == n->saw_born || n->saw.kind == SIGHT_ABSENT) && !c->elsewhere && !w->fell;

	if (!n->looked || n->saw.kind != s->kind || n->saw.id != s->id) {
		n->saw_at = local(w, n);
		if (!known && n->lease.had_record) {
			n->gone = true;
			n->gone_at = n->saw_at;
		}
	}
	n->saw_born = c->born;
	n->looked = true;
	n->saw = *s;
	n->saw_content = *c;
	n->saw_token = c->exists ? c->token : 0;
	n->saw_count = c->exists ? c->count : 0;
	n->saw_holder = c->exists ? c->holder : 0;
	if (!s->mine && n->saw_token > n->top_token)
		n->top_token = n->saw_token;
	n->saw_version = c->exists ? c->version : 0;
	n->saw_saved = c->exists ? c->saved : (struct saved){ 0 };
	if (!s->mine || n->saw_count <= n->kept_count)
		return;
	n->kept = n->saw_saved;
	n->kept_count = n->saw_count;
}

static void check_standby(struct world *w, int i)
{
	struct node *n = &w->node[i];
	struct lease *l = &n->lease;
	struct instant now = local(w, n);

	if (l->phase != PHASE_FOLLOWING || l->barred || l->busy || l->look_due || l->finish || l->paused ||
	    l->unreaped || n->asks || (n->saw.kind != SIGHT_HELD && n->saw.kind != SIGHT_RELEASED) || n->saw.mine ||
	    n->saw.reclaim || n->saw.elsewhere)
		return;
	bool held = n->saw.kind == SIGHT_HELD;
	nsec hold = held ? lease_hold_back(&n->times) : lease_hold_back_released(&n->times, l->watching);
	nsec whole = (held ? n->saw.duration : 0) + (n->saw.other_first ? hold : 0);
	nsec left = whole - elapsed_standby(n->saw_at, now), out = l->out_for - elapsed_standby(l->out_since, now);
	nsec longest = l->longest > n->times.lease ? l->longest : n->times.lease;
	nsec gone = n->gone ? longest - elapsed_standby(n->gone_at, now) : 0;
	if (gone > left)
		left = gone;
	if (out > left)
		left = out;
	if (left < 0)
		left = 0;
	nsec pace = instant_until(l->next_try, now);
	if (pace > left)
		left = pace;
	if (lease_wait(l, now) > left + MS)
		violate(w, i, "a standby would not try when its wait ends");
}

static void do_leader(void *arg, const struct lease_actions *a)
{
	struct node *n = node_of(arg);
	uint64_t who = a->self ? ~n->lease.term : n->saw.who;

	if (n->reported_any && n->reported == who)
		violate_at(arg, "P5: the same leader was reported twice");
	n->reported_any = true;
	n->reported = who;
}

static void do_no_leader(void *arg, const struct lease_actions *a)
{
	struct node *n = node_of(arg);

	(void)a;
	if (!n->reported_any)
		violate_at(arg, "P5: no_leader without a leader");
	n->reported_any = false;
}

/* ---- steps ---- */

static void arm(struct world *w, int i)
{
	struct node *n = &w->node[i];
	nsec wait = lease_wait(&n->lease, local(w, n));

	n->timer = ++w->order;
	if (wait < 1000 * SEC)
		push(w, (struct happening){ .at = w->now + wait + MS / 20,
		                            .kind = TICK,
		                            .node = i,
		                            .life = n->life,
		                            .stamp = n->timer });
}

static void do_twin(void *arg, const struct lease_actions *a)
{
	struct at *at = arg;
	struct node *n = node_of(at);

	(void)a;
	n->incarnation = ++at->world->lives;
	n->saw.mine = false;
	next_renamed(at->world, at->node);
	say(at->world, at->node, "met a copy, is now", n->incarnation);
}

static void do_saved(void *arg, const struct lease_actions *a)
{
	struct at *at = arg;
	struct node *n = node_of(at);

	check_saved(at->world, at->node, a->saved);
	if (a->saved >= n->checkpoint)
		n->checkpoint = 0;
}

static void do_unsaved(void *arg, const struct lease_actions *a)
{
	struct at *at = arg;
	struct node *n = node_of(at);

	(void)a;
	say(at->world, at->node, "not saved, up to", n->save);
	n->checkpoint = 0;
}

static void do_deadline(void *arg, const struct lease_actions *a)
{
	struct at *at = arg;
	struct node *n = node_of(at);
	struct instant was = n->page_kill;

	(void)a;
	if (n->page_ended)
		return;
	n->page_end = lease_end(&n->lease);
	n->page_kill = lease_kill(&n->lease);
	if (n->page_kill.boot < was.boot || n->page_kill.raw < was.raw)
		watch_kill(at->world, at->node); /* nearer: the guard is told; farther: it finds out when it looks */
}

static void do_fence(void *arg, const struct lease_actions *)
{
	struct at *at = arg;

	fence_begin(at->world, at->node);
}

static void do_ask(void *arg, const struct lease_actions *a)
{
	struct at *at = arg;
	struct world *w = at->world;

	(void)a;
	push(w, (struct happening){ .at = w->now + between(w, MS, 50 * MS),
	                            .kind = ANSWER,
	                            .node = at->node,
	                            .life = node_of(at)->life });
}

static void do_finished(void *arg, const struct lease_actions *a)
{
	struct at *at = arg;
	struct world *w = at->world;
	struct node *n = node_of(at);

	if (!n->up)
		return;
	say(w, at->node, a->left ? "leaves, lease left" : "leaves", 0);
	n->up = false;
	push(w, (struct happening){ .at = w->now + between(w, 100 * MS, 3 * SEC),
	                            .kind = RESTART,
	                            .node = at->node,
	                            .life = n->life });
}

static const struct lease_effects effects = {
	.twin = do_twin,
	.saved = do_saved,
	.unsaved = do_unsaved,
	.stop = stop_script,
	.start = start_script,
	.fence = do_fence,
	.deadline = do_deadline,
	.ask = do_ask,
	.read = start_read,
	.write = start_write,
	.leader = do_leader,
	.no_leader = do_no_leader,
	.finished = do_finished,
};

/* Somebody leads within a lease and a half, once nothing hinders that any more: all processes run, and no write lands
 * that its sender has given up. Not where a store fell back: it lets nobody be elected for a while. */
static void watch_calm(struct world *w)
{
	nsec longest = 0;

	if (w->fell)
		return;
	for (int i = 0; i < w->nodes; i++) {
		struct node *n = &w->node[i];
		nsec out = n->lease.out_for - elapsed_standby(n->lease.out_since, local(w, n));
		if (n->runs || n->fencing || !n->up || frozen(w, n) || w->now < n->cut_until || n->unreaped ||
		    out > 0) {
			w->calm_since = 0;
			return;
		}
		nsec lease = n->lease.longest > n->times.lease ? n->lease.longest : n->times.lease;
		longest = lease > longest ? lease : longest;
	}
	if (!w->calm_since)
		w->calm_since = w->now;
	if (w->now - w->calm_since > longest + longest / 2)
		violate(w, -1, "nobody leads a lease and a half after nothing hinders it any more");
}

/* The look that finds our own acquiring write in the store, while that is still wanted and in time. (After a deletion
 * it may be one that we had rightly given up.) */
static bool read_back(struct world *w, const struct node *n, const struct lease_event *e)
{
	const struct lease *l = &n->lease;

	return w->deletions == 0 && !w->fell && !w->cloned && e->kind == LEASE_EV_READ_DONE &&
	       e->outcome == OUTCOME_OK && l->busy && e->op == l->op && l->phase == PHASE_FOLLOWING && !l->finish &&
	       !l->unreaped && l->out_for == 0 && e->sight.kind == SIGHT_HELD && e->sight.mine &&
	       e->sight.write == n->acquiring && elapsed_holder(n->acquiring_at, local(w, n)) < n->acquiring_renew;
}

static void step(struct world *w, int i, struct lease_event e)
{
	struct node *n = &w->node[i];
	bool loss = e.kind == LEASE_EV_READ_DONE && e.outcome == OUTCOME_OK && e.op == n->lease.op && n->lease.busy &&
	            !e.sight.mine && lease_phase(&n->lease) == PHASE_LEADING;
	bool regained = read_back(w, n, &e);
	fence_bar(w, i);
	struct lease_actions a = lease_step(&n->lease, &e, local(w, n));

	if (loss && lease_phase(&n->lease) == PHASE_LEADING)
		violate(w, i, "a definite loss did not end the term in the same step");
	if (lease_phase(&n->lease) == PHASE_LEADING && instant_passed(lease_end(&n->lease), local(w, n)))
		violate(w, i, "a term goes on past its renew deadline");
	if (regained && lease_phase(&n->lease) != PHASE_LEADING)
		violate(w, i, "an acquisition whose reply was lost was not recognised");
	lease_carry_out(&a, &effects, &(struct at){ w, i });
	if (!n->up)
		return;
	check_standby(w, i);
	arm(w, i);
	next_follow(w, i);
}

static void boot(struct world *w, int i)
{
	struct node *n = &w->node[i];
	bool same_identity = n->identity && chance(w, 30);

	n->up = true;
	n->life = n->incarnation = ++w->lives;
	n->copied = n->copied_term = n->noticed = false;
	n->identity = same_identity                 ? n->identity
	              : chance(w, 10) && !w->fences ? w->node[0].identity
	                                            : n->life; /* or somebody else's */
	n->looked = n->open = n->reported_any = n->unreaped = false;
	n->saw = (struct lease_sight){ .kind = SIGHT_ABSENT };
	n->saw_token = n->top_token = 0;
	n->saw_version = n->saw_count = n->saw_holder = n->saw_born = 0;
	n->gone = false;
	n->kept_count = 0;
	n->doubt = (struct lock_failover){ .mark = "" };
	n->saw_saved = (struct saved){ 0 };
	n->save = n->checkpoint = 0;
	n->open_op = 0;
	lease_init(&n->lease, &n->times, false, n->asks, (uint32_t)draw(w));
	lease_watching(&n->lease, chance(w, 50));
	next_boot(w, i);
	fence_boot(w, i);
	say(w, i, "starts, life", n->life);
	step(w, i, (struct lease_event){ .kind = LEASE_EV_CAMPAIGN });
}

/* ---- faults ---- */

static void set_times(struct world *w, struct node *n)
{
	nsec l = w->rolling ? (chance(w, 50) ? 9 * SEC : 3 * SEC) : 3 * SEC;

	n->times = (struct lease_times){ .lease = l };
	lease_times_default(&n->times);
}

static int leader_or_any(struct world *w)
{
	for (int i = 0; i < w->nodes; i++)
		if (w->node[i].up && w->node[i].runs && chance(w, 70))
			return i;
	return (int)(draw(w) % (uint64_t)w->nodes);
}

static void crash(struct world *w, int i)
{
	struct node *n = &w->node[i];

	count(w, FAULT_CRASH);
	say(w, i, "crashes", n->life);
	n->up = false;
	n->timer = ++w->order;
	nsec dead = n->runs ? between(w, MS, 30 * MS) : MS;
	if (n->runs) {
		n->page_kill = (struct instant){ 0 };
		push(w, (struct happening){ .at = w->now + dead, .kind = GUARD, .node = i, .stamp = n->script });
	}
	if (!n->copied && chance(w, 30)) /* of a machine that was cloned there is none that is worth anything */
		push(w, (struct happening){ .at = w->now + dead + between(w, 100 * MS, 400 * MS),
		                            .kind = EVIDENCE,
		                            .node = i,
		                            .life = n->life });
	push(w, (struct happening){ .at = w->now + dead + between(w, 100 * MS, 4 * SEC),
	                            .kind = RESTART,
	                            .node = i,
	                            .life = n->life });
}

void end_of_will(struct world *w, int i, enum lease_reason why, nsec out)
{
	step(w, i, (struct lease_event){ .kind = LEASE_EV_END, .reason = why, .sit_out = out });
}

void renew_now(struct world *w, int i)
{
	step(w, i, (struct lease_event){ .kind = LEASE_EV_RENEW });
}

void fence_done(struct world *w, int i)
{
	step(w, i, (struct lease_event){ .kind = LEASE_EV_FENCED });
}

void look_now(struct world *w, int i, bool soon)
{
	step(w, i, (struct lease_event){ .kind = soon ? LEASE_EV_SOON : LEASE_EV_CHANGED });
}

static void configure(struct world *w, int i)
{
	struct node *n = &w->node[i];

	count(w, FAULT_CONFIGURE);
	set_times(w, n);
	lease_configure(&n->lease, &n->times);
	say(w, i, "configured, lease ms", (uint64_t)(n->times.lease / MS));
	step(w, i, (struct lease_event){ .kind = LEASE_EV_TICK });
}

/* Absence has no version: who never saw a record takes an absent one at once, whoever deleted it. A deletion is
 * survived only by those who had looked, and knew the longest lease; so nobody new, and no mixed settings, come near
 * one. Nor does one whose create has conflicted, and which has not looked since: if that create lands again, it takes
 * it for its own. */
static bool all_have_looked(const struct world *w)
{
	for (int i = 0; i < w->nodes; i++)
		if (!w->node[i].up || !w->node[i].lease.had_record || w->node[i].lease.met)
			return false;
	return true;
}

/* Whoever has seen no other record since a write takes the same record for the same, and counts its wait from then. */
static bool somebody_sees(const struct world *w, uint64_t write)
{
	for (int i = 0; i < w->nodes; i++)
		if (w->node[i].up && w->node[i].saw.kind == SIGHT_HELD && w->node[i].saw.write == write)
			return true;
	return false;
}

/* Nothing tells a create from one that the network, or another endpoint of the store, has delivered before. Once the
 * record has been deleted, it makes one of who may have given up long ago. */
static void land_again(struct world *w)
{
	for (unsigned i = 0; i < w->creations && i < CREATED; i++) {
		struct happening h = w->created[i];
		if (chance(w, 50) || (!w->makes_tokens && somebody_sees(w, h.content.write)))
			continue;
		count(w, FAULT_LANDED_AGAIN);
		h.at = w->now + (chance(w, 50) ? travel(w, &w->node[h.node]) : between(w, 0, 3 * SEC));
		push(w, h);
	}
}

/* What a person deletes is often the record of somebody who is cut off. */
static void cut_off_holder(struct world *w)
{
	for (int i = 0; i < w->nodes; i++) {
		struct node *n = &w->node[i];
		if (!n->up || n->incarnation != w->store.holder || chance(w, 50))
			continue;
		count(w, FAULT_PARTITION);
		n->cut_until = w->now + between(w, 500 * MS, 3 * n->times.lease);
		say(w, i, "cut off for ms", (uint64_t)((n->cut_until - w->now) / MS));
	}
}

static void harm_record(struct world *w, enum fault f)
{
	if (f == FAULT_DELETED && (w->fences || w->rolling || w->falls_back || !all_have_looked(w)))
		return;
	if (!w->store.exists || w->store.holder == 0 || (f != FAULT_EDITED && w->deletions++ > 0))
		return;
	count(w, f);
	say(w, -1, fault_names[f], w->store.holder);
	if (f == FAULT_DELETED) {
		cut_off_holder(w);
		w->deleted = w->store.saved;
		w->store = (struct content){ 0 };
		w->acknowledged = (struct saved){ 0 };
		w->closed_until = w->now + 20 * SEC;
		land_again(w);
	}
	if (f == FAULT_EMPTIED)
		w->store.holder = 0;
	w->store.version = ++w->versions; /* edited: a label, nothing that counts */
	notify_watchers(w);
}

/* The whole machine, as it is: what was on its way to it reaches the original alone. Not while an acquisition is
 * unanswered, which both would find in the record and rightly call their own; it is the same as a clone of a term that
 * runs. */
static void clone(struct world *w, int i)
{
	struct node *n = &w->node[i], *c = &w->node[w->nodes];

	if (w->cloned || n->runs != n->open || (!n->runs && n->lease.limbo_len > 0) || n->told || n->unreaped ||
	    w->now < n->asleep_until)
		return;
	count(w, FAULT_CLONED);
	say(w, i, "is cloned, the clone is", (uint64_t)w->nodes);
	w->cloned = true;
	n->copied = true;
	n->common = n->lease.writes;
	n->copied_term = n->runs;
	*c = *n;
	c->life = ++w->lives;
	c->script = ++w->lives;
	int k = w->nodes++;
	if (c->open_op)
		push(w, (struct happening){ .at = w->now + c->times.retry,
		                            .kind = TIMEOUT,
		                            .node = k,
		                            .life = c->life,
		                            .op = c->open_op,
		                            .writing = c->open_writing });
	if (c->runs) {
		watch_kill(w, k);
		save_later(w, k, 0);
	}
	arm(w, k);
	next_cloned(w, k);
}

/* The primary dies, and the copy that is promoted is some writes behind; its clock, too. */
static void fall_back(struct world *w)
{
	if (!w->falls_back || !w->pasts)
		return;
	count(w, FAULT_FELL_BACK);
	unsigned back = 1 + (unsigned)(draw(w) % w->pasts);
	w->writings -= back;
	w->pasts -= back;
	w->store = w->past[w->writings % PAST].store;
	w->beside = w->past[w->writings % PAST].beside;
	say(w, -1, "fell back by writes", back);
	/* Or the copy is restored as a store of another name. Then no server has a doubt. */
	if (w->store.exists && chance(w, 50)) {
		w->place++;
		w->store.version = ++w->versions;
	} else {
		w->server++;
	}
	w->behind = between(w, 0, 120 * SEC);
	w->fell = true;
	w->unrestored = w->unrestored || older(w->store.saved, w->acknowledged);
	notify_watchers(w);
}

static void fault_in(struct world *w, int i)
{
	struct node *n = &w->node[i];

	if (next_fault(w, i))
		return;
	if (w->clones && chance(w, 10)) {
		clone(w, i);
		return;
	}
	if (w->falls_back && chance(w, 15)) {
		fall_back(w);
		return;
	}
	switch (draw(w) % 13) {
	case 0:
	case 1:
		count(w, FAULT_PAUSE); /* of the elector alone: its script goes on */
		n->frozen_until = w->now + between(w, 100 * MS, 2 * n->times.lease);
		say(w, i, "paused for ms", (uint64_t)((n->frozen_until - w->now) / MS));
		return;
	case 2:
		if (n->slewed)
			return; /* a clock that is slewed while the other one sleeps is beyond what the rules promise */
		count(w, FAULT_SUSPEND);
		n->asleep_until = w->now + between(w, 100 * MS, 2 * n->times.lease);
		n->slept += n->asleep_until - w->now;
		push(w, (struct happening){ .at = n->asleep_until, .kind = GUARD, .node = i, .stamp = n->script });
		say(w, i, "suspended for ms", (uint64_t)((n->asleep_until - w->now) / MS));
		return;
	case 3:
	case 4:
		crash(w, i);
		return;
	case 5:
		count(w, FAULT_RESIGN);
		end_of_will(w, i, LEASE_RESIGNED, between(w, 0, 2 * n->times.lease));
		return;
	case 6:
		count(w, FAULT_RELOAD);
		if (w->rolling)
			configure(w, i);
		end_of_will(w, i, LEASE_RELOAD, 0);
		return;
	case 7:
	case 8:
		configure(w, i);
		return;
	case 9:
		count(w, FAULT_SHUTDOWN);
		end_of_will(w, i, LEASE_SHUTDOWN, NSEC_NEVER);
		return;
	case 10:
		count(w, FAULT_PARTITION);
		n->cut_until = w->now + between(w, 500 * MS, 3 * n->times.lease);
		say(w, i, "cut off for ms", (uint64_t)((n->cut_until - w->now) / MS));
		return;
	case 11:
		harm_record(w, chance(w, 50) ? FAULT_DELETED : FAULT_EMPTIED);
		return;
	default:
		harm_record(w, FAULT_EDITED);
		return;
	}
}

static void fault_due(struct world *w)
{
	int i = leader_or_any(w);

	if (w->now >= CALM_AT)
		return;
	push(w, (struct happening){ .at = w->now + between(w, 300 * MS, 3 * SEC), .kind = FAULT_DUE, .node = -1 });
	if (w->node[i].up && !frozen(w, &w->node[i]))
		fault_in(w, i);
}

/* ---- the world goes on ---- */

static void reply(struct world *w, const struct happening *h)
{
	struct node *n = &w->node[h->node];
	bool stale = h->op != n->open_op;
	struct lease_event e = { .op = h->op, .outcome = h->outcome, .sent_at = h->sent_at };

	bool copy = false, noticed = !stale && n->noticed && !h->writing;

	if (w->falls_back && !stale)
		hear_of_doubt(w, n, h);
	if (h->outcome == OUTCOME_OK) {
		e.sight = look(w, n, &h->content);
		copy = !stale && e.sight.mine && h->content.author != h->node && h->content.count > n->common &&
		       h->content.count >= n->lease.writes;
		if (!stale)
			note_sight(w, n, &e.sight, &h->content);
	}
	if (!stale)
		n->open_op = 0;
	if (!stale && h->outcome == OUTCOME_OK)
		next_hear(w, h->node, &h->content);
	e.kind = h->writing ? LEASE_EV_WRITE_DONE : LEASE_EV_READ_DONE;
	if (!stale && h->writing && h->outcome == OUTCOME_OK)
		next_poke(w, h->node, &h->content);
	step(w, h->node, e);
	if (copy && (lease_is_leading(&n->lease, local(w, n)) || n->incarnation == h->content.holder))
		violate(w, h->node, "a copy of this process writes, and it goes on as the same");
	if (noticed && n->up && n->open_op == 0 &&
	    (n->lease.phase == PHASE_FOLLOWING || n->lease.phase == PHASE_LEADING) && !n->lease.finish)
		violate(w, h->node, "what changed during a look was not looked at");
}

static void timeout(struct world *w, const struct happening *h)
{
	struct node *n = &w->node[h->node];

	if (h->op != n->open_op)
		return;
	n->open_op = 0;
	step(w, h->node,
	     (struct lease_event){ .kind = h->writing ? LEASE_EV_WRITE_DONE : LEASE_EV_READ_DONE,
	                           .op = h->op,
	                           .sent_at = h->sent_at,
	                           .outcome = h->writing ? OUTCOME_UNKNOWN : OUTCOME_FAILED });
}

/* On the guard's clock: is the deadline the page shows past? It is nobody's message, and an elector's pause is nothing
 * to it. */
static void guard(struct world *w, const struct happening *h)
{
	struct node *n = &w->node[h->node];

	if (!n->runs || h->stamp != n->script)
		return;
	if (!instant_passed(n->page_kill, local(w, n))) {
		watch_kill(w, h->node);
		return;
	}
	n->page_ended = true;
	/* A machine that wakes up too late looks at the deadline before anything else runs. */
	nsec takes = w->now == n->asleep_until ? 0 : between(w, MS, SLOWEST_KILL);
	push(w, (struct happening){
			.at = w->now + takes, .kind = SCRIPT_ENDS, .node = h->node, .stamp = n->script, .life = 1 });
	n->page_kill = (struct instant){ NSEC_NEVER, NSEC_NEVER };
}

static void script_ends(struct world *w, const struct happening *h)
{
	struct node *n = &w->node[h->node];
	bool killed = h->life == 1;

	if (!n->runs || h->stamp != n->script)
		return;
	bool bad = killed && n->up && w->now < CALM_AT && chance(w, 3);
	if (bad)
		count(w, FAULT_UNREAPED);
	script_gone(w, h->node, !bad);
}

/* Proof of death waits for the death of everything. */
static void evidence(struct world *w, const struct happening *h)
{
	if (w->node[h->node].runs) {
		struct happening later = *h;
		later.at = w->now + 10 * MS;
		push(w, later);
		return;
	}
	fence_proved(w, h->node, h->life);
	for (int k = 0; k < w->nodes; k++) {
		struct node *o = &w->node[k];
		if (!o->up || !o->looked || o->saw.kind != SIGHT_HELD || (o->saw.who >> 20) != h->life)
			continue;
		o->proved = o->saw.id;
		step(w, k, (struct lease_event){ .kind = LEASE_EV_HOLDER_DEAD, .id = o->saw.id });
	}
}

static bool to_the_elector(enum kind k)
{
	return k == TICK || k == REPLY || k == TIMEOUT || k == NOTICE || k == REAPED || k == GONE || k == ANSWER ||
	       k == SAVE || k == NOTE_TICK || k == NOTE_REPLY || k == NOTE_TIMEOUT || k == NOTE_END ||
	       k == NOTE_RENEW || k == POKE || k == POKE_LOOK || k == FENCE_ENDS;
}

/* A sleeping machine does nothing; a stopped elector gets everything at once when it goes on. */
static bool postponed(struct world *w, struct happening h)
{
	struct node *n = &w->node[h.node];
	bool asleep = w->now < n->asleep_until && (to_the_elector(h.kind) || h.kind == SCRIPT_ENDS || h.kind == GUARD);
	bool stopped = w->now < n->frozen_until && to_the_elector(h.kind);

	if (!asleep && !stopped)
		return false;
	h.at = asleep ? n->asleep_until : n->frozen_until;
	push(w, h);
	return true;
}

static void happen(struct world *w, struct happening h)
{
	bool of_a_node = h.node >= 0;
	struct node *n = &w->node[of_a_node ? h.node : 0];

	if (of_a_node && h.kind != ARRIVE && h.kind != NOTE_ARRIVE && h.kind != RESTART && h.kind != EVIDENCE &&
	    postponed(w, h))
		return;
	if (of_a_node && to_the_elector(h.kind) && (!n->up || n->life != h.life))
		return;
	switch (h.kind) {
	case TICK:
		if (h.stamp == n->timer)
			step(w, h.node, (struct lease_event){ .kind = LEASE_EV_TICK });
		return;
	case ARRIVE:
		arrive(w, h);
		return;
	case REPLY:
		reply(w, &h);
		return;
	case TIMEOUT:
		timeout(w, &h);
		return;
	case NOTICE:
		n->noticed = n->open_op != 0;
		step(w, h.node, (struct lease_event){ .kind = LEASE_EV_CHANGED });
		return;
	case SCRIPT_ENDS:
		script_ends(w, &h);
		return;
	case GUARD:
		guard(w, &h);
		return;
	case GONE:
		if (h.op)
			fence_gone(w, h.node);
		step(w, h.node, (struct lease_event){ .kind = LEASE_EV_STOPPED, .reaped = h.op });
		n->open = false;
		return;
	case FENCE_ENDS:
		fence_ends(w, &h);
		return;
	case REAPED:
		n->unreaped = false;
		fence_gone(w, h.node);
		step(w, h.node, (struct lease_event){ .kind = LEASE_EV_STOPPED, .reaped = true });
		return;
	case RESTART:
		if (!n->up && !n->runs && n->life == h.life && w->now >= w->closed_until)
			boot(w, h.node);
		else if (!n->up && n->life == h.life)
			push(w, (struct happening){
					.at = w->now + 100 * MS, .kind = RESTART, .node = h.node, .life = h.life });
		return;
	case FAULT_DUE:
		fault_due(w);
		return;
	case EVIDENCE:
		evidence(w, &h);
		return;
	case SAVE:
		save(w, &h);
		return;
	case NOTE_TICK:
	case NOTE_ARRIVE:
	case NOTE_REPLY:
	case NOTE_TIMEOUT:
	case NOTE_END:
	case NOTE_RENEW:
	case POKE:
	case POKE_LOOK:
		next_happen(w, &h);
		return;
	case ANSWER:
		step(w, h.node,
		     (struct lease_event){ .kind = LEASE_EV_ANSWER, .yes = w->now >= CALM_AT || chance(w, 70) });
		return;
	}
}

/* The two clocks of a node differ from true time by at most what D allows between any two nodes. */
static void make_node(struct world *w, int i)
{
	struct node *n = &w->node[i];

	set_times(w, n);
	double width = lease_drift_tolerance(&n->times) / 2.05;
	n->raw_rate = 1 + spread(w, width);
	n->slewed = w->slewing; /* a time daemon may slew CLOCK_BOOTTIME by 8.3%, far more than any lease allows for */
	n->boot_rate = n->slewed ? 1 + (chance(w, 50) ? 0.083 : -0.083) : 1 + spread(w, width);
	n->boot_base = between(w, SEC, 1000000 * SEC);
	n->raw_base = between(w, SEC, 1000000 * SEC);
	n->asks = chance(w, 20);
	next_make(w, i);
	fence_make(w, i);
	push(w, (struct happening){ .at = between(w, 0, 2 * SEC), .kind = RESTART, .node = i });
}

static void judge(struct world *w, int candidates)
{
	struct sim_result *r = &w->result;
	unsigned kinds = 0;

	for (int f = 0; f < FAULTS; f++)
		kinds += r->faults[f] > 0;
	r->virtual_ms = w->now / MS;
	r->node_ms = r->virtual_ms * candidates;
	if (!r->violated && w->now - w->last_act > 0) {
		bool leading = false;
		for (int i = 0; i < w->nodes; i++) {
			if (leading && w->node[i].runs)
				violate(w, i, "two lead although all faults have ceased");
			leading = leading || w->node[i].runs;
		}
		if (!leading)
			violate(w, -1, "nobody leads although all faults have ceased");
	}
	r->counts = r->virtual_ms >= 60000 && r->terms >= 3 && r->handovers >= 1 && kinds >= 4;
}

struct sim_result sim_run(uint64_t seed, bool trace)
{
	static struct world w;

	memset(&w, 0, offsetof(struct world, heap));
	w.random = seed * UINT64_C(0xd1342543de82ef95) + 1;
	w.trace = trace;
	w.rolling = chance(&w, 30);
	w.slewing = chance(&w, 30);
	w.clones = chance(&w, 15);
	w.falls_back = !w.clones && !w.rolling && chance(&w, 25);
	w.counts = w.falls_back && chance(&w, 50);
	w.makes_tokens = !w.falls_back && seed % 2;
	w.server = 1;
	w.nexts = seed % 6 == 0;
	w.fences = seed % 3 == 2 && !w.clones && !w.falls_back;
	w.noisy = seed % 12 == 0;
	w.nodes = 3 + (int)(draw(&w) % 3);
	int candidates = w.nodes;
	for (int i = 0; i < w.nodes; i++)
		make_node(&w, i);
	push(&w, (struct happening){ .at = SEC, .kind = FAULT_DUE, .node = -1 });
	while (w.heap_len > 0 && !w.result.violated) {
		struct happening h = pop(&w);
		if (h.at > END_AT)
			break;
		w.now = h.at;
		happen(&w, h);
		if (w.now >= CALM_AT)
			watch_calm(&w);
	}
	judge(&w, candidates);
	fence_fini(&w);
	return w.result;
}
