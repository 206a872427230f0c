/* Who comes next, on real locks: a file, or the URL in LUNARCH_NEXT_URL (tests/locks/test_next.py: etcd). Candidates
 * that write the record, a leader that looks at it, and what else can be in its place. */
#include "election/next_link.h"
#include "election/readiness.h"

#include "base/buf.h"
#include "base/mem.h"
#include "loop/offload.h"
#include "loop/timeline.h"
#include "tap.h"

#include <ev.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef PATIENCE_S
#define PATIENCE_S 60. /* for what takes ten seconds at most. Mutants get less */
#endif
#define LEASE (2 * NSEC_PER_SEC)

static char dir[100], url[300];
static struct lock_env env;
static struct timeline timeline;
static struct lock *m; /* the election's lock, which nobody here reads or writes */

struct candidate {
	struct proof_self self;
	struct author author;
	struct next_link *link;
	int next, over, publishes, hand_overs, refusals, settled, foreign, refused, taken, not_taken, agreed;
	enum next_why why;
	char reason[200];
};

static void on_next(void *arg, bool is)
{
	struct candidate *c = arg;

	c->next += is;
	c->over += !is;
}

static void on_publish(void *arg)
{
	((struct candidate *)arg)->publishes++;
}

static void on_hand_over(void *arg, enum next_why why)
{
	struct candidate *c = arg;

	c->hand_overs++;
	c->why = why;
}

static void on_not_handed_over(void *arg, const char *why)
{
	struct candidate *c = arg;

	c->refusals++;
	snprintf(c->reason, sizeof c->reason, "%s", why);
}

static void on_settled(void *arg)
{
	((struct candidate *)arg)->settled++;
}

static void on_written(void *arg, const struct lock_result *r)
{
	struct candidate *c = arg;

	c->taken += r->outcome == LOCK_OK;
	c->not_taken += r->outcome != LOCK_OK;
}

static void on_listen(void *arg, struct advice_candidate *who)
{
	(void)arg;
	who->poke = "127.0.0.1:4000";
}

static void on_agreed(void *arg)
{
	((struct candidate *)arg)->agreed++;
}

static void on_namesake(void *arg)
{
	(void)arg;
}

static void on_say(void *arg, enum log_level level, const char *event, const char *text)
{
	struct candidate *c = arg;

	(void)level;
	printf("# %s: %s: %s\n", c->author.identity, event, text);
	c->foreign += strcmp(event, "next_foreign") == 0;
	c->refused += strcmp(event, "next_refused") == 0;
}

static const struct next_link_callbacks callbacks = {
	.next = on_next,
	.publish = on_publish,
	.hand_over = on_hand_over,
	.not_handed_over = on_not_handed_over,
	.settled = on_settled,
	.written = on_written,
	.namesake = on_namesake,
	.listen = on_listen,
	.agreed = on_agreed,
	.say = on_say,
};

static struct next_setup options(void)
{
	return (struct next_setup){
		.lease = LEASE, .renew = LEASE / 2, .retry = LEASE / 8, .next.preempt_after = 30 * NSEC_PER_SEC
	};
}

static void join_by(struct candidate *c, const char *identity, const struct lock *lock, const char *at)
{
	static uint32_t seed;

	*c = (struct candidate){ .next = 0 };
	proof_self_init(&c->self, NULL);
	author_init(&c->author, &c->self, identity, "host:1", false);
	struct next_link_config config = { .env = &env,
		                           .timeline = &timeline,
		                           .author = &c->author,
		                           .lock = lock,
		                           .url = at,
		                           .options = options(),
		                           .seed = ++seed };
	c->link = next_link_new(&config, &callbacks, c);
}

static void leave(struct candidate *c)
{
	next_link_free(c->link);
	author_fini(&c->author);
	proof_self_fini(&c->self);
}

static void join(struct candidate *c, const char *identity)
{
	join_by(c, identity, m, url);
}

/* ---- the lock's record, as it would be ---- */

static struct record *led_by(const char *holder, uint64_t term)
{
	static struct record r;
	static bool begun;

	if (begun)
		record_fini(&r);
	begun = true;
	record_init(&r);
	mem_replace(&r.holder, holder);
	snprintf(r.incarnation, sizeof r.incarnation, "00000000-0000-4000-8000-000000000000");
	r.lease_ms = LEASE / NSEC_PER_MS;
	r.term = term;
	r.state = RECORD_LEADING;
	return &r;
}

static void stand_by(struct candidate *c, int64_t priority)
{
	next_link_role(c->link, NEXT_STANDBY, 0);
	next_link_ready(c->link, NULL, priority);
	next_link_heard(c->link, led_by("l", 5));
}

