/* The lock in a PostgreSQL database: one row of a table, updated on the condition that it is what was read. The token
 * is in a column with a unique index of its own, so that a transaction that holds FOR KEY SHARE on a row holds up the
 * next term but no renewal. The row named '' says on which timeline the table was last known to be, and names the doubt
 * that a change of it is (lock_failover.h); a lock's row, under which of them it was last sound (docs/locks.md). */
#include "locks/lock.h"

#include "base/buf.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/module.h"
#include "locks/lock_channel.h"
#include "locks/lock_op.h"
#include "locks/lock_url.h"
#include "locks/postgres/pg_link.h"

#include <ev.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE "lunarch_locks"

/* New terms may have to wait for the transactions of old ones, and then the renewals of other locks must not wait
 * behind them. A lock that is alone has nobody to hold up: its process has one connection, which a notice has just
 * woken at both ends. */
enum { RENEWALS, TERMS, LANES };

struct pg_hub { /* one per process: its connections */
	struct lock_env *env;
	struct pg_server *servers;
	uint64_t asked; /* questions: each has its number */
};

struct pg_server { /* what locks with the same URI share */
	struct pg_server *next;
	struct pg_hub *hub;
	struct pg_place *place;
	int locks;
	struct pg_link *pools[LANES]; /* notices come with the renewals */
	struct lock_board board;
	char *table; /* the first lock's, quoted: for rehearsals */
	bool was_up;
	bool leads, rehearsed; /* on this connection a term was begun; renewals are rehearsed */
	ev_timer raise;        /* brings the notices back */
	ev_timer settled;      /* nobody is in a hurry: time to rehearse */
	int refusals;
};

enum stage { ASK, CREATE, MARK, INQUIRE };

struct pg_lock {
	struct lock lock;
	struct pg_server *server;
	struct pg_link *link; /* of the operation under way */
	char *name, *table, *quoted;
	char channel[32];
	struct lock_op op;
	struct lock_call call;
	struct lock_member member;
	enum stage stage;
	bool again, created, marked; /* in this operation */
	char stamp[24];              /* of the question under way */

	char *text; /* of the write under way, as are these */
	struct version expected;
	bool acquiring, leads, removing;
	struct lock_about *about;
	nsec lease;

	struct lock_failover doubt;
};

static struct pg_lock *of(struct lock *l)
{
	return (struct pg_lock *)l;
}

/* ---- statements ---- */

#define VERSION "xmin::text || '.' || md5(record)"
#define CLOCK "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
#define TIMELINE "('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint"
#define NAME_DOUBT "t || '.' || " CLOCK
#define UNSETTLED(row) "CASE WHEN e.server IN ('', " row ") THEN '' ELSE e.server END"

/* For this transaction only, since behind a pooler a session's settings are others' too. $1, $2: milliseconds. A server
 * that crashed must not show an older renewal again: to who has not seen the newer one, the leader's term would seem to
 * end too soon. $3: the question's stamp, which comes back, since answers do not say what they answer, and one may come
 * twice. */
static const char settings[] =
	"SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $2, true), set_config('synchronous_commit', "
	"CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true), $3";

struct limits {
	char statement[16], lock[16];
	const char *values[3];
};

/* A new term waits for transactions that hold the row, but not so long that another lock's, behind it, is late. */
static int patience_ms(const struct pg_lock *l, int left_ms)
{
	if (!l->op.writing || !l->acquiring)
		return left_ms / 5;
	return l->server->locks == 1 || pg_link_asked(l->link) == 0 ? left_ms * 3 / 5 : left_ms / 10;
}

static struct pg_statement limit(const struct pg_lock *l, struct limits *to)
{
	int left = lock_op_left_ms(&l->op), wait = patience_ms(l, left);

	snprintf(to->statement, sizeof to->statement, "%d", left < 100 ? 100 : left);
	snprintf(to->lock, sizeof to->lock, "%d", wait < 100 ? 100 : wait);
	to->values[0] = to->statement;
	to->values[1] = to->lock;
	to->values[2] = l->stamp;
	return (struct pg_statement){ .sql = settings, .count = 3, .values = to->values, .again = true };
}

