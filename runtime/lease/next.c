#include "lease/next.h"

#define SLOWEST 16         /* times L: the longest pause between looks at N, after refused or useless tries */
#define LONGEST_PREEMPT 64 /* times the option preempt_after: short terms make the wait no longer than this */

#define SOONEST 7 /* times P is halved before the leader's first look for the answer to its request */

/* ---- pauses ---- */

static nsec pause_up_to(struct next_machine *s, nsec d)
{
	s->noise ^= s->noise << 13;
	s->noise ^= s->noise >> 17;
	s->noise ^= s->noise << 5;
	return d / 1000 * (nsec)(s->noise % 1000);
}

static nsec lengthened(nsec d, int doublings)
{
	return d * (doublings < 4 ? 1 << doublings : SLOWEST);
}

static struct instant later_of(struct instant a, struct instant b)
{
	return (struct instant){ a.boot > b.boot ? a.boot : b.boot, a.raw > b.raw ? a.raw : b.raw };
}

/* ---- when the next operation may start ---- */

static void next_at(struct next_machine *s, struct instant when)
{
	s->next_op = s->shared_op = when;
}

static void next_by(struct next_machine *s, struct instant when)
{
	s->next_op = instant_min(s->next_op, when);
	s->shared_op = instant_min(s->shared_op, when);
}

static void next_within(struct next_machine *s, struct instant from, nsec slack)
{
	s->shared_op = from;
	s->next_op = instant_add(from, slack);
}

static nsec slack(const struct next_machine *s)
{
	return s->options.retry < s->options.lease / 4 ? s->options.retry : s->options.lease / 4;
}

/* Whoever asked for the hand-over waits. An answer comes in milliseconds where the store tells of changes, else when
 * the candidate polls. So the leader looks soon, then ever later, up to P. */
static void look_for_answer(struct next_machine *s, struct instant now)
{
	nsec pause = s->options.retry >> (s->wanted.looks < SOONEST ? SOONEST - s->wanted.looks : 0);

	s->wanted.looks++;
	next_by(s, instant_add(now, pause));
}

/* ---- what it knows ---- */

/* Whether this candidate could be next. */
static bool able(const struct next_machine *s)
{
	return s->role == NEXT_STANDBY && s->ready;
}

static bool somebody(const struct next_machine *s)
{
	return s->seen.kind == NEXT_SOMEBODY;
}

static struct instant fresh_until(const struct next_machine *s)
{
	return instant_add(s->changed_at, 2 * s->options.lease);
}

const struct next_sight *next_published(const struct next_machine *s, struct instant now)
{
	bool is = s->role == NEXT_LEADER && somebody(s) && !s->seen.mine && s->fresh;

	return is && !instant_passed(fresh_until(s), now) ? &s->seen : NULL;
}

bool next_wants(const struct next_machine *s, struct instant now, uint64_t *request, uint64_t *identity)
{
	const struct next_sight *next = next_published(s, now);

	*request = s->wanted.request;
	*identity = s->wanted.identity ? s->wanted.identity : next ? next->identity : 0;
	return s->role == NEXT_LEADER && *request && *identity;
}

/* The request that N is to answer; 0 = none. Only the candidate that N names can have said yes. */
static uint64_t to_answer(const struct next_machine *s)
{
	return s->news.wanted_mine && s->news.wanted != s->said ? s->news.wanted : 0;
}

/* Whether this candidate is to write N, for one of three reasons: it becomes next; it is not able to, and tells so a
 * leader that waits for it; or it finds out whether the store takes its writes. */
static bool wants_n(const struct next_machine *s)
{
	if (s->role != NEXT_STANDBY || !s->news.held)
		return false;
	if (!able(s))
		return to_answer(s) || s->doubted;
	if (s->news.wanted)
		return s->news.wanted_mine && (!s->is_next || to_answer(s));
	return !s->is_next && (!s->news.next || s->news.next_priority < s->priority);
}

/* ---- the try to write N ---- */

static void try_later(struct next_machine *s, nsec d, struct instant now)
{
	if (s->try.able && s->try.request)
		d = s->options.retry;
	else if (s->try.able)
		d += pause_up_to(s, s->options.renew / 2);
	s->try.go = false;
	s->try.at = instant_add(now, d);
}

/* An answer for which the leader waits is written at once. A candidate that takes N unasked waits for a random
 * moment, at least L after its last try. */
