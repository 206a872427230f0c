/* Readings: what is understood from the last one is what parsing says, for every change of one byte. */
#include "base/mem.h"
#include "lease/advice.h"
#include "lease/reading.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

static void fill(struct record *r)
{
	record_init(r);
	mem_replace(&r->holder, "a \"quoted\"\n  \"write\": \"name\"");
	mem_replace(&r->address, "h:1");
	mem_replace(&r->tree, "/x/.tree");
	mem_replace(&r->checkpoint, "{\"write\":\"00000000000000000000000000000000\"}");
	r->lease_ms = 15000;
	r->renew_ms = 10000;
	r->retry_ms = 2000;
	r->acquired_us = 1700000000000000;
	r->renewed_us = 1700000000123456;
	r->term = 3;
	r->token = 99;
	r->state = RECORD_LEADING;
	strcpy(r->write, "0123456789abcdef0123456789abcdef");
	r->writes = 7;
	r->pid = 1234;
	advice_replace(&r->advice, &(struct advice){ .next = { .identity = "next \"one\"", .incarnation = "0-2" } });
}

static bool same(const struct record *a, const struct record *b)
{
	char *x = record_print(a), *y = record_print(b);
	bool equal = strcmp(x, y) == 0 && a->renewed_us == b->renewed_us;

	free(x);
	free(y);
	return equal;
}

/* Both ways, from the same last reading. true: they agree. */
static bool agree(const char *first, const char *text, size_t len)
{
	struct reading *last = NULL;
	struct record a, b;
	struct err err;

	record_init(&a);
	record_init(&b);
	reading_parse(&last, &a, first, strlen(first), &err);
	int quick = reading_parse(&last, &a, text, len, &err), slow = record_parse(&b, text, len, &err);
	bool good = quick == slow && (quick < 0 || same(&a, &b));
	if (!good)
		printf("# %d %d\n%.*s\n", quick, slow, (int)len, text);
	/* What was kept must do for the one after it. */
	good = good && reading_parse(&last, &a, first, strlen(first), &err) == 0;
	record_clear(&b);
	good = good && record_parse(&b, first, strlen(first), &err) == 0 && same(&a, &b);
	record_fini(&a);
	record_fini(&b);
	reading_free(last);
	return good;
}

static void test_renewals(void)
{
	struct record r;
	bool good = true;

	fill(&r);
	char *first = record_print(&r);
	for (int i = 0; i < 100; i++) {
		r.renewed_us += 1999999 + i;
		r.writes += (uint64_t)i;
		r.write[i % 32] = "0123456789abcdef"[i % 16];
		char *next = record_print(&r);
		good = good && agree(first, next, strlen(next));
		free(next);
	}
	ok(good, "a renewal is understood as parsing understands it");
	r.term++;
	r.token = 1000;
	mem_replace(&r.holder, "b");
	char *other = record_print(&r);
	ok(agree(first, other, strlen(other)), "so is another holder's record");
	free(other);
	free(first);
	record_fini(&r);
}

/* Each renewal by the one before it. The count gets another digit at some. */
static void test_quick(void)
{
	struct reading *last = NULL;
	struct record r, read;
	bool good = true, same_read = true;
	struct err err;

	fill(&r);
	record_init(&read);
	for (int i = 0; i < 1000; i++) {
		char *text = record_print(&r);
		if (i > 0) {
			good = good && reading_renewed(last, &read, text, strlen(text));
			same_read = same_read && same(&read, &r) && read.writes == r.writes;
		}
		good = good && reading_parse(&last, &read, text, strlen(text), &err) == 0;
		free(text);
		r.renewed_us += 2000000;
		r.write[i % 32] = "0123456789abcdef"[i % 16];
		r.writes++;
	}
	ok(good, "of a renewal only the time, the write's name and the count of writes are read, not the JSON");
	ok(same_read, "and each of them is what the text says");
	record_fini(&read);
	record_fini(&r);
	reading_free(last);
}

/* Each of the fields that a renewal leaves alone, changed together with those that it does not. */
static void test_other_fields(void)
{
	bool good = true;

	for (int field = 0; field < 16; field++) {
		struct reading *last = NULL;
		struct record r, read;
		struct err err;
		fill(&r);
		record_init(&read);
		char *text = record_print(&r);
		reading_parse(&last, &read, text, strlen(text), &err);
		free(text);
		r.renewed_us += 2000000;
		r.writes++;
		r.write[3] = 'f';
		if (field < 5) /* 5 strings: the last one gets another byte, no more */
			mem_replace(
				(char **[]){ &r.holder, &r.address, &r.previous_holder, &r.tree, &r.checkpoint }[field],
				(const char *[]){ "a \"quoted\"\n  \"write\": \"nama\"", "h:2", "x", "/x/.tref",
			                          "{\"write\":\"00000000000000000000000000000001\"}" }[field]);
		else if (field < 9)
			++*(int64_t *[]){ &r.lease_ms, &r.renew_ms, &r.retry_ms, &r.acquired_us }[field - 5];
		else if (field < 11)
			++*(int64_t *[]){ &r.transitions, &r.token }[field - 9];
		else if (field < 13)
			++*(uint64_t *[]){ &r.term, &r.pid }[field - 11];
		else if (field == 13)
			r.state = RECORD_RELEASED;
		else
			strcpy(field == 14 ? r.incarnation : r.boot_id, "0-1");
		text = record_print(&r);
		bool quick = reading_renewed(last, &read, text, strlen(text));
		if (quick)
			printf("# field %d\n%s", field, text);
		good = good && !quick && reading_parse(&last, &read, text, strlen(text), &err) == 0 && same(&read, &r);
		free(text);
		record_fini(&read);
		record_fini(&r);
		reading_free(last);
	}
	ok(good, "a record in which anything else changed is parsed");
}