static void send_read(struct pg_lock *l)
{
	struct limits limits = { .values = { NULL } };
	char *sql =
		mem_printf("SELECT CASE WHEN octet_length(record) <= %d THEN record END, " VERSION
	                   ", token, octet_length(record), "
	                   "(SELECT " UNSETTLED("r.server") " FROM %s e WHERE e.name = '') FROM %s r WHERE name = $1",
	                   RECORD_MAX_BYTES, l->quoted, l->quoted);
	const char *const values[] = { l->name };
	const struct pg_statement all[] = { limit(l, &limits), { sql, 1, values, true } };

	pg_link_send(l->link, &l->call, 2, all);
	free(sql);
}

/* A server that was promoted may lack the terms before, and its clock may be behind: $8 is the largest token that we
 * have seen. */
#define LARGER "greatest(" CLOCK ", $8::bigint + 1"

/* $1 name, $2 record, $3 the version expected, $4 channel, $5 our name, $6 the doubt that we have waited out, $7
 * whether what is there is our own term's. The answer's last column: '?' is a timeline that the table does not know
 * yet, else its doubt. */
static char *write_sql(const struct pg_lock *l, const char *timeline)
{
	struct buf b = { 0 };
	bool there = *l->expected.text;

	buf_adds(&b, "WITH w AS (");
	if (there)
		buf_printf(
			&b,
			"UPDATE %s AS r SET record = $2, changed = clock_timestamp(), server = CASE WHEN $6 = '' THEN r.server ELSE $6 END%s "
			"WHERE name = $1 AND " VERSION " = $3",
			l->quoted, l->acquiring ? ", token = " LARGER ", r.token + 1)" : "");
	else
		buf_printf(&b,
		           "INSERT INTO %s (name, record, token, changed, server) SELECT $1, $2, " LARGER
		           "), clock_timestamp(), $6 "
		           "WHERE $3 = ''",
		           l->quoted);
	buf_adds(&b, " AND $7::boolean IS NOT NULL AND $8::bigint IS NOT NULL");
	if (l->acquiring)
		buf_printf(
			&b,
			" AND ($7::boolean OR EXISTS (SELECT 1 FROM %s e WHERE e.name = '' AND e.token = %s AND e.server IN ('', $6%s)))",
			l->quoted, timeline, there ? ", r.server" : "");
	buf_printf(&b,
	           "%s RETURNING " VERSION " AS version, token, server) SELECT version, token, pg_notify($4, $5), "
	           "(SELECT CASE WHEN e.token <> %s THEN '?' ELSE " UNSETTLED(
			   "w.server") " END FROM %s e WHERE e.name = '') FROM w",
	           there ? "" : " ON CONFLICT (name) DO NOTHING", timeline, l->quoted);
	return b.data;
}

static const char *timeline_of(const struct pg_lock *l)
{
	return pg_link_timed(l->link) ? TIMELINE : "0";
}

/* values: write_sql's. */
static void send_swap(const struct pg_lock *l, struct lock_call *c, const char *const values[])
{
	const char *timeline = timeline_of(l), *const which[] = { values[0], values[5] };
	struct limits limits = { .values = { NULL } };
	char *sql = write_sql(l, timeline);
	char *why = mem_printf("SELECT e.token = %s, " UNSETTLED(
				       "$2, (SELECT r.server FROM %s r WHERE r.name = $1)") " FROM %s e "
	                                                                                    "WHERE e.name = ''",
	                       timeline, l->quoted, l->quoted);
	const struct pg_statement all[] = { limit(l, &limits), { sql, 8, values, true }, { why, 2, which, true } };

	pg_link_send(l->link, c, l->acquiring ? 3 : 2, all);
	free(sql);
	free(why);
}

static void send_write(struct pg_lock *l)
{
	struct instant now = clock_now();
	char floor[24];

	lock_failover_sends(&l->doubt, l->leads, l->lease, now);
	snprintf(floor, sizeof floor, "%" PRId64, l->lock.token_floor);
	const char *const values[] = { l->name,
		                       l->text,
		                       l->expected.text,
		                       l->channel,
		                       l->member.name,
		                       lock_failover_over(&l->doubt, l->lease, now),
		                       lock_failover_own(&l->doubt, &l->expected, now) ? "t" : "f",
		                       floor };

	send_swap(l, &l->call, values);
}

/* A session's first writes take it milliseconds of looking up and planning: done beforehand, with ones that find
 * nothing to change, no handover waits for it. What is done twice is prepared. */