static void note_try(struct next_machine *s, struct instant now)
{
	struct next_try t = { .is = wants_n(s),
		              .able = able(s),
		              .request = able(s) && s->news.wanted_mine ? s->news.wanted : to_answer(s) };
	nsec pause = t.able ? 0 : s->options.lease;

	if (!t.is || t.able != s->try.able)
		s->try.is = s->try.go = false;
	if (!t.is || (s->try.is && s->try.request == t.request))
		return;
	t.go = s->try.go;
	t.at = t.request ? now : instant_add(now, pause + pause_up_to(s, s->options.renew / 2));
	if (t.able && s->took && !t.request)
		t.at = later_of(t.at, instant_add(s->taken_at, s->options.lease));
	s->try = t;
}

/* N holds another candidate of at least our priority, which M does not publish. It may just have taken N. If it has
 * not written N anew one and a half L later, it is gone. */
static bool is_gone(struct next_machine *s, struct instant now)
{
	nsec enough = s->options.lease + s->options.lease / 2;

	if (s->seen.who == s->withdrawn)
		return true;
	if (s->seen.write == s->left_alone) {
		struct instant over = instant_add(s->left_at, enough);
		if (instant_passed(over, now))
			return true;
		s->try.at = later_of(over, now);
		return false;
	}
	s->patience += s->left_alone != 0;
	s->left_alone = s->seen.write;
	s->left_at = now;
	try_later(s, lengthened(enough, s->patience), now);
	return false;
}

/* Whether N, as it was just read, may be written for the try. */
static bool may_write(struct next_machine *s, struct instant now)
{
	if (!s->try.is || (!s->try.able && !instant_passed(s->try.at, now)))
		return false;
	if (s->seen.kind == NEXT_FOREIGN) {
		try_later(s, SLOWEST * s->options.lease, now);
		return false;
	}
	if (!s->try.able || s->try.request || s->seen.kind != NEXT_SOMEBODY || s->seen.mine)
		return true;
	return s->seen.who == s->news.holder || s->seen.priority < s->priority || is_gone(s, now);
}

/* A leader no longer publishes a candidate that has not written N for 2 L. */
static bool out_of_date(const struct next_machine *s, struct instant now)
{
	return instant_passed(instant_add(s->good_at, 2 * s->options.lease), now);
}

static void stop_being_next(struct next_machine *s, bool leads, struct next_actions *a)
{
	if (!s->is_next)
		return;
	s->is_next = false;
	s->said = 0;
	a->set |= NEXT_DO_NOT_NEXT;
	a->leads = leads;
}

/* ---- terms and their lengths ---- */

static void term_ended(struct next_machine *s, nsec lasted)
{
	nsec longest = s->options.next.preempt_after * LONGEST_PREEMPT;

	if (lasted >= s->preempt_after)
		s->preempt_after = s->options.next.preempt_after;
	else if (s->preempt_after < longest)
		s->preempt_after *= 2;
}

static void drop_wanted(struct next_machine *s, struct next_actions *a)
{
	if (!s->wanted.request)
		return;
	a->set |= NEXT_DO_NO_HANDOVER | NEXT_DO_PUBLISH;
	a->request = s->wanted.request;
	s->wanted.request = 0;
}

/* ---- events ---- */

static void next_on_role(struct next_machine *s, const struct next_event *e, struct instant now, struct next_actions *a)
{
	if (s->role == e->role && s->term == e->term)
		return;
	if (s->role == NEXT_LEADER && !s->handed) {
		term_ended(s, elapsed_holder(s->role_since, now));
		drop_wanted(s, a);
	}
	s->wanted.request = 0;
	s->heard = s->heard || s->role == NEXT_LEADER; /* of our own term, at least: the next one begins after it */
	stop_being_next(s, e->role == NEXT_LEADER, a);
	if (s->role == NEXT_LEADER || e->role == NEXT_LEADER) {
		s->seen = (struct next_sight){ .kind = NEXT_UNKNOWN };
		s->stale = s->unsure = s->busy;
	}
	s->role = e->role;
	s->term = e->term;
	s->role_since = now;
	next_at(s, now);
	s->news = (struct next_news){ .held = false };
	s->fresh = s->handed = s->larger = s->took = false;
	s->published = s->withdrawn = s->left_alone = s->said = 0;
	s->patience = 0;
}

static void next_on_ready(struct next_machine *s, const struct next_event *e, struct instant now, struct next_actions *)
{
	if (s->ready != e->ready || s->priority != e->priority)
		next_at(s, now); /* N says so at once */
	s->ready = e->ready;
	s->doubted = e->doubted && !e->ready;
	s->priority = e->priority;
}

