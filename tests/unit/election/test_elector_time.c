/* What an elector does over minutes, on a simulated store and simulated time, where this test may turn the store's
 * answers into others: troubles that last, tokens that fall, terms that end while their user calls in, deadlines that
 * come nearer. Every moment of it is exact, and takes no time. */
#include "election/elector.h"

#include "base/buf.h"
#include "base/mem.h"
#include "loop/timeline.h"
#include "nobody.h"
#include "simulation/sim_store.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>

#define LOCK "sim:lock"
#define NODES 2

/* What a node's store says instead of what it did. */
struct twist {
	enum lock_outcome read, write; /* LOCK_OK: the store's own answer */
	enum err_code code;
	bool lost;                  /* of writes: they are done, and then answered by `write` */
	int64_t token;              /* of what is acquired, and of what is read; 0: the record's */
	const struct record *shown; /* what reads find instead; NULL: what is there */
};

struct node {
	struct proof_self self;
	struct lock_env env;
	struct sim_link link;
	struct lock_ops ops;
	const struct lock_ops *store;
	struct twist twist;
	lock_done_fn *done;
	void *arg;
	struct elector *elector;
	char identity[8];
	bool stays;   /* the script has not stopped when `stop` returns */
	bool durable; /* of the last write */
	int writes, leads, stops, renewals, saved, unsaved, finished, hopeless, handing, handed, not_handed, nexts,
		asks, late; /* late: of handed, without a gap that is known */
	char why[200];      /* of not_handed, the last one */
	enum lease_reason reason;
	int64_t token;
	nsec max_term;      /* to be set before it starts; 0: none */
	struct instant end; /* as it was published last */
	char order[60]; /* D: a deadline was published, w: a write was sent, a, z: it was announced to lead, or not */
};

static struct world {
	double now;
	struct clock_virtual clock;
	struct timeline time;
	struct sim_store *store;
	struct node node[NODES];
} w;

/* ---- the log ---- */

static struct {
	char event[32];
	int count;
	double at;
} said[64];

static void on_log(void *arg, enum log_level level, const struct log_about *about, const char *event, const char *text)
{
	(void)arg, (void)level, (void)about, (void)text;
	for (size_t i = 0; i < sizeof said / sizeof *said; i++)
		if (!*said[i].event || strcmp(said[i].event, event) == 0) {
			snprintf(said[i].event, sizeof said[i].event, "%s", event);
			said[i].count++;
			said[i].at = w.now;
			return;
		}
}

static int times_said(const char *event)
{
	for (size_t i = 0; i < sizeof said / sizeof *said; i++)
		if (strcmp(said[i].event, event) == 0)
			return said[i].count;
	return 0;
}

/* ---- the lock ---- */

static void note(struct node *n, char what)
{
	size_t len = strlen(n->order);

	if (len < sizeof n->order - 1)
		n->order[len] = what;
}

static void answer(struct node *n, const struct lock_result *r, enum lock_outcome twist)
{
	struct lock_result other = *r;
	struct record with_token;

	record_init(&with_token);
	if (twist != LOCK_OK) {
		other = (struct lock_result){ .outcome = twist, .sent_at = r->sent_at };
		err_set(&other.err, n->twist.code, "the store says %s", lock_outcome_name(twist));
	}
	if (twist == LOCK_OK && n->twist.token)
		other.token = n->twist.token;
	if (other.record && n->twist.shown)
		other.record = n->twist.shown;
	if (other.record && !other.record->token && n->twist.token) { /* as lock_op_found_record */
		record_copy(&with_token, other.record);
		with_token.token = n->twist.token;
		other.record = &with_token;
	}
	n->done(n->arg, &other);
	record_fini(&with_token);
}

static void on_read(void *arg, const struct lock_result *r)
{
	struct node *n = arg;

	answer(n, r, n->twist.read);
}

static void on_write(void *arg, const struct lock_result *r)
{
	struct node *n = arg;

	answer(n, r, n->twist.write);
}

static struct node *node_of(const struct lock *l)
{
	for (int i = 0; i < NODES; i++)
		if (l->ops == &w.node[i].ops)
			return &w.node[i];
	abort();
}

