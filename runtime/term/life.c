#include "term/life.h"

/* The role that the version on a side has. */
enum role { ROLE_IN_FORCE, ROLE_LOADING, ROLE_OLD };

static uint8_t side_of(uint32_t set)
{
	return set & 1;
}

static uint32_t set_number(uint32_t group, uint8_t side)
{
	return 2 * group + side;
}

uint8_t life_loading_side(const struct life *l)
{
	return l->in_force ? !l->side : l->side;
}

static enum role role_of(const struct life *l, uint8_t side)
{
	if (l->in_force && side == l->side)
		return ROLE_IN_FORCE;
	return l->phase != LIFE_SETTLED && side == life_loading_side(l) ? ROLE_LOADING : ROLE_OLD;
}

static bool is_alive(const struct life_set *s)
{
	return s->worker != WORKER_NONE && s->worker != WORKER_WAITING;
}

static void enter(struct life_set *s, enum life_worker worker)
{
	s->worker = worker;
	s->untimed = true;
}

/* ---- what follows from it ---- */

uint32_t life_set_of(const struct life *l, uint32_t candidate)
{
	const struct life_candidate *c = &l->candidate[candidate];

	return set_number(c->group[c->side], c->side);
}

bool life_ready(const struct life *l, uint32_t candidate)
{
	return l->set[life_set_of(l, candidate)].worker == WORKER_READY;
}

bool life_running(const struct life *l, uint32_t candidate)
{
	return is_alive(&l->set[life_set_of(l, candidate)]);
}

bool life_moves(const struct life *l, uint32_t candidate)
{
	const struct life_candidate *c = &l->candidate[candidate];

	return c->side != l->side && !c->leaves;
}

bool life_has(const struct life *l, uint32_t set, uint32_t candidate)
{
	const struct life_candidate *c = &l->candidate[candidate];
	uint8_t side = side_of(set);
	bool concerned = role_of(l, side) == ROLE_IN_FORCE ? !c->leaves : c->side == side;

	return concerned && set_number(c->group[side], side) == set;
}

static bool any_leaves(const struct life *l)
{
	return l->candidate_count > 0 && l->candidate[l->candidate_count - 1].leaves;
}

enum life_bar life_bar(const struct life *l, uint32_t candidate)
{
	const struct life_candidate *c = &l->candidate[candidate];

	if (c->paused)
		return LIFE_BAR_PAUSED;
	if (c->fresh && any_leaves(l))
		return LIFE_BAR_OTHERS;
	return life_ready(l, candidate) ? LIFE_MAY_CAMPAIGN : LIFE_BAR_WORKER;
}

static bool all_finished(const struct life *l)
{
	for (uint32_t i = 0; i < l->candidate_count; i++)
		if (l->candidate[i].term != LIFE_FINISHED)
			return false;
	return true;
}

/* Whether a worker that died is to be followed by one that runs on_stopped. */
static bool owes(const struct life *l, uint32_t set)
{
	for (uint32_t i = 0; i < l->candidate_count; i++)
		if (l->candidate[i].term == LIFE_OWES && life_set_of(l, i) == set)
			return true;
	return false;
}

static bool in_force_has(const struct life *l, uint32_t set)
{
	for (uint32_t i = 0; i < l->candidate_count && !l->candidate[i].leaves; i++)
		if (set_number(l->candidate[i].group[l->side], l->side) == set)
			return true;
	return false;
}

static bool old_has(const struct life *l, uint32_t set)
{
	for (uint32_t i = 0; i < l->candidate_count; i++)
		if (l->candidate[i].term != LIFE_FINISHED && life_set_of(l, i) == set)
			return true;
	return false;
}

/* An on_stopped that an old worker owes for an election that goes on is run by the new version: life_next moves it. */
static bool old_owes(const struct life *l, uint32_t set)
{
	for (uint32_t i = 0; i < l->candidate_count; i++)
		if (l->candidate[i].leaves && l->candidate[i].term == LIFE_OWES && life_set_of(l, i) == set)
			return true;
	return false;
}

