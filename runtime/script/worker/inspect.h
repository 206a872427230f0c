/* Finds mistakes in a script without running it: names that nobody defines, calls that block the whole worker.
 * It does not find the script's elections (script_probe.h), for which the main chunk has to run.
 * Used by `lunarch check`. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Called from inside inspect_script. problem: the script fails at that line; else it is a warning. text is borrowed. */
typedef void inspect_found(void *arg, uint32_t line, bool problem, const char *text);

/* is_text: the script was given with -e. Nothing is found in a script that is not Lua: loading it reports that. Runs
 * nothing of the script. */
void inspect_script(const char *text, size_t len, bool is_text, bool is_lock, inspect_found *found, void *arg);
