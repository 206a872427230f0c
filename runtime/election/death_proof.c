#include "election/death_proof.h"

#include "base/mem.h"
#include "base/nonce.h"
#include "base/proc.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define TREE_NAME_LEN 42   /* ".INCARNATION.tree" */
#define TREE_KEPT 3600     /* seconds: every standby may want to see the file of a dead one */
#define TREE_FREE "free\n" /* what is added to a tree file once somebody found it free */

/* ---- tree files, and the evidence about ourselves ---- */

static bool is_tree_file_name(const char *name)
{
	return *name == '.' && strlen(name) == TREE_NAME_LEN && strcmp(name + 37, ".tree") == 0;
}

/* The file's time of change then tells when it was first found free. */
static void tree_file_mark_free(int fd)
{
	char text[200];
	ssize_t n = pread(fd, text, sizeof text - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	if (n >= 0 && !strstr(text, TREE_FREE))
		(void)!pwrite(fd, TREE_FREE, strlen(TREE_FREE), n);
}

/* Removes a file that was found free TREE_KEPT ago. Its age alone does not count: the holder of a file that was made
 * days ago may have crashed a moment ago, and others still need the evidence. A younger file is not even opened: each
 * process comes by here once, and there may be many files. */
static void tree_file_remove_if_old(int dir, const char *name)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_mtime >= time(NULL) - TREE_KEPT)
		return;
	int fd = openat(dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && flock(fd, LOCK_SH | LOCK_NB) == 0) {
		tree_file_mark_free(fd);
		if (fstat(fd, &st) == 0 && st.st_mtime < time(NULL) - TREE_KEPT)
			unlinkat(dir, name, 0);
	}
	close(fd);
}

static void tree_files_remove_old(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (is_tree_file_name(e->d_name))
			tree_file_remove_if_old(dirfd(d), e->d_name);
	if (d)
		closedir(d);
}

/* What a tree file says: whose it is, so that nobody can pass off another's tree as dead by writing a record. The time
 * namespace stands at the end: a Lunarch that does not know of these takes the file for another process', and waits. */
static void tree_file_describe(const char *incarnation, uint64_t pid, uint64_t start, uint64_t time_namespace,
                               char *out, size_t size)
{
	snprintf(out, size, "%s %" PRIu64 " %" PRIu64 " time:[%" PRIu64 "]\n", incarnation, pid, start, time_namespace);
}

