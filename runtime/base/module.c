#include "base/module.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The shared libraries that modules need, and the package of each: for the error when one is missing. */
static const struct {
	const char *module, *library, *package;
} libraries[] = {
	{ "etcd", "libnghttp2", "libnghttp2-14" },
	{ "etcd", "libprotobuf-c", "libprotobuf-c1" },
	{ "hash", "libcrypto", "libssl3" },
	{ "kube", "libcurl", "libcurl4" },
	{ "kube", "libyaml", "libyaml-0-2" },
	{ "http", "libcurl", "libcurl4" },
	{ "mysql", "libmariadb", "libmariadb3" },
	{ "mysql", "libcrypto", "libssl3" },
	{ "mysql", "libssl", "libssl3" },
	{ "redis", "libhiredis_ssl", "libhiredis0.14" },
	{ "redis", "libhiredis", "libhiredis0.14" },
	{ "postgres", "libpq", "libpq5" },
	{ "tls", "libssl", "libssl3" },
	{ "tls", "libcrypto", "libssl3" },
	{ "zookeeper", "libzookeeper", "libzookeeper-st2" },
};

/* Debian's package of each module (packaging/debian/control). */
static const struct {
	const char *module, *package;
} packages[] = {
	{ "etcd", "lunarch-etcd" },       { "hash", "lunarch-http" },   { "http", "lunarch-http" },
	{ "kube", "lunarch-kubernetes" }, { "mysql", "lunarch-mysql" }, { "postgres", "lunarch-postgres" },
	{ "redis", "lunarch-redis" },     { "tls", "lunarch-http" },    { "zookeeper", "lunarch-zookeeper" },
};

const char *const module_names[] = { "etcd",     "hash",  "http", "kube",      "mysql",
	                             "postgres", "redis", "tls",  "zookeeper", NULL };

/* A build has its modules beside the program; an installation has them in ../lib. */
static int module_path(const char *name, char *out, size_t size)
{
	static const char *const places[] = { "modules", "../lib/lunarch" };
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

	if (n < 0)
		return -1;
	self[n] = '\0';
	char *slash = strrchr(self, '/');
	if (!slash)
		return -1;
	*slash = '\0';
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		int len = snprintf(out, size, "%s/%s/%s.so", self, places[i], name);
		if (len > 0 && (size_t)len < size && access(out, F_OK) == 0)
			return 0;
	}
	return -1;
}

bool module_installed(const char *name)
{
	char path[PATH_MAX];

	return module_path(name, path, sizeof path) == 0;
}

/* dlerror(3) names the shared object that was not found, as "libpq.so.5: cannot open shared object file: ...". */
static int loading_failed(const char *name, const char *path, struct err *err)
{
	const char *why = dlerror();

	if (!why)
		why = "unknown reason";
	for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
		if (strcmp(libraries[i].module, name) == 0 &&
		    strncmp(why, libraries[i].library, strlen(libraries[i].library)) == 0)
			return err_set(err, ERR_MISSING,
			               "the library %s is missing: install it (Debian: apt-get install %s). %s",
			               libraries[i].library, libraries[i].package, why);
	return err_set(err, ERR_SYSTEM, "cannot load %s: %s", path, why);
}

static void module_missing(const char *name, struct err *err)
{
	const char *package = "lunarch";

	for (size_t i = 0; i < sizeof packages / sizeof *packages; i++)
		if (strcmp(packages[i].module, name) == 0)
			package = packages[i].package;
	err_set(err, ERR_MISSING,
	        "this program was built or installed without its module %s.so (expected beside it in modules/, or in "
	        "../lib/lunarch; of Lunarch's packages for Debian it is in %s)",
	        name, package);
}

const struct module *module_open(const char *name, struct err *err)
{
	char path[PATH_MAX];

	if (module_path(name, path, sizeof path) < 0) {
		module_missing(name, err);
		return NULL;
	}
	/* The module's own references are bound now (-z now, Makefile). Its libraries have thousands, most of them for
	 * nothing that is used here: these are bound when they are needed, unless the library says otherwise. */
	void *object = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	if (!object) {
		loading_failed(name, path, err);
		return NULL;
	}
	const struct module *m = dlsym(object, "lunarch_module");
	if (!m || strcmp(m->build, LUNARCH_BUILD) != 0) {
		err_set(err, ERR_SYSTEM,
		        "%s is of another build (%s) than this program (%s): if it was upgraded while this program "
		        "ran, start this program again; else install both together",
		        path, m ? m->build : "unknown", LUNARCH_BUILD);
		dlclose(object);
		return NULL;
	}
	// cppcheck-suppress resourceLeak  ; it stays open for the life of the process
	return m;
}
