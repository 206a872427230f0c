#include "client/history_text.h"

#include "base/duration.h"
#include "base/mem.h"
#include "client/short_name.h"
#include "client/table.h"
#include "lease/past_rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NAME_COLUMNS 20 /* of a leader, in a drawing */
#define BAR_LEAST 10
#define GREEN "\033[32m"
#define PLAIN "\033[0m"

static const char *const history_titles[] = { "LEADER", "TOKEN", "FROM", "TO", "LASTED", "ENDED", "GAP", NULL };
static const char *const brief_titles[] = { "LEADER", "TOKEN", "FROM", "LASTED", "ENDED", "GAP", NULL };

static void add_time(struct table *t, int64_t us)
{
	time_t sec = us / 1000000;
	struct tm tm;
	char text[40] = "";

	if (us != RECORD_TIME_UNKNOWN && localtime_r(&sec, &tm))
		strftime(text, sizeof text, "%F %T", &tm);
	table_add(t, text);
}

/* A person does not want the milliseconds of a day. */
static void add_length(struct table *t, int64_t ms)
{
	char text[32] = "";

	if (ms >= 0)
		duration_print(ms >= 10000 ? ms - ms % 1000 : ms, text, sizeof text);
	table_add(t, text);
}

/* What is brief has its names cut, as the drawing above it. */
static void add_name(struct table *t, const char *who, const struct past_row *row, int rows)
{
	const char *others[PAST_ROWS];
	struct buf name = { 0 };

	for (int i = 0; i < rows; i++)
		others[i] = row[i].term.who;
	short_name_put(&name, who, others, (size_t)rows, NAME_COLUMNS);
	table_add(t, name.data);
	buf_fini(&name);
}

static void add_row(struct table *t, const struct past_row *row, enum leadership now, bool brief)
{
	char token[24] = "";

	if (row->term.token)
		snprintf(token, sizeof token, "%" PRId64, row->term.token);
	if (!brief)
		table_add(t, row->term.who);
	table_add(t, token);
	add_time(t, row->term.from_us);
	if (!brief)
		add_time(t, row->term.to_us);
	add_length(t, row->lasted_ms);
	table_add(t, !row->lasts ? row->term.reason : now == LEADERSHIP_LEADING ? "leads" : leadership_name(now));
	add_length(t, row->gap_ms);
}

bool history_text_table(struct buf *out, const struct record_text *s, bool brief)
{
	struct table t = { .titles = brief ? brief_titles : history_titles };
	struct past_row row[PAST_ROWS];
	int n = s->record ? past_rows(s->record, s->now_us, row) : 0;

	if (n == 0)
		return false;
	for (int i = 0; i < n; i++) {
		if (brief)
			add_name(&t, row[i].term.who, row, n);
		add_row(&t, &row[i], record_text_state(s), brief);
	}
	table_print(out, &t);
	table_fini(&t);
	return true;
}

bool history_text_json(struct buf *out, const struct record_text *s)
{
	const struct record *r = s->record;

	buf_adds(out, "{\"lock\":");
	buf_json(out, s->lock);
	buf_printf(out, ",\"state\":\"%s\",\"terms\":", leadership_name(record_text_state(s)));
	past_json(out, r, s->now_us);
	buf_adds(out, "}\n");
	return r && (r->past || *r->holder);
}

/* ---- the drawing ---- */

struct drawing {
	const struct past_row *row;
	int rows, width; /* width: of a bar */
	int64_t from_us, to_us;
	bool colour;
	const char *who[PAST_ROWS]; /* of each row */
};

struct bar {
	char *text;
	int width;
	int64_t from_us, to_us;
};

static int bar_at(const struct bar *b, int64_t us)
{
	if (us <= b->from_us)
		return 0;
	if (us >= b->to_us)
		return b->width - 1;
	return (int)((double)(us - b->from_us) / (double)(b->to_us - b->from_us) * (b->width - 1));
}

