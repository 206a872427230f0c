#include "script/child_spawn.h"

#include "base/env.h"
#include "base/mem.h"
#include "base/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* What descriptors 0 to 2 of the program are, and our ends of its pipes. */
struct plumbing {
	int input;
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

/* The whole input is known, so a file in memory holds it: no pipe must be filled, and no SIGPIPE can come. */
static int input_in_memory(const char *bytes, size_t len)
{
	int fd = memfd_create("input", MFD_CLOEXEC);

	if (fd < 0)
		return -1;
	if (write_all(fd, bytes, len) == 0 && lseek(fd, 0, SEEK_SET) == 0)
		return fd;
	close_fd(&fd);
	return -1;
}

static int open_input(const struct child_spec *spec)
{
	if (spec->input)
		return input_in_memory(spec->input, spec->input_len);
	if (!spec->input_file && spec->input_fd >= 0)
		return fcntl(spec->input_fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	return open(spec->input_file ? spec->input_file : "/dev/null", O_RDONLY | O_CLOEXEC);
}

static int open_pipe(struct plumbing *p, int i, int flags)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -1;
	p->ours[i] = fds[0];
	p->theirs[i] = fds[1];
	return fcntl(fds[0], F_SETFL, flags); /* only our end: each end of a pipe has its own flags */
}

static int open_file(const struct child_spec *spec, int i)
{
	if (spec->output[i] == CHILD_NULL)
		return open("/dev/null", O_WRONLY | O_CLOEXEC);
	return open(spec->file[i], O_WRONLY | O_CREAT | O_CLOEXEC | (spec->append[i] ? O_APPEND : O_TRUNC), 0666);
}

static int open_output(struct plumbing *p, const struct child_spec *spec, int i)
{
	switch (spec->output[i]) {
	case CHILD_INHERIT:
		return 0;
	case CHILD_NULL:
	case CHILD_FILE:
		p->theirs[i] = open_file(spec, i);
		return p->theirs[i] < 0 ? -1 : 0;
	case CHILD_MERGE:
		p->theirs[i] = fcntl(p->theirs[CHILD_STDOUT] >= 0 ? p->theirs[CHILD_STDOUT] : STDOUT_FILENO,
		                     F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
		return p->theirs[i] < 0 ? -1 : 0;
	case CHILD_PIPE:
		return open_pipe(p, i, 0);
	case CHILD_COLLECT:
		break;
	}
	return open_pipe(p, i, O_NONBLOCK);
}

static int plumbing_init(struct plumbing *p, const struct child_spec *spec, struct err *err)
{
	*p = (struct plumbing){ .input = -1, .ours = { -1, -1 }, .theirs = { -1, -1 } };
	p->input = open_input(spec);
	if (p->input < 0)
		return err_sys(err, "exec: cannot %s %s",
		               spec->input_file ? "read its standard input from" : "prepare the input of",
		               spec->input_file ? spec->input_file : spec->argv[0]);
	for (int i = 0; i < CHILD_OUTPUTS; i++)
		if (open_output(p, spec, i) < 0)
			return err_sys(err, "exec: cannot %s %s",
			               spec->file[i] ? "write its output to" : "prepare the output of",
			               spec->file[i] ? spec->file[i] : spec->argv[0]);
	return 0;
}

/* ---- the program's user ---- */

struct identity {
	uid_t uid;
	gid_t gid;
	gid_t *groups;
	int ngroups;
	char variables[3][4200]; /* HOME=..., USER=... and LOGNAME=...; "": those of this process stay */
};

static int find_user(const char *user, struct passwd *pw, char *text, size_t size, struct err *err)
{
	struct passwd *found = NULL;
	char *end;
	unsigned long uid = strtoul(user, &end, 10);
	bool number = *user >= '0' && *user <= '9' && !*end;
	if (number && uid != (uid_t)uid)
		return err_set(err, ERR_MISSING, "exec: there is no user %s on this machine", user);
	int error = number ? getpwuid_r((uid_t)uid, pw, text, size, &found) : getpwnam_r(user, pw, text, size, &found);

	if (error) {
		errno = error;
		return err_sys(err, "exec: cannot look up the user %s", user);
	}
	return found ? 0 : err_set(err, ERR_MISSING, "exec: there is no user %s on this machine", user);
}

/* Called before fork: between fork and exec only async-signal-safe functions may be called, and these are not. */
static int identity_init(struct identity *id, const char *user, struct err *err)
{
	char text[16384];
	struct passwd pw;

	if (find_user(user, &pw, text, sizeof text, err) < 0)
		return -1;
	id->uid = pw.pw_uid;
	id->gid = pw.pw_gid;
	snprintf(id->variables[0], sizeof id->variables[0], "HOME=%s", pw.pw_dir);
	snprintf(id->variables[1], sizeof id->variables[1], "USER=%s", pw.pw_name);
	snprintf(id->variables[2], sizeof id->variables[2], "LOGNAME=%s", pw.pw_name);
	getgrouplist(pw.pw_name, pw.pw_gid, NULL, &id->ngroups);
	id->groups = mem_zero((size_t)(id->ngroups + 1) * sizeof *id->groups);
	if (getgrouplist(pw.pw_name, pw.pw_gid, id->groups, &id->ngroups) < 0) {
		free(id->groups);
		return err_set(err, ERR_SYSTEM, "exec: cannot look up the groups of the user %s", user);
	}
	return 0;
}

/* ---- the program's environment ---- */

/* Later ones replace earlier ones: environ, where the scheduler has put the term's marker; the variables of another
 * user; the caller's changes. */
static char **program_environment(struct identity *id, char *const *changes)
{
	char *const users[] = { id->variables[0], id->variables[1], id->variables[2], NULL };
	char **own = env_with(environ, users), **env = env_with(own, changes);

	free(own);
	return env;
}

/* ---- starting it ---- */

static int child_spawn_raw(pid_t *pid, const struct child_spec *spec, const struct plumbing *p, char **env)
{
	struct spawn s;
	sigset_t none, reset;

	sigemptyset(&none);
	sigemptyset(&reset);
	sigaddset(&reset, SIGPIPE); /* a program of a pipeline must end when nobody reads its output */
	spawn_init(&s, &none, &reset, true);
	if (spec->directory)
		spawn_directory(&s, spec->directory);
	spawn_pass(&s, p->input, STDIN_FILENO);
	for (int i = 0; i < CHILD_OUTPUTS; i++)
		if (p->theirs[i] >= 0)
			spawn_pass(&s, p->theirs[i], STDOUT_FILENO + i);
	return spawn_run(&s, pid, spec->argv[0], spec->argv, env);
}

enum { STEP_USER = 1, STEP_START };

struct misstep {
	int step, error;
};

/* Runs in the new process after fork. */
static void become(const struct child_spec *spec, const struct plumbing *p, const struct identity *id, char **env,
                   int report)
{
	struct misstep m = { STEP_START, 0 };
	sigset_t none;

	sigemptyset(&none);
	setpgid(0, 0);
	if (dup2(p->input, STDIN_FILENO) < 0)
		goto out;
	for (int i = 0; i < CHILD_OUTPUTS; i++)
		if (p->theirs[i] >= 0 && dup2(p->theirs[i], STDOUT_FILENO + i) < 0)
			goto out;
	if (geteuid() != id->uid || getegid() != id->gid) {
		m.step = STEP_USER;
		if (setgroups((size_t)id->ngroups, id->groups) < 0 || setresgid(id->gid, id->gid, id->gid) < 0 ||
		    setresuid(id->uid, id->uid, id->uid) < 0)
			goto out;
		m.step = STEP_START;
	}
	if (spec->directory && chdir(spec->directory) < 0)
		goto out;
	sigprocmask(SIG_SETMASK, &none, NULL);
	execvpe(spec->argv[0], spec->argv, env);
out:
	m.error = errno;
	if (write(report, &m, sizeof m) < 0) /* then the parent sees the exit status */
		_exit(127);
	_exit(127);
}

/* Uses fork, since posix_spawn cannot change the user. Signals stay blocked until the child has reset their
 * handlers. */
static int spawn_as(pid_t *pid, const struct child_spec *spec, const struct plumbing *p, const struct identity *id,
                    char **env, struct misstep *m)
{
	int report[2];
	sigset_t all, before;

	*m = (struct misstep){ STEP_START, 0 };
	if (pipe2(report, O_CLOEXEC) < 0)
		return errno;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	*pid = fork();
	if (*pid == 0) {
		for (int s = 1; s < NSIG; s++)
			signal(s, SIG_DFL);
		become(spec, p, id, env, report[1]);
	}
	int error = *pid < 0 ? errno : 0;
	sigprocmask(SIG_SETMASK, &before, NULL);
	close(report[1]);
	ssize_t n = 0;
	do
		n = error ? 0 : read(report[0], m, sizeof *m); /* waits until exec closes the pipe */
	while (n < 0 && errno == EINTR);
	close(report[0]);
	if (n == (ssize_t)sizeof *m) {
		while (waitpid(*pid, NULL, 0) < 0 && errno == EINTR)
			;
		return m->error;
	}
	return error;
}

static int child_spawn_start(const struct child_spec *spec, const struct plumbing *p, pid_t *pid, struct err *err)
{
	struct identity id = { 0 };
	struct misstep m = { STEP_START, 0 };

	if (spec->user && identity_init(&id, spec->user, err) < 0)
		return -1;
	char **env = program_environment(&id, spec->env);
	int error = spec->user ? spawn_as(pid, spec, p, &id, env, &m) : child_spawn_raw(pid, spec, p, env);
	free(env);
	free(id.groups);
	errno = error;
	if (!error)
		return 0;
	if (m.step == STEP_USER)
		return err_sys(err, "exec: cannot start %s as the user %s", spec->argv[0], spec->user);
	return err_sys(err, "exec: cannot start %s%s%s", spec->argv[0], spec->directory ? " in " : "",
	               spec->directory ? spec->directory : "");
}

int child_spawn(const struct child_spec *spec, pid_t *pid, int ours[CHILD_OUTPUTS], struct err *err)
{
	struct plumbing p;
	int result = -1;

	if (plumbing_init(&p, spec, err) < 0 || child_spawn_start(spec, &p, pid, err) < 0)
		goto out;
	result = 0;
	for (int i = 0; i < CHILD_OUTPUTS; i++) {
		ours[i] = spec->output[i] == CHILD_PIPE ? -1 : p.ours[i];
		if (spec->output[i] == CHILD_PIPE)
			*spec->piped = p.ours[i];
		p.ours[i] = -1;
	}
out:
	plumbing_fini(&p);
	return result;
}
