#include "base/proc_tree.h"

#include "base/proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_proc(pid_t pid, const char *file, int flags)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
	return open(path, O_RDONLY | O_CLOEXEC | flags);
}

static ssize_t read_some(int fd, void *buffer, size_t size)
{
	ssize_t n;

	do
		n = read(fd, buffer, size);
	while (n < 0 && errno == EINTR);
	return n;
}

/* ---- directories with numbers as names: processes in /proc, threads in /proc/PID/task ---- */

/* Whether this error of a file in /proc means that the process or thread has ended. Any other error means that a living
 * process may not have been seen: no descriptor or no memory is left. */
static bool has_ended(int error)
{
	return error == ENOENT || error == ESRCH;
}

/* An open directory, read with getdents64: opendir(3) would allocate memory. */
struct numbers {
	int fd;
	bool cut; /* the directory could not be read to its end */
	long len, at;
	char buffer[4096] __attribute__((aligned(8)));
};

/* The next entry that is a number above 0; 0 at the end. */
static pid_t next_number(struct numbers *d)
{
	for (;;) {
		if (d->at >= d->len) {
			d->len = getdents64(d->fd, d->buffer, sizeof d->buffer);
			d->at = 0;
			if (d->len <= 0) {
				d->cut = d->cut || (d->len < 0 && !has_ended(errno));
				return 0;
			}
		}
		struct dirent64 *entry = (struct dirent64 *)(d->buffer + d->at);
		d->at += entry->d_reclen;
		if (entry->d_name[0] > '0' && entry->d_name[0] <= '9')
			return (pid_t)strtol(entry->d_name, NULL, 10);
	}
}

/* ---- a walk through the `children` files ---- */

struct walk {
	struct tree *tree;
	tree_visit *visit;
	void *arg;
	bool cut; /* a process may not have been seen */
};

/* Calls the visitor; remembers the process if its descendants are to be visited. */
static void meet(struct walk *w, pid_t pid)
{
	struct tree *t = w->tree;

	if (!w->visit(w->arg, pid))
		return;
	if (t->n == TREE_MOST)
		w->cut = true;
	else
		t->pid[t->n++] = pid;
}

/* The file has numbers with a space after each. A number may be split between two reads. */
static void meet_all_in(struct walk *w, int fd)
{
	char chunk[1024];
	ssize_t len;
	pid_t pid = 0;

	while ((len = read_some(fd, chunk, sizeof chunk)) > 0)
		for (ssize_t i = 0; i < len; i++) {
			if (chunk[i] >= '0' && chunk[i] <= '9') {
				pid = pid * 10 + (chunk[i] - '0');
			} else if (pid) {
				meet(w, pid);
				pid = 0;
			}
		}
	if (len < 0 && !has_ended(errno))
		w->cut = true;
}

/* Visits the children of each thread of the process. false: the kernel has no `children` files. */
static bool meet_children(struct walk *w, pid_t pid)
{
	struct numbers threads = { .fd = open_proc(pid, "task", O_DIRECTORY) };
	bool known = true;
	pid_t thread;

	if (threads.fd < 0) {
		if (!has_ended(errno)) /* the children of a process that ended have another parent now */
			w->cut = true;
		return true;
	}
	while (known && (thread = next_number(&threads))) {
		char file[48];
		snprintf(file, sizeof file, "task/%d/children", thread);
		int fd = open_proc(pid, file, 0);
		if (fd >= 0) {
			meet_all_in(w, fd);
			close(fd);
		} else if (!has_ended(errno)) {
			w->cut = true;
		} else if (errno == ENOENT) {
			/* Either the thread has ended, or the kernel has no such files. */
			known = access("/proc/thread-self/children", F_OK) == 0 || errno != ENOENT;
		}
	}
	if (threads.cut)
		w->cut = true;
	close(threads.fd);
	return known;
}

bool tree_walk(struct tree *t, pid_t root, tree_visit *visit, void *arg)
{
	struct walk w = { .tree = t, .visit = visit, .arg = arg };

	t->n = 0;
	if (!meet_children(&w, root))
		return tree_walk_scan(t, root, visit, arg);
	for (int i = 0; i < t->n; i++)
		meet_children(&w, t->pid[i]);
	return !w.cut;
}

/* ---- a tree of one process ---- */

/* Lists the threads of a process, the first one first. Their number; -1 if that cannot be said. */
static int list_threads(pid_t pid, pid_t *threads)
{
	struct numbers all = { .fd = open_proc(pid, "task", O_DIRECTORY) };
	pid_t thread;
	int n = 0;

	if (all.fd < 0)
		return -1;
	while (n >= 0 && (thread = next_number(&all))) {
		if (n < TREE_ONLY_THREADS)
			threads[n++] = thread;
		else
			n = -1;
	}
	close(all.fd);
	return all.cut ? -1 : n;
}

