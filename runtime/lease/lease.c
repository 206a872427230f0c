#include "lease/lease.h"

#include "lease/lease_internal.h"

#include <string.h>

#define SOONEST 7                   /* the first poll after LEASE_EV_SOON comes after P, halved so many times */
#define SLOWEST (60 * NSEC_PER_SEC) /* the longest pause between tries that are refused */

const char *lease_reason_name(enum lease_reason r)
{
	static const char *const names[LEASE_REASONS] = {
		[LEASE_RESIGNED] = "resigned", [LEASE_DECLINED] = "declined", [LEASE_SHUTDOWN] = "shutdown",
		[LEASE_EXPIRED] = "expired",   [LEASE_STOLEN] = "lost",       [LEASE_DELETED] = "deleted",
		[LEASE_ERROR] = "error",       [LEASE_KILLED] = "killed",     [LEASE_WORKER] = "worker",
		[LEASE_RELOAD] = "reload",     [LEASE_DONE] = "done",         [LEASE_FENCE_FAILED] = "fence_failed",
	};

	return (unsigned)r < LEASE_REASONS ? names[r] : "unknown";
}

/* ---- what the machine says of itself ---- */

enum lease_phase lease_phase(const struct lease *l)
{
	return l->phase;
}

uint64_t lease_term(const struct lease *l)
{
	return l->term;
}

uint64_t lease_next_term(const struct lease *l)
{
	return l->top_term + 1;
}

uint64_t lease_next_count(const struct lease *l)
{
	return l->writes + 1;
}

const struct lease_times *lease_publishes(const struct lease *l)
{
	return &l->times;
}

struct instant lease_renewed_at(const struct lease *l)
{
	return l->good.at;
}

/* ---- pacing ---- */

static uint32_t noise(struct lease *l)
{
	l->noise ^= l->noise << 13;
	l->noise ^= l->noise >> 17;
	l->noise ^= l->noise << 5;
	return l->noise;
}

#define POLL_SPREAD 1200 /* thousandths of P */

nsec lease_longest_poll(const struct lease_times *t)
{
	return t->retry + t->retry / 1000 * POLL_SPREAD;
}

/* P to 2.2 P, so that many standbys do not try at the same moment; the first ones after LEASE_EV_SOON, sooner. */
static nsec poll_period(struct lease *l)
{
	if (l->watching)
		return l->times.lease;
	if (l->soon > 0)
		return l->times.retry >> l->soon--;
	return l->times.retry + l->times.retry / 1000 * (nsec)(noise(l) % POLL_SPREAD);
}

static nsec op_timeout(const struct lease *l)
{
	nsec quarter = l->times.renew / 4;

	return l->times.retry > quarter ? l->times.retry : quarter;
}

/* After a conflict or an unknown outcome: read at once. From the second in a row on, wait before the next write. */
static void set_back(struct lease *l, struct instant now)
{
	l->look_due = true;
	l->next_look = now;
	l->next_try = ++l->setbacks > 1 ? instant_add(now, l->times.retry / 2) : now;
}

static nsec larger(nsec a, nsec b)
{
	return a > b ? a : b;
}

/* Twice the period for the second time in a row, four times for the third, up to SLOWEST. */
static nsec doubled(nsec period, int times)
{
	for (int i = 1; i < times && period < SLOWEST; i++)
		period = period * 2 < SLOWEST ? period * 2 : SLOWEST;
	return period;
}

static void try_again_later(struct lease *l, bool refused, bool look, struct instant now)
{
	l->refusals = refused ? l->refusals + 1 : 0;
	l->refused_look = refused && look;
	l->soon = refused ? 0 : l->soon;
	/* Only a standby slows down. A holder would lose its lease. */
	l->next_try = l->next_look =
		instant_add(now, lease_holds(l) ? l->times.retry / 2 : doubled(poll_period(l), l->refusals));
}

/* ---- ends of a term ---- */

static void sit_out(struct lease *l, nsec d, struct instant now)
{
	l->out_since = now;
	l->out_for = d;
}

static void lease_finish(struct lease *l, struct lease_actions *a)
{
	l->phase = PHASE_IDLE;
	l->finished = true;
	a->set |= LEASE_DO_FINISHED;
	a->left = l->unreaped || l->limbo_len > 0 || (l->seen.kind == SIGHT_HELD && l->seen.mine);
}

