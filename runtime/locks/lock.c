#include "locks/lock.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/module.h"
#include "base/trust.h"
#include "locks/lock_url.h"
#include "loop/offload.h"
#include "loop/reaper.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOKUPS 4 /* host names at a time */

const struct lock_backend lock_backends[] = {
	{ "file", "a file on this machine; with ?shared=link in a directory that machines share", .ops = &lock_file },
	{ "kube", "kube://NAMESPACE/NAME, a Lease of the Kubernetes API", .module = "kube" },
	{ "etcd", "etcd://HOST:PORT[,HOST:PORT]/KEY (etcds:// for TLS)", .module = "etcd" },
	{ "etcds", NULL, .module = "etcd" },
	{ "redis", "redis://HOST:PORT[/DB]/KEY (rediss:// for TLS)", .module = "redis" },
	{ "rediss", NULL, .module = "redis" },
	{ "redis+sentinel", "redis+sentinel://S1,S2,S3/MASTER#KEY, Redis as Sentinels name its primary",
	  .module = "redis" },
	{ "rediss+sentinel", NULL, .module = "redis" },
	{ "postgres", "postgres://USER@HOST:PORT/DB#NAME, one row of a table", .module = "postgres" },
	{ "postgresql", NULL, .module = "postgres" },
	{ "zookeeper", "zookeeper://HOST:PORT[,HOST:PORT]/PATH, also ClickHouse Keeper", .module = "zookeeper" },
	{ "s3", "s3://BUCKET/KEY, an object of S3 or of a store with its protocol", .ops = &lock_driver_path,
	  .driver = "s3" },
	{ "gs", "gs://BUCKET/KEY, an object of Google Cloud Storage", .ops = &lock_driver_path, .driver = "gs" },
	{ "azblob", "azblob://ACCOUNT/CONTAINER/KEY, a blob of Azure Storage", .ops = &lock_driver_path,
	  .driver = "azblob" },
	{ "dynamodb", "dynamodb://TABLE/KEY, an item of Amazon's DynamoDB", .ops = &lock_driver_path,
	  .driver = "dynamodb" },
	{ "consul", "consul://HOST:PORT/KEY (consuls:// for TLS)", .ops = &lock_driver_path, .driver = "consul" },
	{ "consuls", NULL, .ops = &lock_driver_path, .driver = "consul" },
	{ "mysql", "mysql://[USER@]HOST[:PORT]/DATABASE#NAME, one row of a table, also of MariaDB",
	  .ops = &lock_driver_fragment, .driver = "mysql" },
	{ "nats", "nats://HOST[:PORT][,HOST]/BUCKET#KEY, a key of a JetStream bucket", .ops = &lock_driver_fragment,
	  .driver = "nats" },
	{ "lua", "lua:FILE[?OPTION=VALUE]#KEY, what that lock file reaches", .ops = &lock_driver_fragment },
	{ "none", "nothing: every process leads (development, --leader-elect=false)", .ops = &lock_none },
	{ NULL, NULL, NULL, NULL },
};

