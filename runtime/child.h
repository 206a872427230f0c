/* A child process of a scope: its own process group, its output collected, stopped when the scope is over.
 * Not os.execute and not io.popen, which Lua runs by itself; no other child than its own is ever reaped here.
 * Used by scope_end and by the Lua function exec. */
#ifndef LUNARCH_CHILD_H
#define LUNARCH_CHILD_H

#include "buf.h"
#include "err.h"
#include "scheduler.h"

#include <stdbool.h>
#include <stddef.h>

enum child_output { CHILD_COLLECT, CHILD_INHERIT, CHILD_NULL };
enum { CHILD_STDOUT, CHILD_STDERR, CHILD_OUTPUTS };

struct child_spec {                    /* borrowed for child_start only */
	char *const *argv;             /* looked up in PATH */
	const char *directory;         /* NULL: this process' own */
	char *const *env;              /* "NAME=value", added or replaced; "NAME" alone: removed; NULL-terminated; may be NULL */
	const char *input;             /* its standard input; NULL: /dev/null */
	size_t input_len;
	enum child_output output[CHILD_OUTPUTS];
	size_t output_max;             /* of each; what comes after it is read and dropped */
	double timeout_s;              /* < 0: none. Then SIGTERM, and after kill_after_s SIGKILL, to the whole group */
	double kill_after_s;
};

struct child_end {
	int wait_status;
	bool timed_out;
	bool truncated;                /* more came than output_max */
	struct buf output[CHILD_OUTPUTS];
};

/* Starts it in the scope. NULL with *err: ERR_MISSING, ERR_DENIED ... The caller owns the result until child_release. */
struct child *child_start(struct scope *scope, const struct child_spec *spec, struct err *err);

/* Done when the child has ended and its output is read. Leaving it (the task is cancelled) stops the child. */
struct wait *child_wait(struct child *c);

/* After that: moves the result out, for child_end_fini. */
void child_take(struct child *c, struct child_end *end);
void child_end_fini(struct child_end *end);

/* The caller wants nothing more of it; it is freed now, or when it has ended. */
void child_release(struct child *c);

/* SIGTERM to its group now, SIGKILL after kill_after_s. A second call can only shorten that. */
void child_stop(struct child *c, double kill_after_s);

struct child *child_next(const struct child *c); /* of the same scope */

#endif
