#include "lease/debt.h"

#include "base/json_out.h"
#include "base/mem.h"
#include "lease/record_time.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_MAX (INT64_MAX / 2) /* as the record's */

static void debtor_fini(struct debtor *o)
{
	free(o->identity);
	free(o->address);
}

void debt_fini(struct debt *d)
{
	for (int i = 0; i < d->count; i++)
		debtor_fini(&d->of[i]);
	d->count = 0;
}

static void drop(struct debt *d, int i)
{
	debtor_fini(&d->of[i]);
	memmove(&d->of[i], &d->of[i + 1], sizeof *d->of * (size_t)(--d->count - i));
}

void debt_cut(struct debt *d)
{
	while (d->count > DEBT_CARRIED_MAX)
		drop(d, d->count - 1);
}

static struct debtor *find(struct debt *d, const char *identity, const char *address)
{
	for (int i = 0; i < d->count; i++)
		if (strcmp(d->of[i].identity, identity) == 0 && strcmp(d->of[i].address, address) == 0)
			return &d->of[i];
	return NULL;
}

void debt_book(struct debt *d, const struct debtor *o)
{
	struct debtor *old = find(d, o->identity, o->address);

	if (!old) {
		struct debtor *new = &d->of[d->count++];
		*new = *o;
		new->identity = mem_dup(o->identity);
		new->address = mem_dup(o->address);
		return;
	}
	bool other = strcmp(old->incarnation, o->incarnation) != 0, older = old->older || o->older || other;
	if (o->token >= old->token) {
		const struct debtor kept = *old;
		*old = *o;
		old->identity = kept.identity;
		old->address = kept.address;
	}
	old->older = older;
}

/* ---- text ---- */

static bool is_name(const char *text, size_t size)
{
	return strlen(text) < size && strspn(text, "0123456789abcdef-") == strlen(text);
}

static bool is_word(const char *text, size_t size)
{
	return strlen(text) < size && strspn(text, "abcdefghijklmnopqrstuvwxyz_") == strlen(text);
}

/* "": there is none. NULL: it is no string. */
static const char *text_of(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return value ? json_string_value(value) : "";
}

static bool read_debtor(struct debtor *o, const json_t *object)
{
	const char *identity = text_of(object, "identity"), *address = text_of(object, "address"),
		   *incarnation = text_of(object, "incarnation"), *since = text_of(object, "since"),
		   *why = text_of(object, "why");
	const json_t *token = json_object_get(object, "token");

	if (!identity || !*identity || !address || !incarnation || !is_name(incarnation, sizeof o->incarnation))
		return false;
	if (token &&
	    (!json_is_integer(token) || json_integer_value(token) < 0 || json_integer_value(token) > TOKEN_MAX))
		return false;
	*o = (struct debtor){ .identity = (char *)identity,
		              .address = (char *)address,
		              .token = json_integer_value(token),
		              .since_us = RECORD_TIME_UNKNOWN,
		              .older = json_is_true(json_object_get(object, "older")) };
	snprintf(o->incarnation, sizeof o->incarnation, "%s", incarnation);
	if (why && is_word(why, sizeof o->why))
		snprintf(o->why, sizeof o->why, "%s", why);
	if (since && record_time_parse(since, &o->since_us) < 0)
		o->since_us = RECORD_TIME_UNKNOWN;
	return true;
}

static int read_up_to(struct debt *d, const json_t *value, size_t most, struct err *err)
{
	size_t size = json_array_size(value);
	struct debtor o;

	if (!json_is_array(value) || size > most)
		return err_set(err, ERR_INVALID,
		               "\"unfenced\": expected a list of at most %d holders that nobody has fenced", DEBT_MAX);
	for (size_t i = 0; i < size; i++) {
		if (!read_debtor(&o, json_array_get(value, i))) {
			debt_fini(d);
			return err_set(
				err, ERR_INVALID,
				"\"unfenced\": expected an identity, an address, a token and an incarnation in its "
				"element %zu",
				i + 1);
		}
		debt_book(d, &o);
	}
	return 0;
}

int debt_read(struct debt *d, const json_t *value, struct err *err)
{
	return read_up_to(d, value, DEBT_MAX, err);
}