static void rehearse(struct pg_server *s, bool acquiring, int pool)
{
	const char *const values[] = { "", "", "none", "", "", "", "f", "0" };
	const struct pg_lock like = { .server = s,
		                      .link = s->pools[pool],
		                      .quoted = s->table,
		                      .expected = { .text = "none" },
		                      .op = { .writing = true },
		                      .acquiring = acquiring };

	if (s->table && pg_link_is_up(s->pools[pool]))
		send_swap(&like, NULL, values);
}

static void rehearse_soon(struct pg_server *s)
{
	ev_timer_stop(s->hub->env->loop, &s->settled);
	ev_timer_set(&s->settled, 0.1, 0.);
	ev_timer_start(s->hub->env->loop, &s->settled);
}

/* Not now: who leads is waited for. */
static void led(struct pg_server *s)
{
	s->leads = true;
	if (!s->rehearsed)
		rehearse_soon(s);
}

/* A server that was never promoted cannot have lost what was in the table before it was made. */
static void send_create(struct pg_lock *l)
{
	struct limits limits = { .values = { NULL } };
	char *table = mem_printf(
		"CREATE TABLE IF NOT EXISTS %s (name text PRIMARY KEY, token bigint NOT NULL, record text NOT NULL, "
		"changed timestamptz NOT NULL, server text NOT NULL, UNIQUE (name, token)) WITH (fillfactor = 50)",
		l->quoted);
	char *mark = mem_printf(
		"INSERT INTO %s SELECT '', t, 'timeline', clock_timestamp(), CASE WHEN t <= 1 THEN '' ELSE " NAME_DOUBT
		" END "
		"FROM (SELECT %s AS t) AS now ON CONFLICT (name) DO NOTHING",
		l->quoted, timeline_of(l));
	const struct pg_statement all[] = { limit(l, &limits), { .sql = table }, { .sql = mark } };

	pg_link_send(l->link, &l->call, 3, all);
	free(table);
	free(mark);
}

/* Another timeline than the table knows: whoever sees it first names the doubt, for all. */
static void send_mark(struct pg_lock *l, struct lock_call *call)
{
	struct limits limits = { .values = { NULL } };
	char *mark = mem_printf(
		"INSERT INTO %s AS m SELECT '', t, 'timeline', clock_timestamp(), " NAME_DOUBT
		" FROM (SELECT %s AS t) AS now "
		"ON CONFLICT (name) DO UPDATE SET token = excluded.token, changed = excluded.changed, server = excluded.server "
		"WHERE m.token <> excluded.token",
		l->quoted, timeline_of(l));
	const struct pg_statement all[] = { limit(l, &limits), { .sql = mark } };

	pg_link_send(l->link, call, 2, all);
	free(mark);
}

static void send_remove(struct pg_lock *l)
{
	struct limits limits = { .values = { NULL } };
	char *sql = mem_printf("DELETE FROM %s WHERE name = $1 AND " VERSION " = $2 RETURNING name", l->quoted);
	const char *const values[] = { l->name, l->expected.text };
	const struct pg_statement all[] = { limit(l, &limits), { sql, 2, values } };

	lock_failover_sends(&l->doubt, false, 0, l->op.sent_at);
	pg_link_send(l->link, &l->call, 2, all);
	free(sql);
}

static void send_inquiry(struct pg_lock *l)
{
	struct limits limits = { .values = { NULL } };
	const struct pg_statement all[] = {
		limit(l, &limits),
		{
			.sql = "SELECT current_setting('server_version'), current_setting('fsync'), current_setting('full_page_writes'), "
			       "current_setting('synchronous_standby_names') <> '', (SELECT count(*) FROM pg_stat_replication)",
		}
	};

	pg_link_send(l->link, &l->call, 2, all);
}

static void on_ready(struct lock_call *c)
{
	struct pg_lock *l = (struct pg_lock *)(void *)((char *)c - offsetof(struct pg_lock, call));

	snprintf(l->stamp, sizeof l->stamp, "%" PRIu64, ++l->server->hub->asked);
	if (l->stage == ASK)
		lock_op_sent(&l->op);
	if (l->stage == CREATE)
		send_create(l);
	else if (l->stage == MARK)
		send_mark(l, &l->call);
	else if (l->stage == INQUIRE)
		send_inquiry(l);
	else if (l->removing)
		send_remove(l);
	else if (l->op.writing)
		send_write(l);
	else
		send_read(l);
}

