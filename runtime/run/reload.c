#include "run/run.h"

#include "base/log.h"
#include "base/mem.h"
#include "run/candidate.h"

#include <stdlib.h>
#include <string.h>

/* The version that is examined, and what becomes of each of its elections. */
struct reload {
	struct run *r;
	struct script_version *version;
	struct life_election *elections;
	struct candidate **made; /* of each election: NULL if an earlier one goes on */
	bool *taken;             /* of each candidate: it goes on, or a new election has its name */
	bool *kept;              /* of each candidate: it goes on */
};

/* ---- which of the elections that run goes on as which ---- */

static bool same_name(const struct candidate *p, const struct election_settings *e)
{
	return strcmp(p->settings->name, e->name) == 0;
}

/* Takes the candidate of the election with this name and this lock; lock NULL: with any lock. Elections without a
 * name are told apart by their locks. Most often it has the same place as before. LIFE_NONE: there is none, or
 * another election has taken it. */
static uint32_t take_candidate(const struct reload *l, uint32_t election, const char *lock)
{
	const struct election_settings *e = &l->version->settings[election];
	uint32_t count = l->r->life.candidate_count;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t at = (election + i) % count;
		const struct candidate *p = l->r->candidates[at];
		if (l->taken[at] || !(lock ? candidate_goes_on(p, e, lock) : same_name(p, e)))
			continue;
		l->taken[at] = true;
		l->kept[at] = lock;
		return at;
	}
	return LIFE_NONE;
}

/* ---- examining it ---- */

/* An operator's order that this machine is not to lead for some time is about the election, not about its lock. */
static void pass_order_on(struct run *r, struct candidate *p, uint32_t earlier)
{
	struct instant now = clock_now();

	p->out_until = earlier == LIFE_NONE ? r->out_until : r->candidates[earlier]->out_until;
	if (r->out_for_lease && !r->loads)
		p->out_until = instant_add(now, p->campaign.times.lease);
	if (!instant_passed(p->out_until, now))
		elector_end(p->campaign.elector, LEASE_RESIGNED, instant_until(p->out_until, now), 0);
}

static bool reload_several(const struct reload *l)
{
	return election_several(&l->version->settings[l->version->count - 1], l->version->count);
}

static char *reload_lock(const struct reload *l, uint32_t i, struct err *err)
{
	const struct options *o = &l->r->options;
	const struct election_settings *s = &l->version->settings[i];
	char *lock = election_lock(o, s, l->r->fallback, reload_several(l), err);

	if (!lock)
		election_blame_lock(o, s->where, err);
	return lock;
}

/* The elections that go on come first, so that no candidate of theirs is taken because of its name alone. */
static int reload_keep_election(struct reload *l, uint32_t i, struct err *err)
{
	const struct options *o = &l->r->options;
	const struct election_settings *s = &l->version->settings[i];
	struct life_election *e = &l->elections[i];
	struct next_options next;
	struct lease_times times;

	*e = (struct life_election){ .group = l->version->group[i], .keeps = LIFE_NONE, .earlier = LIFE_NONE };
	if (election_times(o, s, &times, err) < 0 || election_next(o, s, &next, err) < 0)
		return err_wrap(err, "%s", s->where);
	nsec grace = election_time(o, s, OPTION_SHUTDOWN_GRACE);
	if (grace > l->version->quit_grace)
		l->version->quit_grace = grace;
	char *lock = reload_lock(l, i, err);
	if (!lock)
		return -1;
	e->keeps = take_candidate(l, i, lock);
	free(lock);
	return e->keeps == LIFE_NONE ? 0 : candidate_check(l->r->candidates[e->keeps], s, err);
}

static int reload_begin_election(struct reload *l, uint32_t i, struct err *err)
{
	struct life_election *e = &l->elections[i];

	if (e->keeps != LIFE_NONE)
		return 0;
	char *lock = reload_lock(l, i, err);
	if (!lock)
		return -1;
	struct candidate *p = l->made[i] = candidate_new(l->r, &l->version->settings[i]);
	e->earlier = take_candidate(l, i, NULL);
	int result = candidate_open(p, lock, l->version->count > 1, err);
	free(lock);
	if (result == 0)
		pass_order_on(l->r, p, e->earlier);
	return result;
}

/* The lock of an election, as its store calls it. */
struct reload_lock {
	const char *url; /* borrowed */
	uint32_t election;
};

static int by_url(const void *a, const void *b)
{
	return strcmp(((const struct reload_lock *)a)->url, ((const struct reload_lock *)b)->url);
}

