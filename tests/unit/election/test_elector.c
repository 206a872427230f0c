/* The elector on a real file lock, in what stores and machines can do to a term that goes on: a clone of its machine, a
 * record that falls back, a token that was larger before. */
#include "base/buf.h"
#include "base/mem.h"
#include "elector_rig.h"
#include "lease/next_record.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

/* One candidate, in this process; what it tells is in memory that a clone of it writes to as well, each in its own
 * place. */
struct told {
	int leads, stops, renewals, saved, finished, others; /* others: have been reported to lead */
	int nexts, overs, before, hand_overs;                /* before: it came next until it led, told before `lead` */
	enum lease_reason reason;
	int64_t token;
	char incarnation[37];
	char order[40]; /* of what is in `ordered` */
};
struct candidate {
	struct rig rig;
	struct told *told;
	bool drains; /* what lead started goes on until the test says that it has stopped */
};

static bool has_said(const struct candidate *c, const char *text)
{
	struct buf said = { 0 };

	elector_why(c->rig.elector, &said);
	bool has = said.data && strstr(said.data, text);
	buf_fini(&said);
	return has;
}

/* A letter for each thing that happened; '!' before it, if the elector has said `event` by then. */
static void note_order(struct candidate *c, char what, const char *event)
{
	size_t len = strlen(c->told->order);

	if (event && has_said(c, event) && len < sizeof c->told->order - 2)
		c->told->order[len++] = '!';
	if (len < sizeof c->told->order - 1)
		c->told->order[len] = what;
}

static void on_lead(void *arg, const struct elector_term *t)
{
	struct candidate *c = arg;

	note_order(c, 'L', "became_leader");
	c->told->leads++;
	c->told->token = t->token;
}

static void on_stop(void *arg, enum lease_reason reason, bool held, struct instant stop_by)
{
	struct candidate *c = arg;

	(void)held, (void)stop_by;
	note_order(c, 'S', "stopp");
	c->told->stops++;
	c->told->reason = reason;
	if (!c->drains)
		elector_stopped(c->rig.elector, true);
}

static void on_leader(void *arg, const struct elector_leader *l)
{
	struct candidate *c = arg;

	note_order(c, l->self ? 'i' : 'o', NULL);
	c->told->others += !l->self;
}

static void on_no_leader(void *arg, const char *previous)
{
	(void)previous;
	note_order(arg, 'n', NULL);
}

static void on_saved(void *arg, uint64_t save, bool good)
{
	struct candidate *c = arg;

	if (good)
		c->told->saved = (int)save;
}

static void on_renewed(void *arg, nsec took)
{
	struct candidate *c = arg;

	(void)took;
	c->told->renewals++;
}

static void on_next(void *arg, bool is, bool leads)
{
	struct candidate *c = arg;

	note_order(c, is ? 'x' : 'y', NULL);
	c->told->nexts += is;
	c->told->overs += !is;
	c->told->before += !is && leads && c->told->leads == 0;
}

static void on_hand_over(void *arg, enum next_why why)
{
	struct candidate *c = arg;

	(void)why;
	c->told->hand_overs++;
	elector_end(c->rig.elector, LEASE_RESIGNED, 0, 0);
}

static void on_finished(void *arg, bool left)
{
	struct candidate *c = arg;

	(void)left;
	c->told->finished++;
}

static const struct elector_callbacks callbacks = {
	.lead = on_lead,
	.deadline = no_deadline,
	.stop = on_stop,
	.leader = on_leader,
	.no_leader = on_no_leader,
	.saved = on_saved,
	.renewed = on_renewed,
	.next = on_next,
	.hand_over = on_hand_over,
	.finished = on_finished,
};

/* lock: to be used in place of the one that the elector would open; NULL. */
static void start_as(struct candidate *c, struct told *told, nsec lease, struct lock *(*lock)(struct lock_env *env),
                     const char *identity)
{
	c->told = told;
	c->drains = false;
	*told = (struct told){ 0 };
	rig_init(&c->rig);
	struct elector_config config = rig_config(&c->rig, lease);
	config.opened = lock ? lock(&c->rig.env) : NULL;
	config.identity = identity;
	rig_start(&c->rig, &config, &callbacks, c);
	elector_bar(c->rig.elector, NULL);
}

