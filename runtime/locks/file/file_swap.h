/* Compare-and-swap of a record file by rename(2), under a lock of the kernel: for file systems that this machine has
 * alone. Not for shared ones, whose server may take that lock away without a word: file_link.h. Used by lock_file.c. */
#pragma once

#include "locks/file/file_op.h"

void file_swap_read(struct file_op *s);

/* false: the kernel lock is held by another and !may_wait; call again with may_wait, on a thread. */
bool file_swap_write(struct file_op *s);

/* After file_swap_write was false, instead of the second call: removes the temporary file that the first one has made.
 * Such a file is in memory alone, so this does not block. Nothing if there is none. */
void file_swap_drop(struct file_op *s);
