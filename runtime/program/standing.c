#include "program/standing.h"

#include "base/duration.h"
#include "base/json_out.h"
#include "election/elector.h"
#include "lease/debt_record.h"
#include "service/service.h"
#include "term/may_lead.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SCRIPT_ERROR_SHOWN (3600 * NSEC_PER_SEC) /* an older one explains nothing any more */

/* ---- times ---- */

/* "13.2s", "3m5s": tenths below a minute. */
static const char *span(nsec d, char out[32])
{
	int64_t unit = d < 60 * NSEC_PER_SEC ? 100 : 1000;

	duration_print(d / NSEC_PER_MS / unit * unit, out, 32);
	return out;
}

/* By the wall clock, in whole seconds: "2026-11-22T23:04:47Z". */
static const char *moment(nsec from_now, char out[32])
{
	record_time_print(clock_wall_us() + from_now / 1000, out, 32);
	strcpy(out + strcspn(out, "."), "Z");
	return out;
}

/* ---- the reasons why it does not lead ---- */

/* Each appends a text, or nothing where that is no reason. */

static void reason_phase(struct buf *out, const struct standing *e)
{
	static const char *const texts[] = {
		[PHASE_IDLE] = "it has not begun to campaign, or has ended",
		[PHASE_FOLLOWING] = "",
		[PHASE_LEADING] = "its lease has run out: its script is being stopped",
		[PHASE_ENDING] = "its term is ending: its script is stopping",
		[PHASE_LOST] = "its term was lost: its script is stopping",
		[PHASE_RELEASING] = "its term is over: it is releasing the lease",
		[PHASE_NEXT] = "its term has ended for the next one, which it is about to take",
	};

	if ((e->status->leading || e->status->fencing) && e->status->phase == PHASE_LEADING)
		return;
	buf_adds(out, e->status->standing.observer ? "it observes: its script has no on_leading, so it never leads"
	                                           : texts[e->status->phase]);
}

static void reason_store(struct buf *out, const struct standing *e)
{
	const struct elector_status *st = e->status;
	char since[32];

	if (!st->store.answered)
		buf_printf(out, "the store has not answered yet, %s after the start%s%s",
		           span(st->store_silence, since), *st->trouble ? ": " : "", st->trouble);
	else if (st->store.unwritable && !st->store.lost)
		buf_printf(out, "the store does not take its writes%s%s%s%s", *st->trouble ? ", for " : "",
		           *st->trouble ? span(st->trouble_for, since) : "", *st->trouble ? ": " : "", st->trouble);
	else if (st->store.failing)
		buf_printf(out, "the store last answered %s ago; it says: %s", span(st->store_silence, since),
		           *st->trouble ? st->trouble : "nothing");
	else if (*st->trouble)
		buf_printf(out, "for %s: %s", span(st->trouble_for, since), st->trouble);
}

static void reason_leader(struct buf *out, const struct standing *e)
{
	const struct elector_status *st = e->status;
	char left[32], seen[32];

	if (st->standing.seen != SIGHT_HELD || !*st->leader || st->standing.wait_left <= 0)
		return;
	buf_plain(out, st->leader);
	buf_printf(out,
	           " leads (term %" PRIu64 ", token %" PRId64 "); its record changed %s ago, its lease lasts %s more",
	           st->term, st->token, span(st->standing.seen_for, seen), span(st->standing.wait_left, left));
	buf_adds(out, " unless it renews");
}

static void reason_waiting(struct buf *out, const struct standing *e)
{
	const struct elector_status *st = e->status;
	char left[32], seen[32];

	if (!st->standing.looked || st->standing.wait_left <= 0 || st->standing.wait_left == NSEC_NEVER)
		return;
	if (st->standing.seen == SIGHT_HELD && *st->leader)
		return;
	buf_printf(out, "it waits out %s for %s more, since its last leader may not know yet",
	           st->standing.seen == SIGHT_EMPTIED ? "a record that somebody emptied"
	           : st->standing.seen == SIGHT_HELD && !st->standing.dead
	                   ? "a record that a write of unknown outcome left"
	                   : "a record that is gone",
	           span(st->standing.wait_left, left));
	buf_printf(out, " (seen %s ago)", span(st->standing.seen_for, seen));
}

