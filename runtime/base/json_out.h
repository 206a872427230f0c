/* Writes JSON into a buffer, member by member, with the commas between them: all JSON that C prints but the record's.
 * Not a document in memory (that is jansson's), and no check that what is opened is closed.
 * Used by what answers programs: status, ctl, the log. */
#pragma once

#include "base/buf.h"

#include <stdint.h>

/* name: of the member; NULL: it is a value of an array, or the whole, or json_out_name has named it. Behind what else is
 * in the buffer a whole begins by buf_adds, unless that ends in a newline. */
void json_out_text(struct buf *b, const char *name, const char *value); /* NULL is "" */
void json_out_int(struct buf *b, const char *name, int64_t value);
void json_out_bool(struct buf *b, const char *name, bool value);
void json_out_list(struct buf *b, const char *name, const char *const *texts, int count);
void json_out_raw(struct buf *b, const char *name, const char *json);

/* null in the place of what is not known: of NULL and "", and of a number below 0. */
void json_out_known_text(struct buf *b, const char *name, const char *value);
void json_out_known_int(struct buf *b, const char *name, int64_t value);

/* bracket: "{" or "[". What it opens the caller closes by buf_adds. */
void json_out_open(struct buf *b, const char *name, const char *bracket);

/* The name of a member whose value is printed next. */
void json_out_name(struct buf *b, const char *name);