/* The lease is neither held nor being released: campaign again, or finish. */
static void stand_by(struct lease *l, struct instant now, struct lease_actions *a)
{
	l->phase = l->observer ? PHASE_IDLE : PHASE_FOLLOWING;
	l->next_term = false;
	l->look_due = true;
	l->next_look = l->next_try = now;
	l->yes = l->asked = false;
	sit_out(l, l->sit_out, now);
	l->sit_out = 0;
	if (l->finish && l->limbo_len == 0)
		lease_finish(l, a);
}

static void enter_release(struct lease *l, struct instant now)
{
	l->phase = PHASE_RELEASING;
	l->release_by = instant_add(now, l->times.renew);
	l->next_try = now;
}

/* Tells the script to stop because the lease is lost, or may expire before the script has stopped. */
static void lose(struct lease *l, enum lease_reason reason, struct instant now, struct lease_actions *a)
{
	nsec grace = l->good.grace < NSEC_PER_SEC ? l->good.grace : NSEC_PER_SEC;
	struct instant kill = lease_kill(l);
	bool told = l->phase == PHASE_ENDING;

	l->phase = PHASE_LOST;
	l->next_term = false;
	if (!told)
		l->reason = reason;
	l->stop_by = reason == LEASE_EXPIRED ? kill : instant_min(kill, instant_add(now, grace));
	a->set |= LEASE_DO_STOP;
	a->reason = l->reason;
	a->held = false;
	a->stop_by = l->stop_by;
}

static void end_term(struct lease *l, const struct lease_event *e, struct instant now, struct lease_actions *a)
{
	nsec grace = e->grace ? e->grace : l->times.grace;

	l->phase = PHASE_ENDING;
	l->reason = e->reason;
	l->stop_by = instant_add(now, grace);
	a->set |= LEASE_DO_STOP;
	a->reason = e->reason;
	a->held = true;
	a->stop_by = l->stop_by;
}

static void lease_on_end(struct lease *l, const struct lease_event *e, struct instant now, struct lease_actions *a)
{
	bool next = e->reason == LEASE_RELOAD && e->sit_out == 0;

	if (l->finished)
		return;
	if (e->sit_out == NSEC_NEVER)
		l->finish = true;
	if (!next || l->phase == PHASE_LEADING)
		l->next_term = next;
	if (e->sit_out > l->sit_out)
		l->sit_out = e->sit_out;
	switch (l->phase) {
	case PHASE_LEADING:
		end_term(l, e, now, a);
		return;
	case PHASE_NEXT:
		if (!next)
			enter_release(l, now);
		return;
	case PHASE_IDLE:
	case PHASE_FOLLOWING:
		if (!next)
			sit_out(l, e->sit_out, now);
		l->sit_out = 0;
		if (l->finish && !l->busy && l->limbo_len == 0)
			lease_finish(l, a);
		return;
	case PHASE_ENDING:
	case PHASE_LOST:
	case PHASE_RELEASING:
		return;
	}
}

static void lease_on_stopped(struct lease *l, bool reaped, struct instant now, struct lease_actions *a)
{
	l->unreaped = !reaped;
	if (!reaped && !l->script_runs)
		return;
	l->script_runs = false;
	if (!lease_in_term(l) && l->phase != PHASE_LOST)
		return;
	if (!reaped) {
		stand_by(l, now, a);
		return;
	}
	if (l->phase != PHASE_LOST && l->next_term) {
		l->phase = PHASE_NEXT;
		l->next_try = now;
		return;
	}
	/* If the term ended because R passed, the record may still be ours. Releasing it is safe to try: it is a
	 * compare-and-swap. */
	bool ours = l->phase != PHASE_LOST || (l->finish && l->seen.kind == SIGHT_HELD && l->seen.mine);
	if (l->phase == PHASE_LOST && ours)
		l->look_due = true;
	if (ours && !l->keeps)
		enter_release(l, now);
	else
		stand_by(l, now, a);
}

/* ---- the beginning of a term ---- */

static void begin_term(struct lease *l, struct instant now, struct lease_actions *a)
{
	l->phase = PHASE_LEADING;
	l->script_runs = true;
	l->next_term = false;
	l->sit_out = 0;
	l->lows = 0;
	l->next_try = instant_add(l->good.at, l->times.retry);
	if (instant_passed(l->next_try, now))
		l->next_try = now;
	l->fencing = l->seen.fencing;
	l->fenced = false;
	a->set |= l->fencing ? LEASE_DO_FENCE : LEASE_DO_START;
}

