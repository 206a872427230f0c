#include "lock.h"

#include "lock_dir.h"
#include "mem.h"
#include "offload.h"

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

/* Where the directory lives decides what may be done on the loop. */
enum place {
	IN_MEMORY, /* tmpfs: no device to wait for, nothing to make durable: all of it on the loop */
	ON_DISK,   /* local: a record is in the page cache, being written or watched all the time, so it is read on the
	            * loop; writing waits for the device and goes off it */
	REMOTE,    /* a server that may not answer, or a file system we do not know: everything off the loop */
};

#define SMALL 4096 /* nearly every record; a larger one (checkpoint) costs a mapping */

enum result { DONE, WOULD_WAIT };

/* One operation, off the loop or on it. Owned by the lock until it is done, by its thread once it is abandoned. */
struct job {
	struct offload_job off; /* first */
	struct file_lock *lock; /* NULL: abandoned */
	atomic_bool cancelled;
	bool writing, durable, may_wait, sync;
	char *path, *dir, *kernel_lock, *temp;
	char *text;             /* what is written */
	struct version expected;
	struct instant by, sent_at;

	enum lock_outcome outcome;
	struct version version;
	struct stat written;
	struct err err;
	char small[SMALL];
	char *big;              /* mapped, so that no thread needs the heap */
	size_t len;
};

struct file_lock {
	struct lock base;       /* first */
	struct lock_env *env;
	char *path, *dir;
	const char *name;       /* in path */
	enum place place;
	struct job *job;
	bool off_loop;          /* the job is on a thread */
	ev_timer timer;         /* the deadline; or, for a job done already, the way out of the caller */
	lock_done_fn *done;
	void *arg;
	unsigned serial;

	struct lock_notice notice;
	lock_changed_fn *changed;
	void *changed_arg;
	ino_t own_inode;        /* of our last write: notices about it tell us nothing */
	struct timespec own_ctime;
};

/* ---- content and version ---- */

static uint64_t hash(uint64_t h, const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		h = (h ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3); /* FNV-1a */
	return h;
}

/* Every write has a random name in its content, so equal content is the same write, and the hash needs to tell apart
 * only those few contents that a file has in its life. */
static void version_of(struct version *v, const char *bytes, size_t len)
{
	snprintf(v->text, sizeof v->text, "%016llx-%zx",
	         (unsigned long long)hash(UINT64_C(0xcbf29ce484222325), bytes, len), len);
}

static const char *content(const struct job *j)
{
	return j->big ? j->big : j->small;
}

static void drop_content(struct job *j)
{
	if (j->big)
		munmap(j->big, j->len + 1);
	j->big = NULL;
	j->len = 0;
}

static const char *kind_of_file(mode_t mode)
{
	return S_ISDIR(mode) ? "a directory" : S_ISFIFO(mode) ? "a named pipe" : S_ISSOCK(mode) ? "a socket" : "a device";
}

static int check_file(struct job *j, const struct stat *st)
{
	if (!S_ISREG(st->st_mode))
		return err_set(&j->err, ERR_FOREIGN, "%s is %s, expected an election record in a regular file: choose another path",
		               j->path, kind_of_file(st->st_mode));
	if (st->st_size == 0)
		return err_set(&j->err, ERR_FOREIGN,
		               "%s is empty, expected an election record: remove it if nothing else uses it", j->path);
	if (st->st_size > RECORD_MAX_BYTES)
		return err_set(&j->err, ERR_FOREIGN, "%s has %lld bytes, more than any election record (%d): it is another program's",
		               j->path, (long long)st->st_size, RECORD_MAX_BYTES);
	return 0;
}

