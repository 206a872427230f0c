#include "script/api/api.h"
#include "script/bind.h"
#include "script/child.h"

#include <lauxlib.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define JOB_TYPE "lunarch.job"

/* One program, or several in a pipeline. Its user value holds how they ended, after job_ends. */
struct exec_job {
	struct waits waiters;
	bool streams[CHILD_OUTPUTS]; /* the script reads this output by lines */
	int input;                   /* while they are started: the next program's standard input; -1: none */
	int n;
	struct child *child[]; /* NULL: not started, or its result was taken */
};

/* A task that waits for output or the end. It is a userdata on the task's stack, so that it is freed with the wait. */
struct exec_waiter {
	struct wait wait; /* the first field, so that it can be cast */
	struct exec_job *job;
	bool owns;    /* if the task stops waiting, the job is stopped */
	bool for_end; /* it waits for the end, not for output */
};

static const char *const output_names[CHILD_OUTPUTS] = { "stdout", "stderr" };

static struct exec_job *job_at(lua_State *L, int arg)
{
	return luaL_checkudata(L, arg, JOB_TYPE);
}

static struct child *last(const struct exec_job *j)
{
	return j->child[j->n - 1];
}

static bool ended(const struct exec_job *j)
{
	for (int i = 0; i < j->n; i++)
		if (j->child[i] && !child_ended(j->child[i]))
			return false;
	return true;
}

static void job_stop(struct exec_job *j)
{
	for (int i = 0; i < j->n; i++)
		if (j->child[i])
			child_stop_gently(j->child[i]);
}

static void job_let_go(struct exec_job *j)
{
	for (int i = 0; i < j->n; i++) {
		if (j->child[i])
			child_release(j->child[i]);
		j->child[i] = NULL;
	}
	if (j->input >= 0)
		close(j->input);
	j->input = -1;
}

/* Output does not wake a task that waits for the end: a woken task has left its wait, so cancelling it would not stop
 * the job. */
static void changed(void *arg)
{
	struct exec_job *j = arg;
	bool over = ended(j);

	for (struct wait *w = j->waiters.first, *next; w; w = next) {
		next = w->next;
		if (over || !((struct exec_waiter *)w)->for_end)
			wait_done(w);
	}
}

/* ---- starting ---- */

/* Reads the fields stdout, stdout_file and stdout_append, or those of stderr. */
static void output(lua_State *L, int spec, struct child_spec *s, int i)
{
	static const char *const hows[] = { "capture", "inherit", "null", "file", "pipe", "stdout", NULL };
	static const enum child_output outputs[] = { CHILD_COLLECT, CHILD_INHERIT, CHILD_NULL,
		                                     CHILD_FILE,    CHILD_PIPE,    CHILD_MERGE };

	lua_getfield(L, spec, output_names[i]);
	s->output[i] = outputs[luaL_checkoption(L, -1, "capture", hows)];
	s->file[i] = bind_text(L, spec, i == CHILD_STDOUT ? "stdout_file" : "stderr_file");
	s->append[i] = bind_flag(L, spec, i == CHILD_STDOUT ? "stdout_append" : "stderr_append");
}

/* Reads the description, which lua/api/exec.lua has checked, at the index spec. */
static void read_spec(lua_State *L, int spec, struct child_spec *s)
{
	s->argv = bind_texts(L, spec, "argv");
	s->env = bind_texts(L, spec, "env");
	s->directory = bind_text(L, spec, "cwd");
	s->user = bind_text(L, spec, "user");
	lua_getfield(L, spec, "stdin");
	s->input = lua_tolstring(L, -1, &s->input_len);
	s->input_file = bind_text(L, spec, "stdin_file");
	for (int i = 0; i < CHILD_OUTPUTS; i++)
		output(L, spec, s, i);
	s->output_max = (size_t)bind_number(L, spec, "max_output", 1024 * 1024);
	s->timeout_s = bind_number(L, spec, "timeout", -1);
	s->kill_after_s = bind_number(L, spec, "kill_after", 2);
	s->both_ends = bind_flag(L, spec, "both_ends");
	s->until_closed = bind_flag(L, spec, "until_closed");
}

static int start_one(lua_State *L, struct exec_job *j, int i, bool hold, struct err *err)
{
	int input = j->input, piped = -1;
	struct child_spec spec = { .input_fd = input, .piped = &piped, .hold = hold, .changed = changed, .arg = j };

	read_spec(L, lua_gettop(L), &spec);
	j->child[i] = child_start(sched_scope(sched_of(L)), &spec, err);
	if (input >= 0)
		close(input);
	j->input = piped;
	return j->child[i] ? 0 : -1;
}

static struct exec_job *job_new(lua_State *L, int n)
{
	struct exec_job *j = lua_newuserdatauv(L, sizeof *j + (size_t)n * sizeof *j->child, 1);