/* What its leader would publish. */
static void hear(struct candidate *c, const struct candidate *leader)
{
	struct record *r = led_by("l", 5);
	struct advice advice;

	if (next_link_advice(leader->link, 5, &advice)) {
		advice_replace(&r->advice, &advice);
	}
	next_link_heard(c->link, r);
}

/* ---- waiting ---- */

static void on_tick(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)w, (void)revents;
	ev_break(loop, EVBREAK_ONE);
}

static double ends;

/* Until it returns false: once more round the loop. */
static bool goes_on(void)
{
	ev_timer tick;

	if (ev_time() > ends)
		return false;
	ev_timer_init(&tick, on_tick, 0.02, 0.02);
	ev_timer_start(env.loop, &tick);
	ev_run(env.loop, 0);
	ev_timer_stop(env.loop, &tick);
	return true;
}

static bool until(const int *counter, int want)
{
	ends = ev_time() + PATIENCE_S;
	while (*counter < want && goes_on())
		;
	return *counter >= want;
}

/* Who could not write the record for 2 L comes next no more, and then again. */
static bool is_next(const struct candidate *c)
{
	ends = ev_time() + PATIENCE_S;
	while (c->next == c->over && goes_on())
		;
	return c->next > c->over;
}

static void run_for(double seconds)
{
	ends = ev_time() + seconds;
	while (goes_on())
		;
}

static bool publishes(const struct candidate *leader, const char *identity)
{
	struct advice advice = ADVICE_NONE;

	ends = ev_time() + PATIENCE_S;
	do
		next_link_advice(leader->link, 5, &advice);
	while (strcmp(advice.next.identity, identity) != 0 && goes_on());
	return strcmp(advice.next.identity, identity) == 0;
}

/* ---- the record, read and written by somebody else ---- */

struct answer {
	int count;
	enum lock_outcome outcome;
	struct record record;
	struct version version;
};

static void on_answer(void *arg, const struct lock_result *r)
{
	struct answer *a = arg;

	a->count++;
	a->outcome = r->outcome;
	a->version = r->version;
	if (r->record)
		record_copy(&a->record, r->record);
}

static struct answer look(struct lock *n)
{
	struct answer a = { .count = 0 };

	record_init(&a.record);
	n->ops->read(n, instant_add(clock_now(), 30 * NSEC_PER_SEC), on_answer, &a);
	until(&a.count, 1);
	return a;
}

static void put(struct lock *n, const struct record *r)
{
	do {
		struct answer was = look(n), is = { .count = 0 };
		n->ops->write(n, r, &was.version, false, instant_add(clock_now(), 30 * NSEC_PER_SEC), on_answer, &is);
		until(&is.count, 1);
		record_fini(&was.record);
		if (is.outcome == LOCK_OK)
			return;
	} while (ev_time() < ends);
}

/* What it gives is good until the third call after this one. */
static struct next_record shown(struct lock *n, char write[33])
{
	static struct record kept[3];
	static int last;
	struct answer a = look(n);
	struct next_record named = { .who = ADVICE_NOBODY, .answers = "" };
	struct record *r = &kept[last = (last + 1) % 3];

	record_fini(r);
	record_init(r);
	record_take(r, &a.record);
	record_fini(&a.record);
	if (a.outcome == LOCK_OK)
		next_record_read(r, &named);
	snprintf(write, 33, "%s", r->write);
	return named;
}

static void clear(struct lock *n)
{
	struct record r;
	struct next_record nobody = { .who = ADVICE_NOBODY, .answers = "" };

	record_init(&r);
	next_record_fill(&r, &nobody);
	put(n, &r);
	record_fini(&r);
}

static struct lock *open_n(void)
{
	struct err err;
	struct lock *n = lock_open_next(&env, m, url, &err);

	if (!n) {
		printf("Bail out! %s\n", err.text);
		exit(1);
	}
	return n;
}

/* ---- a standby ---- */

