/* The sources: the texts of the files that one version of a script has read, in a file in memory (memfd) that outlives
 * its workers, so that each of them runs the same.
 * Not what a worker reads, and when (script/kept.h). The elector makes the file and hands it on, and never looks into
 * it: workers write it, and they run code of others.
 * Used by run/script_version.c, which makes it, and by the worker. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#define SOURCES_TEXT_MAX (16 << 20) /* bytes of one text */
#define SOURCES_MAX (64 << 20)      /* of all that are kept, with their names */
#define SOURCES_NAME_MAX 8192

/* Elector: an empty one. The descriptor, which is O_CLOEXEC; -1 with *err. */
int sources_new(struct err *err);

/* Worker: takes fd, and marks it O_CLOEXEC. NULL with *err, and fd is closed. */
struct sources *sources_open(int fd, struct err *err);
void sources_close(struct sources *s);

/* Adds the text of that name to *text, which must be empty. 1: there is one; 0: there is none; -1 with *err. */
int sources_find(const struct sources *s, const char *name, struct buf *text, struct err *err);

/* Keeps *text under that name. If another worker has kept one meanwhile, *text becomes that one: so all workers go on
 * with the same. An empty text says that there was nothing, and gives way to any other. Waits for nobody: a worker may
 * be killed or stopped at any moment of this. -1 with *err: this text or all of them are too large, or there is no
 * memory for it. */
int sources_keep(struct sources *s, const char *name, struct buf *text, struct err *err);

/* The same in place of the text of that name, whose memory is given back. Only where one worker at a time keeps this
 * name. */
int sources_replace(struct sources *s, const char *name, struct buf *text, struct err *err);