static int read_all(struct job *j, int fd, size_t size)
{
	char *to = j->small;

	if (size >= SMALL) {
		to = mmap(NULL, size + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (to == MAP_FAILED)
			return err_sys(&j->err, "cannot hold %s", j->path);
		j->big = to;
	}
	j->len = size;
	for (size_t got = 0; got < size;) {
		ssize_t n = read(fd, to + got, size - got);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? err_sys(&j->err, "cannot read %s", j->path)
			             : err_set(&j->err, ERR_INVALID, "%s was cut short while it was read", j->path);
		got += (size_t)n;
	}
	to[size] = '\0';
	return 0;
}

/* Not blocking even on a pipe that somebody put there. */
static int open_record(const struct job *j)
{
	return open(j->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

static void look(struct job *j)
{
	struct stat st;
	int fd = open_record(j);

	if (fd < 0) {
		j->outcome = errno == ENOENT || errno == ENOTDIR ? LOCK_ABSENT : LOCK_FAILED;
		if (j->outcome == LOCK_FAILED)
			err_sys(&j->err, "cannot open the record %s", j->path);
		return;
	}
	j->outcome = LOCK_FAILED;
	if (fstat(fd, &st) < 0)
		err_sys(&j->err, "cannot look at %s", j->path);
	else if (check_file(j, &st) < 0)
		j->outcome = LOCK_FOREIGN;
	else if (read_all(j, fd, (size_t)st.st_size) == 0)
		j->outcome = LOCK_OK;
	close(fd);
	if (j->outcome == LOCK_OK)
		version_of(&j->version, content(j), j->len);
}

/* ---- writing ---- */

static enum lock_outcome outcome_of_errno(int error)
{
	return error == EACCES || error == EPERM || error == EROFS ? LOCK_REFUSED : LOCK_FAILED;
}

__attribute__((format(printf, 2, 3))) static void refuse(struct job *j, const char *fmt, ...)
{
	int error = errno;
	char text[600];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	j->outcome = outcome_of_errno(error);
	errno = error;
	err_sys(&j->err, "%s", text);
}

/* Files get the directory's own read and write bits; in a sticky directory nobody could replace them but their owner. */
static mode_t mode_for(const char *dir)
{
	struct stat st;

	if (stat(dir, &st) < 0)
		return 0600;
	mode_t mode = 0600 | (st.st_mode & 0066);
	return st.st_mode & S_ISVTX ? mode & ~(mode_t)022 : mode;
}

static int write_all(int fd, const char *text)
{
	size_t len = strlen(text);

	while (len > 0) {
		ssize_t n = write(fd, text, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		text += n;
		len -= (size_t)n;
	}
	return 0;
}

/* Synced even for a renewal: after a power cut a name that points at unwritten data would have lost the token. */
static int make_temp(struct job *j)
{
	int fd = open(j->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0) {
		if (errno == ENOENT)
			refuse(j, "cannot write the record %s: the directory is not there", j->path);
		else
			refuse(j, "cannot write beside the record %s", j->path);
		return -1;
	}
	int bad = fchmod(fd, mode_for(j->dir)) < 0 || write_all(fd, j->text) < 0 || (j->sync && fdatasync(fd) < 0);
	if (bad) {
		refuse(j, "cannot write the new record for %s; the old one is untouched", j->path);
		unlink(j->temp);
	}
	if (close(fd) < 0 && !bad) {
		refuse(j, "cannot write the new record for %s; the old one is untouched", j->path);
		unlink(j->temp);
		return -1;
	}
	return bad ? -1 : 0;
}

/* Without O_CREAT first: in a sticky directory opening another user's file with it is refused (proc_sys_fs(5),
 * protected_regular). */
static int open_kernel_lock(struct job *j)
{
	int fd = open(j->kernel_lock, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

	if (fd >= 0 || errno != ENOENT)
		return fd;
	mode_t mode = mode_for(j->dir);
	fd = open(j->kernel_lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode);
	if (fd >= 0 && fchmod(fd, mode) < 0 && errno != EPERM)
		return fd; /* the umask's bits stay: others then see a clear refusal */
	return fd;
}

static bool still_named(const struct job *j, int fd)
{
	struct stat a, b;

	return fstat(fd, &a) == 0 && stat(j->kernel_lock, &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

/* Who has the kernel lock (proc_locks(5)): "1: FLOCK ADVISORY WRITE 123 fe:01:4711 0 EOF". */
static int locker_of(int fd)
{
	char line[256], want[64];
	struct stat st;
	int pid = 0;
	FILE *f = fopen("/proc/locks", "re");

	if (!f)
		return 0;
	if (fstat(fd, &st) == 0) {
		snprintf(want, sizeof want, ":%llu ", (unsigned long long)st.st_ino);
		while (pid == 0 && fgets(line, sizeof line, f))
			if (strstr(line, "FLOCK") && !strstr(line, "->") && strstr(line, want))
				sscanf(line, "%*s %*s %*s %*s %d", &pid);
	}
	fclose(f);
	return pid;
}

static char state_of(int pid)
{
	char path[64], text[512] = "", *paren;
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return '?';
	ssize_t n = read(fd, text, sizeof text - 1);
	close(fd);
	paren = n > 0 ? strrchr(text, ')') : NULL;
	return paren && paren[1] ? paren[2] : '?';
}

static void blame_locker(struct job *j, int fd)
{
	int pid = locker_of(fd);

	j->outcome = LOCK_FAILED;
	if (pid)
		err_set(&j->err, ERR_TIMEOUT,
		        "the kernel lock %s is held by process %d (state %c) for longer than the deadline: continue or kill it",
		        j->kernel_lock, pid, state_of(pid));
	else
		err_set(&j->err, ERR_TIMEOUT,
		        "the kernel lock %s is held for longer than the deadline by a process that cannot be seen from here",
		        j->kernel_lock);
}

static bool too_late(const struct job *j)
{
	return atomic_load(&j->cancelled) || instant_passed(j->by, clock_now());
}

static enum result take_kernel_lock(struct job *j, int fd)
{
	const struct timespec pause = { .tv_nsec = 500000 };

	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK && errno != EINTR) {
			refuse(j, "cannot lock %s", j->kernel_lock);
			return DONE;
		}
		if (!j->may_wait)
			return WOULD_WAIT;
		if (too_late(j)) {
			blame_locker(j, fd);
			return DONE;
		}
		nanosleep(&pause, NULL);
	}
	j->outcome = LOCK_OK;
	return DONE;
}

static bool as_expected(struct job *j, struct stat *st)
{
	int fd = open_record(j);
	bool same = false;

	if (fd < 0)
		return errno == ENOENT && !*j->expected.text;
	if (*j->expected.text && fstat(fd, st) == 0 && S_ISREG(st->st_mode) && st->st_size > 0 &&
	    st->st_size <= RECORD_MAX_BYTES && read_all(j, fd, (size_t)st->st_size) == 0) {
		version_of(&j->version, content(j), j->len);
		same = strcmp(j->version.text, j->expected.text) == 0;
	}
	drop_content(j);
	close(fd);
	return same;
}

static void keep_owner(const struct job *j, const struct stat *old)
{
	if (!old->st_ino)
		return;
	if (chown(j->temp, (uid_t)-1, old->st_gid) < 0)
		return; /* not in that group: the directory's bits decide, as for a new file */
	(void)!chmod(j->temp, old->st_mode & 0777);
}

static void sync_dir(struct job *j)
{
	int fd = open(j->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool good = fd >= 0 && fsync(fd) == 0;

	if (!good) {
		err_sys(&j->err, "the new record is in place, but cannot be made durable in %s", j->dir);
		j->outcome = LOCK_UNKNOWN;
	}
	if (fd >= 0)
		close(fd);
}

static void replace(struct job *j)
{
	struct stat old = { 0 };

	if (!as_expected(j, &old)) {
		j->outcome = LOCK_CONFLICT;
		return;
	}
	keep_owner(j, &old);
	if (too_late(j)) {
		j->outcome = LOCK_FAILED;
		err_set(&j->err, ERR_TIMEOUT, "writing %s took longer than its deadline; nothing was changed", j->path);
		return;
	}
	if (rename(j->temp, j->path) < 0) {
		refuse(j, "cannot replace the record %s (in a directory with the sticky bit only the file's owner can)", j->path);
		return;
	}
	j->outcome = LOCK_OK;
	version_of(&j->version, j->text, strlen(j->text));
	if (stat(j->path, &j->written) < 0)
		j->written.st_ino = 0;
	if (j->durable && j->sync)
		sync_dir(j);
}

/* Compare and swap, guarded by a lock of the kernel that a dying process drops by itself. */
static enum result put(struct job *j)
{
	enum result r;
	int fd = -1;

	if (access(j->temp, F_OK) < 0 && make_temp(j) < 0)
		return DONE;
	do {
		if (fd >= 0)
			close(fd);
		fd = open_kernel_lock(j);
		if (fd < 0) {
			refuse(j, "cannot open the kernel lock %s", j->kernel_lock);
			unlink(j->temp);
			return DONE;
		}
		r = take_kernel_lock(j, fd);
	} while (r == DONE && j->outcome == LOCK_OK && !still_named(j, fd));
	if (r == DONE && j->outcome == LOCK_OK)
		replace(j);
	if (r == DONE && j->outcome != LOCK_OK && j->outcome != LOCK_UNKNOWN)
		unlink(j->temp);
	close(fd); /* drops the lock */
	return r;
}

/* ---- jobs ---- */

static struct job *job_new(struct file_lock *l, bool writing, struct instant by)
{
	struct job *j = mem_zero(sizeof *j);

	j->lock = l;
	j->writing = writing;
	j->sync = l->place != IN_MEMORY;
	j->may_wait = l->place != IN_MEMORY;
	j->by = by;
	j->sent_at = clock_now();
	j->path = mem_dup(l->path);
	if (!writing)
		return j;
	j->dir = mem_dup(l->dir);
	j->kernel_lock = mem_printf("%s/.%s.lock", l->dir, l->name);
	j->temp = mem_printf("%s/.%s.%d-%u.tmp", l->dir, l->name, (int)getpid(), l->serial++);
	return j;
}

static void job_free(struct job *j)
{
	drop_content(j);
	free(j->path);
	free(j->dir);
	free(j->kernel_lock);
	free(j->temp);
	free(j->text);
	free(j);
}

static void parse(struct job *j, struct lock_result *r, struct record *record)
{
	if (j->outcome != LOCK_OK || j->writing)
		return;
	if (record_parse(record, content(j), j->len, &r->err) == 0) {
		r->record = record;
		return;
	}
	err_wrap(&r->err, "%s", j->path);
	r->outcome = LOCK_FOREIGN;
}

static void remember_own(struct file_lock *l, const struct job *j)
{
	if (!j->writing || j->outcome != LOCK_OK)
		return;
	l->own_inode = j->written.st_ino;
	l->own_ctime = j->written.st_ctim;
}

static void complete(struct file_lock *l)
{
	struct job *j = l->job;
	struct record record;
	struct lock_result r = {
		.outcome = j->outcome, .sent_at = j->sent_at, .version = j->version, .err = j->err,
	};

	ev_timer_stop(l->env->loop, &l->timer);
	l->job = NULL;
	remember_own(l, j);
	record_init(&record);
	parse(j, &r, &record);
	if (r.outcome != LOCK_OK)
		r.version.text[0] = '\0';
	job_free(j);
	l->done(l->arg, &r);
	record_fini(&record);
}

static void abandon(struct file_lock *l, const char *why)
{
	struct job *j = l->job;
	struct lock_result r = { .outcome = j->writing ? LOCK_UNKNOWN : LOCK_FAILED, .sent_at = j->sent_at };

	ev_timer_stop(l->env->loop, &l->timer);
	atomic_store(&j->cancelled, true);
	err_set(&r.err, ERR_TIMEOUT, "%s %s: %s", j->writing ? "writing" : "reading", j->path, why);
	j->lock = NULL;
	l->job = NULL;
	l->done(l->arg, &r);
}

static void work(struct offload_job *off)
{
	struct job *j = (struct job *)off;

	if (j->writing)
		put(j);
	else
		look(j);
}

static void worked(struct offload_job *off)
{
	struct job *j = (struct job *)off;

	if (j->lock)
		complete(j->lock);
	else
		job_free(j);
}

static void on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct file_lock *l = w->data;

	(void)loop;
	(void)revents;
	if (l->off_loop)
		abandon(l, "the file system has not answered before the deadline");
	else
		complete(l);
}

static void arm(struct file_lock *l, nsec after)
{
	ev_now_update(l->env->loop);
	ev_timer_set(&l->timer, (double)after / NSEC_PER_SEC, 0.);
	ev_timer_start(l->env->loop, &l->timer);
}

static void run_off_loop(struct file_lock *l, struct job *j)
{
	l->off_loop = true;
	j->may_wait = true;
	j->off = (struct offload_job){ .work = work, .done = worked };
	/* The thread gives up at the deadline by itself; this is for one that cannot. */
	arm(l, instant_until(j->by, clock_now()) + 50 * NSEC_PER_MS);
	offload_run(l->env->offload, &j->off);
}

static void run(struct file_lock *l, struct job *j, bool on_loop, lock_done_fn *done, void *arg)
{
	l->job = j;
	l->done = done;
	l->arg = arg;
	l->off_loop = false;
	if (!on_loop) {
		run_off_loop(l, j);
		return;
	}
	if (j->writing && put(j) == WOULD_WAIT) {
		run_off_loop(l, j);
		return;
	}
	if (!j->writing)
		look(j);
	arm(l, 0); /* never from inside the caller */
}

/* ---- the backend ---- */

static void file_read(struct lock *base, struct instant by, lock_done_fn *done, void *arg)
{
	struct file_lock *l = (struct file_lock *)base;

	run(l, job_new(l, false, by), l->place != REMOTE, done, arg);
}

static void file_write(struct lock *base, const struct record *r, const struct version *expected, bool durable,
                       struct instant by, lock_done_fn *done, void *arg)
{
	struct file_lock *l = (struct file_lock *)base;
	struct job *j = job_new(l, true, by);

	j->text = record_print(r);
	j->expected = *expected;
	j->durable = durable;
	run(l, j, l->place == IN_MEMORY, done, arg);
}

static void file_cancel(struct lock *base)
{
	struct file_lock *l = (struct file_lock *)base;

	if (!l->job)
		return;
	if (l->off_loop)
		abandon(l, "cancelled");
	else
		complete(l);
}

static bool own_write(const struct file_lock *l)
{
	struct stat st;

	return l->own_inode && stat(l->path, &st) == 0 && st.st_ino == l->own_inode &&
	       memcmp(&st.st_ctim, &l->own_ctime, sizeof st.st_ctim) == 0;
}

static void on_notice(void *arg)
{
	struct file_lock *l = arg;

	if (l->place == REMOTE || !own_write(l))
		l->changed(l->changed_arg);
}

static bool file_watch(struct lock *base, lock_changed_fn *changed, void *arg)
{
	struct file_lock *l = (struct file_lock *)base;

	l->changed = changed;
	l->changed_arg = arg;
	return l->place != REMOTE && lock_dir_watch(l->env, &l->notice, l->dir);
}

static void file_close(struct lock *base)
{
	struct file_lock *l = (struct file_lock *)base;

	file_cancel(base);
	lock_dir_forget(l->env, &l->notice);
	free(l->base.url);
	free(l->path);
	free(l->dir);
	free(l);
}

static enum place place_of(const char *dir)
{
	struct statfs fs;

	if (statfs(dir, &fs) < 0)
		return REMOTE;
	switch ((unsigned long)fs.f_type) {
	case TMPFS_MAGIC:
	case RAMFS_MAGIC:
		return IN_MEMORY;
	case EXT4_SUPER_MAGIC:
	case XFS_SUPER_MAGIC:
	case BTRFS_SUPER_MAGIC:
	case F2FS_SUPER_MAGIC:
	case OVERLAYFS_SUPER_MAGIC:
	case 0x2fc12fc1: /* zfs */
		return ON_DISK;
	default:
		return REMOTE;
	}
}

/* A plain name lives in the default directory; a link is followed now, so that what is replaced is its target. */
static char *resolve(const char *path, struct err *err)
{
	char full[PATH_MAX], real[PATH_MAX];

	if (!*path || path[strlen(path) - 1] == '/') {
		err_set(err, ERR_USAGE, "lock \"%s\": expected the path or the name of a file", path);
		return NULL;
	}
	if (strlen(path) > PATH_MAX / 2) {
		err_set(err, ERR_USAGE, "lock: a path of %zu bytes is too long", strlen(path));
		return NULL;
	}
	if (strchr(path, '/')) {
		snprintf(full, sizeof full, "%s", path);
	} else {
		char dir[PATH_MAX / 2];
		if (lock_default_dir(dir, sizeof dir, err) < 0)
			return NULL;
		snprintf(full, sizeof full, "%s/%s", dir, path);
	}
	if (realpath(full, real))
		return mem_dup(real);
	struct stat st;
	if (errno != ENOENT || lstat(full, &st) == 0) {
		err_sys(err, "lock file %s cannot be resolved", full);
		return NULL;
	}
	char *slash = strrchr(full, '/');
	*slash = '\0';
	if (!realpath(slash == full ? "/" : full, real)) {
		err_sys(err, "the directory %s of the lock \"%s\" cannot be used: make it first", full, path);
		return NULL;
	}
	return mem_printf("%s/%s", strcmp(real, "/") == 0 ? "" : real, slash + 1);
}

static struct lock *file_open(struct lock_env *env, const char *url, struct err *err)
{
	char *path = resolve(strncmp(url, "//", 2) == 0 ? url + 2 : url, err);

	if (!path)
		return NULL;
	const char *slash = strrchr(path, '/');
	if (strlen(slash + 1) > NAME_MAX - 40) {
		err_set(err, ERR_USAGE, "lock \"%s\": a name of at most %d bytes is needed, so that its helper files fit beside it", path,
		        NAME_MAX - 40);
		free(path);
		return NULL;
	}
	struct file_lock *l = mem_zero(sizeof *l);
	l->base.ops = &lock_file;
	l->base.url = mem_printf("file:%s", path);
	l->env = env;
	l->path = path;
	l->name = strrchr(path, '/') + 1;
	l->dir = l->name - 1 == path ? mem_dup("/") : mem_dupn(path, (size_t)(l->name - 1 - path));
	l->place = place_of(l->dir);
	l->notice = (struct lock_notice){ .changed = on_notice, .arg = l, .name = l->name };
	ev_timer_init(&l->timer, on_timer, 0., 0.);
	l->timer.data = l;
	return &l->base;
}

const struct lock_ops lock_file = {
	.scheme = "file",
	.summary = "a file on this machine or on a shared POSIX file system",
	.token_in_record = true,
	.open = file_open,
	.read = file_read,
	.write = file_write,
	.cancel = file_cancel,
	.watch = file_watch,
	.close = file_close,
};