/* The record says that those before this term are fenced. If the holder dies from now on, its term has begun. */
static void end_fence(struct lease *l, struct instant now, struct lease_actions *a)
{
	if (!l->fencing || l->phase != PHASE_LEADING || instant_passed(lease_end(l), now))
		return;
	l->fencing = false;
	a->set |= LEASE_DO_START;
}

/* An acquisition was applied. The term begins only if it is still wanted, and if R has not passed since the write. */
static void won(struct lease *l, struct instant now, struct lease_actions *a)
{
	l->term = l->good.term;
	/* Each try makes the store's counter grow. But others hear of each try as of a new leader, so the tries
	 * become rarer. */
	if (l->seen.low_token)
		l->sit_out = larger(l->sit_out, doubled(l->times.retry, ++l->lows));
	if (l->finish || l->paused || l->unreaped || l->seen.low_token || lease_out_left(l, now) > 0) {
		if (!l->unreaped)
			enter_release(l, now);
		return;
	}
	if (elapsed_holder(l->good.at, now) >= l->good.renew) {
		l->phase = PHASE_FOLLOWING;
		l->look_due = true;
		l->next_look = now;
		return;
	}
	begin_term(l, now, a);
}

/* ---- what the store says ---- */

static void forget_limbo(struct lease *l)
{
	l->limbo_len = 0;
	l->setbacks = l->refusals = 0;
}

static void saved(struct lease *l, uint64_t save, struct lease_actions *a)
{
	if (save <= l->saved)
		return;
	l->saved = save;
	a->set |= LEASE_DO_SAVED;
	a->saved = save;
}

/* One of our writes is in the store. The others in limbo were conditional on the version that it replaced, so they
 * cannot be applied any more. */
static void applied(struct lease *l, struct lease_sent w, struct instant now, struct lease_actions *a)
{
	forget_limbo(l);
	l->own = true;
	if (w.term > l->top_term)
		l->top_term = w.term;
	switch (w.what) {
	case LEASE_RELEASE:
		if (l->phase == PHASE_RELEASING)
			stand_by(l, now, a);
		return;
	case LEASE_RENEW:
		if (!lease_in_term(l))
			return;
		l->good = w;
		l->next_try = instant_add(w.at, l->times.retry);
		saved(l, w.save, a);
		if (w.fenced)
			end_fence(l, now, a);
		return;
	case LEASE_ACQUIRE:
	case LEASE_NEXT_TERM:
		l->good = w;
		if (l->phase == PHASE_FOLLOWING || l->phase == PHASE_NEXT)
			won(l, now, a);
		return;
	}
}

/* The index of the write in limbo that the store shows unchanged, else -1. A record that a person has emptied since
 * then does not count: the lease is lost. */
static int find_limbo(const struct lease *l, const struct lease_sight *s)
{
	for (int i = 0; s->write && i < l->limbo_len; i++) {
		bool whole = l->limbo[i].what == LEASE_RELEASE ? s->kind == SIGHT_RELEASED
		                                               : s->kind == SIGHT_HELD && s->mine;
		if (l->limbo[i].write == s->write && whole)
			return i;
	}
	return -1;
}

/* What the newest sight means for the phase. */
static void judge(struct lease *l, struct instant now, struct lease_actions *a)
{
	bool mine = l->seen.kind == SIGHT_HELD && l->seen.mine;

	switch (l->phase) {
	case PHASE_LEADING:
	case PHASE_ENDING:
		if (!mine)
			lose(l, l->seen.kind == SIGHT_HELD ? LEASE_STOLEN : LEASE_DELETED, now, a);
		else if (l->seen.write != l->good.write && l->setbacks < 2)
			l->next_try = now; /* a person edited our record: write our own values again */
		return;
	case PHASE_RELEASING:
	case PHASE_NEXT:
		/* Any other record of ours may have come after another holder's, which a person deleted: whoever finds
		 * it released would lead beside that one. It is left to expire. */
		if (!mine || !l->own)
			stand_by(l, now, a);
		return;
	case PHASE_IDLE:
	case PHASE_FOLLOWING:
	case PHASE_LOST:
		return;
	}
}

