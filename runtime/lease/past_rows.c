#include "lease/past_rows.h"

#include "base/json_out.h"

/* From one time to another; -1 where one is not known, or the clocks do not agree. */
static int64_t between_ms(int64_t from_us, int64_t to_us)
{
	if (from_us == RECORD_TIME_UNKNOWN || to_us == RECORD_TIME_UNKNOWN || to_us < from_us)
		return -1;
	return (to_us - from_us) / 1000;
}

int past_rows(const struct record *r, int64_t now_us, struct past_row out[PAST_ROWS])
{
	struct past p;
	int n;

	past_parse(&p, r->past);
	for (n = 0; n < p.count; n++)
		out[n] = (struct past_row){ .term = p.term[n],
			                    .lasted_ms = between_ms(p.term[n].from_us, p.term[n].to_us) };
	if (*r->holder) {
		out[n] = (struct past_row){ .lasts = true };
		past_term_set(&out[n].term, r->holder, r->token, r->acquired_us, RECORD_TIME_UNKNOWN, NULL);
		out[n].term.reason[0] = '\0';
		out[n].lasted_ms = between_ms(out[n].term.from_us, now_us);
		n++;
	}
	for (int i = 0; i < n; i++)
		out[i].gap_ms = i ? between_ms(out[i - 1].term.to_us, out[i].term.from_us) : -1;
	return n;
}

static void put_json_time(struct buf *b, const char *key, int64_t us)
{
	char text[32];

	record_time_print(us, text, sizeof text);
	json_out_known_text(b, key, text);
}

void past_json(struct buf *b, const struct record *r, int64_t now_us)
{
	struct past_row row[PAST_ROWS];
	int n = r ? past_rows(r, now_us, row) : 0;

	json_out_open(b, NULL, "[");
	for (int i = 0; i < n; i++) {
		const struct past_term *t = &row[i].term;
		json_out_open(b, NULL, "{");
		json_out_text(b, "identity", t->who);
		json_out_known_int(b, "token", t->token ? t->token : -1);
		put_json_time(b, "from", t->from_us);
		put_json_time(b, "to", t->to_us);
		json_out_known_int(b, "lastedMs", row[i].lasted_ms);
		json_out_known_int(b, "gapMs", row[i].gap_ms);
		json_out_known_text(b, "reason", t->reason);
		json_out_bool(b, "lasts", row[i].lasts);
		buf_adds(b, "}");
	}
	buf_adds(b, "]");
}
