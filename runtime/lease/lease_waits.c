#include "lease/lease_internal.h"

#define LONGEST_HOLD (NSEC_PER_SEC / 2) /* the longest that a candidate lets another one try first */

/* A write of unknown outcome with a shorter duration counts as applied: standbys may have seen it, and wait no
 * longer than it says. */
static struct instant deadline(const struct lease *l, bool with_grace)
{
	struct instant d = instant_add(l->good.at, l->good.renew + (with_grace ? l->good.grace : 0));

	for (int i = 0; i < l->limbo_len; i++) {
		const struct lease_sent *w = &l->limbo[i];
		if (w->lease < l->good.lease)
			d = instant_min(d, instant_add(w->at, w->renew + (with_grace ? w->grace : 0)));
	}
	return d;
}

struct instant lease_end(const struct lease *l)
{
	return deadline(l, false);
}

/* In PHASE_ENDING the lease is still renewed, but a renewal gives the stopping script no more time. */
struct instant lease_kill(const struct lease *l)
{
	struct instant kill = deadline(l, true);

	return l->phase == PHASE_ENDING || l->phase == PHASE_LOST ? instant_min(kill, l->stop_by) : kill;
}

bool lease_in_term(const struct lease *l)
{
	return l->phase == PHASE_LEADING || l->phase == PHASE_ENDING;
}

bool lease_is_leading(const struct lease *l, struct instant now)
{
	return lease_in_term(l) && !l->fencing && !instant_passed(lease_end(l), now);
}

bool lease_is_fencing(const struct lease *l)
{
	return lease_in_term(l) && l->fencing;
}

bool lease_has_fenced(const struct lease *l)
{
	return lease_is_fencing(l) && l->fenced;
}

/* By our own phase, the record is ours, and our writes are to keep or release it. */
bool lease_holds(const struct lease *l)
{
	return lease_in_term(l) || l->phase == PHASE_RELEASING || l->phase == PHASE_NEXT;
}

/* How long a standby waits from the first sight of the record until it may acquire, by what the record says. */
static nsec standby_wait(const struct lease *l)
{
	switch (l->seen.kind) {
	case SIGHT_ABSENT:
	case SIGHT_RELEASED:
		return 0;
	case SIGHT_EMPTIED:
		return l->seen.duration;
	case SIGHT_HELD:
		/* A write of ours may land long after we gave it up, or a second time: a create, once a person has
		 * deleted the record of another holder. That holder may still be in its term. So only what our last
		 * known write made needs no wait, as long as nothing else is seen. */
		if (l->seen.mine && l->own)
			return 0;
		return l->seen.reclaim || l->dead ? 0 : l->seen.duration;
	case SIGHT_FOREIGN:
		break;
	}
	return NSEC_NEVER;
}

/* What is left of that wait, counted from when the record was first received; and of the wait for a record that is
 * gone. Later records say nothing about the holder of the one that is gone, so no proof of death and no release
 * makes that wait shorter. */
nsec lease_wait_left(const struct lease *l, struct instant now)
{
	nsec wait = standby_wait(l), longest = l->longest > l->times.lease ? l->longest : l->times.lease;

	if (!l->looked || wait == NSEC_NEVER)
		return NSEC_NEVER;
	nsec left = wait - elapsed_standby(l->seen_at, now);
	nsec of_gone = l->gone ? longest - elapsed_standby(l->gone_at, now) : 0;
	if (of_gone > left)
		left = of_gone;
	return left > 0 ? left : 0;
}

nsec lease_hold_back(const struct lease_times *t)
{
	nsec part = t->renew / 8;

	return part < LONGEST_HOLD ? part : LONGEST_HOLD;
}

nsec lease_hold_back_released(const struct lease_times *t, bool watching)
{
	return lease_hold_back(t) + (watching ? 0 : lease_longest_poll(t));
}

/* Whether another candidate that the record names tries first, if the lock is free now. */
static bool other_first(const struct lease *l)
{
	if (!l->seen.other_first)
		return false;
	return l->seen.kind == SIGHT_RELEASED || (l->seen.kind == SIGHT_HELD && !l->seen.mine && !l->seen.reclaim);
}

