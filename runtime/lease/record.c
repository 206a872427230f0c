#include "lease/record.h"

#include "base/buf.h"
#include "base/hash.h"
#include "base/json_bound.h"
#include "base/mem.h"
#include "lease/advice.h"
#include "lease/debt.h"
#include "lease/past.h"

#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PRINT_VALUE \
	(JSON_ENCODE_ANY | JSON_REAL_PRECISION(17)) /* for others' values: 17 digits lose nothing of a number */
#define LONGER 6 /* a value is printed at most so many times longer than it was written: 0.1, or a DEL in a text */
#define MAX_MS (INT64_MAX / 1000000) /* a longer duration would overflow in nanoseconds */

enum kind {
	STRING,  /* char *, any text */
	NAME,    /* char[size], hex digits and dashes */
	COUNT,   /* 64 bits, 0 to max */
	TIME,    /* int64_t, microseconds */
	SECONDS, /* leaseDurationSeconds: printed from lease_ms, and read into it unless leaseDurationMs follows */
	STATE,
	VALUE,  /* char *, any JSON as text; NULL = none */
	ADVICE, /* struct advice *; max: the part of it */
	PAST,   /* char *, as past_print writes it; NULL = none */
	DEBT,   /* char *, as debt_text writes it; NULL = none */
};

struct record_field {
	const char *key;
	enum kind kind;
	size_t at, size; /* in struct record */
	int64_t max;     /* COUNT, SECONDS; ADVICE */
	bool always;     /* printed even when it is 0 or "" */
};

#define AT(member) offsetof(struct record, member), sizeof((struct record *)0)->member

/* In the order in which they are printed. leaseDurationSeconds comes before leaseDurationMs, which overrides it, and
 * term before the advice, which must be of that term, and token before pastTerms, which must not have a larger one. */
static const struct record_field fields[] = {
	{ "holderIdentity", STRING, AT(holder), 0, true },
	{ "leaseDurationSeconds", SECONDS, AT(lease_ms), MAX_MS / 1000, true },
	{ "acquireTime", TIME, AT(acquired_us) },
	{ "renewTime", TIME, AT(renewed_us) },
	{ "leaderTransitions", COUNT, AT(transitions), INT64_MAX, true },
	{ "leaseDurationMs", COUNT, AT(lease_ms), MAX_MS, true },
	{ "renewDeadlineMs", COUNT, AT(renew_ms), MAX_MS },
	{ "retryPeriodMs", COUNT, AT(retry_ms), MAX_MS },
	{ "term", COUNT, AT(term), INT64_MAX },
	{ "token", COUNT, AT(token), INT64_MAX / 2 }, /* so that there is always a larger one */
	{ "state", STATE, AT(state) },
	{ "write", NAME, AT(write) },
	{ "address", STRING, AT(address) },
	{ "previousHolder", STRING, AT(previous_holder) },
	{ "releasedByForce", STRING, AT(forced) },
	{ "paidByHand", STRING, AT(paid) },
	{ "incarnation", NAME, AT(incarnation) },
	{ "writes", COUNT, AT(writes), INT64_MAX },
	{ "pid", COUNT, AT(pid), INT32_MAX },
	{ "pidStart", COUNT, AT(pid_start), INT64_MAX },
	{ "bootId", NAME, AT(boot_id) },
	{ "pidNamespace", COUNT, AT(pid_namespace), INT64_MAX },
	{ "netNamespace", COUNT, AT(net_namespace), INT64_MAX },
	{ "tree", STRING, AT(tree) },
	{ "storeId", NAME, AT(store) },
	{ "checkpoint", VALUE, AT(checkpoint) },
	{ "next", ADVICE, AT(advice), ADVICE_NEXT },
	{ "for", ADVICE, AT(advice), ADVICE_FOR },
	{ "wanted", ADVICE, AT(advice), ADVICE_WANTED },
	{ "nomination", ADVICE, AT(advice), ADVICE_NOMINATION },
	{ "fencing", COUNT, AT(fencing), INT64_MAX },
	{ "unfenced", DEBT, AT(unfenced) },
	{ "pastTerms", PAST, AT(past) },
};

