#include "election/next_link.h"

#include "base/mem.h"
#include "base/nonce.h"
#include "election/outcome.h"
#include "election/readiness.h"
#include "loop/timeline.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char no_name[] = "its identity or its address is longer than 255 bytes", no_news[] = "";

#define EVENTS_MAX 8 /* that callbacks may add while one is carried out */

struct next_link {
	const struct next_link_callbacks *cb;
	void *arg;
	struct timeline *timeline;
	struct timer timer; /* for next_wait */
	const struct author *author;
	struct lock *lock; /* NULL: there is no place for the record, and trouble says why */
	char *trouble;     /* what is wrong with the record or its place. NULL: nothing is */
	bool unwritable;   /* a write had the trouble, so a good read does not end it */
	bool foreign;      /* the trouble is what the record is */
	bool closing;

	struct next_machine machine;
	struct next_event *events; /* to be carried out, on the stack of the first link_step; NULL: none is */
	int event_count;
	enum next_role role; /* what the machine was told last, or will be */
	uint64_t term;
	const char *lacks; /* NULL: it is ready */
	int64_t priority;

	/* The record. */
	struct record seen;     /* its content, as of the last good read or write */
	struct version version; /* the version of `seen` */
	struct record *written; /* what the write under way makes of it; NULL: none is under way */
	uint64_t op;
	bool may_name;  /* it may name this candidate, by a write of ours */
	bool unsettled; /* it did, and `settled` was not called since */

	/* What people hear. */
	bool is;                 /* this candidate comes next, and its user knows it */
	struct instant is_since; /* since when that is so */
	uint64_t who;            /* who comes next, as the lock's record publishes it, to others or by us; 0: nobody */
	struct instant since;    /* since when it is so, or since when this candidate has its role */
	char wanted[33];         /* a standby: the request that the lock's record publishes; "": none */
	struct {
		char name[33];
		char *to; /* "": whoever comes next. NULL: there was no request */
		nsec timeout;
	} request; /* the leader's own, the last one */
};

/* ---- the log ---- */

