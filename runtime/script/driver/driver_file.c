#include "script/driver/driver_file.h"

#include "base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* "zoe", or the number where it has no name. out: 64 bytes. */
static const char *user_name(uid_t uid, char *out)
{
	char bytes[4096];
	struct passwd entry, *found = NULL;

	if (getpwuid_r(uid, &entry, bytes, sizeof bytes, &found) != 0 || !found)
		snprintf(out, 64, "%u", (unsigned)uid);
	else
		snprintf(out, 64, "%s", found->pw_name);
	return out;
}

static int check_owner(const char *path, const struct stat *st, struct err *err)
{
	char owner[64], user[64];

	if (st->st_uid == 0 || st->st_uid == geteuid())
		return 0;
	user_name(st->st_uid, owner);
	user_name(geteuid(), user);
	return err_set(err, ERR_USAGE,
	               "the lock file %s belongs to %s: expected root%s%s as its owner, since it runs with this user's "
	               "rights (chown %s %s)",
	               path, owner, geteuid() ? " or " : "", geteuid() ? user : "", user, path);
}

static int check_mode(const char *path, const struct stat *st, struct err *err)
{
	char owner[64];

	if (!(st->st_mode & (S_IWGRP | S_IWOTH)))
		return 0;
	return err_set(
		err, ERR_USAGE,
		"the lock file %s (owner %s, mode %04o) may be written by %s: expected a file that its owner alone "
		"may write (chmod go-w %s)",
		path, user_name(st->st_uid, owner), (unsigned)(st->st_mode & 07777),
		st->st_mode & S_IWOTH ? "everybody" : "its group", path);
}

static int check_file(const char *path, int fd, struct err *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_sys(err, "cannot look at the lock file %s", path);
	if (!S_ISREG(st.st_mode))
		return err_set(err, ERR_USAGE, "the lock file %s is no regular file", path);
	return check_owner(path, &st, err) < 0 ? -1 : check_mode(path, &st, err);
}

static int read_all(const char *path, int fd, struct buf *text, struct err *err)
{
	char bytes[16384];
	ssize_t n;

	while ((n = read(fd, bytes, sizeof bytes)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(err, "cannot read the lock file %s", path);
		buf_add(text, bytes, (size_t)n);
		if (text->len > DRIVER_FILE_MAX)
			return err_set(err, ERR_USAGE, "the lock file %s is larger than %d MB", path,
			               DRIVER_FILE_MAX >> 20);
	}
	return 0;
}

int driver_file_read(const char *path, struct buf *text, struct err *err)
{
	/* What is looked at is what is read: the same descriptor. O_NONBLOCK: opening a FIFO must not wait. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0)
		return err_sys(err, "cannot open the lock file %s", path);
	int failed = check_file(path, fd, err) < 0 ? -1 : read_all(path, fd, text, err);
	close(fd);
	return failed;
}
