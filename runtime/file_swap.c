#include "file_swap.h"

#include "hash.h"
#include "kernel_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Where the record is, open for the length of one operation: should the directory be moved or replaced meanwhile, all
 * steps still happen in the same one. */
struct place {
	int dir;
	const char *name;
	struct stat dir_stat;
};

static void fail(struct file_swap *s)
{
	s->outcome = s->err.code == ERR_DENIED ? LOCK_REFUSED : LOCK_FAILED;
}

static bool too_late(const struct file_swap *s)
{
	return atomic_load(&s->cancelled) || instant_passed(s->by, clock_now());
}

static int open_place(struct file_swap *s, struct place *p)
{
	char dir[PATH_MAX];

	p->name = strrchr(s->path, '/') + 1;
	int len = (int)(p->name - s->path) - 1;
	snprintf(dir, sizeof dir, "%.*s", len ? len : 1, s->path);
	p->dir = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (p->dir >= 0 && fstat(p->dir, &p->dir_stat) == 0)
		return 0;
	if (errno == ENOENT)
		err_set(&s->err, ERR_MISSING, "the directory %s of the record is not there: make it, or mount what belongs there", dir);
	else
		err_sys(&s->err, "cannot use the directory %s of the record", dir);
	if (p->dir >= 0)
		close(p->dir);
	fail(s);
	return -1;
}

/* ---- what is there ---- */

/* Every write has a random name in its content, so equal content is the same write, and a hash needs to tell apart only the few
 * contents that one file has in its life. */

/* At least `digits` of them; where they end. */
static char *put_hex(char *out, uint64_t n, int digits)
{
	while (digits < 16 && n >> 4 * digits)
		digits++;
	for (int i = digits; i-- > 0; n >>= 4)
		out[i] = "0123456789abcdef"[n & 15];
	return out + digits;
}

/* The inode tells a restored copy from the original, where inode numbers can be relied on. */
static void make_version(struct version *v, uint64_t h, size_t len, ino_t inode, bool local)
{
	char *at = put_hex(v->text, h, 16);

	*at = '-';
	at = put_hex(at + 1, len, 1);
	*at = '-';
	*put_hex(at + 1, local ? (uint64_t)inode : 0, 1) = '\0';
}

static int foreign(struct file_swap *s, const char *what)
{
	s->outcome = LOCK_FOREIGN;
	return err_set(&s->err, ERR_FOREIGN,
	               "%s %s; expected a file with an election record. It is not overwritten: choose another path, or remove it "
	               "if nothing uses it",
	               s->path, what);
}

static const char *kind_name(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return "is a directory";
	case S_IFIFO:
		return "is a named pipe";
	case S_IFSOCK:
		return "is a socket";
	default:
		return "is a device";
	}
}

static int check_file(struct file_swap *s, const struct stat *st)
{
	char text[80];

	if (!S_ISREG(st->st_mode))
		return foreign(s, kind_name(st->st_mode));
	if (st->st_size == 0)
		return foreign(s, "is empty");
	if (st->st_size <= RECORD_MAX_BYTES)
		return 0;
	snprintf(text, sizeof text, "has %lld bytes, more than any election record (%d)", (long long)st->st_size, RECORD_MAX_BYTES);
	return foreign(s, text);
}

/* The record, open and found to be a plausible file; -1 with the outcome, LOCK_ABSENT included. O_NONBLOCK: somebody may
 * have put a pipe there. */
static int open_record(struct file_swap *s, const struct place *p, struct stat *st)
{
	int fd = openat(p->dir, p->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);

	if (fd < 0 && errno == ENOENT) {
		s->outcome = LOCK_ABSENT;
		return -1;
	}
	if (fd < 0 && (errno == ELOOP || errno == ENXIO))
		return foreign(s, errno == ELOOP ? "has become a symbolic link since this process opened it" : "is a socket or a device");
	if (fd < 0 || fstat(fd, st) < 0) {
		err_sys(&s->err, "cannot read the record %s", s->path);
		fail(s);
	} else if (check_file(s, st) == 0) {
		return fd;
	}
	if (fd >= 0)
		close(fd);
	return -1;
}

