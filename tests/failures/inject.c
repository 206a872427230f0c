/* Runs a candidate, and lets the n-th system call of a kind fail in one of its processes, whoever makes it: the
 * program, a library, or the C library itself. It counts them all. Usage: inject NTH_FILE PROGRAM ARGUMENT...
 *
 * As `strace -f --inject` does it, by ptrace(2) and seccomp(2), but in the process of one role (strace counts in
 * each), and only the calls of that kind are stopped. The program keeps this process' number; who traces it is no
 * child of it. x86-64. Built and used by tests/lib/nth.py. */
#include "nth.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>

#ifndef __x86_64__
#error "the registers are those of x86-64"
#endif

#define THREADS_MOST 4096

struct thread {
	pid_t pid, process;
	enum nth_role role;
	int waits; /* it stopped before its parent said that it was born */
	int begun; /* the dynamic loader has done its work, which is not what is tried here */
	int fails; /* the call that is being done is to return the error */
};

static struct thread threads[THREADS_MOST];

static struct thread *thread_of(pid_t pid)
{
	for (size_t i = 0; i < THREADS_MOST; i++)
		if (threads[i].pid == pid)
			return &threads[i];
	return NULL;
}

static pid_t process_of(pid_t pid)
{
	char path[64], text[512] = "";

	snprintf(path, sizeof path, "/proc/%d/status", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return pid;
	ssize_t n = read(fd, text, sizeof text - 1);
	close(fd);
	const char *at = n > 0 ? strstr(text, "\nTgid:") : NULL;
	return at ? atoi(at + 6) : pid;
}

static struct thread *thread_add(pid_t pid, enum nth_role role)
{
	struct thread *t = thread_of(pid);

	if (!t)
		t = thread_of(0);
	if (!t)
		abort();
	*t = (struct thread){ .pid = pid, .process = process_of(pid), .role = role };
	return t;
}

/* What a process of this role starts, until it executes something. An elector's fork is its first guard; what it
 * executes, later guards too, it starts by vfork or posix_spawn. */
static enum nth_role role_of_child(enum nth_role parent, int forked)
{
	switch (parent) {
	case ELECTOR:
		return forked ? GUARD : LAUNCHED;
	case GUARD:
		return WORKER;
	case WORKER:
	case DRIVER:
		return SPAWNED;
	default:
		return OTHER;
	}
}

static void on_birth(pid_t parent, pid_t child, int forked)
{
	const struct thread *p = thread_of(parent), *c = thread_of(child);
	enum nth_role role = p ? p->role : OTHER;
	int waited = c && c->waits, begun = p && p->begun;

	thread_add(child, p && process_of(child) == p->process ? role : role_of_child(role, forked))->begun = begun;
	if (waited)
		ptrace(PTRACE_CONT, child, 0, 0);
}

static void on_exec(pid_t pid, unsigned long before)
{
	char number[24];

	if ((pid_t)before != pid && thread_of((pid_t)before))
		thread_of((pid_t)before)->pid = 0;
	snprintf(number, sizeof number, "%d", pid);
	thread_add(pid, nth_role_of(number));
}

/* eventfd(2): a write to it fails where the counter would be too large, and waits, or gives EAGAIN, where it would be;
 * a counter of 64 bits is not filled by wake-ups. */
static int is_eventfd(pid_t pid, unsigned long long fd)
{
	char path[64], target[64] = "";

	snprintf(path, sizeof path, "/proc/%d/fd/%llu", pid, fd);
	return readlink(path, target, sizeof target - 1) > 0 && strstr(target, "eventfd");
}

/* A Unix socket says that its other end is gone only where that is so (unix(7); unix_release_sock in the kernel's
 * net/unix/af_unix.c), and then neither end hears of the other any more. So it is shut down before it says it: what
 * follows is what follows when the other process has closed it. */
static void make_gone(const struct nth *shared, pid_t pid, int fd)
{
	int domain = 0;
	socklen_t size = sizeof domain;

	if (shared->error != ECONNRESET && shared->error != EPIPE)
		return;
	int process = (int)syscall(SYS_pidfd_open, process_of(pid), 0);
	int copy = (int)syscall(SYS_pidfd_getfd, process, fd, 0);
	if (copy >= 0 && getsockopt(copy, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX)
		shutdown(copy, SHUT_RDWR);
	close(copy);
	close(process);
}

/* wait(2): "EINTR WNOHANG was not set and an unblocked signal or a SIGCHLD was caught". */
static int does_not_wait(const struct user_regs_struct *r)
{
	return (r->orig_rax == SYS_wait4 && (r->rdx & WNOHANG)) || (r->orig_rax == SYS_waitid && (r->r10 & WNOHANG));
}

static void set_error(const struct nth *shared, pid_t pid, struct user_regs_struct *r)
{
	r->rax = (unsigned long long)-(long long)shared->error;
	ptrace(PTRACE_SETREGS, pid, 0, r);
}

/* true: the call is to be done all the same, and to return the error then: close(2) closes whatever it returns. */
static int on_call(struct nth *shared, pid_t pid)
{
	struct thread *t = thread_of(pid);
	struct user_regs_struct r;

	if (!t || ptrace(PTRACE_GETREGS, pid, 0, &r) < 0 || r.orig_rax >= WHATS)
		return 0;
	if (r.orig_rax == SYS_rseq)
		t->begun = 1;
	if (!t->begun || (r.orig_rax == SYS_write && is_eventfd(pid, r.rdi)) || does_not_wait(&r) ||
	    !nth_is_now(shared, t->role, r.orig_rax))
		return 0;
	make_gone(shared, pid, (int)r.rdi);
	nth_fired(shared, r.rdi, (uint64_t)pid);
	t->fails = r.orig_rax == SYS_close;
	if (t->fails)
		return 1;
	r.orig_rax = ~0ULL; /* none: not done (ptrace(2), seccomp(2)) */
	set_error(shared, pid, &r);
	return 0;
}

static void on_call_done(const struct nth *shared, pid_t pid)
{
	struct thread *t = thread_of(pid);
	struct user_regs_struct r;

	if (!t || !t->fails || ptrace(PTRACE_GETREGS, pid, 0, &r) < 0)
		return;
	t->fails = 0;
	set_error(shared, pid, &r);
}

static void on_stop(struct nth *shared, pid_t pid, int status)
{
	int signal = WSTOPSIG(status), event = status >> 16;
	unsigned long message = 0;

	switch (event) {
	case PTRACE_EVENT_SECCOMP:
		if (on_call(shared, pid)) {
			ptrace(PTRACE_SYSCALL, pid, 0, 0);
			return;
		}
		break;
	case PTRACE_EVENT_FORK:
	case PTRACE_EVENT_VFORK:
	case PTRACE_EVENT_CLONE:
		if (ptrace(PTRACE_GETEVENTMSG, pid, 0, &message) == 0)
			on_birth(pid, (pid_t)message, event == PTRACE_EVENT_FORK);
		break;
	case PTRACE_EVENT_EXEC:
		if (ptrace(PTRACE_GETEVENTMSG, pid, 0, &message) == 0)
			on_exec(pid, message);
		break;
	case PTRACE_EVENT_STOP:
		if (signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU) {
			ptrace(PTRACE_LISTEN, pid, 0, 0);
			return;
		}
		if (!thread_of(pid)) {
			thread_add(pid, OTHER)->waits = 1;
			return;
		}
		break;
	default: /* a signal: it is delivered; or the end of a call */
		if (signal == (SIGTRAP | 0x80)) {
			on_call_done(shared, pid);
			signal = 0;
		}
		ptrace(PTRACE_CONT, pid, 0, (unsigned long)signal);
		return;
	}
	ptrace(PTRACE_CONT, pid, 0, 0);
}

static void trace(struct nth *shared, pid_t first, int ready)
{
	const unsigned long options = PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE |
	                              PTRACE_O_TRACEEXEC | PTRACE_O_TRACESECCOMP | PTRACE_O_TRACESYSGOOD |
	                              PTRACE_O_EXITKILL;
	int status;
	pid_t pid;

	if (ptrace(PTRACE_SEIZE, first, 0, options) < 0)
		_exit(3);
	thread_add(first, OTHER);
	if (write(ready, "", 1) != 1)
		_exit(3);
	close_range(0, ~0U, 0); /* nobody is to wait for us at the end of a pipe */
	while ((pid = waitpid(-1, &status, __WALL)) > 0 || errno == EINTR) {
		if (pid <= 0)
			continue;
		if (WIFSTOPPED(status))
			on_stop(shared, pid, status);
		else if (thread_of(pid))
			thread_of(pid)->pid = 0;
	}
	_exit(0);
}

/* Every call is stopped to be counted; else those that are to fail alone. */
static int filter_calls(const struct nth *shared)
{
	struct sock_filter one[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)shared->what, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rseq, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog part = { .len = shared->n ? 5 : 1, .filter = shared->n ? one : one + 3 };

	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &part);
}

int main(int argc, char **argv)
{
	struct nth *shared = argc > 2 ? nth_map(argv[1]) : NULL;
	int ready[2];
	pid_t self = getpid(), between;
	char byte;

	if (!shared || pipe2(ready, O_CLOEXEC) < 0)
		return 3;
	between = fork();
	if (between == 0) {
		setsid();
		if (fork() == 0)
			trace(shared, self, ready[1]);
		_exit(0);
	}
	close(ready[1]);
	if (between < 0 || waitpid(between, NULL, 0) < 0 || read(ready[0], &byte, 1) != 1)
		return 3;
	close(ready[0]);
	if (filter_calls(shared) < 0)
		return 3;
	execvp(argv[2], argv + 2);
	return 3;
}