static void tree_file_make(struct proof_self *s)
{
	char *path = mem_printf("%s/.%s.tree", s->dir, s->incarnation), text[160];
	uint64_t time_namespace;

	if (proc_time_namespace(&time_namespace) < 0)
		time_namespace = UINT64_MAX; /* nobody's */
	tree_file_describe(s->incarnation, s->pid, s->pid_start, time_namespace, text, sizeof text);
	/* Not close-on-exec, on purpose: whatever the tree starts keeps the description open, and with it the lock. */
	s->tree_fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	if (s->tree_fd >= 0 && flock(s->tree_fd, LOCK_EX | LOCK_NB) == 0 &&
	    write(s->tree_fd, text, strlen(text)) == (ssize_t)strlen(text)) {
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
	struct proc_stat st = { 0 };

	*s = (struct proof_self){ .tree_fd = -1, .pid = (uint64_t)getpid() };
	nonce_uuid(s->incarnation);
	proc_boot_id(s->boot_id);
	s->pid_namespace = proc_pid_namespace();
	if (s->pid_namespace && proc_stat(s->pid, &st) == 0)
		s->pid_start = st.start;
	if (!dir)
		return;
	s->dir = mem_dup(dir);
	tree_file_make(s);
}

void proof_self_tidy(const struct proof_self *s)
{
	if (s->dir)
		tree_files_remove_old(s->dir);
}

void proof_self_fini(struct proof_self *s)
{
	if (s->tree)
		unlink(s->tree);
	if (s->tree_fd >= 0)
		close(s->tree_fd);
	free(s->tree);
	free(s->dir);
	*s = (struct proof_self){ .tree_fd = -1 };
}

void proof_self_withdraw(const struct proof_self *s)
{
	if (s->tree)
		unlink(s->tree);
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

static bool proof_sees(const struct proof_self *s, const struct record *r)
{
	return *r->boot_id && strcmp(r->boot_id, s->boot_id) == 0 && r->pid_namespace &&
	       r->pid_namespace == s->pid_namespace && r->pid && r->pid_start && strlen(r->incarnation) == 36 &&
	       strcmp(r->incarnation, s->incarnation) != 0;
}

bool proof_possible(const struct proof_self *s, const struct record *r)
{
	char name[TREE_NAME_LEN + 2];
	size_t len = s->dir ? strlen(s->dir) : 0;

	snprintf(name, sizeof name, "/.%.36s.tree", r->incarnation);
	return proof_sees(s, r) && len && strncmp(r->tree, s->dir, len) == 0 && strcmp(r->tree + len, name) == 0;
}

/* A holder that cannot be seen may live. */
static bool holder_may_live(const struct record *r)
{
	struct proc_stat s;

	if (proc_stat(r->pid, &s) < 0)
		return errno != ENOENT && errno != ESRCH;
	return s.start == r->pid_start && proc_runs(&s);
}

bool proof_above(const struct proof_self *s, const struct record *r)
{
	struct proc_stat st;

	if (!proof_sees(s, r))
		return false;
	/* The number of steps is bounded: a process may end meanwhile and its number be given to another one, so
	 * that the walk from parent to parent would not end. */
	uint64_t pid = s->pid;
	for (int i = 0; i < 1000 && pid > 1 && proc_stat(pid, &st) == 0; i++) {
		if (pid == r->pid)
			return st.start == r->pid_start;
		pid = st.parent;
	}
	return false;
}

int proof_pidfd(const struct record *r)
{
	int fd = (int)syscall(SYS_pidfd_open, (pid_t)r->pid, 0);

	if (fd < 0)
		return -1;
	if (holder_may_live(r)) /* asked after the pidfd is open: it is this very process' */
		return fd;
	close(fd);
	return -1;
}

/* ---- the marker ---- */

enum carries { CARRIES_NOT, CARRIES, CARRIES_NOTHING_YET, CARRIES_UNREADABLE, CARRIES_GONE };

/* Finds an entry in NUL-separated text that comes in pieces. */
struct finder {
	const char *entry;
	size_t len, matched;
	bool differs;
};

static bool finder_feed(struct finder *f, const char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (bytes[i] == '\0') {
			if (!f->differs && f->matched == f->len)
				return true;
			f->matched = 0;
			f->differs = false;
		} else if (f->differs || f->matched == f->len || bytes[i] != f->entry[f->matched]) {
			f->differs = true;
		} else {
			f->matched++;
		}
	}
	return false;
}

/* path: an `environ` file of /proc, and what it is read for. */
static enum carries environ_carries(const char *path, const char *marker)
{
	struct finder f = { .entry = marker, .len = strlen(marker) };
	char buffer[4096];
	ssize_t n, total = 0;
	bool found = false;

	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT || errno == ESRCH ? CARRIES_GONE : CARRIES_UNREADABLE;
	while (!found && (n = read(fd, buffer, sizeof buffer)) > 0) {
		found = finder_feed(&f, buffer, (size_t)n);
		total += n;
	}
	int error = errno;
	close(fd);
	if (found)
		return CARRIES;
	if (n < 0)
		return error == ESRCH ? CARRIES_GONE : CARRIES_UNREADABLE;
	return total ? CARRIES_NOT : CARRIES_NOTHING_YET;
}

struct threads_search {
	uint64_t pid;
	const char *marker;
	enum carries found;
};

static bool thread_examine(void *arg, const char *name)
{
	struct threads_search *s = arg;
	char path[80];

	if (!isdigit((unsigned char)*name))
		return true;
	snprintf(path, sizeof path, "/proc/%" PRIu64 "/task/%.20s/environ", s->pid, name);
	enum carries c = environ_carries(path, s->marker);
	if (c == CARRIES_GONE) /* it has ended, and says nothing of the others */
		return true;
	s->found = c;
	return c == CARRIES_NOTHING_YET; /* else this is the memory that all threads share */
}

/* For a process whose first thread shows no memory. Either that thread has ended, while others may go on; or all
 * threads are ending, and none of them runs an instruction of its own any more. A thread that was made meanwhile may
 * not have been seen. */
static enum carries threads_carry(uint64_t pid, const char *marker)
{
	struct threads_search s = { .pid = pid, .marker = marker, .found = CARRIES_GONE };
	struct proc_stat st;
	char path[64];

	snprintf(path, sizeof path, "/proc/%" PRIu64 "/task", pid);
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT || errno == ESRCH ? CARRIES_GONE : CARRIES_UNREADABLE;
	int result = proc_each(fd, thread_examine, &s);
	close(fd);
	if (result < 0 && s.found != CARRIES)
		return CARRIES_UNREADABLE;
	bool churns = s.found == CARRIES_GONE && proc_stat(pid, &st) == 0 && st.state == 'Z' && st.threads > 1;
	return churns ? CARRIES_NOTHING_YET : s.found;
}

/* A process that has no memory any more may show an empty environment, or none (ESRCH), as the kernel has it. */
static enum carries process_read_environment(uint64_t pid, const char *marker)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%" PRIu64 "/environ", pid);
	enum carries c = environ_carries(path, marker);
	if (c == CARRIES_NOTHING_YET || c == CARRIES_GONE)
		c = threads_carry(pid, marker);
	return c == CARRIES_GONE ? CARRIES_NOT : c;
}

