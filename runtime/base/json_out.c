#include "base/json_out.h"

#include <inttypes.h>
#include <string.h>

static void json_out_name(struct buf *b, const char *name)
{
	if (b->len && !strchr("{[\n", b->data[b->len - 1]))
		buf_adds(b, ",");
	if (name)
		buf_printf(b, "\"%s\":", name);
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
	json_out_name(b, name);
	buf_adds(b, value ? "true" : "false");
}

void json_out_open(struct buf *b, const char *name, const char *bracket)
{
	json_out_name(b, name);
	buf_adds(b, bracket);
}
