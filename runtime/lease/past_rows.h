/* A record's past terms and its running term, as rows to be shown: how long each lasted, and the time without a
 * leader between them. Not what is kept (past.h). Used by the admin endpoint, and by script/api/lua_lock.c, through
 * which the commands history and status show them. */
#pragma once

#include "lease/past.h"
#include "lease/record.h"

struct past_row {
	struct past_term term;
	bool lasts;        /* it is not over, by the record; then to_us is unknown, and reason is "" */
	int64_t lasted_ms; /* -1: unknown */
	/* since the end of the term before, which is in the row before; -1: unknown, or there is none */
	int64_t gap_ms;
};

/* The past terms of the record and the one that lasts, oldest first: how many. now_us: the reader's wall clock. */
#define PAST_ROWS (PAST_TERMS + 1)
int past_rows(const struct record *r, int64_t now_us, struct past_row out[PAST_ROWS]);

/* The same as a JSON array: identity, token, from, to, reason, lastedMs, gapMs, each null where it is not known, and
 * lasts. In one line. r may be NULL. */
void past_json(struct buf *b, const struct record *r, int64_t now_us);