static bool process_has_arguments(uint64_t pid)
{
	char path[64], text[16];

	snprintf(path, sizeof path, "/proc/%" PRIu64 "/cmdline", pid);
	return proc_slurp(path, text, sizeof text) > 0;
}

/* For a moment during execve(2) a process shows neither an environment nor arguments, so it cannot be told yet what it
 * will carry. A process that shows arguments and no environment has none. */
static enum carries process_carries(uint64_t pid, const char *marker)
{
	struct timespec pause = { .tv_nsec = 200 * 1000 };
	struct proc_stat s;

	for (int tries = 0; tries < 7; tries++) {
		enum carries c = process_read_environment(pid, marker);
		if (c != CARRIES_NOTHING_YET)
			return c;
		if (process_has_arguments(pid) && process_read_environment(pid, marker) == CARRIES_NOTHING_YET)
			return CARRIES_NOT;
		if (proc_stat(pid, &s) < 0 || !proc_runs(&s))
			return CARRIES_NOT;
		nanosleep(&pause, NULL);
		pause.tv_nsec *= 2;
	}
	return CARRIES_UNREADABLE;
}

/* ---- the search ---- */

struct proof_search {
	const struct record *record;
	char marker[sizeof PROOF_ENV + 40];
	int killed, doubtful;
	uint64_t doubtful_pid;
	bool ourselves;
};

static void search_doubt(struct proof_search *s, uint64_t pid)
{
	s->doubtful++;
	s->doubtful_pid = pid;
}

/* The pidfd is opened before the marker is read once more: if the number became another process' in between, that one
 * is not killed. */
static void search_kill_marked(struct proof_search *s, uint64_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);

	if (fd < 0) {
		if (errno != ESRCH)
			search_doubt(s, pid);
		return;
	}
	enum carries c = process_carries(pid, s->marker);
	if (c == CARRIES && (syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) == 0 || errno == ESRCH))
		s->killed++;
	else if (c != CARRIES_NOT)
		search_doubt(s, pid);
	close(fd);
}

/* For a process whose environment cannot be read. In /proc a process that changed its rights belongs to root, but
 * its status still tells its user. */
static bool process_may_be_of_tree(uint64_t pid)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof path, "/proc/%" PRIu64, pid);
	return stat(path, &st) == 0 && (st.st_uid == geteuid() || st.st_uid == 0) && proc_has_uid(pid, geteuid());
}

/* Whether this process belongs to the tree. The environment that the kernel shows may be unreadable even for ourselves
 * (prctl(2), PR_SET_DUMPABLE), and the one in memory may have been changed. So either of them is enough. */
static bool search_finds_us(const struct proof_search *s)
{
	const char *value = getenv(PROOF_ENV);

	return (value && strcmp(value, s->record->incarnation) == 0) ||
	       process_read_environment((uint64_t)getpid(), s->marker) == CARRIES;
}

/* A process that started before the holder cannot be its child, so it is left alone even if it is unreadable. */
static bool search_examine(void *arg, const char *name)
{
	struct proof_search *s = arg;
	struct proc_stat st;

	if (!isdigit((unsigned char)*name))
		return true;
	uint64_t pid = strtoull(name, NULL, 10);
	if (pid == (uint64_t)getpid()) {
		s->ourselves = search_finds_us(s);
		return true;
	}
	if (proc_stat(pid, &st) < 0) {
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
			search_doubt(s, pid);
		return true;
	}
	if (st.start < s->record->pid_start || !proc_runs(&st) || st.kernel)
		return true;
	switch (process_carries(pid, s->marker)) {
	case CARRIES:
		search_kill_marked(s, pid);
		break;
	case CARRIES_UNREADABLE:
		if (process_may_be_of_tree(pid))
			search_doubt(s, pid);
		break;
	case CARRIES_NOT:
	case CARRIES_NOTHING_YET:
	case CARRIES_GONE:
		break;
	}
	return true;
}

/* The number of the process that was made last: /proc/loadavg, field 5. */
static uint64_t last_pid(void)
{
	char text[128];
	const char *at = proc_slurp("/proc/loadavg", text, sizeof text) > 0 ? strrchr(text, ' ') : NULL;

	return at ? strtoull(at + 1, NULL, 10) : 0;
}

/* A process that forks and exits before it is examined hides its child. So all are examined again if any process was
 * made meanwhile; three times at most, since on a busy host one always is. */
static int search_processes(struct proof_search *s)
{
	int fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC), result = -1;
	uint64_t before, after = last_pid();

	for (int passes = 0; fd >= 0 && passes < 3; passes++) {
		before = after;
		lseek(fd, 0, SEEK_SET);
		result = proc_each(fd, search_examine, s);
		after = last_pid();
		if (result < 0 || before == after || s->killed || s->doubtful || s->ourselves)
			break;
	}
	if (fd >= 0)
		close(fd);
	return result;
}