/* How long until this candidate may try. A candidate that lets another one try first counts from the end of its own
 * wait. The record's first receipt or the proof of death fixes that end, and nothing that comes later makes it
 * longer. */
nsec lease_try_left(const struct lease *l, struct instant now)
{
	nsec wait = lease_wait_left(l, now);

	if (wait == NSEC_NEVER || !other_first(l))
		return wait;
	bool held = l->seen.kind == SIGHT_HELD;
	nsec hold = held ? lease_hold_back(&l->times) : lease_hold_back_released(&l->times, l->watching);
	nsec whole = held ? l->seen.duration : 0;
	nsec left = whole + hold - elapsed_standby(l->seen_at, now);
	nsec since_death = l->dead ? hold - elapsed_standby(l->dead_at, now) : left;
	if (since_death < left)
		left = since_death;
	return left > wait ? left : wait;
}

nsec lease_out_left(const struct lease *l, struct instant now)
{
	if (l->out_for == NSEC_NEVER)
		return NSEC_NEVER;
	nsec left = l->out_for - elapsed_standby(l->out_since, now);
	return left > 0 ? left : 0;
}

bool lease_campaigns(const struct lease *l)
{
	return l->phase == PHASE_FOLLOWING && !l->paused && !l->unreaped && !l->barred;
}

bool lease_held_by_other(const struct lease *l)
{
	return l->looked && l->seen.kind == SIGHT_HELD && !l->seen.mine && !l->dead;
}

void lease_stands(const struct lease *l, struct instant now, struct lease_standing *out)
{
	*out = (struct lease_standing){
		.observer = l->observer,
		.paused = l->paused,
		.unreaped = l->unreaped,
		.barred = l->barred,
		.fencing = lease_is_fencing(l),
		.looked = l->looked,
		.seen = l->seen.kind,
		.seen_for = l->looked ? elapsed_standby(l->seen_at, now) : 0,
		.dead = l->dead,
		.wait_left = lease_wait_left(l, now),
		.out_left = lease_out_left(l, now),
	};
}

/* ---- the next tick ---- */

static nsec least(nsec a, nsec b)
{
	return a < b ? a : b;
}

static nsec wait_held(const struct lease *l, struct instant now)
{
	struct instant by = l->phase == PHASE_RELEASING ? l->release_by : lease_end(l);
	nsec w = instant_until(by, now);

	if (l->busy)
		return lease_in_term(l) ? w : NSEC_NEVER;
	if (l->look_due)
		w = least(w, instant_until(l->next_look, now));
	if (!l->stale)
		w = least(w, instant_until(l->next_try, now));
	return w;
}

static nsec wait_to_try(const struct lease *l, struct instant now)
{
	nsec free = lease_try_left(l, now), out = lease_out_left(l, now);
	nsec w = free > out ? free : out;

	if (!lease_campaigns(l) || w > 0)
		return lease_campaigns(l) ? w : NSEC_NEVER;
	w = instant_until(l->next_try, now);
	if (l->asks && l->asked && !l->yes) {
		nsec again = instant_until(instant_add(l->asked_at, l->times.retry), now);
		w = again > w ? again : w;
	}
	return w;
}

static nsec wait_standby(const struct lease *l, struct instant now)
{
	nsec expiry = l->reported ? lease_wait_left(l, now) : NSEC_NEVER;

	if (l->busy)
		return expiry;
	if (l->finish)
		return l->phase == PHASE_LOST ? NSEC_NEVER : instant_until(l->next_look, now);
	if (l->look_due)
		return least(expiry, instant_until(l->next_look, now));
	return least(expiry, least(wait_to_try(l, now), instant_until(l->next_poll, now)));
}

nsec lease_wait(const struct lease *l, struct instant now)
{
	if (l->finished || !l->started)
		return NSEC_NEVER;
	return lease_holds(l) ? wait_held(l, now) : wait_standby(l, now);
}