static void node_read(struct lock *l, struct instant by, lock_done_fn *done, void *arg)
{
	struct node *n = node_of(l);

	n->done = done;
	n->arg = arg;
	n->store->read(l, by, on_read, n);
}

/* What failed was not done: then the store is only read. */
static void node_write(struct lock *l, const struct record *r, const struct version *expected, bool durable,
                       struct instant by, lock_done_fn *done, void *arg)
{
	struct node *n = node_of(l);

	note(n, 'w');
	n->writes++;
	n->durable = durable;
	n->done = done;
	n->arg = arg;
	if (n->twist.write == LOCK_OK || n->twist.lost)
		n->store->write(l, r, expected, durable, by, on_write, n);
	else
		n->store->read(l, by, on_write, n);
}

static void node_announce(struct lock *l, const char *identity, bool leads)
{
	(void)identity;
	note(node_of(l), leads ? 'a' : 'z');
}

/* ---- the elector's user ---- */

static void on_lead(void *arg, const struct elector_term *t)
{
	struct node *n = arg;

	n->leads++;
	n->token = t->token;
	n->end = t->end;
}

static void on_deadline(void *arg, struct instant end, struct instant kill)
{
	struct node *n = arg;

	(void)kill;
	note(n, 'D');
	n->end = end;
}

static void on_stop(void *arg, enum lease_reason reason, bool held, struct instant stop_by)
{
	struct node *n = arg;

	(void)held, (void)stop_by;
	n->stops++;
	n->reason = reason;
	if (!n->stays)
		elector_stopped(n->elector, true);
}

static void on_saved(void *arg, uint64_t save, bool good)
{
	struct node *n = arg;

	if (good)
		n->saved = (int)save;
	else
		n->unsaved++;
}

static void on_renewed(void *arg, nsec took)
{
	struct node *n = arg;

	(void)took;
	n->renewals++;
}

static void on_hopeless(void *arg, const char *why)
{
	struct node *n = arg;

	(void)why;
	n->hopeless++;
}

static void on_next(void *arg, bool is, bool leads)
{
	struct node *n = arg;

	(void)leads;
	n->nexts += is;
}

static void on_hand_over(void *arg, enum next_why why)
{
	struct node *n = arg;

	(void)why;
	n->handing++;
}

static void on_handed_over(void *arg, uint64_t ticket, const struct handover_result *r)
{
	struct node *n = arg;

	(void)ticket;
	n->handed += r->end == HANDOVER_DONE && r->gap >= 0;
	n->late += r->end == HANDOVER_DONE && r->gap < 0;
	n->not_handed += r->end == HANDOVER_NOT;
	snprintf(n->why, sizeof n->why, "%s", r->why ? r->why : "");
}

static void on_ask(void *arg)
{
	struct node *n = arg;

	n->asks++;
	elector_answer(n->elector, true, NULL, NULL);
}

static void on_finished(void *arg, bool left)
{
	struct node *n = arg;

	(void)left;
	n->finished++;
}

static const struct elector_callbacks callbacks = {
	.lead = on_lead,
	.deadline = on_deadline,
	.stop = on_stop,
	.leader = no_leader,
	.no_leader = nobody_leads,
	.saved = on_saved,
	.renewed = on_renewed,
	.hopeless = on_hopeless,
	.next = on_next,
	.handed_over = on_handed_over,
	.finished = on_finished,
};

/* The callbacks of a user that is asked before it leads. */
static const struct elector_callbacks asked_callbacks = {
	.lead = on_lead,
	.deadline = on_deadline,
	.stop = on_stop,
	.leader = no_leader,
	.no_leader = nobody_leads,
	.ask = on_ask,
	.handed_over = on_handed_over,
	.finished = on_finished,
};

/* The callbacks of a user that ends a term itself when it is to be handed over. */
static const struct elector_callbacks patient_callbacks = {
	.lead = on_lead,
	.deadline = on_deadline,
	.stop = on_stop,
	.leader = no_leader,
	.no_leader = nobody_leads,
	.hand_over = on_hand_over,
	.finished = on_finished,
};

/* A user of the fewest. */
static const struct elector_callbacks few_callbacks = {
	.lead = on_lead,
	.deadline = on_deadline,
	.stop = on_stop,
	.leader = no_leader,
	.no_leader = nobody_leads,
	.finished = on_finished,
};

