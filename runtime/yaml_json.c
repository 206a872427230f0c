#include "yaml_json.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define DEPTH 64
#define NODES 200000 /* after aliases: a few lines of YAML can mean billions of values */

struct reading {
	yaml_document_t *doc;
	int left;
	struct err *err;
};

static json_t *convert(struct reading *r, int index, int depth);

static json_t *fail(struct reading *r, const yaml_node_t *node, const char *what)
{
	err_set(r->err, ERR_INVALID, "line %zu, column %zu: %s", node->start_mark.line + 1, node->start_mark.column + 1, what);
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

static json_t *convert_scalar(struct reading *r, const yaml_node_t *node)
{
	const char *s = (const char *)node->data.scalar.value;
	size_t len = node->data.scalar.length;
	json_t *text = json_stringn(s, len);

	if (!text)
		return fail(r, node, "the text is not UTF-8");
	if (node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
		return text;
	bool null = len == 0 || strcmp(s, "~") == 0 || strcmp(s, "null") == 0;
	bool yes = strcmp(s, "true") == 0, no = strcmp(s, "false") == 0, whole = is_whole(s, len);
	if (!null && !yes && !no && !whole)
		return text;
	json_decref(text);
	return null ? json_null() : whole ? json_integer(strtoll(s, NULL, 10)) : json_boolean(yes);
}

static json_t *convert_list(struct reading *r, const yaml_node_t *node, int depth)
{
	json_t *list = json_array();

	for (yaml_node_item_t *i = node->data.sequence.items.start; i < node->data.sequence.items.top; i++)
		if (json_array_append_new(list, convert(r, *i, depth + 1)) < 0) {
			json_decref(list);
			return NULL;
		}
	return list;
}

static int convert_pair(struct reading *r, json_t *object, const yaml_node_pair_t *pair, int depth)
{
	const yaml_node_t *key = yaml_document_get_node(r->doc, pair->key);

	if (key->type != YAML_SCALAR_NODE || strlen((const char *)key->data.scalar.value) != key->data.scalar.length) {
		fail(r, key, "a key is expected to be a text");
		return -1;
	}
	const char *name = (const char *)key->data.scalar.value;
	if (json_object_get(object, name)) {
		fail(r, key, "the key is there twice");
		return -1;
	}
	json_t *value = convert(r, pair->value, depth + 1);
	if (!value)
		return -1;
	if (json_object_set_new(object, name, value) < 0) {
		fail(r, key, "the key is not UTF-8");
		return -1;
	}
	return 0;
}

static json_t *convert_map(struct reading *r, const yaml_node_t *node, int depth)
{
	json_t *object = json_object();

	for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++)
		if (convert_pair(r, object, p, depth) < 0) {
			json_decref(object);
			return NULL;
		}
	return object;
}

static json_t *convert(struct reading *r, int index, int depth)
{
	const yaml_node_t *node = yaml_document_get_node(r->doc, index);

	if (depth > DEPTH || --r->left < 0)
		return fail(r, node, "nested too deeply, or too much");
	if (node->type == YAML_SCALAR_NODE)
		return convert_scalar(r, node);
	return node->type == YAML_SEQUENCE_NODE ? convert_list(r, node, depth) : convert_map(r, node, depth);
}

json_t *yaml_json(const char *text, size_t len, struct err *err)
{
	yaml_parser_t parser;
	yaml_document_t doc;
	json_t *value = NULL;

	if (!yaml_parser_initialize(&parser)) {
		err_set(err, ERR_SYSTEM, "libyaml does not start");
		return NULL;
	}
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
	if (!yaml_parser_load(&parser, &doc)) {
		err_set(err, ERR_INVALID, "line %zu, column %zu: no YAML: %s", parser.problem_mark.line + 1, parser.problem_mark.column + 1,
		        parser.problem ? parser.problem : "unreadable");
	} else {
		struct reading r = { .doc = &doc, .left = NODES, .err = err };
		value = yaml_document_get_root_node(&doc) ? convert(&r, 1, 0) : json_null();
		yaml_document_delete(&doc);
	}
	yaml_parser_delete(&parser);
	return value;
}
