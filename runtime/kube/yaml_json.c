#include "kube/yaml_json.h"

#include "base/buf.h"
#include "net/http/http.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define DEPTH 64
#define NODES 100000            /* with those that aliases repeat: a few lines of YAML can mean billions of values */
#define BYTES (8 * 1024 * 1024) /* of texts, the same */

struct yaml_reader {
	yaml_parser_t parser;
	json_t *anchors; /* name: value */
	int nodes;       /* that may come yet */
	size_t bytes;
	struct err *err;
};

static json_t *fail_at(const struct yaml_reader *r, const yaml_mark_t *at, const char *what)
{
	err_set(r->err, ERR_INVALID, "line %zu, column %zu: %s", at->line + 1, at->column + 1, what);
	return NULL;
}

static int next_event(struct yaml_reader *r, yaml_event_t *e)
{
	if (yaml_parser_parse(&r->parser, e))
		return 0;
	return err_set(r->err, ERR_INVALID, "line %zu, column %zu: no YAML: %s", r->parser.problem_mark.line + 1,
	               r->parser.problem_mark.column + 1, r->parser.problem ? r->parser.problem : "unreadable");
}

/* ---- bounds ---- */

static bool take_bytes(struct yaml_reader *r, size_t len)
{
	bool fits = len <= r->bytes;

	r->bytes -= fits ? len : 0;
	return fits;
}

/* Counts the value and all that is in it, as often as it is named. depth: of lists and maps around it. What is too much;
 * NULL: nothing. */
static const char *count_value(struct yaml_reader *r, json_t *value, int depth)
{
	const char *key, *wrong = NULL;
	json_t *each;
	size_t i;

	if (depth >= DEPTH && (json_is_array(value) || json_is_object(value)))
		return "nested too deeply, at most 64 levels are expected";
	if (--r->nodes < 0)
		return "more than 100000 values, with those that aliases repeat";
	bool fits = take_bytes(r, json_string_length(value));
	json_array_foreach(value, i, each)
	{
		wrong = wrong ? wrong : count_value(r, each, depth + 1);
	}
	json_object_foreach(value, key, each)
	{
		fits = fits && take_bytes(r, strlen(key));
		wrong = wrong ? wrong : count_value(r, each, depth + 1);
	}
	return wrong ? wrong : fits ? NULL : "more than 8 MB of text, with what aliases repeat";
}

/* ---- scalars ---- */

/* As JSON would print it, so that it can be turned back into the same text. */
static bool is_whole(const char *s, size_t len)
{
	size_t sign = len > 0 && *s == '-';

	if (len == sign || len - sign > 18 || (s[sign] == '0' && (len > sign + 1 || sign)))
		return false;
	return strspn(s + sign, "0123456789") == len - sign;
}

/* YAML 1.1's words, which client-go reads. -1: it is none of them. */
static int truth_of(const char *s)
{
	static const char *const words[] = { "n",     "y",    "N",     "Y",    "no",    "yes", "No",  "Yes",
		                             "NO",    "YES",  "off",   "on",   "Off",   "On",  "OFF", "ON",
		                             "false", "true", "False", "True", "FALSE", "TRUE" };

	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (strcmp(s, words[i]) == 0)
			return (int)(i % 2);
	return -1;
}

static bool is_null(const char *s)
{
	return !*s || strcmp(s, "~") == 0 || strcmp(s, "null") == 0 || strcmp(s, "Null") == 0 || strcmp(s, "NULL") == 0;
}

/* !!binary is base64 of a text. */
static json_t *read_binary(const struct yaml_reader *r, const yaml_event_t *e)
{
	struct buf b = { 0 };
	bool good = http_unbase64(&b, (const char *)e->data.scalar.value, e->data.scalar.length) == 0;
	json_t *text = good ? json_stringn(b.len ? b.data : "", b.len) : NULL;

	buf_fini(&b);
	return text ? text : fail_at(r, &e->start_mark, good ? "the text is not UTF-8" : "!!binary: expected base64");
}

static json_t *read_scalar(const struct yaml_reader *r, const yaml_event_t *e)
{
	const char *s = (const char *)e->data.scalar.value, *tag = (const char *)e->data.scalar.tag;
	size_t len = e->data.scalar.length;

	if (tag && strcmp(tag, "tag:yaml.org,2002:binary") == 0)
		return read_binary(r, e);
	bool plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	if (plain && is_null(s))
		return json_null();
	if (plain && is_whole(s, len))
		return json_integer(strtoll(s, NULL, 10));
	if (plain && truth_of(s) >= 0)
		return json_boolean(truth_of(s));
	json_t *text = json_stringn(s, len);
	return text ? text : fail_at(r, &e->start_mark, "the text is not UTF-8");
}

/* ---- lists and maps ---- */

