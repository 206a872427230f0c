#include "client/record_text.h"

#include "base/clock.h"
#include "base/duration.h"
#include "lease/next_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

enum leadership record_text_state(const struct record_text *s)
{
	return leadership_of(s->record, s->now_us, s->watched);
}

bool record_text_held(const struct record_text *s)
{
	return s->record && record_text_state(s) >= LEADERSHIP_OVERDUE;
}

/* ---- text ---- */

static void add_line(struct buf *out, const char *label, const char *value)
{
	buf_printf(out, "%-11s ", label);
	buf_plain(out, value);
	buf_adds(out, "\n");
}

static void add_age(struct buf *out, int64_t then_us, int64_t now_us)
{
	int64_t ms = (now_us - then_us) / 1000;
	char text[32];

	if (ms >= 10000) /* a person does not want the milliseconds of yesterday */
		ms -= ms % 1000;
	duration_print(ms < 0 ? -ms : ms, text, sizeof text);
	buf_printf(out, "%s %s by the holder's clock", text, ms < 0 ? "ahead of here" : "ago");
}

static void add_time(struct buf *out, const char *label, int64_t then_us, int64_t now_us)
{
	time_t sec = then_us / 1000000;
	struct tm tm;
	char text[64];

	if (then_us == RECORD_TIME_UNKNOWN)
		return;
	localtime_r(&sec, &tm);
	strftime(text, sizeof text, "%F %T %z", &tm);
	buf_printf(out, "%-11s %s (", label, text);
	add_age(out, then_us, now_us);
	buf_adds(out, ")\n");
}

static void add_setting(struct buf *out, const char *label, int64_t ms)
{
	char text[32];

	if (ms <= 0)
		return;
	duration_print(ms, text, sizeof text);
	buf_printf(out, "%s%s", label, text);
}

void record_text_headline(struct buf *out, const struct record_text *s)
{
	const struct record *r = s->record;

	if (!r) {
		buf_adds(out, "nobody leads: there is no record");
		return;
	}
	if (next_record_is(r)) {
		buf_adds(out, "no lock, but the record of who comes next beside one: ");
		buf_plain(out, *r->holder ? r->holder : "nobody");
		return;
	}
	if (!*r->holder) {
		buf_adds(out, r->state == RECORD_LEADING ? "nobody leads: somebody emptied the record"
		                                         : "nobody leads: released");
		if (*r->previous_holder) {
			buf_adds(out, ", last led by ");
			buf_plain(out, r->previous_holder);
		}
		if (*r->forced) {
			buf_adds(out, "; by force, ");
			buf_plain(out, r->forced);
		}
		return;
	}
	buf_plain(out, r->holder);
	buf_adds(out, " leads");
	if (r->token)
		buf_printf(out, ", token %" PRId64, r->token);
	if (r->term)
		buf_printf(out, ", term %" PRIu64, r->term);
	if (*r->address) {
		buf_adds(out, ", at ");
		buf_plain(out, r->address);
	}
	if (record_text_state(s) == LEADERSHIP_OVERDUE)
		buf_adds(out, s->watched == WATCHED_SILENT ? ": but it has not renewed for its lease"
		                                           : ": but overdue, it renewed longer ago than its lease");
}

static void add_candidate(struct buf *out, const char *label, const struct advice_candidate *who)
{
	buf_printf(out, "%-11s ", label);
	buf_plain(out, who->identity);
	if (*who->address) {
		buf_adds(out, ", at ");
		buf_plain(out, who->address);
	}
	if (who->priority)
		buf_printf(out, ", priority %" PRId64, who->priority);
	buf_adds(out, "\n");
}

/* Who comes next, as the leader publishes it; of a record that is released, for whom it was. */
static void add_advice(struct buf *out, const struct record *r)
{
	if (advice_has(r->advice, ADVICE_NEXT))
		add_candidate(out, "next", &r->advice->next);
	else if (*r->holder)
		add_line(out, "next", "nobody");
	if (advice_has(r->advice, ADVICE_WANTED))
		add_line(out, "wanted", r->advice->wanted.identity); /* as next, by `ctl handover --to` */
	if (advice_has(r->advice, ADVICE_FOR))
		add_line(out, "for", r->advice->given.identity);
}

static void add_record(struct buf *out, const struct record_text *s)
{
	const struct record *r = s->record;

	if (*r->address)
		add_line(out, "address", r->address);
	if (*r->holder)
		add_time(out, "since", r->acquired_us, s->now_us);
	add_time(out, *r->holder ? "renewed" : "released", r->renewed_us, s->now_us);
	if (r->token)
		buf_printf(out, "%-11s %" PRId64 "\n", "token", r->token);
	if (r->term)
		buf_printf(out, "%-11s %" PRIu64 "\n", "term", r->term);
	buf_printf(out, "%-11s ", "settings");
	add_setting(out, "lease ", r->lease_ms);
	add_setting(out, ", renew deadline ", r->renew_ms);
	add_setting(out, ", retry period ", r->retry_ms);
	buf_printf(out, "\n%-11s %" PRId64 "\n", "transitions", r->transitions);
	if (*r->previous_holder)
		add_line(out, "previous", r->previous_holder);
	if (*r->forced)
		add_line(out, "by force", r->forced);
	add_advice(out, r);
}