/* ---- the world ---- */

static void begin(void)
{
	memset(said, 0, sizeof said);
	w = (struct world){ .clock.wall_us = INT64_C(1700000000000000) };
	clock_pretend(&w.clock);
	timeline_init_virtual(&w.time, &w.now);
	w.store = sim_store_new(&w.time, 1);
}

static void end(void)
{
	for (int i = 0; i < NODES; i++) {
		elector_free(w.node[i].elector);
		lock_env_fini(&w.node[i].env);
	}
	sim_store_free(w.store);
	timeline_fini(&w.time);
	clock_pretend(NULL);
}

/* Until the counter is there, or so many seconds have passed. */
static bool until(const int *counter, int want, double seconds)
{
	double last = w.now + seconds;

	while (!counter || *counter < want) {
		double next = timeline_first(&w.time);
		w.now = fmin(next, last);
		w.clock.now = (nsec)(w.now * NSEC_PER_SEC);
		if (next > last)
			return false;
		timeline_fire(&w.time);
	}
	return true;
}

static void pass(double seconds)
{
	until(NULL, 0, seconds);
}

static struct node *node_start(int i, const struct elector_callbacks *cb, bool counts_tokens)
{
	struct node *n = &w.node[i];
	struct err err;

	snprintf(n->identity, sizeof n->identity, "n%d", i);
	n->self = (struct proof_self){ .boot_id = "00", .tree_fd = -1 };
	snprintf(n->self.incarnation, sizeof n->self.incarnation, "%d", i + 1);
	struct lock *lock = sim_store_open(w.store, LOCK, &n->link, &w.time);
	n->store = lock->ops;
	n->ops = *lock->ops;
	n->ops.read = node_read;
	n->ops.write = node_write;
	n->ops.announce = node_announce;
	n->ops.token_in_record = !counts_tokens;
	lock->ops = &n->ops;
	struct elector_config config = { .env = &n->env,
		                         .timeline = &w.time,
		                         .self = &n->self,
		                         .opened = lock,
		                         .seed = (uint32_t)i + 1,
		                         .name = "e",
		                         .identity = n->identity,
		                         .asks = cb->ask != NULL,
		                         .next = { .max_term = n->max_term } };
	lease_times_default(&config.times);
	n->elector = elector_new(&config, cb, n, &err);
	if (!n->elector)
		printf("Bail out! %s\n", err.text), exit(1);
	elector_bar(n->elector, NULL);
	return n;
}

static struct node *start(int i)
{
	return node_start(i, &callbacks, false);
}

static struct elector_status status_of(const struct node *n)
{
	struct elector_status s;

	elector_status(n->elector, &s);
	return s;
}

/* ---- trouble ---- */

static void trouble(void)
{
	begin();
	struct node *n = start(0);
	n->twist = (struct twist){ .read = LOCK_FAILED, .code = ERR_UNREACHABLE };
	pass(9);
	is_int(times_said("store_lost"), 0, "a store that is silent for less than R is not lost yet");
	pass(21);
	is_int(times_said("store_lost"), 1, "at the first look after R it is");
	pass(28);
	ok(times_said("read_failed") == 1 && times_said("store_lost") == 1,
	   "what goes on failing in the same way is logged once in a minute");
	pass(80);
	ok(times_said("read_failed") >= 2 && times_said("read_failed") <= 3 && times_said("store_lost") == 1,
	   "and again after each, but that the store is lost is said once");
	n->twist.read = LOCK_OK;
	ok(until(&n->leads, 1, 60) && times_said("store_back") == 1, "when it answers, that is said, and it leads");
	end();
}

