#include "locks/postgres/pg_sql.h"

#include "base/buf.h"
#include "base/mem.h"
#include "locks/postgres/pg_failover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION "xmin::text || '.' || md5(record)"

/* ---- statements ---- */

void pg_sql_read(const struct pg_question *q, const char *name)
{
	char *sql =
		mem_printf("SELECT CASE WHEN octet_length(record) <= %d THEN record END, " VERSION
	                   ", token, octet_length(record), "
	                   "(SELECT " PG_DOUBT_OF("r.server") " FROM %s e WHERE e.name = '') FROM %s r WHERE name = $1",
	                   RECORD_MAX_BYTES, q->table, q->table);
	const char *const values[] = { name };

	pg_question_send(q, 1, &(struct pg_statement){ sql, 1, values, true });
	free(sql);
}

/* A server that was promoted may lack the terms before, and its clock may be behind: a new token is also larger than
 * the largest one that we have seen, $8. */
#define LARGER "greatest(" PG_CLOCK ", $8::bigint + 1"

static char *swap_statement(const struct pg_question *q, bool acquiring, bool there)
{
	char *condition = pg_failover_condition(q, there), *doubt = pg_failover_after_write(q);
	struct buf b = { 0 };

	buf_adds(&b, "WITH w AS (");
	if (there)
		buf_printf(
			&b,
			"UPDATE %s AS r SET record = $2, changed = clock_timestamp(), server = CASE WHEN $6 = '' THEN r.server ELSE $6 END%s "
			"WHERE name = $1 AND " VERSION " = $3",
			q->table, acquiring ? ", token = " LARGER ", r.token + 1)" : "");
	else
		buf_printf(&b,
		           "INSERT INTO %s (name, record, token, changed, server) SELECT $1, $2, " LARGER
		           "), clock_timestamp(), $6 "
		           "WHERE $3 = ''",
		           q->table);
	buf_adds(&b, " AND $7::boolean IS NOT NULL AND $8::bigint IS NOT NULL");
	if (acquiring)
		buf_printf(&b, " AND %s", condition);
	buf_printf(&b,
	           "%s RETURNING " VERSION
	           " AS version, token, server) SELECT version, token, pg_notify($4, $5), %s FROM w",
	           there ? "" : " ON CONFLICT (name) DO NOTHING", doubt);
	free(condition);
	free(doubt);
	return b.data;
}

void pg_sql_swap(const struct pg_question *q, bool acquiring, const char *const values[PG_SWAP_VALUES])
{
	const char *const why_values[] = { values[PG_NAME], values[PG_WAITED_OUT] };
	char *swap = swap_statement(q, acquiring, *values[PG_EXPECTED]), *why = pg_failover_why(q);
	const struct pg_statement both[] = { { swap, PG_SWAP_VALUES, values, true }, { why, 2, why_values, true } };

	pg_question_send(q, acquiring ? 2 : 1, both);
	free(swap);
	free(why);
}

void pg_sql_create(const struct pg_question *q)
{
	char *mark = pg_failover_first_mark(q);
	char *table = mem_printf(
		"CREATE TABLE IF NOT EXISTS %s (name text PRIMARY KEY, token bigint NOT NULL, record text NOT NULL, "
		"changed timestamptz NOT NULL, server text NOT NULL, UNIQUE (name, token)) WITH (fillfactor = 50)",
		q->table);
	const struct pg_statement both[] = { { .sql = table }, { .sql = mark } };

	pg_question_send(q, 2, both);
	free(table);
	free(mark);
}

void pg_sql_remove(const struct pg_question *q, const char *name, const char *expected)
{
	char *sql = mem_printf("DELETE FROM %s WHERE name = $1 AND " VERSION " = $2 RETURNING name", q->table);
	const char *const values[] = { name, expected };

	pg_question_send(q, 1, &(struct pg_statement){ sql, 2, values });
	free(sql);
}

void pg_sql_about(const struct pg_question *q)
{
	static const char sql[] =
		"SELECT current_setting('server_version'), current_setting('fsync'), current_setting('full_page_writes'), "
		"current_setting('synchronous_standby_names') <> '', (SELECT count(*) FROM pg_stat_replication)";

	pg_question_send(q, 1, &(struct pg_statement){ .sql = sql });
}

static char *quote(const char *name, size_t len)
{
	struct buf b = { 0 };

	buf_adds(&b, "\"");
	for (size_t i = 0; i < len; i++) {
		buf_add(&b, name + i, 1);
		if (name[i] == '"')
			buf_adds(&b, "\"");
	}
	buf_adds(&b, "\"");
	return b.data;
}

