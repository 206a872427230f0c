/* Names that are too long for their place, cut so that they still differ: two identities of one host have the host's
 * name and a process's in common, and a number at their end. Not a table (table.h).
 * Used by who draws leaders (history_text.c, board_text.c). */
#ifndef LUNARCH_SHORT_NAME_H
#define LUNARCH_SHORT_NAME_H

#include "base/buf.h"

#include <stddef.h>

/* Appends the name in at most so many characters (10 or more), without what could move a terminal's cursor. One that is
 * too long keeps its beginning and the part by which it differs from each of the others, with ".." between. The others
 * may contain the name itself. Returns how many characters were appended. */
int short_name_put(struct buf *out, const char *name, const char *const *others, size_t count, int most);

#endif