static void hopeless(void)
{
	begin();
	struct node *n = start(0);
	n->twist = (struct twist){ .read = LOCK_REFUSED, .code = ERR_DENIED };
	pass(60);
	is_int(n->hopeless, 0, "a right that is missing may come to be");
	n->twist.code = ERR_USAGE;
	ok(until(&n->hopeless, 1, 200), "a setting that is wrong does not mend itself");
	n->twist.read = LOCK_OK;
	until(&n->leads, 1, 200);
	int before = n->hopeless;
	elector_end(n->elector, LEASE_RESIGNED, 100 * NSEC_PER_SEC, 0);
	n->twist.read = LOCK_REFUSED;
	pass(90);
	is_int(n->hopeless, before, "but where the store has answered before, it may answer again");
	end();
	begin();
	n = node_start(0, &few_callbacks, false);
	n->twist = (struct twist){ .read = LOCK_REFUSED, .code = ERR_USAGE };
	pass(30);
	ok(n->leads == 0 && times_said("read_failed") == 1, "whoever does not listen to that is not called");
	n->twist.read = LOCK_OK;
	until(&n->leads, 1, 300);
	struct err err;
	is_int(elector_save(n->elector, 1, "5", &err), 0, "nor is it for a save,");
	pass(10);
	is_str(elector_checkpoint(n->elector), "5", "which is written nevertheless");
	end();
}

static void unwatched(void)
{
	begin();
	struct node *a = start(0), *b = start(1);
	a->ops.watch = b->ops.watch = NULL;
	until(&a->leads, 1, 60);
	until(&b->leads, 1, 20);
	ok(a->leads + b->leads == 1, "without notices one of two leads");
	struct node *leader = a->leads ? a : b, *other = a->leads ? b : a;
	elector_end(leader->elector, LEASE_RESIGNED, 60 * NSEC_PER_SEC, 0);
	ok(until(&other->leads, 1, 7), "and the other one sees its release when it looks, within 2.2 P");
	ok(!status_of(other).store.watching, "it does not claim to watch");
	end();
}

/* ---- tokens that the store counts ---- */

static void tokens(bool inside)
{
	begin();
	struct node *n = node_start(0, &callbacks, true);
	n->twist.token = 5000;
	until(&n->leads, 1, 60);
	is_int(n->token, 5000, "the token of a term is the store's");
	n->stays = !inside;
	elector_end(n->elector, LEASE_RESIGNED, 0, 0);
	if (!inside)
		elector_stopped(n->elector, true);
	n->stays = false;
	n->twist.token = 10; /* the store was restored from an older copy */
	pass(40);
	is_int(n->leads, 1,
	       inside ? "nor after a term whose user said from inside `stop` that all had stopped"
	              : "with a smaller one than its last term had nobody leads");
	is_int(times_said("token_low"), 1, "which is said once, however often it tries");
	n->twist.read = LOCK_FAILED;
	n->twist.code = ERR_UNREACHABLE;
	pass(25);
	n->twist.read = LOCK_OK;
	pass(25);
	ok(n->leads == 1 && times_said("store_back") == 0 && *status_of(n).trouble,
	   "that the store answers after a silence does not end that trouble");
	n->twist.token = 6000;
	ok(until(&n->leads, 2, 120) && n->token == 6000 && times_said("store_back") == 1 && !*status_of(n).trouble,
	   "a larger token does");
	end();
}

/* The record has no token; the write that acquired it is known by a read. */
static void token_of_a_read(void)
{
	begin();
	struct node *n = node_start(0, &callbacks, true);
	n->twist = (struct twist){ .write = LOCK_UNKNOWN, .lost = true, .code = ERR_TIMEOUT, .token = 7000 };
	until(&n->writes, 1, 60);
	ok(until(&n->leads, 1, 5), "a term that is known by a read of its record begins");
	is_int(n->token, 7000, "with the token that the store gives with it");
	end();
}

/* The record that is read back is the one that was written, although its token is known by the answer alone. */
static void token_of_a_write(void)
{
	begin();
	struct node *n = node_start(0, &callbacks, true);
	n->twist.token = 5000;
	until(&n->leads, 1, 60);
	n->twist.write = LOCK_UNKNOWN;
	n->twist.code = ERR_TIMEOUT;
	elector_end(n->elector, LEASE_RESIGNED, 3600 * NSEC_PER_SEC, 0);
	ok(until(&n->writes, 3, 5),
	   "a first record that is still there is released again, if the release had no answer");
	end();
}

/* ---- deadlines ---- */

