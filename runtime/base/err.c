#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static enum err_code code_of_errno(int error)
{
	switch (error) {
	case EACCES:
	case EPERM:
		return ERR_DENIED;
	case ENOENT:
		return ERR_MISSING;
	case ENOSPC:
	case EDQUOT:
	case EROFS:
	case EFBIG:
		return ERR_FULL;
	case ETIMEDOUT:
		return ERR_TIMEOUT;
	default:
		return ERR_SYSTEM;
	}
}

int err_vset(struct err *e, enum err_code code, const char *fmt, va_list ap)
{
	if (!e)
		return -1;
	e->code = code;
	vsnprintf(e->text, sizeof e->text, fmt, ap);
	return -1;
}

int err_set(struct err *e, enum err_code code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	err_vset(e, code, fmt, ap);
	va_end(ap);
	return -1;
}

int err_sys(struct err *e, const char *fmt, ...)
{
	int error = errno;
	va_list ap;

	if (!e)
		return -1;
	e->code = code_of_errno(error);
	va_start(ap, fmt);
	int n = vsnprintf(e->text, sizeof e->text, fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < sizeof e->text)
		snprintf(e->text + n, sizeof e->text - (size_t)n, ": %s", strerror(error));
	errno = error;
	return -1;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
	va_list ap;

	if (!e)
		return -1;
	struct err inner = *e;
	va_start(ap, fmt);
	int n = vsnprintf(e->text, sizeof e->text, fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < sizeof e->text)
		snprintf(e->text + n, sizeof e->text - (size_t)n, ": %s", inner.text);
	return -1;
}
