#include "base/json_out.h"

#include <inttypes.h>
#include <string.h>

void json_out_name(struct buf *b, const char *name)
{
	if (b->len && !strchr("{[:\n", b->data[b->len - 1]))
		buf_adds(b, ",");
	if (name)
		buf_printf(b, "\"%s\":", name);
}

void json_out_raw(struct buf *b, const char *name, const char *json)
{
	json_out_name(b, name);
	buf_adds(b, json);
}

void json_out_text(struct buf *b, const char *name, const char *value)
{
	json_out_name(b, name);
	buf_json(b, value ? value : "");
}

void json_out_int(struct buf *b, const char *name, int64_t value)
{
	json_out_name(b, name);
	buf_printf(b, "%" PRId64, value);
}

void json_out_bool(struct buf *b, const char *name, bool value)
{
	json_out_raw(b, name, value ? "true" : "false");
}

void json_out_list(struct buf *b, const char *name, const char *const *texts, int count)
{
	json_out_open(b, name, "[");
	for (int i = 0; i < count; i++)
		json_out_text(b, NULL, texts[i]);
	buf_adds(b, "]");
}

void json_out_known_text(struct buf *b, const char *name, const char *value)
{
	if (value && *value)
		json_out_text(b, name, value);
	else
		json_out_raw(b, name, "null");
}

void json_out_known_int(struct buf *b, const char *name, int64_t value)
{
	if (value >= 0)
		json_out_int(b, name, value);
	else
		json_out_raw(b, name, "null");
}

void json_out_open(struct buf *b, const char *name, const char *bracket)
{
	json_out_raw(b, name, bracket);
}
