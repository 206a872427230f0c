/* Starts a program: descriptors 0 to 2, environment, directory, user, and a process group of its own.
 * It neither waits for the program nor kills it: child.c does.
 * Used by child.c. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum child_output {
	CHILD_COLLECT, /* a pipe to this process */
	CHILD_INHERIT,
	CHILD_NULL,
	CHILD_FILE,  /* file[i], created with mode 0666 & ~umask; emptied first unless append[i] */
	CHILD_PIPE,  /* a pipe whose other end goes to *piped: standard output only */
	CHILD_MERGE, /* the same as standard output's: standard error only */
};
enum { CHILD_STDOUT, CHILD_STDERR, CHILD_OUTPUTS };

struct child_spec {            /* borrowed for the call only */
	char *const *argv;     /* looked up in PATH */
	const char *directory; /* NULL: this process' own */
	const char *user;      /* a name or a number; NULL: as this process. Its groups, HOME, USER and LOGNAME too */
	char *const *env;  /* "NAME=value", added or replaced; "NAME" alone: removed; NULL-terminated; may be NULL */
	const char *input; /* its standard input; NULL: input_file */
	size_t input_len;
	const char *input_file; /* NULL: input_fd */
	int input_fd;           /* borrowed; < 0: /dev/null */
	enum child_output output[CHILD_OUTPUTS];
	const char *file[CHILD_OUTPUTS];
	bool append[CHILD_OUTPUTS];
	int *piped; /* CHILD_PIPE: the end to read from, which the caller owns */

	/* Used by child_start only. */
	size_t output_max; /* bytes kept of each output */
	bool both_ends;    /* of longer output the beginning and the end are kept, and a line between the two */
	bool hold;         /* more output stays in the pipe until child_took; else it is dropped */
	/* it has not ended as long as anybody holds its collected output open: until then it is not reaped, and who
	 * holds it gets the signals of its group, too */
	bool until_closed;
	double timeout_s; /* after it, SIGTERM to the group, and SIGKILL kill_after_s later; < 0: none */
	double kill_after_s;
	void (*changed)(void *arg); /* called from the loop: more output has come, or the end. May be NULL */
	void *arg;
};

/* ours: the ends from which collected output is read, O_NONBLOCK; -1: not collected. -1 with *err (ERR_MISSING,
 * ERR_DENIED
 * ...): nothing was started, and no descriptor is left open. */
int child_spawn(const struct child_spec *spec, pid_t *pid, int ours[CHILD_OUTPUTS], struct err *err);
