/* JSON of others: what has too many values is refused before it is parsed, whatever is in its texts. */
#include "base/json_bound.h"
#include "base/mem.h"
#include "tap.h"

#include <jansson.h>
#include <stdlib.h>

/* The parser's own count. */
static size_t values_in(const json_t *value)
{
	const char *key;
	json_t *each;
	size_t n = 1, i;

	json_array_foreach(value, i, each) n += values_in(each);
	json_object_foreach((json_t *)value, key, each) n += values_in(each);
	return n;
}

static void test_bound(void)
{
	static const struct {
		const char *text;
		size_t values;
	} cases[] = {
		{ "{}", 2 },
		{ "7", 1 },
		{ "[1,2,3]", 4 },
		{ "[[],[],{}]", 7 },
		{ "{\"a\":[1,{\"b\":null}],\"c\":\"x\"}", 6 },
		{ "{\"a\":\"1,2,3,[[[{{{\"}", 2 },
		{ "{\"a\\\",,,,\":\"\\\\\",\"b\":1}", 3 },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct err err = { 0 };
		const char *text = cases[i].text;
		json_t *value = json_bound_load(text, strlen(text), JSON_DECODE_ANY, cases[i].values, &err);
		ok(value && values_in(value) <= cases[i].values, "%s is read where %zu values are allowed", text,
		   cases[i].values);
		json_decref(value);
		value = json_bound_load(text, strlen(text), JSON_DECODE_ANY, cases[i].values - 1, &err);
		ok(!value && err.code == ERR_FULL, "and refused where one less is");
	}
}

static void test_errors(void)
{
	char *flood = mem_zero(1 << 20);
	struct err err = { 0 };

	for (size_t i = 0; i + 3 < 1 << 20; i += 3)
		memcpy(flood + i, i ? "{}," : " [ ", 3);
	ok(!json_bound_load(flood, strlen(flood), 0, 1000, &err) && err.code == ERR_FULL &&
	           strstr(err.text, "1048575 bytes") && strstr(err.text, "at most 1000"),
	   "a flood is refused with its size and the limit, before it is known to be no JSON");
	free(flood);
	ok(!json_bound_load("{\"a\"", 4, 0, 1000, &err) && err.code == ERR_INVALID && strstr(err.text, "no JSON"),
	   "half a text is no JSON");
	ok(!json_bound_load(NULL, 0, 0, 1000, &err) && err.code == ERR_INVALID, "nor is nothing");
	ok(!json_bound_load("\"\\", 2, JSON_DECODE_ANY, 1000, NULL),
	   "a text that ends in the middle of an escape is none either");
}

int main(void)
{
	test_bound();
	test_errors();
	return tap_done();
}
