#include "locks/postgres/pg_question.h"

#include <stdio.h>
#include <string.h>

/* For this transaction only, since behind a pooler a session's settings are others' too. $1, $2: milliseconds.
 * synchronous_commit: a server that crashed must not show an older renewal again. To who has not seen the newer one,
 * the leader's term would seem to end too soon. $3: the stamp, which comes back. An answer does not say which question
 * it belongs to, and one may come twice. */
static const char settings[] =
	"SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $2, true), set_config('synchronous_commit', "
	"CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true), $3";

static int at_least_100(int ms)
{
	return ms < 100 ? 100 : ms;
}

void pg_question_send(const struct pg_question *q, int count, const struct pg_statement *statements)
{
	char statement[16], lock[16];
	const char *const values[] = { statement, lock, q->stamp };
	struct pg_statement all[PG_STATEMENTS] = { { .sql = settings, .count = 3, .values = values, .again = true } };

	snprintf(statement, sizeof statement, "%d", at_least_100(q->statement_ms));
	snprintf(lock, sizeof lock, "%d", at_least_100(q->lock_ms));
	memcpy(all + 1, statements, (size_t)count * sizeof *statements);
	pg_link_send(q->link, q->call, count + 1, all);
}

bool pg_question_is_stamped(const char *stamp, const PGresult *first)
{
	return PQntuples(first) == 1 && PQnfields(first) == 4 && strcmp(PQgetvalue(first, 0, 3), stamp) == 0;
}
