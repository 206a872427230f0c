/* What can be said about a script without running it: names that nobody defines, calls that hold everything up.
 * Not its elections (script_probe.h), for which its main chunk has to run.
 * Used by the command check. */
#ifndef LUNARCH_INSPECT_H
#define LUNARCH_INSPECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* From inside the call. problem: it fails when it gets there; else it is worth knowing. text is borrowed. */
typedef void inspect_found(void *arg, uint32_t line, bool problem, const char *text);

/* is_text: it was given with -e. Nothing is said about a script that is no Lua: loading it says that. Runs nothing of
 * it. */
void inspect_script(const char *text, size_t len, bool is_text, inspect_found *found, void *arg);

#endif
