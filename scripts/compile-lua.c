/* compile-lua NAME FILE: the bytecode of a file of lua/ on stdout, with all that error messages name (lines,
 * variables). Not luac(1): its chunks have their files' names. Used by the build alone, with the Lua that it links into
 * the program: bytecode runs on no other Lua. */
#include "script/prelude.h"

#include <lauxlib.h>
#include <stdio.h>

static int put(lua_State *L, const void *bytes, size_t len, void *file)
{
	(void)L;
	return fwrite(bytes, 1, len, file) != len;
}

int main(int argc, char **argv)
{
	lua_State *L = luaL_newstate();
	luaL_Buffer text;
	size_t len;

	FILE *file = argc == 3 ? fopen(argv[2], "r") : NULL;
	if (!L || !file) {
		fputs("usage: compile-lua NAME FILE\n", stderr);
		return 2;
	}
	luaL_buffinit(L, &text);
	do {
		len = fread(luaL_prepbuffer(&text), 1, LUAL_BUFFERSIZE, file);
		luaL_addsize(&text, len);
	} while (len > 0);
	luaL_pushresult(&text);
	int status = ferror(file);
	fclose(file);
	const char *bytes = lua_tolstring(L, -1, &len);
	const char *chunk = lua_pushfstring(L, prelude_chunk(argv[1]), argv[1]);
	if (status == 0 && luaL_loadbufferx(L, bytes, len, chunk, "t") != LUA_OK) {
		fprintf(stderr, "%s: %s\n", argv[2], lua_tostring(L, -1));
		status = 1;
	} else if (status == 0) {
		status = lua_dump(L, put, stdout, 0) || fflush(stdout);
	}
	lua_close(L);
	return status != 0;
}
