#include "locks/kubernetes/yaml_json.h"

#include "base/buf.h"
#include "http/http.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define DEPTH 64
#define NODES 100000            /* in the text, and after aliases: a few lines of YAML can mean billions of values */
#define NAMES 1000              /* anchors and aliases: libyaml compares each with all before it */
#define BYTES (8 * 1024 * 1024) /* of texts, after aliases */
#define TOO_LONG "aliases make more than 8 MB of text of it"

struct yaml_conversion {
	yaml_document_t *doc;
	int nodes;
	size_t bytes;
	struct err *err;
};

static int no_yaml(const yaml_parser_t *parser, struct err *err)
{
	return err_set(err, ERR_INVALID, "line %zu, column %zu: no YAML: %s", parser->problem_mark.line + 1,
	               parser->problem_mark.column + 1, parser->problem ? parser->problem : "unreadable");
}

/* ---- what libyaml's loader must not see: it takes its time with depth, and its memory with everything ---- */

struct counts {
	int depth, nodes, names;
};

/* true: the end of the document. */
static bool count_event(struct counts *c, const yaml_event_t *e)
{
	const yaml_char_t *anchor = NULL;

	switch (e->type) {
	case YAML_SCALAR_EVENT:
		anchor = e->data.scalar.anchor;
		c->nodes++;
		break;
	case YAML_SEQUENCE_START_EVENT:
		anchor = e->data.sequence_start.anchor;
		c->nodes++, c->depth++;
		break;
	case YAML_MAPPING_START_EVENT:
		anchor = e->data.mapping_start.anchor;
		c->nodes++, c->depth++;
		break;
	case YAML_ALIAS_EVENT:
		c->names++;
		break;
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		c->depth--;
		break;
	case YAML_NO_EVENT:
	case YAML_STREAM_START_EVENT:
	case YAML_DOCUMENT_START_EVENT:
		break;
	case YAML_STREAM_END_EVENT:
	case YAML_DOCUMENT_END_EVENT:
		return true;
	}
	c->names += anchor != NULL;
	return false;
}

static int check_counts(const struct counts *c, const yaml_mark_t *at, struct err *err)
{
	if (c->depth > DEPTH)
		return err_set(err, ERR_INVALID,
		               "line %zu, column %zu: nested too deeply, at most %d levels are expected", at->line + 1,
		               at->column + 1, DEPTH);
	if (c->nodes > NODES)
		return err_set(err, ERR_INVALID, "line %zu: more than %d values", at->line + 1, NODES);
	if (c->names > NAMES)
		return err_set(err, ERR_INVALID, "line %zu: more than %d anchors and aliases", at->line + 1, NAMES);
	return 0;
}

/* The first document, which is all that is read. */
static int check_size(yaml_parser_t *parser, struct err *err)
{
	struct counts c = { 0 };
	yaml_event_t event;

	for (bool ends = false; !ends;) {
		if (!yaml_parser_parse(parser, &event))
			return no_yaml(parser, err);
		ends = count_event(&c, &event);
		yaml_mark_t at = event.start_mark;
		yaml_event_delete(&event);
		if (check_counts(&c, &at, err) < 0)
			return -1;
	}
	return 0;
}

/* ---- values ---- */

static json_t *convert(struct yaml_conversion *r, int index, int depth);

static json_t *node_fail(struct yaml_conversion *r, const yaml_node_t *node, const char *what)
{
	err_set(r->err, ERR_INVALID, "line %zu, column %zu: %s", node->start_mark.line + 1, node->start_mark.column + 1,
	        what);
	return NULL;
}

/* As JSON would print it, so that it can be turned back into the same text. */
static bool is_whole(const char *s, size_t len)
{
	size_t sign = len > 0 && *s == '-';

	if (len == sign || len - sign > 18 || (s[sign] == '0' && (len > sign + 1 || sign)))
		return false;
	return strspn(s + sign, "0123456789") == len - sign;
}

