#include "locks/file/kernel_lock.h"

#include "base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

/* Rights are set on the descriptor: whatever the umask is, every process that may use the directory gets one file. */
static int create_file(int dir, const char *name, const struct kernel_lock_how *how)
{
	int fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, how->mode);

	if (fd < 0)
		return -1;
	if (fchown(fd, how->uid, how->gid) < 0 && fchown(fd, (uid_t)-1, how->gid) < 0)
		errno = 0; /* not ours to give away: others may then be refused, and are told so */
	if (fchmod(fd, how->mode) == 0)
		return fd;
	close(fd);
	return -1;
}

/* First without O_CREAT: with it, opening another user's file in a sticky directory is refused (proc_sys_fs(5),
 * protected_regular). Twice, since another process may make the file between the two steps. */
static int open_file(int dir, const char *name, const struct kernel_lock_how *how)
{
	int fd = -1;

	for (int tries = 0; fd < 0 && tries < 2; tries++) {
		fd = openat(dir, name,
		            (how->writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
		if (fd >= 0 || errno != ENOENT)
			return fd;
		fd = create_file(dir, name, how);
		if (fd < 0 && errno != EEXIST)
			return -1;
	}
	return fd;
}

/* A lock on a file that was removed meanwhile keeps nobody out. */
static bool is_still_there(int dir, const char *name, int fd)
{
	struct stat a, b;

	return fstat(fd, &a) == 0 && fstatat(dir, name, &b, AT_SYMLINK_NOFOLLOW) == 0 && a.st_ino == b.st_ino &&
	       a.st_dev == b.st_dev;
}

/* ---- who has it ---- */

/* One line of proc_locks(5): "1: FLOCK  ADVISORY  WRITE 123 fe:01:4711 0 EOF". Its device is the superblock's; a
 * subvolume shows another one in stat(2), both without a major number. The pid, or 0. */
static int holder_in(const char *line, const struct stat *st)
{
	unsigned dev_major, dev_minor;
	unsigned long inode;
	int pid;

	if (sscanf(line, "%*u: FLOCK %*s %*s %d %x:%x:%lu", &pid, &dev_major, &dev_minor, &inode) != 4 ||
	    inode != (unsigned long)st->st_ino || dev_major != major(st->st_dev))
		return 0;
	return dev_major == 0 || dev_minor == minor(st->st_dev) ? pid : 0;
}

/* 0 = cannot be seen: another host, another PID namespace. */
static int holder_of(int fd)
{
	char text[4096 + 1];
	struct stat st;
	size_t have = 0;
	ssize_t n;
	int pid = 0, locks = open("/proc/locks", O_RDONLY | O_CLOEXEC);

	if (locks < 0)
		return 0;
	if (fstat(fd, &st) < 0)
		st.st_ino = 0;
	while (pid <= 0 && have < sizeof text - 1 && (n = read(locks, text + have, sizeof text - 1 - have)) > 0) {
		char *line = text, *end;
		text[have + (size_t)n] = '\0';
		for (; pid <= 0 && (end = strchr(line, '\n')); line = end + 1)
			pid = holder_in(line, &st);
		have = strlen(line);
		memmove(text, line, have);
	}
	close(locks);
	return pid > 0 ? pid : 0;
}

static const char *state_name(char state)
{
	switch (state) {
	case 'T':
	case 't':
		return "stopped";
	case 'D':
		return "blocked inside the kernel";
	default:
		return "running";
	}
}

static void blame_holder(const struct kernel_lock_how *how, int fd, struct err *err)
{
	struct proc_stat s;
	int pid = holder_of(fd);

	if (pid && proc_stat((uint64_t)pid, &s) == 0)
		err_set(err, ERR_TIMEOUT,
		        "the kernel lock %s was not free before the deadline: process %d has it and is %s; continue or kill it",
		        how->path, pid, state_name(s.state));
	else
		err_set(err, ERR_TIMEOUT,
		        "the kernel lock %s was not free before the deadline: a process on another host or in another PID namespace "
		        "has it; find it with lslocks(8) there",
		        how->path);
}

/* ---- taking it ---- */

/* Tries again and again, since a blocking flock(2) has no deadline without a signal. The lock is held for microseconds,
 * so the first tries are close together. */
static enum kernel_lock_result wait_for_lock(int fd, const struct kernel_lock_how *how, struct err *err)
{
	struct timespec pause = { .tv_nsec = 50 * 1000 };

	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK && errno != EINTR) {
			err_sys(err, "cannot lock %s (does this file system support flock(2)?)", how->path);
			return KERNEL_LOCK_FAILED;
		}
		if (!how->may_wait)
			return KERNEL_LOCK_BUSY;
		if (atomic_load(how->cancelled) || instant_passed(how->by, clock_now())) {
			blame_holder(how, fd, err);
			return KERNEL_LOCK_FAILED;
		}
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < 5 * NSEC_PER_MS)
			pause.tv_nsec *= 2;
	}
	return KERNEL_LOCK_TAKEN;
}

enum kernel_lock_result kernel_lock_take(int dir, const char *name, const struct kernel_lock_how *how, int *fd,
                                         struct err *err)
{
	for (int tries = 0; tries < 100; tries++) {
		*fd = open_file(dir, name, how);
		if (*fd < 0) {
			err_sys(err, "cannot open the kernel lock %s", how->path);
			return KERNEL_LOCK_FAILED;
		}
		enum kernel_lock_result r = wait_for_lock(*fd, how, err);
		if (r == KERNEL_LOCK_TAKEN && is_still_there(dir, name, *fd))
			return r;
		close(*fd);
		if (r != KERNEL_LOCK_TAKEN)
			return r;
	}
	err_set(err, ERR_SYSTEM,
	        "the kernel lock %s is another file each time it is opened: this file system cannot carry a lock",
	        how->path);
	return KERNEL_LOCK_FAILED;
}
