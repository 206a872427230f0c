/* What went wrong, in a fixed place: no allocation, so that reporting an error cannot fail.
 * Not a log and not a stack of causes: it is translated once, at the layer that called the library.
 * Used by every room. */
#ifndef LUNARCH_ERR_H
#define LUNARCH_ERR_H

#include <stdarg.h>

enum err_code {
	ERR_NONE,
	ERR_USAGE,   /* the caller or the user asked for something that cannot be */
	ERR_INVALID, /* data we read does not have the form it should have */
	ERR_FOREIGN, /* the record belongs to another program */
	ERR_MISSING, /* a file, a directory, a script is not there */
	ERR_DENIED,  /* rights */
	ERR_FULL,    /* no space, no quota, read-only */
	ERR_TIMEOUT,
	ERR_UNREACHABLE,
	ERR_CANCELLED,
	ERR_SYSTEM, /* any other failure of a system call */
};

struct err {
	enum err_code code;
	char text[1000]; /* always terminated; cut, never overrun */
};

/* Fills *e and returns -1, so that `return err_set(...)` reads as the failure it is. e may be NULL. */
int err_set(struct err *e, enum err_code code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* As err_set, for functions that take a format themselves. */
int err_vset(struct err *e, enum err_code code, const char *fmt, va_list ap) __attribute__((format(printf, 3, 0)));

/* As err_set, with ": " and the text of errno behind it, and the code that errno means. */
int err_sys(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Puts "fmt: " before the text that is there already: the caller says what it was attempting. Returns -1. */
int err_wrap(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
