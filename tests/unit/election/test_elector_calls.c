/* What an elector's user calls, and how it hears of trouble: on a real file lock, whose answers this test may turn into
 * failures, older tokens or a refusal. What goes on in a term is in test_elector.c. */
#include "base/mem.h"
#include "elector_rig.h"
#include "locks/lock_identity.h"

#define LEASE (9 * NSEC_PER_SEC)

struct candidate {
	struct rig rig;
	int leads, stops, asks, finished, others, no_leaders, troubles, back, hopeless, unsaved, saved, renewals;
	bool stays; /* the script is not said to have stopped */
	bool reaped, left, answers;
	enum lease_reason reason;
	int64_t token;
	char trouble[400], leader[60], address[60];
};

static void on_lead(void *arg, const struct elector_term *t)
{
	struct candidate *c = arg;

	c->leads++;
	c->token = t->token;
}

static void on_stop(void *arg, enum lease_reason reason, bool held, struct instant stop_by)
{
	struct candidate *c = arg;

	(void)held, (void)stop_by;
	c->stops++;
	c->reason = reason;
	if (!c->stays)
		elector_stopped(c->rig.elector, c->reaped);
}

static void on_leader(void *arg, const struct elector_leader *l)
{
	struct candidate *c = arg;

	c->others += !l->self;
	snprintf(c->leader, sizeof c->leader, "%s", l->identity);
	snprintf(c->address, sizeof c->address, "%s", l->address);
}

static void on_no_leader(void *arg, const char *previous)
{
	struct candidate *c = arg;

	c->no_leaders++;
	snprintf(c->leader, sizeof c->leader, "not %s", previous);
}

static void on_saved(void *arg, uint64_t save, bool good)
{
	struct candidate *c = arg;

	(void)save;
	c->saved += good;
	c->unsaved += !good;
}

static void on_renewed(void *arg, nsec took)
{
	struct candidate *c = arg;

	(void)took;
	c->renewals++;
}

static void on_trouble(void *arg, const char *text)
{
	struct candidate *c = arg;

	c->troubles += text != NULL;
	c->back += text == NULL;
	if (text)
		snprintf(c->trouble, sizeof c->trouble, "%s", text);
}

static void on_hopeless(void *arg, const char *text)
{
	struct candidate *c = arg;

	c->hopeless++;
	snprintf(c->trouble, sizeof c->trouble, "%s", text);
}

static void on_ask(void *arg)
{
	struct candidate *c = arg;
	const int64_t priority = 7;

	c->asks++;
	elector_answer(c->rig.elector, c->answers, c->asks == 1 ? "" : "10.0.0.1:80", c->asks == 1 ? NULL : &priority);
}

static void on_finished(void *arg, bool left)
{
	struct candidate *c = arg;

	c->finished++;
	c->left = left;
}

static const struct elector_callbacks callbacks = {
	.lead = on_lead,
	.deadline = no_deadline,
	.stop = on_stop,
	.leader = on_leader,
	.no_leader = on_no_leader,
	.ask = on_ask,
	.saved = on_saved,
	.renewed = on_renewed,
	.trouble = on_trouble,
	.hopeless = on_hopeless,
	.finished = on_finished,
};

/* ---- a lock whose answers may be changed ---- */

static const struct lock_ops *real;
static struct {
	enum lock_outcome read, write; /* instead of what the store did; LOCK_OK: its own */
	enum err_code code;
	int64_t token; /* of acquisitions */
	lock_done_fn *done;
	void *arg;
	bool writing;
	struct lock_identity identity;
} twist;

static void twisted(void *arg, const struct lock_result *r)
{
	struct lock_result other = *r;
	enum lock_outcome outcome = twist.writing ? twist.write : twist.read;

	(void)arg;
	if (outcome != LOCK_OK) {
		other = (struct lock_result){ .outcome = outcome };
		err_set(&other.err, twist.code, "the store says no to a %s", twist.writing ? "write" : "read");
	}
	if (outcome == LOCK_OK && twist.writing && twist.token)
		other.token = twist.token;
	twist.done(twist.arg, &other);
}

static void twist_read(struct lock *l, struct instant by, lock_done_fn *done, void *arg)
{
	twist.writing = false;
	twist.done = done;
	twist.arg = arg;
	real->read(l, by, twisted, NULL);
}

static void twist_write(struct lock *l, const struct record *r, const struct version *expected, bool durable,
                        struct instant by, lock_done_fn *done, void *arg)
{
	twist.writing = true;
	twist.done = done;
	twist.arg = arg;
	if (twist.write == LOCK_FAILED) { /* a write that failed was not applied */
		real->read(l, by, twisted, NULL);
		return;
	}
	real->write(l, r, expected, durable, by, twisted, NULL);
}

