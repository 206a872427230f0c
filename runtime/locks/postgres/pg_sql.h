/* What the PostgreSQL lock asks, as SQL, and what the answers say.
 * Not when to ask, nor what follows for the lock's operation (lock_postgres.c); the timelines are pg_failover.h's.
 * Used by the PostgreSQL lock and its rehearsal.
 *
 * A lock is one row of a table, updated on the condition that it is what was read. The token has a column with a unique
 * index of its own: so a transaction that holds FOR KEY SHARE on a row delays the next term, and no renewal.
 *
 * Each function sends one question. The result numbers below count from 0, which is the settings' (pg_question.h). */
#ifndef LUNARCH_PG_SQL_H
#define LUNARCH_PG_SQL_H

#include "locks/postgres/pg_question.h"

/* Result 1: no row, or record (NULL: it is too large), version, token, the record's bytes, and the row's doubt. */
void pg_sql_read(const struct pg_question *q, const char *name);

/* A write's parameters: $1 is the first. */
enum pg_swap_value {
	PG_NAME,
	PG_RECORD,
	PG_EXPECTED,   /* the version; "": the row must not be there */
	PG_CHANNEL,    /* who listens there is told */
	PG_MEMBER,     /* by whom */
	PG_WAITED_OUT, /* the doubt that we have waited out; "" */
	PG_OWN,        /* "t": the row is our own term's; else "f" */
	PG_FLOOR,      /* the largest token that we have seen, in digits */
	PG_SWAP_VALUES
};

/* Result 1: no row, or version, token, nothing, and the row's doubt ("?": the timeline is not the mark's). Result 2, if
 * it is acquiring, which is to begin a term: pg_failover_read_why's. */
void pg_sql_swap(const struct pg_question *q, bool acquiring, const char *const values[PG_SWAP_VALUES]);

/* Makes the table, with the mark in it. */
void pg_sql_create(const struct pg_question *q);

/* Result 1: one row if it was removed. */
void pg_sql_remove(const struct pg_question *q, const char *name, const char *expected);

/* Result 1: one row, for pg_sql_judge. */
void pg_sql_about(const struct pg_question *q);

/* Which of its settings can lose a record that the server has acknowledged. */
void pg_sql_judge(struct lock_about *about, const PGresult *r);

/* At most one row, of so many columns. What is not there libpq gives as NULL. */
bool pg_sql_is_row(const PGresult *r, int columns);

/* What an SQLSTATE says of a write. */
struct pg_refusal {
	const char *state; /* or its class, or "" for every other */
	enum lock_outcome outcome;
	enum err_code code;
	const char *advice; /* for people, behind what the server says */
};
const char *pg_sql_state(const PGresult *error); /* "08", no connection, if libpq itself made the error */
const struct pg_refusal *pg_sql_refusal(const char *state);
bool pg_sql_is_missing_table(const char *state);
bool pg_sql_is_made_already(const char *state); /* of pg_sql_create's: somebody made the table at the same time */

/* name as an SQL identifier with its quotes, malloc'd; "a.b" is b in the schema a. */
char *pg_sql_quote(const char *name);

#endif
