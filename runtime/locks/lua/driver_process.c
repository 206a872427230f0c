#include "locks/lua/driver_process.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/spawn.h"
#include "locks/lock_url.h"
#include "locks/lua/driver_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define END_TEXT 80

/* Our environment without the password, which goes by the socket: what the lock file starts inherits the driver's
 * environment. The caller frees the list. */
static char **driver_environment(void)
{
	static const char password[] = LOCK_URL_PASSWORD "=";
	size_t most = 1, n = 0;

	for (char **e = environ; *e; e++)
		most++;
	char **list = mem_zero(most * sizeof *list);
	for (char **e = environ; *e; e++)
		if (strncmp(*e, password, strlen(password)) != 0)
			list[n++] = *e;
	return list;
}

/* 0, or the number of the error. */
static int process_spawn(pid_t *pid, int fd)
{
	static char name[] = "lunarch", role[] = "-x", driver[] = "driver";
	char number[12];
	struct log_settings log = log_settings();
	char *format = mem_dup(log.format), *level = mem_dup(log.level), *identity = mem_dup(log.identity);
	char *argv[] = { name, role, driver, number, format, level, identity, NULL }, **env = driver_environment();
	struct spawn s;
	sigset_t all;

	snprintf(number, sizeof number, "%d", fd);
	sigfillset(&all);
	spawn_init(&s, &all, &all, false);
	spawn_no_input(&s);
	spawn_pass(&s, fd, fd);
	int error = spawn_run(&s, pid, "/proc/self/exe", argv, env);
	free(env);
	free(format);
	free(level);
	free(identity);
	return error;
}

pid_t driver_process_start(int *fd, struct err *err)
{
	const int room = DRIVER_MAX + 4096; /* the kernel counts more than the bytes */
	int ends[2];
	pid_t pid = -1;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return err_sys(err, "no socket for the driver");
	for (int i = 0; i < 2; i++)
		setsockopt(ends[i], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	int error = process_spawn(&pid, ends[1]);
	close(ends[1]);
	if (error) {
		close(ends[0]);
		errno = error;
		return err_sys(err, "the driver does not start");
	}
	*fd = ends[0];
	return pid;
}

const char *driver_process_end(int status, char *out)
{
	if (status == -1)
		snprintf(out, END_TEXT, "its exit status is not known");
	else if (WIFSIGNALED(status))
		snprintf(out, END_TEXT, "killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		snprintf(out, END_TEXT, "exit status %d", WEXITSTATUS(status));
	return out;
}
