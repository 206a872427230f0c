#include "locks/postgres/pg_link.h"

#include "base/hash.h"
#include "base/mem.h"
#include "locks/postgres/pg_login.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define ATTEMPT (4 * NSEC_PER_SEC) /* to look up, connect, log in and greet */
#define RECEIVE_BYTES (64 * 1024)
#define PREPARED 12 /* statements of a connection: a table has seven */

/* Planning takes the server longer than carrying out, so what comes again is planned once for a session. */
struct pg_prepared {
	char *sql; /* NULL: a free place */
	char name[32];
	enum { PG_ASKED, PG_READY, PG_FAILED } state;
	uint64_t question; /* that asks for it */
};

struct pg_link {
	struct lock_link link; /* first */
	struct pg_place *place;
	const struct pg_link_events *events;
	struct pg_login *login;
	PGconn *conn; /* NULL: not logged in */
	struct pg_meter meter;
	struct lock_call greeting; /* forgotten when the link closes, so it is never lost */
	struct pg_answer answer;   /* being collected */
	uint64_t asked, answered;  /* questions of this connection */
	struct pg_prepared prepared[PREPARED];
	bool plain; /* nothing is prepared (any more): another session may get the next statement */
	bool pooled, timed;
	int cleared; /* of `clears`, so many have been answered for the question at hand */
};

/* ---- going down ---- */

static void link_clear_answer(struct pg_link *k)
{
	for (int i = 0; i < k->answer.count; i++)
		PQclear(k->answer.results[i]);
	k->answer = (struct pg_answer){ .count = 0 };
}

static void link_close(struct lock_link *link)
{
	struct pg_link *k = (struct pg_link *)link;

	link_clear_answer(k);
	lock_pipeline_forget(&link->queue, &k->greeting);
	for (struct pg_prepared *p = k->prepared; p < k->prepared + PREPARED && p->sql; p++) {
		free(p->sql);
		p->sql = NULL;
	}
	k->plain = k->pooled = false;
	k->cleared = 0;
	k->asked = k->answered = 0;
	pg_login_cancel(k->login);
	if (k->conn)
		PQfinish(k->conn);
	k->conn = NULL;
}

static void link_lose_said(struct pg_link *k)
{
	struct err why;
	enum lock_outcome outcome = pg_login_judge(k->conn, &why);

	lock_link_lose(&k->link, outcome, why.code, "%s", why.text);
}

/* ---- questions ---- */

/* An error is the reader's to see. */
static void link_send(struct lock_link *link)
{
	const struct pg_link *k = (struct pg_link *)link;

	if (link->state == LOCK_LINK_DIALING) {
		pg_login_step(k->login);
		return;
	}
	int left = PQflush(k->conn);
	lock_link_wait(link, PQsocket(k->conn), left > 0 ? EV_READ | EV_WRITE : EV_READ);
}

/* Where this statement is, or a free place; NULL: there is none left. */
static struct pg_prepared *link_place_of(struct pg_link *k, const char *sql)
{
	for (struct pg_prepared *p = k->prepared; p < k->prepared + PREPARED; p++)
		if (!p->sql || strcmp(p->sql, sql) == 0)
			return p;
	return NULL;
}

/* Statements of the same name have the same text, whoever's session it is. */
static bool link_prepare(struct pg_link *k, struct pg_prepared *p, const struct pg_statement *s)
{
	if (!p->sql) {
		p->sql = mem_dup(s->sql);
		snprintf(p->name, sizeof p->name, "lunarch_%016" PRIx64,
		         hash_fnv(HASH_FNV_SEED, s->sql, strlen(s->sql)));
	}
	p->state = PG_ASKED;
	p->question = k->asked;
	return PQsendPrepare(k->conn, p->name, s->sql, s->count, NULL);
}

