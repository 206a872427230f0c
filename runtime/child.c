#include "child.h"

#include "mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define READ_BYTES 65536
#define READS_AFTER_END 16 /* more than a pipe holds; a grandchild that goes on writing must not keep us here */

struct child {
	struct child *next, **link; /* in its scope, until it has ended */
	struct scope *scope;
	struct wait wait;
	pid_t pid;
	int pidfd;
	ev_io exited, readable[CHILD_OUTPUTS];
	ev_timer timer;             /* the time is up; when it is being stopped: SIGKILL */
	double kill_after_s;
	size_t output_max;
	bool stopping, ended, released;
	struct child_end end;
};

/* ---- starting ---- */

struct plumbing {
	int input;                               /* what becomes descriptor 0 */
	int ours[CHILD_OUTPUTS], theirs[CHILD_OUTPUTS]; /* theirs -1: inherited */
};

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void plumbing_fini(struct plumbing *p)
{
	close_fd(&p->input);
	for (int i = 0; i < CHILD_OUTPUTS; i++) {
		close_fd(&p->ours[i]);
		close_fd(&p->theirs[i]);
	}
}

static int write_all(int fd, const char *bytes, size_t len)
{
	while (len) {
		ssize_t n = write(fd, bytes, len);
		if (n < 0 && errno != EINTR)
			return -1;
		if (n > 0) {
			bytes += n;
			len -= (size_t)n;
		}
	}
	return 0;
}

/* The input lies in memory as a whole, so a file in memory serves it: nothing to feed, no reader that can go away. */
static int open_input(const struct child_spec *spec)
{
	if (!spec->input)
		return open("/dev/null", O_RDONLY | O_CLOEXEC);
	int fd = memfd_create("input", MFD_CLOEXEC);
	if (fd < 0)
		return -1;
	if (write_all(fd, spec->input, spec->input_len) == 0 && lseek(fd, 0, SEEK_SET) == 0)
		return fd;
	close_fd(&fd);
	return -1;
}

static int open_output(struct plumbing *p, int i, enum child_output how)
{
	int fds[2];

	switch (how) {
	case CHILD_INHERIT:
		return 0;
	case CHILD_NULL:
		p->theirs[i] = open("/dev/null", O_WRONLY | O_CLOEXEC);
		return p->theirs[i] < 0 ? -1 : 0;
	case CHILD_COLLECT:
		break;
	}
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -1;
	p->ours[i] = fds[0];
	p->theirs[i] = fds[1];
	return fcntl(fds[0], F_SETFL, O_NONBLOCK); /* our end alone: each end of a pipe has flags of its own */
}

static int plumbing_init(struct plumbing *p, const struct child_spec *spec, struct err *err)
{
	*p = (struct plumbing){ .input = -1, .ours = { -1, -1 }, .theirs = { -1, -1 } };
	p->input = open_input(spec);
	if (p->input < 0)
		return err_sys(err, "exec: cannot prepare the input of %s", spec->argv[0]);
	for (int i = 0; i < CHILD_OUTPUTS; i++)
		if (open_output(p, i, spec->output[i]) < 0)
			return err_sys(err, "exec: cannot prepare the output of %s", spec->argv[0]);
	return 0;
}

static bool same_name(const char *entry, const char *wanted)
{
	size_t len = strcspn(wanted, "=");

	return strncmp(entry, wanted, len) == 0 && entry[len] == '=';
}

static bool is_replaced(const char *entry, char *const *env)
{
	for (; env && *env; env++)
		if (same_name(entry, *env))
			return true;
	return false;
}

/* environ, which the scheduler has marked with the term, and the caller's changes. The caller frees the array alone. */
static char **child_environment(char *const *env)
{
	size_t n = 0, more = 0;

	while (environ[n])
		n++;
	while (env && env[more])
		more++;
	char **all = mem_zero((n + more + 1) * sizeof *all);
	size_t at = 0;
	for (size_t i = 0; i < n; i++)
		if (!is_replaced(environ[i], env))
			all[at++] = environ[i];
	for (size_t i = 0; i < more; i++)
		if (strchr(env[i], '='))
			all[at++] = env[i];
	return all;
}

static int spawn(pid_t *pid, const struct child_spec *spec, const struct plumbing *p)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t none;
	char **env = child_environment(spec->env);

	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attr);
	sigemptyset(&none);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setpgroup(&attr, 0);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
	if (spec->directory)
		posix_spawn_file_actions_addchdir_np(&actions, spec->directory);
	posix_spawn_file_actions_adddup2(&actions, p->input, STDIN_FILENO);
	for (int i = 0; i < CHILD_OUTPUTS; i++)
		if (p->theirs[i] >= 0)
			posix_spawn_file_actions_adddup2(&actions, p->theirs[i], STDOUT_FILENO + i);
	int error = posix_spawnp(pid, spec->argv[0], &actions, &attr, spec->argv, env);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	free(env);
	return error;
}

/* Nobody else reaps our children, so the pid is still this child's, even if it has ended already. */
static int watch(pid_t pid, struct err *err)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	if (fd >= 0)
		return fd;
	err_sys(err, "exec: cannot watch process %d", (int)pid);
	kill(-pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return -1;
}

/* ---- while it runs ---- */

static void collect(struct child *c, int i, const char *bytes, size_t len)
{
	struct buf *b = &c->end.output[i];
	size_t room = c->output_max - b->len;

	if (len > room) {
		c->end.truncated = true;
		len = room;
	}
	buf_add(b, bytes, len);
}

/* false: no more for now, or for good */
static bool read_output(struct child *c, int i)
{
	struct ev_loop *loop = sched_loop(c->scope->sched);
	char bytes[READ_BYTES];
	ssize_t n = read(c->readable[i].fd, bytes, sizeof bytes);

	if (n > 0)
		collect(c, i, bytes, (size_t)n);
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		ev_io_stop(loop, &c->readable[i]);
	return n > 0;
}

