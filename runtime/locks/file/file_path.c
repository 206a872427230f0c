#include "locks/file/file_path.h"

#include "base/mem.h"
#include "base/trust.h"
#include "locks/file/file_temp.h"
#include "locks/lock.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINKS 40 /* as the kernel: path_resolution(7) */

/* A path that is being resolved: realpath(3) looks at no link's owner, and wants the last part to be there. */
struct path_walk {
	char done[PATH_MAX]; /* resolved: without links, "" at the root */
	char left[PATH_MAX];
	int links;
};

static int walk_too_long(const struct path_walk *w, struct err *err)
{
	return err_set(err, ERR_USAGE, "the path of the lock at %.200s has more than %d bytes", w->done, PATH_MAX - 1);
}

/* at: the length of done without the link. */
static int walk_follow(struct path_walk *w, const struct stat *st, size_t at, struct err *err)
{
	char target[PATH_MAX], next[2 * PATH_MAX];

	if (++w->links > LINKS) {
		errno = ELOOP;
		return err_sys(err, "the lock file %s cannot be used", w->done);
	}
	if (trust_link(w->done, st, err) < 0)
		return -1;
	ssize_t n = readlink(w->done, target, sizeof target - 1);
	if (n < 0)
		return err_sys(err, "the link %s cannot be read", w->done);
	target[n] = '\0';
	if (snprintf(next, sizeof next, "%s%s", target, w->left) >= PATH_MAX)
		return walk_too_long(w, err);
	strcpy(w->left, next);
	w->done[*target == '/' ? 0 : at] = '\0';
	return 0;
}

static int walk_missing(const struct path_walk *w, struct err *err)
{
	char path[2 * PATH_MAX];

	snprintf(path, sizeof path, "%s%s", w->done, w->left);
	char *slash = strrchr(path, '/');
	*slash = '\0';
	return err_set(err, ERR_MISSING, "the directory %.500s for the lock \"%.255s\" is not there: make it first",
	               path, slash + 1);
}

/* The next part of left becomes the last of done. */
static int walk_step(struct path_walk *w, struct err *err)
{
	size_t skip = strspn(w->left, "/"), len = strcspn(w->left + skip, "/"), at = strlen(w->done);
	const char *part = w->left + skip, *rest = part + len;
	struct stat st;

	if (len == 2 && strncmp(part, "..", 2) == 0) {
		w->done[at ? (size_t)(strrchr(w->done, '/') - w->done) : 0] = '\0';
	} else if (len > 0 && !(len == 1 && *part == '.')) {
		if (at + 1 + len >= sizeof w->done)
			return walk_too_long(w, err);
		snprintf(w->done + at, sizeof w->done - at, "/%.*s", (int)len, part);
	}
	memmove(w->left, rest, strlen(rest) + 1);
	bool last = !w->left[strspn(w->left, "/")];
	int gone = lstat(*w->done ? w->done : "/", &st);
	if (gone && errno == ENOENT)
		return last ? 0 : walk_missing(w, err);
	if (!gone && S_ISLNK(st.st_mode))
		return walk_follow(w, &st, at, err);
	if (!gone && (last || S_ISDIR(st.st_mode)))
		return 0;
	errno = gone ? errno : ENOTDIR;
	return err_sys(err, "the lock file %s cannot be used", w->done);
}

static int resolve_path(char *path, struct err *err)
{
	struct path_walk w = { .done = "" };

	snprintf(w.left, sizeof w.left, "%s", path);
	while (w.left[strspn(w.left, "/")])
		if (walk_step(&w, err) < 0)
			return -1;
	strcpy(path, *w.done ? w.done : "/");
	return 0;
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
