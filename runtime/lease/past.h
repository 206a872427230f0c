/* Past terms: the last terms of a lock, as its record tells them ("pastTerms"): who led, from when until when, with
 * which token, and why the term ended. They are for people: the times are those of the writers' wall clocks, and no
 * decision ever depends on them. Not the decisions of one process (election/decisions.h), which are in its memory.
 * Used by record.c, which keeps them as text, by author.c and `lunarch release`, which add one, and by past_rows.h,
 * which shows them. */
#pragma once

#include "base/buf.h"
#include "lease/record_time.h"

#include <stdbool.h>
#include <stdint.h>

struct json_t; /* jansson's */

#define PAST_TERMS 8           /* of more, the oldest are dropped */
#define PAST_WHO_MAX 128       /* bytes of an identity; a longer one is cut */
#define PAST_MAX_BYTES 8192    /* past_print adds less, whatever the identities are */
#define PAST_UNKNOWN "unknown" /* why it ended: the next leader only found the lease expired */

struct past_term {
	char who[PAST_WHO_MAX + 1]; /* never "" */
	int64_t token;              /* 0: unknown */
	int64_t from_us, to_us;     /* wall clock, from 0; RECORD_TIME_UNKNOWN. to is not before from */
	char reason[24];            /* lower-case letters and '_' */
};

/* Oldest first. The tokens that are known rise strictly. */
struct past {
	int count;
	struct past_term term[PAST_TERMS];
};

/* Fills *t. who: cut to PAST_WHO_MAX bytes, at the end of a character. Times that are out of range are unknown, and
 * so is an end before the beginning. reason NULL, or not such a word: PAST_UNKNOWN. */
void past_term_set(struct past_term *t, const char *who, int64_t token, int64_t from_us, int64_t to_us,
                   const char *reason);

/* Adds it as the newest. Earlier ones whose token is not smaller are dropped: their store fell back. */
void past_add(struct past *p, const struct past_term *t);

/* Reads a value that may be anything. Of its last PAST_TERMS elements it takes those that are terms, are in order,
 * and have no larger token than `last`, the record's (0: unknown). */
void past_read(struct past *p, const struct json_t *value, int64_t last);

/* Reads text that past_print wrote. text NULL: there are no past terms. */
void past_parse(struct past *p, const char *text);

void past_print(struct buf *b, const struct past *p); /* a JSON array in one line */