#define FIELDS (sizeof fields / sizeof fields[0])

static const char *const state_names[] = {
	[RECORD_UNSAID] = "",
	[RECORD_LEADING] = "leading",
	[RECORD_RELEASED] = "released",
};

/* Where a field is a text on the heap; NULL: it is none. */
static char **heap_text(struct record *r, const struct record_field *f)
{
	bool text = f->kind == STRING || f->kind == VALUE || f->kind == PAST || f->kind == DEBT;

	return text ? (char **)(void *)((char *)r + f->at) : NULL;
}

void record_init(struct record *r)
{
	*r = (struct record){ .acquired_us = RECORD_TIME_UNKNOWN, .renewed_us = RECORD_TIME_UNKNOWN };
	for (size_t i = 0; i < FIELDS; i++)
		if (fields[i].kind == STRING)
			*heap_text(r, &fields[i]) = mem_dup("");
}

static void release(struct record *r)
{
	char **text;

	for (size_t i = 0; i < FIELDS; i++)
		if ((text = heap_text(r, &fields[i])))
			free(*text);
	free(r->advice);
	json_decref(r->extra);
}

void record_fini(struct record *r)
{
	release(r);
	*r = (struct record){ 0 };
}

void record_clear(struct record *r)
{
	release(r);
	record_init(r);
}

void record_copy(struct record *to, const struct record *from)
{
	struct record copy = *from;
	char **text;

	for (size_t i = 0; i < FIELDS; i++)
		if ((text = heap_text(&copy, &fields[i])))
			*text = mem_dup(*text);
	copy.advice = advice_copy(from->advice);
	copy.extra = json_deep_copy(from->extra);
	release(to);
	*to = copy;
}

void record_take(struct record *to, struct record *from)
{
	release(to);
	*to = *from;
	record_init(from);
}

/* ---- reading ---- */

static const struct record_field *field_named(const char *key)
{
	for (size_t i = 0; i < FIELDS; i++)
		if (strcmp(fields[i].key, key) == 0)
			return &fields[i];
	return NULL;
}

/* Says that the key has the value `found` (cut if it is long), and not what was expected. -1. */
static int wrong(const char *key, const json_t *found, const char *expected, struct err *err)
{
	char *text = json_dumps(found, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);

	err_set(err, ERR_INVALID, "\"%s\" is %.80s%s, expected %s", key, text ? text : "unprintable",
	        text && strlen(text) > 80 ? "..." : "", expected);
	free(text);
	return -1;
}

static int get_count(const struct record_field *f, const json_t *value, int64_t *out, struct err *err)
{
	char expected[80];

	if (json_is_integer(value) && json_integer_value(value) >= 0 && json_integer_value(value) <= f->max) {
		*out = json_integer_value(value);
		return 0;
	}
	snprintf(expected, sizeof expected, "a whole number from 0 to %" PRId64, f->max);
	return wrong(f->key, value, expected, err);
}

static int get_name(const struct record_field *f, const json_t *value, char *out, struct err *err)
{
	const char *text = json_string_value(value);
	char expected[80];

	if (text && strlen(text) < f->size && strspn(text, "0123456789abcdef-") == strlen(text)) {
		snprintf(out, f->size, "%s", text);
		return 0;
	}
	snprintf(expected, sizeof expected, "at most %zu of the characters 0-9, a-f and '-'", f->size - 1);
	return wrong(f->key, value, expected, err);
}

static int get_state(const struct record_field *f, const json_t *value, enum record_state *out, struct err *err)
{
	const char *text = json_string_value(value);

	for (unsigned s = RECORD_LEADING; text && s <= RECORD_RELEASED; s++)
		if (strcmp(text, state_names[s]) == 0) {
			*out = (enum record_state)s;
			return 0;
		}
	return wrong(f->key, value, "\"leading\" or \"released\"", err);
}

static void set_past(struct record *r, const struct past *p)
{
	struct buf b = { 0 };

	if (p->count)
		past_print(&b, p);
	free(r->past);
	r->past = b.data;
}

static void get_past(struct record *r, const json_t *value)
{
	struct past p;

	past_read(&p, value, r->token);
	set_past(r, &p);
}