/* Reads up to size bytes. The bytes read, or -1 with the outcome. */
static ssize_t read_bytes(struct file_swap *s, int fd, char *to, size_t size)
{
	size_t got = 0;

	while (got < size) {
		ssize_t n = read(fd, to + got, size - got);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			err_sys(&s->err, "cannot read the record %s", s->path);
			fail(s);
			return -1;
		}
		if (n == 0)
			break;
		got += (size_t)n;
	}
	return (ssize_t)got;
}

static char *room_for(struct file_swap *s, size_t size)
{
	if (size < FILE_SWAP_SMALL)
		return s->small;
	char *mapped = mmap(NULL, RECORD_MAX_BYTES + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mapped == MAP_FAILED) {
		err_sys(&s->err, "no memory for the record %s", s->path);
		fail(s);
		return NULL;
	}
	return s->big = mapped;
}

static void read_content(struct file_swap *s, int fd, const struct stat *st)
{
	char *to = room_for(s, (size_t)st->st_size);
	ssize_t n = to ? read_bytes(s, fd, to, (size_t)st->st_size) : -1;

	if (n < 0)
		return;
	to[n] = '\0';
	s->len = (size_t)n;
	make_version(&s->version, hash_bytes(HASH_SEED, to, s->len), s->len, st->st_ino, s->local);
	s->outcome = LOCK_OK;
}

/* One file, one step: the directory need not be held. It is looked at only to say what is missing. */
void file_swap_read(struct file_swap *s)
{
	struct place p = { .dir = AT_FDCWD, .name = s->path };
	struct stat st;
	int fd = open_record(s, &p, &st);

	if (fd >= 0) {
		read_content(s, fd, &st);
		close(fd);
	} else if (s->outcome == LOCK_ABSENT && open_place(s, &p) == 0) {
		close(p.dir);
	}
}

const char *file_swap_content(const struct file_swap *s)
{
	return s->big ? s->big : s->small;
}

void file_swap_fini(struct file_swap *s)
{
	if (s->big)
		munmap(s->big, RECORD_MAX_BYTES + 1);
	s->big = NULL;
}

/* ---- the new file ---- */

/* The bits of the directory: who may read the record is who may read there, who may replace it is who may write there.
 * In a sticky directory only a file's owner can replace it, so nobody else's right to write would mean anything. */
static mode_t record_mode(const struct stat *dir)
{
	mode_t mode = 0600 | (dir->st_mode & 0066);

	return dir->st_mode & S_ISVTX ? mode & ~(mode_t)022 : mode;
}

/* Reading is enough to take a kernel lock, so only those get it who may write the record. */
static mode_t lock_mode(const struct stat *dir)
{
	mode_t record = record_mode(dir);

	return 0600 | (record & 0020 ? 0060 : 0) | (record & 0002 ? 0006 : 0);
}

/* Root working in somebody's directory must not lock its owner out. */
static uid_t owner_for(const struct stat *dir)
{
	return geteuid() == 0 && !(dir->st_mode & S_ISVTX) ? dir->st_uid : (uid_t)-1;
}

