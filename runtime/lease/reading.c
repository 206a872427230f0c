#include "lease/reading.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* As record_print writes them. They cannot be found inside another value: there, quotes have a backslash before them.
 */
#define TIME_KEY "\n  \"renewTime\": \""
#define TIME_LEN (sizeof "2024-05-01T12:00:00.000000Z" - 1)
#define WRITE_KEY "\n  \"write\": \""
#define WRITE_LEN 32
#define TEXT_MAX 2048 /* longer texts are not remembered: a process may have a thousand elections */

struct reading {
	struct record record;
	size_t len, time_at, write_at; /* the time is before the write's name */
	char text[];
};

void reading_free(struct reading *last)
{
	if (last)
		record_fini(&last->record);
	free(last);
}

/* Where the value of the key begins, if the key is there once and the value has value_len bytes; else 0. */
static size_t value_at(const char *text, size_t len, const char *key, size_t value_len)
{
	const char *found = memmem(text, len, key, strlen(key));

	if (!found)
		return 0;
	size_t at = (size_t)(found - text) + strlen(key);
	if (len - at <= value_len || text[at + value_len] != '"' || memmem(text + at, len - at, key, strlen(key)))
		return 0;
	return at;
}

static void keep(struct reading **last, const struct record *r, const char *text, size_t len)
{
	size_t time_at = value_at(text, len, TIME_KEY, TIME_LEN), write_at = value_at(text, len, WRITE_KEY, WRITE_LEN);

	reading_free(*last);
	*last = NULL;
	if (len > TEXT_MAX || !time_at || write_at <= time_at || strncmp(r->write, text + write_at, WRITE_LEN) != 0)
		return;
	struct reading *k = *last = mem_zero(sizeof *k + len);
	record_init(&k->record);
	record_copy(&k->record, r);
	k->len = len;
	k->time_at = time_at;
	k->write_at = write_at;
	memcpy(k->text, text, len);
}

static bool same_but_for_values(const struct reading *k, const char *text, size_t len)
{
	size_t after_time = k->time_at + TIME_LEN, after_write = k->write_at + WRITE_LEN;

	return len == k->len && memcmp(text, k->text, k->time_at) == 0 &&
	       memcmp(text + after_time, k->text + after_time, k->write_at - after_time) == 0 &&
	       memcmp(text + after_write, k->text + after_write, len - after_write) == 0;
}

/* Takes the time and the write's name from the text. false: record_parse might refuse them. */
static bool take_values(struct reading *k, const char *text)
{
	char time[TIME_LEN + 1] = "", write[WRITE_LEN + 1] = "";
	int64_t renewed;

	memcpy(time, text + k->time_at, TIME_LEN);
	memcpy(write, text + k->write_at, WRITE_LEN);
	if (record_time_parse(time, &renewed) < 0 || strspn(write, "0123456789abcdef") != WRITE_LEN)
		return false;
	k->record.renewed_us = renewed;
	memcpy(k->record.write, write, sizeof write);
	return true;
}

int reading_parse(struct reading **last, struct record *r, const char *text, size_t len, struct err *err)
{
	if (*last && same_but_for_values(*last, text, len) && take_values(*last, text)) {
		record_copy(r, &(*last)->record);
		return 0;
	}
	if (record_parse(r, text, len, err) < 0)
		return -1;
	keep(last, r, text, len);
	return 0;
}
