#include "election/elector_internal.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/nonce.h"
#include "election/reasons.h"
#include "locks/lock_identity.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define GAP_SAID NSEC_PER_SEC /* the log tells of a timer that is late by more than this */
#define EVENTS_MAX 8          /* that callbacks may add while one is carried out */

/* ---- carrying out what the lease machine asks for ---- */

static void announce(struct elector *e, bool leads)
{
	if (e->lock->ops->announce)
		e->lock->ops->announce(e->lock, e->author.identity, leads);
}

static struct elector_term make_term(struct elector *e)
{
	struct elector_term t = {
		.term = lease_term(e->lease),
		.token = e->token,
		.identity = e->author.identity,
		.address = e->author.address,
		.lock = e->lock->url,
		.end = lease_end(e->lease),
		.kill = lease_kill(e->lease),
	};

	e->term_open = true;
	elector_see_token(e, e->token);
	e->end = t.end;
	e->kill = t.kill;
	e->acquired_us = e->seen.acquired_us;
	e->began = clock_now();
	e->handing = false;
	return t;
}

/* The lease is held. The user hears of the term when those before it are fenced. */
static void open_fence(void *arg, const struct lease_actions *)
{
	struct elector *e = arg;
	struct elector_term t = make_term(e);

	e->fencing = true;
	elector_say(e, LOG_WARN, "fencing", "earlier holders may still act, so they are fenced before the term begins");
	e->fence->begin(e->fence_arg, &t, e->seen.unfenced);
}

static void open_term(void *arg, const struct lease_actions *)
{
	struct elector *e = arg;
	struct elector_term t = make_term(e);
	nsec ago = elapsed_holder(lease_renewed_at(e->lease), e->began);

	e->fencing = false;
	e->transitions++;
	if (next_link_leads(e->next) && e->cb->next)
		e->cb->next(e->arg, false, true);
	if (e->before)
		e->before->lead(e->before_arg, &t);
	e->cb->lead(e->arg, &t);
	elector_say(e, LOG_INFO, "became_leader", "the record names %s, written %.3f s ago", e->author.identity,
	            (double)ago / NSEC_PER_SEC);
	announce(e, true);
}

/* When this is called a second time in a term, the lease was lost while the script was stopping. */
static void stop_term(void *arg, const struct lease_actions *a)
{
	struct elector *e = arg;
	bool handed = e->handing && a->reason == LEASE_RESIGNED; /* not if the lease was lost before that */

	e->quiet = a->reason == LEASE_DONE;
	e->end_reason = a->reason;
	e->end_why = e->ends  ? "the lease was lost before all of it had stopped"
	             : handed ? reason_of_hand_over(e->why)
	                      : reason_text(a->reason);
	e->ended = handed ? "handed_over" : lease_reason_name(a->reason);
	e->ended_term = lease_term(e->lease);
	if (e->fencing) {
		elector_say(e, LOG_WARN, "not_begun", "%s (%s): the term ends before it began",
		            lease_reason_name(a->reason), e->end_why);
		e->fence->stop(e->fence_arg, a->stop_by);
		return;
	}
	e->ends = true;
	if (!e->before || !e->before->stop(e->before_arg, a->reason, a->held, a->stop_by))
		e->cb->stop(e->arg, a->reason, a->held, a->stop_by);
	if (a->held)
		elector_say(e, e->quiet ? LOG_DEBUG : LOG_INFO, "stopping",
		            "%s (%s): the lease is held until all of it has stopped", lease_reason_name(a->reason),
		            e->end_why);
}

/* A term that is told to end leads on until its script has stopped, or the lease is lost. Others wait for the
 * release, so the release is sent before this. */
static void close_lead(struct elector *e)
{
	enum lease_phase phase = lease_phase(e->lease);

	if (!e->ends || phase == PHASE_ENDING)
		return;
	e->ends = false;
	elector_say(e,
	            phase == PHASE_LOST ? LOG_WARN
	            : e->quiet          ? LOG_DEBUG
	                                : LOG_INFO,
	            "stopped_leading", "%s (%s)", lease_reason_name(e->end_reason), e->end_why);
	announce(e, false);
}

static void answer_saves(struct elector *e, uint64_t save, bool good)
{
	saves_answer(&e->saves, save, good);
	if (e->cb->saved)
		e->cb->saved(e->arg, save, good);
}

static void elector_on_saved(void *arg, const struct lease_actions *a)
{
	answer_saves(arg, a->saved, true);
}