static void ask(struct pg_lock *l, enum stage stage)
{
	bool apart = l->op.writing && l->acquiring && l->server->locks > 1;

	l->stage = stage;
	l->link = l->server->pools[apart ? TERMS : RENEWALS];
	pg_link_want(l->link, &l->call);
}

/* ---- answers ---- */

static void finish(struct pg_lock *l, struct lock_result *r)
{
	free(l->text);
	l->text = NULL;
	lock_op_finish(&l->op, r);
}

__attribute__((format(printf, 4, 5))) static void fail(struct pg_lock *l, enum lock_outcome outcome, enum err_code code,
                                                       const char *fmt, ...)
{
	struct lock_result r = { .outcome = outcome };
	char text[700];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	err_set(&r.err, code, "%s", text);
	finish(l, &r);
}

/* SQLSTATEs, whole or by class (PostgreSQL, appendix A). An error undoes the transaction, but for those of a server
 * that shuts down, which can come when it is committed already. */
static const struct refusal {
	const char *state;
	enum lock_outcome outcome;
	enum err_code code;
	const char *advice;
} refusals[] = {
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

static const char *state_of(const PGresult *r)
{
	const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);

	return state ? state : "08";
}

static bool is_missing_table(const char *state)
{
	return strcmp(state, "42P01") == 0;
}

/* Two that make the table at once: one of them is told that it is there, in one way or another. */
static bool is_made_already(const char *state)
{
	return strcmp(state, "42P07") == 0 || strcmp(state, "42710") == 0 || strcmp(state, "23505") == 0;
}

/* stamped: the answer is surely this question's. */
static void on_error(struct pg_lock *l, const PGresult *r, bool stamped)
{
	const char *state = state_of(r), *said = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
	const struct refusal *f = refusals;

	if (l->stage == ASK && is_missing_table(state) && !l->op.writing) {
		finish(l, &(struct lock_result){ .outcome = LOCK_ABSENT });
		return;
	}
	if (l->stage == ASK && is_missing_table(state) && *l->expected.text) {
		finish(l, &(struct lock_result){ .outcome = LOCK_CONFLICT });
		return;
	}
	if ((l->stage == ASK && is_missing_table(state) && !l->created) ||
	    (l->stage == CREATE && is_made_already(state))) {
		bool make = l->stage == ASK;
		l->created = true;
		ask(l, make ? CREATE : ASK);
		return;
	}
	while (strncmp(state, f->state, strlen(f->state)) != 0)
		f++;
	enum lock_outcome outcome = l->op.writing                ? f->outcome
	                            : f->outcome == LOCK_REFUSED ? LOCK_REFUSED
	                                                         : LOCK_FAILED;
	if (l->op.writing && !stamped)
		outcome = LOCK_UNKNOWN;
	if (outcome == LOCK_UNKNOWN && l->stage != ASK)
		outcome = LOCK_FAILED;
	fail(l, outcome, f->code, "the server says: %s (SQLSTATE %s)%s", said ? said : "nothing", state, f->advice);
}

static void found(struct pg_lock *l, const PGresult *r)
{
	char what[400];

	snprintf(what, sizeof what, "the row '%.200s' of %.150s", l->name, l->table);
	lock_failover_see(&l->doubt, PQgetvalue(r, 0, 4), clock_now());
	if (PQgetisnull(r, 0, 0))
		fail(l, LOCK_FOREIGN, ERR_INVALID,
		     "%s has a record of %s bytes, which is no election record. It is not touched", what,
		     PQgetvalue(r, 0, 3));
	else
		lock_op_found(&l->op, what, PQgetvalue(r, 0, 0), (size_t)PQgetlength(r, 0, 0), PQgetvalue(r, 0, 1),
		              strtoll(PQgetvalue(r, 0, 2), NULL, 10));
}

/* Another term than the one it shows may have been lost with the server before. */
static void in_doubt(struct pg_lock *l, const char *mark)
{
	struct instant now = clock_now();

	lock_failover_see(&l->doubt, mark, now);
	fail(l, LOCK_FAILED, ERR_UNREACHABLE,
	     "the server was promoted and may have lost a leader's record: nobody is elected for another %.1f s",
	     (double)lock_failover_left(&l->doubt, l->lease, now) / NSEC_PER_SEC);
}