/* Whether the `children` file of this thread says exactly this. */
static bool children_are(pid_t pid, pid_t thread, const char *want)
{
	char file[48], text[32];

	snprintf(file, sizeof file, "task/%d/children", thread);
	int fd = open_proc(pid, file, 0);
	if (fd < 0)
		return false;
	ssize_t len = read_some(fd, text, sizeof text);
	close(fd);
	return len == (ssize_t)strlen(want) && memcmp(text, want, (size_t)len) == 0;
}

/* Whether each thread of the process was seen without a child. A child moves from one list to another only when its
 * thread ends, and that is excluded: the threads are the same before and after. Processes that it inherits as a
 * subreaper go to its first thread, which is read last. */
static bool has_no_children(pid_t pid)
{
	pid_t before[TREE_ONLY_THREADS], after[TREE_ONLY_THREADS];
	int n = list_threads(pid, before);

	for (int i = n; i-- > 0;)
		if (!children_are(pid, before[i], ""))
			return false;
	return n > 0 && list_threads(pid, after) == n && memcmp(before, after, (size_t)n * sizeof *before) == 0;
}

/* Why this is a proof. Let P be a descendant of root other than child at the time of the call, and alive until the end
 * of it. If P descends from child, then so it does from one of child's children. That one is in a list of child's until
 * child reaps it, and by then its own children have another parent: root, which is their subreaper. So child's lists
 * show it, or from then on P descends from another child of root. The same holds for each of those: root's list shows
 * it until root reaps it, and by then its children are root's. They never become child's, which is not above them. So
 * root's list, which is read after child's, shows somebody besides child. (If it were read first, P could go from child
 * to root between the two.)
 *
 * The kernel reads a list in steps, and finds the next entry by the one before it. If that one is reaped between two
 * steps, another entry may be left out. child was the first in root's list, so all is well as long as it is there: a
 * second reading shows that. A list that does not fit the buffer is not the expected one. */
bool tree_is_only(pid_t root, pid_t child)
{
	char only[16];

	snprintf(only, sizeof only, "%d ", child);
	return has_no_children(child) && children_are(root, root, only) && children_are(root, root, only);
}

/* ---- a walk through the parents in the `stat` files ---- */

static bool list_all(struct tree *t)
{
	struct numbers all = { .fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC) };
	pid_t pid;
	struct proc_stat of;

	t->n = 0;
	if (all.fd < 0)
		return false;
	while (t->n < TREE_MOST && (pid = next_number(&all))) {
		if (proc_stat((uint64_t)pid, &of) == 0) {
			t->parent[t->n] = (pid_t)of.parent;
			t->pid[t->n++] = pid;
		} else if (!has_ended(errno)) {
			all.cut = true;
		}
	}
	close(all.fd);
	return t->n < TREE_MOST && !all.cut;
}

static void swap(pid_t *a, pid_t *b)
{
	pid_t was = *a;

	*a = *b;
	*b = was;
}

/* The list has visited processes before index met, and others from there to *end. Visits the children of parent among
 * the others and moves them to the front. Returns the new met. */
static int meet_by_parent(struct tree *t, int met, int *end, pid_t parent, tree_visit *visit, void *arg)
{
	for (int i = met; i < *end; i++) {
		if (t->parent[i] != parent)
			continue;
		bool enter = visit(arg, t->pid[i]);
		int to = enter ? met++ : --*end; /* if its descendants are not wanted, it leaves the list */
		swap(&t->pid[i], &t->pid[to]);
		swap(&t->parent[i], &t->parent[to]);
		if (!enter)
			i--;
	}
	return met;
}

bool tree_walk_scan(struct tree *t, pid_t root, tree_visit *visit, void *arg)
{
	bool whole = list_all(t);
	int end = t->n, met = meet_by_parent(t, 0, &end, root, visit, arg);

	for (int i = 0; i < met; i++)
		met = meet_by_parent(t, met, &end, t->pid[i], visit, arg);
	t->n = met;
	return whole;
}

/* ---- killing ---- */

struct killing {
	pid_t self;
	int seen;
};

static bool kill_one(void *arg, pid_t pid)
{
	struct killing *k = arg;

	if (pid != k->self)
		kill(pid, SIGKILL);
	k->seen++;
	return true;
}

int tree_kill(struct tree *t, pid_t root)
{
	struct killing k = { .self = getpid() };

	tree_walk(t, root, kill_one, &k);
	return k.seen;
}

static bool kill_alone(void *, pid_t pid)
{
	kill(pid, SIGKILL);
	return false;
}

int tree_own_children(void)
{
	char chunk[64];
	int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);

	if (fd >= 0 && read_some(fd, chunk, sizeof chunk) < 0) { /* the first read allocates the file's buffer */
		close(fd);
		return -1;
	}
	return fd;
}

void tree_kill_children(int fd)
{
	struct walk w = { .visit = kill_alone };

	if (fd >= 0 && lseek(fd, 0, SEEK_SET) == 0)
		meet_all_in(&w, fd);
}

