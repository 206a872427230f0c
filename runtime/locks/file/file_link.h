/* Compare-and-swap of a record by link(2): for directories that several machines share. The record's path is a
 * directory, and each version of the record a file in it, whose name is the version's number; the highest one counts.
 * No lock of the kernel or of the server's: link(2) makes a name that is not there, or changes nothing, so a write that
 * comes late, or twice, meets the name that somebody else's has taken meanwhile. Used by lock_file.c. */
#pragma once

#include "locks/file/file_op.h"

#define FILE_LINK_DIGITS 16   /* of a version's name, with zeros in front */
#define FILE_LINK_KEPT 8      /* versions that stay, with the newest */
#define FILE_LINK_YOUNG_S 300 /* versions that were made less than this before the newest stay, too */
#define FILE_LINK_MOST 4096   /* no more versions stay than this: a clock may have been set back */

void file_link_read(struct file_op *o);
void file_link_write(struct file_op *o);
