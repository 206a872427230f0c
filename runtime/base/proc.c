#include "base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KERNEL_THREAD 0x00200000 /* PF_KTHREAD, include/linux/sched.h */

ssize_t proc_slurp(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	text[0] = '\0';
	if (fd < 0)
		return -1;
	ssize_t n;
	do
		n = read(fd, text, size - 1);
	while (n < 0 && errno == EINTR);
	int error = errno;
	close(fd);
	errno = error;
	text[n > 0 ? n : 0] = '\0';
	return n;
}

/* The field with that number in proc(5); `at` points to field 3. */
static const char *field(const char *at, int number)
{
	for (int i = 3; i < number && at; i++) {
		at = strchr(at, ' ');
		at = at ? at + 1 : NULL;
	}
	return at;
}

int proc_stat(uint64_t pid, struct proc_stat *out)
{
	char path[64], text[1024];

	snprintf(path, sizeof path, "/proc/%llu/stat", (unsigned long long)pid);
	ssize_t n = proc_slurp(path, text, sizeof text);
	if (n == 0)
		errno = ESRCH; /* it has ended since the file was opened */
	if (n <= 0)
		return -1;
	/* The process' name may contain parentheses and spaces, so field 3 is found from the last parenthesis. */
	const char *name_end = strrchr(text, ')');
	const char *state = name_end && name_end[1] ? name_end + 2 : NULL;
	const char *flags = field(state, 9), *threads = field(state, 20), *start = field(state, 22);
	errno = EPROTO;
	if (!state || !flags || !threads || !start)
		return -1;
	*out = (struct proc_stat){
		.state = *state,
		.kernel = strtoul(flags, NULL, 10) & KERNEL_THREAD,
		.parent = strtoull(state + 2, NULL, 10),
		.threads = strtol(threads, NULL, 10),
		.start = strtoull(start, NULL, 10),
	};
	return 0;
}

bool proc_runs(const struct proc_stat *s)
{
	return (s->state != 'Z' && s->state != 'X') || s->threads > 1;
}

bool proc_has_uid(uint64_t pid, uid_t uid)
{
	char path[64], text[2048];
	unsigned id[4];

	snprintf(path, sizeof path, "/proc/%llu/status", (unsigned long long)pid);
	ssize_t n = proc_slurp(path, text, sizeof text);
	if (n < 0 && (errno == ENOENT || errno == ESRCH))
		return false;
	const char *line = n > 0 ? strstr(text, "\nUid:") : NULL;
	if (!line || sscanf(line, "\nUid: %u %u %u %u", &id[0], &id[1], &id[2], &id[3]) != 4)
		return true;
	return id[0] == uid || id[1] == uid || id[2] == uid || id[3] == uid;
}

bool proc_gone(uint64_t pid)
{
	return kill((pid_t)pid, 0) < 0 && errno == ESRCH;
}

void proc_boot_id(char *out)
{
	if (proc_slurp("/proc/sys/kernel/random/boot_id", out, 37) != 36)
		out[0] = '\0';
}

