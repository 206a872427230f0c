/* The program's files in Lua (lua/), linked in: scripts/embed-lua.sh writes them as C.
 * They are not searched for at run time, so the program runs from anywhere.
 * Used by script.c, and by the commands that show or write these files. */
#ifndef LUNARCH_PRELUDE_H
#define LUNARCH_PRELUDE_H

#include <stddef.h>
#include <string.h>

struct prelude_file {
	const char *name; /* "exec": lua/api/exec.lua; "lunarch.retry": lua/lunarch/retry.lua; NULL after the last */
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