static json_t *read_value(struct yaml_reader *r, const yaml_event_t *e, int depth);

/* The value that comes next; NULL: it could not be read, or, where *ends, the list or map has ended. */
static json_t *read_next(struct yaml_reader *r, int depth, bool *ends)
{
	yaml_event_t e;

	*ends = false;
	if (next_event(r, &e) < 0)
		return NULL;
	*ends = e.type == YAML_SEQUENCE_END_EVENT;
	json_t *value = *ends ? NULL : read_value(r, &e, depth);
	yaml_event_delete(&e);
	return value;
}

static int read_list(struct yaml_reader *r, json_t *list, int depth)
{
	bool ends = false;
	json_t *value;

	while ((value = read_next(r, depth + 1, &ends)))
		json_array_append_new(list, value);
	return ends ? 0 : -1;
}

static int read_pair(struct yaml_reader *r, json_t *object, const yaml_event_t *key, int depth)
{
	const char *name = (const char *)key->data.scalar.value, *wrong = NULL;
	bool ends;

	if (key->type != YAML_SCALAR_EVENT || strlen(name) != key->data.scalar.length)
		wrong = "a key is expected to be a text";
	else if (strcmp(name, "<<") == 0)
		wrong = "maps are not merged here (<<)";
	else if (json_object_get(object, name))
		wrong = "the key is there twice";
	else if (!take_bytes(r, strlen(name)))
		wrong = "more than 8 MB of text";
	json_t *value = wrong ? fail_at(r, &key->start_mark, wrong) : read_next(r, depth + 1, &ends);
	if (!value || json_object_set_new(object, name, value) == 0)
		return value ? 0 : -1;
	fail_at(r, &key->start_mark, "the key is not UTF-8");
	return -1;
}

static int read_map(struct yaml_reader *r, json_t *object, int depth)
{
	for (;;) {
		yaml_event_t key;
		if (next_event(r, &key) < 0)
			return -1;
		bool ends = key.type == YAML_MAPPING_END_EVENT;
		int done = ends ? 0 : read_pair(r, object, &key, depth);
		yaml_event_delete(&key);
		if (ends || done < 0)
			return done;
	}
}

/* e: where it begins. A value has its anchor's name when it is whole, so it cannot be in itself. */
static json_t *read_value(struct yaml_reader *r, const yaml_event_t *e, int depth)
{
	bool list = e->type == YAML_SEQUENCE_START_EVENT, map = e->type == YAML_MAPPING_START_EVENT;
	const yaml_char_t *anchor = list  ? e->data.sequence_start.anchor
	                            : map ? e->data.mapping_start.anchor
	                                  : e->data.scalar.anchor;
	json_t *value;

	if (e->type == YAML_ALIAS_EVENT) {
		value = json_incref(json_object_get(r->anchors, (const char *)e->data.alias.anchor));
		if (!value)
			return fail_at(r, &e->start_mark, "an alias of nothing that stands before it");
		anchor = NULL;
	} else {
		value = list ? json_array() : map ? json_object() : read_scalar(r, e);
	}
	const char *wrong = value ? count_value(r, value, depth) : NULL;
	if (wrong)
		fail_at(r, &e->start_mark, wrong);
	if (wrong || (list && read_list(r, value, depth) < 0) || (map && read_map(r, value, depth) < 0)) {
		json_decref(value);
		return NULL;
	}
	if (value && anchor)
		json_object_set(r->anchors, (const char *)anchor, value);
	return value;
}

/* The first document, which is all that is read, to its end. */
static json_t *read_document(struct yaml_reader *r)
{
	yaml_event_t e = { .type = YAML_STREAM_START_EVENT };
	json_t *value;

	while (e.type == YAML_STREAM_START_EVENT || e.type == YAML_DOCUMENT_START_EVENT) {
		yaml_event_delete(&e);
		if (next_event(r, &e) < 0)
			return NULL;
	}
	bool empty = e.type == YAML_STREAM_END_EVENT;
	value = empty ? json_null() : read_value(r, &e, 0);
	yaml_event_delete(&e);
	if (empty || !value)
		return value;
	if (next_event(r, &e) < 0) {
		json_decref(value);
		return NULL;
	}
	yaml_event_delete(&e);
	return value;
}

json_t *yaml_json(const char *text, size_t len, struct err *err)
{
	struct yaml_reader r = { .nodes = NODES, .bytes = BYTES, .err = err };

	if (!yaml_parser_initialize(&r.parser)) {
		err_set(err, ERR_SYSTEM, "libyaml does not start");
		return NULL;
	}
	yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, len);
	r.anchors = json_object();
	json_t *value = read_document(&r);
	json_decref(r.anchors);
	yaml_parser_delete(&r.parser);
	return value;
}