/* Nothing was changed, since the row is another, or because of the timeline. */
static void not_written(struct pg_lock *l, const PGresult *why)
{
	bool here = why && PQntuples(why) == 1 && strcmp(PQgetvalue(why, 0, 0), "t") == 0;

	if (why && !here && l->marked)
		fail(l, LOCK_FAILED, ERR_UNREACHABLE, "the server's timeline changes all the time");
	else if (why && !here)
		ask(l, MARK);
	else if (why && *PQgetvalue(why, 0, 1))
		in_doubt(l, PQgetvalue(why, 0, 1));
	else
		finish(l, &(struct lock_result){ .outcome = LOCK_CONFLICT });
}

/* A leader whose term goes on after a promotion names the doubt, so that it is over when he hands over. */
static void learn(struct pg_lock *l, const char *mark)
{
	if (strcmp(mark, "?") == 0)
		send_mark(l, NULL);
	else
		lock_failover_see(&l->doubt, mark, clock_now());
}

static void written(struct pg_lock *l, const struct pg_answer *a)
{
	const PGresult *r = a->results[1];
	struct lock_result result = { .outcome = LOCK_OK };

	if (PQntuples(r) == 0) {
		not_written(l, l->acquiring ? a->results[2] : NULL);
		return;
	}
	snprintf(result.version.text, sizeof result.version.text, "%s", PQgetvalue(r, 0, 0));
	if (l->acquiring)
		result.token = strtoll(PQgetvalue(r, 0, 1), NULL, 10);
	learn(l, PQgetvalue(r, 0, 3));
	lock_failover_wrote(&l->doubt, &result.version, l->leads, l->lease, l->op.sent_at);
	if (l->acquiring)
		led(l->server);
	finish(l, &result);
}

/* What of its settings can lose a record that it has acknowledged. */
static void judge(struct lock_about *about, const PGresult *r)
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

static void removed(struct pg_lock *l, const PGresult *r)
{
	finish(l, &(struct lock_result){ .outcome = PQntuples(r) == 1 ? LOCK_OK : LOCK_CONFLICT });
}

static bool is_stamped(const struct pg_lock *l, const PGresult *r)
{
	return PQntuples(r) == 1 && PQnfields(r) == 4 && strcmp(PQgetvalue(r, 0, 3), l->stamp) == 0;
}

/* At most a row, of so many columns: what is not there libpq gives as NULL. */
static bool is_row(const PGresult *r, int columns)
{
	return PQresultStatus(r) == PGRES_TUPLES_OK && PQnfields(r) == columns && PQntuples(r) <= 1;
}

static bool fits(const struct pg_lock *l, const struct pg_answer *a)
{
	if (l->stage == CREATE || l->stage == MARK)
		return true;
	if (l->stage == INQUIRE)
		return is_row(a->results[1], 5) && PQntuples(a->results[1]) == 1;
	if (!l->op.writing)
		return is_row(a->results[1], 5);
	return l->removing ? is_row(a->results[1], 1)
	                   : is_row(a->results[1], 4) && (!l->acquiring || is_row(a->results[2], 2));
}

static void mixed_up(struct pg_lock *l)
{
	pg_link_drop(l->link, ERR_INVALID, LOCK_QUEUE_MIXED_UP);
	fail(l, l->op.writing && l->stage == ASK ? LOCK_UNKNOWN : LOCK_FAILED, ERR_INVALID, LOCK_QUEUE_MIXED_UP);
}

static void on_answered(struct lock_call *c, const void *answer)
{
	struct pg_lock *l = (struct pg_lock *)(void *)((char *)c - offsetof(struct pg_lock, call));
	const struct pg_answer *a = answer;
	bool stamped = is_stamped(l, a->results[0]);

	if (a->error ? !stamped && a->error != a->results[0] : !stamped || !fits(l, a))
		mixed_up(l);
	else if (a->error)
		on_error(l, a->error, stamped);
	else if (l->stage == CREATE || l->stage == MARK) {
		l->marked = l->stage == MARK;
		ask(l, ASK);
	} else if (l->removing)
		removed(l, a->results[1]);
	else if (l->op.writing)
		written(l, a);
	else if (l->stage == INQUIRE) {
		judge(l->about, a->results[1]);
		finish(l, &(struct lock_result){ .outcome = LOCK_OK });
	} else if (PQntuples(a->results[1]) == 0)
		finish(l, &(struct lock_result){ .outcome = LOCK_ABSENT });
	else
		found(l, a->results[1]);
}

