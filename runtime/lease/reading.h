/* Parses records of one place, and remembers the last one. A renewal changes only the time and the write's name, so
 * most records need not be parsed again. Not a cache of the store: the caller has read the text. Used by the file lock.
 */
#ifndef LUNARCH_READING_H
#define LUNARCH_READING_H

#include "lease/record.h"

struct reading;

/* As record_parse, with the same result. *last: NULL for the first call; the caller keeps it for the next one. */
int reading_parse(struct reading **last, struct record *r, const char *text, size_t len, struct err *err);
void reading_free(struct reading *last); /* NULL: nothing */

#endif
