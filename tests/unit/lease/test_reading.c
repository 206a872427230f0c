/* Readings: what is understood from the last one is what parsing says, for every change of one byte. */
#include "base/mem.h"
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

/* Each byte replaced by some that matter in JSON, in times and in names. */
static void test_changes(void)
{
	struct record r;
	bool good = true;

	fill(&r);
	char *first = record_print(&r), *text = record_print(&r);
	size_t len = strlen(text);
	for (size_t i = 0; i < len; i++)
		for (const char *c = "\"\\ 0f9gZ-T:}\n\x01\xff"; *c; c++) {
			char was = text[i];
			text[i] = *c;
			good = good && agree(first, text, len);
			text[i] = was;
		}
	ok(good, "any byte of it changed: as parsing understands it, or refuses it");
	for (size_t i = 0; i < len; i++)
		good = good && agree(first, text, i);
	ok(good, "cut anywhere, too");
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

	ok(agree(client_go, client_go, strlen(client_go)), "records of other clients are parsed each time");
	ok(agree(twice, twice, strlen(twice)), "and those in which it is not clear which write is meant");
}

int main(void)
{
	test_renewals();
	test_changes();
	test_strangers();
	return tap_done();
}
