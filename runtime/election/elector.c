#include "election/elector.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/nonce.h"
#include "election/author.h"
#include "election/death_watch.h"
#include "election/history.h"
#include "election/next_link.h"
#include "election/outcome.h"
#include "election/readiness.h"
#include "election/reasons.h"
#include "election/saves.h"
#include "loop/timeline.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GAP_SAID NSEC_PER_SEC          /* the log tells of a timer that is late by more than this */
#define EVENTS_MAX 8                   /* that callbacks may add while one is carried out */
#define PROOF_TIME (250 * NSEC_PER_MS) /* within it a holder that died on this host is mostly proved dead */

struct elector {
	const struct elector_callbacks *cb;
	void *arg;
	struct lock_env *env;
	struct timeline *timeline;
	struct timer timer; /* for lease_wait */
	struct instant due; /* this process is to run then at the latest; NSEC_NEVER: there is no such time */
	char *name;         /* of the election; "" = it has none */
	struct author author;
	struct saves saves;
	struct lock *lock;
	struct lease *lease;
	uint64_t op;                /* the number of the operation under way, or of the last one, */
	enum lease_write writing;   /*     and what that was for, if it was a write */
	struct lease_event *events; /* to be carried out, on the stack of the first elector_step; NULL: none is */
	int event_count;
	bool closing;     /* elector_free was called */
	bool unannounced; /* that the term has ended is not announced yet */
	bool quiet;       /* the last term has ended as it was meant to: nobody has to hear of that */

	struct record seen;         /* last known content of the store, */
	struct version version;     /*     and its version */
	struct record *written;     /* what the write under way makes of it; NULL: none is under way */
	int64_t token, acquired_us; /* of the term that runs, or ran last */
	int64_t top_token;          /* the largest one that was seen of others, or led with */
	char *leader;               /* reported last; NULL: nobody */
	bool leads_itself;          /* leader: this candidate */

	struct death_watches *death_watches;
	struct death_watch death_watch;
	uint64_t watched_id; /* the sight of the record whose holder death_watch waits for, */
	uint64_t dead_id;    /*     and of the one whose holder it has proved dead */
	const char *ended;   /* why the last term of ours ended, for the record: static text, */
	uint64_t ended_term; /*     and which that was */

	bool term_open; /* lead was called, and until its script has stopped and its lease is not held any more */
	struct instant end, kill; /* its deadlines, as they were published */
	uint64_t renewals_ok, renewals_failed, slow_paths, transitions;
	char *trouble; /* the last one that was logged, and is not over; NULL: there is none */
	struct instant trouble_at, trouble_since;
	bool unwritable; /* a write had it, so a good read does not end it */
	bool low_token;  /* it is that the store's tokens are too low: only a higher one ends it */
	struct store_contact contact;
	struct instant began;   /* the term that runs, or ran last */
	const char *paused_why; /* of the last elector_pause: static text; NULL: there was none */

	/* Who comes next. */
	struct next_link *next;
	struct elector_next_options next_options;
	struct readiness readiness;
	bool handing;             /* the term ends for who comes next, */
	enum successor_why why;   /*     for this reason */
	char *given;              /* for whom the write under way releases the lock; NULL: for nobody */
	uint64_t handovers[3];    /* by enum successor_why */
	bool finishing, left;     /* LEASE_DO_FINISHED was there, and is passed on once the next record is settled, */
	struct instant finish_by; /*     or then */
};

/* ---- the log ---- */

static struct log_about elector_about(const struct elector *e)
{
	return (struct log_about){ .lock = e->lock->url,
		                   .identity = e->author.identity,
		                   .election = e->name,
		                   .term = e->term_open ? lease_term(e->lease) : 0,
		                   .token = e->term_open ? e->token : 0 };
}

__attribute__((format(printf, 4, 5))) static void elector_say(struct elector *e, enum log_level level,
                                                              const char *event, const char *fmt, ...)
{
	char text[1200];
	struct log_about a = elector_about(e);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	history_add(history_of(e->env), e, event, text);
	log_event(level, &a, event, "%s", text);
}

