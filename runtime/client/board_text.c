#include "client/board_text.h"

#include "base/duration.h"
#include "base/mem.h"
#include "client/history_text.h"
#include "client/record_text.h"
#include "client/short_name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NAME_LEAST 10
#define BAR_LEAST 5
#define LEGEND_LINES 2
#define AROUND 4 /* lines beside those of the locks and the legend: title, times, what is not shown, an empty one */
#define RED "\033[31m"
#define PLAIN "\033[0m"

/* Without 's' and 'x', which mark ends in a drawing. */
static const char letters[BOARD_LETTERS + 1] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrtuvw";
static const char *const colours[] = { "\033[32m", "\033[36m", "\033[33m", "\033[35m", "\033[34m" };
#define COLOURS (int)(sizeof colours / sizeof *colours)

void board_text_fini(struct board_text *t)
{
	for (int i = 0; i < t->count; i++)
		free(t->who[i]);
}

/* '=': there are more leaders than letters. */
static char letter_of(struct board_text *t, const char *who)
{
	for (int i = 0; i < t->count; i++)
		if (strcmp(t->who[i], who) == 0)
			return letters[i];
	if (t->count == BOARD_LETTERS)
		return '=';
	t->who[t->count] = mem_dup(who);
	return letters[t->count++];
}

static const char *colour_of(char letter)
{
	const char *at = letter ? strchr(letters, letter) : NULL;

	return letter == 'x' ? RED : at ? colours[(at - letters) % COLOURS] : "";
}

/* ---- what is drawn ---- */

struct board_line {
	const struct board_lock *lock;
	struct past_row row[PAST_ROWS];
	char letter[PAST_ROWS];
	int rows;
};

struct board_drawing {
	struct board_text *text;
	struct buf *out;
	const struct screen *screen;
	struct board_line *line;
	const char **label; /* of each line: its URL, without what all begin with */
	const char *place;  /* the URL of the first, of which so much is common: */
	int count, shown;
	int label_width, bar_width;
	size_t common;
	int64_t from_us, now_us;
};

struct record_text board_text_shown(const struct board_lock *l, int64_t now_us)
{
	return (struct record_text){ .lock = lock_client_url(&l->client),
		                     .record = l->present ? &l->client.record : NULL,
		                     .now_us = now_us,
		                     .watched = board_lock_watched(l) };
}

static enum leadership lock_state(const struct board_lock *l, int64_t now_us)
{
	struct record_text shown = board_text_shown(l, now_us);

	return record_text_state(&shown);
}

/* While it cannot be read, its last term is known to have lasted until it could. */
static void line_take(struct board_line *line, const struct board_lock *l, int64_t now_us)
{
	line->lock = l;
	line->rows = l->present ? past_rows(&l->client.record, now_us, line->row) : 0;
	struct past_row *last = line->rows ? &line->row[line->rows - 1] : NULL;
	if (l->failed && last && last->lasts) {
		last->lasts = false;
		last->term.to_us = l->read_us;
	}
}

/* What lasts covers the whole bar, and does not make it longer; unless there is nothing else. */
static int64_t earliest(const struct board_drawing *d, bool lasting)
{
	int64_t from = d->now_us;

	for (int i = 0; i < d->count; i++)
		for (int k = 0; k < d->line[i].rows; k++) {
			const struct past_row *row = &d->line[i].row[k];
			if (row->lasts == lasting && row->term.from_us != RECORD_TIME_UNKNOWN &&
			    row->term.from_us < from)
				from = row->term.from_us;
		}
	return from;
}

/* The directory, or what is like one, in which all of them are. */
static size_t common_part(const struct board_drawing *d)
{
	const char *first = d->label[0];
	size_t n = strlen(first);

	for (int i = 1; i < d->count; i++) {
		size_t k = 0;
		while (k < n && d->label[i][k] == first[k])
			k++;
		n = k;
	}
	while (n > 0 && !strchr("/#", first[n - 1]))
		n--;
	return first[n] ? n : 0;
}

/* ---- lines ---- */