static void nearer(void)
{
	struct lease_times times = { .lease = 6 * NSEC_PER_SEC };

	begin();
	struct node *n = start(0);
	until(&n->renewals, 2, 60);
	lease_times_default(&times);
	struct instant before = n->end;
	n->order[0] = '\0';
	memset(n->order, 0, sizeof n->order);
	n->twist = (struct twist){ .write = LOCK_UNKNOWN, .code = ERR_TIMEOUT }; /* it may be done, and is not */
	elector_configure(n->elector, &times);
	int writes = n->writes;
	until(&n->writes, writes + 1, 5);
	ok(strncmp(n->order, "Dw", 2) == 0 && n->end.boot < before.boot,
	   "the nearer deadline of a shorter lease is told before its write is sent (%s)", n->order);
	ok(until(&n->stops, 1, 5) && n->reason == LEASE_EXPIRED, "and kept");
	end();
}

static void gap(void)
{
	begin();
	struct node *n = start(0);
	until(&n->renewals, 1, 60);
	w.now += 1.5; /* as if it had been stopped */
	w.clock.now = (nsec)(w.now * NSEC_PER_SEC);
	pass(0);
	int early = times_said("did_not_run");
	until(&n->renewals, 2, 10);
	w.now += 5;
	w.clock.now = (nsec)(w.now * NSEC_PER_SEC);
	elector_look(n->elector);
	ok(early == 0 && times_said("did_not_run") == 1, "a leader that did not run for more than a second says so");
	elector_end(n->elector, LEASE_RESIGNED, 1000 * NSEC_PER_SEC, 0);
	pass(5);
	w.now += 60;
	w.clock.now = (nsec)(w.now * NSEC_PER_SEC);
	elector_look(n->elector);
	is_int(times_said("did_not_run"), 1, "a standby does not");
	end();
}

/* ---- ends ---- */

static void phases(void)
{
	begin();
	struct node *n = start(0);
	n->stays = true;
	until(&n->leads, 1, 60);
	elector_tell_leader(n->elector);
	elector_end(n->elector, LEASE_RESIGNED, 0, 10 * NSEC_PER_SEC);
	pass(4.5);
	ok(status_of(n).phase == PHASE_ENDING && status_of(n).since_began >= 0 && n->renewals >= 2,
	   "while its script stops, a term is renewed,");
	ok(!strchr(n->order, 'z'), "and its end is not announced");
	elector_stopped(n->elector, true);
	ok(strchr(n->order, 'z') && status_of(n).since_began == -1, "but when it has stopped");
	until(&n->leads, 2, 60);
	elector_next_term(n->elector, 0);
	elector_stopped(n->elector, true);
	ok(status_of(n).phase == PHASE_NEXT && status_of(n).since_renewal >= 0 && !status_of(n).leading,
	   "between two terms without a release its lease is held");
	until(&n->leads, 3, 60);
	n->twist = (struct twist){ .write = LOCK_FAILED, .code = ERR_UNREACHABLE };
	ok(until(&n->stops, 3, 20) && n->reason == LEASE_EXPIRED, "renewals that fail end a term");
	ok(status_of(n).phase == PHASE_LOST && status_of(n).since_began > 0 && !status_of(n).leading,
	   "which is not over before its script has stopped");
	elector_stopped(n->elector, false);
	elector_stopped(n->elector, false);
	is_int(times_said("not_reaped"), 2, "what cannot be killed is said");
	n->twist = (struct twist){ 0 };
	pass(60);
	is_int(n->leads, 3, "and keeps it from leading again");
	elector_stopped(n->elector, true);
	ok(until(&n->leads, 4, 60), "until it has died");
	end();
	elector_free(NULL);
}

