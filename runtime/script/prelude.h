/* The program's files in Lua (lua/), linked in: scripts/embed-lua.sh writes them as C.
 * They are not searched for at run time, so the program runs from anywhere.
 * Used by script.c, by the commands that show or write these files, and by what compiles them. */
#pragma once

#include <stddef.h>
#include <string.h>

struct prelude_file {
	/* "exec": lua/api/exec.lua; "lunarch.retry": lua/lunarch/retry.lua; "locks/s3": lua/locks/s3.lua; NULL after
	 * the last */
	const char *name;
	const char *text; /* bytecode, if Lua is linked in and the file is of lua/; scripts/compile-lua.c writes it */
	size_t len;
};
extern const struct prelude_file prelude_files[];

#define PRELUDE_LIBRARY "lunarch." /* the names of the library's modules (lua/lunarch/) begin with it */

/* What messages call the file, as a format for lua_pushfstring. */
static inline const char *prelude_chunk(const char *name)
{
	return strncmp(name, PRELUDE_LIBRARY, strlen(PRELUDE_LIBRARY)) == 0 ? "=%s" : "=lunarch:%s";
}

static inline const struct prelude_file *prelude_find(const char *name)
{
	for (const struct prelude_file *f = prelude_files; f->name; f++)
		if (strcmp(f->name, name) == 0)
			return f;
	return NULL;
}
