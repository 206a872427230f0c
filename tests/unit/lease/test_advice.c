/* What records say of who comes next: it is read back as it was written, and whatever else stands there is no advice,
 * and no error of the record. */
#include "lease/advice.h"

#include "base/mem.h"
#include "lease/next_record.h"
#include "tap.h"

#include <malloc.h>
#include <stdlib.h>

#define UUID "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
#define HEX "00112233445566778899aabbccddeeff"
#define NEXT "\"next\": {\"term\": 9, \"identity\": \"b\", \"incarnation\": \"" UUID "\""
#define POKE "\"poke\": \"192.0.2.1:4000\", \"pokeKey\": \"" HEX "\""
#define FOR "\"for\": {\"term\": 9, \"identity\": \"b\", \"incarnation\": \"" UUID "\"}"
#define WANTED "\"wanted\": {\"term\": 9, \"name\": \"" HEX "\", \"identity\": \"c\"}"

static int parse(struct record *r, const char *text)
{
	return record_parse(r, text, strlen(text), NULL);
}

/* Reads a record of term 9 that has these fields besides. */
static int parse_with(struct record *r, const char *fields)
{
	char *text = mem_printf("{\"holderIdentity\":\"a\",\"leaseDurationSeconds\":15,\"term\":9,%s}", fields);
	int done = parse(r, text);

	free(text);
	return done;
}

static bool same_who(const struct advice_candidate *a, const struct advice_candidate *b)
{
	return strcmp(a->identity, b->identity) == 0 && strcmp(a->incarnation, b->incarnation) == 0 &&
	       strcmp(a->address, b->address) == 0 && a->priority == b->priority && strcmp(a->poke, b->poke) == 0 &&
	       strcmp(a->poke_key, b->poke_key) == 0;
}

static bool same(const struct advice *a, const struct advice *b)
{
	if (!a || !b)
		return a == b;
	return same_who(&a->next, &b->next) && same_who(&a->given, &b->given) &&
	       strcmp(a->wanted.name, b->wanted.name) == 0 && strcmp(a->wanted.identity, b->wanted.identity) == 0 &&
	       a->nomination.is == b->nomination.is && a->nomination.priority == b->nomination.priority &&
	       strcmp(a->nomination.answers, b->nomination.answers) == 0;
}

static void round_trip(void)
{
	struct record r, copy;

	record_init(&r), record_init(&copy);
	is_int(parse_with(&r, NEXT ", \"address\": \"b:1\", \"priority\": -7, " POKE "}, " FOR ", " WANTED), 0,
	       "a record with advice is read");
	ok(strcmp(r.advice->next.poke, "192.0.2.1:4000") == 0 && strcmp(r.advice->next.poke_key, HEX) == 0,
	   "where the next hears a poke");
	ok(strcmp(r.advice->next.identity, "b") == 0 && strcmp(r.advice->next.incarnation, UUID) == 0 &&
	           strcmp(r.advice->next.address, "b:1") == 0 && r.advice->next.priority == -7,
	   "who comes next: identity, incarnation, address, priority");
	ok(strcmp(r.advice->given.identity, "b") == 0 && strcmp(r.advice->given.incarnation, UUID) == 0,
	   "for whom it was released");
	ok(strcmp(r.advice->wanted.name, HEX) == 0 && strcmp(r.advice->wanted.identity, "c") == 0,
	   "who is wanted, by which request");
	ok(!r.extra, "none of it is an unknown field");
	char *text = record_print(&r);
	ok(strstr(text, "\n  " NEXT ", \"address\": \"b:1\", \"priority\": -7, " POKE "},\n  " FOR ",\n  " WANTED
	                "\n}\n") != NULL,
	   "it is printed as it was");
	is_int(parse(&copy, text), 0, "and read again");
	free(text);
	record_copy(&copy, &r);
	ok(copy.advice != r.advice && same(copy.advice, r.advice), "a copy has its own, which says the same");
	ok(record_sight_id(&copy) == record_sight_id(&r), "a copy shows the same write");
	ok(malloc_usable_size(copy.advice) < 512, "it takes the room of its texts: %zu bytes",
	   malloc_usable_size(copy.advice));
	struct advice more = *copy.advice; /* borrows its texts */
	more.next.address = "elsewhere:1";
	more.next.poke = NULL;
	advice_replace(&copy.advice, &more);
	ok(strcmp(copy.advice->next.identity, "b") == 0 && strcmp(copy.advice->next.address, "elsewhere:1") == 0 &&
	           !*copy.advice->next.poke && strcmp(copy.advice->wanted.identity, "c") == 0,
	   "it may be replaced by what borrows from it, and a text that is not there is empty");
	record_clear(&copy);
	ok(!copy.advice, "a cleared record has none");
	record_fini(&r), record_fini(&copy);
}

