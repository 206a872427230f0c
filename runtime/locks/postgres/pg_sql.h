/* What the PostgreSQL lock asks, as SQL, and what the answers say.
 * Not when to ask, nor what follows for the lock's operation (lock_postgres.c), and no connection (pg_link.h).
 * Used by the PostgreSQL lock and its servers.
 *
 * A lock is one row of a table, updated on the condition that it is what was read. The token has a column with a unique
 * index of its own: so a transaction that holds FOR KEY SHARE on a row delays the next term, and no renewal.
 *
 * A server that is promoted is on a new timeline, and may lack the last records of the one before (how that is dealt
 * with: docs/stores/postgres.md, lock_failover.h). The table's row named '' is the mark. Its token is the timeline on which the
 * table was last known to be. Its server is the name of the doubt that the last change of timeline left; '' is none. In
 * a lock's row, server is the doubt under which that row was last sound.
 *
 * A question is one transaction. Result 0 of its answer has the stamp, result 1 what is said of each question below. */
#pragma once

#include "locks/postgres/pg_link.h"

struct pg_question {
	struct lock_link *link; /* up */
	struct lock_call *call; /* NULL: nobody wants the answer */
	const char *table;      /* with its schema, as pg_sql_quote gives it; PG_FIND and PG_ABOUT need none */
	const char *stamp;      /* no other question has it: by it the answer is recognised */
	int statement_ms;       /* how long the server may work on it; less than 100 counts as 100, here and below */
	int lock_ms;            /* how long a statement may wait for a row that another transaction holds */
};

enum pg_asked {
	/* No row, or record (NULL: it is too large), version, token, the record's bytes, and the row's doubt. */
	PG_READ,
	/* One row: version (NULL: nothing was written), token, nothing, and the doubt: of the row as it was written, or
	 * one that has not been waited out. "?": the mark has another timeline than the server; NULL: there is no
	 * mark. */
	PG_WRITE,
	PG_BEGIN, /* the same, and the write begins a term */
	/* One row: version (NULL: nothing was written), and nothing. A row of no term: it has the token 0, and needs no
	 * mark. */
	PG_ADVISE,
	PG_REMOVE, /* one row if it was removed */
	/* The name of each lock whose name begins with PG_NAME, in order; one more than a listing has, if there are more. */
	PG_LIST,
	PG_ABOUT, /* one row, for pg_sql_judge */
	/* One row: how many tables are called PG_NAME (here: the table's name); the schema of one; all of them, as
	 * text; the schema in which it would be made (NULL: none). */
	PG_FIND,
	PG_CREATE, /* makes the table, with the mark in it */
	PG_MARK,   /* puts the server's timeline into the mark and names the doubt, for all, unless somebody has */
};

/* The parameters, $1 being the first. Each question has as many of them as it needs, from the first on. */
enum pg_value {
	PG_NAME,
	PG_EXPECTED, /* the version; "": the row must not be there */
	PG_RECORD,
	PG_CHANNEL,    /* who listens there is told */
	PG_MEMBER,     /* by whom */
	PG_WAITED_OUT, /* the doubt that we have waited out; "" */
	PG_OWN,        /* "t": the row is our own term's; else "f" */
	PG_FLOOR,      /* the largest token that we have seen, in digits */
	PG_VALUES
};

/* Sends it. values: NULL for one without parameters. */
void pg_sql_ask(const struct pg_question *q, enum pg_asked what, const char *const values[PG_VALUES]);

/* Is that result 1 of such a question? What is not there libpq gives as NULL. */
bool pg_sql_fits(enum pg_asked what, const PGresult *r);

/* first: result 0. Does the answer belong to the question of this stamp? */
bool pg_sql_is_stamped(const char *stamp, const PGresult *first);

/* Which of its settings can lose a record that the server has acknowledged. */
void pg_sql_judge(struct lock_about *about, const PGresult *r);

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
/* the state of a failed PG_CREATE: somebody made the table at the same time */
bool pg_sql_is_made_already(const char *state);

/* name as an SQL identifier with its quotes, malloc'd; "a.b" is b in the schema a. */
char *pg_sql_quote(const char *name);

/* The table `name` in this schema, whose name has len bytes, as an SQL identifier, malloc'd. */
char *pg_sql_qualify(const char *schema, size_t len, const char *name);
