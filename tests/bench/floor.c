/* The floor of start-up and memory: a program that only links and initialises the libraries that Lunarch has.
 * It links them shared, as programs commonly do. Not a peer. Used by tests/bench/bench.py. With an argument it stays
 * until it is killed, so that it can be weighed. */
#include <ev.h>
#include <jansson.h>
#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
	lua_State *L = luaL_newstate();
	json_t *json = json_object();

	(void)argv;
	luaL_openlibs(L);
	puts("ready");
	fflush(stdout);
	if (argc > 1)
		pause();
	json_decref(json);
	lua_close(L);
	ev_loop_destroy(loop);
	return 0;
}