static void put_times(struct board_drawing *d)
{
	time_t from = d->from_us / 1000000, to = d->now_us / 1000000;
	char first[32] = "", last[32] = "";
	struct tm tm;

	if (localtime_r(&from, &tm))
		strftime(first, sizeof first, d->bar_width < 30 ? "%T" : "%F %T", &tm);
	if (localtime_r(&to, &tm))
		strftime(last, sizeof last, "%T", &tm);
	int gap = d->bar_width - (int)strlen(first) - (int)strlen(last);
	buf_printf(d->out, "%*s  %s%*s%s\n", d->label_width, "", gap > 0 ? first : "",
	           gap > 0            ? gap
	           : d->bar_width > 8 ? d->bar_width - 8
	                              : 0,
	           "", last);
}

static void put_bar(const struct board_drawing *d, const struct board_line *line)
{
	char *bar = mem_zero((size_t)d->bar_width + 1), before = '\0';

	memset(bar, ' ', (size_t)d->bar_width);
	history_text_bar(bar, d->bar_width, d->from_us, d->now_us, line->row, line->rows, line->letter, '\0');
	for (const char *at = bar; *at; at++) {
		if (d->screen->colour && *at != before)
			buf_printf(d->out, PLAIN "%s", colour_of(*at));
		buf_add(d->out, at, 1);
		before = *at;
	}
	buf_adds(d->out, d->screen->colour ? PLAIN "|" : "|");
	free(bar);
}

static void put_trouble(const struct board_drawing *d, const char *text)
{
	buf_adds(d->out, d->screen->colour ? RED : "");
	buf_plain(d->out, text);
	buf_adds(d->out, d->screen->colour ? PLAIN : "");
}

/* "B web-2, 3m5s" */
static void put_leader(const struct board_drawing *d, const struct board_line *line)
{
	const struct past_row *last = &line->row[line->rows - 1];
	const char *who = last->term.who;
	char length[32] = "";
	int left = d->screen->columns - d->label_width - d->bar_width - 17;

	buf_printf(d->out, "%c ", letter_of(d->text, who));
	short_name_put(d->out, who, (const char *const *)d->text->who, (size_t)d->text->count,
	               left > NAME_LEAST ? left : NAME_LEAST);
	if (last->lasted_ms >= 0)
		duration_print(last->lasted_ms - last->lasted_ms % 1000, length, sizeof length);
	buf_printf(d->out, *length ? ", %s" : "%s", length);
}

static void put_state(const struct board_drawing *d, const struct board_line *line)
{
	const struct board_lock *l = line->lock;
	enum leadership state = lock_state(l, d->now_us);

	if (!l->answered)
		buf_adds(d->out, "not read yet");
	else if (l->failed)
		put_trouble(d, l->client.result.err.text);
	else if (!l->present)
		put_trouble(d, "nobody: there is no record");
	else if (state < LEADERSHIP_OVERDUE)
		put_trouble(d, "nobody leads");
	else if (state == LEADERSHIP_OVERDUE)
		put_trouble(d, "its leader does not renew");
	else
		put_leader(d, line);
}

static void put_line(const struct board_drawing *d, int i)
{
	int put = short_name_put(d->out, d->label[i], d->label, (size_t)d->count, d->label_width);

	buf_printf(d->out, "%*s |", d->label_width - put, "");
	put_bar(d, &d->line[i]);
	buf_adds(d->out, " ");
	put_state(d, &d->line[i]);
	buf_adds(d->out, "\n");
}

static void put_not_shown(const struct board_drawing *d, bool more)
{
	int leaderless = 0, failed = 0;

	for (int i = d->shown; i < d->count; i++) {
		const struct board_lock *l = d->line[i].lock;
		failed += l->failed;
		leaderless += l->answered && !l->failed && lock_state(l, d->now_us) != LEADERSHIP_LEADING;
	}
	if (d->shown < d->count)
		buf_printf(d->out, "%d more not shown: nobody leads in %d, %d cannot be read\n", d->count - d->shown,
		           leaderless, failed);
	else if (more)
		buf_adds(d->out, "there are more than these: a longer prefix shows fewer\n");
}

