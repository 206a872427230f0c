/* Records: what client-go writes is read, what we write is read back exactly, what is wrong is named.
 * The numbers T.. are those of the cases in tests/cluster/kubernetes/README.md. */
#include "base/buf.h"
#include "lease/record.h"
#include "tap.h"

#include <jansson.h>
#include <stdlib.h>

static const char *const FULL = "{\n"
				"  \"holderIdentity\": \"web-1\",\n"
				"  \"leaseDurationSeconds\": 15,\n"
				"  \"acquireTime\": \"2024-05-01T12:00:00.000000Z\",\n"
				"  \"renewTime\": \"2024-05-01T12:00:02.123456Z\",\n"
				"  \"leaderTransitions\": 7,\n"
				"  \"leaseDurationMs\": 15000,\n"
				"  \"renewDeadlineMs\": 10000,\n"
				"  \"retryPeriodMs\": 2000,\n"
				"  \"term\": 9,\n"
				"  \"token\": 4611686018427387903,\n"
				"  \"state\": \"leading\",\n"
				"  \"write\": \"00112233445566778899aabbccddeeff\",\n"
				"  \"address\": \"10.0.0.1:80\",\n"
				"  \"previousHolder\": \"web-0\",\n"
				"  \"incarnation\": \"6ba7b810-9dad-11d1-80b4-00c04fd430c8\",\n"
				"  \"pid\": 4711,\n"
				"  \"pidStart\": 123456,\n"
				"  \"bootId\": \"7d444840-9dc0-11d1-b245-5ffdce74fad2\",\n"
				"  \"pidNamespace\": 4026531836,\n"
				"  \"netNamespace\": 4026531840,\n"
				"  \"tree\": \"/var/lib/lunarch/.6ba7b810-9dad-11d1-80b4-00c04fd430c8.tree\",\n"
				"  \"checkpoint\": {\"n\":9007199254740993},\n"
				"  \"zebra\": [1, 2.5, null],\n"
				"  \"ant\": true\n"
				"}\n";

static int parse(struct record *r, const char *text, struct err *err)
{
	return record_parse(r, text, strlen(text), err);
}

static void test_round_trip(void)
{
	struct record r, copy;
	struct err err;

	record_init(&r);
	record_init(&copy);
	is_int(parse(&r, FULL, &err), 0, "a record with every field is read");
	char *text = record_print(&r);
	is_str(text, FULL, "and printed byte for byte as it was, unknown fields in their order");
	free(text);
	record_copy(&copy, &r);
	ok(record_sight_id(&copy) == record_sight_id(&r), "a copy shows the same write");
	record_fini(&r);
	text = record_print(&copy);
	is_str(text, FULL, "a copy does not share memory with its original");
	free(text);
	is_int(copy.token, INT64_MAX / 2, "integers are exact to 62 bits");
	is_int(copy.renewed_us, 1714564802123456, "times are exact to the microsecond");
	ok(record_write_id(&copy) == UINT64_C(0x0011223344556677), "the write's name is a number");
	record_clear(&copy);
	ok(copy.holder && !*copy.holder && !copy.extra && record_write_id(&copy) == 0,
	   "a cleared record is an initialised one");
	record_fini(&copy);
}

static void test_client_go(void)
{
	static const char text[] = "{\"holderIdentity\":\"n_1\",\"leaseDurationSeconds\":15,\"acquireTime\":null,"
				   "\"renewTime\":\"2024-05-01T12:00:02Z\",\"leaderTransitions\":3}";
	struct record r;
	struct err err;

	record_init(&r);
	is_int(parse(&r, text, &err), 0, "client-go's record is read");
	is_int(r.lease_ms, 15000, "its seconds are the duration");
	ok(r.state == RECORD_UNSAID && r.term == 0 && r.acquired_us == RECORD_TIME_UNKNOWN,
	   "what it does not say is unsaid");
	is_int(r.transitions, 3, "its transitions count");
	is_int(parse(&r, "{\"holderIdentity\":\"\",\"leaseDurationSeconds\":1,\"leaseDurationMs\":900}", &err), 0,
	       "a released record without times is read");
	is_int(r.lease_ms, 900, "milliseconds override seconds");
	record_fini(&r);
}

