/* JSON from outside: what has too many values is refused before it is parsed, and nothing else is. The first byte is
 * how many. */
#include "fuzz.h"

#include "base/json_bound.h"

#include <jansson.h>

static size_t values(const json_t *v)
{
	size_t n = 1, i;
	const char *key;
	json_t *part;

	if (json_is_array(v))
		json_array_foreach(v, i, part) n += values(part);
	else if (json_is_object(v))
		json_object_foreach((json_t *)(uintptr_t)v, key, part) n += values(part);
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	struct err err = { 0 };
	size_t most = (size_t)input_byte(&in) + 1;
	char *text = input_copy(in.at, in.left);
	json_t *bound = json_bound_load(text, in.left, 0, most, &err), *whole = json_loadb(text, in.left, 0, NULL);

	must(!bound || (whole && json_equal(bound, whole) && values(bound) <= most));
	must(bound || err.code == ERR_FULL || err.code == ERR_INVALID);
	must(bound || err.code == ERR_FULL || !whole);
	json_decref(bound);
	json_decref(whole);
	free(text);
	return 0;
}
