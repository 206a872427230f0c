#include "base/trust.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int trust_link(const char *path, const struct stat *link, struct err *err)
{
	char dir[PATH_MAX];
	struct stat st;
	size_t len = (size_t)(strrchr(path, '/') - path);

	snprintf(dir, sizeof dir, "%.*s", len ? (int)len : 1, path);
	if (stat(dir, &st) < 0)
		return err_sys(err, "the directory %s cannot be used", dir);
	if (!(st.st_mode & S_IWOTH) || link->st_uid == geteuid() || link->st_uid == 0 || link->st_uid == st.st_uid)
		return 0;
	return err_set(
		err, ERR_USAGE,
		"%s is a symbolic link that user %u has put into a directory that everybody may write into: it is not "
		"followed. Remove it, or use a directory that nobody else may write into",
		path, (unsigned)link->st_uid);
}

int trust_dir(const char *path, struct err *err)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return err_sys(err, "%s", path);
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return err_set(err, ERR_INVALID, "%s belongs to user %u, who can change what is in it (we are user %u)",
		               path, (unsigned)st.st_uid, (unsigned)geteuid());
	if (st.st_mode & S_IWOTH)
		return err_set(err, ERR_INVALID, "everybody may write into %s (mode %04o; chmod o-w %s)", path,
		               (unsigned)(st.st_mode & 07777), path);
	return 0;
}
