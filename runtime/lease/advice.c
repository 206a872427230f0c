#include "lease/advice.h"

#include "base/mem.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool advice_set(char to[ADVICE_TEXT_MAX + 1], const char *text)
{
	bool fits = strlen(text) <= ADVICE_TEXT_MAX && buf_is_utf8(text);

	snprintf(to, ADVICE_TEXT_MAX + 1, "%s", fits ? text : "");
	return fits;
}

/* ---- the parts ---- */

/* A text is one of people; a name is of hex digits and dashes. must: without it there is no such part. */
struct part_field {
	const char *key;
	enum { TEXT, NAME, PRIORITY, FLAG } kind;
	bool must;
	size_t at, size; /* in struct advice */
};

#define AT(field) offsetof(struct advice, field), sizeof(((struct advice *)0)->field) /* NOLINT */
#define FIELDS_MAX 6

/* In the order in which they are printed. A part other than the nomination is present if its first field is. */
static const struct part_field parts[][FIELDS_MAX] = {
	[ADVICE_NEXT] = { { "identity", TEXT, true, AT(next.identity) },
	                  { "incarnation", NAME, true, AT(next.incarnation) },
	                  { "address", TEXT, false, AT(next.address) },
	                  { "priority", PRIORITY, false, AT(next.priority) },
	                  { "poke", TEXT, false, AT(next.poke) },
	                  { "pokeKey", NAME, false, AT(next.poke_key) } },
	[ADVICE_FOR] = { { "identity", TEXT, true, AT(given.identity) },
	                 { "incarnation", NAME, true, AT(given.incarnation) },
	                 { "handedOver", FLAG, false, AT(handed_over) } },
	[ADVICE_WANTED] = { { "name", NAME, true, AT(wanted.name) }, { "identity", TEXT, true, AT(wanted.identity) } },
	[ADVICE_NOMINATION] = { { "priority", PRIORITY, false, AT(nomination.priority) },
	                        { "poke", TEXT, false, AT(nomination.poke) },
	                        { "pokeKey", NAME, false, AT(nomination.poke_key) },
	                        { "answers", NAME, false, AT(nomination.answers) },
	                        { "declines", NAME, false, AT(nomination.declines) },
	                        { "why", TEXT, false, AT(nomination.why) } },
};

bool advice_has(const struct advice *a, enum advice_part part)
{
	if (!a)
		return false;
	return part == ADVICE_NOMINATION ? a->nomination.is : *((const char *)a + parts[part]->at);
}

/* ---- reading: false wherever something is not as it should be ---- */

static bool read_text(const struct part_field *f, const char *text, char *to)
{
	bool name = text && strspn(text, "0123456789abcdef-") == strlen(text);
	bool fits = text && (*text || !f->must) && strlen(text) < f->size;

	if (!fits || !(f->kind == NAME ? name : buf_is_utf8(text)))
		return false;
	memcpy(to, text, strlen(text) + 1);
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
	struct advice read = { .next = { .identity = "" } };

	if (*slot)
		read = **slot;
	if (!json_is_object(value) || !read_part(&read, part, value, term))
		return;
	if (!*slot)
		*slot = mem_zero(sizeof **slot);
	**slot = read;
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
		buf_json(b, from);
}

void advice_print(struct buf *b, const struct advice *a, enum advice_part part, uint64_t term)
{
	const char *between = "{";

	if (part != ADVICE_NOMINATION) {
		buf_printf(b, "{\"term\": %" PRIu64, term);
		between = ", ";
	}
	for (const struct part_field *f = parts[part]; f < parts[part] + FIELDS_MAX && f->key; f++) {
		if (f->kind != PRIORITY && !*((const char *)a + f->at))
			continue; /* an empty text, or false */
		buf_adds(b, between);
		print_field(b, f, a);
		between = ", ";
	}
	buf_adds(b, "}");
}