/* false: that is too much. */
static bool take_bytes(struct yaml_conversion *r, const yaml_node_t *node)
{
	bool fits = node->data.scalar.length <= r->bytes;

	r->bytes -= fits ? node->data.scalar.length : 0;
	return fits;
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
static json_t *convert_binary(struct yaml_conversion *r, const yaml_node_t *node)
{
	struct buf b = { 0 };
	bool good = http_unbase64(&b, (const char *)node->data.scalar.value, node->data.scalar.length) == 0;
	json_t *text = good ? json_stringn(b.len ? b.data : "", b.len) : NULL;

	buf_fini(&b);
	return text ? text : node_fail(r, node, good ? "the text is not UTF-8" : "!!binary: expected base64");
}

static json_t *convert_scalar(struct yaml_conversion *r, const yaml_node_t *node)
{
	const char *s = (const char *)node->data.scalar.value;
	size_t len = node->data.scalar.length;

	if (!take_bytes(r, node))
		return node_fail(r, node, TOO_LONG);
	if (strcmp((const char *)node->tag, "tag:yaml.org,2002:binary") == 0)
		return convert_binary(r, node);
	json_t *text = json_stringn(s, len);
	if (!text)
		return node_fail(r, node, "the text is not UTF-8");
	if (node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
		return text;
	int truth = truth_of(s);
	bool null = is_null(s), whole = is_whole(s, len);
	if (truth < 0 && !null && !whole)
		return text;
	json_decref(text);
	return null ? json_null() : whole ? json_integer(strtoll(s, NULL, 10)) : json_boolean(truth);
}

static json_t *convert_list(struct yaml_conversion *r, const yaml_node_t *node, int depth)
{
	json_t *list = json_array();

	for (yaml_node_item_t *i = node->data.sequence.items.start; i < node->data.sequence.items.top; i++)
		if (json_array_append_new(list, convert(r, *i, depth + 1)) < 0) {
			json_decref(list);
			return NULL;
		}
	return list;
}

static int convert_pair(struct yaml_conversion *r, json_t *object, const yaml_node_pair_t *pair, int depth)
{
	const yaml_node_t *key = yaml_document_get_node(r->doc, pair->key);

	if (key->type != YAML_SCALAR_NODE || strlen((const char *)key->data.scalar.value) != key->data.scalar.length) {
		node_fail(r, key, "a key is expected to be a text");
		return -1;
	}
	if (!take_bytes(r, key)) {
		node_fail(r, key, TOO_LONG);
		return -1;
	}
	const char *name = (const char *)key->data.scalar.value;
	bool merges = strcmp(name, "<<") == 0;
	if (merges || json_object_get(object, name)) {
		node_fail(r, key, merges ? "maps are not merged here (<<)" : "the key is there twice");
		return -1;
	}
	json_t *value = convert(r, pair->value, depth + 1);
	if (!value)
		return -1;
	if (json_object_set_new(object, name, value) < 0) {
		node_fail(r, key, "the key is not UTF-8");
		return -1;
	}
	return 0;
}

static json_t *convert_map(struct yaml_conversion *r, const yaml_node_t *node, int depth)
{
	json_t *object = json_object();

	for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++)
		if (convert_pair(r, object, p, depth) < 0) {
			json_decref(object);
			return NULL;
		}
	return object;
}

static json_t *convert(struct yaml_conversion *r, int index, int depth)
{
	const yaml_node_t *node = yaml_document_get_node(r->doc, index);

	if (depth > DEPTH)
		return node_fail(r, node, "nested too deeply, or in itself, by its aliases");
	if (--r->nodes < 0)
		return node_fail(r, node, "aliases make too much of it");
	if (node->type == YAML_SCALAR_NODE)
		return convert_scalar(r, node);
	return node->type == YAML_SEQUENCE_NODE ? convert_list(r, node, depth) : convert_map(r, node, depth);
}

static int begin_parser(yaml_parser_t *parser, const char *text, size_t len, struct err *err)
{
	if (!yaml_parser_initialize(parser))
		return err_set(err, ERR_SYSTEM, "libyaml does not start");
	yaml_parser_set_input_string(parser, (const unsigned char *)text, len);
	return 0;
}

json_t *yaml_json(const char *text, size_t len, struct err *err)
{
	yaml_parser_t parser;
	yaml_document_t doc;
	json_t *value = NULL;

	if (begin_parser(&parser, text, len, err) < 0)
		return NULL;
	int sized = check_size(&parser, err);
	yaml_parser_delete(&parser);
	if (sized < 0 || begin_parser(&parser, text, len, err) < 0)
		return NULL;
	if (!yaml_parser_load(&parser, &doc)) {
		no_yaml(&parser, err);
	} else {
		struct yaml_conversion r = { .doc = &doc, .nodes = NODES, .bytes = BYTES, .err = err };
		value = yaml_document_get_root_node(&doc) ? convert(&r, 1, 0) : json_null();
		yaml_document_delete(&doc);
	}
	yaml_parser_delete(&parser);
	return value;
}
