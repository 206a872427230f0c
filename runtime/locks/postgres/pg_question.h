/* A question to PostgreSQL: its limits, and the stamp by which its answer is recognised.
 * Not the statements in it (pg_sql.h, pg_failover.h), and no connection (pg_link.h).
 * Used by the files of the PostgreSQL lock that ask something. */
#ifndef LUNARCH_PG_QUESTION_H
#define LUNARCH_PG_QUESTION_H

#include "locks/postgres/pg_link.h"

struct pg_question {
	struct lock_link *link;
	struct lock_call *call; /* NULL: nobody wants the answer */
	const char *table;      /* as pg_sql_quote gives it */
	const char *stamp;      /* no other question has it */
	int statement_ms;       /* how long the server may work on it; less than 100 counts as 100, here and below */
	int lock_ms;            /* how long a statement may wait for a row that another transaction holds */
};

/* Sends the settings, and then at most PG_STATEMENTS - 1 statements. The answer has one result more, in front. */
void pg_question_send(const struct pg_question *q, int count, const struct pg_statement *statements);

/* first: the first result of an answer. Does the answer belong to the question of this stamp? */
bool pg_question_is_stamped(const char *stamp, const PGresult *first);

#endif
