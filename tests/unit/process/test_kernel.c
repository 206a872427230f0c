/* What the kernel must have: each call is refused by a seccomp filter, as a container's profile does it, in a process
 * of its own. */
#include "process/kernel.h"
#include "tap.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANY (-1)

/* The filter refuses one call, or that call with such an argument. */
static int refuse(int call, int place, uint32_t argument, int error)
{
	struct sock_filter lines[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
		         (uint32_t)offsetof(struct seccomp_data, args) + 8 * (place == ANY ? 0 : (uint32_t)place)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, argument, 0, place == ANY ? 0 : 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = sizeof lines / sizeof *lines, .filter = lines };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -1
	                                                  : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

static int open_files(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

struct found {
	int result, files_left;
	struct err err;
};

/* What kernel_check finds in a process to which this is refused. */
static struct found check(int call, int place, uint32_t argument, int error)
{
	struct found *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct found f = { .result = 1 };
	int status;

	pid_t pid = fork();
	if (pid == 0) {
		int before = open_files();
		if (error && refuse(call, place, argument, error) < 0)
			_exit(1);
		shared->result = kernel_check(&shared->err);
		shared->files_left = open_files() - before;
		_exit(0);
	}
	if (pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0)
		f = *shared;
	munmap(shared, sizeof *shared);
	return f;
}

static const struct call {
	const char *name;
	int number, place;
	uint32_t argument;
} calls[] = {
	{ "pidfd_open", SYS_pidfd_open, ANY, 0 },
	{ "memfd_create", SYS_memfd_create, ANY, 0 },
	{ "F_SEAL_FUTURE_WRITE", SYS_fcntl, 1, F_ADD_SEALS },
	{ "MADV_DONTFORK", SYS_madvise, 2, MADV_DONTFORK },
	{ "timerfd_create", SYS_timerfd_create, ANY, 0 },
	{ "signalfd", SYS_signalfd4, ANY, 0 },
	{ "socketpair", SYS_socketpair, ANY, 0 },
	{ "PR_SET_CHILD_SUBREAPER", SYS_prctl, 0, PR_SET_CHILD_SUBREAPER },
};

static void test_refused(void)
{
	static const int errors[] = { EPERM, ENOSYS };

	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
		for (size_t k = 0; k < 2; k++) {
			const struct call *c = &calls[i];
			struct found f = check(c->number, c->place, c->argument, errors[k]);
			ok(f.result == -1 && strstr(f.err.text, c->name) && strstr(f.err.text, strerror(errors[k])) &&
			           strstr(f.err.text, "seccomp"),
			   "%s is refused (%s): that is said, with what to do", c->name, strerror(errors[k]));
			is_int(f.files_left, 0, "... and no descriptor is left");
		}
}

static void test_short(void)
{
	static const int errors[] = { EMFILE, ENFILE, ENOMEM };

	for (size_t k = 0; k < 3; k++)
		is_int(check(SYS_signalfd4, ANY, 0, errors[k]).result, 0, "a shortage is no refusal");
}

int main(void)
{
	struct found f = check(0, ANY, 0, 0);

	is_int(f.result, 0, "this kernel has all of it");
	is_int(f.files_left, 0, "... and no descriptor is left");
	test_refused();
	test_short();
	return tap_done();
}
