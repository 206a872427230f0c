#include "script/bind.h"

#include <lauxlib.h>
#include <lualib.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* lua-cjson reads every number as a float, writes 14 digits, and cannot tell an empty array from an empty object. So
 * these values pass through it as marked strings. Decoding marks them in the text before cjson reads it, and replaces
 * the marked strings in the result. Encoding marks them in a copy of the value, and replaces them in cjson's text. A
 * mark is a character with which hardly any string begins, and a letter. A string of the user that begins with that
 * character gets the mark of a plain string. */
#define MARK '\x7f'
#define MARK_ESCAPE "\\u007f" /* how cjson writes it */
enum { MARK_NUMBER = 'n', MARK_EMPTY = 'a', MARK_STRING = 's' };

#define ARRAY_TYPE "lunarch.json.array"
#define DEPTH_MAX 1000 /* cjson's limit */
/* cjson counts in int, doubles its buffer, and reserves six bytes for each byte of a text. With more bytes its counter
 * would overflow, and it would crash. */
#define BYTES_MAX (128 * 1024 * 1024)
#define EXACT_INTEGER INT64_C(100000000000000) /* below it cjson's 14 digits are enough */

/* ---- cjson, loaded when it is first needed ---- */

/* Pushes cjson's function of that name. [-0, +1, e] */
static void push_cjson(lua_State *L, const char *name)
{
	static const char key;

	if (lua_rawgetp(L, LUA_REGISTRYINDEX, &key) == LUA_TNIL) {
		lua_pop(L, 1);
		lua_getglobal(L, "require");
		lua_pushliteral(L, "cjson");
		if (lua_pcall(L, 1, 1, 0) != LUA_OK)
			luaL_error(L, "json needs lua-cjson (Debian: apt install lua-cjson): %s", lua_tostring(L, -1));
		lua_getfield(L, -1, "new");
		lua_call(L, 0, 1); /* an instance of our own: the script may configure another */
		static const char *const strict[] = { "decode_invalid_numbers", "encode_invalid_numbers" };
		for (int i = 0; i < 2; i++) {
			lua_getfield(L, -1, strict[i]);
			lua_pushboolean(L, 0);
			lua_call(L, 1, 0);
		}
		lua_pushvalue(L, -1);
		lua_rawsetp(L, LUA_REGISTRYINDEX, &key);
		lua_remove(L, -2);
	}
	lua_getfield(L, -1, name);
	lua_remove(L, -2);
}

/* ---- decode: marking the text ---- */

struct text {
	const char *start, *at, *end;
	bool marked;
};

static size_t digits(const char *p, const char *end)
{
	size_t n = 0;

	while (p + n < end && p[n] >= '0' && p[n] <= '9')
		n++;
	return n;
}

/* Length of the number at start by JSON's grammar (RFC 8259, 6); 0 if it is none. */
static size_t number_len(const char *start, const char *end)
{
	const char *p = start;
	size_t n;

	if (p < end && *p == '-')
		p++;
	n = digits(p, end);
	if (n == 0 || (n > 1 && *p == '0'))
		return 0;
	p += n;
	if (p < end && *p == '.') {
		n = digits(p + 1, end);
		if (n == 0)
			return 0;
		p += n + 1;
	}
	if (p < end && (*p == 'e' || *p == 'E')) {
		p++;
		if (p < end && (*p == '+' || *p == '-'))
			p++;
		n = digits(p, end);
		if (n == 0)
			return 0;
		p += n;
	}
	return (size_t)(p - start);
}

/* Length of the string at start, with both quotes; up to the end of the text if the closing quote is missing. */
static size_t string_len(const char *start, const char *end)
{
	const char *p = start + 1;

	while (p < end && *p != '"')
		p += *p == '\\' && p + 1 < end ? 2 : 1;
	return (size_t)((p < end ? p + 1 : end) - start);
}

static bool begins_with_mark(const char *p, const char *end)
{
	return (p < end && *p == MARK) || (end - p >= 6 && strncasecmp(p, MARK_ESCAPE, 6) == 0);
}

static size_t empty_array_len(const char *start, const char *end)
{
	const char *p = start + 1;

	while (p < end && strchr(" \t\r\n", *p) && *p)
		p++;
	return p < end && *p == ']' ? (size_t)(p + 1 - start) : 0;
}

static void add_marked(luaL_Buffer *b, struct text *t, char mark, const char *s, size_t len)
{
	t->marked = true;
	luaL_addchar(b, '"');
	luaL_addchar(b, MARK);
	luaL_addchar(b, mark);
	luaL_addlstring(b, s, len);
	luaL_addchar(b, '"');
}