static void next_on_news(struct next_machine *s, const struct next_event *e, struct instant now, struct next_actions *)
{
	const struct next_news *news = &e->news;
	bool same = s->news.held == news->held && s->news.holder == news->holder && s->news.term == news->term;

	if (s->role == NEXT_LEADER)
		return;
	if (!same) {
		if (s->news.held && s->timed && !news->handed_over)
			term_ended(s, elapsed_holder(s->news_since, now));
		s->timed = s->heard;
		s->heard = true;
		s->news_since = now;
		s->withdrawn = s->left_alone = 0;
		s->patience = 0;
	} else if (s->news.next && s->news.next != news->next) {
		s->withdrawn = s->news.next;
		s->patience = 0;
	}
	s->news = *news;
}

static void next_on_handover(struct next_machine *s, const struct next_event *e, struct instant now,
                             struct next_actions *a)
{
	if (s->role != NEXT_LEADER || s->handed) {
		a->set |= NEXT_DO_NO_HANDOVER;
		a->request = e->request;
		return;
	}
	drop_wanted(s, a);
	s->wanted.request = e->request;
	s->wanted.identity = e->identity;
	s->wanted.by = instant_add(now, e->timeout);
	s->wanted.looks = 0;
	a->set |= NEXT_DO_PUBLISH;
	look_for_answer(s, now);
}

static bool next_done(struct next_machine *s, const struct next_event *e)
{
	if (!s->busy || e->op != s->op)
		return false; /* the reply to an operation that has been given up */
	s->busy = false;
	s->refusals = e->refused ? s->refusals + 1 : 0;
	return true;
}

static void op_failed(struct next_machine *s, struct instant now)
{
	nsec pause = s->refusals ? lengthened(s->options.lease, s->refusals) : s->options.retry;

	next_at(s, instant_add(now, pause));
	if (s->try.is)
		try_later(s, lengthened(s->options.lease, s->refusals), now);
}

/* What a leader makes of a read of N. It cannot tell whether the candidate in the first record that it sees is still
 * there, unless that record answers a request of this term. */
static void leader_looked(struct next_machine *s, const struct next_sight *sight, struct instant now,
                          struct next_actions *a)
{
	bool same = s->seen.kind == sight->kind && s->seen.write == sight->write;
	bool answer = s->wanted.request && sight->answers == s->wanted.request;

	if (!same && (s->seen.kind != NEXT_UNKNOWN || answer)) {
		s->fresh = true;
		s->changed_at = now;
		if (sight->namesake)
			a->set |= NEXT_DO_NAMESAKE;
	}
	s->seen = *sight;
	if (s->wanted.request || s->changed)
		next_at(s, instant_add(now, s->options.retry));
	else
		next_within(s, instant_add(now, s->options.lease), slack(s));
	if (s->wanted.request)
		look_for_answer(s, now);
}

static void next_on_read(struct next_machine *s, const struct next_event *e, struct instant now, struct next_actions *a)
{
	if (!next_done(s, e))
		return;
	if (e->outcome != OUTCOME_OK) {
		op_failed(s, now);
		return;
	}
	if (s->role == NEXT_LEADER) {
		leader_looked(s, &e->sight, now, a);
		return;
	}
	s->seen = e->sight;
	s->stale = s->unsure = false;
	if (!s->seen.mine)
		stop_being_next(s, false, a);
	next_at(s, s->is_next ? instant_add(now, s->options.retry) : now);
	s->try.go = may_write(s, now);
}

/* A write that does not name this candidate shows, too, whether the store takes its writes. */
static void look_again(struct next_machine *s, struct instant now)
{
	if (s->try.is && !s->try.able)
		try_later(s, lengthened(s->options.lease, s->refusals), now);
}

static void written(struct next_machine *s, const struct next_event *e, struct instant now, struct next_actions *a)
{
	s->seen = e->sight;
	s->stale = s->unsure = false;
	if (!s->naming) {
		s->said = s->saying ? s->saying : s->said;
		look_again(s, now);
		return;
	}
	s->good_at = e->sent_at;
	if (able(s))
		next_within(s, instant_add(e->sent_at, s->options.lease - slack(s)), slack(s));
	else
		next_at(s, now);
	if (!able(s) || out_of_date(s, now))
		return;
	s->said = s->saying;
	if (s->is_next)
		return;
	s->is_next = true;
	s->left_alone = 0;
	s->patience = 0;
	a->set |= NEXT_DO_NEXT;
}