static int get_debt(struct record *r, const json_t *value, struct err *err)
{
	struct debt d = { 0 };

	if (debt_read(&d, value, err) < 0)
		return -1;
	free(r->unfenced);
	r->unfenced = debt_text(&d);
	debt_fini(&d);
	return 0;
}

static int get_field(struct record *r, const struct record_field *f, const json_t *value, struct err *err)
{
	void *slot = (char *)r + f->at;
	int64_t seconds;

	switch (f->kind) {
	case STRING:
		if (!json_is_string(value))
			return wrong(f->key, value, "a string", err);
		mem_replace(slot, json_string_value(value));
		return 0;
	case NAME:
		return get_name(f, value, slot, err);
	case COUNT:
		return get_count(f, value, slot, err);
	case SECONDS:
		if (get_count(f, value, &seconds, err) < 0)
			return -1;
		r->lease_ms = seconds * 1000;
		return 0;
	case TIME:
		if (!json_is_string(value) || record_time_parse(json_string_value(value), slot) < 0)
			return wrong(f->key, value, "a time such as \"2024-05-01T12:00:00.000000Z\"", err);
		return 0;
	case STATE:
		return get_state(f, value, slot, err);
	case VALUE:
		*(char **)slot = json_dumps(value, PRINT_VALUE | JSON_COMPACT);
		return 0;
	case ADVICE:
		advice_read(slot, (enum advice_part)f->max, value, r->term);
		return 0;
	case PAST:
		get_past(r, value);
		return 0;
	case DEBT:
		return get_debt(r, value, err);
	}
	return 0;
}

/* Reads the known fields in the table's order, whatever their order in the text. null counts as absent: client-go
 * writes it where it has no time. */
static int get_known(struct record *r, const json_t *object, struct err *err)
{
	for (size_t i = 0; i < FIELDS; i++) {
		const json_t *value = json_object_get(object, fields[i].key);
		if (value && !json_is_null(value) && get_field(r, &fields[i], value, err) < 0)
			return -1;
	}
	return 0;
}

static void get_extra(struct record *r, json_t *object)
{
	const char *key;
	json_t *value;

	json_object_foreach(object, key, value)
	{
		if (field_named(key))
			continue;
		if (!r->extra)
			r->extra = json_object();
		json_object_set(r->extra, key, value);
	}
}

static bool has(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return value && !json_is_null(value);
}

static int check_kind(const json_t *root, struct err *err)
{
	bool holder = has(root, "holderIdentity"), duration = has(root, "leaseDurationSeconds");

	if (!holder && !duration)
		return err_set(err, ERR_FOREIGN,
		               "JSON, but no election record: it has neither \"holderIdentity\" nor "
		               "\"leaseDurationSeconds\"");
	if (!holder || !duration)
		return err_set(err, ERR_INVALID, "\"%s\" is missing, expected in every election record",
		               holder ? "leaseDurationSeconds" : "holderIdentity");
	return 0;
}

/* jansson's message quotes the text, which may be binary: only printable characters are passed on. */
static int no_json(const json_error_t *why, struct err *err)
{
	char text[sizeof why->text];

	snprintf(text, sizeof text, "%s", why->text);
	for (char *c = text; *c; c++)
		if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7e)
			*c = '?';
	return err_set(err, ERR_INVALID, "no JSON: line %d, column %d: %s", why->line, why->column, text);
}

static void put_extra(struct buf *b, json_t *extra, const char **largest);

/* Whoever acquires the lock writes the checkpoint and the unknown fields again: they must leave room for its own. */
static int check_kept(const struct record *r, size_t len, struct err *err)
{
	struct buf b = { 0 };
	const char *largest = NULL;

	if (len <= RECORD_KEPT_MAX / LONGER)
		return 0;
	if (r->checkpoint && strlen(r->checkpoint) > RECORD_KEPT_MAX)
		return err_set(
			err, ERR_INVALID,
			"\"checkpoint\" would have %zu bytes when it is written again, at most %d leave room for an election: "
			"make it shorter",
			strlen(r->checkpoint), RECORD_KEPT_MAX);
	put_extra(&b, r->extra, &largest);
	size_t kept = b.len;
	buf_fini(&b);
	if (kept <= RECORD_KEPT_MAX)
		return 0;
	return err_set(
		err, ERR_INVALID,
		"the fields that are not Lunarch's, of which \"%.80s\" is the largest, would have %zu bytes when they are "
		"written again, at most %d leave room for an election: keep them elsewhere",
		largest, kept, RECORD_KEPT_MAX);
}

