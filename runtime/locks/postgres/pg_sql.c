#include "locks/postgres/pg_sql.h"

#include "base/buf.h"
#include "base/mem.h"
#include "locks/lock_listing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the statements: in their texts, sql_fill puts in what stands for {table} and {timeline} ---- */

#define TEXT_OF(macro) #macro
#define DIGITS_OF(number) TEXT_OF(number)

#define VERSION "xmin::text || '.' || md5(record)"
#define CLOCK_US "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
#define THE_MARK "FROM {table} e WHERE e.name = ''"

/* The doubt that a row with this `server` is in, e being the mark; '' is none. */
#define DOUBT_OF(server) "CASE WHEN e.server IN ('', " server ") THEN '' ELSE e.server END"
#define NEW_DOUBT "t || '.' || " CLOCK_US

/* For this transaction only: behind a pooler a session's settings are others' too, and what others have left there must
 * not decide what a statement means. NULL is what the user's own session would begin with. So what follows is done by
 * the role that logs in, finds no table, type, function or operator but the server's own (all tables are named with
 * their schema), and takes our texts for what they are: the name of a lock in another encoding is another lock. What
 * the link sets is beside this (pg_link.c). The form of what comes back depends on no setting. $1, $2: milliseconds.
 * synchronous_commit: a server that crashed must not show an older renewal again. To who has not seen the newer one,
 * the leader's term would seem to end too soon. $3: the stamp, which comes back. An answer does not say which question
 * it belongs to, and one may come twice. Advice waits for no disk and no standby. */
#define SET(name, value) "pg_catalog.set_config('" name "', " value ", true)"
#define SETTINGS(synchronous)                                                                                       \
	"SELECT " SET("statement_timeout", "$1") ", " SET("lock_timeout", "$2") ", pg_catalog.concat(" SET(         \
		"role", "NULL") ", " SET("search_path",                                                             \
	                                 "'pg_catalog, pg_temp'") ", " SET("client_encoding",                       \
	                                                                   "'UTF8'") ", " SET("synchronous_commit", \
	                                                                                      synchronous) "), $3"
static const char settings[] = SETTINGS("pg_catalog.replace(" SET("synchronous_commit", "NULL") ", 'off', 'on')"),
		  advice_settings[] = SETTINGS("'off'");

/* An unqualified name is the one table of that name in the database, whatever the search_path of the user who asks.
 * Where there is none, it is made in the schema that this user's own search_path names. */
static const char find_text[] =
	"SELECT count(*), min(n.nspname::text), string_agg(quote_ident(n.nspname) || '.' || quote_ident(c.relname), "
	"' and ' ORDER BY n.nspname), CASE WHEN " SET(
		"search_path", "NULL") " IS NOT NULL THEN current_schema() END FROM pg_class c JOIN pg_namespace n ON "
				       "n.oid = c.relnamespace WHERE c.relname = $1 AND c.relkind IN ('r', 'p') AND "
				       "left(n.nspname, 3) <> 'pg_'";

static const char read_text[] = "SELECT CASE WHEN octet_length(record) <= " DIGITS_OF(
	RECORD_MAX_BYTES) " THEN record END, " VERSION
			  ", token, octet_length(record), (SELECT " DOUBT_OF(
				  "r.server") " " THE_MARK ") FROM {table} r WHERE name = $1";

/* A server that was promoted may lack the terms before, and its clock may be behind: a new token is also larger than
 * the largest one that we have seen, $8. */
#define LARGER "greatest(" CLOCK_US ", $8::bigint + 1"

/* The server knows the type of each parameter only if it is used. */
#define USED " AND $7::boolean IS NOT NULL AND $8::bigint IS NOT NULL"

/* The condition of a write that begins a term: the row is our own term's, $7, or the mark has the server's timeline,
 * and its doubt is none, or is $6, or is the row's own. */
#define ELECTABLE(or_row)                                                                  \
	" AND ($7::boolean OR EXISTS (SELECT 1 " THE_MARK " AND e.token = {timeline} AND " \
	"e.server IN ('', $6" or_row ")))"

#define MADE(condition)                                                                                \
	"WITH w AS (INSERT INTO {table} (name, record, token, changed, server) SELECT $1, $3, " LARGER \
	"), clock_timestamp(), $6 WHERE $2 = ''" USED condition " ON CONFLICT (name) DO NOTHING" WRITTEN
#define CHANGED(also, condition)                                                                 \
	"WITH w AS (UPDATE {table} AS r SET record = $3, changed = clock_timestamp(), server = " \
	"CASE WHEN $6 = '' THEN r.server ELSE $6 END" also " WHERE name = $1 AND " VERSION       \
	" = $2" USED condition WRITTEN