/* Whether a worker of this set is to be there. */
static bool is_wanted(const struct life *l, uint32_t set)
{
	bool alive = is_alive(&l->set[set]);

	if (l->killing)
		return false;
	switch (role_of(l, side_of(set))) {
	case ROLE_LOADING:
		return set / 2 <= l->groups;
	case ROLE_OLD:
		return alive ? old_has(l, set) : old_owes(l, set);
	case ROLE_IN_FORCE:
		if (l->ending)
			return alive ? !all_finished(l) : owes(l, set);
		return in_force_has(l, set);
	}
	return false;
}

/* ---- versions ---- */

static void load_version(struct life *l)
{
	for (uint32_t i = life_loading_side(l); i < l->set_count; i += 2)
		l->set[i] = (struct life_set){ 0 };
	l->phase = LIFE_LOADING;
	l->groups = 0;
	l->other = l->in_force;
}

/* A request for a reload that comes while a version is being loaded is for a later version, and is answered after
 * that one. */
static void judge(struct life *l, enum life_cause cause)
{
	l->phase = LIFE_SETTLED;
	l->verdict = cause;
	l->judged = true;
}

static bool is_loading(const struct life *l, uint32_t set)
{
	return role_of(l, side_of(set)) == ROLE_LOADING;
}

static void on_begin(struct life *l, const struct life_event *)
{
	load_version(l);
}

static void on_reload(struct life *l, const struct life_event *)
{
	if (l->ending) {
		judge(l, LIFE_SHUTDOWN);
		l->asked = true;
		return;
	}
	l->reload_due = true;
}

static void on_bad(struct life *l, const struct life_event *)
{
	if (l->phase == LIFE_CHECKING)
		judge(l, LIFE_FAILED_LOAD);
}

static struct life_candidate make_fresh(const struct life *l, const struct life_election *e, uint8_t side)
{
	struct life_candidate c = { .side = side, .fresh = true };

	c.paused = e->earlier == LIFE_NONE ? l->paused : l->candidate[e->earlier].paused;
	return c;
}

/* on_start runs once in the life of a program: not for a later version, unless no worker of an earlier one has come so
 * far. */
static void pass_on_start(struct life *l, uint8_t side)
{
	for (uint32_t i = side; l->in_force && i < l->set_count; i += 2)
		l->set[i].began = i / 2 > 0 || l->set[l->side].began || !in_force_has(l, l->side);
}

static bool is_kept(const struct life_event *e, uint32_t candidate)
{
	for (uint32_t i = 0; i < e->count; i++)
		if (e->elections[i].keeps == candidate)
			return true;
	return false;
}

/* A worker that is to run an on_stopped starts at once: the end of the program, or an election that follows those
 * that leave, waits for it. */
static void hurry(struct life *l)
{
	for (uint32_t i = 0; i < l->set_count; i++)
		if (l->set[i].worker == WORKER_WAITING && owes(l, i))
			enter(&l->set[i], WORKER_NONE);
}

static void on_good(struct life *l, const struct life_event *e)
{
	uint8_t side = life_loading_side(l);
	uint32_t n = e->count;

	if (l->phase != LIFE_CHECKING)
		return;
	for (uint32_t i = 0; i < e->count; i++) {
		const struct life_election *el = &e->elections[i];
		e->into[i] = el->keeps == LIFE_NONE ? make_fresh(l, el, side) : l->candidate[el->keeps];
		e->into[i].group[side] = el->group;
	}
	for (uint32_t i = 0; i < l->candidate_count; i++)
		if (!is_kept(e, i)) {
			e->into[n] = l->candidate[i];
			e->into[n++].leaves = true;
		}
	pass_on_start(l, side);
	l->candidate = e->into;
	l->candidate_count = n;
	l->side = side;
	l->in_force = true;
	hurry(l);
	judge(l, LIFE_FINE);
}