static void test_published_seconds(void)
{
	static const struct {
		int64_t lease, retry;
		const char *want;
	} cases[] = {
		{ 15000, 2000, "\"leaseDurationSeconds\": 15," }, { 15001, 2000, "\"leaseDurationSeconds\": 16," },
		{ 3000, 999, "\"leaseDurationSeconds\": 4," },    { 2500, 300, "\"leaseDurationSeconds\": 4," },
		{ 1, 0, "\"leaseDurationSeconds\": 1," },
	};
	struct record r;

	record_init(&r);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		r.lease_ms = cases[i].lease;
		r.retry_ms = cases[i].retry;
		char *text = record_print(&r);
		ok(strstr(text, cases[i].want) != NULL, "%lld ms renewed every %lld ms is published as %s",
		   (long long)cases[i].lease, (long long)cases[i].retry, cases[i].want);
		free(text);
	}
	record_fini(&r);
}

static void test_identities(void)
{
	char big[4097];
	const char *const names[] = { "a \"quoted\" name", "line\nbreak\ttab\x01",
		                      "Gr\xc3\xbc\xc3\x9f"
		                      "e \xf0\x9f\x8c\x99 \xe2\x80\xa8",
		                      "\\\\", big };

	for (size_t i = 0; i < sizeof big - 1; i++)
		big[i] = "ab\n\"\\"[i % 5];
	big[sizeof big - 1] = '\0';
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		struct record r, back;
		struct err err;

		record_init(&r);
		record_init(&back);
		free(r.holder);
		r.holder = strdup(names[i]);
		char *text = record_print(&r);
		ok(parse(&back, text, &err) == 0 && strcmp(back.holder, names[i]) == 0,
		   "identity %zu comes back as it went", i);
		free(text);
		record_fini(&r), record_fini(&back);
	}
}

static void test_errors(void)
{
#define OK_PART "{\"holderIdentity\":\"a\",\"leaseDurationSeconds\":15"
	static const struct {
		const char *text;
		enum err_code code;
		const char *says;
	} cases[] = {
		{ "", ERR_INVALID, "no JSON" },
		{ "{\"holderIdentity\":\"a", ERR_INVALID, "no JSON: line 1" },
		{ "\x1f\x8b\x08 whatever", ERR_INVALID, "gzip" },
		{ "\x7f"
		  "ELF\x02\x01",
		  ERR_INVALID, "no JSON" },
		{ OK_PART ",\"holderIdentity\":\"b\"}", ERR_INVALID, "holderIdentity" },
		{ OK_PART "} trailing", ERR_INVALID, "no JSON" },
		{ "{\"holderIdentity\":\"a\\u0000b\",\"leaseDurationSeconds\":15}", ERR_INVALID, "no JSON" },
		{ "{\"holderIdentity\":\"\xff\",\"leaseDurationSeconds\":15}", ERR_INVALID, "no JSON" },
		{ "[]", ERR_FOREIGN, "no election record" },
		{ "{\"name\":\"package.json\"}", ERR_FOREIGN, "no election record" },
		{ "{\"holderIdentity\":\"a\"}", ERR_INVALID, "\"leaseDurationSeconds\" is missing" },
		{ "{\"leaseDurationSeconds\":15}", ERR_INVALID, "\"holderIdentity\" is missing" },
		{ "{\"holderIdentity\":7,\"leaseDurationSeconds\":15}", ERR_INVALID,
		  "\"holderIdentity\" is 7, expected a string" },
		{ "{\"holderIdentity\":\"a\",\"leaseDurationSeconds\":\"15\"}", ERR_INVALID,
		  "\"leaseDurationSeconds\" is \"15\", expected a whole number from 0" },
		{ "{\"holderIdentity\":\"a\",\"leaseDurationSeconds\":15.0}", ERR_INVALID,
		  "is 15.0, expected a whole number" },
		{ "{\"holderIdentity\":\"a\",\"leaseDurationSeconds\":-1}", ERR_INVALID,
		  "is -1, expected a whole number" },
		{ OK_PART ",\"leaseDurationMs\":9223372036855}", ERR_INVALID,
		  "\"leaseDurationMs\" is 9223372036855, expected" },
		{ OK_PART ",\"token\":9223372036854775808}", ERR_INVALID, "no JSON" },
		{ OK_PART ",\"state\":\"dancing\"}", ERR_INVALID,
		  "\"state\" is \"dancing\", expected \"leading\" or \"released\"" },
		{ OK_PART ",\"renewTime\":\"yesterday\"}", ERR_INVALID,
		  "\"renewTime\" is \"yesterday\", expected a time" },
		{ OK_PART ",\"renewTime\":12}", ERR_INVALID, "\"renewTime\" is 12" },
		{ OK_PART ",\"write\":\"xyz\"}", ERR_INVALID, "\"write\" is \"xyz\"" },
		{ OK_PART ",\"bootId\":\"00000000-0000-0000-0000-0000000000000\"}", ERR_INVALID, "\"bootId\"" },
		{ OK_PART ",\"address\":[\"x\"]}", ERR_INVALID, "\"address\" is [\"x\"], expected a string" },
	};
	struct record r;

	record_init(&r);
	parse(&r, FULL, NULL);
	uint64_t before = record_sight_id(&r);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct err err = { 0 };
		int rc = parse(&r, cases[i].text, &err);
		if (!ok(rc == -1 && err.code == cases[i].code && strstr(err.text, cases[i].says),
		        "%s is refused with \"%s\"",
		        i == 2           ? "a binary"
		        : *cases[i].text ? cases[i].text
		                         : "an empty text",
		        cases[i].says))
			printf("# code %d, text: %s\n", err.code, err.text);
	}
	ok(record_sight_id(&r) == before && r.extra, "a text that is refused leaves the record as it was");
	record_fini(&r);
}