/* The same trouble is logged once, and again after a minute: a store that is down must not fill the disk. */
static void elector_say_trouble(struct elector *e, const char *event, const char *text)
{
	struct instant now = clock_now();

	e->unwritable = false;
	if (e->cb->trouble)
		e->cb->trouble(e->arg, text);
	if (e->trouble && strcmp(e->trouble, text) == 0 && elapsed_standby(e->trouble_at, now) < 60 * NSEC_PER_SEC)
		return;
	if (!e->trouble)
		e->trouble_since = now;
	mem_replace(&e->trouble, text);
	e->trouble_at = now;
	elector_say(e, LOG_WARN, event, "%s", text);
}

static void trouble_over(struct elector *e)
{
	if (!e->trouble)
		return;
	mem_replace(&e->trouble, NULL);
	if (e->cb->trouble)
		e->cb->trouble(e->arg, NULL);
	e->unwritable = false;
	elector_say(e, LOG_INFO, "store_back", "the store answers again, after %.1f s",
	            (double)elapsed_standby(e->trouble_since, clock_now()) / NSEC_PER_SEC);
}

/* A store that has been silent for as long as a leader could not survive is said to be lost, once. */
static void contact_failed(struct elector *e, bool write)
{
	struct instant now = clock_now();
	nsec silence = store_contact_silence(&e->contact, now);

	if (store_contact_failed(&e->contact, write, lease_publishes(e->lease)->renew, now))
		elector_say(e, LOG_WARN, "store_lost",
		            "the store has not answered for %.1f s: until it does, this candidate cannot lead%s",
		            (double)silence / NSEC_PER_SEC, e->contact.answered ? "" : " (it has not answered once)");
}

static void contact_good(struct elector *e)
{
	if (store_contact_good(&e->contact, clock_now()) && !e->low_token)
		trouble_over(e);
}

/* After a write failed, a read ends the trouble only if it shows another version: somebody could write then. */
static void trouble_over_if_readable(struct elector *e, const struct version *seen)
{
	if (!e->low_token && (!e->unwritable || strcmp(seen->text, e->version.text) != 0))
		trouble_over(e);
}

/* ---- reading and writing the record ---- */

static void elector_step(struct elector *e, struct lease_event ev);

static void elector_on_changed(void *arg)
{
	elector_step(arg, (struct lease_event){ .kind = LEASE_EV_CHANGED });
}

static void watch_if_possible(struct elector *e)
{
	bool watching = e->lock->ops->watch && e->lock->ops->watch(e->lock, elector_on_changed, e);

	lease_watching(e->lease, watching);
	store_contact_watching(&e->contact, watching);
}

static void elector_on_dead(void *arg)
{
	struct elector *e = arg;

	elector_say(e, LOG_INFO, "holder_dead",
	            "%s is proved dead on this host, with everything it started: its lease is not waited out",
	            e->seen.holder);
	e->dead_id = e->watched_id;
	elector_step(e, (struct lease_event){ .kind = LEASE_EV_HOLDER_DEAD, .id = e->watched_id });
}

/* Call after the step that took the sight. A death that is known already is reported at once, and the lease machine
 * must know the sight that it is about. */
static void watch_holder(struct elector *e)
{
	bool other = *e->seen.holder && !author_holds(&e->author, &e->seen);

	if (!e->death_watches)
		return;
	if (!other || !proof_possible(e->author.self, &e->seen)) {
		death_watch_forget(&e->death_watch);
		return;
	}
	e->watched_id = record_sight_id(&e->seen);
	death_watch_watch(e->death_watches, &e->death_watch, &e->seen);
}

static void see_token(struct elector *e, int64_t token)
{
	if (token <= e->top_token)
		return;
	e->top_token = token;
	e->low_token = false;
}

/* Whether a term would begin with a token that receivers refuse, since they have seen a larger one. */
static bool token_is_low(const struct elector *e)
{
	return !e->term_open && e->token <= e->top_token;
}

static void remember_token(struct elector *e, const struct lock_result *r, struct lease_sight *s)
{
	if (!s->mine) {
		see_token(e, r->record->token);
		return;
	}
	e->token = r->record->token ? r->record->token : r->token;
	s->low_token = token_is_low(e);
}

