/* What is asked of PostgreSQL in one transaction, and what it answers.
 * Not which statements: those are the lock's (pg_sql.h). Used by the link, and by who asks something over it. */
#ifndef LUNARCH_PG_STATEMENT_H
#define LUNARCH_PG_STATEMENT_H

#include <postgresql/libpq-fe.h>
#include <stdbool.h>

#define PG_STATEMENTS 3 /* of one transaction, at most */

struct pg_statement {
	const char *sql;
	int count;
	const char *const *values; /* texts; NULL is null */
	bool again;                /* it is worth preparing, for the next time: where there is no pooler */
};

/* What `answered` of struct lock_call gets, once the transaction has ended. */
struct pg_answer {
	int count;
	PGresult *results[PG_STATEMENTS];
	const PGresult *error; /* the first; NULL: all went well, and it is committed */
};

#endif
