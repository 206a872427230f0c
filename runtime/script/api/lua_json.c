#include "script/api/api.h"
#include "script/bind.h"

#include <lauxlib.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* JSON (RFC 8259) read into Lua values and written from them. Not lua-cjson, which reads every number as a float,
 * writes 14 digits, and cannot tell an empty array from an empty object; null is the same value as lua-cjson's. */
#define ARRAY_TYPE "lunarch.json.array"
#define DEPTH_MAX 1000
#define BYTES_MAX (128 * 1024 * 1024)
#define NESTED "nested too deeply"

/* ---- decode ---- */

struct json_text {
	lua_State *L;
	const char *start, *at, *end; /* a zero byte is at the end */
	const char *wrong;
	int depth;
};

static bool text_is_wrong(struct json_text *t, const char *what)
{
	t->wrong = *t->at == '\0' && t->at < t->end ? "a zero byte" : what;
	return false;
}

static char next_char(struct json_text *t)
{
	t->at += strspn(t->at, " \t\r\n");
	return *t->at;
}

static bool skip_char(struct json_text *t, char c)
{
	bool is = next_char(t) == c;

	t->at += is;
	return is;
}

static size_t digits(const char *p)
{
	return strspn(p, "0123456789");
}

/* Length of the number at start by JSON's grammar (RFC 8259, 6); 0 if it is none. */
static size_t number_len(const char *start)
{
	const char *p = start + (*start == '-');
	size_t n = digits(p);

	if (n == 0 || (n > 1 && *p == '0'))
		return 0;
	p += n;
	if (*p == '.') {
		n = digits(p + 1);
		if (n == 0)
			return 0;
		p += n + 1;
	}
	if (*p == 'e' || *p == 'E') {
		p += 1 + (p[1] == '+' || p[1] == '-');
		n = digits(p);
		if (n == 0)
			return 0;
		p += n;
	}
	return (size_t)(p - start);
}

/* An integer that does not fit is a float, as in a script. */
static bool push_number(struct json_text *t)
{
	lua_State *L = t->L;
	size_t len = number_len(t->at);

	if (len == 0)
		return text_is_wrong(t, "an invalid number");
	lua_pushlstring(L, t->at, len);
	lua_stringtonumber(L, lua_tostring(L, -1));
	lua_remove(L, -2);
	if (!isfinite(lua_tonumber(L, -1)))
		return text_is_wrong(t, "a number that is out of range");
	if (len == 2 && memcmp(t->at, "-0", 2) == 0) {
		lua_pop(L, 1);
		lua_pushnumber(L, -0.0); /* which only a float can be */
	}
	t->at += len;
	return true;
}

/* Reads the four digits behind a backslash and a u. -1: they are none. */
static long hex4(const char *p)
{
	char digits[5] = "";

	memcpy(digits, p, strnlen(p, 4));
	return strspn(digits, "0123456789abcdefABCDEF") == 4 ? strtol(digits, NULL, 16) : -1;
}

static bool add_unicode(struct json_text *t, luaL_Buffer *b)
{
	long code = hex4(t->at + 2), low;

	if (code >= 0xd800 && code < 0xdc00) {
		low = t->at[6] == '\\' && t->at[7] == 'u' ? hex4(t->at + 8) : -1;
		code = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((code - 0xd800) << 10) + low - 0xdc00 : -1;
		t->at += code < 0 ? 0 : 6;
	} else if (code >= 0xdc00 && code < 0xe000) {
		code = -1;
	}
	if (code < 0)
		return text_is_wrong(t, "an invalid escape");
	t->at += 6;
	lua_pushfstring(t->L, "%U", code);
	luaL_addvalue(b);
	return true;
}

static bool add_escaped(struct json_text *t, luaL_Buffer *b)
{
	static const char escapes[] = "\"\\/bfnrt", chars[] = "\"\\/\b\f\n\r\t";
	char c = t->at[1];

	if (c == 'u')
		return add_unicode(t, b);
	const char *e = c ? strchr(escapes, c) : NULL;
	if (!e)
		return text_is_wrong(t, "an invalid escape");
	luaL_addchar(b, chars[e - escapes]);
	t->at += 2;
	return true;
}