	memset(j, 0, sizeof *j + (size_t)n * sizeof *j->child);
	j->n = n;
	j->input = -1;
	luaL_setmetatable(L, JOB_TYPE);
	return j;
}

/* start(specs, hold) -> job | nil, err. lua/api/exec.lua has checked the fields of each program. Each program's output
 * is the next one's input. */
static int job_start(lua_State *L)
{
	struct err err;

	sched_may_wait(L, "exec");
	lua_settop(L, 2);
	int n = (int)luaL_len(L, 1);
	struct exec_job *j = job_new(L, n);
	for (int i = 0; i < n; i++) {
		lua_rawgeti(L, 1, i + 1);
		if (start_one(L, j, i, lua_toboolean(L, 2), &err) < 0) {
			job_stop(j);
			job_let_go(j);
			return bind_fail_err(L, &err);
		}
		lua_settop(L, 3);
	}
	return 1;
}

/* ---- waiting ---- */

static void job_on_left(struct wait *w)
{
	job_stop(((struct exec_waiter *)w)->job);
}

static int wait_for(lua_State *L, const struct exec_waiter *waiter, double timeout_s, lua_KFunction k)
{
	struct exec_waiter *w = lua_newuserdatauv(L, sizeof *w, 0);

	*w = *waiter;
	w->wait.left = w->owns ? job_on_left : NULL;
	wait_enter(&w->job->waiters, &w->wait);
	return sched_wait(L, &w->wait, timeout_s, 0, k);
}

static int awaited(lua_State *L, int, lua_KContext)
{
	sched_resumed(L);
	lua_pushboolean(L, ended(job_at(L, 1)));
	return 1;
}

/* await(job, timeout or nil, owns) -> true: it has ended. Output that the script does not read by lines is dropped from
 * now on, so that the programs can end. */
static int job_await(lua_State *L)
{
	struct exec_job *j = job_at(L, 1);
	double timeout = luaL_optnumber(L, 2, -1);

	sched_may_wait(L, "exec");
	lua_settop(L, 3);
	for (int i = 0; i < j->n; i++)
		for (int out = 0; out < CHILD_OUTPUTS; out++)
			if (j->child[i] && !child_ended(j->child[i]) && !(i == j->n - 1 && j->streams[out]))
				child_drop(j->child[i], out);
	if (ended(j) || timeout == 0) {
		lua_pushboolean(L, ended(j));
		return 1;
	}
	return wait_for(L, &(struct exec_waiter){ .job = j, .owns = lua_toboolean(L, 3), .for_end = true }, timeout,
	                awaited);
}

static int which_output(lua_State *L, int arg)
{
	return strcmp(luaL_checkstring(L, arg), "stderr") == 0 ? CHILD_STDERR : CHILD_STDOUT;
}

static int line_more(lua_State *L, int status, lua_KContext ctx);

static int next_line(lua_State *L)
{
	struct exec_job *j = job_at(L, 1);
	int out = which_output(L, 2);
	struct child_line line;

	if (!last(j)) /* the result was taken, with all output */
		return 0;
	if (child_line(last(j), out, &line)) {
		lua_pushlstring(L, line.text, line.len);
		child_took(last(j), out, line.took);
		return 1;
	}
	if (line.end)
		return 0;
	lua_settop(L, 2);
	return wait_for(L, &(struct exec_waiter){ .job = j }, -1, line_more);
}

static int line_more(lua_State *L, int, lua_KContext)
{
	sched_resumed(L);
	return next_line(L);
}

/* line(job, "stdout" or "stderr") -> the next line; nothing at the end */
static int job_line(lua_State *L)
{
	sched_may_wait(L, "child:lines");
	return next_line(L);
}

/* streams(job, "stdout" or "stderr", on) */
static int job_streams(lua_State *L)
{
	job_at(L, 1)->streams[which_output(L, 2)] = lua_toboolean(L, 3);
	return 0;
}

/* ---- the end ---- */

