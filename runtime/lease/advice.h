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

struct advice_candidate {
	char identity[ADVICE_TEXT_MAX + 1]; /* "": nobody */
	char incarnation[37];
	char address[ADVICE_TEXT_MAX + 1]; /* "": none */
	int64_t priority;
	char poke[POKE_ADDRESS + 1], poke_key[POKE_KEY + 1]; /* where it hears a poke, and by which key; "": nowhere */
};

/* Each part names the term that wrote it, and counts only in that term. A version of Lunarch that does not know the
 * part keeps it in its records, as it keeps every unknown field. */
struct advice {
	struct advice_candidate next;  /* M, "next": who comes next */
	struct advice_candidate given; /* M, "for": the candidate for which it was released; identity and incarnation */
	/* M, "for": the term before was handed over; it did not end early for another reason. The candidate for
	 * which the lock was released repeats this in its own term, since a standby may never see the release. */
	bool handed_over;
	struct {
		char name[33]; /* of the request; 32 hex digits. "": nobody is wanted */
		char identity[ADVICE_TEXT_MAX + 1];
	} wanted; /* M, "wanted": whom the leader wants as next */
	struct {
		bool is; /* the record is N: it holds a candidate, or nobody, and no election */
		int64_t priority;
		char poke[POKE_ADDRESS + 1], poke_key[POKE_KEY + 1]; /* the candidate's */
		char answers[33];  /* the name of the request that this write of N answers; "": none */
		char declines[33]; /* the request that the wanted candidate declines, whichever candidate N holds */
		char why[ADVICE_TEXT_MAX + 1]; /* why it declines */
	} nomination;                          /* N, "nomination" */
};

enum advice_part { ADVICE_NEXT, ADVICE_FOR, ADVICE_WANTED, ADVICE_NOMINATION };

/* Reads one part of the record from its JSON value; term: the record's. Allocates *slot if there is advice; leaves it
 * as it is if not. */
void advice_read(struct advice **slot, enum advice_part part, const struct json_t *value, uint64_t term);

/* Whether there is such a part. a may be NULL. */
bool advice_has(const struct advice *a, enum advice_part part);

/* Adds the part, which must be there, as a JSON object in one line. */
void advice_print(struct buf *b, const struct advice *a, enum advice_part part, uint64_t term);

/* Sets an identity or an address. false: the text is too long, or not UTF-8; then it is "". */
bool advice_set(char to[ADVICE_TEXT_MAX + 1], const char *text);
