/* A child process of a scope: its own process group, its output collected, stopped when the scope is over.
 * Not for os.execute and io.popen, which are Lua's own: this file reaps only the children that it started.
 * Used by the Lua function exec. */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "script/child_spawn.h"
#include "script/scheduler.h"

#include <stdbool.h>
#include <stddef.h>

struct child_end {
	int wait_status;
	bool timed_out;
	bool truncated; /* it wrote more than output_max */
	double elapsed_s, user_s, system_s;
	struct buf output[CHILD_OUTPUTS]; /* without what child_took has removed */
};

/* Starts a child in the scope. NULL with *err: ERR_MISSING, ERR_DENIED ... The caller owns the result until
 * child_release. */
struct child *child_start(struct scope *scope, const struct child_spec *spec, struct err *err);

pid_t child_pid(const struct child *c);
bool child_ended(const struct child *c); /* and its output has been read */

/* The first line of the collected output that has not been taken, without its "\n". A line longer than output_max comes
 * in pieces. Borrowed until the loop runs or child_took. false: there is no whole line yet; with `end`, there will be
 * none. */
struct child_line {
	const char *text;
	size_t len;
	size_t took; /* pass it to child_took */
	bool end;
};
bool child_line(struct child *c, int output, struct child_line *line);
void child_took(struct child *c, int output, size_t took);

/* From now on output beyond output_max is dropped. Else the child would wait for a reader, and not end. */
void child_drop(struct child *c, int output);

/* Moves the result out, once the child has ended; child_end_fini frees it. */
void child_take(struct child *c, struct child_end *end);
void child_end_fini(struct child_end *end);

/* The caller does not need the child any more. It is freed now or after its end; `changed` is not called any more. */
void child_release(struct child *c);

/* Sends SIGTERM to its group now, and SIGKILL after the time of its spec. It does nothing if the child is being stopped
 * already: the end of its scope gives it more or less time than its spec does. */
void child_stop_gently(struct child *c);
bool child_signal(struct child *c, int signal); /* to its group; false: it has ended */
