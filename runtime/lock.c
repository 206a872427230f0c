#include "lock.h"

#include <ctype.h>
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const struct lock_ops *const lock_backends[] = { &lock_file, NULL };

const char *lock_outcome_name(enum lock_outcome o)
{
	static const char *const names[] = {
		[LOCK_OK] = "ok",           [LOCK_ABSENT] = "absent",   [LOCK_FOREIGN] = "foreign", [LOCK_CONFLICT] = "conflict",
		[LOCK_UNKNOWN] = "unknown", [LOCK_REFUSED] = "refused", [LOCK_INVALID] = "invalid", [LOCK_FAILED] = "failed",
	};

	return (size_t)o < sizeof names / sizeof *names ? names[o] : "?";
}

/* Letters, digits, + - . before a colon (RFC 3986, 3.1). 0 if the text does not begin with a scheme. */
static size_t scheme_len(const char *url)
{
	size_t n = 0;

	if (!isalpha((unsigned char)*url))
		return 0;
	while (isalnum((unsigned char)url[n]) || (url[n] && strchr("+-.", url[n])))
		n++;
	return url[n] == ':' ? n : 0;
}

static int unknown_scheme(const char *url, size_t len, struct err *err)
{
	char known[200] = "";

	for (size_t i = 0; lock_backends[i]; i++)
		snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s:", i ? ", " : "", lock_backends[i]->scheme);
	return err_set(err, ERR_USAGE,
	               "lock \"%.*s:...\": this build has no such kind of lock; it has %s (or a plain /PATH or NAME, which is a file)",
	               (int)len, url, known);
}

struct lock *lock_open(struct lock_env *env, const char *url, struct err *err)
{
	size_t len = scheme_len(url);

	if (len == 0)
		return lock_file.open(env, url, err);
	for (size_t i = 0; lock_backends[i]; i++)
		if (strlen(lock_backends[i]->scheme) == len && strncmp(lock_backends[i]->scheme, url, len) == 0)
			return lock_backends[i]->open(env, url + len + 1, err);
	unknown_scheme(url, len, err);
	return NULL;
}

/* Makes what is missing below the first `keep` bytes of the path, which are not ours to make. */
static int make_private_dirs(char *path, size_t keep, struct err *err)
{
	for (char *slash = strchr(path + keep + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		int made = mkdir(path, 0700);
		int failed = made < 0 && errno != EEXIST;
		*slash = '/';
		if (failed)
			return err_sys(err, "cannot make the directory %s", path);
	}
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_sys(err, "cannot make the directory %s", path);
	return 0;
}

/* cron, ssh and a login shell must agree, so no environment variable is asked. */
int lock_default_dir(char *out, size_t size, struct err *err)
{
	if (geteuid() == 0) {
		snprintf(out, size, "/var/lib/lunarch");
		return make_private_dirs(out, strlen("/var/lib"), err);
	}
	struct passwd *pw = getpwuid(geteuid());
	if (!pw || !pw->pw_dir || *pw->pw_dir != '/')
		return err_set(err, ERR_MISSING, "user %u has no home directory for locks: give --lock with a path",
		               (unsigned)geteuid());
	int n = snprintf(out, size, "%s/.local/state/lunarch", pw->pw_dir);
	if (n < 0 || (size_t)n >= size)
		return err_set(err, ERR_USAGE, "the home directory's path is too long: %s", pw->pw_dir);
	return make_private_dirs(out, strlen(pw->pw_dir), err);
}