static void elector_on_unsaved(void *arg, const struct lease_actions *)
{
	answer_saves(arg, ((struct elector *)arg)->saves.number, false);
}

static void become_another(void *arg, const struct lease_actions *)
{
	struct elector *e = arg;

	elector_say(
		e, LOG_ERROR, "copied",
		"%s leads by writes that this process did not make: its machine was cloned while it ran. This copy takes "
		"another incarnation, and nobody's death is proved by its processes any more",
		e->author.identity);
	author_become_another(&e->author);
	next_link_renamed(e->next);
}

/* Two candidates with one identity cannot be told apart in the log, in status, or by `ctl handover --to`. The log
 * says this once. */
static void meet_namesake(void *arg)
{
	struct elector *e = arg;

	if (e->namesake_writes++ == 0)
		elector_say(
			e, LOG_WARN, "same_identity",
			"another candidate that runs now has the identity %s, too: nobody can tell them apart. Give each "
			"its own (--identity, LUNARCH_IDENTITY)",
			e->author.identity);
	e->namesake_at = clock_now();
}

static void elector_on_namesake(void *arg, const struct lease_actions *)
{
	meet_namesake(arg);
}

/* The lease machine asks before it acquires. Between its questions, this candidate asks in order to know whether it
 * could lead. */
static void elector_ask(struct elector *e)
{
	readiness_asked(&e->readiness, 4 * lease_publishes(e->lease)->retry, clock_now());
	e->cb->ask(e->arg);
}

static void elector_on_ask(void *arg, const struct lease_actions *)
{
	elector_ask(arg);
}

static void elector_on_deadline(void *arg, const struct lease_actions *)
{
	elector_publish(arg);
}

static void elector_on_leader(void *arg, const struct lease_actions *a)
{
	close_lead(arg);
	elector_report_leader(arg, a->self);
}

static void elector_on_no_leader(void *arg, const struct lease_actions *)
{
	close_lead(arg);
	elector_report_no_leader(arg);
}

static void elector_on_finished(void *arg, const struct lease_actions *a)
{
	struct elector *e = arg;

	e->finishing = true;
	e->left = a->left;
	e->finish_by = instant_add(clock_now(), lease_publishes(e->lease)->retry);
}

static const struct lease_effects effects = {
	.twin = become_another,
	.namesake = elector_on_namesake,
	.saved = elector_on_saved,
	.unsaved = elector_on_unsaved,
	.stop = stop_term,
	.start = open_term,
	.fence = open_fence,
	.deadline = elector_on_deadline,
	.ask = elector_on_ask,
	.read = elector_read,
	.write = elector_write,
	.leader = elector_on_leader,
	.no_leader = elector_on_no_leader,
	.finished = elector_on_finished,
};

/* Clients that were sent to this candidate as the next one would wait in vain, so the next record is emptied first,
 * if it can be. */
static void elector_finish(struct elector *e)
{
	if (!e->finishing || (!next_link_settled(e->next) && !instant_passed(e->finish_by, clock_now())))
		return;
	e->finishing = false;
	elector_say(e, LOG_DEBUG, "finished", e->left ? "left to expire" : "nothing is held");
	e->cb->finished(e->arg, e->left);
}

/* ---- who comes next ---- */

static const char *elector_lacks(const struct elector *e)
{
	struct lease_standing s;

	lease_stands(e->lease, clock_now(), &s);
	return readiness_lacks(&e->readiness, lease_phase(e->lease), &s, &e->contact);
}

/* A user may say that all has stopped from inside `stop`, so the term is closed when that event has been carried
 * out. */
static void elector_close_term(struct elector *e)
{
	enum lease_phase phase = lease_phase(e->lease);

	e->term_open = e->term_open && (phase == PHASE_LEADING || phase == PHASE_ENDING || phase == PHASE_LOST);
}

/* After each step: what the lease machine has become, and whether this candidate could lead. */
static void elector_follow(struct elector *e)
{
	enum lease_phase phase = lease_phase(e->lease);
	enum next_role role = phase == PHASE_FOLLOWING                     ? NEXT_STANDBY
	                      : phase == PHASE_IDLE || phase == PHASE_LOST ? NEXT_NONE
	                                                                   : NEXT_LEADER;
	const char *lacks = elector_lacks(e);

	if (role != NEXT_STANDBY)
		poke_stop(e);
	next_link_role(e->next, role, role == NEXT_LEADER ? lease_term(e->lease) : 0);
	next_link_ready(e->next, role == NEXT_LEADER ? NULL : lacks, e->next_options.priority);
	next_link_awake(e->next);
	if (role == NEXT_STANDBY && readiness_to_ask(&e->readiness, lacks, clock_now()))
		elector_ask(e);
}