static void standby(struct lock *n)
{
	struct candidate a;
	struct elector_next s = { .able = true };
	char write[33], again[33];

	join(&a, "a");
	stand_by(&a, 3);
	ok(until(&a.next, 1), "a standby comes next where nobody does");
	struct next_record named = shown(n, write);
	ok(strcmp(named.who.identity, "a") == 0 && strcmp(named.who.incarnation, a.self.incarnation) == 0 &&
	           strcmp(named.who.address, "host:1") == 0 && named.who.priority == 3 &&
	           named.lease_ms == LEASE / NSEC_PER_MS,
	   "the record says who, where, and with which priority");
	is_next(&a);
	next_link_status(a.link, led_by("l", 5), &s);
	ok(s.known && s.self && s.able && strcmp(s.identity, "a") == 0 && s.priority == 3 && !*s.trouble,
	   "the candidate knows it");
	snprintf(again, sizeof again, "%s", write);
	struct next_record later = named;
	for (double by = ev_time() + PATIENCE_S; strcmp(again, write) == 0 && ev_time() < by;)
		later = shown(n, again);
	ok(strcmp(again, write) != 0 && later.since_us == named.since_us,
	   "it writes it anew, as what it has been since");
	ok(!next_link_settled(a.link), "somebody may be sent to it");
	int over = is_next(&a) ? a.over : -1;
	next_link_ready(a.link, "it is ill", 3);
	ok(a.over == over + 1, "who is not ready comes next no more");
	ok(until(&a.settled, 1) && next_link_settled(a.link), "and empties the record");
	ok(!*shown(n, again).who.identity, "so that nobody is sent to it");
	next_link_ready(a.link, NULL, 3);
	over = is_next(&a) ? a.over : -1;
	ok(next_link_leads(a.link), "who leads came next until then");
	next_link_role(a.link, NEXT_LEADER, 6);
	ok(a.over == over && !next_link_leads(a.link), "which is said once");
	ok(next_link_settled(a.link), "a leader has no record to empty");
	leave(&a);
	clear(n);
}

/* ---- a leader and its standbys ---- */

static void leads(struct candidate *l)
{
	join(l, "l");
	next_link_role(l->link, NEXT_LEADER, 5);
}

static void leader(struct lock *n)
{
	struct candidate l, a;
	struct advice advice;
	struct elector_next s = { .able = true };
	struct err err;

	leads(&l);
	next_link_status(l.link, led_by("l", 5), &s);
	ok(!s.known && s.absent >= 0 && !next_link_advice(l.link, 5, &advice), "at first a leader knows of nobody");
	join(&a, "a");
	stand_by(&a, 3);
	ok(publishes(&l, "a"), "it publishes who writes the record while it looks on");
	next_link_advice(l.link, 5, &advice);
	ok(strcmp(advice.next.incarnation, a.self.incarnation) == 0 && strcmp(advice.next.address, "host:1") == 0 &&
	           advice.next.priority == 3 && strcmp(advice.next.poke, "127.0.0.1:4000") == 0,
	   "with all that others need to know");
	ok(!next_link_advice(l.link, 4, &advice) && !next_link_advice(l.link, 6, &advice), "in no other term");
	next_link_status(l.link, led_by("l", 5), &s);
	ok(s.known && !s.self && strcmp(s.identity, "a") == 0 && strcmp(s.address, "host:1") == 0 && s.absent == 0,
	   "and tells it");
	is_int(next_link_handover(l.link, "", NSEC_PER_SEC, &err), 0, "asked to hand over to whoever comes next");
	ok(l.hand_overs == 0 && next_link_advice(l.link, 5, &advice) && strcmp(advice.wanted.identity, "a") == 0,
	   "it asks that one first");
	hear(&a, &l);
	ok(until(&l.hand_overs, 1) && l.why == NEXT_REQUEST, "and does so when it answers");
	ok(until(&a.agreed, 1), "which knows then that the release follows");
	ok(next_link_handover(l.link, "", NSEC_PER_SEC, &err) < 0, "a term is handed over once");
	leave(&a);
	leave(&l);
	clear(n);
}

static void declined(struct lock *n)
{
	struct candidate l, a, b;
	struct advice advice;
	char write[33];
	struct err err;

	leads(&l);
	join(&a, "a");
	stand_by(&a, 3);
	ok(publishes(&l, "a"), "one comes next");
	join(&b, "b");
	stand_by(&b, 3);
	next_link_ready(b.link, "it is ill", 3);
	shown(n, write);
	next_link_handover(l.link, "b", 600 * NSEC_PER_SEC, &err);
	hear(&b, &l);
	ok(until(&l.refusals, 1) && strstr(l.reason, "b could not lead now: it is ill"),
	   "who is asked and could not lead says no, and why: %s", l.reason);
	ok(l.hand_overs == 0 && next_link_advice(l.link, 5, &advice) && strcmp(advice.next.identity, "a") == 0 &&
	           b.next == 0 && !advice_has(&advice, ADVICE_WANTED),
	   "the term goes on, and the one that comes next still does");
	leave(&b);
	leave(&a);
	leave(&l);
	clear(n);
}

