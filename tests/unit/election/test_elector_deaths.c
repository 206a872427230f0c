/* The elector beside holders that die on its machine: real processes, a real file lock, a lease of an hour that nobody
 * waits out. What a proof is, test_death_proof.c asks. */
#include "base/mem.h"
#include "elector_rig.h"
#include "election/death_watch.h"
#include "holder.h"
#include "own_proc.h"

#define HOUR_MS (3600 * 1000)
#define A_WHILE_S .3 /* in which something that must not happen would have happened */

static int said_dead;

struct candidate {
	struct rig rig;
	struct death_watches *deaths;
	int leads, others;
	nsec doubt; /* of the leader that was told last */
};

static void hold_lock(struct holder *h)
{
	hold(h, dir, NULL);
	mem_replace(&h->record.holder, "other");
	h->record.state = RECORD_LEADING;
	h->record.lease_ms = HOUR_MS;
	h->record.term = 7;
	h->record.token = 7;
	h->record.acquired_us = h->record.renewed_us = clock_wall_us();
}

/* Its record, as its write number n makes it. */
static void put(struct holder *h, int n)
{
	snprintf(h->record.write, sizeof h->record.write, "%032d", n);
	replace(&h->record);
}

/* ---- the candidate ---- */

static void on_lead(void *arg, const struct elector_term *t)
{
	struct candidate *c = arg;

	(void)t;
	c->leads++;
}

static void on_stop(void *arg, enum lease_reason reason, bool held, struct instant stop_by)
{
	struct candidate *c = arg;

	(void)reason, (void)held, (void)stop_by;
	elector_stopped(c->rig.elector, true);
}

static void on_leader(void *arg, const struct elector_leader *l)
{
	struct candidate *c = arg;

	c->others += !l->self;
	c->doubt = l->doubt;
}

static const struct elector_callbacks callbacks = {
	.lead = on_lead,
	.deadline = no_deadline,
	.stop = on_stop,
	.leader = on_leader,
	.no_leader = nobody_leads,
	.finished = not_finished,
};

static void on_log(void *arg, enum log_level level, const struct log_about *about, const char *event, const char *text)
{
	(void)arg, (void)level, (void)about, (void)text;
	said_dead += strcmp(event, "holder_dead") == 0;
}

static void start(struct candidate *c)
{
	said_dead = 0;
	*c = (struct candidate){ .doubt = -1 };
	rig_init(&c->rig);
	c->deaths = death_watches_new(c->rig.env.loop, c->rig.env.offload);
	struct elector_config config = rig_config(&c->rig, 0);
	config.death_watches = c->deaths;
	rig_start(&c->rig, &config, &callbacks, c);
	elector_bar(c->rig.elector, NULL);
}

static void stop(struct candidate *c)
{
	elector_free(c->rig.elector);
	c->rig.elector = NULL;
	death_watches_free(c->deaths);
	rig_fini(&c->rig);
}

static bool sees_write(struct candidate *c, const struct holder *h)
{
	struct elector_status s = { 0 };

	for (double last = ev_time() + PATIENCE_S; ev_time() < last;) {
		turn(&c->rig);
		elector_status(c->rig.elector, &s);
		if (strcmp(s.record->write, h->record.write) == 0)
			return true;
	}
	return false;
}

/* ---- */

static void died(void)
{
	struct candidate c;
	struct holder h;

	hold_lock(&h);
	put(&h, 1);
	start(&c);
	ok(until(&c.rig, &c.others, 1) && c.doubt == 0, "nothing says that a holder that lives is dead");
	put(&h, 2); /* it renews */
	ok(sees_write(&c, &h) && !within(&c.rig, &c.leads, 1, A_WHILE_S), "its lease is waited out");
	end(&h);
	ok(until(&c.rig, &c.leads, 1) && said_dead == 1, "but not when it is proved dead");
	struct record r = look();
	ok(r.term > 7 && r.token > 7 && r.past && strstr(r.past, "\"died\""),
	   "the record tells that its term ended so: %s", r.past ? r.past : "nothing");
	record_fini(&r);
	stop(&c);
	bury(&h);
}

static void dead_before(void)
{
	struct candidate c;
	struct holder h;

	hold_lock(&h);
	end(&h);
	put(&h, 1);
	start(&c);
	until(&c.rig, &c.others, 1);
	is_int(c.doubt, 250 * NSEC_PER_MS, "of one that was dead before it may soon be known");
	ok(until(&c.rig, &c.leads, 1), "and it is");
	stop(&c);
	bury(&h);
}

static void on_dead(void *arg)
{
	++*(int *)arg;
}

/* Of what a record of another machine says nothing can be proved. */
static void elsewhere(void)
{
	struct candidate c;
	struct holder h, far;
	int told = 0;
	struct death_watch another = { .dead = on_dead, .arg = &told };

	hold_lock(&h);
	put(&h, 1);
	start(&c);
	until(&c.rig, &c.others, 1);
	hold_lock(&far);
	mem_replace(&far.record.holder, "far");
	far.record.boot_id[0] = far.record.boot_id[0] == 'a' ? 'b' : 'a';
	far.record.term = 8;
	put(&far, 2);
	ok(until(&c.rig, &c.others, 2) && c.doubt == 0, "another machine's leader takes its place");
	death_watch_watch(c.deaths, &another, &h.record); /* told when the elector would be */
	end(&h);
	end(&far);
	ok(until(&c.rig, &told, 1) && !within(&c.rig, &c.leads, 1, A_WHILE_S),
	   "the death of the one that led before is no proof about it");
	is_int(said_dead, 0, "nor is it called dead");
	far.record.renewed_us = clock_wall_us() - INT64_C(2000) * HOUR_MS;
	far.record.term = 9;
	put(&far, 3);
	ok(until(&c.rig, &c.others, 3) && c.doubt == INT64_C(3) * HOUR_MS / 2 * NSEC_PER_MS,
	   "a record that is older than its lease is known to be dead after one and a half of it");
	ok(!within(&c.rig, &c.leads, 1, A_WHILE_S), "which is waited, whatever the wall clocks say");
	stop(&c);
	bury(&h);
	bury(&far);
}

int main(void)
{
	own_proc();
	place_make();
	log_divert(on_log, NULL);
	died();
	dead_before();
	elsewhere();
	return place_end();
}
