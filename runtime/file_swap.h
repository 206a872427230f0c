/* The blocking half of the file lock: read a record file, or replace it if it is still what was read last.
 * No loop, no timers, no heap: a call may hang in a file system that does not answer, so it can run on any thread.
 * Used by lock_file.c. */
#ifndef LUNARCH_FILE_SWAP_H
#define LUNARCH_FILE_SWAP_H

#include "clock.h"
#include "file_temp.h"
#include "lock.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#define FILE_SWAP_SMALL 4096 /* nearly every record; a larger one costs a mapping */

struct file_swap {
	/* What to do. path, text: borrowed until it is done. */
	const char *path;      /* absolute, resolved: it must not be a link any more */
	const char *text;      /* write: the new content; NULL: remove the record, and what was made beside it */
	struct version expected;
	bool durable;          /* write: wait until its name, too, would survive a power cut */
	bool in_memory;        /* nothing of this file system survives one: never sync */
	bool local;            /* no other host has the directory: inode numbers mean something */
	bool may_wait;         /* for the kernel lock */
	bool clean;            /* write: remove what dead processes left in the directory first */
	struct file_temp_tag tag;
	char temp[NAME_MAX + 1]; /* write: a name nobody else uses */
	struct instant by;     /* give up then, if the file system lets us */
	atomic_bool cancelled; /* give up now; may be set from another thread */

	/* What came of it. */
	enum lock_outcome outcome;
	struct version version;
	struct err err;
	size_t len;            /* read: of the content */

	/* Private. */
	bool temp_made;
	int temp_fd; /* while temp_made: open as long as only we have the file system: closed when it is about to be renamed; else -1 */
	ino_t inode; /* of the temporary file, and then of the record */
	char *big;
	char small[FILE_SWAP_SMALL];
};

void file_swap_read(struct file_swap *s);

/* The content after a read with LOCK_OK, terminated; owned by s. */
const char *file_swap_content(const struct file_swap *s);

/* false: the kernel lock is held by another and !may_wait; call again with may_wait, on a thread. */
bool file_swap_write(struct file_swap *s);

/* Frees the content. */
void file_swap_fini(struct file_swap *s);

#endif
