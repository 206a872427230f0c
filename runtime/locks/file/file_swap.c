#include "locks/file/file_swap.h"

#include "base/hash.h"
#include "locks/file/kernel_lock.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A version is a hash of the content. Each write has a random name in its content, so equal contents are the same
 * write, and the hash has to tell apart only the few contents that one file has over time. */

/* The inode tells a restored copy from the original, where inode numbers can be relied on. */
static void print_version(struct version *v, uint64_t h, size_t len, ino_t inode, bool local)
{
	char *at = file_op_put_hex(v->text, h, 16);

	*at = '-';
	at = file_op_put_hex(at + 1, len, 1);
	*at = '-';
	*file_op_put_hex(at + 1, local ? (uint64_t)inode : 0, 1) = '\0';
}

static void read_record(struct file_op *s, const struct file_place *p)
{
	struct stat st;
	int fd = file_op_open_record(s, p, &st);

	if (fd < 0)
		return;
	file_op_read_content(s, fd, &st);
	if (s->outcome == LOCK_OK)
		print_version(&s->version, s->hash, s->len, st.st_ino, s->local);
	close(fd);
}

/* A read opens one file, so the directory need not be open meanwhile. It is opened only for the marker, or, if there is
 * no record, to tell whether the directory is missing. */
void file_swap_read(struct file_op *s)
{
	struct file_place p = { .dir = AT_FDCWD, .name = s->path };

	if (!s->marker)
		read_record(s, &p);
	if (!s->marker && s->outcome != LOCK_ABSENT)
		return;
	if (file_op_open_place(s, &p) < 0)
		return;
	read_record(s, &p);
	close(p.dir);
}

/* ---- replacing ---- */

/* In a sticky directory rename(2) over another user's file fails with EPERM, which does not say why. */
static int check_sticky(struct file_op *s, const struct file_place *p)
{
	struct stat st;
	uid_t me = geteuid();

	if (!(p->dir_stat.st_mode & S_ISVTX) || me == 0 || me == p->dir_stat.st_uid ||
	    fstatat(p->dir, p->name, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_uid == me)
		return 0;
	s->outcome = LOCK_REFUSED;
	return err_set(
		&s->err, ERR_DENIED,
		"the record %s belongs to user %u, and in a directory with the sticky bit only its owner can replace it (we "
		"are user %u): run as that user, or use a directory that both may write and that has no sticky bit",
		s->path, (unsigned)st.st_uid, (unsigned)me);
}

/* Leaves LOCK_OK if the record is the expected one, or absent as expected. */
static void compare_record(struct file_op *s, const struct file_place *p)
{
	struct version found = { "" };
	struct stat st;
	size_t len;

	s->outcome = LOCK_OK;
	int fd = file_op_open_record(s, p, &st);
	if (fd >= 0) {
		uint64_t h = file_op_hash_file(s, fd, (size_t)st.st_size, &len);
		print_version(&found, h, len, st.st_ino, s->local);
		close(fd);
	} else if (s->outcome == LOCK_ABSENT) {
		s->outcome = LOCK_OK;
	} else if (s->outcome == LOCK_FOREIGN) {
		s->outcome = LOCK_CONFLICT; /* the read that follows says what it is */
	}
	if (s->outcome == LOCK_OK && strcmp(found.text, s->expected.text) != 0)
		s->outcome = LOCK_CONFLICT;
}

/* Removes the record, and the file of its kernel lock. A process that waits for that lock finds that the file is
 * gone, and begins anew (kernel_lock.c). */
static void remove_record(struct file_op *s, const struct file_place *p, const char *lock_name)
{
	if (s->spelt)
		unlinkat(p->dir, s->spelt, AT_REMOVEDIR);
	if (unlinkat(p->dir, p->name, 0) < 0 || unlinkat(p->dir, lock_name, 0) < 0) {
		err_sys(&s->err, "cannot remove %s", s->path);
		file_op_fail(s);
	}
}

/* Called while the kernel lock is held. */
static void replace_record(struct file_op *s, const struct file_place *p)
{
	if (file_op_in_time(s) < 0)
		return;
	if (file_op_close_temp(s) < 0) {
		file_op_fail(s);
		return;
	}
	if (renameat(p->dir, s->temp, p->dir, p->name) < 0) {
		err_sys(&s->err, "cannot replace the record %s", s->path);
		file_op_fail(s);
		return;
	}
	s->temp_made = false;
	size_t len = strlen(s->text);
	print_version(&s->version, hash_bytes(HASH_SEED, s->text, len), len, s->inode, s->local);
	if (s->durable && !s->in_memory)
		file_op_sync_dir(s, p);
}

/* Who may read a file can take a kernel lock on it. So only those may read the lock's file who may write the record. */
static mode_t lock_mode(const struct stat *dir)
{
	mode_t record = file_op_mode(dir);

	return 0600 | (record & 0020 ? 0060 : 0) | (record & 0002 ? 0006 : 0);
}

/* false: busy. */
static bool swap_record(struct file_op *s, const struct file_place *p)
{
	char name[NAME_MAX + 1], path[PATH_MAX];
	struct kernel_lock_how how = {
		.path = path,
		.mode = lock_mode(&p->dir_stat),
		.uid = file_op_owner(&p->dir_stat),
		.gid = p->dir_stat.st_gid,
		.writable = !s->local,
		.may_wait = s->may_wait,
		.by = s->by,
		.cancelled = &s->cancelled,
	};
	int fd;

	snprintf(name, sizeof name, ".%s.lock", p->name);
	snprintf(path, sizeof path, "%.*s%s", (int)(p->name - s->path), s->path, name);
	switch (kernel_lock_take(p->dir, name, &how, &fd, &s->err)) {
	case KERNEL_LOCK_BUSY:
		return false;
	case KERNEL_LOCK_FAILED:
		file_op_fail(s);
		return true;
	case KERNEL_LOCK_TAKEN:
		compare_record(s, p);
		if (s->outcome == LOCK_OK && s->text)
			replace_record(s, p);
		else if (s->outcome == LOCK_OK)
			remove_record(s, p, name);
		close(fd);
		return true;
	}
	return true;
}

bool file_swap_write(struct file_op *s)
{
	struct file_place p;
	bool finished = true;

	if (file_op_open_place(s, &p) < 0)
		return true;
	if (s->clean)
		file_op_clean(s, &p);
	s->clean = false;
	if (file_op_keep_out(s, &p) == 0 && check_sticky(s, &p) == 0 &&
	    (!s->text || s->temp_made || file_op_make_temp(s, &p) == 0))
		finished = swap_record(s, &p);
	if (finished && s->temp_made)
		file_op_drop_temp(s, &p);
	close(p.dir);
	return finished;
}

void file_swap_drop(struct file_op *s)
{
	struct err kept = s->err;
	enum lock_outcome outcome = s->outcome;
	struct file_place p;

	if (!s->temp_made)
		return;
	if (file_op_open_place(s, &p) == 0) {
		file_op_drop_temp(s, &p);
		close(p.dir);
	}
	s->err = kept;
	s->outcome = outcome;
}
