/* Allocation that does not fail: without memory the process ends, and the guard then ends the term in time.
 * Not for sizes that come from outside: those are bounded before they reach malloc.
 * Used everywhere but in the guard, which has no heap. */
#pragma once

#include <stddef.h>

void *mem_take(size_t size);               /* malloc; free() it */
void *mem_zero(size_t size);               /* calloc */
void *mem_resize(void *p, size_t size);    /* realloc */
char *mem_dup(const char *s);              /* strdup; NULL gives NULL */
char *mem_dupn(const char *s, size_t len); /* len bytes and a terminator */
char *mem_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Says that there is no memory, and ends the process: for what a library could not allocate, and we cannot do
 * without. */
void mem_end(void) __attribute__((noreturn));

/* Copies `count` strings into one block of memory: to[0] is its beginning, free that. */
void mem_pack(size_t count, const char *const *from, char **to);

/* Frees *slot and puts a copy of s there. s may be NULL or *slot itself. */
void mem_replace(char **slot, const char *s);
