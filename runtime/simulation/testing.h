/* The Lua state of a test file (lunarch test): its tests, its assertions, its stubs; TAP on stdout.
 * Not the world in which the scripts run: that is simulated (sim.h) and reached through testing_ops.
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

/* What a test may do to a world. Texts are borrowed for the call, or until time goes on. -1 and NULL come with *err.
 * url: what `election` has returned. */
struct testing_ops {
	void *(*open)(const struct testing_setup *setup, struct err *err);
	void (*close)(void *world);
	int (*run)(void *world, double until, bool one,
	           struct err *err); /* one: the next event alone, if it is not later */
	int (*fault)(void *world, const char *what, const char *node, double number, struct err *err);
	double (*now)(void *world);
	/* The lock's URL of the election with this name or lock; NULL means the first one. "": no script has said yet
	 * which elections it has. */
	const char *(*election)(void *world, const char *name, struct err *err);
	const char *(*leader)(void *world, const char *url);          /* node; NULL, without an error: nobody leads */
	int (*leads)(void *world, const char *node, struct err *err); /* 1, 0, or -1: there is no such node */
	const char *(*next)(void *world, const char *url);            /* as leader: who comes next */
	/* Begins what `lunarch ctl handover` does. to: node; NULL: whoever comes next. -1: it makes no sense. */
	int (*hand_over)(void *world, const char *url, const char *to, double timeout, struct err *err);
	const char *(*not_handed_over)(void *world); /* why that does not happen; NULL: nothing says so */
	/* The sum of this metric of the scripts' own over all nodes, or of one; labels as in its name on /metrics.
	 * false: nobody has set it. */
	bool (*metric)(void *world, const char *name, const char *labels, const char *node, double *value);
	char *(*record)(void *world, const char *url); /* JSON; the caller frees. NULL, without an error: absent */
	bool (*edit_checkpoint)(void *world, const char *url, const char *json); /* false: there is no record */
};

/* Runs one file's tests. first: the number of its first. Returns how many failed; *count is how many there were. -1:
 * the file cannot be run, with *err. */
int testing_run(const char *path, const struct testing_ops *ops, int first, int *count, struct err *err);

/* A line of a node's log. node NULL: nobody's. */
void testing_event(struct testing *t, double at, const char *node, enum log_level level, const char *event,
                   const char *text, const struct log_about *about);

/* For script_spec: stub(kind, request) -> reply, or nil and why. [-2, +(1|2), e]; arg: struct testing_node */
int testing_stub(lua_State *node, void *arg);

#endif