static void handover(void)
{
	struct err err;

	begin();
	struct node *a = node_start(0, &callbacks, false);
	until(&a->leads, 1, 60);
	struct node *b = start(1);
	until(&b->nexts, 1, 120);
	pass(40);
	a->stays = true;
	is_int(elector_hand_over(a->elector, 0, "n1", 20 * NSEC_PER_SEC, &err), 0, "a leader is to hand over");
	is_int(elector_hand_over(a->elector, 1, "n1", 20 * NSEC_PER_SEC, &err), -1, "one request at a time");
	ok(until(&a->stops, 1, 30) && a->reason == LEASE_RESIGNED,
	   "a user that does not decide about it itself resigns");
	elector_stopped(a->elector, true);
	ok(until(&b->leads, 1, 5) && times_said("released_for") == 1 && a->leads == 1, "for the one that comes next");
	ok(until(&a->handed, 1, 5) && a->not_handed == 0, "which answers the request, once it is seen to lead");
	b->stays = true;
	is_int(elector_hand_over(b->elector, 0, "n0", 60 * NSEC_PER_SEC, &err), 0,
	       "it is to hand over to one that does not come next yet");
	elector_end(b->elector, LEASE_ERROR, 60 * NSEC_PER_SEC, 60 * NSEC_PER_SEC);
	ok(until(&b->not_handed, 1, 59) && b->stops == 1,
	   "once that one does, the term ends already: nothing is handed over");
	elector_stopped(b->elector, true);
	ok(until(&a->leads, 2, 60), "though it leads next");
	is_int((int64_t)status_of(b).next.handovers[NEXT_REQUEST], 0, "which is counted as no hand-over");
	end();
}

/* A user that is told to hand over, and ends the term for a reason of its own before it does. */
static void not_resigned(void)
{
	struct err err;

	begin();
	struct node *a = node_start(0, &patient_callbacks, false);
	until(&a->leads, 1, 60);
	struct node *b = start(1);
	until(&b->nexts, 1, 120);
	pass(40);
	elector_hand_over(a->elector, 0, "", 20 * NSEC_PER_SEC, &err);
	ok(until(&a->handing, 1, 30) && a->stops == 0, "a user that decides about it itself is asked to");
	elector_end(a->elector, LEASE_ERROR, 60 * NSEC_PER_SEC, 0);
	until(&b->leads, 1, 60);
	const struct record *r = sim_store_record(w.store, LOCK);
	ok(a->reason == LEASE_ERROR && r->past && strstr(r->past, "\"error\"") && !strstr(r->past, "handed_over"),
	   "a term that fails before that has not been handed over: %s", r->past ? r->past : "nothing");
	end();
}

/* Somebody is wanted who is not there. */
static void nobody_next(void)
{
	struct err err;

	begin();
	struct node *n = start(0);
	until(&n->leads, 1, 60);
	pass(5);
	elector_hand_over(n->elector, 0, "ghost", 20 * NSEC_PER_SEC, &err);
	pass(5);
	elector_end(n->elector, LEASE_RESIGNED, 60 * NSEC_PER_SEC, 0);
	pass(5);
	ok(n->not_handed == 1 && times_said("released_for") == 0,
	   "a lock is released for nobody if the one that was wanted never came");
	ok(sim_store_record(w.store, LOCK)->state == RECORD_RELEASED, "but it is released");
	end();
}

/* Two candidates, of which the second comes next. */
static void begin_pair(void)
{
	begin();
	struct node *a = start(0);
	until(&a->leads, 1, 60);
	struct node *b = start(1);
	until(&b->nexts, 1, 120);
	pass(40);
}

static bool told_why(const struct node *n, const char *why)
{
	return strstr(n->why, why);
}

/* The lease of one whose script stops for a hand-over is lost, and nobody can take it. */
static void lose_while_handing_over(void)
{
	struct node *a = &w.node[0];
	struct err err;

	begin_pair();
	a->stays = true;
	elector_hand_over(a->elector, 0, "", 20 * NSEC_PER_SEC, &err);
	until(&a->stops, 1, 30);
	a->twist = w.node[1].twist = (struct twist){ .write = LOCK_FAILED, .code = ERR_UNREACHABLE };
	until(&a->stops, 2, 60);
	elector_stopped(a->elector, true);
}