static void reason_paused(struct buf *out, const struct standing *e)
{
	if (!e->status->standing.paused)
		return;
	buf_printf(out, "it is paused: %s", e->status->paused_why);
	if (strcmp(e->status->paused_why, "by an operator") == 0)
		buf_adds(out, " (`lunarch ctl resume` ends that)");
}

static void reason_worker(struct buf *out, const struct standing *e)
{
	if (!e->status->worker && !e->status->standing.paused)
		buf_adds(out, "there is no worker that could lead");
}

static void reason_sitting_out(struct buf *out, const struct standing *e)
{
	nsec left = e->status->standing.out_left;
	char until[32], text[32];

	if (left == NSEC_NEVER && e->status->phase == PHASE_FOLLOWING)
		buf_adds(out, "it is shutting down");
	if (left > 0 && left != NSEC_NEVER)
		buf_printf(out, "it sits out until %s, %s more", moment(left, until), span(left, text));
}

static void reason_unreaped(struct buf *out, const struct standing *e)
{
	if (e->status->standing.unreaped)
		buf_adds(out, "something of its last term could not be killed, so it does not campaign");
}

static void reason_may_lead(struct buf *out, const struct standing *e)
{
	const struct may_lead *m = e->may_lead;
	struct instant now = clock_now();
	char ago[32], since[32];

	if (!m)
		return;
	if (m->last == MAY_LEAD_NO)
		buf_printf(out, "may_lead said no %s ago, and has for %s: %s",
		           span(elapsed_standby(m->answered_at, now), ago), span(elapsed_standby(m->since, now), since),
		           m->why && *m->why ? m->why : "it gave no reason");
	else if (m->last == MAY_LEAD_LATE)
		buf_printf(out, "may_lead has not answered in time (%s) for %s", span(m->timeout, ago),
		           span(elapsed_standby(m->since, now), since));
	else if (m->waits)
		buf_printf(out, "may_lead was asked %s ago, and has not answered yet",
		           span(elapsed_standby(m->asked_at, now), ago));
}

static void reason_namesake(struct buf *out, const struct standing *e)
{
	char ago[32];

	if (e->status->namesake_for < 0)
		return;
	buf_adds(out, "another candidate has this one's identity, ");
	buf_plain(out, e->status->identity);
	buf_printf(out, ", and wrote %s ago: give each its own (--identity)", span(e->status->namesake_for, ago));
}

/* By the lock it leads, but its worker has not answered yet. */
static void reason_silent(struct buf *out, const struct standing *e)
{
	char since[32];
	struct buf doing = { 0 };

	if (!e->silent)
		return;
	worker_doing_tell(&e->worker, &doing);
	buf_printf(out, "its worker has not answered for %s that it leads, so no hook of the term has run%s%s",
	           span(e->silent_for, since), doing.len ? ": " : "", doing.len ? doing.data : "");
	buf_fini(&doing);
}

/* The names come from the record. */
static void add_debtors(struct buf *out, const struct record *r)
{
	struct debt d = { 0 };

	debt_of(&d, r);
	for (int i = 0; i < d.count; i++) {
		buf_adds(out, i ? ", " : "");
		buf_plain(out, d.of[i].identity);
		buf_printf(out, " (token %" PRId64 ")", d.of[i].token);
	}
	debt_fini(&d);
}

static bool owes(const struct record *r)
{
	return r && r->unfenced;
}