/* Whatever stands there is no advice, and the record is read. */
static void malformed(void)
{
	static const char *const cases[] = {
		"\"next\": null",
		"\"next\": 7",
		"\"next\": \"b\"",
		"\"next\": [{\"term\": 9}]",
		"\"next\": {}",
		"\"next\": {\"term\": 9}",
		NEXT ", \"priority\": 1.5}",
		NEXT ", \"priority\": \"1\"}",
		NEXT ", \"priority\": null}",
		NEXT ", \"priority\": 1000000001}",
		NEXT ", \"priority\": -1000000001}",
		NEXT ", \"address\": 1}",
		NEXT ", \"address\": {\"a\": [1, 2, {\"b\": null}]}}",
		"\"next\": {\"identity\": \"b\", \"incarnation\": \"" UUID "\"}",
		"\"next\": {\"term\": 8, \"identity\": \"b\", \"incarnation\": \"" UUID "\"}",
		"\"next\": {\"term\": 10, \"identity\": \"b\", \"incarnation\": \"" UUID "\"}",
		"\"next\": {\"term\": -9, \"identity\": \"b\", \"incarnation\": \"" UUID "\"}",
		"\"next\": {\"term\": \"9\", \"identity\": \"b\", \"incarnation\": \"" UUID "\"}",
		"\"next\": {\"term\": 9, \"identity\": \"\", \"incarnation\": \"" UUID "\"}",
		"\"next\": {\"term\": 9, \"identity\": \"b\"}",
		"\"next\": {\"term\": 9, \"identity\": \"b\", \"incarnation\": \"\"}",
		"\"next\": {\"term\": 9, \"identity\": \"b\", \"incarnation\": \"no uuid\"}",
		"\"next\": {\"term\": 9, \"identity\": \"b\", \"incarnation\": \"" UUID "0\"}",
		"\"for\": true",
		"\"for\": {\"term\": 9, \"identity\": \"b\"}",
		"\"for\": {\"term\": 8, \"identity\": \"b\", \"incarnation\": \"" UUID "\"}",
		"\"wanted\": false",
		"\"wanted\": {\"term\": 9, \"name\": \"" HEX "0\", \"identity\": \"c\"}",
		"\"wanted\": {\"term\": 9, \"name\": \"\", \"identity\": \"c\"}",
		"\"wanted\": {\"term\": 9, \"name\": \"x\", \"identity\": \"c\"}",
		"\"wanted\": {\"term\": 9, \"name\": \"" HEX "\"}",
		"\"wanted\": {\"term\": 8, \"name\": \"" HEX "\", \"identity\": \"c\"}",
		"\"nomination\": 1",
		"\"nomination\": {\"priority\": \"high\"}",
		"\"nomination\": {\"answers\": \"who knows\"}",
		"\"nomination\": {\"answers\": \"" HEX HEX "\"}",
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct record r;
		record_init(&r);
		ok(parse_with(&r, cases[i]) == 0 && !r.advice && !r.extra, "%s is no advice, and no error", cases[i]);
		record_fini(&r);
	}
}

/* Each text with every one of its bytes changed or left out, and cut at every byte: if it still is JSON, the record is
 * read, and what was read is written and read again. */
static void damaged(void)
{
	static const char whole[] = "{\"holderIdentity\":\"a\",\"leaseDurationSeconds\":15,\"term\":9," NEXT
				    ", \"address\": \"b:1\", \"priority\": 7, " POKE "}, " FOR ", " WANTED
				    ",\"nomination\":{\"priority\":3,\"answers\":\"" HEX "\"}}";
	static const char changes[] = "\"\\{}[],:09-.eaxn \x01\x7f\xff";
	size_t begin = strstr(whole, "\"next\"") - whole, not_again = 0, read = 0, advised = 0;

	for (size_t at = begin; at < sizeof whole - 1; at++)
		for (size_t c = 0; c <= sizeof changes - 1; c++) {
			char text[sizeof whole];
			struct record r, back;
			memcpy(text, whole, sizeof whole);
			if (c < sizeof changes - 1)
				text[at] = changes[c];
			else
				memmove(text + at, text + at + 1, sizeof whole - at - 1);
			record_init(&r), record_init(&back);
			if (parse(&r, text) == 0) {
				char *again = record_print(&r);
				read++;
				advised += r.advice != NULL;
				not_again += parse(&back, again) < 0 || !same(r.advice, back.advice);
				free(again);
			}
			record_fini(&r), record_fini(&back);
		}
	ok(read > 1000 && advised > 1000 && not_again == 0,
	   "of %zu damaged records %zu have advice, and each is read again as it is written", read, advised);
}

