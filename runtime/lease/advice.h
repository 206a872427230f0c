/* Advice: what a lock's records say about the candidate that comes next. The lock's record M names that candidate,
 * the candidate for which the lock was released, and the candidate that its leader wants as next. The record N
 * beside it holds the candidate that comes next (lease/next.h).
 * Not a part of any rule of safety: advice that is malformed, stale or another term's is no advice, never an error.
 * Used by record.c, by author.c and next_link.c, which write and read it, and by the commands that show a record. */
#pragma once

#include "base/buf.h"
#include "lease/poke.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_t; /* jansson's */

#define ADVICE_TEXT_MAX 255            /* bytes of an identity, or an address; a longer one is no advice */
#define ADVICE_PRIORITY_MAX 1000000000 /* and at least -1000000000 */
#define ADVICE_MAX_BYTES (12 * 1024)   /* all the advice of a record as it is printed is shorter */

/* A process may keep thousands of these, so the texts are as long as what they say. They are borrowed, but for those of
 * advice_copy. */
struct advice_candidate {
	const char *identity; /* "": nobody */
	const char *incarnation;
	const char *address; /* "": none */
	int64_t priority;
	const char *poke, *poke_key; /* where it hears a poke, and by which key; "": nowhere */
};
#define ADVICE_NOBODY                                                                        \
	{                                                                                    \
		.identity = "", .incarnation = "", .address = "", .poke = "", .poke_key = "" \
	}

/* Each part names the term that wrote it, and counts only in that term. A version of Lunarch that does not know the
 * part keeps it in its records, as it keeps every unknown field. */
struct advice {
	struct advice_candidate next;  /* M, "next": who comes next */
	struct advice_candidate given; /* M, "for": the candidate for which it was released; identity and incarnation */
	/* M, "for": the term before was handed over; it did not end early for another reason. The candidate for
	 * which the lock was released repeats this in its own term, since a standby may never see the release. */
	bool handed_over;
	struct {
		const char *name; /* of the request; 32 hex digits. "": nobody is wanted */
		const char *identity;
	} wanted; /* M, "wanted": whom the leader wants as next */
	struct {
		bool is; /* the record is N: it holds a candidate, or nobody, and no election */
		int64_t priority;
		const char *poke, *poke_key; /* the candidate's */
		const char *answers;         /* the name of the request that this write of N answers; "": none */
		const char *declines; /* the request that the wanted candidate declines, whichever candidate N holds */
		const char *why;      /* why it declines */
	} nomination;                 /* N, "nomination" */
};
#define ADVICE_NONE                                                                                  \
	{                                                                                            \
		.next = ADVICE_NOBODY, .given = ADVICE_NOBODY, .wanted = { "", "" }, .nomination = { \
			.poke = "",                                                                  \
			.poke_key = "",                                                              \
			.answers = "",                                                               \
			.declines = "",                                                              \
			.why = ""                                                                    \
		}                                                                                    \
	}

/* The same in one block of memory, with its texts: free() it. A text that is NULL becomes "". a: NULL gives NULL. */
struct advice *advice_copy(const struct advice *a);

/* Frees *slot and puts a copy of a there, which may borrow texts of *slot, or be NULL. */
void advice_replace(struct advice **slot, const struct advice *a);

enum advice_part { ADVICE_NEXT, ADVICE_FOR, ADVICE_WANTED, ADVICE_NOMINATION };

/* Reads one part of the record from its JSON value; term: the record's. Allocates *slot if there is advice; leaves it
 * as it is if not. */
void advice_read(struct advice **slot, enum advice_part part, const struct json_t *value, uint64_t term);

/* Whether there is such a part. a may be NULL. */
bool advice_has(const struct advice *a, enum advice_part part);

/* Adds the part, which must be there, as a JSON object in one line. */
void advice_print(struct buf *b, const struct advice *a, enum advice_part part, uint64_t term);

/* Whether text may be an identity or an address: it is UTF-8, and not too long. */
bool advice_fits(const char *text);
