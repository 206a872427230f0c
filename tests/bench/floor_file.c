/* The floor of a file lock's work: the system calls without which a record cannot be replaced under a kernel lock, and
 * a replacement cannot be noticed and read; nothing else. No record is parsed, nothing is decided. Not a peer and not a
 * lock. Used by tests/bench/bench.py.
 *
 * floor_file leader DIR    replaces DIR/record every 2 s, until it is killed
 * floor_file standby DIR   reads DIR/record whenever it is replaced, until it is killed
 * floor_file next DIR      at the first replacement reads, replaces and says so: a clean handover
 * floor_file successor DIR PID  at the death of that process replaces and says so: a crash
 * floor_file renew DIR N   replaces each of N records in turn, 20 times; prints the microseconds of processor per
 * time */
#include <err.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define RECORD 660 /* bytes: what a record has */
#define ROUNDS 20

static int must(int result, const char *what)
{
	if (result < 0)
		err(1, "%s", what);
	return result;
}

static void read_record(int dir, const char *name)
{
	char text[4096];
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return; /* before the first write */
	must((int)read(fd, text, sizeof text), "read");
	close(fd);
}

static void replace(int dir, const char *name)
{
	char text[RECORD], temp[64], lock[64];

	memset(text, 'x', sizeof text);
	snprintf(temp, sizeof temp, ".%s.tmp", name);
	snprintf(lock, sizeof lock, ".%s.lock", name);
	int fd = must(openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644), temp);
	must((int)write(fd, text, sizeof text), "write");
	close(fd);
	int locked = must(openat(dir, lock, O_RDONLY | O_CREAT | O_CLOEXEC, 0644), lock);
	must(flock(locked, LOCK_EX | LOCK_NB), "flock");
	read_record(dir, name);
	must(renameat(dir, temp, dir, name), "rename");
	close(locked);
}

static void lead(int dir)
{
	int poll = must(epoll_create1(EPOLL_CLOEXEC), "epoll");
	struct epoll_event event;

	for (;;) {
		replace(dir, "record");
		epoll_wait(poll, &event, 1, 2000);
	}
}

static void stand_by(int dir, const char *path)
{
	int notices = must(inotify_init1(IN_CLOEXEC), "inotify"), poll = must(epoll_create1(EPOLL_CLOEXEC), "epoll");
	struct epoll_event event = { .events = EPOLLIN };
	char buffer[4096];

	must(inotify_add_watch(notices, path, IN_MOVED_TO), path);
	must(epoll_ctl(poll, EPOLL_CTL_ADD, notices, &event), "epoll");
	for (;;) {
		must(epoll_wait(poll, &event, 1, 15000), "epoll");
		must((int)read(notices, buffer, sizeof buffer), "notices");
		read_record(dir, "record");
	}
}

static void take_over(int dir)
{
	read_record(dir, "record");
	replace(dir, "record");
	puts("taken");
}

static void wait_for_notice(const char *path)
{
	int notices = must(inotify_init1(IN_CLOEXEC), "inotify");
	char buffer[4096];

	must(inotify_add_watch(notices, path, IN_MOVED_TO), path);
	puts("ready");
	fflush(stdout);
	must((int)read(notices, buffer, sizeof buffer), "notices");
}

static void wait_for_death(pid_t pid)
{
	struct pollfd dead = { .fd = must((int)syscall(SYS_pidfd_open, pid, 0), "pidfd_open"), .events = POLLIN };

	puts("ready");
	fflush(stdout);
	must(poll(&dead, 1, -1), "poll");
}

static double used_us(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return (double)used.tv_sec * 1e6 + (double)used.tv_nsec / 1e3;
}

static void renew(int dir, int n)
{
	double before = 0;
	char name[32];

	for (int round = 0; round <= ROUNDS; round++) {
		for (int i = 0; i < n; i++) {
			snprintf(name, sizeof name, "record%d", i);
			replace(dir, name);
		}
		if (round == 0) /* that one made the files */
			before = used_us();
	}
	printf("%.3f\n", (used_us() - before) / ROUNDS / n);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		errx(2, "usage: floor_file leader|standby|renew|next|successor DIR [N]");
	int dir = must(open(argv[2], O_PATH | O_DIRECTORY | O_CLOEXEC), argv[2]);

	if (strcmp(argv[1], "leader") == 0)
		lead(dir);
	else if (strcmp(argv[1], "standby") == 0)
		stand_by(dir, argv[2]);
	else if (argc > 3 && strcmp(argv[1], "renew") == 0)
		renew(dir, atoi(argv[3]));
	else if (strcmp(argv[1], "next") == 0)
		wait_for_notice(argv[2]);
	else if (argc > 3 && strcmp(argv[1], "successor") == 0)
		wait_for_death(atoi(argv[3]));
	else
		errx(2, "unknown role %s", argv[1]);
	if (strcmp(argv[1], "renew") != 0)
		take_over(dir);
	return 0;
}
