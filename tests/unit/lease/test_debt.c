/* Who may still act, as a record says it: what is added, what is taken out, and what of a text from outside is
 * believed. All orders of what candidates do are searched in tests/unit/election/test_debts.c. */
#include "lease/debt_record.h"

#include "base/mem.h"
#include "lease/record.h"
#include "tap.h"

#include <jansson.h>
#include <stdlib.h>

static const struct debt_candidate with = {
	.identity = "c", .address = "", .incarnation = "c1", .books = true, .fences = true
};
static const struct debt_candidate without = { .identity = "c", .address = "", .incarnation = "c1" };

/* Keeps the text until the next call. */
static const char *text_of(struct debt *d)
{
	static char *text;

	free(text);
	text = debt_text(d);
	return text ? text : "";
}

static void record_of(struct record *r, const char *holder, const char *incarnation, const char *unfenced)
{
	record_init(r);
	mem_replace(&r->holder, holder);
	snprintf(r->incarnation, sizeof r->incarnation, "%s", incarnation);
	r->state = *holder ? RECORD_LEADING : RECORD_RELEASED;
	r->term = 7;
	r->token = 70;
	mem_replace(&r->unfenced, unfenced);
}

static void acquires(const struct record *r, const struct debt_candidate *c, const char *want, const char *what)
{
	struct debt d = { 0 };

	debt_acquire(&d, r, c, 0, RECORD_TIME_UNKNOWN);
	is_str(text_of(&d), want, what);
	debt_fini(&d);
}

#define OWN "{\"identity\":\"c\",\"incarnation\":\"c1\"}"
#define A1 "{\"identity\":\"a\",\"token\":5,\"incarnation\":\"a1\"}"

static void booking(void)
{
	struct record r;

	record_of(&r, "", "", NULL);
	acquires(&r, &without, "", "who has neither fence nor cleanup books nothing");
	acquires(&r, &with, "[" OWN "]", "who has a fence books itself");
	record_fini(&r);
	record_of(&r, "a", "a1", "[" A1 "]");
	acquires(&r, &without, "[{\"identity\":\"a\",\"token\":70,\"incarnation\":\"a1\",\"why\":\"expired\"}]",
	         "a debt is kept, with the record's token, and why");
	acquires(&r, &with, "[{\"identity\":\"a\",\"token\":70,\"incarnation\":\"a1\",\"why\":\"expired\"}," OWN "]",
	         "a holder that has booked itself is not booked again");
	record_fini(&r);
	record_of(&r, "a", "a1", NULL);
	acquires(&r, &without, "", "who has no fence does not add a holder that booked nothing");
	acquires(&r, &with, "[{\"identity\":\"a\",\"token\":70,\"incarnation\":\"a1\",\"why\":\"expired\"}," OWN "]",
	         "who has one adds it");
	struct debt_candidate dead = with;
	dead.dead = true;
	acquires(&r, &dead, "[" OWN "]", "not where its death is proved");
	r.fencing = r.term;
	acquires(&r, &with, "[" OWN "]", "nor where its term had not begun");
	r.fencing = r.term - 1;
	acquires(&r, &with, "[{\"identity\":\"a\",\"token\":70,\"incarnation\":\"a1\",\"why\":\"expired\"}," OWN "]",
	         "what another term says of that does not count");
	mem_replace(&r.holder, "");
	mem_replace(&r.previous_holder, "a");
	r.fencing = 0;
	acquires(&r, &with, "[" OWN "]", "a clean release leaves nothing");
	mem_replace(&r.forced, "by somebody");
	acquires(&r, &with, "[{\"identity\":\"a\",\"token\":70,\"incarnation\":\"a1\",\"why\":\"forced\"}," OWN "]",
	         "a release by force leaves the holder's");
	record_fini(&r);
}

