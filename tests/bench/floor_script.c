/* The floor of running scripts: libev and Lua coroutines, nothing else: no terms, no deadlines, no scopes, no bindings.
 * Not a peer. Used by tests/bench/script_rows.py.
 *
 * floor_script wake N              N times the microseconds from sending a message to a Lua function's first
 * instruction in another process floor_script timers N SECONDS    N coroutines, each behind a timer of so many seconds:
 * the KB of each, and how late in ms 99% of their wake-ups are at most */
#include <err.h>
#include <ev.h>
#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int lua_now(lua_State *L)
{
	lua_pushnumber(L, now());
	return 1;
}

static lua_State *new_state(const char *code)
{
	lua_State *L = luaL_newstate();

	luaL_openlibs(L);
	lua_register(L, "now", lua_now);
	if (luaL_dostring(L, code) != LUA_OK)
		errx(1, "%s", lua_tostring(L, -1));
	return L;
}

/* ---- wake ---- */

static void on_message(struct ev_loop *loop, ev_io *io, int revents)
{
	lua_State *L = io->data, *co = lua_newthread(L);
	double sent;
	int results;

	(void)revents;
	if (recv(io->fd, &sent, sizeof sent, 0) != sizeof sent) {
		ev_break(loop, EVBREAK_ALL);
		return;
	}
	lua_getglobal(co, "first");
	lua_pushnumber(co, sent);
	lua_resume(co, L, 1, &results);
	printf("%f\n", lua_tonumber(co, -1) * 1e6);
	lua_pop(L, 1);
}

static void wake(int n)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0)
		err(1, "socketpair");
	if (fork() == 0) {
		struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
		ev_io io;
		close(pair[0]);
		ev_io_init(&io, on_message, pair[1], EV_READ);
		io.data = new_state("function first(sent) return now() - sent end");
		ev_io_start(loop, &io);
		ev_run(loop, 0);
		exit(0);
	}
	close(pair[1]);
	for (int i = 0; i < n; i++) {
		usleep(2000);
		double sent = now();
		if (send(pair[0], &sent, sizeof sent, 0) < 0)
			err(1, "send");
	}
}

/* ---- timers ---- */

struct sleeper {
	ev_timer timer;
	lua_State *co;
	double due;
};

static double *late;
static int seen, wanted;

static void on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct sleeper *s = w->data;
	int results;

	(void)revents;
	late[seen++] = now() - s->due;
	lua_resume(s->co, NULL, 0, &results);
	if (seen == wanted)
		ev_break(loop, EVBREAK_ALL);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static long pss_kb(void)
{
	char line[256];
	long kb = 0;
	FILE *f = fopen("/proc/self/smaps_rollup", "re");

	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "Pss: %ld", &kb) == 1)
			break;
	if (f)
		fclose(f);
	return kb;
}

static void timers(int n, double seconds)
{
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
	lua_State *L = new_state("function sleeper() while true do coroutine.yield() end end");
	int results;

	late = calloc((size_t)n, sizeof *late);
	memset(late, 1, (size_t)n * sizeof *late); /* its pages are not to be counted below */
	wanted = n;
	long before = pss_kb();
	double begin = now();
	for (int i = 0; i < n; i++) {
		struct sleeper *s = calloc(1, sizeof *s);
		s->co = lua_newthread(L);
		luaL_ref(L, LUA_REGISTRYINDEX);
		lua_getglobal(s->co, "sleeper");
		lua_resume(s->co, NULL, 0, &results);
		s->due = begin + seconds * (1 + (double)i / n);
		ev_now_update(loop);
		ev_timer_init(&s->timer, on_timer, s->due - now(), 0.);
		s->timer.data = s;
		ev_timer_start(loop, &s->timer);
	}
	double each = (double)(pss_kb() - before) / n;
	ev_run(loop, 0);
	qsort(late, (size_t)n, sizeof *late, by_value);
	printf("%f %f\n", each, late[n - 1 - n / 100] * 1e3);
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "wake") == 0)
		wake(atoi(argv[2]));
	else if (argc == 4 && strcmp(argv[1], "timers") == 0)
		timers(atoi(argv[2]), atof(argv[3]));
	else
		errx(2, "usage: floor_script wake N | timers N SECONDS");
	return 0;
}