static void on_readable(struct ev_loop *loop, ev_io *io, int revents)
{
	struct child *c = io->data;

	(void)loop;
	(void)revents;
	read_output(c, io == &c->readable[CHILD_STDERR]);
}

static void on_timer(struct ev_loop *loop, ev_timer *timer, int revents)
{
	struct child *c = timer->data;

	(void)loop;
	(void)revents;
	if (c->stopping) {
		kill(-c->pid, SIGKILL);
		return;
	}
	c->end.timed_out = true;
	child_stop(c, c->kill_after_s);
}

void child_stop(struct child *c, double kill_after_s)
{
	struct ev_loop *loop = sched_loop(c->scope->sched);

	if (c->ended || (c->stopping && !ev_is_active(&c->timer)))
		return;
	if (c->stopping && ev_timer_remaining(loop, &c->timer) <= kill_after_s)
		return;
	if (!c->stopping) {
		kill(-c->pid, SIGTERM);
		kill(-c->pid, SIGCONT); /* a stopped process cannot look at its SIGTERM */
	}
	c->stopping = true;
	ev_now_update(loop);
	ev_timer_stop(loop, &c->timer);
	ev_timer_set(&c->timer, kill_after_s, 0);
	ev_timer_start(loop, &c->timer);
}

/* ---- its end ---- */

static void child_free(struct child *c)
{
	child_end_fini(&c->end);
	free(c);
}

static void stop_watching(struct child *c, struct ev_loop *loop)
{
	ev_timer_stop(loop, &c->timer);
	ev_io_stop(loop, &c->exited);
	close_fd(&c->pidfd);
	for (int i = 0; i < CHILD_OUTPUTS; i++) {
		ev_io_stop(loop, &c->readable[i]);
		if (c->readable[i].fd >= 0)
			close(c->readable[i].fd);
	}
}

static void read_the_rest(struct child *c)
{
	for (int i = 0; i < CHILD_OUTPUTS; i++)
		for (int n = 0; n < READS_AFTER_END && ev_is_active(&c->readable[i]); n++)
			if (!read_output(c, i))
				break;
}

static void on_exit_of_child(struct ev_loop *loop, ev_io *io, int revents)
{
	struct child *c = io->data;
	struct scope *scope = c->scope;

	(void)revents;
	/* While it is not reaped its number cannot be given to another group: the last moment to kill by it. */
	if (c->stopping)
		kill(-c->pid, SIGKILL);
	pid_t pid = waitpid(c->pid, &c->end.wait_status, WNOHANG);
	if (pid == 0 || (pid < 0 && errno == EINTR))
		return;
	read_the_rest(c);
	stop_watching(c, loop);
	c->ended = true;
	*c->link = c->next;
	if (c->next)
		c->next->link = c->link;
	if (c->released)
		child_free(c);
	else
		wait_done(&c->wait);
	scope_check_idle(scope);
}

static void on_left(struct wait *w)
{
	struct child *c = (struct child *)((char *)w - offsetof(struct child, wait));

	child_stop(c, c->kill_after_s);
}

/* ---- the contract ---- */

static void adopt(struct child *c, struct plumbing *p)
{
	struct ev_loop *loop = sched_loop(c->scope->sched);

	ev_io_init(&c->exited, on_exit_of_child, c->pidfd, EV_READ);
	c->exited.data = c;
	ev_io_start(loop, &c->exited);
	for (int i = 0; i < CHILD_OUTPUTS; i++) {
		ev_io_init(&c->readable[i], on_readable, p->ours[i], EV_READ);
		c->readable[i].data = c;
		if (p->ours[i] >= 0)
			ev_io_start(loop, &c->readable[i]);
		p->ours[i] = -1;
	}
	c->next = c->scope->children;
	c->link = &c->scope->children;
	if (c->next)
		c->next->link = &c->next;
	c->scope->children = c;
}

struct child *child_start(struct scope *scope, const struct child_spec *spec, struct err *err)
{
	struct plumbing p;
	struct child *c = NULL;
	pid_t pid;

	if (plumbing_init(&p, spec, err) < 0)
		goto out;
	errno = spawn(&pid, spec, &p);
	if (errno) {
		err_sys(err, "exec: cannot start %s%s%s", spec->argv[0], spec->directory ? " in " : "",
		        spec->directory ? spec->directory : "");
		goto out;
	}
	int pidfd = watch(pid, err);
	if (pidfd < 0)
		goto out;
	c = mem_zero(sizeof *c);
	*c = (struct child){ .scope = scope, .pid = pid, .pidfd = pidfd, .output_max = spec->output_max,
	                     .kill_after_s = spec->kill_after_s, .wait = { .left = on_left } };
	adopt(c, &p);
	ev_init(&c->timer, on_timer);
	c->timer.data = c;
	if (spec->timeout_s >= 0) {
		ev_now_update(sched_loop(scope->sched));
		ev_timer_set(&c->timer, spec->timeout_s, 0);
		ev_timer_start(sched_loop(scope->sched), &c->timer);
	}
out:
	plumbing_fini(&p);
	return c;
}

struct wait *child_wait(struct child *c)
{
	return &c->wait;
}

void child_take(struct child *c, struct child_end *end)
{
	*end = c->end;
	c->end = (struct child_end){ 0 };
}

void child_end_fini(struct child_end *end)
{
	for (int i = 0; i < CHILD_OUTPUTS; i++)
		buf_fini(&end->output[i]);
}

void child_release(struct child *c)
{
	c->released = true;
	if (c->ended)
		child_free(c);
}

struct child *child_next(const struct child *c)
{
	return c->next;
}
