/* Writes JSON into a buffer, member by member, with the commas between them. Not a document in memory (that is
 * jansson's), and no check that what is opened is closed. Used by what answers programs (status, ctl) and by the log. */
#ifndef LUNARCH_JSON_OUT_H
#define LUNARCH_JSON_OUT_H

#include "base/buf.h"

#include <stdint.h>

/* name: of the member; NULL: it is a value of an array, or the whole. */
void json_out_text(struct buf *b, const char *name, const char *value); /* NULL is "" */
void json_out_int(struct buf *b, const char *name, int64_t value);
void json_out_bool(struct buf *b, const char *name, bool value);

/* bracket: "{" or "[". What it opens the caller closes by buf_adds. */
void json_out_open(struct buf *b, const char *name, const char *bracket);

#endif