void debt_parse(struct debt *d, const char *text)
{
	json_t *value = text ? json_loads(text, 0, NULL) : NULL;
	struct err err;

	if (value && read_up_to(d, value, DEBT_CARRIED_MAX, &err) < 0)
		abort(); /* it is our own text */
	json_decref(value);
}

void debt_json(struct buf *b, const struct debt *d)
{
	char since[32];

	json_out_open(b, NULL, "[");
	for (const struct debtor *o = d->of; o < d->of + d->count; o++) {
		json_out_open(b, NULL, "{");
		json_out_text(b, "identity", o->identity);
		if (*o->address)
			json_out_text(b, "address", o->address);
		if (o->token)
			json_out_int(b, "token", o->token);
		if (*o->incarnation)
			json_out_text(b, "incarnation", o->incarnation);
		if (o->since_us != RECORD_TIME_UNKNOWN) {
			record_time_print(o->since_us, since, sizeof since);
			json_out_text(b, "since", since);
		}
		if (*o->why)
			json_out_text(b, "why", o->why);
		if (o->older)
			json_out_bool(b, "older", true);
		buf_adds(b, "}");
	}
	buf_adds(b, "]");
}

char *debt_text(const struct debt *d)
{
	struct buf b = { 0 };

	if (d->count)
		debt_json(&b, d);
	return b.data;
}

/* ---- rules ---- */

void debt_settle(struct debt *d, const char *identity, const char *incarnation)
{
	for (int i = d->count - 1; i >= 0; i--) {
		struct debtor *o = &d->of[i];
		if (!*incarnation || strcmp(o->identity, identity) != 0 || strcmp(o->incarnation, incarnation) != 0)
			continue;
		if (o->older)
			o->incarnation[0] = '\0'; /* what is left is the earlier ones' */
		else
			drop(d, i);
	}
}

bool debt_has(const char *unfenced, const char *carried)
{
	struct debt d = { 0 }, of = { 0 };
	bool all = true;

	debt_parse(&d, unfenced);
	debt_parse(&of, carried);
	for (int i = 0; i < of.count; i++) {
		const struct debtor *o = find(&d, of.of[i].identity, of.of[i].address);
		all = all && o && o->token >= of.of[i].token;
	}
	debt_fini(&d);
	debt_fini(&of);
	return all;
}

/* Nobody fences himself: it would have to prove that it is another machine than the one that it stops. */
static bool is_own(const struct debtor *o, const struct debt_candidate *c)
{
	return strcmp(o->identity, c->identity) == 0;
}

const char *debt_bars(const struct debt *d, const struct debt_candidate *c)
{
	size_t bytes = 0;

	for (const struct debtor *o = d->of; o < d->of + d->count; o++)
		bytes += strlen(o->identity) + strlen(o->address);
	if (d->count > DEBT_MAX || bytes > DEBT_TEXT_MAX)
		return "as many as the record can name may still act, and nobody has fenced them";
	for (const struct debtor *o = d->of; c->fences && o < d->of + d->count; o++)
		if (is_own(o, c) && (o->older || strcmp(o->incarnation, c->incarnation) != 0))
			return "an earlier run with its identity may still act, and nobody fences himself";
	return NULL;
}

bool debt_to_fence(const struct debt *d, const struct debt_candidate *c)
{
	for (const struct debtor *o = d->of; c->fences && o < d->of + d->count; o++)
		if (!is_own(o, c))
			return true;
	return false;
}

void debt_keep(struct debt *d, const struct debt_candidate *c, int64_t token, int64_t since_us)
{
	struct debtor self = {
		.identity = (char *)c->identity, .address = (char *)c->address, .token = token, .since_us = since_us
	};

	snprintf(self.incarnation, sizeof self.incarnation, "%s", c->incarnation);
	debt_book(d, &self);
}

void debt_fenced(struct debt *d, const struct debt_candidate *c)
{
	for (int i = d->count - 1; i >= 0; i--)
		if (!is_own(&d->of[i], c))
			drop(d, i);
}

bool debt_forgive(struct debt *d, const char *identity, int64_t token)
{
	bool any = false;

	for (int i = d->count - 1; i >= 0; i--)
		if (strcmp(d->of[i].identity, identity) == 0 && d->of[i].token == token) {
			drop(d, i);
			any = true;
		}
	return any;
}