static bool is_new(const struct lease *l, const struct lease_sight *s)
{
	return !l->looked || l->met || l->seen.kind != s->kind || l->seen.id != s->id;
}

/* A process that replaces a record has read it, so it begins a larger term, or raises the count of writes in its
 * own. A record that does neither is older: it landed again after a person had deleted the last record, or the store
 * fell back. */
static bool went_back(const struct lease_sight *last, const struct lease_sight *s)
{
	if (!last->count || !s->count || s->term != last->term)
		return last->count && s->count && s->term < last->term;
	return s->kind == SIGHT_HELD && (last->kind != SIGHT_HELD || s->who != last->who || s->count <= last->count);
}

static bool shows_last_gone(const struct lease *l, const struct lease_sight *s)
{
	return s->kind == SIGHT_ABSENT ? l->had_record : s->elsewhere || went_back(&l->last, s);
}

static void note_sight(struct lease *l, const struct lease_sight *s, struct instant now)
{
	if (is_new(l, s)) {
		if (shows_last_gone(l, s)) {
			l->gone = true;
			l->gone_at = now;
		}
		l->seen_at = now;
		l->own = l->dead = false;
		l->yes = l->asked = false;
	}
	l->seen = *s;
	l->looked = true;
	l->met = false;
	if (s->term > l->top_term)
		l->top_term = s->term;
	if (s->kind != SIGHT_FOREIGN)
		l->last = *s;
	if (s->kind == SIGHT_ABSENT || s->kind == SIGHT_FOREIGN)
		return;
	l->had_record = true;
	if (s->duration > l->longest)
		l->longest = s->duration;
}

/* Whether a copy of this process made the record: it has our incarnation and at least our count of writes, but we did
 * not make that write. A lower count is an earlier write of ours, which was applied late, or to which the store fell
 * back. */
static bool is_twin(const struct lease *l, const struct lease_sight *s)
{
	return s->kind == SIGHT_HELD && s->mine && s->count > 0 && s->count >= l->writes && s->write != l->last_write;
}

/* Whether another candidate with our identity lives: it has written since we first looked. The first record that is
 * seen may be by an earlier run of ours, which is dead. */
static bool namesake_writes(const struct lease *l, const struct lease_sight *s)
{
	return s->kind == SIGHT_HELD && s->namesake && l->looked && s->write != l->seen.write;
}

/* A change during a read may be newer than what the read shows, so a holder reads again. A standby need not: its next
 * poll or write shows it. */
static void look_again(struct lease *l, struct instant now)
{
	l->next_poll = now;
	if (!lease_holds(l))
		return;
	l->look_due = true;
	l->next_look = now;
}

static void lease_on_read(struct lease *l, const struct lease_event *e, bool changed, struct instant now,
                          struct lease_actions *a)
{
	struct lease_sight sight = e->sight;

	l->next_poll = instant_add(now, poll_period(l));
	if (e->outcome != OUTCOME_OK) {
		try_again_later(l, e->refused, true, now);
		l->look_due = true;
		return;
	}
	bool newer = is_new(l, &sight);
	if (sight.elsewhere)
		sight.mine = sight.reclaim = sight.other_first = false;
	if (is_twin(l, &sight)) {
		sight.mine = false;
		a->set |= LEASE_DO_TWIN;
	}
	if (!sight.elsewhere && namesake_writes(l, &sight))
		a->set |= LEASE_DO_NAMESAKE;
	int ours = find_limbo(l, &sight);
	if (l->refused_look)
		l->refusals = 0;
	l->look_due = l->stale = false;
	note_sight(l, &sight, now);
	if (ours >= 0)
		applied(l, l->limbo[ours], now, a);
	else if (newer)
		forget_limbo(l); /* the version that they were conditional on is gone */
	judge(l, now, a);
	if (changed)
		look_again(l, now);
}

/* A create conflicted, so there is a record, or was one. If it is gone by the next read, its holder may still be in its
 * term: its absence is new. An earlier create of ours may be applied then, so it is not known to be ours any more. */
static void met_record(struct lease *l)
{
	l->had_record = l->met = true;
	l->limbo[0] = l->limbo[l->limbo_len - 1];
	l->limbo_len = 1;
}

