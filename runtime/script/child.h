/* A child process of a scope: its own process group, its output collected, stopped when the scope is over.
 * Not os.execute and not io.popen, which Lua runs by itself; no other child than its own is ever reaped here.
 * Used by the Lua function exec. */
#ifndef LUNARCH_CHILD_H
#define LUNARCH_CHILD_H

#include "base/buf.h"
#include "base/err.h"
#include "script/child_spawn.h"
#include "script/scheduler.h"

#include <stdbool.h>
#include <stddef.h>

struct child_end {
	int wait_status;
	bool timed_out;
	bool truncated; /* more came than output_max */
	double elapsed_s, user_s, system_s;
	struct buf output[CHILD_OUTPUTS]; /* what no child_took has taken */
};

/* Starts it in the scope. NULL with *err: ERR_MISSING, ERR_DENIED ... The caller owns the result until child_release.
 */
struct child *child_start(struct scope *scope, const struct child_spec *spec, struct err *err);

pid_t child_pid(const struct child *c);
bool child_ended(const struct child *c); /* and its output is read, as far as it is wanted */

/* One line of what was collected of an output and not yet taken, without its "\n"; a line longer than output_max comes
 * in pieces. Borrowed until the loop runs or child_took. false: not yet, or, with *end, never again. */
struct child_line {
	const char *text;
	size_t len;
	size_t took; /* to be given to child_took */
	bool end;
};
bool child_line(struct child *c, int output, struct child_line *line);
void child_took(struct child *c, int output, size_t took);

/* From now on output beyond output_max is dropped rather than held, so that the child can end. */
void child_drop(struct child *c, int output);

/* After the end: moves the result out, for child_end_fini. */
void child_take(struct child *c, struct child_end *end);
void child_end_fini(struct child_end *end);

/* The caller wants nothing more of it; it is freed now, or when it has ended. changed is not called any more. */
void child_release(struct child *c);

/* SIGTERM to its group now, SIGKILL after the kill_after_s of its spec, or after that many seconds. A second call can
 * only shorten that. */
void child_stop(struct child *c, double kill_after_s);
void child_stop_gently(struct child *c);
bool child_signal(struct child *c, int signal); /* to its group; false: it has ended */

#endif