static int reload_check_locks_differ(const struct reload *l, struct err *err)
{
	uint32_t count = l->version->count;
	struct reload_lock *locks = mem_zero(sizeof *locks * (count + 1));
	int result = 0;

	for (uint32_t i = 0; i < count; i++) {
		const struct candidate *p = l->made[i] ? l->made[i] : l->r->candidates[l->elections[i].keeps];
		struct elector_status st;
		elector_status(p->campaign.elector, &st);
		locks[i] = (struct reload_lock){ .url = st.lock, .election = i };
	}
	qsort(locks, count, sizeof *locks, by_url);
	for (uint32_t i = 1; i < count && result == 0; i++) {
		uint32_t a = locks[i - 1].election, b = locks[i].election;
		if (strcmp(locks[i - 1].url, locks[i].url) == 0)
			result = err_set(
				err, ERR_USAGE,
				"%s: the lock %s is listed twice (also by %s): each election needs a lock of its own",
				l->version->settings[a > b ? a : b].where, locks[i].url,
				l->version->settings[a > b ? b : a].where);
	}
	free(locks);
	return result;
}

static int reload_examine(struct reload *l, struct err *err)
{
	struct run *r = l->r;

	if (!r->fallback)
		r->fallback = election_default_lock(r->script, r->is_text, err);
	if (!r->fallback)
		return -1;
	for (uint32_t i = 0; i < l->version->count; i++)
		if (reload_keep_election(l, i, err) < 0)
			return -1;
	for (uint32_t i = 0; i < l->version->count; i++)
		if (reload_begin_election(l, i, err) < 0)
			return -1;
	return reload_check_locks_differ(l, err);
}

/* ---- putting it into force ---- */

/* The lines of the log about the program have the identity that all of its elections share, and the only election. */
static void reload_name_log(const struct run *r, uint32_t count)
{
	struct elector_status first, other;

	if (!count)
		return;
	elector_status(r->candidates[0]->campaign.elector, &first);
	for (uint32_t i = 1; first.identity && i < count; i++) {
		elector_status(r->candidates[i]->campaign.elector, &other);
		if (strcmp(first.identity, other.identity) != 0)
			first.identity = NULL;
	}
	log_program(first.identity, count > 1 ? NULL : *first.name ? first.name : first.lock);
}

static void reload_say(const struct run *r, uint32_t begin, uint32_t leave)
{
	if (r->loads > 1 && (begin || leave))
		log_event(
			LOG_INFO, NULL, "moving",
			"the script's elections have changed: %u end and release their locks, %u begin after that, the others go on",
			leave, begin);
}

/* The candidates in the order that LIFE_EV_GOOD needs. */
static struct candidate **reload_order(const struct reload *l)
{
	const struct run *r = l->r;
	uint32_t n = l->version->count;
	struct candidate **all = mem_zero(sizeof *all * (n + r->life.candidate_count + 1));

	for (uint32_t i = 0; i < l->version->count; i++)
		all[i] = l->made[i] ? l->made[i] : r->candidates[l->elections[i].keeps];
	for (uint32_t i = 0; i < r->life.candidate_count; i++)
		if (!l->kept[i])
			all[n++] = r->candidates[i];
	return all;
}

static void reload_put_into_force(struct reload *l)
{
	struct run *r = l->r;
	uint32_t count = l->version->count, begin = 0;
	uint8_t side = life_loading_side(&r->life);
	struct life_candidate *before = r->life.candidate;
	struct candidate **all = reload_order(l);

	run_tell(r, &(struct life_event){ .kind = LIFE_EV_GOOD,
	                                  .elections = l->elections,
	                                  .count = count,
	                                  .into = mem_zero(sizeof *before * (count + r->life.candidate_count + 1)) });
	free(before);
	free(r->candidates);
	r->candidates = all;
	r->loads++;
	for (uint32_t i = 0; i < r->life.candidate_count; i++)
		all[i]->number = i;
	for (uint32_t i = 0; i < count; i++) {
		all[i]->election[side] = i;
		begin += l->made[i] != NULL;
		if (l->made[i])
			candidate_place(all[i]);
		else
			candidate_configure(all[i], &l->version->settings[i]);
	}
	reload_name_log(r, count);
	reload_say(r, begin, r->life.candidate_count - count);
}

int run_check_reload(struct run *r, struct err *err)
{
	struct reload l = { .r = r, .version = &r->version[life_loading_side(&r->life)] };

	l.elections = mem_zero(sizeof *l.elections * (l.version->count + 1));
	l.made = mem_zero(sizeof *l.made * (l.version->count + 1));
	l.taken = mem_zero(sizeof *l.taken * (r->life.candidate_count + 1));
	l.kept = mem_zero(sizeof *l.kept * (r->life.candidate_count + 1));
	int result = reload_examine(&l, err);
	if (result == 0)
		reload_put_into_force(&l);
	for (uint32_t i = 0; result < 0 && i < l.version->count; i++)
		candidate_free(l.made[i]);
	free(l.elections);
	free(l.made);
	free(l.taken);
	free(l.kept);
	return result;
}