/* What only looks is repeated once: a connection that was idle may have been cut long ago. */
static void on_lost(struct lock_call *c, bool sent, enum lock_outcome outcome, const struct err *why)
{
	struct pg_lock *l = (struct pg_lock *)(void *)((char *)c - offsetof(struct pg_lock, call));
	bool unknown = l->op.writing && sent && l->stage == ASK;

	if (!l->op.writing && sent && !l->again && lock_op_left_ms(&l->op) > 1) {
		l->again = true;
		ask(l, l->stage == INQUIRE ? INQUIRE : ASK);
		return;
	}
	fail(l, unknown ? LOCK_UNKNOWN : outcome, why->code, "%s", why->text);
}

static void on_detach(struct lock_op *op)
{
	struct pg_lock *l = (struct pg_lock *)(void *)((char *)op - offsetof(struct pg_lock, op));

	free(l->text);
	l->text = NULL;
	pg_link_forget(l->link, &l->call, instant_passed(op->by, clock_now()));
}

/* ---- notices ---- */

static void listen_to(struct pg_server *s, const char *command, const char *channel)
{
	char sql[80];

	snprintf(sql, sizeof sql, "%s %s", command, channel);
	pg_link_send(s->pools[RENEWALS], NULL, 1, &(struct pg_statement){ .sql = sql });
}

/* The server carries it out before any look that follows on this connection. */
static void listen_again(void *arg, const struct lock_channel *c)
{
	struct pg_server *s = arg;

	listen_to(s, "LISTEN", c->name);
	if (s->was_up)
		lock_board_tell(&s->board, c->name, NULL);
}

static void on_up(void *arg)
{
	struct pg_server *s = arg;

	if (pg_link_pooled(s->pools[RENEWALS]))
		lock_board_deafen(&s->board);
	else
		lock_board_each(&s->board, listen_again, s);
	s->was_up = true;
	s->refusals = 0;
	rehearse_soon(s);
}

static void on_settled(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct pg_server *s = w->data;

	(void)loop;
	(void)revents;
	if (s->leads && !s->rehearsed) {
		s->rehearsed = true;
		rehearse(s, false, RENEWALS);
	} else if (s->locks == 1) {
		rehearse(s, true, RENEWALS);
	}
}

static void on_terms_up(void *arg)
{
	rehearse(arg, true, TERMS);
}

static void on_down(void *arg, enum lock_outcome why)
{
	struct pg_server *s = arg;

	s->leads = s->rehearsed = false;
	ev_timer_stop(s->hub->env->loop, &s->settled);
	ev_timer_set(&s->raise, lock_channel_again_s(&s->refusals, why), 0.);
	ev_timer_start(s->hub->env->loop, &s->raise);
}

static void on_raise(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct pg_server *s = w->data;

	(void)loop;
	(void)revents;
	if (s->board.channels)
		pg_link_raise(s->pools[RENEWALS]);
}

static void on_notice(void *arg, const char *channel, const char *payload)
{
	struct pg_server *s = arg;

	lock_board_tell(&s->board, channel, payload);
}

static void leave_channel(struct pg_lock *l)
{
	char *channel;

	if (!lock_member_leave(&l->member, &channel))
		return;
	listen_to(l->server, "UNLISTEN", channel);
	free(channel);
}

/* A name of letters and digits; two locks with the same one are told of each other's changes, which does no harm. */
static void name_channel(struct pg_lock *l)
{
	uint64_t h = hash_fnv(HASH_FNV_SEED, l->quoted, strlen(l->quoted));

	h = hash_fnv(h, l->name, strlen(l->name));
	snprintf(l->channel, sizeof l->channel, "lunarch_%016" PRIx64, h);
}

/* ---- servers ---- */

static const struct pg_link_events renewal_events = { .up = on_up, .down = on_down, .notice = on_notice };
static const struct pg_link_events term_events = { .up = on_terms_up };

static const char hub_key;

static void *make_hub(struct lock_env *env, struct err *err)
{
	struct pg_hub *h = mem_zero(sizeof *h);

	(void)err;
	h->env = env;
	return h;
}

/* Takes place. */
static struct pg_server *server_get(struct pg_hub *h, struct pg_place *place)
{
	struct pg_server *s;

