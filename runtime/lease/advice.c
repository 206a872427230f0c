#include "lease/advice.h"

#include "base/mem.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool advice_fits(const char *text)
{
	return strlen(text) <= ADVICE_TEXT_MAX && buf_is_utf8(text);
}

/* ---- the parts ---- */

/* A text is one of people; a name is of hex digits and dashes. must: without it there is no such part. */
struct part_field {
	const char *key;
	enum { TEXT, NAME, PRIORITY, FLAG } kind;
	bool must;
	size_t at;  /* in struct advice */
	size_t max; /* bytes of a text */
};

#define AT(field) offsetof(struct advice, field) /* NOLINT */
#define FIELDS_MAX 6
#define UUID_LEN 36
#define REQUEST_LEN 32

/* In the order in which they are printed. A part other than the nomination is present if its first field is. */
static const struct part_field parts[][FIELDS_MAX] = {
	[ADVICE_NEXT] = { { "identity", TEXT, true, AT(next.identity), ADVICE_TEXT_MAX },
	                  { "incarnation", NAME, true, AT(next.incarnation), UUID_LEN },
	                  { "address", TEXT, false, AT(next.address), ADVICE_TEXT_MAX },
	                  { "priority", PRIORITY, false, AT(next.priority), 0 },
	                  { "poke", TEXT, false, AT(next.poke), POKE_ADDRESS },
	                  { "pokeKey", NAME, false, AT(next.poke_key), POKE_KEY } },
	[ADVICE_FOR] = { { "identity", TEXT, true, AT(given.identity), ADVICE_TEXT_MAX },
	                 { "incarnation", NAME, true, AT(given.incarnation), UUID_LEN },
	                 { "handedOver", FLAG, false, AT(handed_over), 0 } },
	[ADVICE_WANTED] = { { "name", NAME, true, AT(wanted.name), REQUEST_LEN },
	                    { "identity", TEXT, true, AT(wanted.identity), ADVICE_TEXT_MAX } },
	[ADVICE_NOMINATION] = { { "priority", PRIORITY, false, AT(nomination.priority), 0 },
	                        { "poke", TEXT, false, AT(nomination.poke), POKE_ADDRESS },
	                        { "pokeKey", NAME, false, AT(nomination.poke_key), POKE_KEY },
	                        { "answers", NAME, false, AT(nomination.answers), REQUEST_LEN },
	                        { "declines", NAME, false, AT(nomination.declines), REQUEST_LEN },
	                        { "why", TEXT, false, AT(nomination.why), ADVICE_TEXT_MAX } },
};

/* Those of the candidates and of the requests, whichever parts print them. */
static const size_t texts[] = {
	AT(next.identity),   AT(next.incarnation),    AT(next.address),       AT(next.poke),
	AT(next.poke_key),   AT(given.identity),      AT(given.incarnation),  AT(given.address),
	AT(given.poke),      AT(given.poke_key),      AT(wanted.name),        AT(wanted.identity),
	AT(nomination.poke), AT(nomination.poke_key), AT(nomination.answers), AT(nomination.declines),
	AT(nomination.why),
};
#define TEXTS (sizeof texts / sizeof *texts)

struct advice *advice_copy(const struct advice *a)
{
	size_t size = sizeof *a;

	if (!a)
		return NULL;
	for (size_t i = 0; i < TEXTS; i++) {
		const char *text = *(const char *const *)(const void *)((const char *)a + texts[i]);
		size += text && *text ? strlen(text) + 1 : 0;
	}
	struct advice *copy = mem_take(size);
	char *end = (char *)(copy + 1);
	*copy = *a;
	for (size_t i = 0; i < TEXTS; i++) {
		const char **text = (const char **)(void *)((char *)copy + texts[i]);
		if (!*text || !**text) {
			*text = "";
			continue;
		}
		*text = strcpy(end, *text);
		end += strlen(end) + 1;
	}
	return copy;
}

void advice_replace(struct advice **slot, const struct advice *a)
{
	struct advice *old = *slot;

	*slot = advice_copy(a);
	free(old);
}

bool advice_has(const struct advice *a, enum advice_part part)
{
	if (!a)
		return false;
	if (part == ADVICE_NOMINATION)
		return a->nomination.is;
	return **(const char *const *)(const void *)((const char *)a + parts[part]->at);
}

/* ---- reading: false wherever something is not as it should be ---- */

static bool read_text(const struct part_field *f, const char *text, const char **to)
{
	bool name = text && strspn(text, "0123456789abcdef-") == strlen(text);
	bool fits = text && (*text || !f->must) && strlen(text) <= f->max;

	if (!fits || !(f->kind == NAME ? name : buf_is_utf8(text)))
		return false;
	*to = text;
	return true;
}

static bool read_priority(const json_t *value, int64_t *to)
{
	*to = json_integer_value(value);
	return json_is_integer(value) && *to >= -ADVICE_PRIORITY_MAX && *to <= ADVICE_PRIORITY_MAX;
}

static bool read_field(struct advice *a, const struct part_field *f, const json_t *value)
{
	void *to = (char *)a + f->at;

	if (!value)
		return !f->must;
	if (f->kind == PRIORITY)
		return read_priority(value, to);
	if (f->kind != FLAG)
		return read_text(f, json_string_value(value), to);
	*(bool *)to = json_is_true(value);
	return true;
}

static bool of_term(const json_t *object, uint64_t term)
{
	const json_t *value = json_object_get(object, "term");

	return term && json_is_integer(value) && (uint64_t)json_integer_value(value) == term;
}

static bool read_part(struct advice *a, enum advice_part part, const json_t *object, uint64_t term)
{
	if (part == ADVICE_NOMINATION)
		a->nomination.is = true;
	else if (!of_term(object, term))
		return false;
	for (const struct part_field *f = parts[part]; f < parts[part] + FIELDS_MAX && f->key; f++)
		if (!read_field(a, f, json_object_get(object, f->key)))
			return false;
	return true;
}

void advice_read(struct advice **slot, enum advice_part part, const json_t *value, uint64_t term)
{
	struct advice read = ADVICE_NONE;

	if (*slot)
		read = **slot;
	if (json_is_object(value) && read_part(&read, part, value, term))
		advice_replace(slot, &read);
}

/* ---- printing ---- */

static void print_field(struct buf *b, const struct part_field *f, const struct advice *a)
{
	const void *from = (const char *)a + f->at;

	if (f->kind == PRIORITY) {
		buf_printf(b, "\"%s\": %" PRId64, f->key, *(const int64_t *)from);
		return;
	}
	buf_printf(b, "\"%s\": ", f->key);
	if (f->kind == FLAG)
		buf_adds(b, "true");
	else
		buf_json(b, *(const char *const *)from);
}

/* An empty text, or false. */
static bool is_empty(const struct part_field *f, const struct advice *a)
{
	const void *from = (const char *)a + f->at;

	if (f->kind == FLAG)
		return !*(const bool *)from;
	return f->kind != PRIORITY && !**(const char *const *)from;
}

void advice_print(struct buf *b, const struct advice *a, enum advice_part part, uint64_t term)
{
	const char *between = "{";

	if (part != ADVICE_NOMINATION) {
		buf_printf(b, "{\"term\": %" PRIu64, term);
		between = ", ";
	}
	for (const struct part_field *f = parts[part]; f < parts[part] + FIELDS_MAX && f->key; f++) {
		if (is_empty(f, a))
			continue;
		buf_adds(b, between);
		print_field(b, f, a);
		between = ", ";
	}
	buf_adds(b, "}");
}