#define WRITTEN                                                                                                                    \
	" RETURNING " VERSION " AS version, token, server) "                                                                       \
	"SELECT w.version, w.token, (SELECT pg_notify($4, $5) FROM w), "                                                           \
	"(SELECT CASE WHEN e.token <> {timeline} THEN '?' ELSE " DOUBT_OF(                                                         \
		"coalesce(w.server, $6), coalesce(w.server, (SELECT r.server FROM {table} r WHERE r.name = $1))") " END " THE_MARK \
														  ") FROM (SELECT) AS always LEFT JOIN w ON true"

static const char write_text[] = CHANGED("", ""), write_first_text[] = MADE(""),
		  begin_text[] = CHANGED(", token = " LARGER ", r.token + 1)", ELECTABLE(", r.server")),
		  begin_first_text[] = MADE(ELECTABLE(""));

#define ADVISED                                                 \
	" RETURNING " VERSION " AS version) SELECT w.version, " \
	"(SELECT pg_notify($4, $5) FROM w) FROM (SELECT) AS always LEFT JOIN w ON true"
static const char advise_text[] = "WITH w AS (UPDATE {table} SET record = $3, changed = clock_timestamp() "
				  "WHERE name = $1 AND " VERSION " = $2" ADVISED,
		  advise_first_text[] = "WITH w AS (INSERT INTO {table} (name, record, token, changed, server) "
					"SELECT $1, $3, 0, clock_timestamp(), '' WHERE $2 = '' "
					"ON CONFLICT (name) DO NOTHING" ADVISED;

static const char table_text[] =
	"CREATE TABLE IF NOT EXISTS {table} (name text PRIMARY KEY, token bigint NOT NULL, record text NOT NULL, "
	"changed timestamptz NOT NULL, server text NOT NULL, UNIQUE (name, token)) WITH (fillfactor = 50)";

/* A server that was never promoted is on timeline 1. It cannot have lost what was in the table before it was made. */
static const char first_mark_text[] =
	"INSERT INTO {table} SELECT '', t, 'timeline', clock_timestamp(), CASE WHEN t <= 1 THEN '' ELSE " NEW_DOUBT
	" END FROM (SELECT {timeline} AS t) AS now ON CONFLICT (name) DO NOTHING";

static const char mark_text[] =
	"INSERT INTO {table} AS m SELECT '', t, 'timeline', clock_timestamp(), " NEW_DOUBT
	" FROM (SELECT {timeline} AS t) AS now ON CONFLICT (name) DO UPDATE "
	"SET token = excluded.token, changed = excluded.changed, server = excluded.server WHERE m.token <> excluded.token";

static const char remove_text[] = "DELETE FROM {table} WHERE name = $1 AND " VERSION " = $2 RETURNING name";

/* No pattern and no range: no character has another meaning, and no order of the database's counts. It looks at every
 * row, which in a table of locks are few; the mark is none. */
static const char list_text[] = "SELECT name FROM {table} WHERE left(name, length($1)) = $1 AND name <> '' "
				"ORDER BY name COLLATE \"C\" LIMIT " DIGITS_OF(LOCK_LISTING_MOST) " + 1";

static const char about_text[] =
	"SELECT current_setting('server_version'), current_setting('fsync'), current_setting('full_page_writes'), "
	"current_setting('synchronous_standby_names') <> '', (SELECT count(*) FROM pg_stat_replication), "
	"format('system %s, database %s (%s)', (SELECT system_identifier FROM pg_control_system()), current_database(), "
	"(SELECT oid FROM pg_database WHERE datname = current_database()))";

static const struct pg_text {
	const char *text;
	const char *first; /* of a row that is not there; NULL: the same */
	const char *then;  /* another statement; NULL: none */
	int values, columns, rows_least, rows_most;
	bool again; /* as of struct pg_statement */
} texts[] = {
	[PG_READ] = { .text = read_text, .values = 1, .columns = 5, .rows_most = 1, .again = true },
	[PG_WRITE] = { write_text, write_first_text, NULL, PG_VALUES, 4, 1, 1, true },
	[PG_BEGIN] = { begin_text, begin_first_text, NULL, PG_VALUES, 4, 1, 1, true },
	[PG_ADVISE] = { advise_text, advise_first_text, NULL, PG_MEMBER + 1, 2, 1, 1, true },
	[PG_REMOVE] = { .text = remove_text, .values = 2, .columns = 1, .rows_most = 1 },
	[PG_LIST] = { .text = list_text, .values = 1, .columns = 1, .rows_most = LOCK_LISTING_MOST + 1 },
	[PG_ABOUT] = { .text = about_text, .columns = 6, .rows_least = 1, .rows_most = 1 },
	[PG_FIND] = { .text = find_text, .values = 1, .columns = 4, .rows_least = 1, .rows_most = 1 },
	[PG_CREATE] = { .text = table_text, .then = first_mark_text },
	[PG_MARK] = { .text = mark_text },
};

