#include "base/module.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Every module that a build can have (runtime/modules.txt). */
static const struct {
	const char *name;
	const char *needs;   /* Debian's packages of its libraries */
	const char *package; /* of Lunarch, for Debian */
} modules[] = {
#include "modules.h"
};

#define MODULES (sizeof modules / sizeof *modules)

const char *module_name(size_t i)
{
	return i < MODULES ? modules[i].name : NULL;
}

/* A build has its modules beside the program; an installation has them in ../lib. */
bool module_file(const char *file, char *out, size_t size)
{
	static const char *const places[] = { "modules", "../lib/lunarch" };
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

	if (n < 0)
		return false;
	self[n] = '\0';
	char *slash = strrchr(self, '/');
	if (!slash)
		return false;
	*slash = '\0';
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		int len = snprintf(out, size, "%s/%s/%s", self, places[i], file);
		if (len > 0 && (size_t)len < size && access(out, F_OK) == 0)
			return true;
	}
	return false;
}

static bool module_path(const char *name, char *out, size_t size)
{
	char file[64];
	int len = snprintf(file, sizeof file, "%s.so", name);

	return len > 0 && (size_t)len < sizeof file && module_file(file, out, size);
}

bool module_installed(const char *name)
{
	char path[PATH_MAX];

	return module_path(name, path, sizeof path);
}

static size_t module_index(const char *name)
{
	size_t i = 0;

	while (i < MODULES && strcmp(modules[i].name, name) != 0)
		i++;
	return i;
}

/* dlerror(3) names the shared object that was not found, as "libpq.so.5: cannot open shared object file: ...". */
static void loading_failed(const char *name, const char *path, struct err *err)
{
	const char *why = dlerror();
	size_t i = module_index(name);

	if (!why)
		why = "unknown reason";
	if (i < MODULES && strstr(why, "cannot open shared object") && strncmp(why, path, strlen(path)) != 0)
		err_set(err, ERR_MISSING,
		        "a library that %s.so needs is missing: install it (Debian: apt-get install %s). %s", name,
		        modules[i].needs, why);
	else
		err_set(err, ERR_SYSTEM, "cannot load %s: %s", path, why);
}

static void module_missing(const char *name, struct err *err)
{
	size_t i = module_index(name);

	err_set(err, ERR_MISSING,
	        "this program was built or installed without its module %s.so (expected beside it in modules/, or in "
	        "../lib/lunarch; of Lunarch's packages for Debian it is in %s)",
	        name, i < MODULES ? modules[i].package : "lunarch");
}

const struct module *module_open(const char *name, struct err *err)
{
	char path[PATH_MAX];

	if (!module_path(name, path, sizeof path)) {
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
