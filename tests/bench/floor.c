/* The floor of start-up: a program that only links and initialises the libraries that Lunarch has.
 * Not a peer. Used by tests/bench/bench.py. */
#include <ev.h>
#include <jansson.h>
#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>

int main(void)
{
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
	lua_State *L = luaL_newstate();
	json_t *json = json_object();

	luaL_openlibs(L);
	puts("ready");
	fflush(stdout);
	json_decref(json);
	lua_close(L);
	ev_loop_destroy(loop);
	return 0;
}