/* ---- asking ---- */

static char *sql_fill(const struct pg_question *q, const char *text)
{
	static const char table[] = "{table}", timeline[] = "{timeline}";
	struct buf b = { 0 };
	const char *brace;

	for (; (brace = strchr(text, '{')); text = strchr(brace, '}') + 1) {
		buf_add(&b, text, (size_t)(brace - text));
		if (strncmp(brace, table, strlen(table)) == 0)
			buf_adds(&b, q->table);
		else if (strncmp(brace, timeline, strlen(timeline)) != 0)
			abort(); /* there are no others */
		else
			buf_adds(&b,
			         pg_link_timed(q->link)
			                 ? "('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint"
			                 : "0");
	}
	buf_adds(&b, text);
	return b.data;
}

void pg_sql_ask(const struct pg_question *q, enum pg_asked what, const char *const values[PG_VALUES])
{
	const struct pg_text *t = &texts[what];
	char statement_ms[16], lock_ms[16];
	char *text = sql_fill(q, t->first && !*values[PG_EXPECTED] ? t->first : t->text),
	     *then = t->then ? sql_fill(q, t->then) : NULL;

	snprintf(statement_ms, sizeof statement_ms, "%d", q->statement_ms < 100 ? 100 : q->statement_ms);
	snprintf(lock_ms, sizeof lock_ms, "%d", q->lock_ms < 100 ? 100 : q->lock_ms);
	pg_link_send(q->link, q->call, then ? 3 : 2,
	             (const struct pg_statement[]){
			     { what == PG_ADVISE ? advice_settings : settings, 3,
	                       (const char *const[]){ statement_ms, lock_ms, q->stamp }, true },
			     { text, t->values, values, t->again },
			     { .sql = then },
		     });
	free(text);
	free(then);
}

static char *sql_quote_part(const char *name, size_t len)
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

char *pg_sql_qualify(const char *schema, size_t len, const char *name)
{
	char *first = sql_quote_part(schema, len), *table = sql_quote_part(name, strlen(name));
	char *both = mem_printf("%s.%s", first, table);
	free(first);
	free(table);
	return both;
}

char *pg_sql_quote(const char *name)
{
	const char *dot = strchr(name, '.');

	return dot ? pg_sql_qualify(name, (size_t)(dot - name), dot + 1) : sql_quote_part(name, strlen(name));
}

/* ---- answers ---- */

bool pg_sql_is_stamped(const char *stamp, const PGresult *first)
{
	return PQntuples(first) == 1 && PQnfields(first) == 4 && strcmp(PQgetvalue(first, 0, 3), stamp) == 0;
}

bool pg_sql_fits(enum pg_asked what, const PGresult *r)
{
	const struct pg_text *t = &texts[what];

	return t->columns == 0 || (PQresultStatus(r) == PGRES_TUPLES_OK && PQnfields(r) == t->columns &&
	                           PQntuples(r) >= t->rows_least && PQntuples(r) <= t->rows_most);
}

void pg_sql_judge(struct lock_about *about, const PGresult *r)
{
	*about = (struct lock_about){ .pause_ms = 0 };
	snprintf(about->server, sizeof about->server, "PostgreSQL %s, %s standbys", PQgetvalue(r, 0, 0),
	         PQgetvalue(r, 0, 4));
	snprintf(about->place, sizeof about->place, "%s", PQgetvalue(r, 0, 5));
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
	  ": the rights that a lock needs, and how to make its table, are in docs/stores/postgres.md; ?table=SCHEMA.NAME is another" },
	{ "3F000", LOCK_REFUSED, ERR_MISSING, ": make the schema first, or name another with ?table=SCHEMA.NAME" },
	{ "42703", LOCK_REFUSED, ERR_FOREIGN,
	  ": the table is another program's, and is not touched: choose one with ?table=NAME" },
	{ "42804", LOCK_REFUSED, ERR_FOREIGN,
	  ": the table is another program's, and is not touched: choose one with ?table=NAME" },
	{ "42883", LOCK_REFUSED, ERR_FOREIGN,
	  ": the table is another program's, and is not touched: choose one with ?table=NAME" },
	{ "42P10", LOCK_REFUSED, ERR_FOREIGN,
	  ": the table has no unique name: how to make it is in docs/stores/postgres.md" },
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