static void next_on_written(struct next_machine *s, const struct next_event *e, struct instant now,
                            struct next_actions *a)
{
	if (!next_done(s, e))
		return;
	if (s->role == NEXT_LEADER) {
		next_at(s, now); /* it was asked for as a standby: look */
		return;
	}
	switch (e->outcome) {
	case OUTCOME_OK:
		written(s, e, now, a);
		return;
	case OUTCOME_CONFLICT: /* perhaps with this very write, delivered twice */
	case OUTCOME_UNKNOWN:
		s->stale = s->unsure = true;
		next_at(s, s->refusals ? instant_add(now, lengthened(s->options.lease, s->refusals)) : now);
		if (!s->naming)
			look_again(s, now);
		return;
	case OUTCOME_FAILED:
		op_failed(s, now);
		return;
	}
}

/* A candidate that watches N reads it at once after a change, but not more often than every P, since others may
 * change N at any rate. */
static void next_on_changed(struct next_machine *s, const struct next_event *, struct instant now,
                            struct next_actions *)
{
	if (s->busy)
		s->changed = true;
	else if (s->role == NEXT_LEADER && s->seen.kind != NEXT_UNKNOWN)
		next_by(s, instant_add(now, s->options.retry));
	else if (s->is_next)
		s->stale = true; /* by another candidate, perhaps */
}

static void next_on_awake(struct next_machine *s, const struct next_event *, struct instant now, struct next_actions *)
{
	if (instant_passed(s->shared_op, now))
		next_by(s, now);
}

static void next_on_tick(struct next_machine *, const struct next_event *, struct instant, struct next_actions *)
{
}

static void (*const handlers[])(struct next_machine *s, const struct next_event *e, struct instant now,
                                struct next_actions *a) = {
	[NEXT_EV_TICK] = next_on_tick,         [NEXT_EV_AWAKE] = next_on_awake,
	[NEXT_EV_ROLE] = next_on_role,         [NEXT_EV_READY] = next_on_ready,
	[NEXT_EV_NEWS] = next_on_news,         [NEXT_EV_CHANGED] = next_on_changed,
	[NEXT_EV_READ_DONE] = next_on_read,    [NEXT_EV_WRITE_DONE] = next_on_written,
	[NEXT_EV_HANDOVER] = next_on_handover,
};

/* ---- the leader's decisions ---- */

static void hand_over(struct next_machine *s, enum next_why why, struct next_actions *a)
{
	s->handed = true;
	a->set |= NEXT_DO_HAND_OVER;
	a->why = why;
	a->request = s->wanted.request;
}

static void note_priorities(struct next_machine *s, const struct next_sight *next, struct instant now)
{
	bool larger = next && next->priority > s->priority;

	if (larger && !s->larger)
		s->larger_since = now;
	s->larger = larger;
}

/* Whether the leader's request is for this candidate; it may be for whoever comes next. The candidate is asked
 * before the term ends, since it may have gone, or may no longer be ready. */
static bool is_asked(const struct next_machine *s, const struct next_sight *next)
{
	return next && (!s->wanted.identity || s->wanted.identity == next->identity);
}

void next_plans(const struct next_machine *s, struct instant now, nsec *preempts_in, nsec *rotates_in)
{
	bool may = s->role == NEXT_LEADER && !s->handed;

	*preempts_in = *rotates_in = NSEC_NEVER;
	if (may && s->options.next.preempt && s->larger)
		*preempts_in = instant_until(instant_add(s->larger_since, s->preempt_after), now);
	if (may && s->options.next.max_term)
		*rotates_in = instant_until(instant_add(s->role_since, s->options.next.max_term), now);
}

static void decide(struct next_machine *s, struct instant now, struct next_actions *a)
{
	const struct next_sight *next = next_published(s, now);
	nsec preempts_in, rotates_in;
	uint64_t who = next ? next->who : 0;
	int64_t priority = next ? next->priority : 0;

	if (s->role != NEXT_LEADER)
		return;
	if (who != s->published || priority != s->published_priority)
		a->set |= NEXT_DO_PUBLISH;
	s->published = who;
	s->published_priority = priority;
	note_priorities(s, next, now);
	if (s->handed)
		return;
	if (s->wanted.request) {
		bool no = s->wanted.identity && s->seen.declines == s->wanted.request;
		if (is_asked(s, next) && next->answers == s->wanted.request)
			hand_over(s, NEXT_REQUEST, a);
		else if (no || instant_passed(s->wanted.by, now))
			drop_wanted(s, a);
		return;
	}
	next_plans(s, now, &preempts_in, &rotates_in);
	if (preempts_in == 0)
		hand_over(s, NEXT_PRIORITY, a);
	else if (rotates_in == 0 && next)
		hand_over(s, NEXT_ROTATION, a);
}