static void remember_read(struct elector *e, const struct lock_result *r, struct lease_sight *s)
{
	bool is_next = r->outcome == LOCK_OK && nomination_is(r->record);

	if (r->outcome != LOCK_FOREIGN && !is_next)
		trouble_over_if_readable(e, &r->version);
	e->version = r->version;
	if (r->outcome == LOCK_OK && !is_next) {
		if (*r->record->forced && strcmp(r->record->forced, e->seen.forced) != 0)
			elector_say(e, LOG_WARN, "released_by_force", "released by force, %s", r->record->forced);
		record_copy(&e->seen, r->record);
		*s = author_sight(&e->author, &e->seen);
		remember_token(e, r, s);
		if (s->mine)
			saves_seen(&e->saves, &e->seen);
		return;
	}
	record_clear(&e->seen);
	s->kind = r->outcome == LOCK_ABSENT ? SIGHT_ABSENT : SIGHT_FOREIGN;
	if (r->outcome == LOCK_FOREIGN)
		elector_say_trouble(e, "foreign_record", r->err.text);
	if (is_next)
		elector_say_trouble(
			e, "foreign_record",
			"the lock holds what another lock's candidates write to agree who comes next: a lock "
			"needs a name of its own");
}

static void elector_on_read(void *arg, const struct lock_result *r)
{
	struct elector *e = arg;
	struct lease_event ev = { .kind = LEASE_EV_READ_DONE,
		                  .op = e->op,
		                  .outcome = outcome_of(r->outcome),
		                  .refused = outcome_is_refusal(r->outcome) };

	if (e->closing)
		return;
	if (ev.outcome == OUTCOME_OK) {
		contact_good(e);
		remember_read(e, r, &ev.sight);
	} else {
		elector_say_trouble(e, "read_failed", r->err.text);
		contact_failed(e, false);
	}
	watch_if_possible(e); /* the store may refuse it by now, or offer it again */
	bool hopeless = r->outcome == LOCK_REFUSED && r->err.code == ERR_USAGE && !e->contact.answered;
	elector_step(e, ev);
	if (hopeless && e->cb->hopeless)
		e->cb->hopeless(e->arg, r->err.text);
	if (ev.outcome != OUTCOME_OK)
		return;
	watch_holder(e);
	if (!author_holds(&e->author, &e->seen))
		next_link_heard(e->next, &e->seen);
}

static void say_low_token(struct elector *e)
{
	char text[400];

	if (e->low_token) /* the text is another at each try, since the store's number grows: it is logged once */
		return;
	snprintf(
		text, sizeof text,
		"the store gave the term token %lld, and this process has seen %lld: the store was restored from an older copy, "
		"or began anew. It leads when the store counts higher. If no receiver compares tokens, restart it: a new process has seen none",
		(long long)e->token, (long long)e->top_token);
	elector_say_trouble(e, "token_low", text);
	e->low_token = true;
}

static void handed_over(struct elector *e)
{
	elector_say(e, LOG_INFO, "released_for", "the lock is released for %s, who comes next%s%s", e->given,
	            e->handing ? ": " : "", e->handing ? reason_of_hand_over(e->why) : "");
	if (e->handing)
		e->handovers[e->why]++;
	e->handing = false;
}

static void written_ok(struct elector *e, const struct lock_result *r, struct lease_sight *s)
{
	enum lease_write what = e->writing;

	contact_good(e);
	e->version = r->version;
	record_take(&e->seen, e->written);
	*s = author_sight(&e->author, &e->seen);
	if (what == LEASE_ACQUIRE || what == LEASE_NEXT_TERM) {
		e->token = r->token ? r->token : e->seen.token;
		s->low_token = token_is_low(e);
		e->low_token = e->low_token && s->low_token;
	}
	if (s->mine)
		saves_seen(&e->saves, &e->seen);
	e->renewals_ok += what == LEASE_RENEW;
	if (what == LEASE_RELEASE && e->given)
		handed_over(e);
	if (what == LEASE_RENEW && e->cb->renewed)
		e->cb->renewed(e->arg, elapsed_holder(r->sent_at, clock_now()));
	if (s->low_token)
		say_low_token(e);
	else if (!e->low_token)
		trouble_over(e);
}

