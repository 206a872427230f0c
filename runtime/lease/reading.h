/* Parses the records that are read from one place, and remembers the last one. A renewal changes only the time, the
 * write's name and the count of writes, so most records need not be parsed again. Not a cache of the store: the
 * caller has read the text.
 * Used by the file lock. */
#pragma once

#include "lease/record.h"

struct reading;

/* As record_parse, with the same result. *last: NULL for the first call; the caller keeps it for the next one. */
int reading_parse(struct reading **last, struct record *r, const char *text, size_t len, struct err *err);

/* true: the text differs from the last one in those three values alone, and r, which is initialised, is what
 * record_parse would make of it. false: the text must be parsed, and r is unchanged. last: may be NULL. */
bool reading_renewed(struct reading *last, struct record *r, const char *text, size_t len);

void reading_free(struct reading *last); /* NULL: nothing */