static nsec elector_wait(const struct elector *e)
{
	struct instant now = clock_now();
	nsec wait = lease_wait(e->lease, now), other = NSEC_NEVER;

	if (e->finishing)
		other = instant_until(e->finish_by, now);
	else if (lease_phase(e->lease) == PHASE_FOLLOWING)
		other = readiness_wait(&e->readiness, elector_lacks(e), now);
	return other < wait ? other : wait;
}

static void elector_on_next(void *arg, bool is)
{
	struct elector *e = arg;

	if (e->cb->next)
		e->cb->next(e->arg, is, false);
}

static void elector_on_publish(void *arg)
{
	elector_step(arg, (struct lease_event){ .kind = LEASE_EV_RENEW });
}

static void elector_on_not_handed_over(void *arg, const char *why)
{
	handover_refused(arg, why);
}

static void elector_on_hand_over(void *arg, enum next_why why)
{
	struct elector *e = arg;

	if (lease_phase(e->lease) != PHASE_LEADING) {
		if (why == NEXT_REQUEST)
			handover_refused(e, "the term ends already, for another reason");
		return;
	}
	e->handing = true;
	e->why = why;
	if (why == NEXT_REQUEST)
		handover_ends(e);
	if (e->cb->hand_over && !e->fencing) /* of a term that has not begun the user has not heard */
		e->cb->hand_over(e->arg, why);
	else
		elector_end(e, LEASE_RESIGNED, 0, 0);
}

static void elector_on_settled(void *arg)
{
	elector_look(arg);
}

/* The next record is in the same store. A refusal that concerns it alone says nothing about the lock. Whether this
 * candidate is ready is examined at the next step; the leader's next renewal is one. */
static void elector_on_next_written(void *arg, const struct lock_result *r)
{
	struct elector *e = arg;

	if (r->outcome == LOCK_OK)
		elector_wrote(e);
	else
		elector_write_failed(e, r);
}

static void elector_on_say(void *arg, enum log_level level, const char *event, const char *text)
{
	elector_say(arg, level, event, "%s", text);
}

static void elector_on_agreed(void *arg)
{
	elector_step(arg, (struct lease_event){ .kind = LEASE_EV_SOON });
}

static const struct next_link_callbacks next_callbacks = {
	.agreed = elector_on_agreed,
	.listen = poke_listen,
	.namesake = meet_namesake,
	.next = elector_on_next,
	.publish = elector_on_publish,
	.hand_over = elector_on_hand_over,
	.not_handed_over = elector_on_not_handed_over,
	.settled = elector_on_settled,
	.written = elector_on_next_written,
	.say = elector_on_say,
};

static struct next_setup options_of(const struct lease_times *t, const struct next_options *o)
{
	return (struct next_setup){ .lease = t->lease, .renew = t->renew, .retry = t->retry, .next = *o };
}

/* ---- steps ---- */

/* The log tells of a pause, since a process that was stopped with SIGSTOP sees its own term end without an apparent
 * cause. */
static void elector_say_gap(struct elector *e)
{
	nsec late = elapsed_holder(e->due, clock_now());

	if (e->term_open && late > GAP_SAID)
		elector_say(e, LOG_WARN, "did_not_run",
		            "this process did not run for %.1f s or longer: it was stopped, the machine was suspended "
		            "or too busy",
		            (double)late / NSEC_PER_SEC);
}

static void elector_arm(struct elector *e)
{
	struct instant now = clock_now();
	nsec wait = elector_wait(e);

	elector_say_gap(e);
	timer_stop(e->timeline, &e->timer);
	e->due = instant_add(now, wait);
	if (wait != NSEC_NEVER)
		timer_start(e->timeline, &e->timer, (double)wait / NSEC_PER_SEC);
}

/* Whether earlier holders keep this candidate from leading, by the record as it was seen last. */
static void elector_note_bar(struct elector *e)
{
	const char *why = lease_phase(e->lease) == PHASE_FOLLOWING
	                          ? author_barred(&e->author, &e->seen, elector_holder_dead(e))
	                          : NULL;

	if (why && !e->barred)
		elector_say(e, LOG_ERROR, "barred", "it does not campaign: %s", why);
	e->barred = why;
	lease_bar(e->lease, why);
}

