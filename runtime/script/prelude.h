/* The Lua half of the program (lua/), linked in: scripts/embed-lua.sh writes it as C.
 * Not found at run time on any path: the binary runs from anywhere.
 * Used by script.c, and by the commands that show or write what it carries. */
#ifndef LUNARCH_PRELUDE_H
#define LUNARCH_PRELUDE_H

#include <stddef.h>
#include <string.h>

struct prelude_file {
	const char
		*name; /* "exec" for lua/api/exec.lua, "lunarch.retry" for lua/lunarch/retry.lua; NULL after the last */
	const char *text;
	size_t len;
};
extern const struct prelude_file prelude_files[];

static inline const struct prelude_file *prelude_find(const char *name)
{
	for (const struct prelude_file *f = prelude_files; f->name; f++)
		if (strcmp(f->name, name) == 0)
			return f;
	return NULL;
}

#endif
