#include "process/privileges.h"

#include "base/mem.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- capabilities ---- */

/* Permitted, effective, inheritable and ambient ones. */
static int clear_capabilities(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = { 0 };

	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return -1;
	return (int)syscall(SYS_capset, &header, none);
}

/* Who may not change the bounding set (without CAP_SETPCAP) keeps it: with no_new_privs nothing in it is gained. */
static int clear_bounding_set(void)
{
	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 && errno != EPERM)
			return -1;
	return 0;
}

int privileges_drop(void)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || clear_bounding_set() < 0)
		return -1;
	return clear_capabilities();
}

/* ---- another user ---- */

static bool is_number(const char *text, unsigned long *number)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*number = strtoul(text, &end, 10);
	return !*end && errno == 0 && *number < (uid_t)-1;
}

static struct passwd *find_user(const char *name, struct err *err)
{
	unsigned long number;

	errno = 0;
	struct passwd *u = is_number(name, &number) ? getpwuid((uid_t)number) : getpwnam(name);
	if (!u)
		err_set(err, ERR_USAGE, "--user %s: there is no such user on this machine%s%s", name, errno ? ": " : "",
		        errno ? strerror(errno) : "");
	return u;
}

static int find_group(const char *name, gid_t *gid, struct err *err)
{
	unsigned long number;

	errno = 0;
	struct group *g = is_number(name, &number) ? getgrgid((gid_t)number) : getgrnam(name);
	if (!g)
		return err_set(err, ERR_USAGE, "--user ...:%s: there is no such group on this machine%s%s", name,
		               errno ? ": " : "", errno ? strerror(errno) : "");
	*gid = g->gr_gid;
	return 0;
}

static bool is_already(uid_t uid, gid_t gid)
{
	uid_t r, e, s;
	gid_t rg, eg, sg;

	return getresuid(&r, &e, &s) == 0 && getresgid(&rg, &eg, &sg) == 0 && r == uid && e == uid && s == uid &&
	       rg == gid && eg == gid && sg == gid;
}

static int switch_ids(const struct passwd *u, gid_t gid, struct err *err)
{
	if (initgroups(u->pw_name, gid) < 0)
		return err_sys(err, "--user %s: cannot take its groups", u->pw_name);
	if (setresgid(gid, gid, gid) < 0 || setresuid(u->pw_uid, u->pw_uid, u->pw_uid) < 0)
		return err_sys(err, "--user %s: cannot become that user", u->pw_name);
	if (u->pw_uid == 0)
		return 0;
	/* Securebits that were inherited may have kept some (capabilities(7), SECBIT_KEEP_CAPS). */
	if (clear_capabilities() < 0)
		return err_sys(err, "--user %s: cannot give root's capabilities up", u->pw_name);
	if (!is_already(u->pw_uid, gid) || setresuid(0, 0, 0) == 0)
		return err_set(err, ERR_SYSTEM, "--user %s: root's rights remain, so nothing is started", u->pw_name);
	return 0;
}

static int take_environment(const struct passwd *u, struct err *err)
{
	if (setenv("HOME", u->pw_dir, 1) < 0 || setenv("USER", u->pw_name, 1) < 0 ||
	    setenv("LOGNAME", u->pw_name, 1) < 0 || setenv("SHELL", *u->pw_shell ? u->pw_shell : "/bin/sh", 1) < 0)
		return err_sys(err, "--user %s: cannot set its environment", u->pw_name);
	return 0;
}

static int become(const char *name, const char *group, struct err *err)
{
	const struct passwd *u = find_user(name, err);
	gid_t gid;

	if (!u)
		return -1;
	gid = u->pw_gid;
	if (group && find_group(group, &gid, err) < 0)
		return -1;
	if (geteuid() != 0 && is_already(u->pw_uid, gid))
		return 0;
	if (geteuid() != 0)
		return err_set(
			err, ERR_USAGE,
			"--user %s: this runs as user %u and group %u, and only root can become another: start "
			"it as root; or leave one of them out: User= in the unit (su, setpriv, runAsUser) or --user",
			name, (unsigned)geteuid(), (unsigned)getegid());
	if (switch_ids(u, gid, err) < 0 || take_environment(u, err) < 0)
		return -1;
	if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
		return err_sys(err, "--user %s: cannot let that user see this process", name);
	return 0;
}

int privileges_become(const char *user, struct err *err)
{
	char *name = mem_dup(user), *colon = strchr(name, ':');

	if (colon)
		*colon = '\0';
	int status = *name && !(colon && !colon[1])
	                     ? become(name, colon ? colon + 1 : NULL, err)
	                     : err_set(err, ERR_USAGE, "--user \"%s\": expected NAME or NAME:GROUP", user);
	free(name);
	return status;
}