static void start_on(struct candidate *c, struct told *told, nsec lease, struct lock *(*lock)(struct lock_env *env))
{
	start_as(c, told, lease, lock, "a");
}

static void start(struct candidate *c, struct told *told, nsec lease)
{
	start_on(c, told, lease, NULL);
}

static uint64_t shown_term(void)
{
	struct record r = look();
	uint64_t term = r.term;

	record_fini(&r);
	return term;
}

static void save(struct candidate *c, uint64_t number, const char *json)
{
	struct err err;

	elector_save(c->rig.elector, number, json, &err);
	until(&c->rig, &c->told->saved, (int)number);
}

/* ---- a clone ---- */

static bool reached(const int *counter, int want)
{
	return __atomic_load_n(counter, __ATOMIC_SEQ_CST) >= want;
}

static void clones(void)
{
	struct shared {
		struct told told[2];
		int end;
	} *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct candidate c;

	start(&c, &s->told[0], 6 * NSEC_PER_SEC);
	ok(until(&c.rig, &s->told[0].renewals, 1), "a leader renews");
	struct record before = look();
	s->told[1] = s->told[0];
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		c.told = &s->told[1];
		ev_loop_fork(c.rig.env.loop);
		until(&c.rig, &s->end, 1);
		_exit(0);
	}
	double end = ev_time() + PATIENCE_S;
	while (!reached(&s->told[0].stops, 1) && !reached(&s->told[1].stops, 1) && ev_time() < end)
		turn(&c.rig);
	int loser = reached(&s->told[1].stops, 1), winner = 1 - loser;
	ok(s->told[0].stops + s->told[1].stops == 1 && s->told[loser].reason == LEASE_STOLEN,
	   "cloned while it leads, one of the two ends its term: it is lost to the other");
	int renewals = s->told[winner].renewals;
	while (!reached(&s->told[winner].renewals, renewals + 3) && ev_time() < end)
		turn(&c.rig);
	ok(s->told[winner].stops == 0 && s->told[winner].renewals >= renewals + 3, "the other one leads on");
	struct record after = look();
	is_str(after.incarnation, before.incarnation, "as the process that it was");
	ok(after.writes > before.writes, "which counts its writes in the record");
	if (winner == 1)
		kill(pid, SIGKILL);
	else
		elector_end(c.rig.elector, LEASE_RESIGNED, 60 * NSEC_PER_SEC, 0);
	while (!reached(&s->told[loser].leads, s->told[loser].stops + 1) && ev_time() < end)
		turn(&c.rig);
	ok(s->told[loser].leads == 2, "and when that one is gone, the one that ended leads again");
	while (loser == 1 && shown_term() == after.term && ev_time() < end)
		turn(&c.rig);
	struct record last = look();
	ok(strcmp(last.incarnation, before.incarnation) != 0 && last.term > before.term,
	   "under an incarnation of its own");
	is_str(last.tree, "",
	       "that offers no proof of its death, which the clone's machine could mistake for that of another");
	__atomic_store_n(&s->end, 1, __ATOMIC_SEQ_CST);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	record_fini(&before);
	record_fini(&after);
	record_fini(&last);
	rig_fini(&c.rig);
	munmap(s, sizeof *s);
}

/* ---- a store that falls back ---- */

static void checkpoints(void)
{
	struct told told;
	struct candidate c;

	start(&c, &told, 6 * NSEC_PER_SEC);
	until(&c.rig, &told.leads, 1);
	save(&c, 1, "{\"n\":5}");
	struct record old = look();
	save(&c, 2, "{\"n\":10}");
	is_int(told.saved, 2, "a checkpoint is acknowledged");
	replace(&old);
	until(&c.rig, &told.renewals, told.renewals + 2);
	struct record now = look();
	is_str(now.checkpoint, "{\"n\":10}",
	       "a store that shows the record from before it gets it again with the next renewal");
	ok(told.stops == 0 && now.term == old.term, "the term goes on");
	mem_replace(&now.checkpoint, "{\"n\":11}");
	replace(&now);
	until(&c.rig, &told.renewals, told.renewals + 2);
	struct record edited = look();
	is_str(edited.checkpoint, "{\"n\":11}", "what a person puts into the newest record stands");
	mem_replace(&old.holder, "somebody else");
	snprintf(old.incarnation, sizeof old.incarnation, "00000000-0000-4000-8000-000000000000");
	old.lease_ms = 100;
	old.term++;
	replace(&old);
	until(&c.rig, &told.leads, 2);
	struct record next = look();
	ok(told.stops == 1 && told.leads == 2 && strcmp(next.checkpoint, "{\"n\":5}") == 0,
	   "and so does what another leader had saved, when its record is taken over");
	record_fini(&old);
	record_fini(&now);
	record_fini(&edited);
	record_fini(&next);
	rig_fini(&c.rig);
}