/* Whether it is prepared the server does not say while a question that asks for that is under way. */
static bool link_ask_one(struct pg_link *k, const struct pg_statement *s)
{
	struct pg_prepared *p = s->again && !k->plain ? link_place_of(k, s->sql) : NULL;

	if (!p || (p->sql && p->state == PG_ASKED))
		return PQsendQueryParams(k->conn, s->sql, s->count, NULL, s->values, NULL, NULL, 0);
	if ((!p->sql || p->state == PG_FAILED) && !link_prepare(k, p, s))
		return false;
	return PQsendQueryPrepared(k->conn, p->name, s->count, s->values, NULL, NULL, 0);
}

/* What another client may have left on a pooler's session as the kind of each transaction. They hold for the
 * transaction at hand (which SET LOCAL would have to be in a block for), and only before its first look at the data. */
static const char *const clears[] = { "SET transaction_isolation = 'read committed'",
	                              "SET transaction_read_only = off" };
#define CLEARS ((int)(sizeof clears / sizeof *clears))

static void link_ask(struct pg_link *k, struct lock_call *c, int count, const struct pg_statement *s)
{
	bool good = true;

	for (int i = 0; good && k->pooled && i < CLEARS; i++)
		good = link_ask_one(k, &(struct pg_statement){ .sql = clears[i] });
	for (; good && count--; s++)
		good = link_ask_one(k, s);
	k->asked++;
	lock_pipeline_push(&k->link.queue, c);
	if (good && PQpipelineSync(k->conn))
		link_send(&k->link);
	else
		lock_link_poke(&k->link); /* the connection is broken: seen from the loop */
}

/* ---- answers ---- */

/* The first one that the question at hand asks for is, or, if not all of them are when it ends, the others are not. */
static void link_note_prepared(struct pg_link *k, bool ends)
{
	for (struct pg_prepared *p = k->prepared; p < k->prepared + PREPARED && p->sql; p++) {
		if (p->state != PG_ASKED || p->question != k->answered)
			continue;
		p->state = ends ? PG_FAILED : PG_READY;
		if (!ends)
			return;
	}
}

static void link_deliver(struct pg_link *k)
{
	struct pg_answer a = k->answer;
	struct lock_call *c = lock_pipeline_pop(&k->link.queue);

	link_note_prepared(k, true);
	k->answered++;
	k->cleared = 0;
	k->answer = (struct pg_answer){ .count = 0 };
	pg_meter_end(&k->meter);
	if (c)
		c->answered(c, &a);
	for (int i = 0; i < a.count; i++)
		PQclear(a.results[i]);
}

static bool result_is_one_of(const PGresult *r, const char *const *states)
{
	const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);

	while (state && *states && strcmp(state, *states) != 0)
		states++;
	return state && *states;
}

