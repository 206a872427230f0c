#include "program/control_dir.h"

#include "locks/lock.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { IN_STATE, IN_RUNTIME, IN_RUN_USER, IN_TMP };
_Static_assert(IN_TMP + 1 == CONTROL_DIRS, "each place has a number");

/* Writes the path to `out`. It neither makes nor checks the directory. */
static int control_dir_name(const char *state_dir, int place, char *out, size_t size, struct err *err)
{
	const char *runtime = getenv("RUNTIME_DIRECTORY"); /* several are separated by colons */
	char base[PATH_MAX];
	int n = 0;

	switch (place) {
	case IN_STATE:
		if (lock_state_dir(state_dir, base, sizeof base, err) < 0)
			return -1;
		n = snprintf(out, size, "%s/ctl", base);
		break;
	case IN_RUNTIME:
		if (!runtime || *runtime != '/')
			return err_set(err, ERR_MISSING, "RUNTIME_DIRECTORY is not set");
		n = snprintf(out, size, "%.*s/ctl", (int)strcspn(runtime, ":"), runtime);
		break;
	case IN_RUN_USER:
		n = snprintf(out, size, "/run/user/%u/lunarch", (unsigned)geteuid());
		break;
	default:
		n = snprintf(out, size, "/tmp/lunarch-%u", (unsigned)geteuid());
	}
	return (size_t)n < size ? 0 : err_set(err, ERR_USAGE, "%s: the path is too long", out);
}

/* Root may use what belongs to whoever has the state directory. */
static bool control_dir_is_ours(const char *path, const struct stat *st, int place)
{
	char parent[PATH_MAX];
	struct stat above;

	if (!S_ISDIR(st->st_mode) || st->st_mode & (S_IWGRP | S_IWOTH))
		return false;
	if (st->st_uid == geteuid() || place != IN_STATE || geteuid() != 0)
		return st->st_uid == geteuid();
	snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(path, '/') - path), path);
	return stat(parent, &above) == 0 && above.st_uid == st->st_uid;
}

int control_dir(const char *state_dir, int place, bool make, char *out, size_t size, struct err *err)
{
	struct stat st;

	if (place != IN_STATE && *state_dir)
		return err_set(err, ERR_MISSING, "the sockets are in %s", state_dir);
	if (control_dir_name(state_dir, place, out, size, err) < 0)
		return -1;
	if (make && mkdir(out, 0700) < 0 && errno != EEXIST)
		return err_sys(err, "%s: cannot make the directory", out);
	if (lstat(out, &st) < 0)
		return err_sys(err, "%s", out);
	if (control_dir_is_ours(out, &st, place))
		return 0;
	return err_set(err, ERR_INVALID,
	               "%s is not a directory of this user alone (%s, user %u, mode %04o; we are user %u)", out,
	               S_ISDIR(st.st_mode) ? "a directory" : "no directory", (unsigned)st.st_uid,
	               (unsigned)(st.st_mode & 07777), (unsigned)geteuid());
}
