#include "locks/file/file_op.h"

#include "base/hash.h"
#include "locks/file/file_system.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

void file_op_fail(struct file_op *o)
{
	o->outcome = o->err.code == ERR_DENIED ? LOCK_REFUSED : LOCK_FAILED;
}

bool file_op_too_late(const struct file_op *o)
{
	return atomic_load(&o->cancelled) || instant_passed(o->by, clock_now());
}

int file_op_in_time(struct file_op *o)
{
	if (!file_op_too_late(o))
		return 0;
	err_set(&o->err, ERR_TIMEOUT, "there was no time left to replace %s; nothing was changed", o->path);
	file_op_fail(o);
	return -1;
}

/* ---- the place ---- */

/* A file server's locks are leases themselves: a client that is cut off from the network loses its lock without being
 * told. A rename(2) that it had begun under the lock is carried out when the network is back, and overwrites the record
 * of whoever leads by then. */
int file_op_check_type(const char *dir, uint32_t f_type, struct err *err)
{
	const struct file_system_type *type = file_system_type(f_type);

	if (type->is != FILE_SYSTEM_SHARED)
		return 0;
	return err_set(
		err, ERR_USAGE,
		"%s is on a file system that other machines may share: %s (0x%x). There a file lock must be named with "
		"?shared=link, by every candidate: without it, what a machine wrote that was cut off lands when it is back, "
		"over the record of the next leader. Or use a store (docs/choose-a-store.md)",
		dir, type->name, f_type);
}

int file_op_check_marker(int dir, const char *marker, const char *path, struct err *err)
{
	if (!marker || faccessat(dir, marker, F_OK, 0) == 0)
		return 0;
	if (errno == ENOENT || errno == ENOTDIR)
		return err_set(
			err, ERR_MISSING,
			"%s, which must exist where the record %s is, does not: what belongs there is probably not mounted on this machine",
			marker, path);
	return err_sys(err, "cannot tell if %s exists, which must where the record %s is", marker, path);
}

static int check_place(struct file_op *o, const struct file_place *p, const char *dir)
{
	struct statfs fs;

	if (!o->shared && fstatfs(p->dir, &fs) < 0) {
		err_sys(&o->err, "cannot tell which file system %s is on", dir);
		file_op_fail(o);
		return -1;
	}
	if (!o->shared && file_op_check_type(dir, (uint32_t)fs.f_type, &o->err) < 0) {
		o->outcome = LOCK_REFUSED; /* another file system was mounted there since the lock was opened */
		return -1;
	}
	if (file_op_check_marker(p->dir, o->marker, o->path, &o->err) == 0)
		return 0;
	file_op_fail(o);
	return -1;
}

/* The path had no link in it when the lock was opened. One that is there now was put there since, perhaps by somebody
 * who may write into a directory on the way, and would take us to another place. openat2(2): a kernel before 5.6 has no
 * such call, and a container may forbid it. */
static int open_dir(const char *dir)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS };
	int fd = (int)syscall(SYS_openat2, AT_FDCWD, dir, &how, sizeof how);

	return fd < 0 && (errno == ENOSYS || errno == EPERM) ? open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)
	                                                     : fd;
}

int file_op_open_place(struct file_op *o, struct file_place *p)
{
	char dir[PATH_MAX];

	p->name = strrchr(o->path, '/') + 1;
	int len = (int)(p->name - o->path) - 1;
	snprintf(dir, sizeof dir, "%.*s", len ? len : 1, o->path);
	p->dir = open_dir(dir);
	if (p->dir >= 0 && fstat(p->dir, &p->dir_stat) == 0) {
		if (check_place(o, p, dir) == 0)
			return 0;
		close(p->dir);
		return -1;
	}
	if (errno == ENOENT)
		err_set(&o->err, ERR_MISSING,
		        "the directory %s of the record is not there: make it, or mount what belongs there", dir);
	else if (errno == ELOOP)
		err_set(&o->err, ERR_DENIED,
		        "a part of %s, the directory of the record, has become a symbolic link since this process opened it: it "
		        "is not followed",
		        dir);
	else
		err_sys(&o->err, "cannot use the directory %s of the record", dir);
	if (p->dir >= 0)
		close(p->dir);
	file_op_fail(o);
	return -1;
}

/* ---- what is there ---- */

char *file_op_put_hex(char *out, uint64_t n, int digits)
{
	while (digits < 16 && n >> 4 * digits)
		digits++;
	for (int i = digits; i-- > 0; n >>= 4)
		out[i] = "0123456789abcdef"[n & 15];
	return out + digits;
}

