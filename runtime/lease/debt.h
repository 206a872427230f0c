/* The debt of a lock, "unfenced" in its record: past holders that may still act outside of their process tree. A term
 * books itself when it begins. Only its own clean release, a proof of its end, a fence or a person takes it out again.
 * This is the list: what a record adds to it is in debt_record.h. It runs no fence, and who may lead is the lease's to say.
 * Used by record.c, which keeps it as text, by the elector, which changes it, and by what shows it. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct json_t; /* jansson's */

#define DEBT_MAX 8                      /* with one more nobody leads */
#define DEBT_CARRIED_MAX (DEBT_MAX + 1) /* of a record that is gone: one too many to lead says that it is too many */
#define DEBT_TEXT_MAX (8 << 10)         /* bytes of their identities and addresses; with more nobody leads */

/* One debtor: what a fence acts on, an identity at an address. Its texts are the debt's. */
struct debtor {
	char *identity, *address; /* never "" / may be "" */
	char incarnation[37];     /* of its newest term; "": no process can settle it */
	int64_t token;            /* of its newest term; 0: unknown */
	int64_t since_us;         /* that term began, by its wall clock; RECORD_TIME_UNKNOWN */
	char why[24];             /* "" until somebody has found its term unclean; a word, as in past.h */
	/* An earlier process with this identity and address owes, too, so the end of the newest one settles nothing of
	 * that. */
	bool older;
};

struct debt { /* zeroed: nobody owes */
	int count;
	struct debtor of[2 * DEBT_MAX + 3]; /* of a record and its holder, of one that is gone, and this candidate */
};
void debt_fini(struct debt *d);

/* Fills *d, which is zeroed. -1 with *err, and nobody owes: it is no list of at most DEBT_MAX debtors. What cannot be
 * read must not be forgotten, so such a record is none. */
int debt_read(struct debt *d, const struct json_t *value, struct err *err);
void debt_parse(struct debt *d, const char *text); /* text: of debt_text, or NULL */
char *debt_text(const struct debt *d); /* a JSON array in one line, for the caller to free; NULL: nobody owes */
void debt_json(struct buf *b, const struct debt *d); /* the same, and [] if nobody owes */

void debt_cut(struct debt *d); /* to DEBT_CARRIED_MAX */

/* Who asks what a record's debt is. */
struct debt_candidate {
	const char *identity, *address, *incarnation;
	bool books;          /* its terms may leave something behind that acts: it has a fence or a cleanup */
	bool fences;         /* it has a fence */
	bool dead;           /* the holder that the record shows is proved dead, with everything that it started */
	const char *carried; /* debt_carry's, of a record that is gone; NULL: none */
};

/* Whether a record's debt has all that is carried. Both as text; unfenced may be NULL. */
bool debt_has(const char *unfenced, const char *carried);

/* Of the debt that it would write (debt_record.h): why the candidate must not acquire the lock, static text; NULL: it
 * may. And whether it has a fence and somebody to fence before its term begins. */
const char *debt_bars(const struct debt *d, const struct debt_candidate *c);
bool debt_to_fence(const struct debt *d, const struct debt_candidate *c);

/* Adds a debtor, or what is newer of one that is there. Its texts are copied. There is room for all that a record, one
 * that is gone, and two holders have (struct debt). */
void debt_book(struct debt *d, const struct debtor *o);

/* A term that lasts, in each write: its own entry names its token and address. */
void debt_keep(struct debt *d, const struct debt_candidate *c, int64_t token, int64_t since_us);
/* The process has ended its terms cleanly, or is proved dead. */
void debt_settle(struct debt *d, const char *identity, const char *incarnation);
/* All others are fenced. */
void debt_fenced(struct debt *d, const struct debt_candidate *c);
/* A person says that the debtor with this identity does nothing any more. false: no such debtor has this token. */
bool debt_forgive(struct debt *d, const char *identity, int64_t token);
