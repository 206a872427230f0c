/* A /proc without the processes of other tests: one of the same user that cannot be read leaves a death unproved, as it
 * should. Not for tests of namespaces. Used first of all by the tests that prove deaths. */
#pragma once

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Reaps what it inherits until the test has ended, and ends as that did. */
static void own_proc_wait(pid_t test)
{
	pid_t ended;
	int status = 1;

	while ((ended = waitpid(-1, &status, 0)) != test && ended > 0)
		;
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static pid_t own_proc_fork(void)
{
	pid_t child = fork();

	if (child == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return child;
}

/* Goes on in a PID namespace of its own, not as its first process. Who may not make one goes on where it is. */
static inline void own_proc(void)
{
	pid_t child;

	fflush(stdout);
	if (unshare(CLONE_NEWPID | CLONE_NEWNS) < 0)
		return;
	if ((child = own_proc_fork()) != 0)
		own_proc_wait(child);
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("proc", "/proc", "proc", 0, NULL) < 0)
		_exit(1);
	if ((child = own_proc_fork()) != 0)
		own_proc_wait(child);
}