/* By what is known of its end: its leader released it, or did not. */
static bool term_vanished(const struct past_term *t)
{
	static const char *const vanished[] = { PAST_UNKNOWN, "died", "forced", "expired", "lost", "deleted" };

	for (size_t i = 0; i < sizeof vanished / sizeof *vanished; i++)
		if (strcmp(t->reason, vanished[i]) == 0)
			return true;
	return false;
}

static void bar_add(const struct bar *b, const struct past_row *row, char letter, char clean)
{
	int64_t to_us = row->lasts ? b->to_us : row->term.to_us;

	if (row->term.from_us == RECORD_TIME_UNKNOWN || (to_us != RECORD_TIME_UNKNOWN && to_us < b->from_us))
		return;
	int begin = bar_at(b, row->term.from_us), end = to_us == RECORD_TIME_UNKNOWN ? begin : bar_at(b, to_us);
	if (end < begin)
		return; /* it begins after the time that is shown */
	memset(b->text + begin, letter, (size_t)(end - begin + 1));
	if (!row->lasts && term_vanished(&row->term))
		b->text[end] = 'x';
	else if (!row->lasts && clean)
		b->text[end] = clean;
}

void history_text_bar(char *bar, int width, int64_t from_us, int64_t to_us, const struct past_row *row, int rows,
                      const char *letter, char clean)
{
	const struct bar b = { bar, width, from_us, to_us };

	for (int i = 0; i < rows; i++)
		bar_add(&b, &row[i], letter[i], clean);
}

static void draw_leader(struct buf *out, const struct drawing *d, const char *who)
{
	char *text = mem_zero((size_t)d->width + 1);
	const struct bar b = { text, d->width, d->from_us, d->to_us };

	memset(text, ' ', (size_t)d->width);
	for (int i = 0; i < d->rows; i++)
		if (strcmp(d->row[i].term.who, who) == 0)
			bar_add(&b, &d->row[i], '=', 's');
	int put = short_name_put(out, who, d->who, (size_t)d->rows, NAME_COLUMNS);
	buf_printf(out, "%*s |%s%s%s|\n", NAME_COLUMNS - put, "", d->colour ? GREEN : "", text, d->colour ? PLAIN : "");
	free(text);
}

static bool was_before(const struct past_row *row, int i)
{
	for (int k = 0; k < i; k++)
		if (strcmp(row[k].term.who, row[i].term.who) == 0)
			return true;
	return false;
}

/* The times at both ends of the bars. */
static void draw_times(struct buf *out, const struct drawing *d)
{
	time_t from = d->from_us / 1000000, to = d->to_us / 1000000;
	char first[32] = "", last[32] = "";
	struct tm tm;

	if (localtime_r(&from, &tm))
		strftime(first, sizeof first, "%F %T", &tm);
	if (localtime_r(&to, &tm))
		strftime(last, sizeof last, "%T", &tm);
	int gap = d->width - (int)strlen(first) - (int)strlen(last);
	buf_printf(out, "%*s  %s%*s%s\n", NAME_COLUMNS, "", first, gap > 1 ? gap : 1, "", last);
}

void history_text_drawing(struct buf *out, const struct record_text *s, int columns, bool colour)
{
	struct past_row row[PAST_ROWS];
	struct drawing d = { .row = row, .from_us = s->now_us, .to_us = s->now_us, .colour = colour };

	d.rows = s->record ? past_rows(s->record, s->now_us, row) : 0;
	d.width = columns - NAME_COLUMNS - 3 > BAR_LEAST ? columns - NAME_COLUMNS - 3 : BAR_LEAST;
	for (int i = 0; i < d.rows; i++)
		d.who[i] = row[i].term.who;
	for (int i = 0; i < d.rows; i++)
		if (row[i].term.from_us != RECORD_TIME_UNKNOWN && row[i].term.from_us < d.from_us)
			d.from_us = row[i].term.from_us;
	if (d.from_us == d.to_us)
		return;
	for (int i = 0; i < d.rows; i++)
		if (!was_before(row, i))
			draw_leader(out, &d, row[i].term.who);
	draw_times(out, &d);
}
