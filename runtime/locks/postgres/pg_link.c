#include "locks/postgres/pg_link.h"

#include "base/mem.h"
#include "locks/postgres/pg_login.h"
#include "locks/postgres/pg_meter.h"
#include "locks/postgres/pg_prepared.h"

#include <ev.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define ATTEMPT (4 * NSEC_PER_SEC) /* to look up, connect, log in and greet */
#define RECEIVE_BYTES (64 * 1024)

enum link_state { DOWN, LOGGING_IN, GREETING, UP };

struct pg_link {
	struct lock_env *env;
	struct pg_place *place;
	const struct pg_link_events *events;
	void *arg;

	enum link_state state;
	struct pg_login *login;
	PGconn *conn;    /* NULL: not logged in */
	uint64_t number; /* of the connection */
	ev_io reads, writes;
	ev_timer timer; /* of the attempt */
	struct instant heard;
	struct pg_meter meter;
	struct lock_pipeline queue;
	struct lock_call greeting;
	struct pg_answer answer; /* being collected */
	struct pg_prepared_set prepared;
	bool pooled, timed;
	int busy;  /* callbacks are running */
	bool dead; /* freed while they do */
};

static void link_enter(struct pg_link *k)
{
	k->busy++;
}

static void link_destroy(struct pg_link *k)
{
	lock_pipeline_fini(&k->queue);
	free(k);
}

static void link_leave(struct pg_link *k)
{
	if (--k->busy == 0 && k->dead)
		link_destroy(k);
}

/* A callback has freed the link, or lost the connection that had this number. */
static bool link_is_gone(const struct pg_link *k, uint64_t number)
{
	return k->dead || k->number != number;
}

/* ---- going down ---- */

static void link_clear_answer(struct pg_link *k)
{
	for (int i = 0; i < k->answer.count; i++)
		PQclear(k->answer.results[i]);
	k->answer = (struct pg_answer){ .count = 0 };
}

static void link_hang_up(struct pg_link *k)
{
	ev_timer_stop(k->env->loop, &k->timer);
	ev_io_stop(k->env->loop, &k->reads);
	ev_io_stop(k->env->loop, &k->writes);
	link_clear_answer(k);
	pg_prepared_clear(&k->prepared, &k->queue);
	pg_login_cancel(k->login);
	if (k->conn)
		PQfinish(k->conn);
	k->conn = NULL;
	k->state = DOWN;
	k->number++;
}

static void link_lose(struct pg_link *k, enum lock_outcome outcome, const struct err *why)
{
	struct err copy = *why;

	lock_pipeline_forget(&k->queue, &k->greeting);
	link_hang_up(k);
	link_enter(k);
	lock_pipeline_lose(&k->queue, true, outcome, &copy);
	if (!k->dead && k->events->down)
		k->events->down(k->arg, outcome);
	link_leave(k);
}

static void link_lose_said(struct pg_link *k)
{
	struct err why;
	enum lock_outcome outcome = pg_login_judge(k->conn, &why);

	link_lose(k, outcome, &why);
}

static void link_lose_because(struct pg_link *k, enum err_code code, const char *text)
{
	struct err why;

	err_set(&why, code, "%s", text);
	link_lose(k, LOCK_FAILED, &why);
}

/* ---- questions ---- */

static void link_flush(struct pg_link *k)
{
	int left = PQflush(k->conn);

	if (left > 0)
		ev_io_start(k->env->loop, &k->writes);
	else
		ev_io_stop(k->env->loop, &k->writes); /* an error is the reader's to see */
}

static void link_end_question(struct pg_link *k, struct lock_call *c, bool good)
{
	lock_pipeline_push(&k->queue, c);
	if (good && PQpipelineSync(k->conn))
		link_flush(k);
	else
		ev_feed_event(k->env->loop, &k->reads, EV_READ); /* the connection is broken: seen from the loop */
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
	struct lock_call *c = lock_pipeline_pop(&k->queue);

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
		link_lose_because(k, ERR_INVALID, LOCK_QUEUE_MIXED_UP);
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
	uint64_t number = k->number;
	int nothing = 0;

	while (!link_is_gone(k, number) && k->queue.count && nothing < 2 && !PQisBusy(k->conn)) {
		PGresult *r = PQgetResult(k->conn);
		nothing = r ? 0 : nothing + 1;
		if (r)
			link_collect(k, r);
	}
}

static void link_take_notices(struct pg_link *k)
{
	uint64_t number = k->number;
	PGnotify *n;

	while (!link_is_gone(k, number) && (n = PQnotifies(k->conn))) {
		pg_meter_end(&k->meter);
		if (k->events->notice)
			k->events->notice(k->arg, n->relname, n->extra);
		PQfreemem(n);
	}
}

static void link_on_readable(struct ev_loop *loop, ev_io *w, int revents)
{
	struct pg_link *k = w->data;
	uint64_t number = k->number;

	(void)loop;
	(void)revents;
	k->heard = clock_now();
	if (!PQconsumeInput(k->conn)) {
		link_lose_said(k);
		return;
	}
	link_enter(k);
	link_take_results(k);
	if (!link_is_gone(k, number))
		link_take_notices(k);
	if (!link_is_gone(k, number) && pg_meter_is_over(&k->meter, k->conn))
		link_lose_because(k, ERR_INVALID, PG_METER_OVER);
	if (!link_is_gone(k, number) &&
	    (PQstatus(k->conn) == CONNECTION_BAD || PQpipelineStatus(k->conn) == PQ_PIPELINE_OFF))
		link_lose_said(k);
	link_leave(k);
}