/* ---- the next operation ---- */

enum step { STEP_NOTHING, STEP_READ, STEP_NAME, STEP_EMPTY, STEP_TOUCH };

static enum step what_to_do(const struct next_machine *s, struct instant *when)
{
	bool ours = somebody(s) && s->seen.mine;

	*when = s->next_op;
	if (s->role == NEXT_LEADER || s->unsure)
		return STEP_READ;
	if (ours) {
		if (able(s) && s->try.is)
			*when = instant_min(s->next_op, s->try.at);
		return s->stale ? STEP_READ : able(s) ? STEP_NAME : STEP_EMPTY;
	}
	if (s->try.go)
		return able(s) ? STEP_NAME : STEP_TOUCH;
	*when = s->try.at;
	return s->try.is ? STEP_READ : STEP_NOTHING;
}

static void plan(struct next_machine *s, struct instant now, struct next_actions *a)
{
	struct instant when;
	enum step step = what_to_do(s, &when);

	if (s->busy || step == STEP_NOTHING || !instant_passed(when, now))
		return;
	s->busy = true;
	s->changed = false;
	a->op = ++s->op;
	if (s->try.is && s->try.able && instant_passed(s->try.at, now)) {
		s->took = true;
		s->taken_at = now;
		try_later(s, s->options.lease, now);
	}
	if (step == STEP_READ) {
		a->set |= NEXT_DO_READ;
		return;
	}
	s->try.go = false;
	s->naming = step == STEP_NAME;
	a->as_is = step == STEP_TOUCH && somebody(s);
	a->nobody = !s->naming && !a->as_is;
	s->saying = a->answers = s->naming && s->news.wanted_mine ? s->news.wanted : to_answer(s);
	a->set |= NEXT_DO_WRITE;
}

struct next_actions next_step(struct next_machine *s, const struct next_event *e, struct instant now)
{
	struct next_actions a = { .set = 0 };

	handlers[e->kind](s, e, now, &a);
	if (!able(s) || out_of_date(s, now))
		stop_being_next(s, false, &a);
	note_try(s, now);
	decide(s, now, &a);
	plan(s, now, &a);
	return a;
}

bool next_shares(const struct next_machine *s, struct instant now)
{
	bool regular = s->role == NEXT_LEADER || (somebody(s) && s->seen.mine);

	return regular && !s->busy && instant_passed(s->shared_op, now);
}

/* ---- the next tick ---- */

static nsec sooner(nsec d, struct instant when, struct instant now)
{
	nsec until = instant_until(when, now);

	return until < d ? until : d;
}

nsec next_wait(const struct next_machine *s, struct instant now)
{
	nsec wait = NSEC_NEVER;
	struct instant when;

	if (!s->busy && what_to_do(s, &when) != STEP_NOTHING)
		wait = sooner(wait, when, now);
	if (s->is_next)
		wait = sooner(wait, instant_add(s->good_at, 2 * s->options.lease), now);
	if (s->role != NEXT_LEADER)
		return wait;
	bool next = next_published(s, now) != NULL;
	nsec preempts_in, rotates_in;
	next_plans(s, now, &preempts_in, &rotates_in);
	if (next)
		wait = sooner(wait, fresh_until(s), now);
	if (s->wanted.request && !s->handed)
		return sooner(wait, s->wanted.by, now);
	wait = preempts_in < wait ? preempts_in : wait;
	return next && rotates_in < wait ? rotates_in : wait;
}

/* ---- set-up ---- */

void next_init(struct next_machine *s, const struct next_setup *o, uint32_t seed)
{
	*s = (struct next_machine){ .options = *o, .noise = seed ? seed : 1, .preempt_after = o->next.preempt_after };
}

void next_configure(struct next_machine *s, const struct next_setup *o)
{
	if (o->next.preempt_after != s->options.next.preempt_after)
		s->preempt_after = o->next.preempt_after;
	s->options = *o;
}