static void reason_fence(struct buf *out, const struct standing *e)
{
	const struct elector_status *st = e->status;

	if (st->fencing)
		buf_adds(out, "it holds the lease, and fences earlier holders before its term begins");
	else if (*st->barred)
		buf_printf(out, "it does not campaign: %s", st->barred);
	else
		return;
	buf_adds(out, owes(st->record) ? ". Booked: " : "");
	add_debtors(out, st->record);
	if (!st->fencing)
		buf_adds(out, ". `lunarch fence --done` pays what does nothing any more for sure");
}

struct saying {
	const char *kind; /* for programs */
	void (*add)(struct buf *out, const struct standing *e);
	bool of_leader; /* also of a leader: what is wrong, not who may lead next */
};

static const struct saying reasons[] = {
	{ "phase", reason_phase, true },
	{ "store", reason_store, true },
	{ "leader", reason_leader },
	{ "waiting", reason_waiting },
	{ "paused", reason_paused, true },
	{ "worker", reason_worker },
	{ "sitting_out", reason_sitting_out },
	{ "unreaped", reason_unreaped },
	{ "fence", reason_fence },
	{ "may_lead", reason_may_lead },
	{ "silent", reason_silent, true },
	{ "same_identity", reason_namesake, true },
};
#define REASONS (sizeof reasons / sizeof *reasons)

/* ---- who comes next ---- */

/* As with the reasons, each appends a text, or nothing. */

static const char *text_or_none(const char *text)
{
	return text ? text : "";
}

static void note_next(struct buf *out, const struct standing *e)
{
	const struct elector_next *n = &e->status->next;
	char text[32];

	if (n->known && n->self) {
		buf_adds(out, "this candidate comes next");
	} else if (n->known) {
		buf_plain(out, n->identity);
		buf_adds(out, " comes next");
		if (*n->address) {
			buf_adds(out, ", at ");
			buf_plain(out, n->address);
		}
	} else if (e->status->leading) {
		buf_printf(out, "nobody comes next: no standby that could lead has been seen for %s",
		           span(n->absent, text));
	} else if (*e->status->leader) {
		buf_adds(out, "nobody comes next: the leader names no standby");
	}
	if (n->known)
		buf_printf(out, ", priority %" PRId64, n->priority);
	if (n->known && n->since >= 0)
		buf_printf(out, ", for %s", span(n->since, text));
}

/* Why a standby does not come next. What would keep it from leading is among the reasons, and is not said twice. */
static void note_able(struct buf *out, const struct standing *e)
{
	const struct elector_next *n = &e->status->next;

	if (e->status->leading || e->status->lacks || n->self)
		return;
	if (!n->able && strcmp(text_or_none(n->unable_why), text_or_none(n->trouble)) == 0)
		return; /* note_trouble says it, or nothing is known */
	if (!n->able)
		buf_printf(out, "this candidate cannot come next: %s", text_or_none(n->unable_why));
	else if (!n->known)
		buf_adds(out, "this candidate could come next");
	else
		buf_printf(out,
		           "this candidate could come next too, but its priority, %" PRId64
		           ", is not larger than that of the one that does",
		           n->priority_self);
}

static void note_wanted(struct buf *out, const struct standing *e)
{
	const char *wanted = text_or_none(e->status->next.wanted);

	if (!*wanted)
		return;
	buf_adds(out, e->status->leading ? "it waits for " : "the leader waits for ");
	buf_plain(out, wanted);
	buf_adds(out, " to come next, and then hands over to it (`lunarch ctl handover --to`)");
}

static void note_preempts(struct buf *out, const struct standing *e)
{
	const struct elector_next *n = &e->status->next;
	char at[32], in[32];

	if (!e->status->leading || !n->known)
		return;
	if (n->preempts_in < 0 || n->preempts_in == NSEC_NEVER) {
		if (n->priority > n->priority_self)
			buf_printf(out,
			           "that priority is larger than this leader's, %" PRId64
			           ", but this leader is not told to hand over for that (--preempt)",
			           n->priority_self);
		return;
	}
	buf_printf(out, "it hands over at %s, in %s, since the next one's priority is larger than its own, %" PRId64,
	           moment(n->preempts_in, at), span(n->preempts_in, in), n->priority_self);
	if (n->preempt_after > e->preempt_after)
		buf_printf(
			out,
			"; it waits for %s instead of %s (--preempt-after), since terms that it or others took over in "
			"that way were shorter than that",
			span(n->preempt_after, at), span(e->preempt_after, in));
}