/* ---- workers ---- */

static void fail_later(struct life_set *s)
{
	s->failures += s->failures < LIFE_FAILURES_MAX;
	enter(s, WORKER_WAITING);
}

static void on_not_spawned(struct life *l, const struct life_event *e)
{
	struct life_set *s = &l->set[e->set];

	if (s->worker != WORKER_LOADING)
		return;
	if (is_loading(l, e->set)) {
		enter(s, WORKER_NONE);
		judge(l, LIFE_NO_PROCESS);
	} else {
		fail_later(s);
	}
}

static void on_loaded(struct life *l, const struct life_event *e)
{
	struct life_set *s = &l->set[e->set];

	if (s->worker != WORKER_LOADING)
		return;
	enter(s, WORKER_LOADED);
	if (is_loading(l, e->set) && e->set / 2 == 0)
		l->groups = e->groups;
}

/* A worker that follows a dead one is ended, and another tries later. */
static void on_load_failed(struct life *l, const struct life_event *e)
{
	struct life_set *s = &l->set[e->set];

	if (s->worker != WORKER_LOADING)
		return;
	s->doom = LIFE_FAILED_LOAD;
	if (is_loading(l, e->set))
		judge(l, LIFE_FAILED_LOAD);
}

static void on_started(struct life *l, const struct life_event *e)
{
	struct life_set *s = &l->set[e->set];

	if (s->worker != WORKER_STARTING)
		return;
	enter(s, WORKER_READY);
	s->started = s->began = true;
}

/* An answer that comes too late was already reported as a failure. So the reload is done once more, and its outcome
 * is known. */
static void on_taken(struct life *l, const struct life_event *e)
{
	struct life_set *s = &l->set[e->set];

	if (s->worker != WORKER_READY || s->take == TAKE_NONE)
		return;
	if (!l->ending && s->take == TAKE_ASKED)
		judge(l, e->good ? LIFE_FINE : LIFE_FAILED_LOAD);
	l->reload_due = l->reload_due || (!l->ending && s->take == TAKE_LATE);
	s->take = TAKE_NONE;
	s->untimed = true;
}

static void on_ended(struct life *l, const struct life_event *e)
{
	if (is_alive(&l->set[e->set]))
		enter(&l->set[e->set], WORKER_DYING);
}

/* The first follows at once. So does one that has to run an on_stopped, since the lease is held until then; a back-off
 * comes before the next term, so this cannot repeat quickly. A worker that died before it was ready would die again, so
 * the next waits. */
static void on_gone(struct life *l, const struct life_event *e)
{
	struct life_set *s = &l->set[e->set];

	if (!is_alive(s))
		return;
	enter(s, WORKER_NONE);
	if (is_loading(l, e->set)) {
		judge(l, LIFE_DIED);
		return;
	}
	if (e->worked)
		s->failures = 0;
	bool at_once = s->failures == 0 || (s->started && owes(l, e->set));
	s->failures += s->failures < LIFE_FAILURES_MAX;
	if (!at_once && is_wanted(l, e->set))
		enter(s, WORKER_WAITING);
}

static enum life_timer timer_of(const struct life_set *s)
{
	switch ((enum life_worker)s->worker) {
	case WORKER_LOADING:
	case WORKER_STARTING:
		return LIFE_TIMER_START;
	case WORKER_QUITTING:
		return LIFE_TIMER_QUIT;
	case WORKER_WAITING:
		return LIFE_TIMER_BACK_OFF;
	case WORKER_READY:
		return s->take == TAKE_ASKED ? LIFE_TIMER_START : LIFE_TIMER_OFF;
	case WORKER_NONE:
	case WORKER_LOADED:
	case WORKER_DYING:
		return LIFE_TIMER_OFF;
	}
	return LIFE_TIMER_OFF;
}