	for (s = h->servers; s; s = s->next)
		if (pg_place_same(s->place, place))
			break;
	if (s) {
		pg_place_free(place);
	} else {
		s = mem_zero(sizeof *s);
		*s = (struct pg_server){
			.next = h->servers, .hub = h, .place = place, .board = { .loop = h->env->loop }
		};
		s->pools[RENEWALS] = pg_link_new(h->env, place, &renewal_events, s);
		s->pools[TERMS] = pg_link_new(h->env, place, &term_events, s);
		ev_init(&s->raise, on_raise);
		ev_init(&s->settled, on_settled);
		s->raise.data = s->settled.data = s;
		h->servers = s;
	}
	s->locks++;
	return s;
}

static void server_put(struct pg_server *s)
{
	struct pg_server **at = &s->hub->servers;

	if (--s->locks)
		return;
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	ev_timer_stop(s->hub->env->loop, &s->raise);
	ev_timer_stop(s->hub->env->loop, &s->settled);
	for (int i = 0; i < LANES; i++)
		pg_link_free(s->pools[i]);
	free(s->table);
	pg_place_free(s->place);
	free(s);
}

/* ---- the lock ---- */

struct parts {     /* of the text behind "postgres:" */
	char *uri; /* for libpq */
	char *name, *table;
};

static void parts_fini(struct parts *p)
{
	if (p->uri)
		explicit_bzero(p->uri, strlen(p->uri));
	free(p->uri);
	free(p->name);
	free(p->table);
}

/* Our own option is taken out of the query; libpq knows the others. */
static const char *split_query(struct parts *p, const char *query, size_t len, struct buf *uri)
{
	const char *end = query + len, *before = "?";

	while (query < end) {
		const char *stop = memchr(query, '&', (size_t)(end - query));
		size_t n = (size_t)((stop ? stop : end) - query);
		if (n > 6 && strncmp(query, "table=", 6) == 0) {
			free(p->table);
			p->table = lock_url_decode(query + 6, n - 6);
			if (!p->table)
				return "the table's name has a bad percent escape";
		} else if (n) {
			buf_adds(uri, before);
			buf_add(uri, query, n);
			before = "&";
		}
		query += n + 1;
	}
	return NULL;
}

/* NULL: fine; else what is wrong. */
static const char *split(struct parts *p, const char *text)
{
	const char *hash = strrchr(text, '#');
	struct buf uri = { 0 };

	if (strncmp(text, "//", 2) != 0)
		return "expected a libpq URI, as //USER@HOST:PORT/DATABASE#NAME";
	if (!hash || !hash[1])
		return "the lock's name is missing: it stands behind a #, as in //USER@HOST:PORT/DATABASE#NAME";
	p->name = lock_url_decode(hash + 1, strlen(hash + 1));
	if (!p->name)
		return "the lock's name has a bad percent escape";
	const char *query = memchr(text, '?', (size_t)(hash - text));
	buf_adds(&uri, "postgresql:");
	buf_add(&uri, text, (size_t)((query ? query : hash) - text));
	const char *wrong = query ? split_query(p, query + 1, (size_t)(hash - query - 1), &uri) : NULL;
	p->uri = uri.data;
	return wrong;
}

static char *shown_url(const struct pg_place *place, const struct parts *p)
{
	char *at = pg_place_print(place);
	struct buf b = { 0 };

	buf_adds(&b, at);
	if (p->table) {
		buf_adds(&b, "?table=");
		lock_url_encode(&b, p->table, "");
	}
	buf_adds(&b, "#");
	lock_url_encode(&b, p->name, "/{}:@!$&'()*+,;=");
	free(at);
	return b.data;
}

static const struct lock_ops ops;

static struct lock *make(struct pg_hub *h, struct pg_place *place, const struct parts *p)
{
	struct pg_lock *l = mem_zero(sizeof *l);

	*l = (struct pg_lock){
		.lock = { .ops = &ops, .url = shown_url(place, p) },
		.name = mem_dup(p->name),
		.table = mem_dup(p->table ? p->table : TABLE),
		.call = { .ready = on_ready, .answered = on_answered, .lost = on_lost },
	};
	l->quoted = pg_quote_table(l->table);
	name_channel(l);
	l->server = server_get(h, place);
	lock_member_init(&l->member, &l->server->board);
	return &l->lock;
}