static void note_rotates(struct buf *out, const struct standing *e)
{
	const struct elector_next *n = &e->status->next;
	char at[32], in[32];

	if (!e->status->leading || n->rotates_in < 0 || n->rotates_in == NSEC_NEVER)
		return;
	if (n->rotates_in == 0)
		buf_adds(out, "its term has lasted for --max-term: it hands over as soon as somebody comes next");
	else
		buf_printf(out, "it hands over at %s, in %s, if somebody comes next then (--max-term)",
		           moment(n->rotates_in, at), span(n->rotates_in, in));
}

static void note_trouble(struct buf *out, const struct standing *e)
{
	const char *trouble = text_or_none(e->status->next.trouble);

	if (!*trouble)
		return;
	buf_adds(out, trouble);
	buf_adds(out, e->status->leading ? "; the term goes on as ever, and when it ends all standbys compete"
	                                 : "; this candidate campaigns all the same, and leads if no other does");
}

/* Tells whether the command of the candidate that comes next is ready (--warm). */
static void note_warm(struct buf *out, const struct standing *e)
{
	if (!e->warm)
		return;
	if (strcmp(e->warm, "ready") == 0)
		buf_adds(out, "its command is ready to lead");
	else if (strcmp(e->warm, "starting") == 0)
		buf_adds(out, "its command is starting, and has not said that it is ready to lead");
	else
		buf_adds(out, "its command is cold: it is not ready, and would be started when this candidate leads");
}

static const struct saying next_notes[] = {
	{ "next", note_next, true },         { "able", note_able, true },       { "wanted", note_wanted, true },
	{ "preempts", note_preempts, true }, { "rotates", note_rotates, true }, { "trouble", note_trouble, true },
	{ "warm", note_warm, true },
};
#define NEXT_NOTES (sizeof next_notes / sizeof *next_notes)

/* ---- for people ---- */

void standing_not_resigned(struct buf *out, const struct standing *e, double seconds)
{
	char text[32];

	buf_adds(out, "it does not lead: ");
	buf_plain(out, *e->status->leader ? e->status->leader : "nobody");
	buf_adds(out, " does");
	duration_print((int64_t)(seconds * 1e3), text, sizeof text);
	if (seconds >= 0)
		buf_printf(out, "; it sits out for %s all the same", text);
}

static void refuse(struct buf *out, const char *why)
{
	json_out_open(out, NULL, "{");
	json_out_bool(out, "ok", false);
	json_out_text(out, "error", why);
	buf_adds(out, "}");
}

/* Appends a refusal where it does not lead: who does, and that this can only be done there. */
static bool may_do(struct buf *out, const struct standing *e, const char *only)
{
	struct buf text = { 0 };

	if (e->status->leading)
		return true;
	buf_adds(&text, "it does not lead: ");
	if (*e->status->leader) {
		buf_plain(&text, e->status->leader);
		buf_adds(&text, " does");
		if (*e->status->record->holder && *e->status->record->address) {
			buf_adds(&text, ", with the address ");
			buf_plain(&text, e->status->record->address);
		}
		buf_printf(&text, ". %s: give this order where it runs", only);
	} else {
		buf_adds(&text, "nobody does");
	}
	refuse(out, text.data);
	buf_fini(&text);
	return false;
}

bool standing_may_hand_over(struct buf *out, const struct standing *e)
{
	return may_do(out, e, "Only the elector that leads can hand over");
}

bool standing_may_run(struct buf *out, const struct standing *e)
{
	return may_do(out, e, "Jobs run on the leader alone");
}

