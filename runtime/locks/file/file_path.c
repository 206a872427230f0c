#include "locks/file/file_path.h"

#include "base/mem.h"
#include "locks/file/file_temp.h"
#include "locks/lock.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINKS 40 /* as the kernel: path_resolution(7) */

/* path is PATH_MAX bytes. A path of which only the last part is not there: its directory resolved, and that part. */
static int resolve_dir(char *path, struct err *err)
{
	char dir[PATH_MAX], name[NAME_MAX + 1];
	char *slash = strrchr(path, '/');

	if (snprintf(name, sizeof name, "%s", slash + 1) >= (int)sizeof name)
		return err_set(err, ERR_USAGE, "lock %s: the name has more than %d bytes", path, NAME_MAX);
	slash[slash == path] = '\0';
	if (!realpath(path, dir)) {
		if (errno == ENOENT)
			return err_set(err, ERR_MISSING,
			               "the directory %s for the lock \"%s\" is not there: make it first", path, name);
		return err_sys(err, "the directory %s for the lock \"%s\" cannot be used", path, name);
	}
	if (snprintf(path, PATH_MAX, "%s/%s", strcmp(dir, "/") == 0 ? "" : dir, name) >= PATH_MAX)
		return err_set(err, ERR_USAGE, "the path of the lock \"%s\" has more than %d bytes", name,
		               PATH_MAX - 1);
	return 0;
}

/* A link to something that is not there yet: path becomes what it points to. */
static int follow_link(char *path, struct err *err)
{
	char target[PATH_MAX], next[2 * PATH_MAX];
	ssize_t n = readlink(path, target, sizeof target - 1);

	if (n < 0)
		return err_sys(err, "the link %s cannot be read", path);
	target[n] = '\0';
	if (*target == '/')
		snprintf(next, sizeof next, "%s", target);
	else
		snprintf(next, sizeof next, "%.*s%s", (int)(strrchr(path, '/') + 1 - path), path, target);
	if (snprintf(path, PATH_MAX, "%s", next) >= PATH_MAX)
		return err_set(err, ERR_USAGE, "the path of the lock behind the link %.200s has more than %d bytes",
		               next, PATH_MAX - 1);
	return 0;
}

static int resolve_path(char *path, struct err *err)
{
	char real[PATH_MAX];
	struct stat st;

	for (int links = 0; links < LINKS; links++) {
		if (realpath(path, real)) {
			strcpy(path, real);
			return 0;
		}
		if (errno != ENOENT)
			return err_sys(err, "the lock file %s cannot be used", path);
		if (lstat(path, &st) < 0 || !S_ISLNK(st.st_mode))
			return resolve_dir(path, err);
		if (follow_link(path, err) < 0)
			return -1;
	}
	errno = ELOOP;
	return err_sys(err, "the lock file %s cannot be used", path);
}

/* An absolute path, links not yet followed. */
static int locate_path(const char *text, const char *state_dir, char *path, struct err *err)
{
	char dir[PATH_MAX] = "";
	size_t len = strlen(text);

	if (len == 0 || text[len - 1] == '/' || strcmp(text, ".") == 0 || strcmp(text, "..") == 0)
		return err_set(err, ERR_USAGE, "lock \"%s\": expected the path or the name of a file", text);
	if (strncmp(text, "//", 2) == 0 && text[2] != '/')
		return err_set(err, ERR_USAGE, "lock \"%s\": a file lock has no host; write file:/PATH", text);
	if (!strchr(text, '/') && lock_state_dir(state_dir, dir, sizeof dir, err) < 0)
		return err_wrap(err, "lock \"%s\" is a plain name, not a path", text);
	if (*text != '/' && strchr(text, '/') && !getcwd(dir, sizeof dir))
		return err_sys(err, "lock \"%s\": the current directory cannot be found", text);
	/* "file:///PATH" is how others write "file:/PATH" */
	if (snprintf(path, PATH_MAX, "%s%s%s", dir, *dir ? "/" : "", text + (strncmp(text, "///", 3) == 0 ? 2 : 0)) >=
	    PATH_MAX)
		return err_set(err, ERR_USAGE, "lock: a path of %zu bytes is too long, at most %d can be used", len,
		               PATH_MAX - 1);
	return 0;
}

char *file_path(const char *text, const char *state_dir, struct err *err)
{
	char path[PATH_MAX];

	if (locate_path(text, state_dir, path, err) < 0 || resolve_path(path, err) < 0)
		return NULL;
	size_t name_len = strlen(strrchr(path, '/') + 1);
	if (name_len > NAME_MAX - FILE_TEMP_EXTRA || strlen(path) + FILE_TEMP_EXTRA >= PATH_MAX) {
		err_set(err, ERR_USAGE,
		        "lock %s: the name has %zu bytes, at most %d (and %d for the whole path) leave room for the files beside it",
		        path, name_len, NAME_MAX - FILE_TEMP_EXTRA, PATH_MAX - FILE_TEMP_EXTRA);
		return NULL;
	}
	return mem_dup(path);
}
