#include "process/kernel.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Making and closing a pidfd, a file or a pair of sockets takes ten microseconds; such a call is made with an argument
 * that the kernel itself refuses. A filter cannot tell the difference: it sees numbers and no memory, and none looks
 * for the pid -1. */
static int probe_refused(int result, int with)
{
	return result < 0 && errno == with ? 0 : -1;
}

static int probe_pidfd(void)
{
	return probe_refused((int)syscall(SYS_pidfd_open, -1, 0), EINVAL);
}

static int probe_memfd(void)
{
	return probe_refused(memfd_create(NULL, MFD_CLOEXEC | MFD_ALLOW_SEALING), EFAULT);
}

static int probe_sockets(void)
{
	// cppcheck-suppress nullPointer  ; that is what is to be refused
	return probe_refused(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, NULL), EFAULT);
}

static int probe_end(int fd)
{
	if (fd < 0)
		return -1;
	close(fd);
	return 0;
}

static int probe_seal(void)
{
	int fd = memfd_create("lunarch-probe", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int result = fd < 0 ? -1 : fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
	int error = errno;

	probe_end(fd);
	errno = error;
	return result;
}

/* It is given for no memory at all, which succeeds only if the kernel knows the advice (madvise(2)). */
static int probe_dont_fork(void)
{
	return madvise(NULL, 0, MADV_DONTFORK);
}

static int probe_timer(void)
{
	return probe_end(timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK));
}

static int probe_signalfd(void)
{
	sigset_t chld;

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	return probe_end(signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK));
}

/* It is set to what it is. */
static int probe_subreaper(void)
{
	int is = 0;

	return prctl(PR_GET_CHILD_SUBREAPER, &is) < 0 ? -1 : prctl(PR_SET_CHILD_SUBREAPER, is);
}

static const struct kernel_need {
	const char *call, *purpose, *since;
	int (*probe)(void); /* 0; -1 with errno */
} needs[] = {
	{ "pidfd_open", "to see that the elector has died", "5.3", probe_pidfd },
	{ "memfd_create", "for the deadlines that elector, guard and worker share", "3.17", probe_memfd },
	{ "fcntl(F_ADD_SEALS, F_SEAL_FUTURE_WRITE)", "so that a script cannot move its deadlines", "5.1", probe_seal },
	{ "madvise(MADV_DONTFORK)", "so that a script cannot move its deadlines", "2.6.16", probe_dont_fork },
	{ "timerfd_create(CLOCK_BOOTTIME)", "to kill in time also after a suspend", "3.15", probe_timer },
	{ "signalfd", "to see that the script or the command has ended", "2.6.27", probe_signalfd },
	{ "socketpair(AF_UNIX, SOCK_SEQPACKET)", "for the messages between its processes", "2.6.4", probe_sockets },
	{ "prctl(PR_SET_CHILD_SUBREAPER)", "to find and kill what a term has left behind", "3.4", probe_subreaper },
};

static bool passes_by(int error)
{
	return err_kernel_lacks(error) || error == EMFILE || error == ENFILE || error == EAGAIN || error == EINTR;
}

int kernel_check(struct err *err)
{
	for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
		const struct kernel_need *n = &needs[i];
		if (n->probe() == 0 || passes_by(errno))
			continue;
		return err_set(
			err, ERR_SYSTEM,
			"the kernel refuses %s, which is needed %s: %s. Linux has it since %s; if this kernel is "
			"newer, a filter of system calls is in force: allow the call in the container's seccomp "
			"profile, or in the unit's SystemCallFilter=",
			n->call, n->purpose, strerror(errno), n->since);
	}
	return 0;
}
