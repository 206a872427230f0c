#include "lease/reading.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* As record_print writes them, in this order. It puts a newline before the keys of the record itself and nowhere
 * else. */
#define TIME_KEY "\n  \"renewTime\": \""
#define TIME_LEN (sizeof "2024-05-01T12:00:00.000000Z" - 1)
#define WRITE_KEY "\n  \"write\": \""
#define WRITE_LEN 32
#define COUNT_KEY "\n  \"writes\": "
#define COUNT_MAX_LEN 18 /* digits: every such number is in a record's range */
#define TEXT_MAX 4096    /* longer texts are not remembered: a process may have a thousand elections */

/* The time is before the write's name, and that before the count of writes. */
struct reading {
	struct record record;
	size_t len, time_at, write_at, count_at, count_len;
	char text[];
};

void reading_free(struct reading *last)
{
	if (last)
		record_fini(&last->record);
	free(last);
}

/* Where the value of the key begins, if the key is there and the text goes on behind the value; else 0. */
static size_t value_at(const char *text, size_t len, const char *key, size_t value_len)
{
	const char *found = memmem(text, len, key, strlen(key));

	if (!found)
		return 0;
	size_t at = (size_t)(found - text) + strlen(key);
	return len - at > value_len ? at : 0;
}

/* How many digits the number there has, if it is printed as record_print prints a count that is not 0; else 0. */
static size_t count_len(const char *text, size_t len, size_t at)
{
	size_t n = 0;

	while (at + n < len && text[at + n] >= '0' && text[at + n] <= '9')
		n++;
	return n <= COUNT_MAX_LEN && n > 0 && text[at] != '0' ? n : 0;
}

/* Only what record_print would write is remembered: in any other text the same keys may stand for something else. */
static bool is_printed(const struct record *r, const char *text, size_t len)
{
	char *printed = record_print(r);
	bool same = strlen(printed) == len && memcmp(printed, text, len) == 0;

	free(printed);
	return same;
}

static void keep(struct reading **last, const struct record *r, const char *text, size_t len)
{
	reading_free(*last);
	*last = NULL;
	if (len > TEXT_MAX || !is_printed(r, text, len))
		return;
	size_t time_at = value_at(text, len, TIME_KEY, TIME_LEN), write_at = value_at(text, len, WRITE_KEY, WRITE_LEN),
	       count_at = value_at(text, len, COUNT_KEY, 1);
	if (!time_at || write_at <= time_at || count_at <= write_at || strlen(r->write) != WRITE_LEN ||
	    !count_len(text, len, count_at))
		return;
	struct reading *k = *last = mem_zero(sizeof *k + len);
	record_init(&k->record);
	record_copy(&k->record, r);
	k->len = len;
	k->time_at = time_at;
	k->write_at = write_at;
	k->count_at = count_at;
	k->count_len = count_len(text, len, count_at);
	memcpy(k->text, text, len);
}

/* digits: how many the text's count of writes has. */
static bool same_but_for_values(const struct reading *k, const char *text, size_t len, size_t digits)
{
	size_t after_time = k->time_at + TIME_LEN, after_write = k->write_at + WRITE_LEN;
	size_t after_count = k->count_at + k->count_len, rest = k->len - after_count;

	return len == k->count_at + digits + rest && memcmp(text, k->text, k->time_at) == 0 &&
	       memcmp(text + after_time, k->text + after_time, k->write_at - after_time) == 0 &&
	       memcmp(text + after_write, k->text + after_write, k->count_at - after_write) == 0 &&
	       memcmp(text + k->count_at + digits, k->text + after_count, rest) == 0;
}

/* Takes the time, the write's name and the count from the text. false: record_parse might refuse them. */
static bool take_values(struct reading *k, const char *text, size_t digits)
{
	char time[TIME_LEN + 1] = "", write[WRITE_LEN + 1] = "";
	uint64_t count = 0;
	int64_t renewed;

	memcpy(time, text + k->time_at, TIME_LEN);
	memcpy(write, text + k->write_at, WRITE_LEN);
	if (record_time_parse(time, &renewed) < 0 || strspn(write, "0123456789abcdef") != WRITE_LEN)
		return false;
	for (size_t i = 0; i < digits; i++)
		count = count * 10 + (uint64_t)(text[k->count_at + i] - '0');
	k->record.renewed_us = renewed;
	k->record.writes = count;
	memcpy(k->record.write, write, sizeof write);
	return true;
}

bool reading_renewed(struct reading *last, struct record *r, const char *text, size_t len)
{
	size_t digits = last ? count_len(text, len, last->count_at) : 0;

	if (!digits || !same_but_for_values(last, text, len, digits) || !take_values(last, text, digits))
		return false;
	record_copy(r, &last->record);
	return true;
}

int reading_parse(struct reading **last, struct record *r, const char *text, size_t len, struct err *err)
{
	if (reading_renewed(*last, r, text, len))
		return 0;
	if (record_parse(r, text, len, err) < 0)
		return -1;
	keep(last, r, text, len);
	return 0;
}