static void written_not(struct elector *e, const struct lock_result *r)
{
	bool renewing = e->writing == LEASE_RENEW;

	e->renewals_failed += renewing;
	if (r->outcome == LOCK_CONFLICT) {
		e->slow_paths += renewing;
		contact_good(e);
		return;
	}
	elector_say_trouble(e,
	                    renewing                      ? "renew_failed"
	                    : e->writing == LEASE_RELEASE ? "release_failed"
	                                                  : "acquire_failed",
	                    r->err.text);
	e->unwritable = true;
	contact_failed(e, true);
}

static void drop_written(struct elector *e)
{
	if (e->written)
		record_fini(e->written);
	free(e->written);
	e->written = NULL;
	mem_replace(&e->given, NULL);
}

static void elector_on_written(void *arg, const struct lock_result *r)
{
	struct elector *e = arg;
	struct lease_event ev = { .kind = LEASE_EV_WRITE_DONE,
		                  .op = e->op,
		                  .outcome = outcome_of(r->outcome),
		                  .refused = outcome_is_refusal(r->outcome),
		                  .sent_at = r->sent_at };

	if (e->closing)
		return;
	if (ev.outcome == OUTCOME_OK)
		written_ok(e, r, &ev.sight);
	else
		written_not(e, r);
	drop_written(e);
	elector_step(e, ev);
}

static void elector_publish(struct elector *e)
{
	struct instant end = lease_end(e->lease), kill = lease_kill(e->lease);

	if (memcmp(&end, &e->end, sizeof end) == 0 && memcmp(&kill, &e->kill, sizeof kill) == 0)
		return;
	e->end = end;
	e->kill = kill;
	e->cb->deadline(e->arg, end, kill);
}

/* Called before the write is sent, since that may bring the deadline nearer. The lease machine decides nothing else by
 * this event, so it gets it at once, also inside a step. */
static void tell_sent(struct elector *e, uint64_t write)
{
	struct lease_event ev = { .kind = LEASE_EV_SENT, .write = write, .sent_at = clock_now() };
	struct lease_actions a = lease_step(e->lease, &ev, ev.sent_at);

	if (a.set & LEASE_DO_DEADLINE)
		elector_publish(e);
}

/* true: the checkpoint is one that the store has lost. */
static bool put_checkpoint(struct elector *e, struct record *r, enum lease_write what)
{
	enum saves_restored restored = saves_restore(&e->saves, r, e->author.incarnation);

	if (restored == SAVES_RESTORED)
		elector_say(e, LOG_WARN, "checkpoint_restored",
		            "the store shows our record of %llu writes ago, without the checkpoint that it had "
		            "acknowledged: the checkpoint is written again",
		            (unsigned long long)(lease_next_count(e->lease) - 1 - r->writes));
	saves_put(&e->saves, r, what);
	return restored != SAVES_KEPT;
}

/* Why the term that the record shows has ended, as far as this process knows. NULL: unknown. */
static const char *elector_ended(const struct elector *e)
{
	if (author_holds(&e->author, &e->seen))
		return e->ended_term == e->seen.term ? e->ended : NULL;
	return e->dead_id && e->dead_id == record_sight_id(&e->seen) ? "died" : NULL;
}

static void start_write(struct elector *e, const struct lease_actions *a)
{
	bool begins = a->write == LEASE_ACQUIRE || a->write == LEASE_NEXT_TERM;
	struct advice advice;
	bool advises = next_link_advice(e->next, lease_term(e->lease), &advice);
	struct author_write w = {
		.what = a->write,
		.times = lease_publishes(e->lease),
		.exists = *e->version.text,
		.makes_token = e->lock->ops->token_in_record,
		.token = begins ? e->top_token : e->token,
		.term = begins ? lease_next_term(e->lease) : lease_term(e->lease),
		.acquired_us = e->acquired_us,
		.wall_us = clock_wall_us(),
		.since_renewal = elapsed_holder(lease_renewed_at(e->lease), clock_now()),
		.advice = advises ? &advice : NULL,
		.hands_over = e->handing,
		.ended = a->write == LEASE_RENEW ? NULL : elector_ended(e),
		.last_token = e->token,
	};
	struct record *r = e->written = mem_zero(sizeof *e->written);

	if (a->write == LEASE_RELEASE && advises && *advice.next.identity)
		mem_replace(&e->given, advice.next.identity);
	e->writing = a->write;
	record_init(r);
	record_copy(r, &e->seen);
	bool durable = put_checkpoint(e, r, a->write) || a->write != LEASE_RENEW || a->saves;
	author_write(&e->author, r, &w);
	r->writes = lease_next_count(e->lease);
	nonce_hex(r->write, sizeof r->write / 2);
	e->lock->token_floor = e->top_token;
	tell_sent(e, record_write_id(r));
	e->lock->ops->write(e->lock, r, &e->version, durable, a->by, elector_on_written, e);
}

