/* The Lua state of a test file (lunarch test): its tests, its assertions, its stubs; TAP on stdout.
 * Not the world in which the scripts run, which is simulated (sim.h).
 * Used by the command test. */
#ifndef LUNARCH_TESTING_H
#define LUNARCH_TESTING_H

#include "base/err.h"
#include "base/log.h"

#include <lua.h>
#include <stdbool.h>
#include <stdint.h>

struct testing;

struct testing_node { /* what a node's natives need to ask the test's stubs; borrowed by script_spec */
	struct testing *testing;
	const char *name;
};

struct testing_machine {
	const char *name;
	const char *const *args;      /* the script's; NULL-terminated */
	const char *const *arguments; /* as behind `lunarch run`: "run", then options; NULL-terminated */
	const char *const *env;       /* "NAME=VALUE", or "NAME" for a variable that it has not; NULL-terminated */
};

struct testing_setup {
	const char *script; /* path */
	const struct testing_machine *machines;
	uint32_t count;
	uint32_t seed;
	struct testing *testing; /* for testing_stub and testing_event */
};

struct sim;

/* sim_fault of sim.h, or what takes its place. */
typedef int testing_fault(struct sim *s, const char *what, const char *node, double number, struct err *err);

/* Runs one file's tests. first: the number of its first. Returns how many failed; *count is how many there were. -1:
 * the file cannot be run, with *err. */
int testing_run(const char *path, testing_fault *fault, int first, int *count, struct err *err);

/* A line of a node's log. node NULL: nobody's. */
void testing_event(struct testing *t, double at, const char *node, enum log_level level, const char *event,
                   const char *text, const struct log_about *about);

/* For script_spec: stub(kind, request) -> reply, or nil and why. [-2, +(1|2), e]; arg: struct testing_node */
int testing_stub(lua_State *node, void *arg);

#endif