int file_op_foreign(struct file_op *o, const char *what)
{
	o->outcome = LOCK_FOREIGN;
	return err_set(
		&o->err, ERR_FOREIGN,
		"%s %s; expected a file with an election record. It is not overwritten: choose another path, or remove it "
		"if nothing uses it",
		o->path, what);
}

static const char *kind_name(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return "is a directory, as locks are that are named with ?shared=link";
	case S_IFIFO:
		return "is a named pipe";
	case S_IFSOCK:
		return "is a socket";
	default:
		return "is a device";
	}
}

static int check_file(struct file_op *o, const struct stat *st)
{
	char text[80];

	if (!S_ISREG(st->st_mode))
		return file_op_foreign(o, kind_name(st->st_mode));
	if (st->st_size == 0)
		return file_op_foreign(o, "is empty");
	if (st->st_size <= RECORD_MAX_BYTES)
		return 0;
	snprintf(text, sizeof text, "has %lld bytes, more than any election record (%d)", (long long)st->st_size,
	         RECORD_MAX_BYTES);
	return file_op_foreign(o, text);
}

/* The record, open and found to be a plausible file; -1 with the outcome, LOCK_ABSENT included. O_NONBLOCK: somebody
 * may have put a pipe there. */
int file_op_open_record(struct file_op *o, const struct file_place *p, struct stat *st)
{
	int fd = openat(p->dir, p->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);

	if (fd < 0 && errno == ENOENT) {
		o->outcome = LOCK_ABSENT;
		return -1;
	}
	if (fd < 0 && (errno == ELOOP || errno == ENXIO))
		return file_op_foreign(o, errno == ELOOP ? "has become a symbolic link since this process opened it"
		                                         : "is a socket or a device");
	if (fd < 0 || fstat(fd, st) < 0) {
		err_sys(&o->err, "cannot read the record %s", o->path);
		file_op_fail(o);
	} else if (check_file(o, st) == 0) {
		return fd;
	}
	if (fd >= 0)
		close(fd);
	return -1;
}

/* Reads up to size bytes. The bytes read, or -1 with the outcome. */
static ssize_t read_bytes(struct file_op *o, int fd, char *to, size_t size)
{
	size_t got = 0;

	while (got < size) {
		ssize_t n = read(fd, to + got, size - got);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			err_sys(&o->err, "cannot read the record %s", o->path);
			file_op_fail(o);
			return -1;
		}
		if (n == 0)
			break;
		got += (size_t)n;
	}
	return (ssize_t)got;
}

static char *room_for(struct file_op *o, size_t size)
{
	if (size < FILE_OP_SMALL)
		return o->small;
	char *mapped = mmap(NULL, RECORD_MAX_BYTES + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mapped == MAP_FAILED) {
		err_sys(&o->err, "no memory for the record %s", o->path);
		file_op_fail(o);
		return NULL;
	}
	return o->big = mapped;
}

void file_op_read_content(struct file_op *o, int fd, const struct stat *st)
{
	char *to = room_for(o, (size_t)st->st_size);
	ssize_t n = to ? read_bytes(o, fd, to, (size_t)st->st_size) : -1;

	if (n < 0)
		return;
	to[n] = '\0';
	o->len = (size_t)n;
	o->hash = hash_bytes(HASH_SEED, to, o->len);
	o->outcome = LOCK_OK;
}

uint64_t file_op_hash_file(struct file_op *o, int fd, size_t size, size_t *len)
{
	char buffer[4096];
	uint64_t h = HASH_SEED;
	ssize_t n = 1;

	for (*len = 0; *len < size && n > 0; *len += n > 0 ? (size_t)n : 0) {
		size_t left = size - *len;
		n = read_bytes(o, fd, buffer, left < sizeof buffer ? left : sizeof buffer);
		h = n > 0 ? hash_bytes(h, buffer, (size_t)n) : h;
	}
	return h;
}

const char *file_op_content(const struct file_op *o)
{
	return o->big ? o->big : o->small;
}

void file_op_fini(struct file_op *o)
{
	if (o->big)
		munmap(o->big, RECORD_MAX_BYTES + 1);
	o->big = NULL;
	if (o->temp_made) /* and its directory is gone */
		file_op_close_temp(o);
}

/* ---- the new file ---- */

/* The record's rights follow the directory's: who may read in the directory may read the record, who may write there
 * may replace it. In a sticky directory only a file's owner can replace it, so nobody else gets the right to write. */
mode_t file_op_mode(const struct stat *dir)
{
	mode_t mode = 0600 | (dir->st_mode & 0066);

	return dir->st_mode & S_ISVTX ? mode & ~(mode_t)022 : mode;
}