int record_parse(struct record *r, const char *text, size_t len, struct err *err)
{
	json_error_t why;
	/* Duplicate keys are refused: another program might read the other one of two holders. */
	json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
	struct record parsed;

	if (!root && json_bound_is_gzip(text, len))
		return err_set(err, ERR_INVALID, JSON_GZIP);
	if (!root)
		return no_json(&why, err);
	if (check_kind(root, err) < 0) {
		json_decref(root);
		return -1;
	}
	record_init(&parsed);
	if (get_known(&parsed, root, err) < 0) {
		json_decref(root);
		release(&parsed);
		return -1;
	}
	get_extra(&parsed, root);
	json_decref(root);
	if (check_kept(&parsed, len, err) < 0) {
		release(&parsed);
		return -1;
	}
	release(r);
	*r = parsed;
	return 0;
}

/* ---- printing ---- */

/* Whole seconds for clients that know no milliseconds: rounded up, so that they never wait less than we do. Those
 * clients also compare times cut to whole seconds, which hides up to one second when renewals are closer than that. */
int64_t record_seconds(const struct record *r)
{
	return (r->lease_ms + 999) / 1000 + (r->retry_ms > 0 && r->retry_ms < 1000);
}

/* A record is printed at every renewal: no printf in what follows. */

static void put_separator(struct buf *b)
{
	buf_adds(b, b->len ? ",\n  " : "{\n  ");
}

/* Our own keys need no escapes. */
static void put_key(struct buf *b, const char *key)
{
	size_t len = strlen(key);

	put_separator(b);
	char *to = buf_more(b, len + 4);
	to[0] = '"';
	memcpy(to + 1, key, len);
	memcpy(to + 1 + len, "\": ", 3);
}

static void put_text(struct buf *b, const struct record_field *f, const char *text)
{
	if (!*text && !f->always)
		return;
	put_key(b, f->key);
	buf_json(b, text);
}

/* Text of ours, in which nothing needs an escape. */
static void put_plain(struct buf *b, const struct record_field *f, const char *text)
{
	if (!*text)
		return;
	put_key(b, f->key);
	buf_add(b, "\"", 1);
	buf_adds(b, text);
	buf_add(b, "\"", 1);
}

static void put_count(struct buf *b, const struct record_field *f, int64_t n)
{
	char digits[24], *at = digits + sizeof digits;
	uint64_t rest = n < 0 ? -(uint64_t)n : (uint64_t)n;

	if (n == 0 && !f->always)
		return;
	do
		*--at = (char)('0' + rest % 10);
	while (rest /= 10);
	if (n < 0)
		*--at = '-';
	put_key(b, f->key);
	buf_add(b, at, (size_t)(digits + sizeof digits - at));
}

static void put_time(struct buf *b, const struct record_field *f, int64_t us)
{
	char text[32];

	record_time_print(us, text, sizeof text);
	put_plain(b, f, text);
}

static void put_value(struct buf *b, const struct record_field *f, const char *json)
{
	if (!json)
		return;
	put_key(b, f->key);
	buf_adds(b, json);
}

static void put_advice(struct buf *b, const struct record_field *f, const struct record *r)
{
	enum advice_part part = (enum advice_part)f->max;

	if (!advice_has(r->advice, part))
		return;
	put_key(b, f->key);
	advice_print(b, r->advice, part, r->term);
}

