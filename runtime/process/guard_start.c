#include "process/guard_start.h"

#include "base/env.h"
#include "base/mem.h"
#include "base/proc.h"
#include "base/spawn.h"
#include "process/guard_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/single_threaded.h>
#include <unistd.h>

#define SELF "/proc/self/exe"

/* ---- its environment ---- */

/* A worker is outside any term. The array is the caller's, the entries are borrowed. */
static char **guard_environment(const struct supervisor_spec *spec)
{
	static char no_term[] = TERM_MARK_ENV "=-", no_next[] = NEXT_MARK_ENV;
	char *const worker[] = { no_term, no_next, NULL };
	char **own = env_with(environ, spec->command ? NULL : worker);
	char **kept = env_with(own, spec->unset), **env = env_with(kept, spec->env);

	free(own);
	free(kept);
	return env;
}

/* ---- what it is started with ---- */

static size_t list_length(char *const *list)
{
	size_t n = 0;

	while (list[n])
		n++;
	return n;
}

/* Arguments and environment as execve(2) lays them out: word behind word, in one piece of memory. */
struct words {
	char **argv, **env;
	char *text;
	size_t args_size, env_size;
};

static size_t words_size(char *const *word)
{
	size_t size = 0;

	for (; *word; word++)
		size += strlen(*word) + 1;
	return size;
}

static void words_init(struct words *w, char *const *argv, char *const *env)
{
	size_t args = list_length(argv), vars = list_length(env);
	const char **from = mem_zero((args + vars + 1) * sizeof *from);
	char **to = mem_zero((args + vars + 2) * sizeof *to);

	memcpy(from, argv, args * sizeof *from);
	memcpy(from + args, env, vars * sizeof *from);
	mem_pack(args + vars, from, to);
	free(from);
	memmove(to + args + 1, to + args, vars * sizeof *to);
	to[args] = NULL;
	*w = (struct words){ .argv = to, .env = to + args + 1, .text = to[0] };
	w->args_size = words_size(w->argv);
	w->env_size = words_size(w->env);
}

static void words_fini(struct words *w)
{
	free(w->text);
	free(w->argv);
}

#define ROLE 3 /* arguments before those of guard_main */

static void words_make(struct words *w, const struct supervisor_spec *spec, const struct guard_handed *h)
{
	static char name[] = "lunarch", role[] = "-x", guard[] = "guard";
	static const char *const modes[] = { "worker", "command", "foreground", "held", "held-foreground" };
	const int fds[] = { h->control, h->wire,   h->page[PAGE_DEADLINES], h->page[PAGE_MARKS], h->kept,
		            h->tree,    h->elector };
	char numbers[sizeof fds / sizeof *fds][12], mode[40];
	char **argv = mem_zero((list_length(spec->argv) + 12) * sizeof *argv), **env = guard_environment(spec);
	size_t n = 0;

	argv[n++] = name;
	argv[n++] = role;
	argv[n++] = guard;
	for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
		snprintf(numbers[i], sizeof numbers[i], "%d", fds[i]);
		argv[n++] = numbers[i];
	}
	snprintf(mode, sizeof mode, "%s%s", modes[spec->command ? 1 + spec->foreground + 2 * spec->held : 0],
	         spec->no_privileges ? GUARD_NO_PRIVILEGES : "");
	argv[n++] = mode;
	for (char *const *a = spec->argv; *a; a++)
		argv[n++] = *a;
	words_init(w, argv, env);
	free(argv);
	free(env);
}

/* Those that the tree does not ignore from the start are at their default. */
static bool ignores(const struct supervisor_spec *spec, int signal)
{
	return spec->ignored && sigismember(spec->ignored, signal) == 1;
}

/* ---- as this program, executed ---- */

#define HANDED 7

static void list_handed(const struct guard_handed *h, int *fd)
{
	memcpy(fd,
	       (int[HANDED]){ h->control, h->wire, h->page[PAGE_DEADLINES], h->page[PAGE_MARKS], h->kept, h->tree,
	                      h->elector },
	       HANDED * sizeof *fd);
}

/* Every other descriptor of ours is O_CLOEXEC; these lose that flag in the child alone (spawn_pass). Signals are
 * blocked until the guard is told otherwise, which is never. */