/* Whose letters are in the lines. */
static void put_legend(const struct board_drawing *d)
{
	bool used[BOARD_LETTERS] = { false };
	int column = 0, lines = 1, width = d->screen->columns / 3 > 24 ? 24 : d->screen->columns / 3;

	for (int i = 0; i < d->shown; i++)
		for (int k = 0; k < d->line[i].rows; k++) {
			const char *at = strchr(letters, d->line[i].letter[k]);
			if (at)
				used[at - letters] = true;
		}
	buf_adds(d->out, "\n");
	for (int i = 0; i < d->text->count; i++) {
		if (!used[i])
			continue;
		if (column + width + 4 > d->screen->columns) {
			if (lines++ == LEGEND_LINES)
				break;
			buf_adds(d->out, "\n");
			column = 0;
		}
		buf_printf(d->out, "%s%c%s ", d->screen->colour ? colour_of(letters[i]) : "", letters[i],
		           d->screen->colour ? PLAIN : "");
		int put = short_name_put(d->out, d->text->who[i], (const char *const *)d->text->who,
		                         (size_t)d->text->count, width > NAME_LEAST ? width : NAME_LEAST);
		int pad = width - put > 0 ? width - put : 0;
		buf_printf(d->out, "%*s", pad + 2, "");
		column += put + pad + 4;
	}
	buf_adds(d->out, "\n");
}

/* ---- all ---- */

static int between(int n, int least, int most)
{
	return n < least ? least : n > most ? most : n;
}

static void drawing_measure(struct board_drawing *d)
{
	int columns = d->screen->columns, longest = 4, state = between(columns * 2 / 5, 12, 34);

	d->place = d->label[0];
	d->common = d->count > 1 ? common_part(d) : 0;
	for (int i = 0; i < d->count; i++) {
		d->label[i] += d->common;
		int length = (int)strlen(d->label[i]);
		longest = length > longest ? length : longest;
	}
	d->label_width = between(longest, 4, between(columns / 4, NAME_LEAST, 40));
	d->bar_width = between(columns - d->label_width - state - 4, BAR_LEAST, columns);
	d->from_us = earliest(d, false);
	if (d->from_us == d->now_us)
		d->from_us = earliest(d, true);
	int room = between(d->screen->lines - AROUND - LEGEND_LINES, 1, d->screen->lines);
	d->shown = d->count <= room + 1 ? d->count : room;
}

static void drawing_put(struct board_drawing *d, bool more)
{
	buf_add(d->out, d->place, d->common);
	buf_printf(d->out, "%s%d lock%s\n", d->common ? "  " : "", d->count, d->count == 1 ? "" : "s");
	put_times(d);
	for (int i = 0; i < d->shown; i++)
		put_line(d, i);
	put_not_shown(d, more);
	put_legend(d);
}

void board_text_draw(struct board_text *t, struct buf *out, const struct watch_board *b, const struct screen *s,
                     int64_t now_us)
{
	struct board_drawing d = { .text = t, .out = out, .screen = s, .now_us = now_us };

	d.line = mem_zero((b->count + 1) * sizeof *d.line);
	d.label = mem_zero((b->count + 1) * sizeof *d.label);
	for (size_t i = 0; i < b->count; i++) {
		if (b->lock[i]->hidden || (b->lock[i]->name && !b->lock[i]->answered))
			continue;
		d.label[d.count] = lock_client_url(&b->lock[i]->client);
		line_take(&d.line[d.count++], b->lock[i], now_us);
	}
	if (d.count) {
		drawing_measure(&d);
		for (int i = 0; i < d.shown; i++)
			for (int k = 0; k < d.line[i].rows; k++)
				d.line[i].letter[k] = letter_of(t, d.line[i].row[k].term.who);
		drawing_put(&d, b->more);
	} else {
		buf_adds(out, "no election yet\n");
	}
	free(d.line);
	free(d.label);
}

void board_text_headline(struct buf *out, const struct board_lock *l, int64_t now_us)
{
	struct record_text shown = board_text_shown(l, now_us);

	if (l->failed) {
		buf_adds(out, l->client.result.err.text);
		return;
	}
	record_text_headline(out, &shown);
}