/* With hidepid= (proc(5)) a set-user-ID program that a term started, and that has closed its tree file, is not seen at all.
 * Where mounts cannot be read, or show no /proc, it may be so. */
static bool proc_hides(void)
{
	FILE *mounts = fopen("/proc/self/mountinfo", "re");
	bool hides = !mounts, found = false;
	size_t size = 0;
	char *line = NULL, point[16];

	while (mounts && !hides && getline(&line, &size, mounts) > 0) {
		if (sscanf(line, "%*d %*d %*s %*s %15s", point) != 1 || strcmp(point, "/proc") != 0)
			continue;
		found = true;
		hides = strstr(line, "hidepid=") != NULL;
	}
	free(line);
	if (mounts)
		fclose(mounts);
	return hides || !found;
}

/* ---- the verdict ---- */

__attribute__((format(printf, 3, 4))) static enum proof_verdict unproved(char *why, size_t size, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, size, fmt, ap);
	va_end(ap);
	return PROOF_UNKNOWN;
}

static enum proof_verdict search_verdict(struct proof_search *s, char *why, size_t size)
{
	if (search_processes(s) < 0)
		return unproved(why, size, "/proc cannot be read");
	if (proc_hides())
		return unproved(why, size, "/proc is mounted with hidepid=, so processes of its tree may be hidden");
	if (s->ourselves)
		return unproved(why, size, "this process belongs to the tree itself");
	if (s->killed > 0) {
		snprintf(why, size, "%d process%s of its tree killed", s->killed, s->killed == 1 ? "" : "es");
		return PROOF_DYING;
	}
	if (s->doubtful > 0) {
		snprintf(why, size, "process %" PRIu64 " cannot be read or ended, and may belong to the tree",
		         s->doubtful_pid);
		return PROOF_DOUBTED;
	}
	return PROOF_DEAD;
}

/* What is wrong with the tree file. NULL: the holder made it, in our time namespace, so start times can be compared. */
static const char *tree_file_fault(int fd, const struct record *r)
{
	char text[200], expected[160];
	uint64_t time_namespace;
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid())
		return "its tree file is another user's";
	if (proc_time_namespace(&time_namespace) < 0)
		return "in which time namespace this process runs cannot be seen";
	ssize_t n = pread(fd, text, sizeof text - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	tree_file_describe(r->incarnation, r->pid, r->pid_start, time_namespace, expected, sizeof expected);
	if (strncmp(text, expected, strlen(expected)) == 0)
		return NULL;
	*strrchr(expected, ' ') = '\0';
	return strncmp(text, expected, strlen(expected)) == 0
	               ? "its tree file is of another time namespace, or does not say of which"
	               : "its tree file is another process'";
}

/* The tree file, open; -1: `why` says what is wrong with it. */
static int tree_file_open(const struct record *r, char *why, size_t size)
{
	int fd = open(r->tree, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);

	if (fd < 0) {
		unproved(why, size, "its tree file cannot be opened from here");
		return -1;
	}
	const char *wrong = tree_file_fault(fd, r);
	if (!wrong)
		return fd;
	unproved(why, size, "%s", wrong);
	close(fd);
	return -1;
}

static void tree_file_keep(const char *tree)
{
	int fd = open(tree, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	if (fd < 0)
		return;
	tree_file_mark_free(fd);
	close(fd);
}

enum proof_verdict proof_check(const struct record *r, bool insist, char *why, size_t why_size)
{
	struct proof_search s = { .record = r };

	why[0] = '\0';
	if (holder_may_live(r))
		return unproved(why, why_size, "the process lives");
	int fd = tree_file_open(r, why, why_size);
	if (fd < 0)
		return PROOF_UNKNOWN;
	/* A shared lock, so that two who prove at the same time do not take each other for the tree. The tree's
	 * processes share an exclusive lock; when the last of them has closed the file, none can have it again. */
	bool free_now = flock(fd, LOCK_SH | LOCK_NB) == 0;
	close(fd);
	if (!free_now && !insist) {
		snprintf(why, why_size, "something of its tree still holds its tree file");
		return PROOF_DYING;
	}
	snprintf(s.marker, sizeof s.marker, "%s=%s", PROOF_ENV, r->incarnation);
	enum proof_verdict v = search_verdict(&s, why, why_size);
	if (v != PROOF_DEAD)
		return v;
	if (free_now) {
		tree_file_keep(r->tree);
		return PROOF_DEAD;
	}
	snprintf(why, why_size, "a process without our marker still holds its tree file");
	return PROOF_DYING;
}
