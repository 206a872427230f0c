/* A table for people: columns as wide as their widest cell, two spaces between them.
 * Not for programs, which get JSON. Used by list and history. */
#ifndef LUNARCH_TABLE_H
#define LUNARCH_TABLE_H

#include "base/buf.h"

#include <stddef.h>

#define TABLE_COLUMNS 8 /* at most */

struct table {                     /* zeroed but for titles: it has no rows */
	const char *const *titles; /* one or more, NULL at the end; borrowed */
	char **cell;               /* of all rows, one after the other */
	size_t cells;
};

/* Adds the next cell, row by row: a copy, without what could move a terminal's cursor. "": it is shown as "-". */
void table_add(struct table *t, const char *text);

void table_print(struct buf *out, const struct table *t); /* appends the titles, and a line for each whole row */
void table_fini(struct table *t);

#endif
