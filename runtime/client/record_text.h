/* A record as people read it, and as JSON for programs.
 * Not a judge: whether the holder is alive is the caller's to find out, if it wants to.
 * Used by status, leader and check. */
#ifndef LUNARCH_RECORD_TEXT_H
#define LUNARCH_RECORD_TEXT_H

#include "base/buf.h"
#include "lease/record.h"

#include <stdbool.h>

/* What was read. NULL record: there is none. */
struct record_text {
	const char *lock; /* URL without secrets */
	const struct record *record;
	int64_t now_us;      /* wall clock of the reader */
	const char *verdict; /* of --verify: "renews", "silent"; NULL = nobody verified */
};

bool record_text_leads(const struct record_text *s); /* the record names a holder, and is no next record */
/* Who leads renewed longer ago than the lease, by the clocks of both, and nobody verified more than that. */
bool record_text_overdue(const struct record_text *s);

/* All append to out. */
void record_text_headline(struct buf *out, const struct record_text *s); /* "ID leads, token 3, term 2": no newline */
void record_text_lines(struct buf *out, const struct record_text *s);    /* several lines */
void record_text_json(struct buf *out, const struct record_text *s);     /* one object, without a newline */

#endif
