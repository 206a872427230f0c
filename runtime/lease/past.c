#include "lease/past.h"

#include "base/json_out.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define TOKEN_MAX (INT64_MAX / 2) /* as the record's */

static bool in_range(int64_t us)
{
	return us >= 0 && us <= RECORD_TIME_MAX;
}

static bool is_word(const char *reason)
{
	return reason && *reason && strlen(reason) < sizeof((struct past_term *)0)->reason &&
	       strspn(reason, "abcdefghijklmnopqrstuvwxyz_") == strlen(reason);
}

/* The bytes of the longest beginning that has whole characters and fits. */
static int whole_characters(const char *who)
{
	size_t len = strlen(who);

	if (len <= PAST_WHO_MAX)
		return (int)len;
	for (len = PAST_WHO_MAX; len > 0 && (who[len] & 0xc0) == 0x80; len--)
		;
	return (int)len;
}

void past_term_set(struct past_term *t, const char *who, int64_t token, int64_t from_us, int64_t to_us,
                   const char *reason)
{
	*t = (struct past_term){ .token = token };
	snprintf(t->who, sizeof t->who, "%.*s", whole_characters(who), who);
	t->from_us = in_range(from_us) ? from_us : RECORD_TIME_UNKNOWN;
	t->to_us = in_range(to_us) && to_us >= t->from_us ? to_us : RECORD_TIME_UNKNOWN;
	snprintf(t->reason, sizeof t->reason, "%s", is_word(reason) ? reason : PAST_UNKNOWN);
}

void past_add(struct past *p, const struct past_term *t)
{
	int kept = 0;

	for (int i = 0; i < p->count; i++)
		if (!t->token || p->term[i].token < t->token)
			p->term[kept++] = p->term[i];
	if (kept == PAST_TERMS)
		memmove(p->term, p->term + 1, sizeof *p->term * (size_t)--kept);
	p->term[kept] = *t;
	p->count = kept + 1;
}

/* ---- reading ---- */

static int64_t read_time(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));
	int64_t us;

	return text && record_time_parse(text, &us) == 0 ? us : RECORD_TIME_UNKNOWN;
}

/* false: it is no term. */
static bool read_term(struct past_term *t, const json_t *object)
{
	const char *who = json_string_value(json_object_get(object, "identity"));
	const json_t *token = json_object_get(object, "token");

	if (!who || !*who || (token && !json_is_integer(token)))
		return false;
	int64_t number = json_integer_value(token); /* 0 if there is none */
	if (number < 0 || number > TOKEN_MAX)
		return false;
	past_term_set(t, who, number, read_time(object, "from"), read_time(object, "to"),
	              json_string_value(json_object_get(object, "reason")));
	return true;
}

void past_read(struct past *p, const json_t *value, int64_t last)
{
	size_t size = json_array_size(value); /* 0 if it is no array */

	p->count = 0;
	for (size_t i = size > PAST_TERMS ? size - PAST_TERMS : 0; i < size; i++) {
		struct past_term t;
		if (read_term(&t, json_array_get(value, i)) && (!last || t.token <= last))
			past_add(p, &t);
	}
}

void past_parse(struct past *p, const char *text)
{
	json_t *value = text ? json_loads(text, 0, NULL) : NULL;

	past_read(p, value, 0);
	json_decref(value);
}

/* ---- printing ---- */

static void put_time(struct buf *b, const char *key, int64_t us)
{
	char text[32];

	if (us == RECORD_TIME_UNKNOWN)
		return;
	record_time_print(us, text, sizeof text);
	json_out_text(b, key, text);
}

void past_print(struct buf *b, const struct past *p)
{
	json_out_open(b, NULL, "[");
	for (const struct past_term *t = p->term; t < p->term + p->count; t++) {
		json_out_open(b, NULL, "{");
		json_out_text(b, "identity", t->who);
		if (t->token)
			json_out_int(b, "token", t->token);
		put_time(b, "from", t->from_us);
		put_time(b, "to", t->to_us);
		json_out_text(b, "reason", t->reason);
		buf_adds(b, "}");
	}
	buf_adds(b, "]");
}
