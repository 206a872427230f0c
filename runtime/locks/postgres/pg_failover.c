#include "locks/postgres/pg_failover.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define NAME_DOUBT "t || '.' || " PG_CLOCK

const char *pg_failover_timeline(const struct lock_link *link)
{
	return pg_link_timed(link) ? "('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint" : "0";
}

/* A server that was never promoted is on timeline 1. It cannot have lost what was in the table before it was made. */
char *pg_failover_first_mark(const struct pg_question *q)
{
	return mem_printf(
		"INSERT INTO %s SELECT '', t, 'timeline', clock_timestamp(), CASE WHEN t <= 1 THEN '' ELSE " NAME_DOUBT
		" END FROM (SELECT %s AS t) AS now ON CONFLICT (name) DO NOTHING",
		q->table, pg_failover_timeline(q->link));
}

char *pg_failover_condition(const struct pg_question *q, bool there)
{
	return mem_printf(
		"($7::boolean OR EXISTS (SELECT 1 FROM %s e WHERE e.name = '' AND e.token = %s AND e.server IN ('', $6%s)))",
		q->table, pg_failover_timeline(q->link), there ? ", r.server" : "");
}

char *pg_failover_after_write(const struct pg_question *q)
{
	return mem_printf("(SELECT CASE WHEN e.token <> %s THEN '?' ELSE " PG_DOUBT_OF(
				  "w.server") " END FROM %s e WHERE e.name = '')",
	                  pg_failover_timeline(q->link), q->table);
}

char *pg_failover_why(const struct pg_question *q)
{
	return mem_printf("SELECT e.token = %s, " PG_DOUBT_OF(
				  "$2, (SELECT r.server FROM %s r WHERE r.name = $1)") " FROM %s e "
	                                                                               "WHERE e.name = ''",
	                  pg_failover_timeline(q->link), q->table, q->table);
}

enum pg_why pg_failover_read_why(const PGresult *r, const char **doubt)
{
	if (PQntuples(r) != 1 || strcmp(PQgetvalue(r, 0, 0), "t") != 0)
		return PG_OTHER_TIMELINE;
	*doubt = PQgetvalue(r, 0, 1);
	return **doubt ? PG_IN_DOUBT : PG_ROW_CHANGED;
}

void pg_failover_mark(const struct pg_question *q)
{
	char *mark = mem_printf(
		"INSERT INTO %s AS m SELECT '', t, 'timeline', clock_timestamp(), " NAME_DOUBT
		" FROM (SELECT %s AS t) AS now "
		"ON CONFLICT (name) DO UPDATE SET token = excluded.token, changed = excluded.changed, server = excluded.server "
		"WHERE m.token <> excluded.token",
		q->table, pg_failover_timeline(q->link));

	pg_question_send(q, 1, &(struct pg_statement){ .sql = mark });
	free(mark);
}
