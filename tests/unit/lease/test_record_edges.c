/* The record at the edges of what it takes: values of another kind than a field has, the largest and the longest, times
 * that no calendar has, and what is too long to be shown whole. test_record.c has what records commonly are. */
#include "base/mem.h"
#include "lease/record.h"
#include "tap.h"

#include <stdlib.h>

#define START "{\"holderIdentity\":\"a\",\"leaseDurationSeconds\":15"

static int parse(struct record *r, const char *text, struct err *err)
{
	return record_parse(r, text, strlen(text), err);
}

/* null is what client-go writes where it has nothing: as if the field were not there. */
static void test_nulls(void)
{
	struct record r;
	struct err err;

	record_init(&r);
	is_int(parse(&r, START ",\"renewTime\":null,\"state\":null,\"token\":null,\"checkpoint\":null,\"write\":null}",
	             &err),
	       0, "null stands for a field that is not there");
	ok(r.renewed_us == RECORD_TIME_UNKNOWN && r.state == RECORD_UNSAID && r.token == 0 && !r.checkpoint &&
	           !*r.write,
	   "and each has what it has without");
	is_int(parse(&r, "{\"holderIdentity\":null,\"leaseDurationSeconds\":15}", &err), -1,
	       "but a holder must be there");
	ok(err.code == ERR_INVALID && strstr(err.text, "\"holderIdentity\" is missing"), "%s", err.text);
	is_int(parse(&r, "{\"holderIdentity\":\"a\",\"leaseDurationSeconds\":null}", &err), -1, "and a duration, too");
	ok(err.code == ERR_INVALID && strstr(err.text, "\"leaseDurationSeconds\" is missing"), "%s", err.text);
	is_int(parse(&r, "{\"holderIdentity\":null,\"leaseDurationSeconds\":null}", &err), -1, "with neither");
	is_int(err.code, ERR_FOREIGN, "it is no election record");
	record_fini(&r);
}

static void refused(const char *field, const char *says)
{
	struct record r;
	struct err err = { 0 };
	char text[400];

	record_init(&r);
	snprintf(text, sizeof text, START ",%s}", field);
	int rc = parse(&r, text, &err);
	if (!ok(rc == -1 && err.code == ERR_INVALID && strstr(err.text, says), "%.60s is refused: %s", field, says))
		printf("# %s\n", err.text);
	record_fini(&r);
}

static void test_kinds(void)
{
	char text[300];

	refused("\"write\":17", "\"write\" is 17, expected at most");
	refused("\"incarnation\":[]", "\"incarnation\" is [], expected at most");
	refused("\"state\":1", "\"state\" is 1, expected \"leading\" or \"released\"");
	refused("\"state\":\"\"", "\"state\" is \"\", expected");
	refused("\"term\":-1", "\"term\" is -1, expected a whole number from 0");
	refused("\"pid\":2147483648", "\"pid\" is 2147483648, expected a whole number from 0 to 2147483647");
	refused("\"token\":4611686018427387904", "expected a whole number from 0 to 4611686018427387903");
	refused("\"tree\":{}", "\"tree\" is {}, expected a string");
	snprintf(text, sizeof text, "\"write\":\"%0100d\"", 0);
	refused(text, "0000...");
	snprintf(text, sizeof text, "\"renewTime\":\"%090d\"", 7);
	refused(text, "..., expected a time such as");
}