uint64_t proc_pid_namespace(void)
{
	char pid[32] = "";
	struct stat st;

	if (readlink("/proc/self", pid, sizeof pid - 1) < 0 || atoi(pid) != getpid())
		return 0; /* /proc shows an outer namespace, where processes have other numbers */
	return stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

/* The first namespace's inode is the same on every machine: PROC_PID_INIT_INO in Linux's include/linux/proc_ns.h.
 * Those of the others are unique among the namespaces that exist. */
#define FIRST_PID_NAMESPACE UINT64_C(0xEFFFFFFC)

void proc_self_name(char *out)
{
	uint64_t namespace = proc_pid_namespace();

	if (namespace == 0 || namespace == FIRST_PID_NAMESPACE)
		snprintf(out, PROC_SELF_NAME, "%d", (int)getpid());
	else
		snprintf(out, PROC_SELF_NAME, "%d-%" PRIu64, (int)getpid(), namespace);
}

int proc_time_namespace(uint64_t *out)
{
	struct stat st;

	*out = 0;
	if (stat("/proc/self/ns/time", &st) == 0)
		*out = (uint64_t)st.st_ino;
	else if (errno != ENOENT)
		return -1;
	return 0;
}

/* What getdents64(2) returns. readdir(3) would allocate memory. */
struct proc_entry {
	uint64_t inode;
	int64_t offset;
	unsigned short length;
	unsigned char type;
	char name[];
};

int proc_each(int dir, bool (*each)(void *arg, const char *name), void *arg)
{
	char buffer[8192] __attribute__((aligned(8)));
	long n;

	while ((n = syscall(SYS_getdents64, dir, buffer, sizeof buffer)) > 0)
		for (long at = 0; at < n;) {
			const struct proc_entry *e = (const struct proc_entry *)(buffer + at);
			at += e->length;
			if (!each(arg, e->name))
				return 0;
		}
	return n < 0 ? -1 : 0;
}

/* ---- what /proc shows of this process ---- */

/* Fields of proc(5)'s stat. */
enum {
	START_CODE = 26,
	END_CODE,
	START_STACK,
	START_DATA = 45,
	END_DATA,
	START_BRK,
	ARG_START,
	ENV_START = 50,
	ENV_END
};

/* Field 3 of this process' stat, from which field() counts. NULL: the kernel does not say. */
static const char *own_stat(char *text, size_t size)
{
	const char *name_end = proc_slurp("/proc/self/stat", text, size) > 0 ? strrchr(text, ')') : NULL;

	return name_end && name_end[1] ? name_end + 2 : NULL;
}

/* A field that is an address. 0: there is none. */
static uint64_t address(const char *stat, int number)
{
	const char *at = field(stat, number);

	return at ? strtoull(at, NULL, 10) : 0;
}

/* Finds where the arguments of this process lie. false: the kernel does not say. */
static bool find_arguments(char **from, size_t *size)
{
	char text[1024];
	const char *stat = own_stat(text, sizeof text);

	if (!stat)
		return false;
	uintptr_t start = address(stat, ARG_START), end = address(stat, ARG_START + 1);
	*from = (char *)start; /* NOLINT(performance-no-int-to-ptr): the kernel gives it as a number */
	*size = end - start;
	return start && end > start;
}

void proc_title(const char *role, const char *name)
{
	const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
	size_t len = strlen(base), size;
	char title[128], *from;

	if (len > 4 && strcmp(base + len - 4, ".lua") == 0)
		len -= 4;
	int n = snprintf(title, sizeof title, "lunarch: %s %.*s", role, (int)len, base);
	if (n < 0 || !find_arguments(&from, &size))
		return;
	if ((size_t)n >= sizeof title)
		n = sizeof title - 1;
	memset(from, 0, size); /* the last byte stays 0: else the kernel reads on into the environment */
	memcpy(from, title, (size_t)n < size ? (size_t)n : size - 1);
}

int proc_show(char *arguments, size_t arguments_size, char *environment, size_t environment_size)
{
	char text[1024];
	const char *stat = own_stat(text, sizeof text);
	uint64_t before = address(stat, ENV_START), before_end = address(stat, ENV_END);

	errno = EPROTO;
	if (!before || before_end < before)
		return -1;
	struct prctl_mm_map map = {
		.start_code = address(stat, START_CODE),
		.end_code = address(stat, END_CODE),
		.start_data = address(stat, START_DATA),
		.end_data = address(stat, END_DATA),
		.start_brk = address(stat, START_BRK),
		.brk = (uintptr_t)sbrk(0),
		.start_stack = address(stat, START_STACK),
		.arg_start = (uintptr_t)arguments,
		.arg_end = (uintptr_t)arguments + arguments_size,
		.env_start = (uintptr_t)environment,
		.env_end = (uintptr_t)environment + environment_size,
		.exe_fd = (uint32_t)-1, /* stays what it is */
	};
	if (prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0) < 0)
		return -1;
	/* NOLINTNEXTLINE(performance-no-int-to-ptr): the kernel gives it as a number */
	explicit_bzero((void *)(uintptr_t)before, before_end - before);
	return 0;
}
