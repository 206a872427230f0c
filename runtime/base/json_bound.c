#include "base/json_bound.h"

#include <jansson.h>
#include <stdbool.h>

/* An upper bound for the number of values: each but the first follows a comma or an opening bracket. The bound also
 * holds for invalid JSON: the parser stops at the first mistake, and finds the same strings before it. */
static size_t count_values(const char *text, size_t len)
{
	size_t count = 1;
	bool inside = false; /* inside a string */

	for (size_t i = 0; i < len; i++) {
		char c = text[i];
		if (c == '"')
			inside = !inside;
		else if (inside)
			i += c == '\\';
		else
			count += c == ',' || c == '[' || c == '{';
	}
	return count;
}

json_t *json_bound_load(const char *text, size_t len, size_t flags, size_t most, struct err *err)
{
	size_t count = count_values(text, len);
	json_error_t why;

	if (count > most) {
		err_set(err, ERR_FULL, "%zu bytes of JSON with %zu values, at most %zu are expected", len, count, most);
		return NULL;
	}
	json_t *value = json_loadb(text, len, flags, &why);
	if (!value && json_bound_is_gzip(text, len))
		err_set(err, ERR_INVALID, JSON_GZIP);
	else if (!value)
		err_set(err, ERR_INVALID, "no JSON: line %d, column %d", why.line, why.column);
	return value;
}