__attribute__((format(printf, 4, 5))) static void link_say(struct next_link *l, enum log_level level, const char *event,
                                                           const char *fmt, ...)
{
	char text[1200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	l->cb->say(l->arg, level, event, text);
}

/* Each trouble is said once. */
static void link_trouble(struct next_link *l, const char *event, const char *fmt, const char *why)
{
	char *text = mem_printf(fmt, l->lock->url, why);
	bool same = l->trouble && strcmp(l->trouble, text) == 0;

	free(l->trouble);
	l->trouble = text;
	if (!same)
		link_say(l, LOG_WARN, event, "%s", text);
}

static void link_trouble_over(struct next_link *l)
{
	mem_replace(&l->trouble, NULL);
	l->unwritable = l->foreign = false;
}

static void say_published(struct next_link *l, const struct next_sight *next)
{
	const struct next_machine *m = &l->machine;

	if (!next)
		link_say(l, LOG_INFO, "nobody_next", "nobody comes next any more");
	else if (m->options.next.preempt && next->priority > m->priority)
		link_say(l, LOG_INFO, "next_known",
		         "%s comes next with priority %lld, which is larger than %lld: this leader hands over to it "
		         "in %.3gs",
		         l->seen.holder, (long long)next->priority, (long long)m->priority,
		         (double)m->preempt_after / NSEC_PER_SEC);
	else
		link_say(l, LOG_INFO, "next_known", "%s comes next, with priority %lld", l->seen.holder,
		         (long long)next->priority);
}

/* ---- what the record shows ---- */

static struct next_sight link_sight(const struct next_link *l, const struct record *r)
{
	return next_record_sight(r, l->author->identity, l->author->incarnation);
}

static void know(struct next_link *l, uint64_t who)
{
	if (who == l->who)
		return;
	l->who = who;
	l->since = clock_now();
}

/* A leader does not empty the record, since it ends its term for somebody else. */
static void note_named(struct next_link *l, bool mine)
{
	l->may_name = mine && l->role != NEXT_LEADER;
}

/* ---- operations ---- */

static void link_step(struct next_link *l, struct next_event e);

/* A read that is denied has failed like one without an answer (locks/lock.h), but another try would hardly help. */
static bool link_refused(const struct lock_result *r)
{
	return outcome_is_refusal(r->outcome) || (r->outcome == LOCK_FAILED && r->err.code == ERR_DENIED);
}

/* A store that does not answer is the election's trouble. */
static void link_failed(struct next_link *l, const struct lock_result *r, bool writing)
{
	if (!link_refused(r))
		return;
	link_trouble(l, "next_refused",
	             writing ? "%s cannot be written, so this candidate never comes next: %s"
	                     : "%s cannot be read, so it is not known who comes next: %s",
	             r->err.text);
	l->unwritable = writing;
}

/* Where another try would hardly help soon. */
static bool link_write_is_vain(const struct lock_result *r)
{
	return r->outcome != LOCK_OK && r->outcome != LOCK_CONFLICT && outcome_of_write(r) != WRITE_UNSURE;
}

static struct next_sight link_was_read(struct next_link *l, const struct lock_result *r)
{
	struct next_sight s = { .kind = NEXT_ABSENT };

	l->version = r->version;
	if (r->outcome == LOCK_OK) {
		record_copy(&l->seen, r->record);
		s = link_sight(l, &l->seen);
	} else {
		record_clear(&l->seen);
		s.kind = r->outcome == LOCK_FOREIGN ? NEXT_FOREIGN : NEXT_ABSENT;
	}
	note_named(l, s.mine);
	l->foreign = s.kind == NEXT_FOREIGN;
	if (l->foreign)
		link_trouble(l, "next_foreign",
		             "%s is to say who comes next, and holds something else, which is left alone: %s",
		             r->outcome == LOCK_FOREIGN ? r->err.text : "it is the record of another election");
	else if (!l->unwritable)
		link_trouble_over(l);
	return s;
}

static void link_on_read(void *arg, const struct lock_result *r)
{
	struct next_link *l = arg;
	struct next_event e = {
		.kind = NEXT_EV_READ_DONE, .op = l->op, .outcome = outcome_of(r->outcome), .refused = link_refused(r)
	};

	if (l->closing)
		return;
	if (e.outcome == OUTCOME_OK)
		e.sight = link_was_read(l, r);
	else
		link_failed(l, r, false);
	link_step(l, e);
}

static void drop_written(struct next_link *l)
{
	if (l->written)
		record_fini(l->written);
	free(l->written);
	l->written = NULL;
}

static void link_on_written(void *arg, const struct lock_result *r)
{
	struct next_link *l = arg;
	struct next_event e = { .kind = NEXT_EV_WRITE_DONE,
		                .op = l->op,
		                .outcome = outcome_of(r->outcome),
		                .refused = link_write_is_vain(r),
		                .sent_at = r->sent_at };

	if (l->closing)
		return;
	if (e.outcome == OUTCOME_OK) {
		l->version = r->version;
		record_take(&l->seen, l->written);
		e.sight = link_sight(l, &l->seen);
		note_named(l, e.sight.mine);
		link_trouble_over(l);
	} else if (e.outcome == OUTCOME_FAILED) {
		link_failed(l, r, true);
		note_named(l, link_sight(l, &l->seen).mine);
	}
	drop_written(l);
	link_step(l, e);
	if (e.sight.mine && e.sight.answers)
		l->cb->agreed(l->arg);
	if (r->outcome == LOCK_OK || (e.refused && outcome_of_write(r) == WRITE_FULL))
		l->cb->written(l->arg, r);
}

static void start_write(struct next_link *l, const struct next_actions *a, struct instant by)
{
	struct record *r = l->written = mem_zero(sizeof *l->written);
	struct next_record n = {
		.who = ADVICE_NOBODY,
		.answers = "",
		.wall_us = clock_wall_us(),
		.lease_ms = l->machine.options.lease / NSEC_PER_MS,
		.retry_ms = l->machine.options.retry / NSEC_PER_MS,
	};

	record_init(r);
	record_copy(r, &l->seen);
	if (a->as_is) {
		next_record_decline(r, a->answers ? l->wanted : "", a->answers && l->lacks ? l->lacks : "");
		l->lock->ops->write(l->lock, r, &l->version, false, by, link_on_written, l);
		return;
	}
	n.since_us = link_sight(l, &l->seen).mine ? l->seen.acquired_us : n.wall_us;
	if (!a->nobody) {
		n.who.identity = l->author->identity;
		n.who.address = l->author->address;
		n.who.incarnation = l->author->incarnation;
		n.who.priority = l->machine.priority;
		l->cb->listen(l->arg, &n.who);
	}
	if (!a->nobody && a->answers && a->answers == next_record_request(l->wanted))
		n.answers = l->wanted;
	next_record_fill(r, &n);
	if (a->nobody && a->answers)
		next_record_decline(r, l->wanted, l->lacks ? l->lacks : "");
	nonce_hex(r->write, sizeof r->write / 2);
	l->may_name = l->unsettled = true;
	l->lock->ops->write(l->lock, r, &l->version, false, by, link_on_written, l);
}

static void start_op(struct next_link *l, const struct next_actions *a)
{
	struct instant by = instant_add(clock_now(), l->machine.options.retry);

	l->op = a->op;
	if (a->set & NEXT_DO_READ)
		l->lock->ops->read(l->lock, by, link_on_read, l);
	else
		start_write(l, a, by);
}

/* ---- carrying out what the machine asks for ---- */

static void link_next(struct next_link *l, bool is)
{
	if (l->is == is)
		return; /* next_link_leads has said it */
	l->is = is;
	l->is_since = clock_now();
	l->cb->next(l->arg, is);
	link_say(l, LOG_INFO, is ? "comes_next" : "next_no_more",
	         is ? "this candidate comes next, with priority %lld"
	            : "this candidate comes next no more; its priority is %lld",
	         (long long)l->machine.priority);
}

static void link_publish(struct next_link *l)
{
	const struct next_sight *next = next_published(&l->machine, clock_now());
	uint64_t request, identity, before = l->who;

	know(l, next ? next->who : 0);
	if (l->who != before)
		say_published(l, next);
	if (!l->machine.handed && next_wants(&l->machine, clock_now(), &request, &identity))
		l->cb->publish(l->arg);
}

/* Whom the leader's request is for: whoever comes next, where it names nobody. */
static const char *link_asked(const struct next_link *l)
{
	return l->request.to && *l->request.to ? l->request.to : l->seen.holder;
}

/* Why the one that it names says no, as N has it; NULL: it has not said so. */
static const char *declined_why(const struct next_link *l)
{
	bool is = next_record_is(&l->seen) && *l->request.name &&
	          strcmp(l->seen.advice->nomination.declines, l->request.name) == 0;

	return is ? l->seen.advice->nomination.why : NULL;
}

static void link_not_handed_over(struct next_link *l)
{
	const char *no = declined_why(l);
	char why[2 * ADVICE_TEXT_MAX + 100];

	if (l->role != NEXT_LEADER || l->term != l->machine.term)
		snprintf(why, sizeof why, "the term ended for another reason");
	else if (*l->request.to && no)
		snprintf(why, sizeof why, "%s could not lead now: %s", l->request.to, no);
	else if (*l->request.to)
		snprintf(why, sizeof why, "%s did not come next within %.3gs", l->request.to,
		         (double)l->request.timeout / NSEC_PER_SEC);
	else
		snprintf(why, sizeof why, "nobody came next within %.3gs", (double)l->request.timeout / NSEC_PER_SEC);
	link_say(l, LOG_WARN, "not_handed_over", "the term is not handed over on request: %s", why);
	l->cb->not_handed_over(l->arg, why);
}

/* The end of a term comes first: what is published and said is for people by then. */
static void link_carry_out(struct next_link *l, const struct next_actions *a)
{
	if (a->set & NEXT_DO_NAMESAKE)
		l->cb->namesake(l->arg);
	if (a->set & NEXT_DO_NOT_NEXT)
		link_next(l, false);
	if (a->set & NEXT_DO_NEXT)
		link_next(l, true);
	if (a->set & NEXT_DO_HAND_OVER)
		l->cb->hand_over(l->arg, a->why);
	if (a->set & NEXT_DO_PUBLISH)
		link_publish(l);
	if (a->set & NEXT_DO_NO_HANDOVER)
		link_not_handed_over(l);
	if (a->set & (NEXT_DO_READ | NEXT_DO_WRITE))
		start_op(l, a);
}

static void link_arm(struct next_link *l)
{
	nsec wait = next_wait(&l->machine, clock_now());

	timer_stop(l->timeline, &l->timer);
	if (wait != NSEC_NEVER)
		timer_start(l->timeline, &l->timer, (double)wait / NSEC_PER_SEC);
}

/* Callbacks may call back in. What they tell waits until the event at hand has been carried out. */
static void link_step(struct next_link *l, struct next_event e)
{
	struct next_event events[EVENTS_MAX];
	bool inside = l->events != NULL;

	if (!inside)
		l->events = events;
	if (l->event_count == EVENTS_MAX)
		abort(); /* a callback that calls in so often for one event does so for ever */
	l->events[l->event_count++] = e;
	if (inside)
		return;
	while (l->event_count > 0) {
		struct next_event next = l->events[0];
		memmove(l->events, l->events + 1, sizeof *l->events * (size_t)--l->event_count);
		struct next_actions a = next_step(&l->machine, &next, clock_now());
		link_carry_out(l, &a);
	}
	l->events = NULL;
	link_arm(l);
	if (!l->unsettled || l->may_name)
		return;
	l->unsettled = false;
	l->cb->settled(l->arg);
}

static void link_on_timer(struct timer *timer)
{
	struct next_link *l = (struct next_link *)((char *)timer - offsetof(struct next_link, timer));

	link_step(l, (struct next_event){ .kind = NEXT_EV_TICK });
}

/* ---- what the election tells it ---- */

void next_link_role(struct next_link *l, enum next_role role, uint64_t term)
{
	if (!l->lock || (role == l->role && term == l->term))
		return;
	l->role = role;
	l->term = term;
	l->who = 0;
	l->since = clock_now();
	l->wanted[0] = '\0';
	l->may_name = l->may_name && role != NEXT_LEADER;
	link_step(l, (struct next_event){ .kind = NEXT_EV_ROLE, .role = role, .term = term });
}

/* A record names only what fits into it. */
static bool has_name(const struct next_link *l)
{
	return advice_fits(l->author->identity) && advice_fits(l->author->address);
}

void next_link_ready(struct next_link *l, const char *lacks, int64_t priority)
{
	lacks = has_name(l) ? lacks : no_name;
	if (!l->lock || (lacks == l->lacks && priority == l->priority))
		return;
	l->lacks = lacks;
	l->priority = priority;
	link_step(l, (struct next_event){ .kind = NEXT_EV_READY,
	                                  .ready = !lacks,
	                                  .doubted = readiness_is_doubt(lacks),
	                                  .priority = priority });
}

void next_link_awake(struct next_link *l)
{
	if (l->lock && next_shares(&l->machine, clock_now()))
		link_step(l, (struct next_event){ .kind = NEXT_EV_AWAKE });
}

void next_link_heard(struct next_link *l, const struct record *m)
{
	struct next_event e = { .kind = NEXT_EV_NEWS, .news = next_record_news(m, l->author->identity) };

	if (!l->lock || l->role == NEXT_LEADER)
		return;
	know(l, e.news.next);
	if (e.news.next && l->foreign)
		link_trouble_over(l); /* somebody writes what this candidate has not looked at since */
	snprintf(l->wanted, sizeof l->wanted, "%s", e.news.wanted ? m->advice->wanted.name : "");
	link_step(l, e);
}

void next_link_renamed(struct next_link *l)
{
	struct next_setup o = l->machine.options;

	if (!l->lock)
		return;
	l->closing = true; /* the answer to what is under way is for the incarnation that was */
	l->lock->ops->cancel(l->lock);
	l->closing = false;
	drop_written(l);
	next_init(&l->machine, &o, l->machine.noise);
	l->role = NEXT_NONE;
	l->term = 0;
	l->lacks = no_news;
	l->may_name = false;
	l->who = 0;
	link_next(l, false);
	link_arm(l);
}

bool next_link_leads(struct next_link *l)
{
	bool was = l->is;

	l->is = false;
	return was;
}

int next_link_handover(struct next_link *l, const char *to, nsec timeout, struct err *err)
{
	if (!l->lock)
		return err_set(err, ERR_MISSING, "%s", l->trouble);
	if (l->machine.handed)
		return err_set(err, ERR_USAGE, "the term is handed over already");
	if (!advice_fits(to))
		return err_set(err, ERR_USAGE, "the identity %.100s is too long, or not UTF-8: no candidate has it",
		               to);
	nonce_hex(l->request.name, sizeof l->request.name / 2);
	l->request.timeout = timeout;
	mem_replace(&l->request.to, to);
	link_step(l, (struct next_event){ .kind = NEXT_EV_HANDOVER,
	                                  .request = next_record_request(l->request.name),
	                                  .identity = *to ? next_record_identity(to) : 0,
	                                  .timeout = timeout });
	return 0;
}

void next_link_configure(struct next_link *l, const struct next_setup *o)
{
	if (!l->lock)
		return;
	next_configure(&l->machine, o);
	link_step(l, (struct next_event){ .kind = NEXT_EV_TICK });
}

/* ---- what the election asks it ---- */

bool next_link_advice(const struct next_link *l, uint64_t term, struct advice *out)
{
	const struct next_machine *m = &l->machine;
	const struct next_sight *next = next_published(m, clock_now());
	struct next_record n;
	uint64_t request, identity;

	*out = (struct advice)ADVICE_NONE;
	if (m->role != NEXT_LEADER || m->term != term)
		return false; /* it has not heard of this term yet */
	if (next && next->who == link_sight(l, &l->seen).who && next_record_read(&l->seen, &n))
		out->next = n.who;
	if (next_wants(m, clock_now(), &request, &identity) && request == next_record_request(l->request.name)) {
		out->wanted.name = l->request.name;
		out->wanted.identity = link_asked(l);
	}
	return *out->next.identity || *out->wanted.name;
}

bool next_link_settled(const struct next_link *l)
{
	return !l->may_name;
}

static nsec known_for(struct instant since)
{
	return elapsed_standby(since, clock_now());
}

static void tell_leaders(const struct next_link *l, struct elector_next *out)
{
	struct instant now = clock_now();
	bool next = next_published(&l->machine, now) != NULL;
	uint64_t request, identity;

	if (next) {
		out->identity = l->seen.holder;
		out->address = l->seen.address;
		out->priority = l->seen.advice ? l->seen.advice->nomination.priority : 0;
		out->since = known_for(l->since);
	}
	out->absent = next ? 0 : known_for(l->since);
	if (next_wants(&l->machine, now, &request, &identity))
		out->wanted = link_asked(l);
	next_plans(&l->machine, now, &out->preempts_in, &out->rotates_in);
	out->preempt_after = l->machine.preempt_after;
}

static void tell_standbys(const struct next_link *l, const struct record *m, struct elector_next *out)
{
	bool published = *m->holder && advice_has(m->advice, ADVICE_NEXT);

	out->self = l->is;
	if (*m->holder && advice_has(m->advice, ADVICE_WANTED))
		out->wanted = m->advice->wanted.identity;
	if (l->is) {
		out->identity = l->author->identity;
		out->address = l->author->address;
		out->priority = l->machine.priority;
		out->since = known_for(l->is_since);
	} else if (published) {
		out->identity = m->advice->next.identity;
		out->address = m->advice->next.address;
		out->priority = m->advice->next.priority;
		out->since = known_for(l->since);
	}
}

void next_link_status(const struct next_link *l, const struct record *m, struct elector_next *out)
{
	out->identity = out->address = out->wanted = "";
	out->since = out->preempts_in = out->rotates_in = -1;
	out->trouble = l->trouble ? l->trouble : "";
	if (l->role == NEXT_LEADER)
		tell_leaders(l, out);
	else
		tell_standbys(l, m, out);
	out->known = *out->identity;
	if (!out->able)
		return;
	out->able = has_name(l) && !(l->trouble && (!l->lock || l->unwritable || l->role == NEXT_STANDBY));
	if (!out->able)
		out->unable_why = has_name(l) ? l->trouble : no_name;
}

/* ---- set-up ---- */

struct next_link *next_link_new(const struct next_link_config *c, const struct next_link_callbacks *cb, void *arg)
{
	struct next_link *l = mem_zero(sizeof *l);
	struct err err;

	l->cb = cb;
	l->arg = arg;
	l->timeline = c->timeline;
	l->author = c->author;
	l->lacks = no_news;
	l->since = clock_now();
	record_init(&l->seen);
	timer_init(l->timeline, &l->timer, link_on_timer);
	next_init(&l->machine, &c->options, c->seed);
	l->lock = lock_open_next(c->env, c->lock, c->url, &err);
	if (!l->lock)
		l->trouble = mem_dup(err.text);
	return l;
}

void next_link_free(struct next_link *l)
{
	if (!l)
		return;
	l->closing = true;
	timer_stop(l->timeline, &l->timer);
	if (l->lock)
		l->lock->ops->close(l->lock);
	drop_written(l);
	record_fini(&l->seen);
	free(l->request.to);
	free(l->trouble);
	free(l);
}