static void push_end(lua_State *L, const struct child_end *end)
{
	int status = end->wait_status;

	lua_createtable(L, 0, 8);
	bind_set_flag(L, "ok", WIFEXITED(status) && WEXITSTATUS(status) == 0);
	lua_pushinteger(L, WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
	lua_setfield(L, -2, WIFEXITED(status) ? "code" : "signal");
	if (end->truncated)
		bind_set_flag(L, "truncated", true);
	if (end->timed_out)
		bind_set_flag(L, "timed_out", true);
	lua_createtable(L, 0, 3);
	bind_set_number(L, "elapsed", end->elapsed_s);
	bind_set_number(L, "user", end->user_s);
	bind_set_number(L, "system", end->system_s);
	lua_setfield(L, -2, "times");
	for (int i = 0; i < CHILD_OUTPUTS; i++) {
		lua_pushlstring(L, end->output[i].data ? end->output[i].data : "", end->output[i].len);
		lua_setfield(L, -2, output_names[i]);
	}
}

/* Called protected, so that the output is freed even if Lua has no memory for it. */
static int push_end_protected(lua_State *L)
{
	push_end(L, lua_touserdata(L, 1));
	return 1;
}

static void take_end(lua_State *L, struct child **child)
{
	struct child_end end;

	child_take(*child, &end);
	child_release(*child);
	*child = NULL;
	lua_pushcfunction(L, push_end_protected);
	lua_pushlightuserdata(L, &end);
	int error = lua_pcall(L, 1, 1, 0);
	child_end_fini(&end);
	if (error)
		lua_error(L);
}

/* ends(job) -> the list of results of all programs, the same list in every call. Only after all have ended. */
static int job_ends(lua_State *L)
{
	struct exec_job *j = job_at(L, 1);

	if (lua_getiuservalue(L, 1, 1) == LUA_TTABLE)
		return 1;
	lua_createtable(L, j->n, 0);
	lua_pushvalue(L, -1);
	lua_setiuservalue(L, 1, 1);
	for (int i = 0; i < j->n; i++) {
		take_end(L, &j->child[i]);
		lua_rawseti(L, -2, i + 1);
	}
	return 1;
}

/* ---- the script's object ---- */

static int signal_number(lua_State *L, int arg)
{
	if (lua_type(L, arg) == LUA_TNUMBER && lua_tonumber(L, arg) >= 1 && lua_tonumber(L, arg) < NSIG)
		return (int)lua_tonumber(L, arg);
	if (lua_type(L, arg) != LUA_TSTRING)
		return luaL_error(L, "child:kill: expected a signal, as in \"HUP\", found %s",
		                  luaL_tolstring(L, arg, NULL));
	const char *name = lua_tostring(L, arg);
	if (strncmp(name, "SIG", 3) == 0)
		name += 3;
	for (int s = 1; s < NSIG; s++)
		if (sigabbrev_np(s) && strcmp(sigabbrev_np(s), name) == 0)
			return s;
	return luaL_error(L, "child:kill: there is no signal %s", name);
}

/* child:kill([signal]) -> true: it had not ended. Without a signal: SIGTERM, and SIGKILL after kill_after. */
static int job_kill(lua_State *L)
{
	struct exec_job *j = job_at(L, 1);
	int signal = lua_isnoneornil(L, 2) ? 0 : signal_number(L, 2);
	bool there = false;

	for (int i = 0; i < j->n; i++) {
		if (!j->child[i] || child_ended(j->child[i]))
			continue;
		there = true;
		if (signal)
			child_signal(j->child[i], signal);
		else
			child_stop_gently(j->child[i]);
	}
	lua_pushboolean(L, there);
	return 1;
}

static int job_running(lua_State *L)
{
	lua_pushboolean(L, !ended(job_at(L, 1)));
	return 1;
}

static int job_index(lua_State *L)
{
	struct exec_job *j = job_at(L, 1);

	lua_pushvalue(L, 2);
	if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL)
		return 1;
	if (strcmp(luaL_tolstring(L, 2, NULL), "pid") != 0) {
		lua_pushvalue(L, 2);
		lua_gettable(L, lua_upvalueindex(1)); /* raises (lua/boot/unknown.lua) */
		return 1;
	}
	if (last(j))
		lua_pushinteger(L, child_pid(last(j)));
	else
		lua_pushnil(L);
	return 1;
}

static int job_close(lua_State *L)
{
	job_stop(job_at(L, 1));
	return 0;
}

static int job_gc(lua_State *L)
{
	job_let_go(job_at(L, 1));
	return 0;
}

static const luaL_Reg natives[] = {
	{ "start", job_start },     { "await", job_await }, { "line", job_line },
	{ "streams", job_streams }, { "ends", job_ends },   { NULL, NULL },
};

static const luaL_Reg methods[] = {
	{ "kill", job_kill },
	{ "running", job_running },
	{ NULL, NULL },
};

void api_open_exec(lua_State *L)
{
	luaL_setfuncs(L, natives, 0);
	luaL_newlib(L, methods);
	luaL_newmetatable(L, JOB_TYPE);
	lua_pushvalue(L, -2);
	lua_pushcclosure(L, job_index, 1);
	lua_setfield(L, -2, "__index");
	lua_pushcfunction(L, job_gc);
	lua_setfield(L, -2, "__gc");
	lua_pushcfunction(L, job_close);
	lua_setfield(L, -2, "__close");
	lua_pop(L, 1);
	lua_setfield(L, -2, "job_methods");
}
