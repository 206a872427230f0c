/* Writes JSON into a buffer, member by member, with the commas between them: all JSON that C prints but the record's.
 * Not a document in memory (that is jansson's), and no check that what is opened is closed.
 * Used by what answers programs: status, ctl, the log. */
#pragma once

#include "base/buf.h"

#include <stdint.h>

/* name: the member's. NULL: the value stands in an array, is the whole document, or was named by json_out_name. A
 * whole document that follows other text in the buffer is begun with buf_adds, unless that text ends in a newline. */
void json_out_text(struct buf *b, const char *name, const char *value); /* NULL is "" */
void json_out_int(struct buf *b, const char *name, int64_t value);
void json_out_bool(struct buf *b, const char *name, bool value);
void json_out_list(struct buf *b, const char *name, const char *const *texts, int count);
void json_out_raw(struct buf *b, const char *name, const char *json);

/* Writes null where the value is not known: for NULL and "", and for a number below 0. */
void json_out_known_text(struct buf *b, const char *name, const char *value);
void json_out_known_int(struct buf *b, const char *name, int64_t value);

/* bracket: "{" or "[". The caller closes it with buf_adds. */
void json_out_open(struct buf *b, const char *name, const char *bracket);

/* The name of a member whose value is printed next. */
void json_out_name(struct buf *b, const char *name);