/* Bytes that are not UTF-8 are let through. */
static bool push_string(struct json_text *t)
{
	luaL_Buffer b;

	luaL_buffinit(t->L, &b);
	t->at++;
	while (*t->at != '"') {
		size_t n = strcspn(t->at, "\"\\");
		luaL_addlstring(&b, t->at, n);
		t->at += n;
		if (*t->at == '\0')
			return text_is_wrong(t, "a text without its closing quote");
		if (*t->at == '\\' && !add_escaped(t, &b))
			return false;
	}
	t->at++;
	luaL_pushresult(&b);
	return true;
}

static bool push_value(struct json_text *t);

static bool push_array(struct json_text *t)
{
	lua_newtable(t->L);
	if (skip_char(t, ']')) {
		luaL_setmetatable(t->L, ARRAY_TYPE);
		return true;
	}
	for (lua_Integer i = 1;; i++) {
		if (!push_value(t))
			return false;
		lua_rawseti(t->L, -2, i);
		if (skip_char(t, ']'))
			return true;
		if (!skip_char(t, ','))
			return text_is_wrong(t, "expected a comma or the array's end");
	}
}

static bool push_object(struct json_text *t)
{
	lua_newtable(t->L);
	if (skip_char(t, '}'))
		return true;
	for (;;) {
		if (next_char(t) != '"')
			return text_is_wrong(t, "expected a key, which is a text,");
		if (!push_string(t))
			return false;
		if (!skip_char(t, ':'))
			return text_is_wrong(t, "expected a colon");
		if (!push_value(t))
			return false;
		lua_rawset(t->L, -3);
		if (skip_char(t, '}'))
			return true;
		if (!skip_char(t, ','))
			return text_is_wrong(t, "expected a comma or the object's end");
	}
}

static bool push_nested(struct json_text *t, bool (*push)(struct json_text *t))
{
	if (++t->depth > DEPTH_MAX)
		return text_is_wrong(t, NESTED);
	luaL_checkstack(t->L, 8, "json: " NESTED);
	t->at++;
	bool good = push(t);
	t->depth--;
	return good;
}

static bool push_word(struct json_text *t)
{
	static const char *const words[] = { "false", "true", "null" };

	for (int i = 0; i < 3; i++) {
		size_t len = strlen(words[i]);
		if (strncmp(t->at, words[i], len) != 0)
			continue;
		if (i < 2)
			lua_pushboolean(t->L, i);
		else
			lua_pushlightuserdata(t->L, NULL);
		t->at += len;
		return true;
	}
	return text_is_wrong(t, "expected a value");
}

static bool push_value(struct json_text *t)
{
	char c = next_char(t);

	if (c == '[')
		return push_nested(t, push_array);
	if (c == '{')
		return push_nested(t, push_object);
	if (c == '"')
		return push_string(t);
	if (c == '-' || (c >= '0' && c <= '9'))
		return push_number(t);
	return push_word(t);
}

static int json_decode(lua_State *L)
{
	size_t len;
	luaL_argexpected(L, lua_type(L, 1) == LUA_TSTRING, 1, "string");
	const char *s = lua_tolstring(L, 1, &len);
	struct json_text t = { .L = L, .start = s, .at = s, .end = s + len };

	if (len > BYTES_MAX)
		return bind_fail(L, "full", "json.decode: the text is longer than %d MB", BYTES_MAX >> 20);
	if (push_value(&t) && (next_char(&t) || t.at < t.end))
		text_is_wrong(&t, "expected the end");
	if (t.wrong)
		return bind_fail(L, "invalid", "json.decode: %s at character %d", t.wrong, (int)(t.at - t.start) + 1);
	return 1;
}

/* ---- encode ---- */

/* The text, in a userdata in the stack's slot 2, so that Lua frees it if an error is raised. */
struct json_out {
	lua_State *L;
	char *data;
	size_t len, room;
};

/* Where in the value the encoder is, for errors. */
struct path {
	const struct path *outer; /* NULL: this is the whole value */
	int key;                  /* stack index of the key */
	int depth;
};

static void add_path(lua_State *L, luaL_Buffer *b, const struct path *p)
{
	char text[80];

	if (!p || !p->outer)
		return;
	add_path(L, b, p->outer);
	if (lua_type(L, p->key) == LUA_TSTRING)
		snprintf(text, sizeof text, ".%.64s", lua_tostring(L, p->key));
	else
		snprintf(text, sizeof text, "[%lld]", (long long)lua_tointeger(L, p->key));
	luaL_addstring(b, text);
}