static void settling(void)
{
	struct debt d = { 0 };
	struct record r;

	debt_parse(&d, "[" A1 ",{\"identity\":\"b\",\"token\":6,\"incarnation\":\"b1\"}]");
	debt_settle(&d, "a", "a2");
	debt_settle(&d, "a", "");
	debt_settle(&d, "b", "a1");
	is_int(d.count, 2, "another process with that name settles nothing");
	debt_settle(&d, "a", "a1");
	is_str(text_of(&d), "[{\"identity\":\"b\",\"token\":6,\"incarnation\":\"b1\"}]", "its own clean end does");
	debt_fini(&d);

	struct debt_candidate a2 = { .identity = "a", .address = "", .incarnation = "a2", .books = true };
	record_of(&r, "", "", "[" A1 "]");
	debt_acquire(&d, &r, &a2, 0, RECORD_TIME_UNKNOWN);
	debt_keep(&d, &a2, 9, RECORD_TIME_UNKNOWN);
	is_str(text_of(&d), "[{\"identity\":\"a\",\"token\":9,\"incarnation\":\"a2\",\"older\":true}]",
	       "a later process of one identity takes the entry over, with its token");
	debt_settle(&d, "a", "a2");
	is_str(text_of(&d), "[{\"identity\":\"a\",\"token\":9,\"older\":true}]",
	       "but its clean end does not settle what the earlier one owes");
	debt_settle(&d, "a", "a2");
	debt_settle(&d, "a", "a1");
	is_int(d.count, 1, "nor does another end");
	ok(!debt_forgive(&d, "a", 8) && d.count == 1, "a person who names another token forgives nothing");
	ok(debt_forgive(&d, "a", 9) && d.count == 0, "one who names the right one does");
	debt_fini(&d);
	record_fini(&r);

	debt_parse(&d, "[{\"identity\":\"a\",\"incarnation\":\"a1\",\"address\":\"x\"}," A1
	               ",{\"identity\":\"c\",\"incarnation\":\"c1\"}]");
	is_int(d.count, 3, "one identity at two addresses is two");
	debt_fenced(&d, &with);
	is_str(text_of(&d), "[" OWN "]", "a fence pays all but one's own");
	debt_fini(&d);
}

static void bars(void)
{
	struct debt d = { 0 };

	debt_parse(&d, "[" OWN "]");
	ok(!debt_bars(&d, &with) && !debt_to_fence(&d, &with), "its own entry keeps nobody from leading");
	debt_fini(&d);
	debt_parse(&d, "[" A1 "," OWN "]");
	ok(!debt_bars(&d, &with) && debt_to_fence(&d, &with), "another one's is fenced");
	ok(!debt_bars(&d, &without) && !debt_to_fence(&d, &without), "who has no fence leads all the same");
	debt_fini(&d);
	debt_parse(&d, "[{\"identity\":\"c\",\"incarnation\":\"c0\"}]");
	ok(debt_bars(&d, &with) != NULL, "nobody fences himself: an earlier process of one's own bars");
	ok(!debt_bars(&d, &without), "but not who would not fence it");
	debt_fini(&d);
	debt_parse(&d, "[{\"identity\":\"c\",\"address\":\"elsewhere\",\"incarnation\":\"c0\"}]");
	ok(debt_bars(&d, &with) != NULL, "also at another address");
	debt_fini(&d);
	debt_parse(&d, "[{\"identity\":\"c\",\"incarnation\":\"c1\",\"older\":true}]");
	ok(debt_bars(&d, &with) != NULL, "and where it is in its own entry");
	debt_fini(&d);

	struct record r;
	char *text = mem_dup("[");
	for (int i = 0; i < DEBT_MAX; i++) {
		char *more = mem_printf("%s%s{\"identity\":\"n%d\",\"incarnation\":\"e%d\"}", text, i ? "," : "", i, i);
		free(text);
		text = more;
	}
	char *whole = mem_printf("%s]", text);
	record_of(&r, "", "", whole);
	debt_acquire(&d, &r, &without, 0, RECORD_TIME_UNKNOWN);
	ok(d.count == DEBT_MAX && !debt_bars(&d, &without), "with eight somebody may lead who adds nothing");
	debt_fini(&d);
	debt_acquire(&d, &r, &with, 0, RECORD_TIME_UNKNOWN);
	ok(d.count == DEBT_MAX + 1 && debt_bars(&d, &with), "with a ninth nobody leads");
	debt_fini(&d);
	mem_replace(&r.holder, "x");
	char *carried = debt_carry(&r, &with);
	struct debt_candidate carries = with;
	carries.carried = carried;
	mem_replace(&r.unfenced, "[" A1 "]");
	debt_acquire(&d, &r, &carries, 0, RECORD_TIME_UNKNOWN);
	ok(debt_bars(&d, &carries) && d.count > DEBT_MAX, "nor where some of them are carried");
	free(carried);
	debt_fini(&d);
	free(whole);
	free(text);
	record_fini(&r);

	char *long_name = mem_zero(DEBT_TEXT_MAX + 2);
	memset(long_name, 'x', DEBT_TEXT_MAX + 1);
	record_of(&r, long_name, "e1", NULL);
	debt_acquire(&d, &r, &with, 0, RECORD_TIME_UNKNOWN);
	ok(debt_bars(&d, &with) != NULL, "nor with names for which a record has no room");
	debt_fini(&d);
	record_fini(&r);
	free(long_name);
}

