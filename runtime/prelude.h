/* The Lua half of the program (lua/), linked in: scripts/embed-lua.sh writes it as C.
 * Not found at run time on any path: the binary runs from anywhere.
 * Used by script.c, and by the commands that show or write what it carries. */
#ifndef LUNARCH_PRELUDE_H
#define LUNARCH_PRELUDE_H

#include <stddef.h>

struct prelude_file {
	const char *name; /* "exec" for lua/exec.lua, "lunarch.retry" for lua/lunarch/retry.lua; NULL after the last */
	const char *text;
	size_t len;
};
extern const struct prelude_file prelude_files[];

#endif