static int refuse(lua_State *L, const struct path *p, const char *what)
{
	luaL_Buffer b;

	luaL_buffinit(L, &b);
	add_path(L, &b, p);
	luaL_pushresult(&b);
	return luaL_error(L, "json.encode: %s%s%s", what, p && p->outer ? ", at value" : "", lua_tostring(L, -1));
}

static void out_add(struct json_out *o, const struct path *p, const char *s, size_t len)
{
	if (o->len + len > BYTES_MAX)
		refuse(o->L, p, lua_pushfstring(o->L, "more than %d MB", BYTES_MAX >> 20));
	if (!o->data || o->len + len > o->room) {
		size_t room = 2 * (o->len + len);
		char *data = lua_newuserdatauv(o->L, room, 0);
		if (o->data)
			memcpy(data, o->data, o->len);
		lua_replace(o->L, 2);
		o->data = data;
		o->room = room;
	}
	memcpy(o->data + o->len, s, len);
	o->len += len;
}

static void out_adds(struct json_out *o, const struct path *p, const char *s)
{
	out_add(o, p, s, strlen(s));
}

/* The shortest text that is read back as the same float, and not as an integer. */
static void out_float(struct json_out *o, const struct path *p, double d)
{
	char text[40];

	if (!isfinite(d))
		refuse(o->L, p, "JSON has neither NaN nor infinite numbers");
	for (int precision = 15; precision <= 17; precision++) {
		snprintf(text, sizeof text, "%.*g", precision, d);
		if (strtod(text, NULL) == d)
			break;
	}
	char *point = text + strspn(text, "-+0123456789e");
	if (*point)
		*point = '.'; /* os.setlocale may have changed the decimal point */
	else if (!strchr(text, 'e'))
		strcat(text, ".0");
	out_adds(o, p, text);
}

static void out_number(struct json_out *o, const struct path *p, int index)
{
	char text[32];

	if (!lua_isinteger(o->L, index)) {
		out_float(o, p, lua_tonumber(o->L, index));
		return;
	}
	snprintf(text, sizeof text, "%lld", (long long)lua_tointeger(o->L, index));
	out_adds(o, p, text);
}

/* A buffer's text ends at a zero byte, which a script's may have in it. */
static bool is_utf8(const char *s, size_t len)
{
	const char *p = s;

	while (p <= s + len && buf_is_utf8(p))
		p += strlen(p) + 1;
	return p > s + len;
}

static void out_text(struct json_out *o, const struct path *p, int index)
{
	static const char chars[] = "\"\\\b\f\n\r\t", escapes[] = "\"\\bfnrt";
	size_t len, plain = 0;
	const char *s = lua_tolstring(o->L, index, &len), *c;
	char escaped[8];

	if (!is_utf8(s, len))
		refuse(o->L, p, "a text is not valid UTF-8");
	out_adds(o, p, "\"");
	for (size_t i = 0; i < len; i++) {
		if ((unsigned char)s[i] >= ' ' && s[i] != '"' && s[i] != '\\' && s[i] != '\x7f')
			continue;
		out_add(o, p, s + plain, i - plain);
		plain = i + 1;
		if (s[i] && (c = strchr(chars, s[i])))
			snprintf(escaped, sizeof escaped, "\\%c", escapes[c - chars]);
		else
			snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned char)s[i]);
		out_adds(o, p, escaped);
	}
	out_add(o, p, s + plain, len - plain);
	out_adds(o, p, "\"");
}

static bool is_declared_array(lua_State *L, int table)
{
	if (!lua_getmetatable(L, table))
		return false;
	luaL_getmetatable(L, ARRAY_TYPE);
	bool same = lua_rawequal(L, -1, -2);
	lua_pop(L, 2);
	return same;
}

/* Whether the table is an array; else it is an object. *count: its values. */
static bool is_array(lua_State *L, int table, const struct path *p, lua_Integer *count)
{
	lua_Integer greatest = 0, positions = 0, names = 0;

	lua_pushnil(L);
	while (lua_next(L, table)) {
		lua_pop(L, 1);
		lua_Integer position = lua_isinteger(L, -1) ? lua_tointeger(L, -1) : 0;
		if (lua_type(L, -1) == LUA_TSTRING)
			names++;
		else if (position > 0)
			positions++;
		else
			refuse(L, p, "a key is neither a text nor a position from 1 on");
		if (position > greatest)
			greatest = position;
	}
	if (names && (positions || is_declared_array(L, table)))
		refuse(L, p, "a table has both names and positions, and so is neither an object nor an array");
	if (greatest != positions)
		refuse(L, p, "an array has holes (json.null can fill them)");
	*count = positions;
	return positions || (!names && is_declared_array(L, table));
}