/* ---- carrying out what the lease machine asks for ---- */

static void announce(struct elector *e, bool leads)
{
	if (e->lock->ops->announce)
		e->lock->ops->announce(e->lock, e->author.identity, leads);
}

static void open_term(struct elector *e)
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
	see_token(e, e->token);
	e->end = t.end;
	e->kill = t.kill;
	e->acquired_us = e->seen.acquired_us;
	e->began = clock_now();
	e->transitions++;
	e->handing = false;
	nsec ago = elapsed_holder(lease_renewed_at(e->lease), e->began);
	if (next_link_leads(e->next) && e->cb->next)
		e->cb->next(e->arg, false, true);
	e->cb->lead(e->arg, &t);
	elector_say(e, LOG_INFO, "became_leader", "the record names %s, written %.3f s ago", e->author.identity,
	            (double)ago / NSEC_PER_SEC);
	announce(e, true);
}

static void stop_term(struct elector *e, const struct lease_actions *a)
{
	bool handed = e->handing && a->reason == LEASE_RESIGNED; /* not if the lease was lost before that */

	e->quiet = a->reason == LEASE_DONE;
	e->ended = handed ? "handed_over" : lease_reason_name(a->reason);
	e->ended_term = lease_term(e->lease);
	e->cb->stop(e->arg, a->reason, a->held, a->stop_by);
	elector_say(e,
	            !a->held   ? LOG_WARN
	            : e->quiet ? LOG_DEBUG
	                       : LOG_INFO,
	            "stopped_leading", "%s (%s)", lease_reason_name(a->reason),
	            handed ? reason_of_hand_over(e->why) : reason_text(a->reason));
	e->unannounced = true;
}

/* By the wall clocks, which are a hint here and decide nothing: whoever waits longer does not lead earlier. */
static nsec leader_doubt(const struct elector *e, const struct record *r)
{
	if (r->renewed_us != RECORD_TIME_UNKNOWN && clock_wall_us() - r->renewed_us > r->lease_ms * 1000)
		return 3 * r->lease_ms / 2 * NSEC_PER_MS;
	if (!e->death_watches || !proof_possible(e->author.self, r))
		return 0;
	int fd = proof_pidfd(r);
	if (fd < 0)
		return PROOF_TIME;
	close(fd);
	return 0;
}

/* previous: borrowed */
static struct elector_leader leader_told(const struct elector *e, bool self, const char *previous)
{
	const struct record *r = &e->seen;

	return (struct elector_leader){
		.identity = self ? e->author.identity : r->holder,
		.address = self ? e->author.address : r->address,
		.token = self ? e->token : r->token,
		.term = r->term,
		.self = self,
		.above = !self && proof_above(e->author.self, r),
		.doubt = self ? 0 : leader_doubt(e, r),
		.previous = previous,
	};
}

static void report_leader(struct elector *e, bool self)
{
	const struct record *r = &e->seen;
	char *previous = mem_dup(e->leader ? e->leader : r->previous_holder);
	struct elector_leader l = leader_told(e, self, previous);

	if (!self)
		elector_say(e, LOG_INFO, "new_leader",
		            "%s leads; its settings are obeyed: lease %.3gs, renew deadline %.3gs, retry period %.3gs",
		            l.identity, (double)r->lease_ms / 1e3, (double)r->renew_ms / 1e3,
		            (double)r->retry_ms / 1e3);
	if (l.above)
		elector_say(
			e, LOG_WARN, "waits_for_itself",
			"%s leads (process %llu), and this runs under it: if it waits for this to end, both wait for ever",
			l.identity, (unsigned long long)r->pid);
	mem_replace(&e->leader, l.identity);
	e->leads_itself = self;
	e->cb->leader(e->arg, &l);
	free(previous);
}