static void link_on_writable(struct ev_loop *loop, ev_io *w, int revents)
{
	(void)loop;
	(void)revents;
	link_flush(w->data);
}

/* ---- greeting ---- */

static void link_up(struct pg_link *k)
{
	struct lock_call *c;

	ev_timer_stop(k->env->loop, &k->timer);
	k->state = UP;
	link_enter(k);
	if (k->events->up)
		k->events->up(k->arg);
	while (!k->dead && k->state == UP && (c = lock_pipeline_next(&k->queue)))
		c->ready(c);
	link_leave(k);
}

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
	struct err why;

	err_set(&why, ERR_UNREACHABLE,
	        "the server is on timeline %u, but %u was seen: it was replaced as the primary, and takes writes all the "
	        "same. Shut it down or make it a standby; if it is a new database, start this elector again",
	        timeline, k->place->timeline);
	link_lose(k, LOCK_FAILED, &why);
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
	link_up(k);
}

static void link_on_greeted(struct lock_call *c, const void *answer)
{
	struct pg_link *k = (struct pg_link *)(void *)((char *)c - offsetof(struct pg_link, greeting));

	if (c->round == 0)
		link_on_served(k, answer);
	else
		link_on_timeline(k, timeline_in(answer));
}

/* link_lose forgets the greeting first. */
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

static void link_on_login(void *arg, PGconn *conn, enum lock_outcome outcome, const struct err *why)
{
	struct pg_link *k = arg;

	if (!conn) {
		link_lose(k, outcome, why);
		return;
	}
	k->conn = conn;
	ev_io_set(&k->reads, PQsocket(conn), EV_READ);
	ev_io_set(&k->writes, PQsocket(conn), EV_WRITE);
	ev_io_start(k->env->loop, &k->reads);
	/* libpq reads on as long as there is something, up to the end of a message of any length: let there be little
	 * at a time. */
	setsockopt(PQsocket(conn), SOL_SOCKET, SO_RCVBUF, &(int){ RECEIVE_BYTES }, sizeof(int));
	k->heard = clock_now();
	k->meter = (struct pg_meter){ 0 };
	k->state = GREETING;
	PQsetNoticeReceiver(conn, ignore, NULL);
	if (PQsetnonblocking(conn, 1) != 0 || !PQenterPipelineMode(conn)) {
		link_lose_said(k);
		return;
	}
	k->greeting = (struct lock_call){ .answered = link_on_greeted, .lost = link_on_greeting_lost };
	link_ask(k, &k->greeting, 1, &(struct pg_statement){ .sql = "SELECT pg_backend_pid()" });
}

/* ---- the link ---- */

/* From the loop: connecting may fail at once, and then tells those who have just asked. */
static void link_on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct pg_link *k = w->data;

	(void)revents;
	if (k->state != DOWN) {
		link_lose_because(k, ERR_TIMEOUT, "no server could be connected to and logged in to in time");
		return;
	}
	ev_timer_set(&k->timer, (double)ATTEMPT / NSEC_PER_SEC, 0.);
	ev_timer_start(loop, &k->timer);
	k->state = LOGGING_IN;
	pg_login_start(k->login, instant_add(clock_now(), ATTEMPT));
}

void pg_link_raise(struct pg_link *k)
{
	if (k->state != DOWN || ev_is_active(&k->timer))
		return;
	ev_timer_set(&k->timer, 0., 0.);
	ev_timer_start(k->env->loop, &k->timer);
}

void pg_link_want(struct pg_link *k, struct lock_call *c)
{
	if (k->state == UP) {
		c->ready(c);
		return;
	}
	lock_pipeline_wait(&k->queue, c);
	pg_link_raise(k);
}

void pg_link_send(struct pg_link *k, struct lock_call *c, int count, const struct pg_statement *statements)
{
	if (k->state != UP)
		return;
	link_ask(k, c, count, statements);
	for (int i = 0; i < count; i++)
		if (statements[i].again)
			link_prepare(k, &statements[i]);
}

void pg_link_forget(struct pg_link *k, struct lock_call *c, bool late)
{
	bool sent = lock_pipeline_forget(&k->queue, c);

	if (sent && late && k->state == UP && elapsed_standby(k->heard, c->sent_at) >= 0)
		link_lose_because(k, ERR_TIMEOUT, "the server does not answer");
}

void pg_link_drop(struct pg_link *k, enum err_code code, const char *why)
{
	if (k->state != DOWN)
		link_lose_because(k, code, why);
}

bool pg_link_is_up(const struct pg_link *k)
{
	return k->state == UP;
}

size_t pg_link_asked(const struct pg_link *k)
{
	return k->queue.count;
}

bool pg_link_pooled(const struct pg_link *k)
{
	return k->pooled;
}

bool pg_link_timed(const struct pg_link *k)
{
	return k->timed;
}

struct pg_link *pg_link_new(struct lock_env *env, struct pg_place *place, const struct pg_link_events *events,
                            void *arg)
{
	struct pg_link *k = mem_zero(sizeof *k);

	*k = (struct pg_link){ .env = env, .place = place, .events = events, .arg = arg };
	k->login = pg_login_new(env, place, link_on_login, k);
	ev_init(&k->reads, link_on_readable);
	ev_init(&k->writes, link_on_writable);
	ev_init(&k->timer, link_on_timer);
	k->reads.data = k->writes.data = k->timer.data = k;
	return k;
}

void pg_link_free(struct pg_link *k)
{
	if (!k)
		return;
	link_hang_up(k);
	pg_login_free(k->login);
	k->dead = k->queue.stopped = true;
	if (k->busy == 0)
		link_destroy(k);
}
