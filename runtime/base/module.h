/* Loadable modules: code that needs a library of its own (a lock backend, a script module) is in a shared object. It is
 * opened when it is first needed, so that a process does not load libraries that it does not use.
 * Not a plugin interface: program and modules are of one build, and a module of another build is refused.
 * Used by what opens a module (lock.c, script.c, service.c, and for TLS the locks in etcd and Redis, and lua_tcp.c), by
 * each module, and by `lunarch --version`. */
#pragma once

#include "base/err.h"
#include "version.h"

#include <stdbool.h>
#include <stddef.h>

struct buf;
struct lock_ops;
struct lua_State;
struct service_ops;
struct tls_ops;

/* What a module defines, as `const struct module lunarch_module`. A module may call every function of the program. */
struct module {
	const char *build;                   /* LUNARCH_BUILD */
	const struct lock_ops *const *locks; /* NULL-terminated; NULL: none */
	/* Leaves the script module's table on the stack [-0, +1, m]; NULL: none. */
	int (*open_lua)(struct lua_State *L);
	const struct tls_ops *tls;          /* NULL: none */
	const struct service_ops *service;  /* NULL: none */
	void (*prepare)(void);              /* slow initialisation that may be done before the first use; NULL: none */
	void (*libraries)(struct buf *out); /* appends "libcurl 7.88.1" for --version */
};

/* Names the build: it changes with every change of the sources. */
#define LUNARCH_BUILD LUNARCH_VERSION

/* Opens NAME.so in the directory `modules` beside the program, or in ../lib/lunarch. It stays open: the
 * second call costs nothing. The first takes milliseconds: do not make it while a deadline is near. NULL: *err says
 * which file was expected, or which Debian package is missing. */
const struct module *module_open(const char *name, struct err *err);

/* Whether the file exists. false: this program was built or installed without it. */
bool module_installed(const char *name);

/* The path of a file, or a directory, that was installed with the modules, in the directory where they are: what the
 * tarball brings of libraries that are no modules (packaging/tarball.sh). false: there is none. */
bool module_file(const char *file, char *out, size_t size);

/* The names of the modules that a build can have, by number. NULL: there are no more. */
const char *module_name(size_t i);