/* ---- tokens ---- */

static void tokens(void)
{
	struct told told;
	struct candidate c;
	struct record r;

	record_init(&r);
	mem_replace(&r.holder, "somebody else");
	r.lease_ms = 1500;
	r.term = 7;
	r.state = RECORD_LEADING;
	r.token = clock_wall_us() + INT64_C(3600) * 1000000; /* its clock was ahead, or ours is behind */
	replace(&r);
	start(&c, &told, 2 * NSEC_PER_SEC);
	until(&c.rig, &told.others, 1);
	unlink(path);
	until(&c.rig, &told.leads, 1);
	ok(told.token > r.token,
	   "the token of a term is larger than all that its candidate has seen, also when the record is gone");
	record_fini(&r);
	rig_fini(&c.rig);
}

/* ---- what others leave in a record ---- */

/* Each of these would make a record that cannot be written, or not be read again. */
static void extremes(void)
{
	struct told told;
	struct candidate c;
	struct record r;
	char *name = mem_zero(RECORD_MAX_BYTES - 600);

	memset(name, 'x', RECORD_MAX_BYTES - 601);
	record_init(&r);
	mem_replace(&r.holder, name);
	r.lease_ms = 100;
	r.transitions = INT64_MAX;
	r.renewed_us = RECORD_TIME_MAX;
	replace(&r);
	start(&c, &told, 2 * NSEC_PER_SEC);
	ok(until(&c.rig, &told.leads, 1),
	   "a record whose holder's name fills it, with the largest count of transitions, is taken over");
	record_fini(&r);
	r = look();
	ok(r.transitions == INT64_MAX && !*r.previous_holder, "the count stays, and of the name nothing is kept");
	r.renewed_us = RECORD_TIME_MAX;
	replace(&r);
	until(&c.rig, &told.renewals, told.renewals + 2);
	record_fini(&r);
	r = look();
	ok(told.stops == 0 && r.renewed_us > r.acquired_us && r.renewed_us < RECORD_TIME_MAX,
	   "at the end of the years the time of renewals begins at the clock anew");
	record_fini(&r);
	rig_fini(&c.rig);
	free(name);
}

/* For those who believe a leader for as long as its times change. That the record is ahead is the same as that the
 * clock was set back. */
static void clocks(void)
{
	struct told told;
	struct candidate c;

	start(&c, &told, 6 * NSEC_PER_SEC);
	until(&c.rig, &told.leads, 1);
	struct record r = look();
	int64_t ahead = r.renewed_us += INT64_C(3600) * 1000000;
	replace(&r);
	until(&c.rig, &told.renewals, told.renewals + 1);
	record_fini(&r);
	r = look();
	int64_t first = r.renewed_us;
	ok(told.stops == 0 && first > ahead, "a record whose time is an hour ahead of the clock: a renewal's is later");
	until(&c.rig, &told.renewals, told.renewals + 3);
	record_fini(&r);
	r = look();
	ok(r.renewed_us - first > INT64_C(1000000) && r.renewed_us - first < INT64_C(600) * 1000000,
	   "and goes on with what passes");
	record_fini(&r);
	rig_fini(&c.rig);
}

/* ---- what comes first ---- */

static struct candidate *spied;
static const struct lock_ops *real_ops;

static void spy_write(struct lock *l, const struct record *r, const struct version *expected, bool durable,
                      struct instant by, lock_done_fn *done, void *arg)
{
	note_order(spied, 'w', "stopped_leading");
	real_ops->write(l, r, expected, durable, by, done, arg);
}

static void spy_announce(struct lock *l, const char *identity, bool leads)
{
	(void)l, (void)identity;
	note_order(spied, leads ? 'a' : 'z', NULL);
}

