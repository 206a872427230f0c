#include "locks/postgres/pg_link.h"

#include "base/mem.h"
#include "locks/postgres/pg_login.h"
#include "locks/postgres/pg_meter.h"
#include "locks/postgres/pg_prepared.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#define ATTEMPT (4 * NSEC_PER_SEC) /* to look up, connect, log in and greet */
#define RECEIVE_BYTES (64 * 1024)

struct pg_link {
	struct lock_link link; /* first */
	struct pg_place *place;
	const struct pg_link_events *events;
	struct pg_login *login;
	PGconn *conn; /* NULL: not logged in */
	struct pg_meter meter;
	struct lock_call greeting;
	struct pg_answer answer; /* being collected */
	struct pg_prepared_set prepared;
	bool pooled, timed;
};

static struct pg_link *of(struct lock_link *k)
{
	return (struct pg_link *)k;
}

/* ---- going down ---- */

static void link_clear_answer(struct pg_link *k)
{
	for (int i = 0; i < k->answer.count; i++)
		PQclear(k->answer.results[i]);
	k->answer = (struct pg_answer){ .count = 0 };
}

static void link_close(struct lock_link *link)
{
	struct pg_link *k = of(link);

	link_clear_answer(k);
	lock_pipeline_forget(&link->queue, &k->greeting);
	pg_prepared_clear(&k->prepared, &link->queue);
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
	struct pg_link *k = of(link);

	if (link->state == LOCK_LINK_DIALING) {
		pg_login_step(k->login);
		return;
	}
	int left = PQflush(k->conn);
	lock_link_wait(link, PQsocket(k->conn), left > 0 ? EV_READ | EV_WRITE : EV_READ);
}

static void link_end_question(struct pg_link *k, struct lock_call *c, bool good)
{
	lock_pipeline_push(&k->link.queue, c);
	if (good && PQpipelineSync(k->conn))
		link_send(&k->link);
	else
		lock_link_poke(&k->link); /* the connection is broken: seen from the loop */
}

static void link_ask(struct pg_link *k, struct lock_call *c, int count, const struct pg_statement *s)
{
	bool good = true;

	for (int i = 0; i < count; i++)
		good = good && pg_prepared_send(&k->prepared, k->conn, &s[i]);
	link_end_question(k, c, good);
}

static void link_prepare(struct pg_link *k, const struct pg_statement *s)
{
	bool good;
	struct lock_call *c = pg_prepared_want(&k->prepared, k->conn, s, &good);

	if (c)
		link_end_question(k, c, good);
}

/* ---- answers ---- */

static void link_deliver(struct pg_link *k)
{
	struct pg_answer a = k->answer;
	struct lock_call *c = lock_pipeline_pop(&k->link.queue);

	k->answer = (struct pg_answer){ .count = 0 };
	pg_meter_end(&k->meter);
	if (c)
		c->answered(c, &a);
	for (int i = 0; i < a.count; i++)
		PQclear(a.results[i]);
}