/* ---- who writes to a pipe ---- */

struct writers {
	pid_t self, but;
	const char *pipe;
	int signal;
};

static bool fd_writes_to(int dir, pid_t fd, const char *pipe)
{
	char name[16], to[64];
	struct stat st;

	snprintf(name, sizeof name, "%d", fd);
	ssize_t len = readlinkat(dir, name, to, sizeof to);
	/* The mode of the link says how the descriptor is open (proc(5)). */
	return len == (ssize_t)strlen(pipe) && memcmp(to, pipe, (size_t)len) == 0 &&
	       fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_mode & S_IWUSR;
}

static bool signal_writer(void *arg, pid_t pid)
{
	const struct writers *w = arg;
	struct numbers fds = { .fd = -1 };
	bool found = false;
	pid_t fd;

	if (pid == w->self || getpgid(pid) == w->but || (fds.fd = open_proc(pid, "fd", O_DIRECTORY)) < 0)
		return true;
	while (!found && (fd = next_number(&fds)))
		found = fd_writes_to(fds.fd, fd, w->pipe);
	close(fds.fd);
	if (found)
		kill(pid, w->signal);
	return true;
}

void tree_signal_writers(struct tree *t, pid_t root, pid_t but, const char *pipe, int signal)
{
	struct writers w = { .self = getpid(), .but = but, .pipe = pipe, .signal = signal };

	tree_walk(t, root, signal_writer, &w);
}

/* ---- environment ---- */

/* The search takes the environment byte by byte, so it does not matter where a read ends. */
struct tree_search {
	const char *name;
	size_t name_len;
	size_t matched;   /* characters of "NAME=" that the entry has so far; ELSEWHERE: it is another variable */
	size_t len, size; /* of the value so far; of the caller's buffer */
	char *value;
};

#define ELSEWHERE SIZE_MAX

/* Takes the next byte. true: the value is complete. */
static bool feed(struct tree_search *s, char c)
{
	if (s->matched == s->name_len + 1) {
		if (c == '\0')
			return true;
		if (s->len + 1 < s->size)
			s->value[s->len++] = c;
		return false;
	}
	if (c == '\0')
		s->matched = 0;
	else if (s->matched != ELSEWHERE)
		s->matched = c == (s->matched < s->name_len ? s->name[s->matched] : '=') ? s->matched + 1 : ELSEWHERE;
	return false;
}

/* It shows as a zombie, and lives as long as another thread does. */
static bool has_lost_its_first_thread(pid_t pid)
{
	struct proc_stat of;

	return proc_stat((uint64_t)pid, &of) == 0 && of.state == 'Z' && of.threads > 1;
}

bool tree_dead(pid_t pid)
{
	struct proc_stat of;

	if (proc_stat((uint64_t)pid, &of) < 0)
		return has_ended(errno);
	return !proc_runs(&of);
}

static enum tree_env search_file(pid_t pid, const char *file, struct tree_search *s)
{
	char chunk[4096];
	ssize_t len;
	int fd = open_proc(pid, file, 0);

	s->matched = s->len = 0;
	if (fd < 0)
		return TREE_ENV_UNREADABLE;
	while ((len = read_some(fd, chunk, sizeof chunk)) > 0)
		for (ssize_t i = 0; i < len; i++)
			if (feed(s, chunk[i])) {
				s->value[s->len] = '\0';
				close(fd);
				return TREE_ENV_FOUND;
			}
	close(fd);
	return len < 0 ? TREE_ENV_UNREADABLE : TREE_ENV_MISSING;
}

/* All threads share one memory with the environment in it; a thread that has ended does not show it. */
static enum tree_env search_threads(pid_t pid, struct tree_search *s)
{
	struct numbers threads = { .fd = open_proc(pid, "task", O_DIRECTORY) };
	enum tree_env best = TREE_ENV_UNREADABLE;
	pid_t thread;

	if (threads.fd < 0)
		return best;
	while (best != TREE_ENV_FOUND && (thread = next_number(&threads))) {
		char file[48];
		snprintf(file, sizeof file, "task/%d/environ", thread);
		enum tree_env found = search_file(pid, file, s);
		if (found != TREE_ENV_UNREADABLE)
			best = found;
	}
	close(threads.fd);
	return best;
}

/* A process that has no memory any more may show an empty environment, or none (ESRCH), as the kernel has it. */
enum tree_env tree_env(pid_t pid, const char *name, char *value, size_t size)
{
	struct tree_search s = { .name = name, .name_len = strlen(name), .value = value, .size = size };
	enum tree_env found = search_file(pid, "environ", &s);

	if (found != TREE_ENV_FOUND && has_lost_its_first_thread(pid))
		found = search_threads(pid, &s);
	if (found == TREE_ENV_FOUND)
		return found;
	*value = '\0';
	return tree_dead(pid) ? TREE_ENV_GONE : found;
}