static struct lock *open_spied(struct lock_env *env)
{
	static struct lock_ops ops;
	struct err err;
	struct lock *l = lock_open(env, url, &err);

	real_ops = l->ops;
	ops = *real_ops;
	ops.write = spy_write;
	ops.announce = spy_announce;
	l->ops = &ops;
	return l;
}

static void order(void)
{
	struct told told;
	struct candidate c;
	struct record r;

	record_init(&r);
	mem_replace(&r.holder, "somebody else");
	r.lease_ms = 1000;
	r.term = 7;
	r.state = RECORD_LEADING;
	replace(&r);
	spied = &c;
	start_on(&c, &told, 600 * NSEC_PER_SEC, open_spied);
	until(&c.rig, &told.others, 1);
	until(&c.rig, &told.leads, 1);
	elector_end(c.rig.elector, LEASE_RESIGNED, NSEC_NEVER, 0);
	until(&c.rig, &told.finished, 1);
	is_str(told.order, "ownLaiSwzn",
	       "what others wait for comes first: the write before the report that nobody leads, and lead and stop before "
	       "that is logged and announced, the release before it is logged and announced");
	record_fini(&r);
	rig_fini(&c.rig);
}

/* ---- when a term is over ---- */

static bool leads(const struct candidate *c)
{
	struct elector_status s;

	elector_status(c->rig.elector, &s);
	return s.leading;
}

static void drains(void)
{
	struct told told;
	struct candidate c;

	start(&c, &told, 6 * NSEC_PER_SEC);
	until(&c.rig, &told.leads, 1);
	c.drains = true;
	elector_end(c.rig.elector, LEASE_SHUTDOWN, 0, 60 * NSEC_PER_SEC);
	ok(has_said(&c, "stopping: shutdown") && !has_said(&c, "stopped_leading"),
	   "a term that is told to end says so, and not that it leads no more");
	until(&c.rig, &told.renewals, told.renewals + 1);
	ok(leads(&c) && !has_said(&c, "stopped_leading"), "it leads, and renews, until all of it has stopped");
	elector_stopped(c.rig.elector, true);
	ok(!leads(&c) && has_said(&c, "stopped_leading: shutdown"), "then it says that it leads no more, and why");
	until(&c.rig, &told.leads, 2);
	elector_end(c.rig.elector, LEASE_RESIGNED, 60 * NSEC_PER_SEC, 60 * NSEC_PER_SEC);
	struct record r = look();
	mem_replace(&r.holder, "somebody else");
	replace(&r);
	until(&c.rig, &told.stops, 3);
	ok(!leads(&c) && has_said(&c, "stopped_leading: resigned (the lease was lost"),
	   "where the lease is lost meanwhile, it says so at once, although its script still stops");
	elector_stopped(c.rig.elector, true);
	record_fini(&r);
	rig_fini(&c.rig);
}

/* ---- who comes next ---- */

/* The same for two candidates, each of which has a loop of its own. */
static bool until_both(struct candidate *c, struct candidate *d, const int *counter, int want)
{
	for (double end = ev_time() + PATIENCE_S; !reached(counter, want) && ev_time() < end; usleep(1000)) {
		ev_run(c->rig.env.loop, EVRUN_NOWAIT);
		ev_run(d->rig.env.loop, EVRUN_NOWAIT);
	}
	return reached(counter, want);
}

/* What the file beside the lock holds. */
static struct record look_beside(void)
{
	const char *lock = path;
	char beside[200];

	snprintf(beside, sizeof beside, "%s/.lock.next", dir);
	path = beside;
	struct record r = look();
	path = lock;
	return r;
}

static void forget_next(void)
{
	char beside[200];

	snprintf(beside, sizeof beside, "%s/.lock.next", dir);
	unlink(beside);
}