static void add_nomination(struct buf *out, const struct record_text *s)
{
	struct next_record n;

	next_record_read(s->record, &n);
	add_line(out, "record", s->lock);
	add_line(out, "of", "who comes next in an election. It is no lock: that is beside it");
	if (*n.who.identity)
		add_candidate(out, "next", &n.who);
	else
		add_line(out, "next", "nobody");
	add_time(out, "since", n.since_us, s->now_us);
	add_time(out, "written", n.wall_us, s->now_us);
}

void record_text_lines(struct buf *out, const struct record_text *s)
{
	if (s->record && next_record_is(s->record)) {
		add_nomination(out, s);
		return;
	}
	add_line(out, "lock", s->lock);
	add_line(out, "leader", record_text_held(s) ? s->record->holder : "nobody");
	if (!s->record) {
		add_line(out, "record", "there is none");
		return;
	}
	add_record(out, s);
	if (s->watched && record_text_held(s))
		add_line(out, "verified",
		         s->watched == WATCHED_RENEWS ? "it renews" : "it did not renew while watched for its lease");
	else if (record_text_state(s) == LEADERSHIP_OVERDUE)
		add_line(out, "note", "overdue, renewed longer ago than its lease: perhaps gone; --verify finds out");
}

/* ---- JSON ---- */

static void add_string(struct buf *out, const char *name, const char *value)
{
	buf_printf(out, ",\"%s\":", name);
	if (value && *value)
		buf_json(out, value);
	else
		buf_adds(out, "null");
}

static void add_number(struct buf *out, const char *name, int64_t value, bool known)
{
	if (known)
		buf_printf(out, ",\"%s\":%" PRId64, name, value);
	else
		buf_printf(out, ",\"%s\":null", name);
}

static void add_json_time(struct buf *out, const char *name, int64_t us)
{
	char text[40] = "";

	if (us != RECORD_TIME_UNKNOWN)
		record_time_print(us, text, sizeof text);
	add_string(out, name, text);
}

static void add_json_next(struct buf *out, const struct advice_candidate *who)
{
	buf_adds(out, ",\"next\":");
	if (!who || !*who->identity) {
		buf_adds(out, "null");
		return;
	}
	buf_adds(out, "{\"identity\":");
	buf_json(out, who->identity);
	add_string(out, "address", who->address);
	add_number(out, "priority", who->priority, true);
	buf_adds(out, "}");
}

static void add_json_advice(struct buf *out, const struct record *r)
{
	add_json_next(out, advice_has(r->advice, ADVICE_NEXT) ? &r->advice->next : NULL);
	if (advice_has(r->advice, ADVICE_WANTED))
		add_string(out, "wanted", r->advice->wanted.identity);
	if (advice_has(r->advice, ADVICE_FOR))
		add_string(out, "releasedFor", r->advice->given.identity);
}

static void add_json_record(struct buf *out, const struct record_text *s)
{
	const struct record *r = s->record;
	bool renewed = r->renewed_us != RECORD_TIME_UNKNOWN;

	add_string(out, "address", r->address);
	add_json_time(out, "acquired", r->acquired_us);
	add_json_time(out, "renewed", r->renewed_us);
	add_number(out, "renewedAgoMs", renewed ? (s->now_us - r->renewed_us) / 1000 : 0, renewed);
	add_number(out, "token", r->token, r->token);
	add_number(out, "term", (int64_t)r->term, r->term);
	add_number(out, "leaseDurationMs", r->lease_ms, r->lease_ms);
	add_number(out, "renewDeadlineMs", r->renew_ms, r->renew_ms);
	add_number(out, "retryPeriodMs", r->retry_ms, r->retry_ms);
	add_number(out, "leaderTransitions", r->transitions, true);
	add_string(out, "previousHolder", r->previous_holder);
	if (*r->forced)
		add_string(out, "releasedByForce", r->forced);
	add_json_advice(out, r);
}

static void add_json_nomination(struct buf *out, const struct record *r)
{
	struct next_record n;

	next_record_read(r, &n);
	add_string(out, "leader", NULL);
	add_json_next(out, &n.who);
	add_json_time(out, "renewed", n.wall_us);
	buf_adds(out, "}");
}

void record_text_json(struct buf *out, const struct record_text *s)
{
	buf_adds(out, "{\"lock\":");
	buf_json(out, s->lock);
	add_string(out, "state", leadership_name(record_text_state(s)));
	if (s->record && next_record_is(s->record)) {
		add_json_nomination(out, s->record);
		return;
	}
	add_string(out, "leader", record_text_held(s) ? s->record->holder : NULL);
	if (s->record)
		add_json_record(out, s);
	if (s->watched && record_text_held(s))
		add_string(out, "verified", s->watched == WATCHED_RENEWS ? "renews" : "silent");
	buf_adds(out, "}");
}
