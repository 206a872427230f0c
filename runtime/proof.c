#include "proof.h"

#include "mem.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- what /proc says ---- */

/* Bytes read, at most size - 1, terminated; -1 with errno. */
static ssize_t slurp(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	ssize_t n = read(fd, text, size - 1);
	int error = errno;
	close(fd);
	errno = error;
	text[n > 0 ? n : 0] = '\0';
	return n;
}

/* State letter and start time in clock ticks since boot (proc(5): fields 3 and 22). -1 if the process is gone. */
static int stat_of(uint64_t pid, char *state, uint64_t *start)
{
	char path[64], text[1024], *at;

	snprintf(path, sizeof path, "/proc/%llu/stat", (unsigned long long)pid);
	if (slurp(path, text, sizeof text) <= 0 || !(at = strrchr(text, ')')))
		return -1;
	at += 2; /* the name before it may contain anything, parentheses too */
	*state = *at;
	for (int field = 3; field < 22 && at; field++)
		at = strchr(at + 1, ' ');
	if (!at)
		return -1;
	*start = strtoull(at, NULL, 10);
	return 0;
}

static uint64_t namespace_of(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

/* ---- evidence about ourselves ---- */

static void make_uuid(char out[37])
{
	unsigned char b[16];

	if (getrandom(b, sizeof b, 0) != (ssize_t)sizeof b)
		abort(); /* 16 bytes are never cut short after boot: getrandom(2) */
	b[6] = (unsigned char)((b[6] & 0x0f) | 0x40); /* RFC 9562, version 4 */
	b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
	snprintf(out, 37, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3], b[4],
	         b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

/* What crashed processes left. The evidence is kept for an hour: every standby may want to see it. */
static void remove_old_tree_files(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	struct stat st;

	while (d && (e = readdir(d))) {
		size_t len = strlen(e->d_name);
		if (*e->d_name != '.' || len != 42 || strcmp(e->d_name + 37, ".tree") != 0)
			continue;
		int fd = openat(dirfd(d), e->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		if (fd < 0)
			continue;
		if (fstat(fd, &st) == 0 && st.st_mtime < time(NULL) - 3600 && flock(fd, LOCK_EX | LOCK_NB) == 0)
			unlinkat(dirfd(d), e->d_name, 0);
		close(fd);
	}
	if (d)
		closedir(d);
}

static void make_tree_file(struct proof_self *s, const char *dir)
{
	char *path = mem_printf("%s/.%s.tree", dir, s->incarnation);

	/* Not close-on-exec, on purpose: whatever the tree starts keeps the description open, and with it the flock. */
	s->tree_fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	if (s->tree_fd >= 0 && flock(s->tree_fd, LOCK_EX | LOCK_NB) == 0) {
		s->tree = path;
		return;
	}
	if (s->tree_fd >= 0) {
		close(s->tree_fd);
		unlink(path);
	}
	s->tree_fd = -1;
	free(path);
}

void proof_self_init(struct proof_self *s, const char *dir)
{
	char state;

	*s = (struct proof_self){ .tree_fd = -1, .pid = (uint64_t)getpid() };
	make_uuid(s->incarnation);
	if (slurp("/proc/sys/kernel/random/boot_id", s->boot_id, sizeof s->boot_id) != 36)
		s->boot_id[0] = '\0';
	if (stat_of(s->pid, &state, &s->pid_start) < 0)
		s->pid_start = 0;
	s->pid_namespace = namespace_of("/proc/self/ns/pid");
	if (!dir)
		return;
	remove_old_tree_files(dir);
	make_tree_file(s, dir);
}

void proof_self_fini(struct proof_self *s)
{
	if (s->tree)
		unlink(s->tree);
	if (s->tree_fd >= 0)
		close(s->tree_fd);
	free(s->tree);
	*s = (struct proof_self){ .tree_fd = -1 };
}

void proof_self_fill(const struct proof_self *s, struct record *r)
{
	memcpy(r->incarnation, s->incarnation, sizeof r->incarnation);
	memcpy(r->boot_id, s->boot_id, sizeof r->boot_id);
	r->pid = s->pid;
	r->pid_start = s->pid_start;
	r->pid_namespace = s->pid_namespace;
	mem_replace(&r->tree, s->tree ? s->tree : "");
}

/* ---- evidence about others ---- */

bool proof_possible(const struct proof_self *s, const struct record *r)
{
	return *r->boot_id && strcmp(r->boot_id, s->boot_id) == 0 && r->pid_namespace &&
	       r->pid_namespace == s->pid_namespace && r->pid && r->pid_start && *r->tree && strlen(r->incarnation) == 36 &&
	       strcmp(r->incarnation, s->incarnation) != 0;
}

static bool lives(const struct record *r)
{
	char state;
	uint64_t start;

	return stat_of(r->pid, &state, &start) == 0 && start == r->pid_start && state != 'Z' && state != 'X';
}

int proof_pidfd(const struct record *r)
{
	int fd = (int)syscall(SYS_pidfd_open, (pid_t)r->pid, 0);

	if (fd < 0)
		return -1;
	if (lives(r)) /* after opening, so that the number cannot have changed hands in between */
		return fd;
	close(fd);
	return -1;
}

enum carries { CARRIES_NOT, CARRIES, CARRIES_UNREADABLE };

/* Looks for "LUNARCH_TREE=INCARNATION" as an entry of the environment, across the borders of what one read returns. */
static enum carries environment_carries(uint64_t pid, const char *marker, size_t len)
{
	char path[64], buffer[4096];
	size_t matched = 0;
	bool entry_start = true, alive_match = true;
	ssize_t n;

	snprintf(path, sizeof path, "/proc/%llu/environ", (unsigned long long)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT || errno == ESRCH ? CARRIES_NOT : CARRIES_UNREADABLE;
	enum carries result = CARRIES_NOT;
	while (result == CARRIES_NOT && (n = read(fd, buffer, sizeof buffer)) > 0)
		for (ssize_t i = 0; i < n; i++) {
			if (entry_start) {
				matched = 0;
				alive_match = true;
			}
			entry_start = buffer[i] == '\0';
			if (entry_start && alive_match && matched == len)
				result = CARRIES;
			alive_match = alive_match && matched < len && buffer[i] == marker[matched];
			matched += alive_match;
		}
	if (n < 0 && errno != ESRCH)
		result = CARRIES_UNREADABLE;
	close(fd);
	return result;
}

struct search {
	const struct record *record;
	uid_t uid;              /* of the tree; its processes are looked at */
	bool root;
	char marker[64];
	size_t marker_len;
	int killed, doubtful;
	uint64_t doubtful_pid;
};

static void kill_marked(struct search *s, uint64_t pid, uint64_t start)
{
	char state;
	uint64_t now;
	int fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);

	if (fd < 0)
		return;
	if (stat_of(pid, &state, &now) == 0 && now == start) {
		syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
		s->killed++;
	}
	close(fd);
}

/* What started before the holder cannot be its child, however unreadable it is. */
static void examine(struct search *s, uint64_t pid)
{
	char path[64], state;
	uint64_t start;
	struct stat st;

	snprintf(path, sizeof path, "/proc/%llu", (unsigned long long)pid);
	if (stat_of(pid, &state, &start) < 0 || start < s->record->pid_start || state == 'Z' || state == 'X')
		return;
	enum carries c = environment_carries(pid, s->marker, s->marker_len);
	if (c == CARRIES_NOT)
		return;
	if (c == CARRIES) {
		kill_marked(s, pid, start);
		return;
	}
	/* Unreadable. A process that is not dumpable belongs to root in /proc; its status still tells whose it is. */
	if (stat(path, &st) < 0 || (st.st_uid != s->uid && st.st_uid != 0))
		return;
	char text[2048], *uids;
	snprintf(path, sizeof path, "/proc/%llu/status", (unsigned long long)pid);
	if (slurp(path, text, sizeof text) <= 0 || !(uids = strstr(text, "\nUid:")))
		return;
	if ((uid_t)strtoul(uids + 5, NULL, 10) != s->uid)
		return;
	s->doubtful++;
	s->doubtful_pid = pid;
}

/* A directory buffer on the stack: opendir would allocate, and this runs on a thread. */
struct entry {
	uint64_t inode;
	int64_t offset;
	unsigned short length;
	unsigned char type;
	char name[];
};

static int scan(struct search *s)
{
	char buffer[8192] __attribute__((aligned(8)));
	int fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	long n;

	if (fd < 0)
		return -1;
	while ((n = syscall(SYS_getdents64, fd, buffer, sizeof buffer)) > 0)
		for (long at = 0; at < n;) {
			const struct entry *e = (const struct entry *)(buffer + at);
			at += e->length;
			if (isdigit((unsigned char)*e->name))
				examine(s, strtoull(e->name, NULL, 10));
		}
	close(fd);
	return n < 0 ? -1 : 0;
}

static enum proof_verdict unknown(char *why, size_t size, const char *text)
{
	snprintf(why, size, "%s", text);
	return PROOF_UNKNOWN;
}

static enum proof_verdict judge(struct search *s, char *why, size_t size)
{
	if (s->marker_len == 0 || scan(s) < 0)
		return unknown(why, size, "/proc cannot be read");
	if (s->killed > 0) {
		snprintf(why, size, "%d process%s of its tree killed", s->killed, s->killed == 1 ? "" : "es");
		return PROOF_DYING;
	}
	if (s->doubtful == 0)
		return PROOF_DEAD;
	snprintf(why, size, "the environment of process %llu cannot be read, so it may belong to the tree",
	         (unsigned long long)s->doubtful_pid);
	return PROOF_UNKNOWN;
}

static bool part_of_it(const struct record *r)
{
	const char *mine = getenv(PROOF_ENV);

	return mine && strcmp(mine, r->incarnation) == 0;
}

enum proof_verdict proof_check(const struct record *r, bool insist, char *why, size_t why_size)
{
	struct search s = { .record = r, .root = geteuid() == 0 };
	struct stat st;

	if (lives(r))
		return unknown(why, why_size, "the process lives");
	if (part_of_it(r))
		return unknown(why, why_size, "this process belongs to the tree itself");
	int fd = open(r->tree, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return unknown(why, why_size, "its tree file cannot be opened from here");
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (st.st_uid != geteuid() && !s.root)) {
		close(fd);
		return unknown(why, why_size, "its tree file is not this user's");
	}
	s.uid = st.st_uid;
	s.marker_len = (size_t)snprintf(s.marker, sizeof s.marker, "%s=%s", PROOF_ENV, r->incarnation);
	bool unlocked = flock(fd, LOCK_EX | LOCK_NB) == 0;
	close(fd);
	if (!unlocked && !insist) {
		snprintf(why, why_size, "something of its tree still holds its tree file");
		return PROOF_DYING;
	}
	enum proof_verdict v = judge(&s, why, why_size);
	if (v != PROOF_DEAD || unlocked)
		return v;
	snprintf(why, why_size, "a process without our marker still holds its tree file");
	return PROOF_DYING;
}