static struct lock *open_lock(struct lock_env *env, const char *text, struct err *err)
{
	struct pg_hub *h = lock_env_share(env, &hub_key, make_hub, free, err);
	struct parts p = { 0 };
	const char *wrong = split(&p, text);
	struct pg_place *place = wrong ? NULL : pg_place_new(p.uri, err);
	struct lock *l = place ? make(h, place, &p) : NULL;

	if (wrong)
		err_set(err, ERR_USAGE, "%s", wrong);
	if (!l) {
		char *shown = lock_url_redact(text);
		err_wrap(err, "lock \"%s:%s\"", ops.scheme, shown);
		free(shown);
	}
	parts_fini(&p);
	return l;
}

static void begin(struct pg_lock *l, bool writing, struct instant by, lock_done_fn *done, void *arg)
{
	lock_op_begin(&l->op, l->server->hub->env, &l->lock, on_detach, writing, by, done, arg);
	l->op.doubt = &l->doubt;
	l->again = l->created = l->marked = l->removing = false;
}

static void read_record(struct lock *lock, struct instant by, lock_done_fn *done, void *arg)
{
	struct pg_lock *l = of(lock);

	begin(l, false, by, done, arg);
	ask(l, ASK);
}

static void write_record(struct lock *lock, const struct record *r, const struct version *expected, bool durable,
                         struct instant by, lock_done_fn *done, void *arg)
{
	struct pg_lock *l = of(lock);

	(void)durable; /* always */
	begin(l, true, by, done, arg);
	l->acquiring = r->token == 0;
	if (l->acquiring)
		lock_member_rename(&l->member);
	if (!lock_op_print(&l->op, r, &l->text))
		return;
	l->expected = *expected;
	l->leads = r->state == RECORD_LEADING && *r->holder;
	l->lease = r->lease_ms * NSEC_PER_MS;
	ask(l, ASK);
}

static void remove_record(struct lock *lock, const struct version *expected, struct instant by, lock_done_fn *done,
                          void *arg)
{
	struct pg_lock *l = of(lock);

	begin(l, true, by, done, arg);
	l->acquiring = false;
	l->removing = true;
	l->expected = *expected;
	ask(l, ASK);
}

static void ask_server(struct lock *lock, struct lock_about *about, struct instant by, lock_done_fn *done, void *arg)
{
	struct pg_lock *l = of(lock);

	begin(l, false, by, done, arg);
	l->about = about;
	ask(l, INQUIRE);
}

static void cancel(struct lock *lock)
{
	lock_op_cancel(&of(lock)->op);
}

static bool watch(struct lock *lock, lock_changed_fn *changed, void *arg)
{
	struct pg_lock *l = of(lock);
	struct pg_server *s = l->server;
	const struct lock_channel *fresh = lock_member_enter(&l->member, l->channel, changed, arg);

	if (fresh && pg_link_is_up(s->pools[RENEWALS]) && !s->board.deaf)
		listen_to(s, "LISTEN", fresh->name);
	else if (fresh && !ev_is_active(&s->raise))
		pg_link_raise(s->pools[RENEWALS]);
	if (fresh && !s->table)
		s->table = mem_dup(l->quoted);
	if (fresh && s->locks > 1) /* or the first handover would wait for it */
		pg_link_raise(s->pools[TERMS]);
	return !s->board.deaf;
}

static void close_lock(struct lock *lock)
{
	struct pg_lock *l = of(lock);

	lock_op_cancel(&l->op);
	leave_channel(l);
	server_put(l->server);
	free(l->name);
	free(l->table);
	free(l->quoted);
	free(l->lock.url);
	free(l);
}

static const struct lock_ops ops = {
	.scheme = "postgres",
	.open = open_lock,
	.read = read_record,
	.write = write_record,
	.cancel = cancel,
	.watch = watch,
	.close = close_lock,
	.about = ask_server,
	.remove = remove_record,
	.key_last = true,
};
static const struct lock_ops long_ops = { .scheme = "postgresql", .open = open_lock };

static const struct lock_ops *const locks[] = { &ops, &long_ops, NULL };

static void name_libraries(struct buf *out)
{
	int v = PQlibVersion();

	buf_printf(out, "libpq %d.%d", v / 10000, v % 10000);
}

const struct module lunarch_module = { .build = LUNARCH_BUILD, .libraries = name_libraries, .locks = locks };
