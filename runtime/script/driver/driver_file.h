/* Reading a lock file that is not built in: it runs with the user's rights and has the lock's password, so nobody else
 * may write it. Not running it, and not looking for it: the elector has found its path.
 * Used by the driver. */
#pragma once

#include "base/err.h"

struct buf;

#define DRIVER_FILE_MAX (4 * 1024 * 1024) /* bytes of a lock file */

/* Adds the file's text. -1 with *err: it is not there, is no regular file, belongs to neither root nor this user, or
 * somebody else may write it. */
int driver_file_read(const char *path, struct buf *text, struct err *err);