static int guard_execute(pid_t *pid, const struct supervisor_spec *spec, const struct guard_handed *h,
                         const struct words *w)
{
	struct spawn s;
	sigset_t all, defaults;
	int fd[HANDED];

	list_handed(h, fd);
	sigfillset(&all);
	sigfillset(&defaults);
	for (int i = 1; i < NSIG; i++)
		if (ignores(spec, i))
			sigdelset(&defaults, i);
	spawn_init(&s, &all, &defaults, false);
	if (spec->no_stdin)
		spawn_no_input(&s);
	for (int i = 0; i < HANDED; i++)
		if (fd[i] >= 0)
			spawn_pass(&s, fd[i], fd[i]);
	if (spec->passed_as)
		spawn_pass(&s, spec->passed, spec->passed_as);
	return spawn_run(&s, pid, SELF, w->argv, w->env);
}

/* ---- as a fork ---- */

static void fork_reset_signals(const struct supervisor_spec *spec)
{
	for (int i = 1; i < NSIG; i++)
		if (!ignores(spec, i))
			signal(i, SIG_DFL);
}

struct closing {
	int handed[HANDED], dir;
};

/* What execve(2) would close. */
static bool fork_close(void *arg, const char *name)
{
	const struct closing *c = arg;
	int fd = atoi(name);

	if (fd <= STDERR_FILENO || fd == c->dir)
		return true;
	for (int i = 0; i < HANDED; i++)
		if (fd == c->handed[i])
			return true;
	if (fcntl(fd, F_GETFD) & FD_CLOEXEC)
		close(fd);
	return true;
}

static int fork_replace(const struct supervisor_spec *spec)
{
	int null = spec->no_stdin ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;

	if (spec->no_stdin && (null < 0 || dup2(null, STDIN_FILENO) < 0))
		return -1;
	return spec->passed_as && dup2(spec->passed, spec->passed_as) < 0 ? -1 : 0;
}

static int fork_keep_handed(const struct supervisor_spec *spec, const struct guard_handed *h)
{
	struct closing c = { .dir = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC) };

	if (c.dir < 0)
		return -1;
	list_handed(h, c.handed);
	if (fork_replace(spec) < 0)
		return -1;
	if (h->tree >= 0 && fcntl(h->tree, F_SETFD, 0) < 0) /* everything in the tree has it */
		return -1;
	if (proc_each(c.dir, fork_close, &c) < 0)
		return -1;
	close(c.dir);
	return 0;
}

/* Executes the guard after all. If it cannot get all that it is to have (base/spawn.h), it is not executed at all. */
__attribute__((noreturn)) static void fork_execute(const struct supervisor_spec *spec, const struct guard_handed *h,
                                                   const struct words *w)
{
	int fd[HANDED];

	bool good = fork_replace(spec) == 0;

	list_handed(h, fd);
	for (int i = 0; i < HANDED; i++)
		good = good && (fd[i] < 0 || fcntl(fd[i], F_SETFD, 0) == 0);
	if (good)
		execve(SELF, w->argv, w->env);
	_exit(70);
}

/* Nothing of a term is started before the tree's mark can be seen. */
__attribute__((noreturn)) static void fork_become_guard(const struct supervisor_spec *spec,
                                                        const struct guard_handed *h, const struct words *w)
{
	char *env = w->text + w->args_size;

	spec->fork->let_go(spec->fork->arg);
	fork_reset_signals(spec);
	if (fork_keep_handed(spec, h) < 0 || proc_show(w->text, w->args_size, env, w->env_size) < 0)
		fork_execute(spec, h, w);
	environ = w->env;
	exit(guard_main((int)list_length(w->argv) - ROLE, w->argv + ROLE, spec->fork->worker));
}

static int guard_fork(pid_t *pid, const struct supervisor_spec *spec, const struct guard_handed *h,
                      const struct words *w)
{
	sigset_t all, was;

	fflush(NULL); /* else both would write what waits */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &was);
	*pid = fork();
	int error = errno;
	if (*pid == 0)
		fork_become_guard(spec, h, w);
	sigprocmask(SIG_SETMASK, &was, NULL);
	return *pid < 0 ? error : 0;
}

int guard_start(pid_t *pid, const struct supervisor_spec *spec, const struct guard_handed *h, struct err *err)
{
	struct words w;

	words_make(&w, spec, h);
	bool forks = spec->fork && __libc_single_threaded;
	int error = forks ? guard_fork(pid, spec, h, &w) : guard_execute(pid, spec, h, &w);
	words_fini(&w);
	errno = error;
	return error ? err_sys(err, "cannot start the guard process (" SELF ")") : 0;
}