/* Counts that JSON, or the record, does not allow; and some that are allowed. */
static void test_counts(void)
{
	static const char *const counts[] = { "",
		                              "0",
		                              "00",
		                              "07",
		                              "-7",
		                              "+7",
		                              "7.0",
		                              "7e0",
		                              "1 ",
		                              " 1",
		                              "1,2",
		                              "7\"",
		                              "x",
		                              "null",
		                              "999999999999999999",
		                              "9223372036854775807",
		                              "9223372036854775808",
		                              "99999999999999999999999" };
	const char *key = "\"writes\": ";
	struct record r;
	bool good = true;

	fill(&r);
	char *first = record_print(&r);
	size_t head = (size_t)(strstr(first, key) - first) + strlen(key);
	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
		char *text = mem_printf("%.*s%s%s", (int)head, first, counts[i], first + head + 1);
		good = good && agree(first, text, strlen(text));
		free(text);
	}
	ok(good, "whatever is in the place of the count: as parsing understands it, or refuses it");
	r.writes = 0;
	char *without = record_print(&r), *more = mem_printf("%s5", without);
	ok(agree(first, without, strlen(without)) && agree(without, first, strlen(first)) &&
	           agree(without, more, strlen(more)),
	   "a record without a count, too");
	free(more);
	free(without);
	free(first);
	record_fini(&r);
}

/* Each byte replaced by some that matter in JSON, in times and in names. */
static void test_changes(void)
{
	struct record r;
	bool good = true;

	fill(&r);
	char *first = record_print(&r), *text = record_print(&r);
	size_t len = strlen(text);
	for (size_t i = 0; i < len; i++)
		for (const char *c = "\"\\ 0f9gZ-.,eT:}\n\x01\xff"; *c; c++) {
			char was = text[i];
			text[i] = *c;
			good = good && agree(first, text, len);
			text[i] = was;
		}
	ok(good, "any byte of it changed: as parsing understands it, or refuses it");
	for (size_t i = 0; i < len; i++)
		good = good && agree(first, text, i);
	ok(good, "cut anywhere, too");
	for (size_t i = 0; i <= len; i++)
		for (const char *c = "0f9\" -.,e}\n"; *c; c++) {
			char *longer = mem_printf("%.*s%c%s", (int)i, first, *c, first + i);
			good = good && agree(first, longer, len + 1);
			free(longer);
		}
	ok(good, "and with a byte more anywhere");
	free(first);
	free(text);
	record_fini(&r);
}

static void test_strangers(void)
{
	const char *client_go =
		"{\"holderIdentity\":\"x\",\"leaseDurationSeconds\":15,\"renewTime\":\"2024-05-01T12:00:00Z\"}";
	const char *twice =
		"{\n  \"holderIdentity\": \"x\",\n  \"leaseDurationSeconds\": 15,\n  \"renewTime\": \"2024-05-01T12:00:00.000000Z\","
		"\n  \"write\": \"0123456789abcdef0123456789abcdef\",\n  \"x\": {\n  \"write\": \"0123456789abcdef0123456789abcdef\"}}";
	/* What a renewal would change is inside another field here, and the record's own values are spelt otherwise. */
	const char *nested =
		"{\"holderIdentity\":\"x\",\"leaseDurationSeconds\":15,\"renewTime\":\"2024-05-01T12:00:00.000000Z\","
		"\"write\":\"0123456789abcdef0123456789abcdef\",\"writes\":5,\"x\":{"
		"\n  \"renewTime\": \"2024-05-01T12:00:00.000000Z\",\n  \"write\": \"0123456789abcdef0123456789abcdef\","
		"\n  \"writes\": 5\n}\n}\n";

	ok(agree(client_go, client_go, strlen(client_go)), "records of other clients are parsed each time");
	ok(agree(twice, twice, strlen(twice)), "and those in which it is not clear which write is meant");
	char *other = mem_dup(nested);
	strstr(strstr(other, "\n  \"writes\""), "5")[0] = '6';
	ok(agree(nested, other, strlen(other)), "or which count");
	free(other);
}

int main(void)
{
	test_renewals();
	test_quick();
	test_other_fields();
	test_counts();
	test_changes();
	test_strangers();
	return tap_done();
}