/* Owner, group and mode of the record that is replaced, else the directory's. What we may not give stays ours. */
static int set_rights(int fd, const struct place *p, const struct stat *now)
{
	struct stat old;
	bool had = fstatat(p->dir, p->name, &old, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(old.st_mode);
	uid_t uid = !had ? owner_for(&p->dir_stat) : old.st_uid != now->st_uid && geteuid() == 0 ? old.st_uid : (uid_t)-1;
	gid_t gid = had ? old.st_gid : p->dir_stat.st_gid;
	mode_t mode = had ? old.st_mode & 0777 : record_mode(&p->dir_stat);

	if ((uid != (uid_t)-1 || gid != now->st_gid) && fchown(fd, uid, gid) < 0)
		mode &= had ? ~(mode_t)070 : ~(mode_t)020; /* those bits were meant for another group than the file has now */
	return mode == (now->st_mode & 0777) ? 0 : fchmod(fd, mode);
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

static bool give_up(void *arg)
{
	return too_late(arg);
}

static void clean(struct file_swap *s, const struct place *p)
{
	int dir = openat(p->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		return;
	file_temp_clean(&s->tag, dir, s->local, give_up, s);
	close(dir);
}

/* NFS and quotas may report a failed write only here: close(2). */
static int close_temp(struct file_swap *s)
{
	int fd = s->temp_fd;

	s->temp_fd = -1;
	return fd < 0 || close(fd) == 0 ? 0 : err_sys(&s->err, "cannot write the new record for %s; the old one is untouched", s->path);
}

static int drop_temp(struct file_swap *s, const struct place *p)
{
	struct err kept = s->err;

	close_temp(s);
	s->err = kept;
	unlinkat(p->dir, s->temp, 0);
	s->temp_made = false;
	return -1;
}

/* Written and synced before the kernel lock is taken, so that nobody waits for our disk. Synced for a renewal as well:
 * the name may reach the disk before the bytes do, and a power cut between the two would lose the token. */
static int make_temp(struct file_swap *s, const struct place *p)
{
	int fd = openat(p->dir, s->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	struct stat st = { 0 };

	if (fd < 0) {
		err_sys(&s->err, "cannot make a file beside the record %s (a write replaces it, so its directory must be writable)",
		        s->path);
		fail(s);
		return -1;
	}
	s->temp_made = true;
	bool good = fstat(fd, &st) == 0 && set_rights(fd, p, &st) == 0 && write_all(fd, s->text) == 0 &&
	            (s->in_memory || fdatasync(fd) == 0);
	s->inode = st.st_ino;
	s->temp_fd = fd;
	if (!good)
		err_sys(&s->err, "cannot write the new record for %s; the old one is untouched", s->path);
	/* Whoever watches the directory is woken by the closing, and by the renaming: close together, that is once. Not where
	 * closing sends the file to a server, for which nobody shall wait. */
	if (good && (s->local || close_temp(s) == 0))
		return 0;
	fail(s);
	return drop_temp(s, p);
}

/* ---- replacing ---- */

/* In a sticky directory rename(2) over another user's file fails, and all one would hear is EPERM. */
static int check_sticky(struct file_swap *s, const struct place *p)
{
	struct stat st;
	uid_t me = geteuid();

	if (!(p->dir_stat.st_mode & S_ISVTX) || me == 0 || me == p->dir_stat.st_uid ||
	    fstatat(p->dir, p->name, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_uid == me)
		return 0;
	s->outcome = LOCK_REFUSED;
	return err_set(&s->err, ERR_DENIED,
	               "the record %s belongs to user %u, and in a directory with the sticky bit only its owner can replace it (we "
	               "are user %u): run as that user, or use a directory that both may write and that has no sticky bit",
	               s->path, (unsigned)st.st_uid, (unsigned)me);
}

/* As many bytes as the file has, or had a moment ago. */
static uint64_t hash_file(struct file_swap *s, int fd, size_t size, size_t *len)
{
	char buffer[4096];
	uint64_t h = HASH_SEED;
	ssize_t n = 1;

	for (*len = 0; *len < size && n > 0; *len += n > 0 ? (size_t)n : 0) {
		size_t left = size - *len;
		n = read_bytes(s, fd, buffer, left < sizeof buffer ? left : sizeof buffer);
		h = n > 0 ? hash_bytes(h, buffer, (size_t)n) : h;
	}
	return h;
}

/* Leaves LOCK_OK if the record is the expected one, or absent as expected. */
static void compare(struct file_swap *s, const struct place *p)
{
	struct version found = { "" };
	struct stat st;
	size_t len;

	s->outcome = LOCK_OK;
	int fd = open_record(s, p, &st);
	if (fd >= 0) {
		uint64_t h = hash_file(s, fd, (size_t)st.st_size, &len);
		make_version(&found, h, len, st.st_ino, s->local);
		close(fd);
	} else if (s->outcome == LOCK_ABSENT) {
		s->outcome = LOCK_OK;
	} else if (s->outcome == LOCK_FOREIGN) {
		s->outcome = LOCK_CONFLICT; /* the read that follows says what it is */
	}
	if (s->outcome == LOCK_OK && strcmp(found.text, s->expected.text) != 0)
		s->outcome = LOCK_CONFLICT;
}

static void sync_dir(struct file_swap *s, const struct place *p)
{
	int dir = openat(p->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	/* Some file systems know no sync of a directory and say so: fsync(2), EINVAL. */
	if (dir < 0 || (fsync(dir) < 0 && errno != EINVAL)) {
		s->outcome = LOCK_UNKNOWN;
		err_sys(&s->err, "the record %s was replaced, but whether that survives a power cut is not known", s->path);
	}
	if (dir >= 0)
		close(dir);
}

/* Its kernel lock goes too: whoever waits for that finds that it is not the file it was (kernel_lock.c). */
static void remove_both(struct file_swap *s, const struct place *p, const char *lock_name)
{
	if (unlinkat(p->dir, p->name, 0) < 0 || unlinkat(p->dir, lock_name, 0) < 0) {
		err_sys(&s->err, "cannot remove %s", s->path);
		fail(s);
	}
}

/* Under the kernel lock. */
static void replace(struct file_swap *s, const struct place *p)
{
	/* The last look at the clock: a process that was stopped in here must not write after its time. */
	if (too_late(s)) {
		err_set(&s->err, ERR_TIMEOUT, "there was no time left to replace %s; nothing was changed", s->path);
		fail(s);
		return;
	}
	if (close_temp(s) < 0) {
		fail(s);
		return;
	}
	if (renameat(p->dir, s->temp, p->dir, p->name) < 0) {
		err_sys(&s->err, "cannot replace the record %s", s->path);
		fail(s);
		return;
	}
	s->temp_made = false;
	size_t len = strlen(s->text);
	make_version(&s->version, hash_bytes(HASH_SEED, s->text, len), len, s->inode, s->local);
	if (s->durable && !s->in_memory)
		sync_dir(s, p);
}

/* false: busy. */
static bool swap(struct file_swap *s, const struct place *p)
{
	char name[NAME_MAX + 1], path[PATH_MAX];
	struct kernel_lock_how how = {
		.path = path, .mode = lock_mode(&p->dir_stat), .uid = owner_for(&p->dir_stat), .gid = p->dir_stat.st_gid,
		.writable = !s->local, .may_wait = s->may_wait, .by = s->by, .cancelled = &s->cancelled,
	};
	int fd;

	snprintf(name, sizeof name, ".%s.lock", p->name);
	snprintf(path, sizeof path, "%.*s%s", (int)(p->name - s->path), s->path, name);
	switch (kernel_lock_take(p->dir, name, &how, &fd, &s->err)) {
	case KERNEL_LOCK_BUSY:
		return false;
	case KERNEL_LOCK_FAILED:
		fail(s);
		return true;
	case KERNEL_LOCK_TAKEN:
		compare(s, p);
		if (s->outcome == LOCK_OK && s->text)
			replace(s, p);
		else if (s->outcome == LOCK_OK)
			remove_both(s, p, name);
		close(fd);
		return true;
	}
	return true;
}

bool file_swap_write(struct file_swap *s)
{
	struct place p;
	bool finished = true;

	if (open_place(s, &p) < 0)
		return true;
	if (s->clean)
		clean(s, &p);
	s->clean = false;
	if (check_sticky(s, &p) == 0 && (!s->text || s->temp_made || make_temp(s, &p) == 0))
		finished = swap(s, &p);
	if (finished && s->temp_made)
		drop_temp(s, &p);
	close(p.dir);
	return finished;
}