static void lease_on_written(struct lease *l, const struct lease_event *e, struct instant now, struct lease_actions *a)
{
	struct lease_sent w = l->limbo[l->limbo_len - 1];

	switch (e->outcome) {
	case OUTCOME_OK:
		w.at = e->sent_at;
		note_sight(l, &e->sight, now);
		l->stale = false;
		l->next_poll = instant_add(now, poll_period(l));
		applied(l, w, now, a);
		return;
	/* The conflict may be with this very write, which the network delivered twice: it stays in limbo until a
	 * read. */
	case OUTCOME_CONFLICT:
		l->stale = true;
		if (l->seen.kind == SIGHT_ABSENT)
			met_record(l);
		set_back(l, now);
		return;
	case OUTCOME_UNKNOWN:
		set_back(l, now);
		return;
	case OUTCOME_FAILED:
		l->limbo_len--;
		try_again_later(l, e->refused, false, now);
		return;
	}
}

/* ---- reports ---- */

static void lease_report(struct lease *l, struct instant now, struct lease_actions *a)
{
	bool self = lease_holds(l) && l->phase != PHASE_RELEASING && !l->fencing;
	bool other = !self && lease_held_by_other(l) && !l->seen.fencing && lease_wait_left(l, now) > 0;

	if (!self && !other) {
		if (l->reported)
			a->set |= LEASE_DO_NO_LEADER;
		l->reported = false;
		return;
	}
	uint64_t who = self ? ~l->term : l->seen.who;
	if (l->reported && l->reported_who == who)
		return;
	l->reported = true;
	l->reported_who = who;
	a->set |= LEASE_DO_LEADER;
	a->self = self;
}

static void lease_publish(struct lease *l, struct lease_actions *a)
{
	struct instant end = lease_end(l), kill = lease_kill(l);

	if (!l->script_runs || !lease_in_term(l))
		return;
	if (memcmp(&end, &l->published_end, sizeof end) == 0 && memcmp(&kill, &l->published_kill, sizeof kill) == 0)
		return;
	l->published_end = end;
	l->published_kill = kill;
	a->set |= LEASE_DO_DEADLINE;
}

/* ---- the next operation ---- */

static void start_op(struct lease *l, struct instant now, struct lease_actions *a)
{
	l->busy = true;
	a->op = ++l->op;
	a->by = instant_add(now, op_timeout(l));
	if (lease_in_term(l))
		a->by = instant_min(a->by, lease_end(l));
}

static void read_now(struct lease *l, struct instant now, struct lease_actions *a)
{
	start_op(l, now, a);
	a->set |= LEASE_DO_READ;
}

/* Forgets the oldest write of unknown outcome. If it is applied later, it is not known to be ours: a standby waits for
 * it to expire, and a holder renews over it. A write that shortens the deadline of the running term must not be
 * forgotten: then there is no room (false), and the term may only read until it ends. */
static bool make_room(struct lease *l)
{
	if (l->limbo_len < LEASE_LIMBO)
		return true;
	if (lease_in_term(l) && l->limbo[0].lease < l->good.lease)
		return false;
	l->limbo_len--;
	memmove(l->limbo, l->limbo + 1, sizeof *l->limbo * (size_t)l->limbo_len);
	return true;
}

static void write_now(struct lease *l, enum lease_write what, struct instant now, struct lease_actions *a)
{
	if (!make_room(l)) {
		l->look_due = true;
		l->next_try = instant_add(now, l->times.retry);
		read_now(l, now, a);
		return;
	}
	start_op(l, now, a);
	l->writing = what;
	a->write = what;
	a->saves = what == LEASE_RENEW && l->save_wanted > l->saved;
	a->set |= LEASE_DO_WRITE;
}

static bool look_now(const struct lease *l, struct instant now)
{
	return l->look_due && instant_passed(l->next_look, now);
}

/* A save, or other news for the record, is written at once if the last write succeeded, else with the next renewal. */
static bool news_now(const struct lease *l)
{
	return (l->save_due || l->renew_due) && l->setbacks == 0;
}

/* Renews, releases, or begins the next term: reads first if a read is due, else writes when it is time. */
static void plan_held(struct lease *l, enum lease_write what, struct instant now, struct lease_actions *a)
{
	if (look_now(l, now))
		read_now(l, now, a);
	else if (!l->stale && (news_now(l) || instant_passed(l->next_try, now)))
		write_now(l, what, now, a);
}