/* How long nobody led: tenths of a millisecond count where a hand-over takes a few. */
static void add_gap(struct buf *b, nsec gap)
{
	char text[32];

	if (gap < 0)
		buf_adds(b, "; for how long nobody led is not known, since the lease was lost before it was released");
	else if (gap < NSEC_PER_SEC)
		buf_printf(b, "; nobody led for %.1f ms", (double)gap / NSEC_PER_MS);
	else
		buf_printf(b, "; nobody led for %s", span(gap, text));
}

void standing_handed_over(struct buf *out, const struct handover_result *result)
{
	struct buf text = { 0 };

	if (result->end == HANDOVER_DONE) {
		buf_plain(&text, result->identity);
		buf_adds(&text, " leads now");
		if (*result->address) {
			buf_adds(&text, ", at ");
			buf_plain(&text, result->address);
		}
		add_gap(&text, result->gap);
	} else {
		buf_adds(&text, result->why);
	}
	json_out_open(out, NULL, "{");
	json_out_bool(out, "ok", result->end != HANDOVER_NOT);
	if (result->end == HANDOVER_NOT) {
		json_out_bool(out, "again", true);
	} else {
		json_out_text(out, "leader", result->end == HANDOVER_DONE ? result->identity : "");
		json_out_text(out, "address", result->end == HANDOVER_DONE ? result->address : "");
		json_out_name(out, "gapMs");
		buf_printf(out, "%.3f",
		           result->end == HANDOVER_DONE && result->gap >= 0 ? (double)result->gap / NSEC_PER_MS : -1.);
	}
	json_out_text(out, result->end == HANDOVER_NOT ? "error" : "message", text.data);
	buf_adds(out, "}");
	buf_fini(&text);
}

static void tell_subject(struct buf *out, const struct standing *e)
{
	if (*e->name)
		buf_printf(out, "election \"%s\" of this elector", e->name);
	else
		buf_adds(out, "this elector");
}

static void tell_leading(struct buf *out, const struct standing *e)
{
	const struct elector_status *st = e->status;
	char since[32], lasted[32], renewed[32], left[32];

	tell_subject(out, e);
	buf_printf(out, " leads since %s (%s), term %" PRIu64 ", token %" PRId64 ": renewed %s ago, %s left\n",
	           moment(-st->since_began, since), span(st->since_began, lasted), st->term, st->token,
	           span(st->since_renewal, renewed), span(st->remaining, left));
}

/* Tells of a hook that blocks. While the term is new, reason_silent tells it. */
static void tell_busy(struct buf *out, const struct standing *e)
{
	char since[32];

	if (e->silent || !worker_doing_blocks(&e->worker))
		return;
	buf_adds(out, "the process of its script runs nothing else: ");
	worker_doing_tell(&e->worker, out);
	if (!e->worker.stopped)
		buf_printf(out, ", for %s", span(e->worker.work_for, since));
}

/* A script's error is not a reason: the candidate may lead all the same. */
static void tell_script_error(struct buf *out, const struct standing *e)
{
	char ago[32];

	if (e->script_error && e->script_error_for <= SCRIPT_ERROR_SHOWN)
		buf_printf(out, "its script raised an error %s ago: %s", span(e->script_error_for, ago),
		           e->script_error);
}

static void tell_service(struct buf *out, const struct standing *e)
{
	if (e->service)
		service_tell(e->service, out);
}

static const struct saying troubles[] = { { "", tell_busy, true }, { "", tell_script_error, true } };
static const struct saying services[] = { { "", tell_service, true } };

/* Adds a line for each that has something to say. Returns whether one had. */
static bool tell_all(struct buf *out, const struct standing *e, const struct saying *s, size_t count)
{
	bool told = false;

	for (; count--; s++) {
		struct buf text = { 0 };
		if (s->of_leader || !e->status->leading)
			s->add(&text, e);
		if (text.len) {
			buf_adds(out, "  ");
			buf_plain(out, text.data);
			buf_adds(out, "\n");
			told = true;
		}
		buf_fini(&text);
	}
	return told;
}

