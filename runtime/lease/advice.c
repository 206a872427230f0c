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

/* ---- reading: false, or NULL, wherever something is not as it should be ---- */

static bool read_text(const json_t *object, const char *key, bool must, char to[ADVICE_TEXT_MAX + 1])
{
	const json_t *value = json_object_get(object, key);

	if (!value)
		return !must;
	const char *text = json_string_value(value);
	return text && (*text || !must) && advice_set(to, text);
}

/* Hex digits and dashes, fewer than size. */
static bool read_name(const json_t *object, const char *key, bool must, char *to, size_t size)
{
	const json_t *value = json_object_get(object, key);

	if (!value)
		return !must;
	const char *text = json_string_value(value);
	if (!text || (must && !*text) || strlen(text) >= size || strspn(text, "0123456789abcdef-") != strlen(text))
		return false;
	snprintf(to, size, "%s", text);
	return true;
}

static bool read_priority(const json_t *object, int64_t *to)
{
	const json_t *value = json_object_get(object, "priority");

	if (!value)
		return true;
	*to = json_integer_value(value);
	return json_is_integer(value) && *to >= -ADVICE_PRIORITY_MAX && *to <= ADVICE_PRIORITY_MAX;
}

static bool of_term(const json_t *object, uint64_t term)
{
	const json_t *value = json_object_get(object, "term");

	return term && json_is_integer(value) && (uint64_t)json_integer_value(value) == term;
}

static bool read_who(const json_t *object, struct advice_candidate *to)
{
	return read_text(object, "identity", true, to->identity) &&
	       read_name(object, "incarnation", true, to->incarnation, sizeof to->incarnation);
}

static bool read_part(struct advice *a, enum advice_part part, const json_t *object, uint64_t term)
{
	switch (part) {
	case ADVICE_NEXT:
		return of_term(object, term) && read_who(object, &a->next) &&
		       read_text(object, "address", false, a->next.address) && read_priority(object, &a->next.priority);
	case ADVICE_FOR:
		a->handed_over = json_is_true(json_object_get(object, "handedOver"));
		return of_term(object, term) && read_who(object, &a->given);
	case ADVICE_WANTED:
		return of_term(object, term) && read_text(object, "identity", true, a->wanted.identity) &&
		       read_name(object, "name", true, a->wanted.name, sizeof a->wanted.name);
	case ADVICE_NOMINATION:
		a->nomination.is = true;
		return read_priority(object, &a->nomination.priority) &&
		       read_name(object, "answers", false, a->nomination.answers, sizeof a->nomination.answers) &&
		       read_name(object, "declines", false, a->nomination.declines, sizeof a->nomination.declines) &&
		       read_text(object, "why", false, a->nomination.why);
	}
	return false;
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

bool advice_has(const struct advice *a, enum advice_part part)
{
	if (!a)
		return false;
	switch (part) {
	case ADVICE_NEXT:
		return *a->next.identity;
	case ADVICE_FOR:
		return *a->given.identity;
	case ADVICE_WANTED:
		return *a->wanted.name;
	case ADVICE_NOMINATION:
		return a->nomination.is;
	}
	return false;
}

static void put_text(struct buf *b, const char *key, const char *text)
{
	if (!*text)
		return;
	buf_printf(b, ", \"%s\": ", key);
	buf_json(b, text);
}

static void put_who(struct buf *b, const struct advice_candidate *who)
{
	put_text(b, "identity", who->identity);
	put_text(b, "incarnation", who->incarnation);
	put_text(b, "address", who->address);
}

void advice_print(struct buf *b, const struct advice *a, enum advice_part part, uint64_t term)
{
	if (part == ADVICE_NOMINATION) {
		buf_printf(b, "{\"priority\": %" PRId64, a->nomination.priority);
		put_text(b, "answers", a->nomination.answers);
		put_text(b, "declines", a->nomination.declines);
		put_text(b, "why", a->nomination.why);
		buf_adds(b, "}");
		return;
	}
	buf_printf(b, "{\"term\": %" PRIu64, term);
	if (part == ADVICE_NEXT) {
		put_who(b, &a->next);
		buf_printf(b, ", \"priority\": %" PRId64, a->next.priority);
	} else if (part == ADVICE_FOR) {
		put_who(b, &a->given);
		buf_adds(b, a->handed_over ? ", \"handedOver\": true" : "");
	} else {
		put_text(b, "name", a->wanted.name);
		put_text(b, "identity", a->wanted.identity);
	}
	buf_adds(b, "}");
}