static struct lock_identity *twist_identity(struct lock *l)
{
	(void)l;
	return &twist.identity;
}

static struct lock *open_twisted(struct lock_env *env)
{
	static struct lock_ops ops;
	struct err err;
	struct lock *l = lock_open(env, url, &err);

	real = l->ops;
	ops = *real;
	ops.read = twist_read;
	ops.write = twist_write;
	ops.identity = twist_identity;
	l->ops = &ops;
	return l;
}

/* ---- candidates ---- */

static void prepare(struct candidate *c)
{
	*c = (struct candidate){ .reaped = true, .answers = true };
	memset(&twist, 0, sizeof twist);
	rig_init(&c->rig);
}

static void start(struct candidate *c, struct elector_config *config)
{
	config->opened = open_twisted(&c->rig.env);
	rig_start(&c->rig, config, &callbacks, c);
}

static void put(const char *holder, int64_t lease_ms, int64_t token, const char *forced)
{
	struct record r;

	record_init(&r);
	mem_replace(&r.holder, holder);
	mem_replace(&r.address, "10.9.9.9:9");
	mem_replace(&r.forced, forced);
	r.state = *holder ? RECORD_LEADING : RECORD_RELEASED;
	r.lease_ms = lease_ms;
	r.term = 7;
	r.token = token;
	replace(&r);
	record_fini(&r);
}

/* ---- */

static void refusals(void)
{
	struct candidate c;
	struct err err;

	prepare(&c);
	struct elector_config config = rig_config(&c.rig, LEASE);
	config.identity = "a\xff";
	ok(!elector_new(&config, &callbacks, &c, &err) && err.code == ERR_USAGE && strstr(err.text, "identity"),
	   "an identity that JSON cannot hold is refused: %s", err.text);
	config = rig_config(&c.rig, LEASE);
	config.address = "\xc0";
	ok(!elector_new(&config, &callbacks, &c, &err) && strstr(err.text, "address"), "and so is an address");
	config = rig_config(&c.rig, LEASE);
	config.times.renew = config.times.lease;
	ok(!elector_new(&config, &callbacks, &c, &err) && err.code == ERR_USAGE, "times that do not fit: %s", err.text);
	config = rig_config(&c.rig, LEASE);
	config.lock = "nostore://x";
	ok(!elector_new(&config, &callbacks, &c, &err) && strstr(err.text, "nostore"), "a lock of no kind: %s",
	   err.text);
	config = rig_config(&c.rig, LEASE);
	start(&c, &config);
	ok(elector_save(c.rig.elector, 1, "{", &err) < 0 && err.code == ERR_INVALID, "a checkpoint that is no JSON: %s",
	   err.text);
	rig_fini(&c.rig);
}

static void asked(void)
{
	struct candidate c;
	struct elector_status s;

	prepare(&c);
	struct elector_config config = rig_config(&c.rig, LEASE);
	config.asks = true;
	c.answers = false;
	start(&c, &config);
	elector_bar(c.rig.elector, NULL);
	ok(until(&c.rig, &c.asks, 2) && c.leads == 0, "who is told no does not lead, and asks again");
	c.answers = true;
	ok(until(&c.rig, &c.leads, 1), "who is told yes leads");
	elector_status(c.rig.elector, &s);
	is_str(s.address, "10.0.0.1:80", "with the address that came with the answer");
	is_int(elector_hand_over(c.rig.elector, 0, "a", NSEC_PER_SEC, &(struct err){ 0 }), -1,
	       "a leader hands nothing over to itself");
	rig_fini(&c.rig);
}

static void observer(void)
{
	struct candidate c;

	put("somebody", 3600000, 5, "");
	prepare(&c);
	struct elector_config config = rig_config(&c.rig, LEASE);
	config.observer = true;
	start(&c, &config);
	elector_tell_leader(c.rig.elector);
	is_int(c.others, 0, "before the store was read nobody is told");
	elector_bar(c.rig.elector, "of no matter");
	elector_bar(c.rig.elector, NULL);
	ok(until(&c.rig, &c.others, 1), "an observer hears who leads");
	is_str(c.leader, "somebody", "by its name");
	is_str(c.address, "10.9.9.9:9", "and its address");
	elector_tell_leader(c.rig.elector);
	is_int(c.others, 2, "and once more when that is asked for");
	put("", 1000, 5, "");
	ok(until(&c.rig, &c.no_leaders, 1), "and that nobody leads");
	is_str(c.leader, "not somebody", "who did before");
	elector_end(c.rig.elector, LEASE_SHUTDOWN, NSEC_NEVER, 0);
	ok(until(&c.rig, &c.finished, 1) && !c.left, "it ends with nothing held");
	rig_fini(&c.rig);
}

