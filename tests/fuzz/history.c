/* A record as `lunarch status` and `lunarch history` show it to people and programs: no text of it moves the cursor of
 * a terminal, a drawing is as wide as it says, and what programs get is JSON. Two bytes are the width and the reader's
 * clock. */
#include "fuzz.h"

#include "lease/record.h"
#include "loop/timeline.h"
#include "script/api/api.h"
#include "script/bind.h"
#include "script/script.h"

#include <ev.h>
#include <jansson.h>
#include <string.h>

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

static void drop(void *arg, const struct buf *message)
{
	(void)arg, (void)message;
}

/* The Lua state in which all inputs are shown. It lives as long as the process. */
static struct script *the_script(void)
{
	static struct timeline timeline;
	static struct script_spec spec;
	static struct script *s;

	if (s)
		return s;
	spec = (struct script_spec){
		.loop = ev_loop_new(EVFLAG_AUTO), .timeline = &timeline, .natives = api_open, .send = drop
	};
	timeline_init(&timeline, spec.loop);
	s = script_new(&spec);
	return s;
}

/* As command_record_text, and the forms of lua/commands/text.lua. */
static struct buf shown(const char *form, const struct record *r, int64_t now_us, int columns)
{
	lua_State *L = the_script()->L;
	struct buf out = { 0 };
	size_t len;

	script_push_internal(the_script(), "command");
	lua_pushliteral(L, "text");
	api_push_record(L, "file:/x", r, now_us);
	lua_pushstring(L, form);
	lua_setfield(L, -2, "form");
	lua_pushinteger(L, columns);
	lua_setfield(L, -2, "columns");
	lua_call(L, 2, 1);
	const char *text = lua_tolstring(L, -1, &len);
	buf_add(&out, text, len);
	lua_pop(L, 1);
	return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const people[] = { "headline", "lines", "table", "brief", "drawing" };
	static const char *const programs[] = { "json", "terms" };
	struct input in = { data, size };
	struct record r;
	struct err err;
	int columns = input_byte(&in);
	int64_t now_us = INT64_C(1795646400000000) + (input_byte(&in) - 128) * INT64_C(86400000000);
	size_t len;
	char *text = input_text(&in, &len);

	record_init(&r);
	bool parsed = record_parse(&r, text, len, &err) == 0;
	for (size_t i = 0; parsed && i < sizeof people / sizeof *people; i++) {
		struct buf out = shown(people[i], &r, now_us, columns);
		if (strcmp(people[i], "drawing") == 0)
			judge_bars(&out, columns > 33 ? columns - 23 : 10);
		for_people(&out);
	}
	for (size_t i = 0; parsed && i < sizeof programs / sizeof *programs; i++) {
		struct buf out = shown(programs[i], &r, now_us, columns);
		for_programs(&out);
	}
	record_fini(&r);
	free(text);
	return 0;
}