static void sizes(void)
{
	char text[ADVICE_TEXT_MAX + 2], poke[POKE_ADDRESS + 1];
	struct record r, back;

	memset(text, '\x01', sizeof text);
	text[sizeof text - 1] = '\0';
	ok(!advice_fits(text), "an identity of 256 bytes is none");
	text[sizeof text - 2] = '\0';
	ok(advice_fits(text), "one of 255 is");
	ok(!advice_fits("\xff"), "one that is not UTF-8 is none, since it would not come back as it went");
	record_init(&r), record_init(&back);
	r.term = UINT64_C(9223372036854775807);
	memset(poke, '\x01', sizeof poke - 1);
	poke[sizeof poke - 1] = '\0';
	struct advice a = { .next = { text, UUID, text, -ADVICE_PRIORITY_MAX, poke, HEX },
		            .given = { .identity = text, .incarnation = UUID },
		            .handed_over = true,
		            .wanted = { HEX, text },
		            .nomination = { true, -ADVICE_PRIORITY_MAX, poke, HEX, HEX, HEX, text } };
	advice_replace(&r.advice, &a);
	char *printed = record_print(&r);
	struct advice *with = r.advice;
	r.advice = NULL;
	char *without = record_print(&r);
	r.advice = with;
	ok(strlen(printed) - strlen(without) < ADVICE_MAX_BYTES, "the longest advice takes less than %d bytes",
	   ADVICE_MAX_BYTES);
	ok(parse(&back, printed) == 0 && same(back.advice, with), "and comes back as it went");
	free(printed), free(without);
	record_fini(&r), record_fini(&back);
}

static void nominations(void)
{
	struct next_record n = { .who = { "b", UUID, "b:1", 5, "[::1]:4000", HEX },
		                 .since_us = 1714564800000000,
		                 .wall_us = 1714564802000000,
		                 .lease_ms = 15000,
		                 .retry_ms = 2000,
		                 .answers = HEX },
			   found;
	struct record r, back;

	record_init(&r), record_init(&back);
	parse(&r, "{\"holderIdentity\":\"\",\"leaseDurationSeconds\":1,\"zebra\":1}");
	next_record_fill(&r, &n);
	char *text = record_print(&r);
	ok(parse(&back, text) == 0 && next_record_read(&back, &found) && same_who(&found.who, &n.who) &&
	           strcmp(found.answers, HEX) == 0 && found.since_us == n.since_us && found.wall_us == n.wall_us &&
	           found.lease_ms == 15000 && found.retry_ms == 2000,
	   "a nomination is read as it was written");
	ok(strstr(text, "\"zebra\": 1") && back.term == 0 && back.token == 0 && !strstr(text, "state"),
	   "it keeps unknown fields, and has no term, token or state");
	free(text);
	back.term = 1;
	ok(!next_record_read(&back, &found), "an election that an older version led on it makes it foreign");
	n.who = (struct advice_candidate)ADVICE_NOBODY;
	next_record_fill(&r, &n);
	ok(next_record_read(&r, &found) && !*found.who.identity, "an empty one names nobody");
	ok(parse_with(&back, "\"address\":\"x\"") == 0 && !next_record_read(&back, &found),
	   "the record of an election is none");
	ok(parse(&back, "{\"holderIdentity\":\"b\",\"leaseDurationSeconds\":1,\"nomination\":{}}") == 0 &&
	           next_record_read(&back, &found) && !*found.who.identity,
	   "one whose holder has no incarnation names nobody");
	record_fini(&r), record_fini(&back);
}

int main(void)
{
	round_trip();
	malformed();
	damaged();
	sizes();
	nominations();
	return tap_done();
}