static void report_no_leader(struct elector *e)
{
	char *previous = e->leader;

	e->leader = NULL;
	elector_say(e, e->quiet ? LOG_DEBUG : LOG_INFO, "no_leader", "%s leads no more, and nobody else does",
	            previous);
	e->cb->no_leader(e->arg, previous);
	free(previous);
}

static void answer_saves(struct elector *e, uint64_t save, bool good)
{
	saves_answer(&e->saves, save, good);
	if (e->cb->saved)
		e->cb->saved(e->arg, save, good);
}

static void become_another(struct elector *e)
{
	elector_say(
		e, LOG_ERROR, "copied",
		"%s leads by writes that this process did not make: its machine was cloned while it ran. This copy takes "
		"another incarnation, and nobody's death is proved by its processes any more",
		e->author.identity);
	author_become_another(&e->author);
	next_link_renamed(e->next);
}

/* The lease machine asks before it acquires; between that, this candidate asks in order to know whether it could. */
static void elector_ask(struct elector *e)
{
	readiness_asked(&e->readiness, 4 * lease_publishes(e->lease)->retry, clock_now());
	e->cb->ask(e->arg);
}

/* What others wait for comes first: the worker's hook, then the store. Then this is said, in the log and to whoever
 * listens. */
static void elector_carry_out(struct elector *e, const struct lease_actions *a)
{
	if (a->set & LEASE_DO_TWIN)
		become_another(e);
	if (a->set & LEASE_DO_SAVED)
		answer_saves(e, a->saved, true);
	if (a->set & LEASE_DO_UNSAVED)
		answer_saves(e, e->saves.number, false);
	if (a->set & LEASE_DO_STOP)
		stop_term(e, a);
	if (a->set & LEASE_DO_START)
		open_term(e);
	if (a->set & LEASE_DO_DEADLINE)
		elector_publish(e);
	if (a->set & LEASE_DO_ASK)
		elector_ask(e);
	if (a->set & (LEASE_DO_READ | LEASE_DO_WRITE))
		e->op = a->op;
	if (a->set & LEASE_DO_READ)
		e->lock->ops->read(e->lock, a->by, elector_on_read, e);
	if (a->set & LEASE_DO_WRITE)
		start_write(e, a);
	if (a->set & LEASE_DO_LEADER)
		report_leader(e, a->self);
	if (a->set & LEASE_DO_NO_LEADER)
		report_no_leader(e);
	if (a->set & LEASE_DO_FINISHED) {
		e->finishing = true;
		e->left = a->left;
		e->finish_by = instant_add(clock_now(), lease_publishes(e->lease)->retry);
	}
}

/* Whoever was sent to this candidate as the next one would wait in vain: the next record is emptied first, if it can
 * be. */
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
	return readiness_lacks(&e->readiness, &s, &e->contact);
}

/* A user may say that all has stopped from inside `stop`, so the term is closed when that event has been carried out.
 */
static void elector_close_term(struct elector *e)
{
	enum lease_phase phase = lease_phase(e->lease);

	e->term_open = e->term_open && (phase == PHASE_LEADING || phase == PHASE_ENDING || phase == PHASE_LOST);
}

