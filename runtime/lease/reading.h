/* What was read last in one place: a renewal differs from it in its time and its write's name alone, so a standby that
 * looks at one every few seconds need not parse it. Not a cache of the store: the text is always read; only the work of
 * understanding it is saved. Used by the file lock. */
#ifndef LUNARCH_READING_H
#define LUNARCH_READING_H

#include "lease/record.h"

struct reading;

/* As record_parse, with the same result. *last: NULL at first; kept for the next call by whoever calls. */
int reading_parse(struct reading **last, struct record *r, const char *text, size_t len, struct err *err);
void reading_free(struct reading *last); /* NULL: nothing */

#endif