static void paused(void)
{
	struct candidate c;
	struct elector_status s;

	prepare(&c);
	struct elector_config config = rig_config(&c.rig, LEASE);
	start(&c, &config);
	elector_bar(c.rig.elector, NULL);
	until(&c.rig, &c.leads, 1);
	elector_bar(c.rig.elector, "the script is replaced");
	elector_status(c.rig.elector, &s);
	ok(s.leading && strcmp(s.paused_why, "the script is replaced") == 0,
	   "a pause has its reason, and the term goes on");
	until(&c.rig, &c.renewals, 2);
	is_int(c.stops, 0, "renewed");
	c.reaped = false;
	elector_end(c.rig.elector, LEASE_SHUTDOWN, NSEC_NEVER, 0);
	ok(until(&c.rig, &c.finished, 1) && c.left, "what cannot be killed leaves the lease to expire");
	rig_fini(&c.rig);
}

static void trouble(void)
{
	struct candidate c;
	struct err err;

	prepare(&c);
	struct elector_config config = rig_config(&c.rig, LEASE);
	start(&c, &config);
	twist.read = LOCK_FAILED;
	twist.code = ERR_UNREACHABLE;
	elector_bar(c.rig.elector, NULL);
	ok(until(&c.rig, &c.troubles, 2), "a store that fails is told of each time");
	is_str(c.trouble, "the store says no to a read", "in its words");
	twist.read = LOCK_OK;
	ok(until(&c.rig, &c.back, 1) && until(&c.rig, &c.leads, 1), "that it answers again is told, too, and it leads");
	twist.write = LOCK_FAILED;
	twist.code = ERR_DENIED;
	elector_save(c.rig.elector, 1, "{\"n\":1}", &err);
	ok(until(&c.rig, &c.troubles, 3), "a write that fails in a term is trouble");
	is_str(c.trouble, "the store says no to a write", "in its words");
	ok(until(&c.rig, &c.stops, 1) && c.reason == LEASE_EXPIRED && c.unsaved == 1 && c.saved == 0,
	   "a term whose renewals fail ends in time, and what it wanted to save is not saved");
	rig_fini(&c.rig);
}

static const char *lacks(const struct candidate *c)
{
	struct elector_status s;

	elector_status(c->rig.elector, &s);
	return s.lacks;
}

static bool comes_to_lack(struct candidate *c, const char *words)
{
	for (double end = ev_time() + PATIENCE_S; ev_time() < end;) {
		const char *why = lacks(c);
		if (words ? why && strstr(why, words) : !why)
			return true;
		turn(&c->rig);
	}
	return false;
}

static void unwritable(void)
{
	struct candidate c;
	struct elector_status s;

	prepare(&c);
	struct elector_config config = rig_config(&c.rig, LEASE);
	start(&c, &config);
	ok(comes_to_lack(&c, "not begun"), "who does not campaign yet could not lead");
	elector_bar(c.rig.elector, NULL);
	ok(comes_to_lack(&c, "does not answer"), "nor who has not heard of the store");
	twist.write = LOCK_FAILED;
	twist.code = ERR_DENIED;
	ok(comes_to_lack(&c, "its writes"), "nor of whom the store takes no writes");
	is_str(c.trouble, "the store says no to a write", "which is trouble");
	put("somebody", 3600000, 500, "");
	ok(until(&c.rig, &c.others, 1), "another leads");
	elector_status(c.rig.elector, &s);
	ok(s.lacks && strstr(s.lacks, "its writes") && s.store.unwritable && !s.store.wrote && *s.trouble,
	   "so the store takes its writes, but it is not known whether ours");
	ok(comes_to_lack(&c, NULL), "until it takes one, in the record of who comes next");
	elector_status(c.rig.elector, &s);
	ok(s.store.wrote && !*s.trouble && s.next.able && c.leads == 0, "which it finds out without leading");
	elector_ready(c.rig.elector, false);
	ok(comes_to_lack(&c, "worker"), "who has no worker could not lead");
	elector_ready(c.rig.elector, true);
	elector_answer_late(c.rig.elector);
	ok(!lacks(&c), "a may_lead that is late is none where there is no such hook");
	elector_end(c.rig.elector, LEASE_RESIGNED, NSEC_PER_SEC, 0);
	ok(comes_to_lack(&c, "some time"), "who sits out could not lead");
	elector_bar(c.rig.elector, "for a test");
	ok(comes_to_lack(&c, "paused"), "nor who is paused");
	elector_status(c.rig.elector, &s);
	is_str(s.paused_why, "for a test", "and why is known");
	elector_bar(c.rig.elector, "for another reason");
	elector_status(c.rig.elector, &s);
	is_str(s.paused_why, "for another reason", "also when that changes");
	elector_bar(c.rig.elector, NULL);
	elector_status(c.rig.elector, &s);
	ok(!s.standing.paused, "it is paused no more when nothing keeps it from campaigning");
	elector_ready(c.rig.elector, false);
	elector_configure_user(c.rig.elector, "here", true);
	elector_status(c.rig.elector, &s);
	ok(strcmp(s.address, "here") == 0 && !s.worker, "a reload brings an address, and no worker");
	elector_configure_user(c.rig.elector, NULL, true);
	elector_status(c.rig.elector, &s);
	is_str(s.address, "here", "which stays if none is named");
	rig_fini(&c.rig);
}