static void link_collect(struct pg_link *k, PGresult *r)
{
	/* The session is not ours alone after all, or the table is another now: what is prepared is of no use. */
	static const char *const useless[] = { "26000", "42P05", "0A000", NULL };
	ExecStatusType status = PQresultStatus(r);
	struct pg_answer *a = &k->answer;

	k->plain = k->plain || result_is_one_of(r, useless);
	if (status == PGRES_PIPELINE_SYNC) {
		PQclear(r);
		link_deliver(k);
		return;
	}
	if (status == PGRES_COMMAND_OK && !*PQcmdStatus(r)) { /* of PQsendPrepare: all else is a command with a name */
		PQclear(r);
		link_note_prepared(k, false);
		return;
	}
	if (status == PGRES_COMMAND_OK && k->pooled && k->answered > 0 && k->cleared < CLEARS) {
		k->cleared++;
		PQclear(r);
		return;
	}
	if (status == PGRES_COPY_IN || status == PGRES_COPY_OUT || status == PGRES_COPY_BOTH) {
		PQclear(r); /* which PQgetResult would return for ever */
		lock_link_lose(&k->link, LOCK_FAILED, ERR_INVALID, LOCK_QUEUE_MIXED_UP);
		return;
	}
	if (a->count == PG_STATEMENTS || status == PGRES_PIPELINE_ABORTED) {
		if (status == PGRES_PIPELINE_ABORTED || a->error || status != PGRES_FATAL_ERROR) {
			PQclear(r);
			return;
		}
		PQclear(a->results[--a->count]); /* an error of the commit counts more than what it undid */
	}
	a->results[a->count++] = r;
	if (!a->error && status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
		a->error = r;
}

/* In a pipeline, a NULL follows the results of each statement; two of them say that there is nothing more. */
static void link_take_results(struct pg_link *k)
{
	uint64_t number = k->link.number;
	int nothing = 0;

	while (!lock_link_ended(&k->link, number) && k->link.queue.count && nothing < 2 && !PQisBusy(k->conn)) {
		PGresult *r = PQgetResult(k->conn);
		nothing = r ? 0 : nothing + 1;
		if (r)
			link_collect(k, r);
	}
}

static void link_take_notices(struct pg_link *k)
{
	uint64_t number = k->link.number;
	PGnotify *n;

	while (!lock_link_ended(&k->link, number) && (n = PQnotifies(k->conn))) {
		pg_meter_end(&k->meter);
		if (k->events->notice)
			k->events->notice(k->link.arg, n->relname, n->extra);
		PQfreemem(n);
	}
}

static void link_parse(struct lock_link *link)
{
	struct pg_link *k = (struct pg_link *)link;
	uint64_t number = link->number;

	if (link->state == LOCK_LINK_DIALING) {
		pg_login_step(k->login);
		return;
	}
	pg_meter_begin(&k->meter);
	if (!PQconsumeInput(k->conn)) {
		link_lose_said(k);
		return;
	}
	link_take_results(k);
	if (!lock_link_ended(link, number))
		link_take_notices(k);
	if (!lock_link_ended(link, number) && pg_meter_is_over(&k->meter, k->conn))
		lock_link_lose(link, LOCK_FAILED, ERR_INVALID, PG_METER_OVER);
	if (!lock_link_ended(link, number) &&
	    (PQstatus(k->conn) == CONNECTION_BAD || PQpipelineStatus(k->conn) == PQ_PIPELINE_OFF))
		link_lose_said(k);
}

/* ---- greeting ---- */

static bool result_is_value(const PGresult *r)
{
	return PQntuples(r) == 1 && PQnfields(r) == 1;
}

/* What it shows is older than what is known of the promoted one, and what is written to it is lost. */
static void link_lose_replaced(struct pg_link *k, unsigned timeline)
{
	lock_link_lose(
		&k->link, LOCK_FAILED, ERR_UNREACHABLE,
		"the server is on timeline %u, but %u was seen: it was replaced as the primary, and takes writes all the "
		"same. Shut it down or make it a standby; if it is a new database, start this elector again",
		timeline, k->place->timeline);
}

/* Who serves us: with a pooler in between, that is not whom we logged in to. And the server's timeline, if it can say
 * it: in the name of a file of the log it is the first of three numbers. */
static void link_on_greeted(struct lock_call *c, const void *answer)
{
	struct pg_link *k = (struct pg_link *)(void *)((char *)c - offsetof(struct pg_link, greeting));
	const struct pg_answer *a = answer;
	char digits[9] = "";

	k->pooled = k->plain = a->error == a->results[0] || !result_is_value(a->results[0]) ||
	                       atoi(PQgetvalue(a->results[0], 0, 0)) != PQbackendPID(k->conn);
	if (!a->error && a->count == 2 && result_is_value(a->results[1]))
		snprintf(digits, sizeof digits, "%s", PQgetvalue(a->results[1], 0, 0));
	unsigned timeline = (unsigned)strtoul(digits, NULL, 16);
	k->timed = timeline > 0;
	if (k->timed && timeline < k->place->timeline) {
		link_lose_replaced(k, timeline);
		return;
	}
	if (k->timed)
		k->place->timeline = timeline;
	if (!k->pooled) /* the session is ours: as in `clears` */
		link_ask(k, NULL, 1,
		         &(struct pg_statement){
				 .sql = "SELECT pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', "
					"false), pg_catalog.set_config('default_transaction_isolation', "
					"'read committed', false)" });
	lock_link_up(&k->link);
}

static void link_ignore(void *, const PGresult *)
{
}

static void link_greet(struct lock_link *link)
{
	struct pg_link *k = (struct pg_link *)link;

	/* libpq reads on as long as there is something, up to the end of a message of any length: let there be little
	 * at a time. */
	setsockopt(PQsocket(k->conn), SOL_SOCKET, SO_RCVBUF, &(int){ RECEIVE_BYTES }, sizeof(int));
	lock_link_wait(link, PQsocket(k->conn), EV_READ);
	k->meter = (struct pg_meter){ 0 };
	PQsetNoticeReceiver(k->conn, link_ignore, NULL);
	if (PQsetnonblocking(k->conn, 1) != 0 || !PQenterPipelineMode(k->conn)) {
		link_lose_said(k);
		return;
	}
	k->greeting = (struct lock_call){ .answered = link_on_greeted };
	link_ask(k, &k->greeting, 2,
	         (const struct pg_statement[]){ { .sql = "SELECT pg_catalog.pg_backend_pid()" },
	                                        { .sql = "SELECT pg_catalog.pg_walfile_name("
	                                                 "pg_catalog.pg_current_wal_lsn())" } });
}

/* ---- logging in ---- */

static void link_on_login(struct lock_link *link, PGconn *conn, enum lock_outcome outcome, const struct err *why)
{
	lock_link_enter(link);
	((struct pg_link *)link)->conn = conn;
	if (conn)
		lock_link_dialed(link);
	else
		lock_link_lose(link, outcome, why->code, "%s", why->text);
	lock_link_leave(link);
}

static void link_dial(struct lock_link *link)
{
	pg_login_start(((struct pg_link *)link)->login, instant_add(clock_now(), ATTEMPT));
}

static void link_overdue(struct lock_link *link)
{
	lock_link_lose(link, LOCK_FAILED, ERR_TIMEOUT, "no server could be connected to and logged in to in time");
}

/* ---- the link ---- */

static void link_tick(struct lock_link *link)
{
	const struct pg_link *k = (struct pg_link *)link;

	if (link->state == LOCK_LINK_DIALING)
		pg_login_tick(k->login);
	else if (lock_link_is_up(link) && k->events->tick)
		k->events->tick(link->arg);
}

static void link_free(struct lock_link *link)
{
	pg_login_free(((struct pg_link *)link)->login);
	free(link);
}

static const struct lock_link_ops link_ops = {
	.attempt = ATTEMPT,
	.dial = link_dial,
	.greet = link_greet,
	.send = link_send,
	.parse = link_parse,
	.tick = link_tick,
	.overdue = link_overdue,
	.close = link_close,
	.free = link_free,
};

struct lock_link *pg_link_new(struct lock_env *env, struct pg_place *place, const struct pg_link_events *events,
                              void *arg)
{
	struct pg_link *k = mem_zero(sizeof *k);

	lock_link_init(&k->link, env, NULL, &link_ops, &events->link, arg);
	k->place = place;
	k->events = events;
	k->login = pg_login_new(&k->link, place, link_on_login);
	lock_link_limit_age(&k->link, place->max_age);
	return &k->link;
}

void pg_link_send(struct lock_link *link, struct lock_call *c, int count, const struct pg_statement *statements)
{
	if (lock_link_is_up(link))
		link_ask((struct pg_link *)link, c, count, statements);
}

bool pg_link_pooled(const struct lock_link *link)
{
	return ((const struct pg_link *)link)->pooled;
}

bool pg_link_timed(const struct lock_link *link)
{
	return ((const struct pg_link *)link)->timed;
}