static void link_collect(struct pg_link *k, PGresult *r)
{
	ExecStatusType status = PQresultStatus(r);
	struct pg_answer *a = &k->answer;

	pg_prepared_look(&k->prepared, r);
	if (status == PGRES_PIPELINE_SYNC) {
		PQclear(r);
		link_deliver(k);
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
	struct pg_link *k = of(link);
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

/* Of the name of a file of the log, in which it is the first of three numbers; 0: it cannot be said. */
static unsigned timeline_in(const struct pg_answer *a)
{
	char digits[9] = "";

	if (!a->error && PQntuples(a->results[0]) == 1 && PQnfields(a->results[0]) == 1)
		snprintf(digits, sizeof digits, "%s", PQgetvalue(a->results[0], 0, 0));
	return (unsigned)strtoul(digits, NULL, 16);
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

/* The first answer says who serves us. With a pooler in between, that is not whom we logged in to. */
static void link_on_served(struct pg_link *k, const struct pg_answer *a)
{
	k->pooled = a->error || PQntuples(a->results[0]) != 1 || PQnfields(a->results[0]) != 1 ||
	            atoi(PQgetvalue(a->results[0], 0, 0)) != PQbackendPID(k->conn);
	if (k->pooled)
		pg_prepared_stop(&k->prepared);
	else
		link_ask(k, NULL, 1, &(struct pg_statement){ .sql = "SET plan_cache_mode = force_generic_plan" });
	k->greeting.round = 1;
	link_ask(k, &k->greeting, 1, &(struct pg_statement){ .sql = "SELECT pg_walfile_name(pg_current_wal_lsn())" });
}

/* The second says the timeline, if the server can say it. */
static void link_on_timeline(struct pg_link *k, unsigned timeline)
{
	k->timed = timeline > 0;
	if (k->timed && timeline < k->place->timeline) {
		link_lose_replaced(k, timeline);
		return;
	}
	if (timeline > k->place->timeline)
		k->place->timeline = timeline;
	lock_link_up(&k->link);
}

static void link_on_greeted(struct lock_call *c, const void *answer)
{
	struct pg_link *k = (struct pg_link *)(void *)((char *)c - offsetof(struct pg_link, greeting));

	if (c->round == 0)
		link_on_served(k, answer);
	else
		link_on_timeline(k, timeline_in(answer));
}

/* link_close forgets the greeting before. */
static void link_on_greeting_lost(struct lock_call *c, bool sent, enum lock_outcome outcome, const struct err *why)
{
	(void)c;
	(void)sent;
	(void)outcome;
	(void)why;
}

static void ignore(void *arg, const PGresult *r)
{
	(void)arg;
	(void)r;
}

static void link_greet(struct lock_link *link)
{
	struct pg_link *k = of(link);

	/* libpq reads on as long as there is something, up to the end of a message of any length: let there be little
	 * at a time. */
	setsockopt(PQsocket(k->conn), SOL_SOCKET, SO_RCVBUF, &(int){ RECEIVE_BYTES }, sizeof(int));
	lock_link_wait(link, PQsocket(k->conn), EV_READ);
	k->meter = (struct pg_meter){ 0 };
	PQsetNoticeReceiver(k->conn, ignore, NULL);
	if (PQsetnonblocking(k->conn, 1) != 0 || !PQenterPipelineMode(k->conn)) {
		link_lose_said(k);
		return;
	}
	k->greeting = (struct lock_call){ .answered = link_on_greeted, .lost = link_on_greeting_lost };
	link_ask(k, &k->greeting, 1, &(struct pg_statement){ .sql = "SELECT pg_backend_pid()" });
}

/* ---- logging in ---- */

static void link_on_login(struct lock_link *link, PGconn *conn, enum lock_outcome outcome, const struct err *why)
{
	lock_link_enter(link);
	of(link)->conn = conn;
	if (conn)
		lock_link_dialed(link);
	else
		lock_link_lose(link, outcome, why->code, "%s", why->text);
	lock_link_leave(link);
}

static void link_dial(struct lock_link *link)
{
	pg_login_start(of(link)->login, instant_add(clock_now(), ATTEMPT));
}

static void link_overdue(struct lock_link *link)
{
	lock_link_lose(link, LOCK_FAILED, ERR_TIMEOUT, "no server could be connected to and logged in to in time");
}

/* ---- the link ---- */

static void link_tick(struct lock_link *link)
{
	of(link)->events->tick(link->arg);
}

static void link_free(struct lock_link *link)
{
	pg_login_free(of(link)->login);
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
	return &k->link;
}

void pg_link_send(struct lock_link *link, struct lock_call *c, int count, const struct pg_statement *statements)
{
	struct pg_link *k = of(link);

	if (!lock_link_is_up(link))
		return;
	link_ask(k, c, count, statements);
	for (int i = 0; i < count; i++)
		if (statements[i].again)
			link_prepare(k, &statements[i]);
}

bool pg_link_pooled(const struct lock_link *link)
{
	return ((const struct pg_link *)link)->pooled;
}

bool pg_link_timed(const struct lock_link *link)
{
	return ((const struct pg_link *)link)->timed;
}
