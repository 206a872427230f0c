/* The names of the records in a directory: `list` of the file lock.
 * Not a reader of records. A call may hang in a file system that does not answer, so it runs on a thread.
 * Used by lock_file.c. */
#pragma once

#include "locks/file/file_op.h"
#include "locks/lock_listing.h"

/* o->path: of a lock that lock_open_prefix opened. Leaves o->outcome and o->err. No hidden files, and no names that a
 * URL cannot have. */
void file_list(struct file_op *o, struct lock_listing *out);
