/* The path of a file lock's record, from what a user writes.
 * No URL library: "file:PATH", a path, or a name; nothing is decoded.
 * Used by the file lock. */
#pragma once

#include "base/err.h"

/* text: what follows "file:", or all of it: a path, or a plain NAME in the state directory (lock_state_dir).
 * state_dir: as in struct lock_env.
 * Links are followed, so that what gets replaced is their target and all who use it agree on its kernel lock.
 * The file need not be there, its directory must. malloc'd; NULL with *err. */
char *file_path(const char *text, const char *state_dir, struct err *err);