static void on_timer(struct life *l, const struct life_event *e)
{
	struct life_set *s = &l->set[e->set];
	enum life_timer timer = timer_of(s);

	if (timer == LIFE_TIMER_BACK_OFF)
		enter(s, WORKER_NONE);
	if (timer != LIFE_TIMER_START && timer != LIFE_TIMER_QUIT)
		return;
	if (s->worker == WORKER_READY) {
		s->take = TAKE_LATE;
		s->untimed = true;
		if (!l->ending) /* else it was answered */
			judge(l, LIFE_NOT_TAKEN);
		return;
	}
	s->doom = LIFE_SILENT;
	if (is_loading(l, e->set))
		judge(l, LIFE_SILENT);
}

/* ---- orders ---- */

static void set_paused(struct life *l, uint32_t candidate, bool paused)
{
	if (candidate == LIFE_NONE)
		l->paused = paused;
	for (uint32_t i = 0; i < l->candidate_count; i++)
		if (candidate == LIFE_NONE || candidate == i)
			l->candidate[i].paused = paused;
}

static void on_end(struct life *l, const struct life_event *)
{
	if (l->ending)
		return;
	if (l->phase != LIFE_SETTLED || l->asked || l->reload_due)
		judge(l, LIFE_SHUTDOWN);
	l->asked = l->asked || l->reload_due;
	l->reload_due = false;
	l->ending = true;
	hurry(l);
}

void life_tell(struct life *l, const struct life_event *e)
{
	switch (e->kind) {
	case LIFE_EV_BEGIN:
		on_begin(l, e);
		return;
	case LIFE_EV_RELOAD:
		on_reload(l, e);
		return;
	case LIFE_EV_GOOD:
		on_good(l, e);
		return;
	case LIFE_EV_BAD:
		on_bad(l, e);
		return;
	case LIFE_EV_PAUSE:
	case LIFE_EV_RESUME:
		set_paused(l, e->candidate, e->kind == LIFE_EV_PAUSE);
		return;
	case LIFE_EV_END:
		on_end(l, e);
		return;
	case LIFE_EV_KILL:
		on_end(l, e);
		l->killing = true;
		return;
	case LIFE_EV_NOT_SPAWNED:
		on_not_spawned(l, e);
		return;
	case LIFE_EV_LOADED:
		on_loaded(l, e);
		return;
	case LIFE_EV_LOAD_FAILED:
		on_load_failed(l, e);
		return;
	case LIFE_EV_STARTED:
		on_started(l, e);
		return;
	case LIFE_EV_TAKEN:
		on_taken(l, e);
		return;
	case LIFE_EV_ENDED:
		on_ended(l, e);
		return;
	case LIFE_EV_GONE:
		on_gone(l, e);
		return;
	case LIFE_EV_TIMER:
		on_timer(l, e);
		return;
	}
}

/* ---- what is to be done ---- */

static bool kill_worker(struct life_set *s, enum life_cause cause, struct life_action *a)
{
	a->was = s->worker;
	enter(s, WORKER_DYING);
	a->what = LIFE_DO_KILL;
	a->cause = cause;
	return true;
}

/* The next action for a worker that lives. */
static bool next_of_worker(const struct life *l, struct life_set *s, bool wanted, struct life_action *a)
{
	if (s->worker == WORKER_DYING)
		return false;
	if (s->doom)
		return kill_worker(s, s->doom, a);
	if (l->killing)
		return kill_worker(s, LIFE_SHUTDOWN, a);
	if (!wanted && s->worker == WORKER_LOADING)
		return kill_worker(s, LIFE_UNWANTED, a);
	if (!wanted && s->worker != WORKER_QUITTING) {
		enter(s, WORKER_QUITTING);
		a->what = LIFE_DO_QUIT;
		return true;
	}
	if (s->worker != WORKER_LOADED || role_of(l, a->side) == ROLE_LOADING)
		return false;
	enter(s, WORKER_STARTING);
	a->what = LIFE_DO_GO;
	a->first = !s->began;
	return true;
}