static void carrying(void)
{
	struct record r;

	record_of(&r, "a", "a1", NULL);
	is_int(debt_carry(&r, &without) == NULL, 1, "who has no fence carries no holder that booked nothing");
	char *carried = debt_carry(&r, &with);
	is_str(carried, "[{\"identity\":\"a\",\"token\":70,\"incarnation\":\"a1\",\"why\":\"expired\"}]",
	       "who has one carries it when the record is gone");
	ok(debt_has(carried, carried), "a record that has it takes that over");
	ok(!debt_has(NULL, carried) && !debt_has("[" A1 "]", carried),
	   "one that has not, or an older term's, does not");
	struct debt_candidate c = with;
	c.carried = carried;
	record_clear(&r);
	acquires(&r, &c, "[{\"identity\":\"a\",\"token\":70,\"incarnation\":\"a1\",\"why\":\"expired\"}," OWN "]",
	         "and is in the next record that it makes");
	free(carried);
	record_fini(&r);
}

static int reads(const char *text)
{
	json_t *value = json_loads(text, 0, NULL);
	struct debt d = { 0 };
	struct err err;
	int count = debt_read(&d, value, &err) < 0 ? -1 : d.count;

	debt_fini(&d);
	json_decref(value);
	return count;
}

/* What cannot be read must not be forgotten, so it is no record. */
static void texts(void)
{
	static const char *const bad[] = {
		"{}",
		"[1]",
		"[{}]",
		"[{\"identity\":\"\"}]",
		"[{\"identity\":1}]",
		"[{\"identity\":\"a\",\"token\":-1}]",
		"[{\"identity\":\"a\",\"token\":\"1\"}]",
		"[{\"identity\":\"a\",\"token\":9223372036854775807}]",
		"[{\"identity\":\"a\",\"address\":1}]",
		"[{\"identity\":\"a\",\"incarnation\":\"XYZ\"}]",
		"[{\"identity\":\"a\",\"incarnation\":\"0123456789012345678901234567890123456\"}]",
		"[{\"identity\":\"a\"},{\"identity\":\"b\"},{\"identity\":\"c\"},{\"identity\":\"d\"},{\"identity\":\"e\"}"
		",{\"identity\":\"f\"},{\"identity\":\"g\"},{\"identity\":\"h\"},{\"identity\":\"i\"}]",
	};
	struct record r;
	struct err err;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		is_int(reads(bad[i]), -1, bad[i]);
	is_int(reads("[]"), 0, "an empty list is no debt");
	is_int(reads("[{\"identity\":\"a\"},{\"identity\":\"a\",\"token\":3}]"), 1, "one that is named twice is one");
	record_init(&r);
	const char text[] =
		"{\"holderIdentity\":\"x\",\"leaseDurationSeconds\":15,\"term\":3,\"fencing\":3,\"unfenced\":"
		"[{\"identity\":\"a\\u00e9\",\"since\":\"2026-11-28T10:00:00.000000Z\",\"token\":4}]}";
	ok(record_parse(&r, text, strlen(text), &err) == 0, "a record has it");
	is_str(r.unfenced, "[{\"identity\":\"a\xc3\xa9\",\"token\":4,\"since\":\"2026-11-28T10:00:00.000000Z\"}]",
	       "as it would print it");
	ok(record_fences(&r), "and says that its term has not begun");
	char *printed = record_print(&r);
	ok(strstr(printed, "\"fencing\": 3,\n") && strstr(printed, r.unfenced), "and prints both");
	free(printed);
	const char wrong[] = "{\"holderIdentity\":\"x\",\"leaseDurationSeconds\":15,\"unfenced\":[{}]}";
	ok(record_parse(&r, wrong, strlen(wrong), &err) < 0 && strstr(err.text, "element 1"),
	   "with one that cannot be read it is no record");
	record_fini(&r);
}

int main(void)
{
	booking();
	settling();
	bars();
	carrying();
	texts();
	return tap_done();
}