void standing_tell(struct buf *out, const struct standing *e)
{
	if (e->status->leading) {
		tell_leading(out, e);
	} else {
		tell_subject(out, e);
		buf_adds(out, " does not lead:\n");
	}
	if (!tell_all(out, e, reasons, REASONS) && !e->status->leading)
		buf_adds(out, "  the lock is free, and it is about to try\n");
	tell_all(out, e, troubles, 2);
	tell_all(out, e, next_notes, NEXT_NOTES);
	tell_all(out, e, services, 1);
	buf_adds(out, "what happened, oldest first:\n");
	elector_why(e->elector, out);
	if (e->tell_more)
		e->tell_more(e->tell_more_arg, out);
}

const char *standing_name(const struct standing *e)
{
	return *e->name ? e->name : e->status->lock;
}

/* ---- for programs ---- */

static void add_may_lead(struct buf *b, const struct may_lead *m)
{
	static const char *const answers[] = {
		[MAY_LEAD_NONE] = "", [MAY_LEAD_YES] = "yes", [MAY_LEAD_NO] = "no", [MAY_LEAD_LATE] = "late"
	};
	struct instant now = clock_now();
	bool answered = m->last != MAY_LEAD_NONE;

	json_out_open(b, "mayLead", "{");
	json_out_text(b, "answer", answers[m->last]);
	json_out_text(b, "why", m->why);
	json_out_int(b, "agoMs", answered ? elapsed_standby(m->answered_at, now) / NSEC_PER_MS : -1);
	json_out_int(b, "sinceMs", answered ? elapsed_standby(m->since, now) / NSEC_PER_MS : -1);
	json_out_bool(b, "asked", m->waits);
	buf_adds(b, "}");
}

static int64_t whole_ms(nsec d)
{
	return d < 0 || d == NSEC_NEVER ? -1 : d / NSEC_PER_MS;
}

/* Until when it is proven that it leads, if it does not renew: by the wall clock, and in the seconds of /proc/uptime,
 * which nobody sets. Both are rounded down. The wall clock is read before the other one, so that a pause between them
 * makes the claim shorter. */
static void add_until(struct buf *b, const struct elector_status *s)
{
	int64_t wall_us = clock_wall_us();
	nsec left = s->until - clock_now().boot;
	char at[32] = "";

	if (s->leading)
		record_time_print(wall_us + left / 1000, at, sizeof at);
	json_out_text(b, "leadingUntil", at);
	json_out_int(b, "leadingUntilUptime", s->until / NSEC_PER_SEC);
	buf_printf(b, ".%02d", (int)(s->until % NSEC_PER_SEC / (10 * NSEC_PER_MS)));
}

/* -1 and "": it is not waited for. */
static void add_worker(struct buf *b, const struct standing *e)
{
	struct buf doing = { 0 };

	bool blocks = worker_doing_blocks(&e->worker);

	if (e->silent || blocks)
		worker_doing_tell(&e->worker, &doing);
	json_out_open(b, "worker", "{");
	json_out_int(b, "silentMs", e->silent ? whole_ms(e->silent_for) : -1);
	json_out_int(b, "busyMs", blocks ? whole_ms(e->worker.work_for) : -1);
	json_out_text(b, "doing", doing.len ? doing.data : "");
	buf_adds(b, "}");
	buf_fini(&doing);
}

static void add_store(struct buf *b, const struct elector_status *s)
{
	json_out_open(b, "store", "{");
	json_out_bool(b, "answered", s->store.answered);
	json_out_bool(b, "lost", s->store.lost);
	json_out_bool(b, "watching", s->store.watching);
	json_out_int(b, "lastContactMs", whole_ms(s->store_silence));
	json_out_int(b, "readsFailed", (int64_t)s->store.reads_failed);
	json_out_int(b, "writesFailed", (int64_t)s->store.writes_failed);
	json_out_int(b, "watchesFailed", (int64_t)s->store.watches_failed);
	json_out_text(b, "writes", s->store.unwritable ? "not taken" : s->store.wrote ? "taken" : "");
	json_out_text(b, "trouble", s->trouble);
	buf_adds(b, "}");
}