static bool mark_token(luaL_Buffer *b, struct text *t)
{
	const char *p = t->at;
	size_t len;

	if (*p == '"') {
		len = string_len(p, t->end);
		luaL_addchar(b, '"');
		if (begins_with_mark(p + 1, t->end)) {
			t->marked = true;
			luaL_addchar(b, MARK);
			luaL_addchar(b, MARK_STRING);
		}
		luaL_addlstring(b, p + 1, len - 1);
	} else if (*p == '-' || (*p >= '0' && *p <= '9')) {
		len = number_len(p, t->end);
		if (len == 0)
			return false;
		bool negative_zero = len == 2 && p[0] == '-' && p[1] == '0'; /* which only a float can be */
		add_marked(b, t, MARK_NUMBER, negative_zero ? "-0.0" : p, negative_zero ? 4 : len);
	} else if (*p == '[' && (len = empty_array_len(p, t->end)) > 0) {
		add_marked(b, t, MARK_EMPTY, "", 0);
	} else {
		luaL_addchar(b, *p);
		len = 1;
	}
	t->at += len;
	return true;
}

/* ---- decode: unmarking the values ---- */

static bool unmark(lua_State *L, int *replaced);

/* Replaces the marked keys, which unmark_table has collected. false: one is not a string. */
static bool rename_keys(lua_State *L, int table, int keys)
{
	lua_Integer n = (lua_Integer)lua_rawlen(L, keys);

	for (lua_Integer i = 1; i <= n; i++) {
		size_t len;
		lua_rawgeti(L, keys, i);
		const char *key = lua_tolstring(L, -1, &len);
		if (key[1] != MARK_STRING)
			return false;
		lua_pushlstring(L, key + 2, len - 2);
		lua_pushvalue(L, -2);
		lua_rawget(L, table);
		lua_rawset(L, table);
		lua_pushnil(L);
		lua_rawset(L, table);
	}
	return true;
}

static bool is_marked(lua_State *L, int index)
{
	return lua_type(L, index) == LUA_TSTRING && lua_tostring(L, index)[0] == MARK;
}

/* Replaces the marked strings in the table at the top of the stack, and in its values. */
static bool unmark_table(lua_State *L)
{
	int table = lua_gettop(L), keys = 0, nkeys = 0;
	bool good = true;

	luaL_checkstack(L, 8, "json: nested too deeply");
	lua_pushnil(L);
	keys = lua_gettop(L);
	lua_pushnil(L);
	while (good && lua_next(L, table)) {
		int replaced = 0;
		good = unmark(L, &replaced);
		if (is_marked(L, -2)) {
			if (nkeys == 0) {
				lua_newtable(L);
				lua_replace(L, keys);
			}
			lua_pushvalue(L, -2);
			lua_rawseti(L, keys, ++nkeys);
		}
		if (replaced) {
			lua_pushvalue(L, -2);
			lua_insert(L, -2);
			lua_rawset(L, table); /* an existing key may be set during lua_next */
		} else {
			lua_pop(L, 1);
		}
	}
	good = good && (nkeys == 0 || rename_keys(L, table, keys));
	lua_settop(L, table);
	return good;
}

/* Replaces the marked strings in the value at the top of the stack. false: a number is too large, or a key is no
 * string. */
static bool unmark(lua_State *L, int *replaced)
{
	size_t len;

	if (lua_istable(L, -1))
		return unmark_table(L);
	if (!is_marked(L, -1))
		return true;
	*replaced = 1;
	const char *s = lua_tolstring(L, -1, &len);
	switch (s[1]) {
	case MARK_NUMBER:
		lua_stringtonumber(L, s + 2);
		if (!isfinite(lua_tonumber(L, -1)))
			return false;
		break;
	case MARK_EMPTY:
		lua_newtable(L);
		luaL_setmetatable(L, ARRAY_TYPE);
		break;
	default:
		lua_pushlstring(L, s + 2, len - 2);
	}
	lua_remove(L, -2);
	return true;
}

static int decode_failed(lua_State *L, const struct text *t, const char *what)
{
	return bind_fail(L, "invalid", "json.decode: %s at character %d", what, (int)(t->at - t->start) + 1);
}

/* Decodes the user's text without marks, to get cjson's error with positions in that text. */
static int decode_refused(lua_State *L)
{
	push_cjson(L, "decode");
	lua_pushvalue(L, 1);
	if (lua_pcall(L, 1, 1, 0) != LUA_OK)
		return bind_fail(L, "invalid", "json.decode: %s", lua_tostring(L, -1));
	return bind_fail(L, "invalid", "json.decode: a number is out of range, or an object's key is no text");
}