/* The store did not take its last write. */
static void doubted(struct lock *n)
{
	struct candidate a, b;
	char write[33], again[33];

	join(&a, "a");
	stand_by(&a, 3);
	ok(is_next(&a), "one comes next");
	join(&b, "b");
	next_link_role(b.link, NEXT_STANDBY, 0);
	struct readiness r;
	struct store_contact c;
	readiness_init(&r, false, clock_now());
	store_contact_init(&c, clock_now());
	store_contact_good(&c, clock_now());
	store_contact_write_failed(&c, WRITE_REFUSED, 0, clock_now());
	next_link_ready(b.link, readiness_lacks(&r, PHASE_FOLLOWING, &(struct lease_standing){ .looked = true }, &c),
	                9);
	struct record *m_record = led_by("l", 5);
	next_link_heard(b.link, m_record);
	leave(&a);
	struct next_record before = shown(n, write);
	ok(until(&b.taken, 1), "another, of which the store took no write, tries one");
	struct next_record after = shown(n, again);
	ok(b.next == 0 && strcmp(write, again) == 0 && strcmp(before.who.identity, after.who.identity) == 0,
	   "which changes nothing");
	next_link_ready(b.link, NULL, 9);
	ok(is_next(&b), "then it could come next again");
	leave(&b);
	clear(n);
}

static void wanted(struct lock *n)
{
	struct candidate l, a, b;
	char write[33];
	struct advice advice;
	struct err err;

	leads(&l);
	next_link_handover(l.link, "b", NSEC_PER_SEC / 5, &err);
	is_int(l.publishes, 1, "who is wanted is published now");
	ok(until(&l.refusals, 1) && strstr(l.reason, "b did not come next"),
	   "who does not answer in time is not handed over to");
	next_link_handover(l.link, "b", 600 * NSEC_PER_SEC, &err);
	ok(next_link_advice(l.link, 5, &advice) && *advice.wanted.name && strcmp(advice.wanted.identity, "b") == 0,
	   "the request is published by its name");
	join(&a, "a");
	stand_by(&a, 3);
	hear(&a, &l);
	join(&b, "b");
	stand_by(&b, 0);
	hear(&b, &l);
	ok(until(&l.hand_overs, 1), "the one that is wanted answers");
	ok(b.next >= 1 && a.next == 0, "and nobody else comes next meanwhile");
	is_str(shown(n, write).answers, advice.wanted.name, "by the request's name");
	leave(&a);
	leave(&b);
	leave(&l);
	leads(&l);
	next_link_handover(l.link, "b", 600 * NSEC_PER_SEC, &err);
	next_link_role(l.link, NEXT_STANDBY, 0);
	ok(l.refusals == 1 && strstr(l.reason, "ended for another reason"), "a request ends with its term");
	leave(&l);
	clear(n);
}

/* ---- another incarnation ---- */

static void copies(struct lock *n)
{
	struct candidate a;
	char before[37], write[33];

	join(&a, "a");
	stand_by(&a, 0);
	int over = is_next(&a) ? a.over : -1, next = a.next;
	snprintf(before, sizeof before, "%s", a.author.incarnation);
	author_become_another(&a.author);
	next_link_renamed(a.link);
	is_int(a.over, over + 1, "a copy of a process that comes next does not");
	ok(next_link_settled(a.link), "and has no record to empty");
	stand_by(&a, 0);
	ok(until(&a.next, next + 1), "until the one that was it has been silent");
	struct next_record named = shown(n, write);
	ok(strcmp(named.who.incarnation, before) != 0 && strcmp(named.who.incarnation, a.author.incarnation) == 0,
	   "then it does, under a name of its own");
	leave(&a);
	clear(n);
}

/* ---- what is no record of who comes next ---- */

static void foreign(struct lock *n)
{
	struct candidate a;
	struct elector_next s = { .able = true };
	struct record r;

	record_init(&r);
	record_copy(&r, led_by("somebody", 3));
	snprintf(r.write, sizeof r.write, "00112233445566778899aabbccddeeff");
	put(n, &r);
	join(&a, "a");
	stand_by(&a, 1000);
	ok(until(&a.foreign, 1), "the record of another election in its place is said");
	next_link_ready(a.link, NULL, 2000); /* a reason to look again */
	run_for(3);                          /* the standby would take it within R/2, which is half a second */
	struct answer left = look(n);
	ok(a.next == 0 && strcmp(left.record.write, r.write) == 0, "and left alone");
	is_int(a.foreign, 1, "it is said once");
	next_link_status(a.link, led_by("l", 5), &s);
	ok(strstr(s.trouble, n->url) && !s.able && strcmp(s.unable_why, s.trouble) == 0,
	   "by the record's name, as what keeps the candidate from being next");
	struct record *published = led_by("l", 5);
	advice_replace(&published->advice, &(struct advice){ .next = { .identity = "b", .priority = 5000 } });
	next_link_heard(a.link, published);
	s = (struct elector_next){ .able = true };
	next_link_status(a.link, published, &s);
	ok(s.able && !*s.trouble && strcmp(s.identity, "b") == 0, "until somebody comes next");
	record_fini(&left.record);
	record_fini(&r);
	leave(&a);
	clear(n);
}