/* Callbacks may call back in. What they ask for waits until the event at hand has been carried out. */
void elector_step(struct elector *e, struct lease_event ev)
{
	struct lease_event events[EVENTS_MAX];
	bool inside = e->events != NULL;

	if (!inside)
		e->events = events;
	if (e->event_count == EVENTS_MAX)
		abort(); /* a callback that calls in so often for one event does so for ever */
	e->events[e->event_count++] = ev;
	if (inside)
		return;
	elector_say_gap(e);
	e->due = clock_now(); /* a step takes no time */
	while (e->event_count > 0) {
		elector_note_bar(e);
		struct lease_event next = e->events[0];
		memmove(e->events, e->events + 1, sizeof *e->events * (size_t)--e->event_count);
		struct lease_actions a = lease_step(e->lease, &next, clock_now());
		lease_carry_out(&a, &effects, e);
		close_lead(e);
		elector_close_term(e);
	}
	e->events = NULL;
	elector_follow(e);
	elector_arm(e);
	elector_finish(e);
}

static void elector_on_timer(struct timer *timer)
{
	struct elector *e = (struct elector *)((char *)timer - offsetof(struct elector, timer));

	elector_step(e, (struct lease_event){ .kind = LEASE_EV_TICK });
}

/* ---- what the elector's user calls ---- */

/* A record is JSON. What JSON cannot hold would be read back as something else, and not be recognised as ours. */
int elector_check_text(const char *what, const char *text, struct err *err)
{
	struct buf shown = { 0 };

	if (!text || buf_is_utf8(text))
		return 0;
	buf_json(&shown, text);
	err_set(err, ERR_USAGE, "the %s %.200s is not valid UTF-8: it could not be written into a record", what,
	        shown.data);
	buf_fini(&shown);
	return -1;
}

struct elector *elector_new(const struct elector_config *c, const struct elector_callbacks *cb, void *arg,
                            struct err *err)
{
	if (lease_times_check(&c->times, err) < 0 || elector_check_text("identity", c->identity, err) < 0 ||
	    elector_check_text("address", c->address, err) < 0)
		return NULL;
	struct lock *lock = c->opened ? c->opened : lock_open(c->env, c->lock, err);
	if (!lock)
		return NULL;
	struct elector *e = mem_zero(sizeof *e);
	e->env = c->env;
	e->timeline = c->timeline;
	e->next_options = c->next;
	e->death_watches = c->death_watches;
	e->death_watch = (struct death_watch){ .dead = elector_on_dead, .arg = e };
	e->lock = lock;
	e->cb = cb;
	e->arg = arg;
	e->fence = c->fence;
	e->fence_arg = c->fence_arg;
	e->before = c->before;
	e->before_arg = c->before_arg;
	e->name = mem_dup(c->name ? c->name : "");
	author_init(&e->author, c->self, c->identity, c->address, c->reclaim);
	e->author.fences = c->fence;
	record_init(&e->seen);
	uint32_t seed = c->seed;
	if (!seed)
		nonce_bytes(&seed, sizeof seed);
	e->lease = mem_zero(lease_size());
	lease_init(e->lease, &c->times, c->observer, c->asks, seed);
	lease_keeps(e->lease, c->no_release);
	store_contact_init(&e->contact, clock_now());
	readiness_init(&e->readiness, c->asks, clock_now());
	struct next_link_config next = { .env = c->env,
		                         .timeline = c->timeline,
		                         .author = &e->author,
		                         .lock = lock,
		                         .url = c->lock ? c->lock : lock->url,
		                         .options = options_of(&c->times, &c->next),
		                         .seed = seed };
	e->next = next_link_new(&next, &next_callbacks, e);
	timer_init(e->timeline, &e->timer, elector_on_timer);
	handover_init(e);
	poke_init(e, c->pokes);
	e->due = (struct instant){ NSEC_NEVER, NSEC_NEVER };
	return e;
}

static void elector_campaign(struct elector *e)
{
	e->campaigns = true;
	elector_watch(e);
	elector_step(e, (struct lease_event){ .kind = LEASE_EV_CAMPAIGN });
}