static void test_checkpoint(void)
{
	static const struct {
		const char *text;
		int good;
		const char *what;
	} cases[] = {
		{ "{\"a\":[1,2.5,null,\"\\u00e9\"]}", 1, "a table" },
		{ "\"x\"", 1, "any value" },
		{ "", 0, "nothing" },
		{ "{\"a\":1", 0, "half a value" },
		{ "1,2", 0, "two values" },
		{ "1],[2", 0, "what would break out of its place" },
		{ "1,\"holderIdentity\":\"me\"", 0, "what would add a field to the record" },
		{ "{\"a\":1,\"a\":2}", 0, "a key twice" },
		{ "\"a\\u0000b\"", 0, "a zero byte, which readers of the record refuse" },
		{ "\"\xff\"", 0, "what is not UTF-8" },
	};
	struct err err;
	struct record r;
	char big[RECORD_CHECKPOINT_MAX + 2], deep[8192] = "";

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		ok((record_checkpoint_check(cases[i].text, &err) == 0) == cases[i].good, "a checkpoint: %s is %s",
		   cases[i].what, cases[i].good ? "taken" : "refused");
	memset(big, '1', sizeof big);
	big[0] = big[RECORD_CHECKPOINT_MAX - 1] = '"';
	big[RECORD_CHECKPOINT_MAX] = '\0';
	ok(record_checkpoint_check(big, &err) == 0, "a checkpoint: 16 KB are taken");
	memcpy(big + RECORD_CHECKPOINT_MAX - 1, "1\"", 3);
	ok(record_checkpoint_check(big, &err) < 0 && err.code == ERR_FULL && strstr(err.text, "16385"),
	   "a checkpoint: a byte more is not, with the numbers");
	for (int depth = 2000; depth < 2100;
	     depth++) { /* whatever the parser's limit is: taken here means read back there */
		memset(deep, '[', (size_t)depth);
		memset(deep + depth, ']', (size_t)depth);
		deep[2 * depth] = '\0';
		bool taken = record_checkpoint_check(deep, NULL) == 0;
		record_init(&r);
		r.checkpoint = strdup(deep);
		char *text = record_print(&r);
		if (taken && record_parse(&r, text, strlen(text), &err) < 0)
			ok(0, "a checkpoint %d deep was taken, and cannot be read back: %s", depth, err.text);
		free(text);
		record_fini(&r);
	}
	record_init(&r);
	parse(&r, FULL, NULL);
	is_str(r.checkpoint, "{\"n\":9007199254740993}", "a checkpoint is read, to the digit");
	record_clear(&r);
	ok(!r.checkpoint, "a cleared record has none");
	record_fini(&r);
}

/* A record of `bytes` in which a field has only this number, again and again. malloc'd. */
static char *filled(const char *key, const char *number, size_t bytes)
{
	struct buf b = { 0 };

	buf_printf(&b, "{\"holderIdentity\":\"\",\"leaseDurationSeconds\":1,\"%s\":[%s", key, number);
	while (b.len + strlen(number) + 3 <= bytes)
		buf_printf(&b, ",%s", number);
	buf_adds(&b, "]}");
	return b.data;
}