static bool allowed(struct lease *l, struct instant now, struct lease_actions *a)
{
	if (!l->asks || l->yes)
		return true;
	if (l->asked && !instant_passed(instant_add(l->asked_at, l->times.retry), now))
		return false;
	l->asked = true;
	l->asked_at = now;
	a->set |= LEASE_DO_ASK;
	return false;
}

static bool free_to_try(const struct lease *l, struct instant now)
{
	return lease_campaigns(l) && !l->look_due && lease_try_left(l, now) == 0 && lease_out_left(l, now) == 0;
}

static void plan_standby(struct lease *l, struct instant now, struct lease_actions *a)
{
	if (look_now(l, now)) {
		read_now(l, now, a);
	} else if (free_to_try(l, now) && instant_passed(l->next_try, now) && allowed(l, now, a)) {
		l->yes = l->asked = false;
		write_now(l, LEASE_ACQUIRE, now, a);
	} else if (!l->look_due && instant_passed(l->next_poll, now)) {
		read_now(l, now, a);
	}
}

/* Finishing with a write of unknown outcome: read until the outcome is known, or until R has passed since the write. */
static void plan_leaving(struct lease *l, struct instant now, struct lease_actions *a)
{
	if (l->limbo_len == 0 || instant_passed(instant_add(l->limbo[l->limbo_len - 1].at, l->times.renew), now))
		lease_finish(l, a);
	else if (instant_passed(l->next_look, now))
		read_now(l, now, a);
}

static void plan(struct lease *l, struct instant now, struct lease_actions *a)
{
	if (l->busy || l->finished || !l->started)
		return;
	switch (l->phase) {
	case PHASE_LEADING:
	case PHASE_ENDING:
		plan_held(l, LEASE_RENEW, now, a);
		return;
	case PHASE_RELEASING:
		plan_held(l, LEASE_RELEASE, now, a);
		return;
	case PHASE_NEXT:
		plan_held(l, LEASE_NEXT_TERM, now, a);
		return;
	case PHASE_IDLE:
	case PHASE_FOLLOWING:
		if (l->finish)
			plan_leaving(l, now, a);
		else
			plan_standby(l, now, a);
		return;
	case PHASE_LOST:
		plan_standby(l, now, a);
		return;
	}
}

/* ---- events ---- */

static void look_at_deadlines(struct lease *l, struct instant now, struct lease_actions *a)
{
	if (lease_in_term(l) && instant_passed(lease_end(l), now))
		lose(l, LEASE_EXPIRED, now, a);
	if (l->phase == PHASE_RELEASING && !l->busy && instant_passed(l->release_by, now))
		stand_by(l, now, a);
	if (l->phase == PHASE_NEXT && !l->busy && instant_passed(lease_end(l), now))
		stand_by(l, now, a);
}

static void lease_on_changed(struct lease *l, struct instant now)
{
	if (l->busy) {
		l->dirty = true;
		return;
	}
	l->look_due = true;
	if (!l->refused_look || l->refusals < 2) /* reads that are refused keep their longer pauses */
		l->next_look = now;
}

static void lease_on_campaign(struct lease *l, struct instant now)
{
	if (l->finished)
		return;
	if (l->phase == PHASE_IDLE && !l->observer)
		l->phase = PHASE_FOLLOWING;
	l->started = true;
	l->paused = false;
	if (!l->busy && !lease_holds(l))
		lease_on_changed(l, now);
}

static bool operation_done(struct lease *l, const struct lease_event *e, struct instant now)
{
	if (!l->busy || e->op != l->op)
		return false; /* the reply to an operation that has been given up */
	l->busy = false;
	if (l->dirty) {
		l->dirty = false;
		lease_on_changed(l, now);
	}
	return true;
}