static void put_field(struct buf *b, const struct record_field *f, const struct record *r)
{
	const void *slot = (const char *)r + f->at;

	switch (f->kind) {
	case STRING:
		put_text(b, f, *(char *const *)slot);
		break;
	case NAME:
		put_plain(b, f, slot);
		break;
	case COUNT:
		put_count(b, f, *(const int64_t *)slot);
		break;
	case SECONDS:
		put_count(b, f, record_seconds(r));
		break;
	case TIME:
		put_time(b, f, *(const int64_t *)slot);
		break;
	case STATE:
		put_plain(b, f, state_names[r->state]);
		break;
	case VALUE:
		put_value(b, f, *(char *const *)slot);
		break;
	case ADVICE:
		put_advice(b, f, r);
		break;
	case PAST:
	case DEBT:
		put_value(b, f, *(char *const *)slot);
		break;
	}
}

/* largest: gets the key of the longest field; may be NULL. */
static void put_extra(struct buf *b, json_t *extra, const char **largest)
{
	const char *key;
	json_t *value;
	size_t most = 0;

	json_object_foreach(extra, key, value)
	{
		char *text = json_dumps(value, PRINT_VALUE);
		if (largest && text && strlen(text) > most) {
			most = strlen(text);
			*largest = key;
		}
		put_separator(b);
		buf_json(b, key);
		buf_adds(b, ": ");
		buf_adds(b, text ? text : "null");
		free(text);
	}
}

char *record_print(const struct record *r)
{
	struct buf b = { 0 };

	for (size_t i = 0; i < FIELDS; i++)
		put_field(&b, &fields[i], r);
	put_extra(&b, r->extra, NULL);
	buf_adds(&b, "\n}\n");
	return b.data;
}

void record_note_past(struct record *r, const char *who, int64_t token, const char *reason)
{
	struct buf b = { 0 };
	struct past_term t;
	struct past p;

	past_term_set(&t, who, token, r->acquired_us, r->renewed_us, reason);
	past_parse(&p, r->past);
	past_add(&p, &t);
	/* A version that does not know the field counts it to the unknown ones, and refuses a record with too many. */
	put_extra(&b, r->extra, NULL);
	if (b.len > RECORD_KEPT_MAX - PAST_MAX_BYTES)
		p.count = 0;
	buf_fini(&b);
	set_past(r, &p);
}

int record_checkpoint_check(const char *text, struct err *err)
{
	json_error_t why;
	size_t len = strlen(text);

	if (len > RECORD_CHECKPOINT_MAX)
		return err_set(err, ERR_FULL,
		               "the checkpoint has %zu bytes as JSON, at most %d fit into the lock's record", len,
		               RECORD_CHECKPOINT_MAX);
	char *nested = mem_printf("[%s]", text); /* one level deeper, as in a record: jansson limits the depth */
	json_t *list = json_loads(nested, JSON_REJECT_DUPLICATES, &why);
	bool one = list && json_array_size(list) == 1;
	free(nested);
	json_decref(list);
	if (!list)
		return no_json(&why, err);
	return one ? 0 : err_set(err, ERR_INVALID, "the checkpoint is not one JSON value");
}

/* ---- comparing ---- */

/* A hash against accidents is enough: nobody gains by making two records have one hash. */
static uint64_t mix_text(uint64_t hash, const char *s)
{
	return hash_fnv(hash, s, strlen(s) + 1);
}

uint64_t record_sight_id(const struct record *r)
{
	const int64_t numbers[] = { (int64_t)r->state, (int64_t)r->term, r->token,      r->lease_ms,   r->renew_ms,
		                    r->retry_ms,       r->acquired_us,   r->renewed_us, r->transitions };
	uint64_t hash = HASH_FNV_SEED;

	hash = mix_text(hash, r->holder);
	hash = mix_text(hash, r->incarnation);
	hash = mix_text(hash, r->write);
	return hash_fnv(hash, numbers, sizeof numbers);
}

bool record_fences(const struct record *r)
{
	return r->fencing && r->fencing == r->term;
}

uint64_t record_write_id(const struct record *r)
{
	uint64_t id = 0;

	if (!r->write[0])
		return 0;
	/* 16 hex digits: 64 of the 128 random bits. */
	for (int i = 0; i < 16 && isxdigit((unsigned char)r->write[i]); i++)
		id = id << 4 | (uint64_t)(r->write[i] <= '9' ? r->write[i] - '0' : r->write[i] - 'a' + 10);
	return id ? id : 1;
}
