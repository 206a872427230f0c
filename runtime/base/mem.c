#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void mem_end(void)
{
	static const char text[] = "lunarch: out of memory\n";

	if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
		abort();
	abort();
}

static void *checked(void *p)
{
	if (!p)
		mem_end();
	return p;
}

void *mem_take(size_t size)
{
	return checked(malloc(size ? size : 1));
}

void *mem_zero(size_t size)
{
	return checked(calloc(1, size ? size : 1));
}

void *mem_resize(void *p, size_t size)
{
	return checked(realloc(p, size ? size : 1));
}

char *mem_dup(const char *s)
{
	return s ? checked(strdup(s)) : NULL;
}

char *mem_dupn(const char *s, size_t len)
{
	char *copy = mem_zero(len + 1);

	memcpy(copy, s, len);
	return copy;
}

char *mem_printf(const char *fmt, ...)
{
	char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	int n = vasprintf(&text, fmt, ap);
	va_end(ap);
	return checked(n < 0 ? NULL : text);
}

void mem_pack(size_t count, const char *const *from, char **to)
{
	size_t size = 0;

	for (size_t i = 0; i < count; i++)
		size += strlen(from[i]) + 1;
	char *at = mem_zero(size + !size);
	for (size_t i = 0; i < count; i++) {
		to[i] = strcpy(at, from[i]);
		at += strlen(at) + 1;
	}
}

void mem_replace(char **slot, const char *s)
{
	char *copy = mem_dup(s);

	free(*slot);
	*slot = copy;
}
