/* What a term starts in the fault tests: it takes a lock that only one living process may have, and says if another
 * still has it. The kernel judges, not a clock: a process of an ended term that lives on is found, however short the
 * overlap. Not a part of Lunarch, and it knows nothing of it but LUNARCH_TOKEN. Usage: witness FILE NAME [strict|acts]
 * acts: as long as it lives it acts, without its token (a line of FILE.acts) and with it (a message to the socket
 * FILE.receiver). Built and used by tests/lib/field.py. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define WITNESS_FD 99

static void say(const char *file, const char *ending, const char *text)
{
	char path[4096];

	snprintf(path, sizeof path, "%s.%s", file, ending);
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		_exit(3);
	close(fd);
}

/* The clock of this machine, whatever clock is preloaded. */
static long long now_ms(void)
{
	struct timespec t;

	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
	return (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* What was sent SIGKILL runs no more code, though a busy machine may let it wait for its end. */
static int was_killed(int pid)
{
	char path[64], line[200];
	unsigned long long pending = 0, one;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/status", pid);
	if (!(f = fopen(path, "r")))
		return 0;
	while (fgets(line, sizeof line, f))
		if (sscanf(line, "SigPnd: %llx", &one) == 1 || sscanf(line, "ShdPnd: %llx", &one) == 1)
			pending |= one;
	fclose(f);
	return (pending >> (SIGKILL - 1) & 1) != 0;
}

/* A process that is exiting runs no more code but may not have closed its files yet; its descriptors cannot be seen. */
static int other_holder(const struct stat *mine)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	int found = 0;

	while (d && !found && (e = readdir(d))) {
		char path[64];
		struct stat st;
		int pid = atoi(e->d_name);
		if (pid <= 0 || pid == getpid())
			continue;
		snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, WITNESS_FD);
		if (stat(path, &st) == 0 && st.st_ino == mine->st_ino && st.st_dev == mine->st_dev && !was_killed(pid))
			found = pid;
	}
	if (d)
		closedir(d);
	return found;
}

static void take(const char *file, const char *name, const char *token, int strict)
{
	struct timespec pause = { .tv_nsec = 200 * 1000 };
	struct stat st;
	char text[300];

	fstat(WITNESS_FD, &st);
	while (flock(WITNESS_FD, LOCK_EX | LOCK_NB) < 0) {
		int pid = strict ? -1 : other_holder(&st);
		if (pid) {
			snprintf(text, sizeof text,
			         "%s with token %s began while process %d of another term lived, at %lld ms\n", name,
			         token, pid, now_ms());
			say(file, "overlaps", text);
			return;
		}
		nanosleep(&pause, NULL);
	}
}

static void act_for_ever(const char *file, const char *name, const char *token)
{
	struct timespec pause = { .tv_nsec = 40 * 1000 * 1000 };
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	char text[300];

	snprintf(to.sun_path, sizeof to.sun_path, "%s.receiver", file);
	for (;;) {
		snprintf(text, sizeof text, "%s %s %lld\n", token, name, now_ms());
		say(file, "acts", text);
		sendto(s, text, strlen(text), 0, (struct sockaddr *)&to, sizeof to);
		nanosleep(&pause, NULL);
	}
}

int main(int argc, char **argv)
{
	const char *token = getenv("LUNARCH_TOKEN");
	char text[300];

	if (argc < 3 || !token)
		return 2;
	struct rlimit most;
	if (getrlimit(RLIMIT_NOFILE, &most) == 0) { /* it may have been started with fewer descriptors than it uses */
		most.rlim_cur = most.rlim_max;
		setrlimit(RLIMIT_NOFILE, &most);
	}
	int acts = argc > 3 && strcmp(argv[3], "acts") == 0;
	int fd = open(argv[1], O_RDWR | O_CREAT, 0666);
	if (fd < 0 || dup2(fd, WITNESS_FD) < 0)
		return 2;
	close(fd);
	take(argv[1], argv[2], token, argc > 3 && strcmp(argv[3], "strict") == 0);
	snprintf(text, sizeof text, "%s %s\n", token, argv[2]);
	say(argv[1], "terms", text);
	if (fork() == 0) { /* clings to what it has, and is not in sight of whoever stops its parent */
		setsid();
		signal(SIGTERM, SIG_IGN);
	}
	if (acts)
		act_for_ever(argv[1], argv[2], token);
	for (;;)
		pause();
}
