/* Who owes by an election's record (debt.h): the debt that it names, and its own holder's, unless that released the
 * lock cleanly. Not the list itself, and no decision who may lead.
 * Used by election/author.c, by what shows who owes (standing.c, lua_lock.c), and by `lunarch fence`. */
#pragma once

#include "lease/debt.h"
#include "lease/record.h"

/* The debt that the record names. *d: zeroed. */
void debt_of(struct debt *d, const struct record *r);

/* What becomes of the debt when a record that this candidate has seen is gone: the same, and its holder's. As text, for
 * the caller to free. NULL: nobody owes. */
char *debt_carry(const struct record *seen, const struct debt_candidate *c);

/* The debt that this candidate writes if it acquires the lock in place of this record, with this token (0: the store
 * makes it), at this time. *d: zeroed. */
void debt_acquire(struct debt *d, const struct record *seen, const struct debt_candidate *c, int64_t token,
                  int64_t now_us);