static void test_times(void)
{
	static const char *const none[] = {
		"2024-00-01T12:00:00Z",      "2024-13-01T12:00:00Z",      "2024-01-00T12:00:00Z",
		"2024-01-32T12:00:00Z",      "2024-01-01T24:00:00Z",      "2024-01-01T12:60:00Z",
		"2024-01-01T12:00:61Z",      "2024-01-01T12:00:00+24:00", "2024-01-01T12:00:00+02:60",
		"2024-01-01T12:00:00+0200",  "2024-01-01T12:00:00+02:0",  "2024-01-01T12:00:00+02:000",
		"2024-01-01T12:00:00Zz",     "2024-01-01T12:00:00zZ",     "2024-01-01T12:00:00,Z",
		"2024-01-01T12:00:00-xx:00", "2024-01-01x12:00:00Z",      "2024-0x-01T12:00:00Z",
		"2024-01x01T12:00:00Z",      "2024-01-0xT12:00:00Z",      "2024-01-01T1x:00:00Z",
		"2024-01-01T12x00:00Z",      "2024-01-01T12:0x:00Z",      "2024-01-01T12:00x00Z",
		"2024-01-01T12:00:0xZ",      "2024:01-01T12:00:00Z",      "2o24-01-01T12:00:00Z",
	};
	static const struct {
		const char *text;
		int64_t us;
	} some[] = {
		{ "2024-05-01T12:00:02z", 1714564802000000 },
		{ "2024-05-01T12:00:02,5Z", 1714564802500000 },
		{ "2024-05-01T12:00:02+23:59", 1714564802000000 - 86340 * INT64_C(1000000) },
		{ "2016-12-31T23:59:60Z", 1483228800000000 },
	};
	int64_t us;
	char text[32], brief[10] = "as it was";

	for (size_t i = 0; i < sizeof none / sizeof *none; i++)
		ok(record_time_parse(none[i], &us) == -1, "'%s' is no time", none[i]);
	for (size_t i = 0; i < sizeof some / sizeof *some; i++)
		ok(record_time_parse(some[i].text, &us) == 0 && us == some[i].us, "'%s' is one", some[i].text);
	record_time_print(RECORD_TIME_MAX, text, sizeof text);
	is_str(text, "9999-12-31T23:59:59.999999Z", "the last time that has four digits of a year is printed");
	record_time_print(RECORD_TIME_MAX + 1, text, sizeof text);
	is_str(text, "", "a later one is not");
	record_time_print(INT64_C(-62167219200000000), text, sizeof text);
	is_str(text, "0000-01-01T00:00:00.000000Z", "nor is what was before the year 0, after the first of it");
	record_time_print(INT64_C(-62167219200000001), text, sizeof text);
	is_str(text, "", "one microsecond earlier");
	record_time_print(0, brief, sizeof brief);
	is_str(brief, "", "what has no room for a time gets none, and nothing behind its end");
}

static void test_numbers(void)
{
	struct record r, back;
	struct err err;

	record_init(&r);
	record_init(&back);
	mem_replace(&r.holder, "a");
	r.lease_ms = 15000;
	r.transitions = -5;
	char *text = record_print(&r);
	ok(strstr(text, "\"leaderTransitions\": -5,") != NULL, "a negative number is printed as it is");
	is_int(parse(&back, text, &err), -1, "and refused when it is read");
	free(text);
	r.transitions = r.term = INT64_MAX;
	text = record_print(&r);
	ok(parse(&back, text, &err) == 0 && back.transitions == INT64_MAX && back.term == INT64_MAX,
	   "the largest number comes back as it went");
	free(text);
	record_fini(&r), record_fini(&back);
}

/* The name of a write is compared by a number. */
static void test_write_names(void)
{
	static const struct {
		const char *write;
		uint64_t id;
	} names[] = {
		{ "", 0 },      { "0000000000000000ffff", 1 },
		{ "12", 0x12 }, { "ab-cd", 0xab },
		{ "-", 1 },     { "fedcba98765432100", 0xfedcba9876543210 },
	};
	struct record r;

	record_init(&r);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(r.write, sizeof r.write, "%s", names[i].write);
		ok(record_write_id(&r) == names[i].id, "the write '%s' has the number %llx", names[i].write,
		   (unsigned long long)names[i].id);
	}
	record_fini(&r);
}

/* Fields that are not ours are kept, the longest of them is named when they are too long. */
static void test_strangers(void)
{
	struct record r;
	struct err err;
	char *big = mem_zero(RECORD_MAX_BYTES), *text;

	record_init(&r);
	is_int(parse(&r, START ",\"x\":null,\"y\":{\"z\":[1,\"\\u00fc\"]}}", &err), 0, "fields of others are taken");
	text = record_print(&r);
	ok(strstr(text, "\"x\": null") && strstr(text, "\"y\": {"), "and printed again, null as well");
	free(text);
	memset(big, 'x', RECORD_MAX_BYTES * 3 / 4);
	text = mem_printf(START ",\"small\":1,\"large\":\"%s\",\"late\":22}", big);
	is_int(parse(&r, text, &err), -1, "too much of them is refused");
	ok(err.code == ERR_INVALID && strstr(err.text, "\"large\" is the largest"), "%.120s", err.text);
	free(text);
	text = mem_printf(START ",\"checkpoint\":\"%s\"}", big);
	is_int(parse(&r, text, &err), -1, "and so is a checkpoint that leaves no room");
	ok(err.code == ERR_INVALID && strstr(err.text, "\"checkpoint\" would have"), "%.120s", err.text);
	free(text);
	free(big);
	record_fini(&r);
}

int main(void)
{
	test_nulls();
	test_kinds();
	test_times();
	test_numbers();
	test_write_names();
	test_strangers();
	return tap_done();
}
