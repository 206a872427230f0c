/* A record as people read it, and as JSON for programs.
 * Not a judge: whether somebody leads is leadership.h's to say, from what the caller has watched.
 * Used by status, list, leader, history and check. */
#ifndef LUNARCH_RECORD_TEXT_H
#define LUNARCH_RECORD_TEXT_H

#include "base/buf.h"
#include "lease/leadership.h"

#include <stdbool.h>

/* What was read. NULL record: there is none. */
struct record_text {
	const char *lock; /* URL without secrets */
	const struct record *record;
	int64_t now_us; /* wall clock of the reader */
	enum leadership_watched watched;
};

enum leadership record_text_state(const struct record_text *s);
bool record_text_held(const struct record_text *s); /* somebody leads, or is overdue */

/* All append to out. */
void record_text_headline(struct buf *out, const struct record_text *s); /* "ID leads, token 3, term 2": no newline */
void record_text_lines(struct buf *out, const struct record_text *s);    /* several lines */
void record_text_json(struct buf *out, const struct record_text *s);     /* one object, without a newline */

#endif