const char *lock_outcome_name(enum lock_outcome o)
{
	static const char *const names[] = {
		[LOCK_OK] = "ok",           [LOCK_ABSENT] = "absent",
		[LOCK_FOREIGN] = "foreign", [LOCK_CONFLICT] = "conflict",
		[LOCK_UNKNOWN] = "unknown", [LOCK_REFUSED] = "refused",
		[LOCK_INVALID] = "invalid", [LOCK_FAILED] = "failed",
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

/* How other clients write stores that are here, and what to write instead. */
static const struct {
	const char *scheme, *advice;
} pasted[] = {
	{ "unix", "the socket of a Redis on this host is not spoken to: redis://127.0.0.1:6379/KEY is its port" },
	{ "redis-socket",
	  "the socket of a Redis on this host is not spoken to: redis://127.0.0.1:6379/KEY is its port" },
	{ "valkey", "Valkey is redis://HOST:PORT/KEY here" },
	{ "valkeys", "Valkey with TLS is rediss://HOST:PORT/KEY here" },
	{ "redis-sentinel", "it is redis+sentinel://S1,S2,S3/MASTER#KEY here" },
	{ "rediss-sentinel", "it is rediss+sentinel://S1,S2,S3/MASTER#KEY here" },
	{ "sentinel", "it is redis+sentinel://S1,S2,S3/MASTER#KEY here" },
	{ "keydb", "KeyDB is redis://HOST:PORT/KEY here" },
};

static int unknown_scheme(const char *url, size_t len, struct err *err)
{
	struct buf known = { 0 };

	for (size_t i = 0; i < sizeof pasted / sizeof *pasted; i++)
		if (strlen(pasted[i].scheme) == len && strncmp(pasted[i].scheme, url, len) == 0)
			return err_set(err, ERR_USAGE, "lock \"%s:...\": there is no such kind of lock: %s",
			               pasted[i].scheme, pasted[i].advice);
	for (const struct lock_backend *b = lock_backends; b->scheme; b++)
		buf_printf(&known, "%s%s:", b == lock_backends ? "" : ", ", b->scheme);
	err_set(err, ERR_USAGE,
	        "lock \"%.*s:...\": there is no such kind of lock; there are %s (or a plain /PATH or NAME, which is a file). %s/%.*s.lua would add it: "
	        "a lock file of your own (`lunarch new --lock` begins one)",
	        (int)len, url, known.data, lock_files_dir(), (int)len, url);
	buf_fini(&known);
	return -1;
}

static const struct lock_backend *find_backend(const char *scheme, size_t len)
{
	for (const struct lock_backend *b = lock_backends; b->scheme; b++)
		if (strlen(b->scheme) == len && strncmp(b->scheme, scheme, len) == 0)
			return b;
	return NULL;
}

static const struct lock_ops *ops_of(const struct lock_backend *b, struct err *err)
{
	if (b->ops)
		return b->ops;
	const struct module *m = module_open(b->module, err);
	for (size_t i = 0; m && m->locks && m->locks[i]; i++)
		if (strcmp(m->locks[i]->scheme, b->scheme) == 0)
			return m->locks[i];
	if (m)
		err_set(err, ERR_MISSING, "the module %s was built without it", b->module);
	err_wrap(err, "lock \"%s:...\"", b->scheme);
	return NULL;
}

/* ---- lock files ---- */

const char *lock_files_dir(void)
{
	const char *given = getenv("LUNARCH_LOCKS_DIR");

	return given && *given ? given : "/etc/lunarch/locks";
}

/* Somebody's own kind of lock. */
static bool is_lock_file(const char *scheme, size_t len)
{
	char *path = mem_printf("%s/%.*s.lua", lock_files_dir(), (int)len, scheme);
	bool there = access(path, F_OK) == 0;

	free(path);
	return there;
}

/* Whether the key is behind a '#' is the lock file's choice, and the URL shows it; where the URL has none, the kinds
 * that are built in have theirs. */
static const struct lock_ops *driver_ops(const struct lock_ops *otherwise, const char *text)
{
	return strchr(text, '#') ? &lock_driver_fragment : otherwise;
}

static const struct lock_ops *ops_of_scheme(const char *url, size_t len, struct err *err)
{
	const struct lock_backend *b = find_backend(url, len);

	if (b && !b->driver)
		return ops_of(b, err);
	if (b || is_lock_file(url, len))
		return driver_ops(b ? b->ops : &lock_driver_path, url + len + 1);
	unknown_scheme(url, len, err);
	return NULL;
}

/* The backend of this URL, what follows its scheme, and where what it opens begins. */
static const struct lock_ops *ops_of_url(const char *url, const char **text, const char **opened, struct err *err)
{
	size_t len = scheme_len(url);

	if (len && lock_url_check(url, err) < 0)
		return NULL;
	const struct lock_ops *ops = len ? ops_of_scheme(url, len, err) : &lock_file;

	*text = len ? url + len + 1 : url;
	*opened = ops == &lock_driver_path || ops == &lock_driver_fragment ? url : *text;
	return ops;
}

struct lock *lock_open(struct lock_env *env, const char *url, struct err *err)
{
	const char *text, *opened;
	const struct lock_ops *ops = ops_of_url(url, &text, &opened, err);
	struct lock *l = ops ? ops->open(env, opened, err) : NULL;

	if (l)
		l->url = mem_resize(l->url, strlen(l->url) + 1); /* it was printed into a larger buffer */
	return l;
}

struct lock *lock_open_next(struct lock_env *env, const struct lock *lock, const char *url, struct err *err)
{
	const struct lock_ops *ops = lock->ops;
	struct lock *next;

	if (!ops->next && !ops->next_url && !ops->open_next) {
		err_set(err, ERR_MISSING, "the lock %s has no place for a record of who comes next", lock->url);
		return NULL;
	}
	if (ops->open_next) {
		next = ops->open_next(lock, err);
	} else {
		char *beside = ops->next_url ? ops->next_url(lock, url) : lock_url_beside(lock, url, ops->next);
		env->opens_next = true;
		next = lock_open(env, beside, err);
		env->opens_next = false;
		free(beside);
	}
	if (next)
		next->advice = true;
	else
		err_wrap(err, "the next record of %s", lock->url);
	return next;
}

bool lock_is_plain_name(const char *url)
{
	return scheme_len(url) == 0 && !memchr(url, '/', strcspn(url, "?"));
}

static char *with_behind_key(const struct lock_ops *ops, const char *url, const char *more)
{
	size_t key_end = ops->key_last ? strlen(url) : strcspn(url, "?");

	return mem_printf("%.*s%s%s", (int)key_end, url, more, url + key_end);
}

struct lock *lock_open_prefix(struct lock_env *env, const char *url, char **prefix, struct err *err)
{
	const char *text, *opened, *missing = "";
	const struct lock_ops *ops = ops_of_url(url, &text, &opened, err);

	*prefix = NULL;
	if (!ops)
		return NULL;
	if (ops->key_last)
		missing = strchr(text, '#') ? "" : "#";
	else if (strncmp(text, "//", 2) == 0 && text[2 + strcspn(text + 2, "/?")] != '/')
		missing = "/";
	*prefix = with_behind_key(ops, url, missing);
	char *whole = with_behind_key(ops, *prefix, LOCK_PREFIX_END);
	struct lock *l = ops->open(env, whole + (opened - url), err);
	free(whole);
	return l;
}

void lock_prepare(const char *url)
{
	size_t len = scheme_len(url);
	const struct lock_backend *b = len ? find_backend(url, len) : NULL;
	struct err err;
	const struct module *m = b && b->module ? module_open(b->module, &err) : NULL;

	if (m && m->prepare)
		m->prepare();
}

char *lock_url_beside(const struct lock *l, const char *url, const char *more)
{
	return with_behind_key(l->ops, url, more);
}

/* ---- what the locks of an env share ---- */

struct lock_shared {
	struct lock_shared *next;
	const void *key;
	void *object;
	void (*drop)(void *object);
};

void *lock_env_share(struct lock_env *env, const void *key, void *(*make)(struct lock_env *env, struct err *err),
                     void (*drop)(void *object), struct err *err)
{
	for (const struct lock_shared *s = env->shared; s; s = s->next)
		if (s->key == key)
			return s->object;
	void *object = make(env, err);
	if (!object)
		return NULL;
	struct lock_shared *s = mem_zero(sizeof *s);
	*s = (struct lock_shared){ .next = env->shared, .key = key, .object = object, .drop = drop };
	env->shared = s;
	return object;
}

void lock_env_fini(struct lock_env *env)
{
	while (env->shared) {
		struct lock_shared *s = env->shared;
		env->shared = s->next;
		s->drop(s->object);
		free(s);
	}
	offload_free(env->lookups);
	reaper_free(env->own_reaper);
	env->lookups = NULL;
	env->own_reaper = NULL;
}

struct offload *lock_lookups(struct lock_env *env)
{
	if (!env->lookups)
		env->lookups = offload_new(env->loop, LOOKUPS, NULL);
	return env->lookups;
}

struct reaper *lock_reaper(struct lock_env *env)
{
	if (!env->reaper && !env->own_reaper)
		env->own_reaper = reaper_new(env->loop);
	return env->reaper ? env->reaper : env->own_reaper;
}

/* ---- the state directory ---- */

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

static int use_given_dir(const char *given, char *out, size_t size, struct err *err)
{
	char real[PATH_MAX], here[PATH_MAX] = "", *path;
	struct stat st;

	if (*given != '/' && !getcwd(here, sizeof here))
		return err_sys(err, "--state-dir %s: the current directory cannot be found", given);
	path = mem_printf("%s%s%s", here, *given == '/' ? "" : "/", given);
	int failed = lstat(path, &st) == 0 && S_ISLNK(st.st_mode) && trust_link(path, &st, err) < 0;
	free(path);
	if (failed)
		return err_wrap(err, "--state-dir %s", given);
	if (mkdir(given, 0700) < 0 && errno != EEXIST)
		return err_set(err, ERR_USAGE, "--state-dir %s: cannot make the directory: %s", given, strerror(errno));
	if (!realpath(given, real) || access(given, X_OK) < 0)
		return err_set(err, ERR_USAGE, "--state-dir %s: cannot use the directory: %s", given, strerror(errno));
	snprintf(out, size, "%s", real);
	return 0;
}

/* cron, ssh and a login shell must agree, so no environment variable is asked. */
int lock_state_dir(const char *given, char *out, size_t size, struct err *err)
{
	if (given && *given)
		return use_given_dir(given, out, size, err);
	if (geteuid() == 0) {
		snprintf(out, size, "/var/lib/lunarch");
		return make_private_dirs(out, strlen("/var/lib"), err);
	}
	struct passwd *pw = getpwuid(geteuid());
	const char *home = pw && pw->pw_dir ? pw->pw_dir : "";
	int n = snprintf(out, size, "%s/.local/state/lunarch", home);
	if (n < 0 || (size_t)n >= size)
		return err_set(err, ERR_USAGE, "the home directory's path is too long: %s", home);
	if (*home == '/' && make_private_dirs(out, strlen(home), err) == 0)
		return 0;
	if (*home == '/' && access(home, W_OK | X_OK) == 0)
		return -1;
	return err_set(err, ERR_MISSING, "user %u has no home directory to write into: give --state-dir DIR",
	               (unsigned)geteuid());
}