/* After each step: what the lease machine has become, and whether this candidate could lead. */
static void elector_follow(struct elector *e)
{
	enum lease_phase phase = lease_phase(e->lease);
	enum successor_role role = phase == PHASE_FOLLOWING                     ? SUCCESSOR_STANDBY
	                           : phase == PHASE_IDLE || phase == PHASE_LOST ? SUCCESSOR_NONE
	                                                                        : SUCCESSOR_LEADER;
	const char *lacks = elector_lacks(e);

	next_link_role(e->next, role, role == SUCCESSOR_LEADER ? lease_term(e->lease) : 0);
	next_link_ready(e->next, !lacks, e->next_options.priority);
	next_link_awake(e->next);
	if (role == SUCCESSOR_STANDBY && readiness_to_ask(&e->readiness, lacks, clock_now()))
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

static void elector_on_not_handed_over(void *arg, const char *request, const char *why)
{
	struct elector *e = arg;

	if (e->cb->not_handed_over)
		e->cb->not_handed_over(e->arg, request, why);
}

static void elector_on_publish(void *arg)
{
	elector_step(arg, (struct lease_event){ .kind = LEASE_EV_RENEW });
}

static void elector_on_hand_over(void *arg, enum successor_why why, const char *request)
{
	struct elector *e = arg;

	if (lease_phase(e->lease) != PHASE_LEADING) {
		if (why == SUCCESSOR_REQUEST)
			elector_on_not_handed_over(e, request, "the term ends already, for another reason");
		return;
	}
	e->handing = true;
	e->why = why;
	if (e->cb->hand_over)
		e->cb->hand_over(e->arg, why);
	else
		elector_end(e, LEASE_RESIGNED, 0, 0);
}

static void elector_on_settled(void *arg)
{
	elector_look(arg);
}

static void elector_on_say(void *arg, enum log_level level, const char *event, const char *text)
{
	elector_say(arg, level, event, "%s", text);
}

static const struct next_link_callbacks next_callbacks = {
	.next = elector_on_next,
	.publish = elector_on_publish,
	.hand_over = elector_on_hand_over,
	.not_handed_over = elector_on_not_handed_over,
	.settled = elector_on_settled,
	.say = elector_on_say,
};

static struct successor_options options_of(const struct lease_times *t, const struct elector_next_options *o)
{
	return (struct successor_options){ .lease = t->lease,
		                           .renew = t->renew,
		                           .retry = t->retry,
		                           .preempt = o->preempt,
		                           .preempt_after = o->preempt_after,
		                           .max_term = o->max_term };
}

/* ---- steps ---- */

/* Whoever was stopped with SIGSTOP sees its own term end without an apparent cause. */
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

/* Callbacks may call back in. What they ask for waits until the event at hand has been carried out. */
static void elector_step(struct elector *e, struct lease_event ev)
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
		struct lease_event next = e->events[0];
		memmove(e->events, e->events + 1, sizeof *e->events * (size_t)--e->event_count);
		struct lease_actions a = lease_step(e->lease, &next, clock_now());
		elector_carry_out(e, &a);
		elector_close_term(e);
	}
	e->events = NULL;
	if (e->unannounced && lease_phase(e->lease) != PHASE_ENDING) {
		e->unannounced = false;
		announce(e, false); /* others wait for the release, so that was sent before */
	}
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
static int check_text(const char *what, const char *text, struct err *err)
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
	if (lease_times_check(&c->times, err) < 0 || check_text("identity", c->identity, err) < 0 ||
	    check_text("address", c->address, err) < 0)
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
	e->name = mem_dup(c->name ? c->name : "");
	author_init(&e->author, c->self, c->identity, c->address, c->reclaim);
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
	e->due = (struct instant){ NSEC_NEVER, NSEC_NEVER };
	return e;
}

