/* Room base: errors, buffers, memory, the log, clocks, durations, hashes, random names, `/proc`, loadable modules; it
 * knows nothing of elections.
 *
 * An error: a code and a text in the caller's memory. Nothing is allocated, so that reporting an error cannot fail.
 * Not a log and not a chain of causes: the code that called a library turns its error into one of these.
 * Used by every room. */
#pragma once

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>

enum err_code {
	ERR_NONE,
	ERR_USAGE,   /* the caller or the user asked for something impossible */
	ERR_INVALID, /* data that was read does not have the expected form */
	ERR_FOREIGN, /* the record belongs to another program */
	ERR_MISSING, /* a file, a directory, a script is not there */
	ERR_DENIED,  /* permissions are missing */
	ERR_FULL,    /* no space, no quota, read-only */
	ERR_TIMEOUT,
	ERR_UNREACHABLE,
	ERR_CANCELLED,
	ERR_SYSTEM, /* any other failure of a system call */
};

struct err {
	enum err_code code;
	char text[1000]; /* always terminated; a longer text is cut */
};

/* Fills *e. Returns -1, for `return err_set(...)`. e may be NULL. */
int err_set(struct err *e, enum err_code code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* As err_set, for functions that take a format themselves. */
int err_vset(struct err *e, enum err_code code, const char *fmt, va_list ap) __attribute__((format(printf, 3, 0)));

/* As err_set, with ": " and the text of errno at the end, and the code that fits errno. */
int err_sys(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Puts fmt and ": " before the text of *e: the caller says what it was doing. Returns -1. */
int err_wrap(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Whether a system call failed since the kernel has no memory for it at this moment (socket(7), send(2)): what was to
 * be sent or received is still there, and the call is to be made again. error: an errno. */
static inline bool err_kernel_lacks(int error)
{
	return error == ENOMEM || error == ENOBUFS;
}
