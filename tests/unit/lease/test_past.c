/* The past terms of a record: what is added, and what of a text from outside is believed. */
#include "lease/past.h"

#include "base/mem.h"
#include "lease/record.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>

static void add(struct past *p, const char *who, int64_t token, int64_t from_us, int64_t to_us, const char *reason)
{
	struct past_term t;

	past_term_set(&t, who, token, from_us, to_us, reason);
	past_add(p, &t);
}

static void is_printed(const struct past *p, const char *want, const char *what)
{
	struct buf b = { 0 };

	past_print(&b, p);
	is_str(b.data, want, what);
	buf_fini(&b);
}

static void adds(void)
{
	struct past p = { 0 }, again;
	struct buf b = { 0 };

	is_printed(&p, "[]", "no terms are an empty list");
	add(&p, "a", 5, 0, 1500000, "resigned");
	add(&p, "b\"", 0, RECORD_TIME_UNKNOWN, RECORD_TIME_UNKNOWN, NULL);
	is_printed(
		&p,
		"[{\"identity\":\"a\",\"token\":5,\"from\":\"1970-01-01T00:00:00.000000Z\",\"to\":\"1970-01-01T00:00:01."
		"500000Z\",\"reason\":\"resigned\"},{\"identity\":\"b\\\"\",\"reason\":\"unknown\"}]",
		"terms are printed oldest first; what is unknown is left out");
	for (int i = 6; i < 20; i++)
		add(&p, "c", i, i, i, "done");
	ok(p.count == PAST_TERMS && p.term[0].token == 12 && p.term[7].token == 19, "the last eight are kept");
	add(&p, "d", 14, 0, 0, "done");
	ok(p.count == 3 && p.term[0].token == 12 && p.term[2].token == 14,
	   "a token that does not rise drops those that it does not follow");
	past_print(&b, &p);
	past_parse(&again, b.data);
	is_printed(&again, b.data, "what is printed is read back");
	buf_fini(&b);
}

static void bounds(void)
{
	char who[400];
	struct past p = { 0 };
	struct past_term t;
	struct buf b = { 0 };

	memset(who, 1, sizeof who - 1);
	who[sizeof who - 1] = '\0';
	for (int i = 1; i < 20; i++)
		add(&p, who, INT64_MAX / 2 - 20 + i, RECORD_TIME_MAX, RECORD_TIME_MAX, "abcdefghijklmnopqrstuvw");
	past_print(&b, &p);
	ok(b.len < PAST_MAX_BYTES && b.len > PAST_MAX_BYTES / 2, "the longest ones, with %zu bytes, are in the bound",
	   b.len);
	buf_fini(&b);
	for (int i = 0; i < 399; i += 3)
		memcpy(who + i, "\xe2\x82\xac", 3);
	past_term_set(&t, who, 0, 0, 0, NULL);
	ok(strlen(t.who) == 126 && buf_is_utf8(t.who), "an identity is cut between two characters");
	past_term_set(&t, "a", 0, -1, 5, "Bad reason");
	ok(t.from_us == RECORD_TIME_UNKNOWN && t.to_us == 5 && strcmp(t.reason, PAST_UNKNOWN) == 0,
	   "a time before 1970 is unknown, and so is a reason that is no word");
	past_term_set(&t, "a", 0, 9, 5, "abcdefghijklmnopqrstuvwx");
	ok(t.from_us == 9 && t.to_us == RECORD_TIME_UNKNOWN && strcmp(t.reason, PAST_UNKNOWN) == 0,
	   "and an end before the beginning, and a word that is too long");
}

/* Parses a record with this value. It must be accepted, whatever the value is. */
static void hears(const char *value, const char *past, const char *what)
{
	char *text = mem_printf("{\"holderIdentity\":\"x\",\"leaseDurationSeconds\":15,\"pastTerms\":%s,\"token\":30,"
	                        "\"state\":\"leading\",\"term\":3}",
	                        value);
	struct record r;
	struct err err;

	record_init(&r);
	if (record_parse(&r, text, strlen(text), &err) < 0)
		is_str(err.text, "", what);
	else
		is_str(r.past ? r.past : "none", past, what);
	record_fini(&r);
	free(text);
}

static void hostile(void)
{
	struct buf b = { 0 };

	hears("null", "none", "null is no past term");
	hears("[]", "none", "nor is an empty list");
	hears("\"x\"", "none", "nor a text");
	hears("{\"identity\":\"a\"}", "none", "nor an object");
	hears("[1,null,[],{},{\"identity\":\"\"},{\"identity\":7},{\"identity\":\"a\",\"token\":\"5\"},{\"identity\":\"a\","
	      "\"token\":-5}]",
	      "none", "what is no term is left out");
	hears("[{\"identity\":\"a\",\"token\":31},{\"identity\":\"b\",\"token\":9223372036854775807}]", "none",
	      "so is a term with a larger token than the record's");
	hears("[{\"identity\":\"a\",\"token\":9},{\"identity\":\"b\",\"token\":7},{\"identity\":\"c\",\"token\":8}]",
	      "[{\"identity\":\"b\",\"token\":7,\"reason\":\"unknown\"},{\"identity\":\"c\",\"token\":8,\"reason\":"
	      "\"unknown\"}]",
	      "and one whose token is larger than that of a newer one");
	hears("[{\"identity\":\"a\",\"from\":\"1903-01-01T00:00:00Z\",\"to\":[],\"reason\":{},\"more\":1}]",
	      "[{\"identity\":\"a\",\"reason\":\"unknown\"}]", "of a term, what is malformed is unknown");
	buf_adds(&b, "[{\"identity\":\"a\",\"token\":1}");
	for (int i = 0; i < 5000; i++)
		buf_printf(&b, ",{\"identity\":\"b\",\"token\":%d}", i < 4999 ? 3 : 4);
	buf_adds(&b, "]");
	hears(b.data,
	      "[{\"identity\":\"b\",\"token\":3,\"reason\":\"unknown\"},{\"identity\":\"b\",\"token\":4,\"reason\":"
	      "\"unknown\"}]",
	      "of five thousand the last are looked at");
	buf_fini(&b);
}

/* What the field must not do to a record: grow it beyond what an older version takes. */
static void room(void)
{
	struct buf b = { 0 };
	struct record r;
	struct err err;

	buf_adds(&b, "{\"holderIdentity\":\"x\",\"leaseDurationSeconds\":15,\"more\":\"");
	for (int i = 0; i < RECORD_KEPT_MAX - 3000; i++)
		buf_adds(&b, "x");
	buf_adds(&b, "\"}");
	record_init(&r);
	ok(record_parse(&r, b.data, b.len, &err) == 0, "a record with many bytes of others is read");
	record_note_past(&r, "x", 3, "done");
	ok(!r.past, "and has no past terms, which an older version would count to them");
	record_clear(&r);
	record_note_past(&r, "x", 3, "done");
	is_str(r.past, "[{\"identity\":\"x\",\"token\":3,\"reason\":\"done\"}]", "one without has them");
	record_fini(&r);
	buf_fini(&b);
}

int main(void)
{
	adds();
	bounds();
	hostile();
	room();
	return tap_done();
}