static int json_decode(lua_State *L)
{
	size_t len;
	luaL_argexpected(L, lua_type(L, 1) == LUA_TSTRING, 1, "string");
	const char *s = lua_tolstring(L, 1, &len);
	struct text t = { .start = s, .at = s, .end = s + len };
	luaL_Buffer b;
	int replaced = 0;

	if (len > BYTES_MAX)
		return bind_fail(L, "full", "json.decode: the text is longer than %d MB", BYTES_MAX >> 20);
	lua_settop(L, 1);
	luaL_buffinit(L, &b);
	while (t.at < t.end) {
		if (*t.at == '\0')
			return decode_failed(L, &t, "a zero byte");
		if (!mark_token(&b, &t))
			return decode_failed(L, &t, "an invalid number");
	}
	luaL_pushresult(&b);
	push_cjson(L, "decode");
	lua_insert(L, 2);
	if (lua_pcall(L, 1, 1, 0) != LUA_OK || (t.marked && !unmark(L, &replaced)))
		return decode_refused(L);
	return 1;
}

/* ---- encode: a marked copy of the value ---- */

/* Where in the value the encoder is, for errors; and how many bytes it has counted. */
struct path {
	const struct path *outer; /* NULL: this is the whole value */
	int key;                  /* stack index of the key */
	int depth;
	size_t *bytes;
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

static void count(lua_State *L, const struct path *p, size_t len)
{
	*p->bytes += len;
	if (*p->bytes > BYTES_MAX)
		refuse(L, p, lua_pushfstring(L, "more than %d MB", BYTES_MAX >> 20));
}

static void push_marked_text(lua_State *L, char mark, const char *s, size_t len)
{
	luaL_Buffer b;

	luaL_buffinitsize(L, &b, len + 2);
	luaL_addchar(&b, MARK);
	luaL_addchar(&b, mark);
	luaL_addlstring(&b, s, len);
	luaL_pushresult(&b);
}

static void push_integer(lua_State *L, lua_Integer i)
{
	char text[32];

	if (i < EXACT_INTEGER && i > -EXACT_INTEGER) {
		lua_pushinteger(L, i);
		return;
	}
	int len = snprintf(text, sizeof text, "%lld", (long long)i);
	push_marked_text(L, MARK_NUMBER, text, (size_t)len);
}

/* The shortest text that is read back as the same float, and not as an integer. */
static void push_float(lua_State *L, double d, const struct path *p)
{
	char text[40];
	int len = 0;

	if (!isfinite(d))
		refuse(L, p, "JSON has neither NaN nor infinite numbers");
	for (int precision = 15; precision <= 17; precision++) {
		len = snprintf(text, sizeof text, "%.*g", precision, d);
		if (strtod(text, NULL) == d)
			break;
	}
	char *point = text + strspn(text, "-+0123456789e");
	if (*point)
		*point = '.'; /* os.setlocale may have changed the decimal point */
	else if (!strchr(text, 'e'))
		len += sprintf(text + len, ".0");
	push_marked_text(L, MARK_NUMBER, text, (size_t)len);
}

static bool is_utf8(lua_State *L, int index)
{
	size_t len, i = 0;
	const char *s = lua_tolstring(L, index, &len);

	while (i < len && (unsigned char)s[i] < 0x80)
		i++;
	if (i == len)
		return true;
	luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
	lua_getfield(L, -1, LUA_UTF8LIBNAME);
	lua_getfield(L, -1, "len");
	lua_pushvalue(L, index);
	lua_call(L, 1, 1);
	bool good = !lua_isnil(L, -1);
	lua_pop(L, 3);
	return good;
}

static void push_text(lua_State *L, int index, const struct path *p)
{
	size_t len;
	const char *s = lua_tolstring(L, index, &len);

	count(L, p, len);
	if (!is_utf8(L, index))
		refuse(L, p, "a text is not valid UTF-8");
	if (len && s[0] == MARK)
		push_marked_text(L, MARK_STRING, s, len);
	else
		lua_pushvalue(L, index);
}

enum table_kind { TABLE_OBJECT, TABLE_ARRAY, TABLE_EMPTY_ARRAY };

static bool is_declared_array(lua_State *L, int table)
{
	if (!lua_getmetatable(L, table))
		return false;
	luaL_getmetatable(L, ARRAY_TYPE);
	bool same = lua_rawequal(L, -1, -2);
	lua_pop(L, 2);
	return same;
}

static enum table_kind kind_of(lua_State *L, int table, const struct path *p)
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
	return positions ? TABLE_ARRAY : names || !is_declared_array(L, table) ? TABLE_OBJECT : TABLE_EMPTY_ARRAY;
}