void elector_campaign(struct elector *e)
{
	watch_if_possible(e);
	elector_step(e, (struct lease_event){ .kind = LEASE_EV_CAMPAIGN });
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

void elector_stopped(struct elector *e, bool reaped)
{
	if (!reaped)
		elector_say(e, LOG_ERROR, "not_reaped",
		            "something the term started could not be killed: the lease is left to expire");
	elector_step(e, (struct lease_event){ .kind = LEASE_EV_STOPPED, .reaped = reaped });
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

void elector_pause(struct elector *e, const char *why)
{
	e->paused_why = why;
	if (lease_phase(e->lease) != PHASE_IDLE) /* an observer has never campaigned */
		elector_say(e, LOG_INFO, "paused", "campaigning is paused: %s", why);
	elector_step(e, (struct lease_event){ .kind = LEASE_EV_PAUSE });
}

void elector_configure(struct elector *e, const struct lease_times *t)
{
	struct successor_options options = options_of(t, &e->next_options);

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

void elector_configure_next(struct elector *e, const struct elector_next_options *o)
{
	struct successor_options options = options_of(lease_publishes(e->lease), o);

	e->next_options = *o;
	next_link_configure(e->next, &options);
	elector_look(e);
}

void elector_ready(struct elector *e, bool ready)
{
	e->readiness.user = ready;
	elector_look(e);
}

int elector_handover(struct elector *e, const char *to, nsec timeout, char request[33], struct err *err)
{
	if (lease_phase(e->lease) != PHASE_LEADING) {
		err_set(err, ERR_USAGE, "%s does not lead, so it cannot hand over", e->author.identity);
		return -1;
	}
	if (strcmp(to, e->author.identity) == 0) {
		err_set(err, ERR_USAGE, "%s leads already", to);
		return -1;
	}
	return next_link_handover(e->next, to, timeout, request, err);
}

void elector_tell_leader(struct elector *e)
{
	if (!e->leader || e->leads_itself)
		return;
	struct elector_leader l = leader_told(e, false, e->seen.previous_holder);
	e->cb->leader(e->arg, &l);
}

const char *elector_checkpoint(const struct elector *e)
{
	return e->seen.checkpoint;
}

void elector_look(struct elector *e)
{
	elector_step(e, (struct lease_event){ .kind = LEASE_EV_TICK });
}

void elector_status(const struct elector *e, struct elector_status *out)
{
	struct instant now = clock_now();
	enum lease_phase phase = lease_phase(e->lease);
	bool leading = lease_is_leading(e->lease, now);
	bool term = phase == PHASE_LEADING || phase == PHASE_ENDING || phase == PHASE_LOST || phase == PHASE_NEXT;

	*out = (struct elector_status){
		.phase = phase,
		.leading = leading,
		.term = leading ? lease_term(e->lease) : e->seen.term,
		.token = leading ? e->token : e->seen.token,
		.remaining = leading ? instant_until(lease_end(e->lease), now) : 0,
		.until = leading ? now.boot + instant_until(lease_end(e->lease), now) : 0,
		.since_began = term ? elapsed_standby(e->began, now) : -1,
		.since_renewal = term ? elapsed_holder(lease_renewed_at(e->lease), now) : -1,
		.identity = e->author.identity,
		.address = e->author.address,
		.lock = e->lock->url,
		.leader = e->leader ? e->leader : "",
		.name = e->name,
		.times = *lease_publishes(e->lease),
		.paused_why = e->paused_why ? e->paused_why : "",
		.trouble = e->trouble ? e->trouble : "",
		.trouble_for = e->trouble ? elapsed_standby(e->trouble_since, now) : 0,
		.store = e->contact,
		.store_silence = store_contact_silence(&e->contact, now),
		.record = &e->seen,
		.renewals_ok = e->renewals_ok,
		.renewals_failed = e->renewals_failed,
		.slow_paths = e->slow_paths,
		.transitions = e->transitions,
	};
	lease_stands(e->lease, now, &out->standing);
	const char *lacks = leading ? "it leads"
	                    : term  ? "its term is ending"
	                            : readiness_lacks(&e->readiness, &out->standing, &e->contact);
	out->next.able = !lacks;
	out->next.unable_why = lacks ? lacks : "";
	out->next.priority_self = e->next_options.priority;
	memcpy(out->next.handovers, e->handovers, sizeof e->handovers);
	next_link_status(e->next, &e->seen, &out->next);
}

void elector_why(const struct elector *e, struct buf *out)
{
	history_tell(history_of(e->env), e, out);
}

void elector_free(struct elector *e)
{
	if (!e)
		return;
	e->closing = true;
	next_link_free(e->next);
	timer_stop(e->timeline, &e->timer);
	death_watch_forget(&e->death_watch);
	e->lock->ops->close(e->lock);
	record_fini(&e->seen);
	drop_written(e);
	history_forget(history_of(e->env), e);
	free(e->lease);
	free(e->trouble);
	saves_fini(&e->saves);
	author_fini(&e->author);
	free(e->name);
	free(e->leader);
	free(e);
}
