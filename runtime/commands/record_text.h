/* A record as people read it, and as JSON for programs.
 * Not a judge: whether the holder is alive is the caller's to find out, if it wants to.
 * Used by status, leader and check. */
#ifndef LUNARCH_RECORD_TEXT_H
#define LUNARCH_RECORD_TEXT_H

#include "base/buf.h"
#include "lease/record.h"

#include <stdbool.h>

/* What a look found. NULL record: there is none. */
struct shown {
	const char *lock; /* URL without secrets */
	const struct record *record;
	int64_t now_us;      /* wall clock of the reader */
	const char *verdict; /* of --verify: "renews", "silent"; NULL = nobody verified */
};

bool show_leads(const struct shown *s);                     /* somebody is in the record */
void show_headline(struct buf *out, const struct shown *s); /* "ID leads (token 3, term 2, at ADDRESS)": no newline */
void show_text(struct buf *out, const struct shown *s);     /* several lines */
void show_json(struct buf *out, const struct shown *s);     /* one line */

#endif