static void push_marked(lua_State *L, int index, const struct path *p);

static void push_table(lua_State *L, int table, const struct path *p)
{
	luaL_checkstack(L, 8, "json: nested too deeply");
	if (kind_of(L, table, p) == TABLE_EMPTY_ARRAY) {
		push_marked_text(L, MARK_EMPTY, "", 0);
		return;
	}
	lua_newtable(L);
	int copy = lua_gettop(L);
	struct path here = { .outer = p, .key = copy + 1, .depth = p->depth + 1, .bytes = p->bytes };
	if (here.depth > DEPTH_MAX)
		refuse(L, NULL, "nested too deeply (a table that contains itself?)");
	lua_pushnil(L);
	while (lua_next(L, table)) {
		if (lua_type(L, copy + 1) == LUA_TSTRING)
			push_text(L, copy + 1, &here);
		else
			lua_pushvalue(L, copy + 1);
		push_marked(L, copy + 2, &here);
		lua_rawset(L, copy);
		lua_settop(L, copy + 1);
	}
}

static void push_marked(lua_State *L, int index, const struct path *p)
{
	count(L, p, 8); /* for a number, or for the quotes and marks of a text */
	switch (lua_type(L, index)) {
	case LUA_TTABLE:
		push_table(L, index, p);
		return;
	case LUA_TSTRING:
		push_text(L, index, p);
		return;
	case LUA_TNUMBER:
		if (lua_isinteger(L, index))
			push_integer(L, lua_tointeger(L, index));
		else
			push_float(L, lua_tonumber(L, index), p);
		return;
	case LUA_TBOOLEAN:
		lua_pushvalue(L, index);
		return;
	case LUA_TLIGHTUSERDATA:
		if (lua_touserdata(L, index) == NULL) { /* json.null */
			lua_pushvalue(L, index);
			return;
		}
	}
	refuse(L, p,
	       lua_pushfstring(L, "JSON has no %s%s", luaL_typename(L, index),
	                       lua_isnil(L, index) ? " (json.null is its null)" : ""));
}

/* ---- encode: taking the marks out of the text ---- */

/* Adds a string that cjson wrote, with its quotes. cjson escapes "/", which is not needed. */
static void add_string(luaL_Buffer *b, const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (s[i] != '\\') {
			luaL_addchar(b, s[i]);
			continue;
		}
		i++;
		if (s[i] != '/')
			luaL_addchar(b, '\\');
		luaL_addchar(b, s[i]);
	}
}

static void add_unmarked(luaL_Buffer *b, const char *s, size_t len)
{
	const size_t marked = 1 + strlen(MARK_ESCAPE) + 1; /* quote, mark, letter */

	if (!begins_with_mark(s + 1, s + len)) {
		add_string(b, s, len);
		return;
	}
	switch (s[marked - 1]) {
	case MARK_NUMBER:
		luaL_addlstring(b, s + marked, len - marked - 1);
		break;
	case MARK_EMPTY:
		luaL_addstring(b, "[]");
		break;
	default:
		luaL_addchar(b, '"');
		add_string(b, s + marked, len - marked);
	}
}

static int json_encode(lua_State *L)
{
	luaL_Buffer b;
	size_t len, bytes = 0;
	const struct path whole = { .bytes = &bytes };

	luaL_checkany(L, 1);
	lua_settop(L, 1);
	push_cjson(L, "encode");
	push_marked(L, 1, &whole);
	lua_call(L, 1, 1);
	const char *at = lua_tolstring(L, -1, &len), *end = at + len;
	luaL_buffinitsize(L, &b, len);
	while (at < end) {
		size_t n = *at == '"' ? string_len(at, end) : 1;
		if (*at == '"')
			add_unmarked(&b, at, n);
		else
			luaL_addchar(&b, *at);
		at += n;
	}
	luaL_pushresult(&b);
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

void bind_json(lua_State *L)
{
	luaL_newmetatable(L, ARRAY_TYPE);
	lua_pop(L, 1);
	luaL_newlib(L, functions);
	lua_pushlightuserdata(L, NULL);
	lua_setfield(L, -2, "null");
	lua_setfield(L, -2, "json");
}