static void elector_pause(struct elector *e, const char *why)
{
	e->campaigns = false;
	e->paused_why = why;
	if (lease_phase(e->lease) != PHASE_IDLE) /* an observer has never campaigned */
		elector_say(e, LOG_INFO, "paused", "campaigning is paused: %s", why);
	elector_step(e, (struct lease_event){ .kind = LEASE_EV_PAUSE });
}

void elector_bar(struct elector *e, const char *why)
{
	if (!why && !e->campaigns)
		elector_campaign(e);
	else if (why && (e->campaigns || !e->paused_why || strcmp(why, e->paused_why) != 0))
		elector_pause(e, why);
}

void elector_answer(struct elector *e, bool yes, const char *address, const int64_t *priority)
{
	if (address && *address)
		mem_replace(&e->author.address, address);
	if (priority)
		e->next_options.priority = *priority;
	readiness_answered(&e->readiness, yes);
	elector_step(e, (struct lease_event){ .kind = LEASE_EV_ANSWER, .yes = yes });
}

void elector_answer_late(struct elector *e)
{
	readiness_late(&e->readiness);
	elector_look(e);
}

void elector_stopped(struct elector *e, bool reaped)
{
	bool held = lease_phase(e->lease) == PHASE_ENDING;

	if (!reaped)
		elector_say(e, LOG_ERROR, "not_reaped",
		            "something the term started could not be killed: the lease is left to expire");
	elector_step(e, (struct lease_event){ .kind = LEASE_EV_STOPPED, .reaped = reaped });
	if (reaped)
		handover_stopped(e, held);
}

void elector_fenced(struct elector *e)
{
	elector_step(e, (struct lease_event){ .kind = LEASE_EV_FENCED });
}

void elector_end(struct elector *e, enum lease_reason reason, nsec sit_out, nsec grace)
{
	elector_step(
		e, (struct lease_event){ .kind = LEASE_EV_END, .reason = reason, .sit_out = sit_out, .grace = grace });
}

void elector_next_term(struct elector *e, nsec grace)
{
	elector_end(e, LEASE_RELOAD, 0, grace);
}

void elector_configure(struct elector *e, const struct lease_times *t)
{
	struct next_setup options = options_of(t, &e->next_options);

	lease_configure(e->lease, t);
	next_link_configure(e->next, &options);
	elector_look(e);
}

int elector_save(struct elector *e, uint64_t save, const char *json, struct err *err)
{
	if (record_checkpoint_check(json, err) < 0)
		return -1;
	saves_add(&e->saves, save, json);
	elector_step(e, (struct lease_event){ .kind = LEASE_EV_SAVE, .save = save });
	return 0;
}

void elector_configure_next(struct elector *e, const struct next_options *o)
{
	struct next_setup options = options_of(lease_publishes(e->lease), o);

	e->next_options = *o;
	next_link_configure(e->next, &options);
	elector_look(e);
}

void elector_configure_user(struct elector *e, const char *address, bool asks)
{
	if (address)
		mem_replace(&e->author.address, address);
	if (e->readiness.asks == asks)
		return;
	readiness_asks(&e->readiness, asks, clock_now());
	lease_asks(e->lease, asks);
	elector_look(e);
}

void elector_ready(struct elector *e, bool ready)
{
	if (e->readiness.user == ready)
		return;
	e->readiness.user = ready;
	elector_look(e);
}

void elector_accept_store(struct elector *e)
{
	if (!lock_identity_accept(e->lock))
		return;
	elector_say(e, LOG_WARN, "store_accepted", "the lock is in the store %s from now on",
	            lock_identity_of(e->lock));
	elector_step(e, (struct lease_event){ .kind = LEASE_EV_CHANGED });
}

const char *elector_checkpoint(const struct elector *e)
{
	return e->seen.checkpoint;
}

void elector_look(struct elector *e)
{
	elector_step(e, (struct lease_event){ .kind = LEASE_EV_TICK });
}

void elector_free(struct elector *e)
{
	if (!e)
		return;
	handover_fini(e);
	e->closing = true;
	next_link_free(e->next);
	poke_fini(e);
	timer_stop(e->timeline, &e->timer);
	death_watch_forget(&e->death_watch);
	e->lock->ops->close(e->lock);
	record_fini(&e->seen);
	elector_drop_written(e);
	decisions_forget(decisions_of(e->env), e);
	free(e->lease);
	free(e->trouble);
	saves_fini(&e->saves);
	author_fini(&e->author);
	free(e->name);
	free(e->leader);
	free(e);
}