static bool next_of_set(struct life *l, uint32_t set, struct life_action *a)
{
	struct life_set *s = &l->set[set];
	bool wanted = is_wanted(l, set);

	a->set = set;
	a->side = side_of(set);
	if (s->worker == WORKER_WAITING && !wanted)
		enter(s, WORKER_NONE);
	if (s->take && s->worker != WORKER_READY) {
		l->reload_due = l->reload_due || (s->take == TAKE_ASKED && !l->ending);
		s->take = TAKE_NONE;
	}
	if (s->untimed) {
		s->untimed = false;
		a->what = LIFE_DO_TIMER;
		a->timer = timer_of(s);
		return true;
	}
	if (is_alive(s))
		return next_of_worker(l, s, wanted, a);
	if (!wanted || s->worker == WORKER_WAITING)
		return false;
	enter(s, WORKER_LOADING);
	s->started = false;
	s->doom = LIFE_FINE;
	a->what = LIFE_DO_SPAWN;
	return true;
}

static bool act(struct life_action *a, enum life_do what)
{
	a->what = what;
	return true;
}

/* The next action for a candidate whose election goes on in the version in force, with another worker. It waits for
 * that worker. It does not wait for one that dies before it is ready while a later version is asked for, since that
 * version is loaded only when nothing of the old one is left. */
static bool next_of_mover(const struct life *l, struct life_candidate *c, struct life_action *a)
{
	uint8_t old = l->set[set_number(c->group[c->side], c->side)].worker;
	uint8_t new = l->set[set_number(c->group[l->side], l->side)].worker;
	bool ready = new == WORKER_READY || (new == WORKER_WAITING && l->reload_due);

	if ((ready && c->term == LIFE_IDLE) || (old != WORKER_READY && old != WORKER_DYING)) {
		c->side = l->side;
		c->served = false;
		c->stirred = LIFE_IDLE;
		return act(a, LIFE_DO_MOVE);
	}
	if (!ready || c->stirred >= c->term || old != WORKER_READY || c->term > LIFE_BUSY || l->ending)
		return false;
	c->stirred = c->term;
	return act(a, LIFE_DO_STIR);
}

/* The term or on_next that LIFE_DO_STIR was for is over. The one that begins after it is to be stirred, too. */
static void forget_stir(struct life_candidate *c)
{
	c->stirred = c->stirred < c->term ? c->stirred : c->term;
}

bool life_move(struct life *l, uint32_t candidate)
{
	struct life_candidate *c = &l->candidate[candidate];
	struct life_action a;

	forget_stir(c);
	return life_moves(l, candidate) && c->term == LIFE_IDLE && next_of_mover(l, c, &a);
}

static bool next_of_candidate(struct life *l, uint32_t i, struct life_action *a)
{
	struct life_candidate *c = &l->candidate[i];
	bool ready = life_ready(l, i);

	a->candidate = i;
	c->served = c->served && ready;
	forget_stir(c);
	c->fresh = c->fresh && any_leaves(l);
	if (l->killing && !c->told_kill) {
		c->told_kill = c->told_end = true;
		return act(a, LIFE_DO_KILL_TERM);
	}
	if ((l->ending || c->leaves) && !c->told_end) {
		c->told_end = true;
		return act(a, LIFE_DO_END);
	}
	if (c->leaves && c->term == LIFE_FINISHED) {
		*c = l->candidate[--l->candidate_count];
		return act(a, LIFE_DO_FORGET);
	}
	if (life_moves(l, i) && next_of_mover(l, c, a))
		return true;
	if (c->served || !life_ready(l, i))
		return false;
	c->served = true;
	return act(a, LIFE_DO_SERVE);
}