/* What is read can be written again with everything that an election adds. */
static void test_kept(void)
{
	static const struct {
		const char *key, *number;
		size_t bytes;
		int good;
	} cases[] = {
		{ "zebra", "1e9", RECORD_MAX_BYTES, 0 },
		{ "zebra", "0.1", 20000, 0 },
		{ "zebra", "0.1", 18000, 1 },
		{ "zebra", "1", RECORD_MAX_BYTES, 0 },
		{ "zebra", "1", 60000, 1 },
		{ "checkpoint", "0.1", 20000, 0 },
		{ "checkpoint", "0.1", RECORD_CHECKPOINT_MAX, 1 },
		{ "checkpoint", "1", 90000, 1 },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct record r, back;
		struct err err = { 0 };
		char *text = filled(cases[i].key, cases[i].number, cases[i].bytes), size[40];
		record_init(&r), record_init(&back);
		bool taken = parse(&r, text, &err) == 0;
		ok(taken == cases[i].good, "%s of %zu bytes of %s is %s", cases[i].key, cases[i].bytes, cases[i].number,
		   cases[i].good ? "read" : "refused, since it could not be written again");
		snprintf(size, sizeof size, "at most %d", RECORD_KEPT_MAX);
		if (!taken)
			ok(err.code == ERR_INVALID && strstr(err.text, cases[i].key) && strstr(err.text, size) &&
			           strstr(err.text, ": "),
			   "with the field, its size and what to do");
		char *again = record_print(&r);
		ok(strlen(again) <= 2 * RECORD_KEPT_MAX && (!taken || parse(&back, again, &err) == 0),
		   "and what is written is read");
		free(again), free(text);
		record_fini(&r), record_fini(&back);
	}
}

static void test_sight(void)
{
	struct record a, b;

	record_init(&a);
	record_init(&b);
	parse(&a, FULL, NULL);
	parse(&b, FULL, NULL);
	json_object_clear(b.extra);
	ok(record_sight_id(&a) == record_sight_id(&b), "labels do not make another sight");
	b.write[31] = '0';
	ok(record_sight_id(&a) != record_sight_id(&b), "another write does");
	record_copy(&b, &a);
	b.renewed_us++;
	ok(record_sight_id(&a) != record_sight_id(&b), "so does another time");
	record_copy(&b, &a);
	b.state = RECORD_RELEASED;
	ok(record_sight_id(&a) != record_sight_id(&b), "so does another state");
	record_copy(&b, &a);
	b.token++;
	ok(record_sight_id(&a) != record_sight_id(&b), "so does another token: the same write was applied twice");
	record_fini(&a), record_fini(&b);
}

static void test_times(void)
{
	static const struct {
		const char *text;
		int64_t us;
	} good[] = {
		{ "1970-01-01T00:00:00Z", 0 },
		{ "1969-12-31T23:59:59.999999Z", -1 },
		{ "2024-02-29T23:59:60Z", 1709251200000000 },
		{ "2024-05-01t14:00:02.5+02:00", 1714564802500000 },
		{ "2024-05-01 07:30:02.123456789-04:30", 1714564802123456 },
	};
	static const char *const bad[] = { "",
		                           "2024",
		                           "2024-05-01",
		                           "2024-05-01T12:00:00",
		                           "2024-13-01T12:00:00Z",
		                           "2024-05-01T12:00:00.Z",
		                           "2024-05-01T12:00:00Zjunk",
		                           "2024-05-01T12:00:00+2:00",
		                           " 2024-05-01T12:00:00Z",
		                           "2024-05-01T24:00:00Z",
		                           "2024-05-01T12:00:00+02:00x" };
	int64_t us;
	char text[32];

	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
		ok(record_time_parse(good[i].text, &us) == 0 && us == good[i].us, "%s is %lld us", good[i].text,
		   (long long)good[i].us);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		ok(record_time_parse(bad[i], &us) == -1, "'%s' is no time", bad[i]);
	record_time_print(-1, text, sizeof text);
	is_str(text, "1969-12-31T23:59:59.999999Z", "times before 1970 are printed, six digits and Z");
	static const struct {
		int64_t us;
		const char *text;
	} carried[] = {
		{ 1714564802000000, "2024-05-01T12:00:02.000000Z" },
		{ 1714564802000001, "2024-05-01T12:00:02.000001Z" },
		{ 1714564802999999, "2024-05-01T12:00:02.999999Z" },
		{ 1714564802999999 + 1, "2024-05-01T12:00:03.000000Z" },
	};
	for (size_t i = 0; i < sizeof carried / sizeof *carried; i++) {
		record_time_print(carried[i].us, text, sizeof text);
		is_str(text, carried[i].text, "always six digits and Z (T60)");
	}
	record_time_print(RECORD_TIME_UNKNOWN, text, sizeof text);
	is_str(text, "", "an unknown time is nothing");
}

int main(void)
{
	test_round_trip();
	test_client_go();
	test_published_seconds();
	test_identities();
	test_errors();
	test_checkpoint();
	test_kept();
	test_sight();
	test_times();
	return tap_done();
}