static void out_value(struct json_out *o, const struct path *p, int index);

static void out_object(struct json_out *o, const struct path *p, int table)
{
	const char *before = "{";

	lua_pushnil(o->L);
	while (lua_next(o->L, table)) {
		out_adds(o, p, before);
		out_text(o, p, p->key);
		out_adds(o, p, ":");
		out_value(o, p, p->key + 1);
		lua_settop(o->L, p->key);
		before = ",";
	}
	out_adds(o, p, *before == '{' ? "{}" : "}");
}

static void out_array(struct json_out *o, const struct path *p, int table, lua_Integer count)
{
	for (lua_Integer i = 1; i <= count; i++) {
		out_adds(o, p, i == 1 ? "[" : ",");
		lua_pushinteger(o->L, i);
		lua_rawgeti(o->L, table, i);
		out_value(o, p, p->key + 1);
		lua_settop(o->L, p->key - 1);
	}
	out_adds(o, p, count ? "]" : "[]");
}

static void out_table(struct json_out *o, const struct path *p, int table)
{
	struct path here = { .outer = p, .key = lua_gettop(o->L) + 1, .depth = p->depth + 1 };
	lua_Integer count = 0;

	luaL_checkstack(o->L, 8, "json: " NESTED);
	bool array = is_array(o->L, table, p, &count);
	if (here.depth > DEPTH_MAX)
		refuse(o->L, NULL, NESTED " (a table that contains itself?)");
	if (array)
		out_array(o, &here, table, count);
	else
		out_object(o, &here, table);
}

static void out_value(struct json_out *o, const struct path *p, int index)
{
	lua_State *L = o->L;

	switch (lua_type(L, index)) {
	case LUA_TTABLE:
		out_table(o, p, index);
		return;
	case LUA_TSTRING:
		out_text(o, p, index);
		return;
	case LUA_TNUMBER:
		out_number(o, p, index);
		return;
	case LUA_TBOOLEAN:
		out_adds(o, p, lua_toboolean(L, index) ? "true" : "false");
		return;
	case LUA_TLIGHTUSERDATA:
		if (lua_touserdata(L, index) == NULL) { /* json.null */
			out_adds(o, p, "null");
			return;
		}
	}
	refuse(L, p,
	       lua_pushfstring(L, "JSON has no %s%s", luaL_typename(L, index),
	                       lua_isnil(L, index) ? " (json.null is its null)" : ""));
}

static int json_encode(lua_State *L)
{
	struct json_out out = { .L = L };

	luaL_checkany(L, 1);
	lua_settop(L, 1);
	lua_pushnil(L); /* slot 2 */
	out_value(&out, &(struct path){ .depth = 0 }, 1);
	lua_pushlstring(L, out.data, out.len);
	return 1;
}

/* json.array([t]): returns t, which is encoded as an array from now on, even if it is empty. */
static int json_array(lua_State *L)
{
	if (lua_isnoneornil(L, 1)) {
		lua_settop(L, 0);
		lua_newtable(L);
	}
	luaL_checktype(L, 1, LUA_TTABLE);
	lua_settop(L, 1);
	if (lua_getmetatable(L, 1) && !is_declared_array(L, 1))
		return luaL_error(L, "json.array: the table has a metatable of its own");
	lua_settop(L, 1);
	luaL_setmetatable(L, ARRAY_TYPE);
	return 1;
}

static const luaL_Reg functions[] = {
	{ "encode", json_encode },
	{ "decode", json_decode },
	{ "array", json_array },
	{ NULL, NULL },
};

void api_open_json(lua_State *L)
{
	luaL_newmetatable(L, ARRAY_TYPE);
	lua_pop(L, 1);
	luaL_newlib(L, functions);
	lua_pushlightuserdata(L, NULL);
	lua_setfield(L, -2, "null");
	lua_setfield(L, -2, "json");
}