/* As a store does whose account may read the record and not write it. */
static struct {
	lock_done_fn *done;
	void *arg;
	int count;
} write_under_way;

static void refuse(void *arg, const struct lock_result *r)
{
	struct lock_result refusal = { .outcome = LOCK_REFUSED, .sent_at = clock_now() };

	(void)arg, (void)r;
	err_set(&refusal.err, ERR_DENIED, "the account may not write it");
	write_under_way.done(write_under_way.arg, &refusal);
}

static void refuse_write(struct lock *l, const struct record *r, const struct version *expected, bool durable,
                         struct instant by, lock_done_fn *done, void *arg)
{
	(void)r, (void)expected, (void)durable;
	write_under_way.done = done;
	write_under_way.arg = arg;
	write_under_way.count++;
	l->ops->read(l, by, refuse, NULL);
}

static struct lock *open_refusing(const struct lock *lock, struct err *err)
{
	static struct lock_ops ops;
	struct lock *n = lock_open_next(&env, m, url, err);

	(void)lock;
	ops = *n->ops;
	ops.write = refuse_write;
	n->ops = &ops;
	return n;
}

static void refused(const struct lock *n)
{
	struct lock_ops ops = lock_none;
	struct lock lock = { .ops = &ops, .url = (char *)"none:x" };
	struct elector_next s = { .able = true };
	struct candidate a;
	struct err err;

	ops.next = NULL;
	ops.next_url = NULL;
	ops.open_next = NULL;
	join_by(&a, "a", &lock, "none:x");
	stand_by(&a, 0);
	next_link_status(a.link, led_by("l", 5), &s);
	ok(!s.able && strstr(s.trouble, "none:x"), "a lock without a place for the record says so");
	next_link_role(a.link, NEXT_LEADER, 5);
	ok(next_link_handover(a.link, "", NSEC_PER_SEC, &err) < 0, "and hands over to nobody");
	leave(&a);
	ops.open_next = open_refusing;
	join_by(&a, "a", &lock, "none:x");
	stand_by(&a, 0);
	ok(until(&a.refused, 1), "a record that cannot be written is said");
	s = (struct elector_next){ .able = true };
	next_link_status(a.link, led_by("l", 5), &s);
	ok(!s.able && strstr(s.trouble, n->url) && a.next == 0, "by its name");
	ok(until(&write_under_way.count, 2) && a.refused == 1, "it is said once, however often it is tried");
	leave(&a);
	join_by(&a,
	        "an identity that is much longer than two hundred and fifty-five bytes: an identity that is much "
	        "longer than two hundred and fifty-five bytes: an identity that is much longer than two hundred and "
	        "fifty-five bytes: an identity that is much longer than two hundred and fifty-five bytes",
	        m, url);
	stand_by(&a, 0);
	s = (struct elector_next){ .able = true };
	next_link_status(a.link, led_by("l", 5), &s);
	run_for(2);
	ok(!s.able && strstr(s.unable_why, "longer") && a.next == 0,
	   "who has a name that fits into no record never comes next");
	leave(&a);
}

int main(void)
{
	const char *given = getenv("LUNARCH_NEXT_URL");
	struct err err;

	snprintf(dir, sizeof dir, "/dev/shm/lunarch-next-XXXXXX");
	if (!mkdtemp(dir))
		return 1;
	snprintf(url, sizeof url, "file:%s/lock", dir);
	if (given)
		snprintf(url, sizeof url, "%s", given);
	env.loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
	env.offload = offload_new(env.loop, 1, NULL);
	timeline_init(&timeline, env.loop);
	m = lock_open(&env, url, &err);
	if (!m) {
		printf("Bail out! %s\n", err.text);
		return 1;
	}
	struct lock *n = open_n();
	standby(n);
	leader(n);
	declined(n);
	doubted(n);
	wanted(n);
	copies(n);
	foreign(n);
	refused(n);
	n->ops->close(n);
	m->ops->close(m);
	lock_env_fini(&env);
	offload_free(env.offload);
	timeline_fini(&timeline);
	ev_loop_destroy(env.loop);
	char command[140];
	snprintf(command, sizeof command, "rm -rf '%s'", dir);
	return system(command) != 0 || tap_done();
}