/* [{"KEY":"kind","text":"..."}, ...] of those that have something to say. */
static void add_sayings(struct buf *b, const char *name, const char *key, const struct standing *e,
                        const struct saying *s, size_t count)
{
	json_out_open(b, name, "[");
	for (; count--; s++) {
		struct buf text = { 0 };
		s->add(&text, e);
		if (text.len) {
			json_out_open(b, NULL, "{");
			json_out_text(b, key, s->kind);
			json_out_text(b, "text", text.data);
			buf_adds(b, "}");
		}
		buf_fini(&text);
	}
	buf_adds(b, "]");
}

/* A time to come, as what is left and as a moment; -1 and "" if it does not. */
static void add_coming(struct buf *b, const char *in_name, const char *at_name, nsec in)
{
	char at[32] = "";

	if (whole_ms(in) >= 0)
		moment(in, at);
	json_out_int(b, in_name, whole_ms(in));
	json_out_text(b, at_name, at);
}

static void add_next(struct buf *b, const struct standing *e)
{
	const struct elector_next *n = &e->status->next;
	bool leads = e->status->leading;

	json_out_open(b, "next", "{");
	json_out_bool(b, "known", n->known);
	json_out_bool(b, "self", n->self);
	json_out_text(b, "identity", n->identity);
	json_out_text(b, "address", n->address);
	json_out_int(b, "priority", n->known ? n->priority : 0);
	json_out_int(b, "sinceMs", n->known ? whole_ms(n->since) : -1);
	json_out_int(b, "absentMs", whole_ms(n->absent));
	json_out_text(b, "wanted", n->wanted);
	json_out_text(b, "trouble", n->trouble);
	json_out_int(b, "ownPriority", n->priority_self);
	json_out_bool(b, "able", n->able);
	json_out_text(b, "unableWhy", n->unable_why);
	json_out_int(b, "preemptAfterMs", leads ? whole_ms(n->preempt_after) : -1);
	add_coming(b, "preemptsInMs", "preemptsAt", leads ? n->preempts_in : -1);
	add_coming(b, "rotatesInMs", "rotatesAt", leads ? n->rotates_in : -1);
	json_out_open(b, "handovers", "{");
	json_out_int(b, "request", (int64_t)n->handovers[NEXT_REQUEST]);
	json_out_int(b, "priority", (int64_t)n->handovers[NEXT_PRIORITY]);
	json_out_int(b, "rotation", (int64_t)n->handovers[NEXT_ROTATION]);
	buf_adds(b, "}");
	json_out_text(b, "warm", e->warm);
	add_sayings(b, "notes", "note", e, next_notes, NEXT_NOTES);
	buf_adds(b, "}");
}

static void add_service(struct buf *b, const struct standing *e)
{
	struct service_status st;

	service_status(e->service, &st);
	json_out_open(b, "service", "{");
	json_out_bool(b, "published", st.published);
	json_out_int(b, "failures", (int64_t)st.failures);
	json_out_text(b, "name", st.name);
	json_out_text(b, "address", st.host);
	json_out_text(b, "trouble", st.trouble);
	buf_adds(b, "}");
}

enum leadership standing_state(const struct standing *e)
{
	const struct elector_status *s = e->status;
	bool fences = s->record && record_fences(s->record) && s->standing.wait_left > 0;
	/* as this elector counts it, whose lease goes by no wall clock */
	bool renews = s->leading || s->fencing || fences || *s->leader;
	bool exists =
		s->record && (s->record->lease_ms || *s->record->holder); /* a record that is not there is empty */