static void hands_over(void)
{
	struct told told[2];
	struct candidate c, d;
	struct elector_status s;
	struct err err;

	forget_next();
	start(&c, &told[0], 9 * NSEC_PER_SEC);
	until(&c.rig, &told[0].leads, 1);
	start_as(&d, &told[1], 9 * NSEC_PER_SEC, NULL, "b");
	ok(until_both(&c, &d, &told[1].nexts, 1), "a standby comes next");
	struct record n = look_beside();
	is_str(n.holder, "b", "which the record beside the lock says");
	record_fini(&n);
	double end = ev_time() + PATIENCE_S;
	do {
		until_both(&c, &d, &told[0].renewals, told[0].renewals + 1);
		elector_status(c.rig.elector, &s);
	} while (!s.next.known && ev_time() < end);
	is_str(s.next.identity, "b", "and then its leader knows it");
	is_int(elector_hand_over(d.rig.elector, 0, "", NSEC_PER_SEC, &err), -1, "who does not lead hands nothing over");
	is_int(elector_hand_over(c.rig.elector, 0, "b", 30 * NSEC_PER_SEC, &err), 0, "a leader does");
	ok(until_both(&c, &d, &told[1].leads, 1) && told[0].hand_overs == 1 && told[0].reason == LEASE_RESIGNED,
	   "its term ends of its own will, and the other one leads");
	ok(told[1].before == 1 && strstr(told[1].order, "yL"), "which hears first that it comes next no more");
	elector_status(c.rig.elector, &s);
	is_int((int64_t)s.next.handovers[NEXT_REQUEST], 1, "the hand-over is counted");
	until_both(&c, &d, &told[0].nexts, 1);
	elector_end(c.rig.elector, LEASE_SHUTDOWN, NSEC_NEVER, 0);
	is_int(told[0].finished, 0, "who comes next and is to end");
	until_both(&c, &d, &told[0].finished, 1);
	n = look_beside();
	for (end = ev_time() + PATIENCE_S; *n.holder && ev_time() < end;) { /* first, if that takes less than P */
		ev_run(c.rig.env.loop, EVRUN_NOWAIT);
		record_fini(&n);
		n = look_beside();
	}
	is_str(n.holder, "", "empties the record");
	record_fini(&n);
	rig_fini(&c.rig);
	rig_fini(&d.rig);
}

static const struct timeline_ops *real_timers;
static struct timer *long_timer; /* the one that is started for more than a lease: to look who comes next */
static int long_fires;

static void timer_was_started(struct timeline *l, struct timer *t, double after_s)
{
	if (after_s > 3.)
		long_timer = t;
	real_timers->start(l, t, after_s);
}

/* Who stops a timer that does not run had it fire. */
static void timer_was_stopped(struct timeline *l, struct timer *t)
{
	if (t == long_timer) {
		long_fires += !ev_is_active(&t->loop) && !ev_is_pending(&t->loop);
		long_timer = NULL;
	}
	real_timers->stop(l, t);
}

static void shares_wakeups(void)
{
	struct told told;
	struct candidate c;
	struct timeline_ops ops;

	forget_next();
	start(&c, &told, 3 * NSEC_PER_SEC);
	real_timers = c.rig.timeline.ops;
	ops = *real_timers;
	ops.start = timer_was_started;
	ops.stop = timer_was_stopped;
	c.rig.timeline.ops = &ops;
	until(&c.rig, &told.renewals, 20); /* more than two leases */
	ok(long_timer && long_fires == 0,
	   "a leader looks who comes next when it renews its lease, and does not wake up for that");
	rig_fini(&c.rig);
}

/* A lock that somebody named as the record beside another one. */
static void taken_name(void)
{
	struct told told;
	struct candidate c;
	struct elector_status s;
	struct next_record named = {
		.who = { .identity = "b", .address = "", .incarnation = "00000000-0000-4000-8000-000000000000" }
	};
	struct record r;

	record_init(&r);
	next_record_fill(&r, &named);
	snprintf(r.write, sizeof r.write, "00112233445566778899aabbccddeeff");
	replace(&r);
	start(&c, &told, 2 * NSEC_PER_SEC);
	within(&c.rig, &told.leads, 1, 4); /* it would lead at once */
	struct record left = look();
	elector_status(c.rig.elector, &s);
	ok(told.leads == 0 && strcmp(left.write, r.write) == 0,
	   "what says who comes next in another lock is left alone");
	ok(strstr(s.trouble, "a name of its own") != NULL, "and said to be the reason");
	record_fini(&left);
	record_fini(&r);
	rig_fini(&c.rig);
}

int main(void)
{
	place_make();
	clones();
	checkpoints();
	tokens();
	extremes();
	clocks();
	order();
	drains();
	hands_over();
	shares_wakeups();
	taken_name();
	return place_end();
}