char *pg_sql_quote(const char *name)
{
	const char *dot = strchr(name, '.');

	if (!dot)
		return quote(name, strlen(name));
	char *schema = quote(name, (size_t)(dot - name)), *table = quote(dot + 1, strlen(dot + 1));
	char *both = mem_printf("%s.%s", schema, table);
	free(schema);
	free(table);
	return both;
}

/* ---- answers ---- */

bool pg_sql_is_row(const PGresult *r, int columns)
{
	return PQresultStatus(r) == PGRES_TUPLES_OK && PQnfields(r) == columns && PQntuples(r) <= 1;
}

void pg_sql_judge(struct lock_about *about, const PGresult *r)
{
	*about = (struct lock_about){ .pause_ms = 0 };
	snprintf(about->server, sizeof about->server, "PostgreSQL %s, %s standbys", PQgetvalue(r, 0, 0),
	         PQgetvalue(r, 0, 4));
	if (strcmp(PQgetvalue(r, 0, 1), "on") != 0 || strcmp(PQgetvalue(r, 0, 2), "on") != 0) {
		about->unfit = true;
		snprintf(about->warning, sizeof about->warning,
		         "fsync or full_page_writes is off: after a power cut the table may be an older one, "
		         "with the tokens of old");
	} else if (strcmp(PQgetvalue(r, 0, 4), "0") != 0 && strcmp(PQgetvalue(r, 0, 3), "t") != 0) {
		snprintf(about->warning, sizeof about->warning,
		         "its standbys are asynchronous: a promoted one may lack the last term, so nobody is "
		         "elected for a lease after a promotion (synchronous_standby_names makes them wait)");
	}
}

/* SQLSTATEs, whole or by class (PostgreSQL, appendix A). An error undoes the transaction. The exceptions are those of a
 * server that shuts down: they may come when the transaction is committed already. */
static const struct pg_refusal refusals[] = {
	{ "42501", LOCK_REFUSED, ERR_DENIED,
	  ": the rights that a lock needs, and how to make its table, are in docs/locks.md" },
	{ "3F000", LOCK_REFUSED, ERR_MISSING, ": make the schema first" },
	{ "42703", LOCK_REFUSED, ERR_FOREIGN,
	  ": the table is another program's, and is not touched: choose one with ?table=NAME" },
	{ "42804", LOCK_REFUSED, ERR_FOREIGN,
	  ": the table is another program's, and is not touched: choose one with ?table=NAME" },
	{ "42883", LOCK_REFUSED, ERR_FOREIGN,
	  ": the table is another program's, and is not touched: choose one with ?table=NAME" },
	{ "42P10", LOCK_REFUSED, ERR_FOREIGN, ": the table has no unique name: how to make it is in docs/locks.md" },
	{ "42809", LOCK_REFUSED, ERR_FOREIGN, ": that is no table" },
	{ "25006", LOCK_FAILED, ERR_FULL, ": the server takes no writes" },
	{ "55P03", LOCK_FAILED, ERR_TIMEOUT, ": somebody's transaction holds the row" },
	{ "57014", LOCK_FAILED, ERR_TIMEOUT, "" },
	{ "57", LOCK_UNKNOWN, ERR_UNREACHABLE, "" },
	{ "58", LOCK_UNKNOWN, ERR_SYSTEM, "" },
	{ "XX", LOCK_UNKNOWN, ERR_SYSTEM, "" },
	{ "08", LOCK_UNKNOWN, ERR_UNREACHABLE, "" },
	{ "53100", LOCK_FAILED, ERR_FULL, "" },
	{ "53", LOCK_FAILED, ERR_FULL, "" },
	{ "22", LOCK_INVALID, ERR_INVALID, "" },
	{ "23", LOCK_INVALID, ERR_INVALID, "" },
	{ "", LOCK_FAILED, ERR_SYSTEM, "" },
};

const char *pg_sql_state(const PGresult *error)
{
	const char *state = PQresultErrorField(error, PG_DIAG_SQLSTATE);

	return state ? state : "08";
}

const struct pg_refusal *pg_sql_refusal(const char *state)
{
	const struct pg_refusal *r = refusals;

	while (strncmp(state, r->state, strlen(r->state)) != 0)
		r++;
	return r;
}

bool pg_sql_is_missing_table(const char *state)
{
	return strcmp(state, "42P01") == 0;
}

bool pg_sql_is_made_already(const char *state)
{
	return strcmp(state, "42P07") == 0 || strcmp(state, "42710") == 0 || strcmp(state, "23505") == 0;
}