/* Who asks for a hand-over gets one answer, also if nobody takes over. */
static void handover_answers(void)
{
	struct node *a = &w.node[0], *b = &w.node[1];
	char long_name[300] = "";
	struct err err;

	memset(long_name, 'x', sizeof long_name - 1);
	begin_pair();
	a->stays = true;
	is_int(elector_hand_over(a->elector, 0, long_name, 20 * NSEC_PER_SEC, &err), -1,
	       "a name that no candidate can have is refused at once");
	is_int(elector_hand_over(a->elector, 0, "", 20 * NSEC_PER_SEC, &err), 0, "and is no request under way");
	ok(until(&a->stops, 1, 30) && !until(&a->not_handed, 1, 590), "a script may take long to stop");
	ok(until(&a->not_handed, 1, 20) && told_why(a, "its script has not stopped in ten minutes") && b->leads == 0,
	   "who asks hears after ten minutes that it has not: %s", a->why);
	elector_stopped(a->elector, true);
	ok(until(&b->leads, 1, 30) && a->handed == 0 && a->not_handed == 1, "once, though the other one leads then");
	end();

	begin_pair();
	elector_hand_over(a->elector, 0, "", 20 * NSEC_PER_SEC, &err);
	until(&a->stops, 1, 30);
	b->twist = (struct twist){ .write = LOCK_FAILED, .read = LOCK_FAILED, .code = ERR_UNREACHABLE };
	elector_bar(a->elector, "by an operator");
	ok(!until(&a->not_handed, 1, 29) && until(&a->not_handed, 1, 10) &&
	           told_why(a, "nobody has been seen to lead for two leases"),
	   "a lock that nobody takes is told after two leases: %s", a->why);
	end();

	begin_pair();
	elector_hand_over(a->elector, 0, "", 20 * NSEC_PER_SEC, &err);
	until(&a->stops, 1, 30);
	b->twist = (struct twist){ .write = LOCK_FAILED, .read = LOCK_FAILED, .code = ERR_UNREACHABLE };
	ok(until(&a->not_handed, 1, 29) && a->leads == 2 && told_why(a, "leads again"),
	   "so is one that its last leader takes again: %s", a->why);
	end();

	begin_pair();
	a->stays = true;
	elector_hand_over(a->elector, 0, "", 20 * NSEC_PER_SEC, &err);
	until(&a->stops, 1, 30);
	a->twist = (struct twist){ .write = LOCK_FAILED, .code = ERR_UNREACHABLE };
	until(&b->leads, 1, 60);
	ok(a->stops == 2 && a->handed == 0, "a lease that is lost while its script stops is not released;");
	elector_stopped(a->elector, true);
	ok(until(&a->late, 1, 30) && a->handed == 0, "who leads then is told, without a gap");
	end();

	lose_while_handing_over();
	ok(until(&a->not_handed, 1, 31) && told_why(a, "its lease was lost"),
	   "and if nobody leads, that nothing was released: %s", a->why);
	end();
	lose_while_handing_over();
	end();
	ok(a->not_handed == 1 && told_why(a, "the elector ends"), "also if this process ends before that");

	begin_pair();
	a->stays = true;
	elector_hand_over(a->elector, 0, "", 20 * NSEC_PER_SEC, &err);
	until(&a->stops, 1, 30);
	a->twist = (struct twist){ .write = LOCK_FAILED, .read = LOCK_FAILED, .code = ERR_UNREACHABLE };
	until(&b->leads, 1, 60);
	a->twist = (struct twist){ 0 };
	ok(until(&a->late, 1, 30), "a leader that is seen before the script has stopped is told, too");
	end();
}

/* The candidate's machine was cloned while a hand-over was asked for. */
static void handover_copied(void)
{
	struct node *a = &w.node[0];
	struct record copy;
	struct err err;

	begin_pair();
	elector_hand_over(a->elector, 0, "ghost", 20 * NSEC_PER_SEC, &err);
	pass(1);
	record_init(&copy);
	record_copy(&copy, sim_store_record(w.store, LOCK));
	copy.writes += 100;
	snprintf(copy.write, sizeof copy.write, "%032d", 1);
	a->twist = (struct twist){ .write = LOCK_CONFLICT, .shown = &copy };
	ok(until(&a->stops, 1, 30) && times_said("copied") == 1, "a copy ends the term");
	a->twist = (struct twist){ 0 };
	ok(until(&a->not_handed, 1, 60) && told_why(a, "it has not been decided in time"),
	   "the request of the one that it was is answered, too: %s", a->why);
	record_fini(&copy);
	end();
}

