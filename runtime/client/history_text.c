#include "client/history_text.h"

#include "base/duration.h"
#include "client/table.h"
#include "lease/past.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

static const char *const history_titles[] = { "LEADER", "TOKEN", "FROM", "TO", "LASTED", "ENDED", "GAP", NULL };

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

static void add_row(struct table *t, const struct past_row *row)
{
	char token[24] = "";

	if (row->term.token)
		snprintf(token, sizeof token, "%" PRId64, row->term.token);
	table_add(t, row->term.who);
	table_add(t, token);
	add_time(t, row->term.from_us);
	add_time(t, row->term.to_us);
	add_length(t, row->lasted_ms);
	table_add(t, row->lasts ? "leads" : row->term.reason);
	add_length(t, row->gap_ms);
}

bool history_text_table(struct buf *out, const struct record *r, int64_t now_us)
{
	struct table t = { .titles = history_titles };
	struct past_row row[PAST_ROWS];
	int n = r ? past_rows(r, now_us, row) : 0;

	if (n == 0)
		return false;
	for (int i = 0; i < n; i++)
		add_row(&t, &row[i]);
	table_print(out, &t);
	table_fini(&t);
	return true;
}

void history_text_json(struct buf *out, const char *lock, const struct record *r, int64_t now_us)
{
	buf_adds(out, "{\"lock\":");
	buf_json(out, lock);
	buf_adds(out, ",\"terms\":");
	past_json(out, r, now_us);
	buf_adds(out, "}\n");
}