/* Root working in somebody's directory must not lock its owner out. */
uid_t file_op_owner(const struct stat *dir)
{
	return geteuid() == 0 && !(dir->st_mode & S_ISVTX) ? dir->st_uid : (uid_t)-1;
}

/* Gives the file the owner, group and mode of the record that it replaces, else those of the directory. An owner or a
 * group that we may not give is left out. */
static int set_rights(int fd, const struct file_place *p, const struct stat *now)
{
	struct stat old;
	bool had = fstatat(p->dir, p->name, &old, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(old.st_mode);
	uid_t uid = !had                                          ? file_op_owner(&p->dir_stat)
	            : old.st_uid != now->st_uid && geteuid() == 0 ? old.st_uid
	                                                          : (uid_t)-1;
	gid_t gid = had ? old.st_gid : p->dir_stat.st_gid;
	mode_t mode = had ? old.st_mode & 0777 : file_op_mode(&p->dir_stat);

	if ((uid != (uid_t)-1 || gid != now->st_gid) && fchown(fd, uid, gid) < 0)
		mode &= had ? ~(mode_t)070 : ~(mode_t)020; /* the group's rights were meant for another group */
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

static bool op_is_too_late(void *arg)
{
	return file_op_too_late(arg);
}

void file_op_clean(struct file_op *o, const struct file_place *p)
{
	int dir = openat(p->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		return;
	file_temp_clean(&o->tag, dir, o->local, op_is_too_late, o);
	close(dir);
}

int file_op_keep_out(struct file_op *o, const struct file_place *p)
{
	struct stat st;

	if (!o->spelt || mkdirat(p->dir, o->spelt, 0755) == 0)
		return 0;
	if (errno != EEXIST) {
		err_sys(&o->err,
		        "cannot make the directory %s beside the record %s, which keeps versions of Lunarch out that know no options",
		        o->spelt, o->path);
		file_op_fail(o);
		return -1;
	}
	if (fstatat(p->dir, o->spelt, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
		return 0;
	o->outcome = LOCK_REFUSED;
	return err_set(
		&o->err, ERR_FOREIGN,
		"beside the record %s there is a file %s: an older Lunarch, to which the options are a part of the name, has made a "
		"lock of its own there. Stop every one of those, then remove it",
		o->path, o->spelt);
}

/* On NFS, and where there are quotas, it may be close(2) that reports a failed write. */
int file_op_close_temp(struct file_op *o)
{
	int fd = o->temp_fd;

	o->temp_fd = -1;
	return fd < 0 || close(fd) == 0
	               ? 0
	               : err_sys(&o->err, "cannot write the new record for %s; the old one is untouched", o->path);
}

void file_op_drop_temp(struct file_op *o, const struct file_place *p)
{
	struct err kept = o->err;

	file_op_close_temp(o);
	o->err = kept;
	unlinkat(p->dir, o->temp, 0);
	o->temp_made = false;
}

/* Written and synced before a kernel lock is taken, so that nobody waits for our disk. Synced for a renewal as well:
 * the name may reach the disk before the bytes do, and a power cut between the two would lose the token. */
int file_op_make_temp(struct file_op *o, const struct file_place *p)
{
	int fd = openat(p->dir, o->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	struct stat st = { 0 };

	if (fd < 0) {
		err_sys(&o->err,
		        "cannot make a file beside the record %s (a write replaces it, so its directory must be writable)",
		        o->path);
		file_op_fail(o);
		return -1;
	}
	o->temp_made = true;
	bool good = fstat(fd, &st) == 0 && set_rights(fd, p, &st) == 0 && write_all(fd, o->text) == 0 &&
	            (o->in_memory || fdatasync(fd) == 0);
	o->inode = st.st_ino;
	o->temp_fd = fd;
	if (!good)
		err_sys(&o->err, "cannot write the new record for %s; the old one is untouched", o->path);
	/* Closing a file and renaming it both wake up whoever watches the directory. A local file is closed right
	 * before it is renamed, so that they wake up once. Where closing sends the file to a server it is closed now,
	 * before anybody has to wait for us. */
	if (good && (o->local || file_op_close_temp(o) == 0))
		return 0;
	file_op_fail(o);
	file_op_drop_temp(o, p);
	return -1;
}

void file_op_sync_dir(struct file_op *o, const struct file_place *p)
{
	int dir = openat(p->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	/* Some file systems know no sync of a directory and say so: fsync(2), EINVAL. */
	if (dir < 0 || (fsync(dir) < 0 && errno != EINVAL)) {
		o->outcome = LOCK_UNKNOWN;
		err_sys(&o->err, "the record %s was replaced, but whether that survives a power cut is not known",
		        o->path);
	}
	if (dir >= 0)
		close(dir);
}