/* The longest time of a term is over while it ends for another reason. */
static void rotation(void)
{
	begin();
	w.node[0].max_term = 60 * NSEC_PER_SEC;
	struct node *a = start(0);
	until(&a->leads, 1, 60);
	struct node *b = node_start(1, &asked_callbacks, false);
	pass(50);
	ok(b->asks > 0 && b->leads == 0, "a standby asks beforehand whether it may lead");
	a->stays = true;
	elector_end(a->elector, LEASE_ERROR, 600 * NSEC_PER_SEC, 60 * NSEC_PER_SEC);
	pass(30);
	ok(a->stops == 1 && a->reason == LEASE_ERROR && a->not_handed == 0,
	   "a term that ends already is not ended once more for its length");
	elector_stopped(a->elector, true);
	ok(until(&b->leads, 1, 30), "the other one leads then");
	end();
	begin();
	w.node[0].max_term = 60 * NSEC_PER_SEC;
	a = start(0);
	until(&a->leads, 1, 60);
	b = start(1);
	ok(until(&b->leads, 1, 90) && a->reason == LEASE_RESIGNED && w.now > 60,
	   "a term that has had its length is handed over");
	end();
}

/* ---- checkpoints ---- */

static void checkpoints(void)
{
	struct err err;

	begin();
	struct node *n = start(0);
	until(&n->leads, 1, 60);
	ok(n->durable, "the write that begins a term must survive a power cut");
	until(&n->renewals, 1, 60);
	ok(!n->durable, "a renewal need not");
	pass(0.5);
	elector_save(n->elector, 1, "{\"n\":1}", &err);
	ok(n->durable, "one that carries a checkpoint must");
	until(&n->saved, 1, 1);
	is_int(n->saved, 1, "it is acknowledged when it is there");
	until(&n->renewals, n->renewals + 2, 60);
	ok(!n->durable, "and later renewals need not again");

	n->twist = (struct twist){ .write = LOCK_UNKNOWN, .lost = true, .code = ERR_TIMEOUT };
	elector_save(n->elector, 2, "{\"n\":2}", &err);
	ok(until(&n->saved, 2, 3), "a save whose answer was lost is acknowledged by a read that shows it");
	n->twist = (struct twist){ 0 };
	until(&n->renewals, n->renewals + 1, 60);
	is_str(elector_checkpoint(n->elector), "{\"n\":2}", "and stays");

	n->twist = (struct twist){ .write = LOCK_FAILED, .code = ERR_UNREACHABLE };
	elector_save(n->elector, 3, "{\"n\":3}", &err);
	n->stays = true;
	until(&n->stops, 1, 30);
	ok(n->unsaved == 1 && n->saved == 2, "what could not be written before the term ended is not saved");
	n->twist = (struct twist){ 0 };
	elector_stopped(n->elector, true);
	until(&n->leads, 2, 60);
	is_str(elector_checkpoint(n->elector), "{\"n\":2}", "and no later term of another right has it");
	end();
}

/* Acknowledged by a read; then the store shows the record from before it. */
static void fallen_back(void)
{
	struct err err;
	struct record old;

	begin();
	struct node *n = start(0);
	until(&n->leads, 1, 60);
	elector_save(n->elector, 1, "1", &err);
	until(&n->saved, 1, 60);
	record_init(&old);
	record_copy(&old, sim_store_record(w.store, LOCK));
	pass(0.5);
	n->twist = (struct twist){ .write = LOCK_UNKNOWN, .lost = true, .code = ERR_TIMEOUT };
	elector_save(n->elector, 2, "2", &err);
	ok(until(&n->saved, 2, 60), "a save is acknowledged by a read");
	n->twist.shown = &old;
	int writes = n->writes;
	until(&n->writes, writes + 2, 60);
	pass(0.5);
	ok(n->stops == 0 && times_said("checkpoint_restored") > 0,
	   "a store that shows an older record of ours has fallen back");
	is_str(sim_store_record(w.store, LOCK)->checkpoint, "2", "and gets again what it had acknowledged by then");
	end();
	record_fini(&old);
}

int main(void)
{
	log_divert(on_log, NULL);
	trouble();
	hopeless();
	unwatched();
	tokens(false);
	tokens(true);
	token_of_a_read();
	token_of_a_write();
	nearer();
	gap();
	phases();
	handover();
	not_resigned();
	nobody_next();
	handover_answers();
	handover_copied();
	rotation();
	checkpoints();
	fallen_back();
	return tap_done();
}
