/* A record as `lunarch status` and `lunarch history` show it to people and programs: no text of it moves the cursor of
 * a terminal, a drawing is as wide as it says, and what programs get is JSON. Two bytes are the width and the reader's
 * clock. */
#include "fuzz.h"

#include "client/history_text.h"
#include "client/record_text.h"

#include <jansson.h>

static void for_people(struct buf *out)
{
	for (size_t i = 0; i < out->len; i++) {
		unsigned char c = (unsigned char)out->data[i];
		must((c >= ' ' && c != 127) || c == '\n' || c == '\t');
	}
	must(out->len == 0 || buf_is_utf8(out->data));
	buf_fini(out);
}

static void for_programs(struct buf *out)
{
	json_t *value = json_loadb(out->data, out->len, 0, NULL);

	must(json_is_object(value));
	json_decref(value);
	buf_fini(out);
}

/* In a drawing each bar has its width. */
static void judge_bars(const struct buf *out, int width)
{
	for (const char *line = out->data; line && *line; line = strchr(line, '\n') + 1) {
		const char *end = strchr(line, '\n'), *bar = memchr(line, '|', (size_t)(end - line));
		must(end);
		if (end > line && end[-1] == '|')
			must(bar && end - 1 - width - 1 >= bar && end[-1 - width - 1] == '|');
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	struct buf out = { 0 };
	struct record r;
	struct err err;
	int columns = input_byte(&in);
	int64_t now_us = INT64_C(1795646400000000) + (input_byte(&in) - 128) * INT64_C(86400000000);
	size_t len;
	char *text = input_text(&in, &len);

	record_init(&r);
	if (record_parse(&r, text, len, &err) == 0) {
		const struct record_text s = { .lock = "file:/x", .record = &r, .now_us = now_us };
		record_text_headline(&out, &s);
		for_people(&out);
		record_text_lines(&out, &s);
		for_people(&out);
		record_text_json(&out, &s);
		for_programs(&out);
		for (int brief = 0; brief < 2; brief++) {
			history_text_table(&out, &s, brief);
			for_people(&out);
		}
		history_text_drawing(&out, &s, columns, false);
		judge_bars(&out, columns > 33 ? columns - 23 : 10);
		for_people(&out);
		history_text_json(&out, &s);
		for_programs(&out);
	}
	record_fini(&r);
	free(text);
	return 0;
}
