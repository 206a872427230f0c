/* The record: whatever text is in a store, and what is read of it and printed reads the same. The first text may be
 * followed by others behind zero bytes, which are read as later ones of the same place (reading.h). */
#include "fuzz.h"

#include "lease/next_record.h"
#include "lease/past.h"
#include "lease/reading.h"
#include "lease/record.h"

#define TEXTS 8 /* of one input: a thousand empty ones find nothing more */

/* Of what the record tells of past terms, whatever that is, little is kept, and it is in order. */
static void judge_past(const struct record *r)
{
	struct past p;

	past_parse(&p, r->past);
	must(p.count >= (r->past != NULL) && p.count <= PAST_TERMS);
	must(!r->past || strlen(r->past) < PAST_MAX_BYTES);
	for (int i = 0; i < p.count; i++) {
		const struct past_term *t = &p.term[i];
		must(*t->who && *t->reason && (!r->token || t->token <= r->token));
		must(t->to_us == RECORD_TIME_UNKNOWN || t->to_us >= t->from_us);
		for (int k = 0; k < i; k++)
			must(!t->token || p.term[k].token < t->token);
	}
}

static void judge(const struct record *r)
{
	char *text = record_print(r), *again;
	struct record copy;
	struct next_record n;
	struct err err;

	record_init(&copy);
	if (record_parse(&copy, text, strlen(text), &err) < 0) {
		fprintf(stderr, "%s\n%s\n", err.text, text);
		must(!"what is printed can be read");
	}
	again = record_print(&copy);
	must(strcmp(text, again) == 0);
	must(record_sight_id(r) == record_sight_id(&copy) || r->renewed_us > RECORD_TIME_MAX ||
	     r->acquired_us > RECORD_TIME_MAX);
	record_write_id(r);
	judge_past(r);
	record_note_past(&copy, *r->holder ? r->holder : "x", r->token, "done");
	judge_past(&copy);
	next_record_read(r, &n);
	next_record_sight(r, "a", "b");
	next_record_news(r, "a");
	if (r->checkpoint && strlen(r->checkpoint) <= RECORD_CHECKPOINT_MAX)
		must(record_checkpoint_check(r->checkpoint, &err) == 0);
	record_fini(&copy);
	free(text);
	free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	struct reading *last = NULL;
	int texts = 0;

	do {
		struct record r, same;
		struct err err;
		size_t len;
		char *text = input_text(&in, &len);
		record_init(&r);
		record_init(&same);
		int failed = record_parse(&r, text, len, &err);
		must(failed == reading_parse(&last, &same, text, len, &err));
		if (failed == 0) {
			char *a = record_print(&r), *b = record_print(&same);
			must(strcmp(a, b) == 0);
			free(a);
			free(b);
			judge(&r);
		}
		record_checkpoint_check(text, &err);
		record_fini(&r);
		record_fini(&same);
		free(text);
	} while (in.left && ++texts < TEXTS);
	reading_free(last);
	return 0;
}