	return leadership_of(exists ? s->record : NULL, 0, renews ? WATCHED_RENEWS : WATCHED_SILENT);
}

void standing_members(struct buf *out, const struct standing *e)
{
	static const char *const phases[] = {
		[PHASE_IDLE] = "idle",
		[PHASE_FOLLOWING] = "following",
		[PHASE_LEADING] = "leading",
		[PHASE_ENDING] = "ending",
		[PHASE_LOST] = "stopping",
		[PHASE_RELEASING] = "releasing",
		[PHASE_NEXT] = "taking the next term",
	};
	const struct elector_status *s = e->status;

	json_out_text(out, "phase", s->fencing ? "fencing" : phases[s->phase]);
	json_out_bool(out, "leading", s->leading);
	json_out_bool(out, "couldLead", !s->lacks);
	json_out_text(out, "lacks", s->lacks);
	json_out_text(out, "name", e->name);
	json_out_text(out, "lock", s->lock);
	json_out_text(out, "identity", s->identity);
	json_out_text(out, "address", s->address);
	json_out_text(out, "leader", s->leader);
	json_out_text(out, "state", leadership_name(standing_state(e)));
	json_out_int(out, "term", (int64_t)s->term);
	json_out_int(out, "token", s->token);
	json_out_int(out, "remainingMs", s->remaining / NSEC_PER_MS);
	add_until(out, s);
	json_out_int(out, "sinceBeganMs", whole_ms(s->since_began));
	json_out_int(out, "sinceRenewalMs", whole_ms(s->since_renewal));
	json_out_int(out, "renewals", (int64_t)s->renewals_ok);
	json_out_int(out, "renewalsFailed", (int64_t)s->renewals_failed);
	json_out_int(out, "slowPaths", (int64_t)s->slow_paths);
	json_out_int(out, "transitions", (int64_t)s->transitions);
	json_out_bool(out, "fencing", s->fencing);
	json_out_text(out, "barred", s->barred);
	json_out_raw(out, "unfenced", s->record && s->record->unfenced ? s->record->unfenced : "[]");
	json_out_bool(out, "paused", s->standing.paused);
	json_out_int(out, "sittingOutMs", whole_ms(s->standing.out_left));
	json_out_int(out, "leaseMs", whole_ms(s->times.lease));
	json_out_int(out, "seenMs", s->standing.looked ? whole_ms(s->standing.seen_for) : -1);
	json_out_int(out, "waitLeftMs", whole_ms(s->standing.wait_left));
	add_store(out, s);
	add_worker(out, e);
	if (e->may_lead)
		add_may_lead(out, e->may_lead);
	add_next(out, e);
	if (e->service)
		add_service(out, e);
	add_sayings(out, "reasons", "reason", e, reasons, s->leading ? 0 : REASONS);
	json_out_text(out, "scriptError", e->script_error);
	json_out_int(out, "scriptErrorMs", e->script_error ? whole_ms(e->script_error_for) : -1);
}

void standing_json(struct buf *out, const struct standing *e)
{
	json_out_open(out, NULL, "{");
	standing_members(out, e);
	buf_adds(out, "}");
}

/* Rounded down: who is given this time never has more than there is. And never 0, which means for ever to timeout(1)
 * and to PostgreSQL's statement_timeout. */
void standing_deadline(struct buf *out, const struct standing *e)
{
	int64_t ms = e->status->remaining / NSEC_PER_MS;
	char text[32];

	if (!may_do(out, e, "Only the elector that leads has a deadline"))
		return;
	if (ms == 0) {
		refuse(out, "it leads for less than a millisecond more unless it renews");
		return;
	}
	snprintf(text, sizeof text, "%" PRId64 ".%03d", ms / 1000, (int)(ms % 1000));
	json_out_open(out, NULL, "{");
	json_out_bool(out, "ok", true);
	json_out_int(out, "remainingMs", ms);
	add_until(out, e->status);
	json_out_text(out, "message", text);
	buf_adds(out, "}");
}