static void lease_on_event(struct lease *l, const struct lease_event *e, struct instant now, struct lease_actions *a)
{
	bool changed;

	switch (e->kind) {
	case LEASE_EV_TICK:
	case LEASE_EV_SENT: /* lease_step has its own way for it */
		return;
	case LEASE_EV_CAMPAIGN:
		lease_on_campaign(l, now);
		return;
	case LEASE_EV_READ_DONE:
		changed = l->dirty;
		if (operation_done(l, e, now))
			lease_on_read(l, e, changed, now, a);
		return;
	case LEASE_EV_WRITE_DONE:
		if (operation_done(l, e, now))
			lease_on_written(l, e, now, a);
		return;
	case LEASE_EV_CHANGED:
		lease_on_changed(l, now);
		return;
	case LEASE_EV_HOLDER_DEAD:
		if (!l->looked || l->dead || l->seen.kind != SIGHT_HELD || l->seen.id != e->id)
			return;
		l->dead = true;
		l->dead_at = now;
		return;
	case LEASE_EV_ANSWER:
		l->yes = l->asked && e->yes;
		return;
	case LEASE_EV_END:
		lease_on_end(l, e, now, a);
		return;
	case LEASE_EV_STOPPED:
		lease_on_stopped(l, e->reaped, now, a);
		return;
	case LEASE_EV_PAUSE:
		l->paused = true;
		return;
	case LEASE_EV_SAVE:
		if (e->save > l->save_wanted)
			l->save_wanted = e->save;
		l->save_due = true;
		return;
	case LEASE_EV_RENEW:
		l->renew_due = true;
		return;
	case LEASE_EV_FENCED:
		if (!l->fencing || l->phase != PHASE_LEADING)
			return;
		l->fenced = l->renew_due = true;
		return;
	case LEASE_EV_SOON:
		l->soon = l->watching ? 0 : SOONEST;
		l->next_poll = instant_min(l->next_poll, instant_add(now, poll_period(l)));
		return;
	}
}

/* A save succeeds only while its term holds the lease. After that, the saves without an answer have failed. */
static void settle_saves(struct lease *l, struct lease_actions *a)
{
	if (lease_in_term(l))
		return;
	l->save_due = l->renew_due = false;
	if (l->saved == l->save_wanted)
		return;
	l->saved = l->save_wanted;
	a->set |= LEASE_DO_UNSAVED;
}

static void note_sent(struct lease *l, const struct lease_event *e)
{
	bool new_term = l->writing == LEASE_ACQUIRE || l->writing == LEASE_NEXT_TERM;

	l->writes++;
	l->last_write = e->write;
	l->limbo[l->limbo_len++] = (struct lease_sent){
		.write = e->write,
		.at = e->sent_at,
		.lease = l->times.lease,
		.renew = l->times.renew,
		.grace = l->times.grace,
		.what = l->writing,
		.term = new_term ? lease_next_term(l) : l->term,
		.save = l->writing == LEASE_RENEW ? l->save_wanted : 0,
		.fenced = l->writing == LEASE_RENEW && lease_has_fenced(l),
	};
	l->save_due = l->renew_due = false;
}

struct lease_actions lease_step(struct lease *l, const struct lease_event *e, struct instant now)
{
	struct lease_actions a = { 0 };

	if (e->kind == LEASE_EV_SENT) {
		note_sent(l, e);
		lease_publish(l, &a);
		return a;
	}
	look_at_deadlines(l, now, &a);
	lease_on_event(l, e, now, &a);
	settle_saves(l, &a);
	plan(l, now, &a);
	lease_report(l, now, &a);
	lease_publish(l, &a);
	return a;
}

/* ---- set-up ---- */

size_t lease_size(void)
{
	return sizeof(struct lease);
}

void lease_init(struct lease *l, const struct lease_times *t, bool observer, bool asks, uint32_t seed)
{
	*l = (struct lease){
		.times = *t,
		.observer = observer,
		.asks = asks,
		.phase = PHASE_IDLE,
		.noise = seed ? seed : 1,
	};
}

void lease_asks(struct lease *l, bool asks)
{
	l->asks = asks;
	l->asked = l->yes = false;
}

void lease_configure(struct lease *l, const struct lease_times *t)
{
	l->times = *t;
}

void lease_bar(struct lease *l, bool on)
{
	l->barred = on;
}

void lease_keeps(struct lease *l, bool on)
{
	l->keeps = on;
}

void lease_watching(struct lease *l, bool on)
{
	l->watching = on;
}

void lease_carry_out(const struct lease_actions *a, const struct lease_effects *f, void *arg)
{
	lease_effect *const effects[] = { /* by the bits of enum lease_do */
		                          f->twin,  f->namesake, f->saved,     f->unsaved, f->stop,
		                          f->start, f->fence,    f->deadline,  f->ask,     f->read,
		                          f->write, f->leader,   f->no_leader, f->finished
	};

	for (unsigned i = 0; i < sizeof effects / sizeof *effects; i++)
		if (a->set & 1u << i && effects[i])
			effects[i](arg, a);
}