static bool all_loaded(const struct life *l)
{
	for (uint32_t g = 0; g <= l->groups; g++)
		if (l->set[set_number(g, life_loading_side(l))].worker != WORKER_LOADED)
			return false;
	return true;
}

/* Nothing of a version is on this side. */
static bool is_clear(const struct life *l, uint8_t side)
{
	for (uint32_t i = side; i < l->set_count; i += 2)
		if (l->set[i].worker != WORKER_NONE || l->set[i].untimed)
			return false;
	for (uint32_t i = 0; i < l->candidate_count; i++)
		if (l->candidate[i].side == side)
			return false;
	return true;
}

static bool has_workers(const struct life *l)
{
	for (uint32_t i = 0; i < l->set_count; i++)
		if (is_alive(&l->set[i]))
			return true;
	return false;
}

static bool next_of_verdict(struct life *l, struct life_action *a)
{
	if (!l->judged)
		return false;
	l->judged = false;
	a->cause = l->verdict;
	a->good = l->verdict == LIFE_FINE;
	if (!l->in_force && !l->ending)
		return act(a, LIFE_DO_FAIL);
	if (!l->asked)
		return false;
	l->asked = false;
	return act(a, LIFE_DO_ANSWER);
}

/* Whether the one worker there is can be asked, and nothing of another version is left. */
static bool may_take(const struct life *l)
{
	const struct life_set *s = &l->set[l->side];

	return l->takes && l->in_force && l->phase == LIFE_SETTLED && !l->other && !l->ending &&
	       l->candidate_count == 1 && life_ready(l, 0) && life_set_of(l, 0) == l->side && s->take == TAKE_NONE;
}

static void begin_take(struct life *l, struct life_action *a)
{
	a->set = l->side;
	l->set[a->set].take = TAKE_ASKED;
	l->set[a->set].untimed = true;
}

/* on_start is waited for, so that no later version runs it beside that. */
static bool may_load(const struct life *l)
{
	if (!l->in_force || l->phase != LIFE_SETTLED || l->other || l->ending)
		return false;
	for (uint32_t i = l->side; i < l->set_count; i += 2)
		if (l->set[i].worker == WORKER_STARTING || l->set[i].take == TAKE_ASKED)
			return false;
	return true;
}

static bool next_of_program(struct life *l, struct life_action *a)
{
	if (next_of_verdict(l, a))
		return true;
	if (l->phase == LIFE_LOADING && all_loaded(l)) {
		l->phase = LIFE_CHECKING;
		return act(a, LIFE_DO_CHECK);
	}
	a->side = !l->side;
	if (l->other && l->phase == LIFE_SETTLED && is_clear(l, a->side)) {
		l->other = false;
		return act(a, LIFE_DO_SETTLED);
	}
	if (l->reload_due && (may_take(l) || may_load(l))) {
		bool takes = may_take(l);
		if (takes)
			begin_take(l, a);
		else
			load_version(l);
		l->reload_due = false;
		l->asked = true;
		return act(a, takes ? LIFE_DO_TAKE : LIFE_DO_LOAD);
	}
	if (!l->ending || l->over || !all_finished(l) || has_workers(l))
		return false;
	l->over = true;
	return act(a, LIFE_DO_OVER);
}

static bool next_at(struct life *l, uint32_t at, struct life_action *a)
{
	*a = (struct life_action){ .candidate = LIFE_NONE };
	if (at < l->set_count)
		return next_of_set(l, at, a);
	at -= l->set_count;
	return at < l->candidate_count ? next_of_candidate(l, at, a) : next_of_program(l, a);
}

/* It goes on where it was, so that n candidates take n steps and not n * n. */
bool life_next(struct life *l, struct life_action *a)
{
	uint32_t all = l->set_count + l->candidate_count + 1;

	for (uint32_t i = 0; i < all; i++) {
		uint32_t at = (l->at + i) % all;
		if (next_at(l, at, a)) {
			l->at = at;
			return true;
		}
	}
	l->at = 0;
	return false;
}
