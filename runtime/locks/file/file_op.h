/* Room locks/file: a record in a file, on one machine or in a directory that several share.
 *
 * One operation on a record file, and the steps that every way of replacing one is made of: open the directory, open
 * and read a record, make the file with the new one. Not a compare-and-swap: file_swap.c and file_link.c are. No loop,
 * no timers, no heap: a call may hang in a file system that does not answer, so it can run on any thread. Used by
 * file_swap.c, file_link.c and lock_file.c. */
#pragma once

#include "base/clock.h"
#include "locks/file/file_temp.h"
#include "locks/lock.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

#define FILE_OP_SMALL 4096 /* nearly every record; a larger one costs a mapping */

struct file_op {
	/* What to do. path, marker, spelt, text: borrowed until it is done. */
	const char *path; /* absolute, resolved: it must not be a link any more */
	/* A file that must exist, else nothing is done; relative to the record's directory. NULL: none. */
	const char *marker;
	/* write: the lock's name with its options, which file_op_keep_out makes a directory. NULL: there is none, or it
	 * is made already. */
	const char *spelt;
	const char *text; /* write: the new content; NULL: remove the record, and what was made beside it */
	struct version expected;
	bool durable;   /* write: wait until its name, too, would survive a power cut */
	bool in_memory; /* the file system is in memory: nothing survives a power cut, so nothing is synced */
	bool local;     /* no other host has the directory, so inode numbers identify files */
	bool may_wait;  /* for the kernel lock */
	bool shared;    /* other machines may have the file system */
	bool clean;     /* write: remove what dead processes left in the directory first */
	struct file_temp_tag tag;
	char temp[NAME_MAX + 1]; /* write: a name nobody else uses */
	struct instant by;       /* give up then, if the file system lets us */
	atomic_bool cancelled;   /* give up now; may be set from another thread */

	/* What came of it. */
	enum lock_outcome outcome;
	struct version version;
	struct err err;
	size_t len; /* read: of the content */

	/* Private. */
	uint64_t hash; /* of the content that was read */
	bool temp_made;
	/* While temp_made: open as long as only we have the file system, closed when it is about to be renamed; else -1. */
	int temp_fd;
	ino_t inode; /* of the temporary file, and then of the record */
	char *big;
	char small[FILE_OP_SMALL];
};

/* Where a record is, open for the length of one operation: should the directory be moved or replaced meanwhile, all
 * steps still happen in the same one. */
struct file_place {
	int dir;
	const char *name;
	struct stat dir_stat;
};

/* The content after a read with LOCK_OK, terminated; owned by the operation. */
const char *file_op_content(const struct file_op *o);

/* Frees the content, and closes the temporary file, should it be open still. */
void file_op_fini(struct file_op *o);

/* Why the plain lock is refused in dir, whose file system is of type f_type (statfs(2)). 0: it is not. */
int file_op_check_type(const char *dir, uint32_t f_type, struct err *err);

/* 0; -1 with *err: the marker is not there. dir: open, or AT_FDCWD for a marker that is absolute. path: the
 * record's. */
int file_op_check_marker(int dir, const char *marker, const char *path, struct err *err);

/* ---- the steps; each that fails leaves outcome and err ---- */

bool file_op_too_late(const struct file_op *o);
void file_op_fail(struct file_op *o);                     /* the outcome that o->err means: surely not applied */
int file_op_foreign(struct file_op *o, const char *what); /* -1 */

/* Right before what replaces the record: a process that was stopped must not write after its deadline. -1: it is too late,
 * and nothing was changed. */
int file_op_in_time(struct file_op *o);

/* Opens the directory that holds o->path, and checks its file system and the marker. 0, -1. */
int file_op_open_place(struct file_op *o, struct file_place *p);

/* The record at p, open and found to be a plausible file; -1 with the outcome, LOCK_ABSENT included. */
int file_op_open_record(struct file_op *o, const struct file_place *p, struct stat *st);
void file_op_read_content(struct file_op *o, int fd, const struct stat *st); /* LOCK_OK: len, hash, content */

/* The hash of the file's content, which is not kept: of `size` bytes at most. *len: how many there were. A failed read
 * is in the outcome. */
uint64_t file_op_hash_file(struct file_op *o, int fd, size_t size, size_t *len);

/* Writes n in hexadecimal, at least `digits` of them; where they end. */
char *file_op_put_hex(char *out, uint64_t n, int digits);

void file_op_clean(struct file_op *o, const struct file_place *p);

/* Keeps versions of Lunarch out that know no options: they take "?shared=link" for a part of the name, and would elect
 * a leader of their own by a record of that name. So a directory of that name is made, which they never overwrite. 0;
 * -1: there is such a record already. p: where the lock's own record is. */
int file_op_keep_out(struct file_op *o, const struct file_place *p);

/* The file with the new record, written and synced, with the rights of the one at p, if there is one. 0, -1: none
 * stays. */
int file_op_make_temp(struct file_op *o, const struct file_place *p);
int file_op_close_temp(struct file_op *o);
void file_op_drop_temp(struct file_op *o, const struct file_place *p); /* changes no outcome */

/* Syncs the directory, so that the names in it survive a power cut. If that fails the outcome is LOCK_UNKNOWN. */
void file_op_sync_dir(struct file_op *o, const struct file_place *p);

/* Owner (-1: ours) and rights of a file beside the record that all need who may write the record. */
uid_t file_op_owner(const struct stat *dir);
mode_t file_op_mode(const struct stat *dir);