static void hopeless(void)
{
	struct candidate c;

	prepare(&c);
	struct elector_config config = rig_config(&c.rig, LEASE);
	start(&c, &config);
	twist.read = LOCK_REFUSED;
	twist.code = ERR_USAGE;
	elector_bar(c.rig.elector, NULL);
	ok(until(&c.rig, &c.hopeless, 1), "what no later try can mend is told as such: %s", c.trouble);
	rig_fini(&c.rig);
}

static void low_token(void)
{
	struct candidate c;

	put("somebody", 500, 1000, "for a test");
	prepare(&c);
	struct elector_config config = rig_config(&c.rig, LEASE);
	start(&c, &config);
	twist.token = 10;
	elector_bar(c.rig.elector, NULL);
	ok(until(&c.rig, &c.troubles, 1) && c.leads == 0, "a token below one that was seen is not led by");
	ok(strstr(c.trouble, "10") && strstr(c.trouble, "1000"), "%s", c.trouble);
	twist.token = 2000;
	ok(until(&c.rig, &c.leads, 1) && c.token == 2000, "a larger one is");
	ok(c.back >= 1, "and that is the end of the trouble");
	rig_fini(&c.rig);
}

static bool answers_as(const char *name)
{
	struct err err;

	return lock_identity_is(&twist.identity, name, "etcd at h:1", "the cluster", &err);
}

static nsec seen_for(const struct candidate *c)
{
	struct elector_status s;

	elector_status(c->rig.elector, &s);
	return s.standing.looked ? s.standing.seen_for : 0;
}

static void another_store(void)
{
	struct candidate c;
	struct err err;

	prepare(&c);
	struct elector_config config = rig_config(&c.rig, LEASE);
	start(&c, &config);
	ok(answers_as("a1") && answers_as("") && answers_as("a1"),
	   "the first store that says its name is the one to use");
	elector_bar(c.rig.elector, NULL);
	ok(until(&c.rig, &c.leads, 1) && until(&c.rig, &c.renewals, 1), "one leads in it");
	struct elector_status s;
	elector_status(c.rig.elector, &s);
	is_str(s.record->store, "a1", "and the record says so");
	elector_accept_store(c.rig.elector);
	is_str(twist.identity.known, "a1", "nothing is accepted where nothing else has answered");
	ok(!lock_identity_is(&twist.identity, "b2", "etcd at h:1", "the cluster", &err) && strstr(err.text, "a1") &&
	           strstr(err.text, "b2") && strstr(err.text, "h:1"),
	   "another one is told apart: %s", err.text);
	elector_accept_store(c.rig.elector);
	ok(answers_as("b2") && until(&c.rig, &c.stops, 1) && c.reason == LEASE_STOLEN,
	   "once it is accepted, nobody leads on by the record that was copied into it");
	for (double end = ev_time() + PATIENCE_S; seen_for(&c) < NSEC_PER_SEC / 10 && ev_time() < end;)
		turn(&c.rig);
	nsec before = seen_for(&c);
	answers_as("c3");
	elector_accept_store(c.rig.elector);
	for (double end = ev_time() + PATIENCE_S; seen_for(&c) >= before && c.leads == 1 && ev_time() < end;)
		turn(&c.rig);
	ok(seen_for(&c) < before && c.leads == 1, "and in a third one its lease is waited out anew");
	rig_fini(&c.rig);
}

static void foreign(void)
{
	struct candidate c;
	FILE *f = fopen(path, "we");

	fputs("{\"name\":\"package.json\"}", f);
	fclose(f);
	prepare(&c);
	struct elector_config config = rig_config(&c.rig, LEASE);
	start(&c, &config);
	elector_bar(c.rig.elector, NULL);
	ok(until(&c.rig, &c.troubles, 1) && strstr(c.trouble, "no election record"), "a file of others: %s", c.trouble);
	is_int(c.leads, 0, "nobody leads on it");
	rig_fini(&c.rig);
}

int main(void)
{
	place_make();
	refusals();
	another_store();
	asked();
	observer();
	paused();
	trouble();
	unwritable();
	hopeless();
	low_token();
	foreign();
	return place_end();
}
