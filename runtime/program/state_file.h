/* The state file (--state-file): where each election of this process stands, as a file of JSON for programs that cannot
 * ask. It is replaced whole; a reader finds a whole one at any time. Not part of the election, which never waits for it
 * and does not need it; not a place to read anything back from. Used by program.c; shown by admin.c and `ctl why`. */
#pragma once

#include "base/err.h"
#include "program/standing.h"

struct changes;
struct ev_loop;
struct state_file;

/* Writes the first one at once (it may block). Then writes, on a thread, whenever an election has changed. While one
 * leads here, it also writes when half of the time for which the file says so is over. There is one write at a time,
 * with the newest state. path, source, changes: borrowed.
 *
 * NULL with *err: no file can be made there (ERR_USAGE or as err_sys has it); or path names what this program did
 * not write, or what another process keeps writing. A full disk is no error, but a line in the log: it may have room
 * later. */
struct state_file *state_file_new(struct ev_loop *loop, const char *path, const struct standing_source *source,
                                  struct changes *changes, struct err *err);

/* At the end of the process. Writes that it ends; gives up after 2 s, which the log says. NULL: does nothing. */
void state_file_free(struct state_file *f);

/* Appends a line if the last write has failed: since when, and why. NULL: nothing. */
void state_file_tell(const struct state_file *f, struct buf *out);

/* Appends its metrics. NULL: nothing. */
void state_file_metrics(const struct state_file *f, struct buf *out);
