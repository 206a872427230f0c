#include "locks/postgres/pg_link.h"

#include "base/buf.h"
#include "base/hash.h"
#include "base/mem.h"
#include "locks/lock_url.h"
#include "loop/offload.h"
#include "loop/resolve.h"

#include <ctype.h>
#include <ev.h>
#include <inttypes.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define ATTEMPT (4 * NSEC_PER_SEC) /* to look up, connect, log in and greet */
#define LOGINS 16                  /* threads, of all links */
#define RECEIVE_BYTES (64 * 1024)
#define STUCK_MOST 3
#define HOSTS 8
#define ADDRESSES 16

#define PREPARED 12           /* statements of a connection: a table has seven */
#define ANSWER_MOST (8 << 20) /* bytes: thirty records of the largest kind. libpq itself takes what comes */

enum state { DOWN, LOOKING_UP, CONNECTING, GREETING, UP };

/* Planning takes the server longer than carrying out: it plans once what comes again. */
struct prepared {
	struct lock_call call;
	struct pg_link *link;
	char *sql; /* NULL: a free place */
	char name[32];
	enum { ASKED, READY, FAILED } state;
};

struct logins { /* one per process */
	struct offload *threads;
	bool stuck; /* one of them has been, at least */
};

/* libpq's part of an attempt. Each step is taken on a thread, since a server may ask it for hours of hashing (RFC 5802:
 * iterations). */
struct login {
	struct offload_job off; /* first */
	struct pg_link *link;   /* NULL: freed */
	PGconn *conn;           /* the link's, but of one that was given up */
	PostgresPollingStatusType next_step;
	bool on_thread;
	struct login *next; /* given up before this one */
};

struct pg_link {
	struct lock_env *env;
	struct logins *logins;
	struct pg_place *place;
	const struct pg_link_events *events;
	void *arg;

	enum state state;
	struct resolve *lookup;
	int looked_up,
		first; /* hosts; the one to begin with, so that one that swallows packets is not always the first */
	struct buf host, hostaddr, port; /* lists for libpq, one item per address */
	int addresses;
	struct err lookup_err;

	PGconn *conn;
	struct login *login; /* under way */
	struct login *stuck; /* given up, but still on their threads */
	uint64_t number;     /* of the connection */
	ev_io reads, writes;
	ev_timer timer; /* of the attempt */
	struct instant heard;
	uint64_t taken; /* bytes of this connection, up to the end of the last answer */
	bool ended;     /* one, or a notice, since then */
	struct lock_pipeline queue;
	struct lock_call greeting;
	struct pg_answer answer; /* being collected */
	struct prepared prepared[PREPARED];
	bool pooled, timed;
	bool plain; /* nothing is prepared (any more) */
	int busy;   /* callbacks are running */
	bool dead;  /* freed while they do */
};

static void enter(struct pg_link *k)
{
	k->busy++;
}

static void destroy(struct pg_link *k)
{
	lock_pipeline_fini(&k->queue);
	free(k);
}

static void leave(struct pg_link *k)
{
	if (--k->busy == 0 && k->dead)
		destroy(k);
}

/* ---- going down ---- */

static void clear_answer(struct pg_link *k)
{
	for (int i = 0; i < k->answer.count; i++)
		PQclear(k->answer.results[i]);
	k->answer = (struct pg_answer){ .count = 0 };
}

static void unprepare(struct pg_link *k)
{
	for (struct prepared *p = k->prepared; p < k->prepared + PREPARED && p->sql; p++) {
		lock_pipeline_forget(&k->queue, &p->call);
		free(p->sql);
		*p = (struct prepared){ .sql = NULL };
	}
}

/* OpenSSL tidies up at the end of the process, under the hands of a thread that is hashing still. */
static void end_at_once(int status, void *arg)
{
	(void)arg;
	fflush(NULL);
	_exit(status);
}

/* What is on a thread cannot be ended: it is finished when it comes back. */
static void give_up(struct pg_link *k, struct login *g)
{
	g->next = k->stuck;
	k->stuck = g;
	if (!k->logins->stuck)
		on_exit(end_at_once, NULL);
	k->logins->stuck = true;
}

static void end_connection(struct pg_link *k)
{
	struct login *g = k->login;

	if (g && g->on_thread) {
		give_up(k, g);
	} else {
		free(g);
		if (k->conn)
			PQfinish(k->conn);
	}
	k->login = NULL;
	k->conn = NULL;
}

static void hang_up(struct pg_link *k)
{
	ev_timer_stop(k->env->loop, &k->timer);
	ev_io_stop(k->env->loop, &k->reads);
	ev_io_stop(k->env->loop, &k->writes);
	if (k->lookup)
		resolve_cancel(k->lookup);
	k->lookup = NULL;
	clear_answer(k);
	unprepare(k);
	end_connection(k);
	buf_fini(&k->host);
	buf_fini(&k->hostaddr);
	buf_fini(&k->port);
	k->addresses = 0;
	k->state = DOWN;
	k->number++;
}

static void lose(struct pg_link *k, enum lock_outcome outcome, const struct err *why)
{
	struct err copy = *why;

	lock_pipeline_forget(&k->queue, &k->greeting);
	hang_up(k);
	enter(k);
	lock_pipeline_lose(&k->queue, outcome, &copy);
	if (!k->dead && k->events->down)
		k->events->down(k->arg, outcome);
	leave(k);
}

/* What the server or libpq says of a connection has no code to go by (PQerrorMessage). */
static enum lock_outcome judge(const char *text, enum err_code *code)
{
	static const char *const denied[] = {
		"authentication failed", "no password supplied", "pg_hba.conf",
		"does not exist",        "permission denied",    "is not permitted to log in",
		"certificate",           "does not support SSL", NULL
	};

	for (const char *const *d = denied; *d; d++) {
		if (strstr(text, *d)) {
			*code = strcmp(*d, "does not exist") == 0 ? ERR_MISSING : ERR_DENIED;
			return LOCK_REFUSED;
		}
	}
	*code = ERR_UNREACHABLE;
	return LOCK_FAILED;
}

/* On one line. */
static void lose_said(struct pg_link *k)
{
	enum err_code code;
	struct err why;
	char text[800];
	size_t n = 0;

	for (const char *p = PQerrorMessage(k->conn); *p && n < sizeof text - 3; p++) {
		if (*p != '\n')
			text[n++] = isspace((unsigned char)*p) ? ' ' : *p;
		else if (p[1])
			n += (size_t)snprintf(text + n, sizeof text - n, "; ");
	}
	text[n] = '\0';
	enum lock_outcome outcome = judge(text, &code);
	err_set(&why, code, "%s%s", n ? text : "the connection was lost",
	        strstr(text, "no password supplied")
	                ? " (give it in the URL, in a password file of libpq's, or in " LOCK_URL_PASSWORD ")"
	                : "");
	lose(k, outcome, &why);
}

static void lose_because(struct pg_link *k, enum err_code code, const char *text)
{
	struct err why;

	err_set(&why, code, "%s", text);
	lose(k, LOCK_FAILED, &why);
}

/* ---- statements ---- */

static void flush(struct pg_link *k)
{
	int left = PQflush(k->conn);

	if (left > 0)
		ev_io_start(k->env->loop, &k->writes);
	else
		ev_io_stop(k->env->loop, &k->writes); /* an error is the reader's to see */
}

static void end_question(struct pg_link *k, struct lock_call *c, bool good)
{
	lock_pipeline_push(&k->queue, c);
	if (good && PQpipelineSync(k->conn))
		flush(k);
	else
		ev_feed_event(k->env->loop, &k->reads, EV_READ); /* the connection is broken: seen from the loop */
}

/* What has nobody to tell. */
static void on_lost(struct lock_call *c, bool sent, enum lock_outcome outcome, const struct err *why)
{
	(void)c;
	(void)sent;
	(void)outcome;
	(void)why;
}

static bool is_one_of(const PGresult *r, const char *const *states)
{
	const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);

	while (state && *states && strcmp(state, *states) != 0)
		states++;
	return state && *states;
}

/* A table that is missing will be made, and one that is locked will be free: then it is tried again. */
static void on_prepared(struct lock_call *c, const void *answer)
{
	static const char *const passing[] = { "42P01", "55P03", "57014", NULL };
	struct prepared *p = (struct prepared *)(void *)c;
	const struct pg_answer *a = answer;

	p->state = a->error ? FAILED : READY;
	if (a->error && !is_one_of(a->error, passing))
		p->link->plain = true;
}

/* Where this statement is, or a free place; NULL: there is none left. */
static struct prepared *place_of(struct pg_link *k, const char *sql)
{
	for (struct prepared *p = k->prepared; p < k->prepared + PREPARED; p++)
		if (!p->sql || strcmp(p->sql, sql) == 0)
			return p;
	return NULL;
}

/* In a question of its own: one that fails must not undo another, and one that finds the table locked must not wait for
 * that long. Statements of the same name have the same text, whoever's session it is. */
static void prepare(struct pg_link *k, const struct pg_statement *s)
{
	static const char brief[] = "SELECT set_config('lock_timeout', '100', true)";
	struct prepared *p = place_of(k, s->sql);

	if (!p || k->plain || (p->sql && p->state != FAILED))
		return;
	if (!p->sql) {
		*p = (struct prepared){ .call = { .answered = on_prepared, .lost = on_lost },
			                .link = k,
			                .sql = mem_dup(s->sql) };
		snprintf(p->name, sizeof p->name, "lunarch_%016" PRIx64,
		         hash_fnv(HASH_FNV_SEED, s->sql, strlen(s->sql)));
	}
	p->state = ASKED;
	end_question(k, &p->call,
	             PQsendQueryParams(k->conn, brief, 0, NULL, NULL, NULL, NULL, 0) &&
	                     PQsendPrepare(k->conn, p->name, s->sql, s->count, NULL));
}

static bool send_one(struct pg_link *k, const struct pg_statement *s)
{
	const struct prepared *p = place_of(k, s->sql);

	if (p && p->sql && p->state == READY && !k->plain)
		return PQsendQueryPrepared(k->conn, p->name, s->count, s->values, NULL, NULL, 0);
	return PQsendQueryParams(k->conn, s->sql, s->count, NULL, s->values, NULL, NULL, 0);
}

static void send_statements(struct pg_link *k, struct lock_call *c, int count, const struct pg_statement *s)
{
	bool good = true;

	for (int i = 0; i < count; i++)
		good = good && send_one(k, &s[i]);
	end_question(k, c, good);
}

static void deliver(struct pg_link *k)
{
	struct pg_answer a = k->answer;
	struct lock_call *c = lock_pipeline_pop(&k->queue);

	k->answer = (struct pg_answer){ .count = 0 };
	k->ended = true;
	if (c)
		c->answered(c, &a);
	for (int i = 0; i < a.count; i++)
		PQclear(a.results[i]);
}

static void collect(struct pg_link *k, PGresult *r)
{
	/* The session is not ours alone after all, or the table is another now: the next ones do without. */
	static const char *const unprepared[] = { "26000", "0A000", NULL };
	ExecStatusType status = PQresultStatus(r);
	struct pg_answer *a = &k->answer;

	k->plain = k->plain || is_one_of(r, unprepared);
	if (status == PGRES_PIPELINE_SYNC) {
		PQclear(r);
		deliver(k);
		return;
	}
	if (status == PGRES_COPY_IN || status == PGRES_COPY_OUT || status == PGRES_COPY_BOTH) {
		PQclear(r); /* which PQgetResult would return for ever */
		lose_because(k, ERR_INVALID, LOCK_QUEUE_MIXED_UP);
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
static void take_results(struct pg_link *k)
{
	uint64_t number = k->number;
	int nothing = 0;

	while (!k->dead && k->number == number && k->queue.count && nothing < 2 && !PQisBusy(k->conn)) {
		PGresult *r = PQgetResult(k->conn);
		nothing = r ? 0 : nothing + 1;
		if (r)
			collect(k, r);
	}
}

static void take_notices(struct pg_link *k)
{
	uint64_t number = k->number;
	PGnotify *n;

	while (!k->dead && k->number == number && (n = PQnotifies(k->conn))) {
		k->ended = true;
		if (k->events->notice)
			k->events->notice(k->arg, n->relname, n->extra);
		PQfreemem(n);
	}
}

/* libpq takes a message of any length, and results of any number of rows, until its memory is used up. What has come is
 * known of TCP connections; at the other end of a Unix socket is this machine's own server. */
static bool too_much(struct pg_link *k)
{
	struct tcp_info info = { .tcpi_bytes_received = 0 };
	int waiting = 0;

	if (getsockopt(PQsocket(k->conn), IPPROTO_TCP, TCP_INFO, &info, &(socklen_t){ sizeof info }) < 0 ||
	    ioctl(PQsocket(k->conn), FIONREAD, &waiting) < 0 || info.tcpi_bytes_received < (uint64_t)waiting)
		return false;
	uint64_t taken = info.tcpi_bytes_received - (uint64_t)waiting;
	if (k->ended)
		k->taken = taken;
	k->ended = false;
	return taken > k->taken + ANSWER_MOST;
}

static void lose_large(struct pg_link *k)
{
	lose_because(k, ERR_INVALID, "the server's answer is longer than any that was asked for");
}

/* ---- events ---- */

static void poll_connection(struct pg_link *k);

static void on_readable(struct ev_loop *loop, ev_io *w, int revents)
{
	struct pg_link *k = w->data;
	uint64_t number = k->number;

	(void)loop;
	(void)revents;
	if (k->state == CONNECTING) {
		poll_connection(k);
		return;
	}
	k->heard = clock_now();
	if (!PQconsumeInput(k->conn)) {
		lose_said(k);
		return;
	}
	enter(k);
	take_results(k);
	if (!k->dead && k->number == number)
		take_notices(k);
	if (!k->dead && k->number == number && too_much(k))
		lose_large(k);
	if (!k->dead && k->number == number &&
	    (PQstatus(k->conn) == CONNECTION_BAD || PQpipelineStatus(k->conn) == PQ_PIPELINE_OFF))
		lose_said(k);
	leave(k);
}

static void on_writable(struct ev_loop *loop, ev_io *w, int revents)
{
	struct pg_link *k = w->data;

	(void)loop;
	(void)revents;
	if (k->state == CONNECTING)
		poll_connection(k);
	else
		flush(k);
}

static void on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop;
	(void)revents;
	lose_because(w->data, ERR_TIMEOUT, "no server could be connected to and logged in to in time");
}

/* ---- greeting ---- */

static void up(struct pg_link *k)
{
	struct lock_call *c;

	ev_timer_stop(k->env->loop, &k->timer);
	k->state = UP;
	enter(k);
	if (k->events->up)
		k->events->up(k->arg);
	while (!k->dead && k->state == UP && (c = lock_pipeline_next(&k->queue)))
		c->ready(c);
	leave(k);
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
static void lose_replaced(struct pg_link *k, unsigned timeline)
{
	struct err why;

	err_set(&why, ERR_UNREACHABLE,
	        "the server is on timeline %u, but %u was seen: it was replaced as the primary, and takes writes all the "
	        "same. Shut it down or make it a standby; if it is a new database, start this elector again",
	        timeline, k->place->timeline);
	lose(k, LOCK_FAILED, &why);
}

/* Two answers: who serves us, which is not who we logged in to if there is a pooler; and the timeline, if it can be
 * said. */
static void on_greeted(struct lock_call *c, const void *answer)
{
	struct pg_link *k = (struct pg_link *)(void *)((char *)c - offsetof(struct pg_link, greeting));
	const struct pg_answer *a = answer;

	if (c->round == 0) {
		k->plain = k->pooled = a->error || PQntuples(a->results[0]) != 1 || PQnfields(a->results[0]) != 1 ||
		                       atoi(PQgetvalue(a->results[0], 0, 0)) != PQbackendPID(k->conn);
		c->round = 1;
		if (!k->pooled)
			send_statements(k, NULL, 1,
			                &(struct pg_statement){ .sql = "SET plan_cache_mode = force_generic_plan" });
		send_statements(k, c, 1,
		                &(struct pg_statement){ .sql = "SELECT pg_walfile_name(pg_current_wal_lsn())" });
		return;
	}
	unsigned timeline = timeline_in(a);
	k->timed = timeline > 0;
	if (k->timed && timeline < k->place->timeline) {
		lose_replaced(k, timeline);
		return;
	}
	if (timeline > k->place->timeline)
		k->place->timeline = timeline;
	up(k);
}

static void ignore(void *arg, const PGresult *r)
{
	(void)arg;
	(void)r;
}

static void greet(struct pg_link *k)
{
	ev_io_stop(k->env->loop, &k->writes);
	ev_io_set(&k->reads, PQsocket(k->conn), EV_READ);
	ev_io_set(&k->writes, PQsocket(k->conn), EV_WRITE);
	ev_io_start(k->env->loop, &k->reads);
	/* libpq reads on as long as there is something, up to the end of a message of any length: let there be little
	 * at a time. */
	setsockopt(PQsocket(k->conn), SOL_SOCKET, SO_RCVBUF, &(int){ RECEIVE_BYTES }, sizeof(int));
	k->heard = clock_now();
	k->state = GREETING;
	PQsetNoticeReceiver(k->conn, ignore, NULL);
	if (PQsetnonblocking(k->conn, 1) != 0 || !PQenterPipelineMode(k->conn)) {
		lose_said(k);
		return;
	}
	k->greeting = (struct lock_call){ .answered = on_greeted, .lost = on_lost };
	send_statements(k, &k->greeting, 1, &(struct pg_statement){ .sql = "SELECT pg_backend_pid()" });
}

/* ---- connecting ---- */

/* The socket may be another one after each step. */
static void on_step(struct pg_link *k, PostgresPollingStatusType next)
{
	struct ev_loop *loop = k->env->loop;

	if (next == PGRES_POLLING_FAILED) {
		lose_said(k);
	} else if (too_much(k)) {
		lose_large(k);
	} else if (next == PGRES_POLLING_OK) {
		free(k->login);
		k->login = NULL;
		greet(k);
	} else if (next == PGRES_POLLING_READING) {
		ev_io_set(&k->reads, PQsocket(k->conn), EV_READ);
		ev_io_start(loop, &k->reads);
	} else {
		ev_io_set(&k->writes, PQsocket(k->conn), EV_WRITE);
		ev_io_start(loop, &k->writes);
	}
}

static void take_step(struct offload_job *off)
{
	struct login *g = (struct login *)off;

	g->next_step = PQconnectPoll(g->conn);
}

static void on_step_taken(struct offload_job *off)
{
	struct login *g = (struct login *)off;
	struct pg_link *k = g->link;

	g->on_thread = false;
	if (k && k->login == g) {
		on_step(k, g->next_step);
		return;
	}
	if (k) {
		struct login **at = &k->stuck;
		while (*at != g)
			at = &(*at)->next;
		*at = g->next;
	}
	PQfinish(g->conn);
	free(g);
}

static void poll_connection(struct pg_link *k)
{
	ev_io_stop(k->env->loop, &k->reads);
	ev_io_stop(k->env->loop, &k->writes);
	k->login->on_thread = true;
	offload_run(k->logins->threads, &k->login->off);
}

static void connect_now(struct pg_link *k)
{
	const char *any = pg_place_option(k->place, "target_session_attrs"),
		   *gss = pg_place_option(k->place, "gssencmode");
	const char *keywords[16], *values[16];
	int n = 0;
#define SET(keyword, what) (keywords[n] = (keyword), values[n++] = (what))

	SET("dbname", k->place->uri);
	if (k->addresses) {
		SET("host", k->host.data);
		SET("hostaddr", k->hostaddr.data);
		SET("port", k->port.data);
	}
	if (k->place->password)
		SET("password", k->place->password);
	if (!any || strcmp(any, "any") == 0)
		SET("target_session_attrs", "read-write");
	SET("client_encoding", "UTF8");
	SET("fallback_application_name", "lunarch");
	if (gss && strcmp(gss, "prefer") == 0)
		SET("gssencmode",
		    "disable"); /* where there is a ticket, libpq would wait for the ticket server's answer */
	SET("tcp_user_timeout", "20000");
	SET("keepalives_idle", "5");
	SET("keepalives_interval", "5");
	SET("keepalives_count", "3");
	keywords[n] = values[n] = NULL;
#undef SET
	k->state = CONNECTING;
	k->taken = 0;
	k->conn = PQconnectStartParams(keywords, values, 1);
	if (!k->conn)
		abort(); /* out of memory */
	if (PQstatus(k->conn) == CONNECTION_BAD) {
		lose_said(k);
		return;
	}
	k->login = mem_zero(sizeof *k->login);
	*k->login = (struct login){ .off = { .work = take_step, .done = on_step_taken }, .link = k, .conn = k->conn };
	ev_io_set(&k->writes, PQsocket(k->conn), EV_WRITE); /* as if PQconnectPoll had said so */
	ev_io_start(k->env->loop, &k->writes);
}

static void add_address(struct pg_link *k, const char *host, const char *address)
{
	const char *ports = pg_place_option(k->place, "port"), *comma = k->addresses ? "," : "";
	char port[16] = "";
	int which = (k->first + k->looked_up) % HOSTS;

	if (ports)
		pg_place_item(ports, strchr(ports, ',') ? which : 0, port, sizeof port);
	buf_printf(&k->host, "%s%s", comma, host);
	buf_printf(&k->hostaddr, "%s%s", comma, address);
	buf_printf(&k->port, "%s%s", comma, port);
	k->addresses++;
}

static void look_up(struct pg_link *k);

static bool current_host(const struct pg_link *k, char *host, size_t size)
{
	return pg_place_item(pg_place_option(k->place, "host"), (k->first + k->looked_up) % HOSTS, host, size);
}

static void on_resolved(void *arg, const struct resolved *result)
{
	struct pg_link *k = arg;
	char host[256], address[RESOLVE_TEXT];

	k->lookup = NULL;
	if (result->count == 0)
		k->lookup_err = result->err;
	current_host(k, host, sizeof host);
	for (int i = 0; i < result->count && k->addresses < ADDRESSES; i++) {
		resolve_print(&result->each[i].addr, result->each[i].len, address);
		add_address(k, host, address);
	}
	k->looked_up++;
	look_up(k);
}

/* Each name in turn; those that are directories of Unix sockets need none. */
static void look_up(struct pg_link *k)
{
	char host[256];

	for (; k->looked_up < HOSTS; k->looked_up++) {
		if (!current_host(k, host, sizeof host) || !*host)
			continue;
		if (*host == '/' || *host == '@') {
			add_address(k, host, "");
			continue;
		}
		k->lookup = resolve_start(k->env->loop, lock_lookups(k->env), host, 0,
		                          instant_add(clock_now(), ATTEMPT), on_resolved, k);
		return;
	}
	if (k->addresses == 0) {
		struct err why = k->lookup_err;
		lose(k, LOCK_FAILED, &why);
		return;
	}
	connect_now(k);
}

static void on_start(struct pg_link *k)
{
	bool named = pg_place_option(k->place, "host") && !pg_place_option(k->place, "hostaddr");
	int hosts = 1, stuck = 0;

	for (const struct login *g = k->stuck; g; g = g->next)
		stuck++;
	if (stuck > STUCK_MOST) {
		lose_because(k, ERR_INVALID, "the server asks for more work, to log in, than is done for any");
		return;
	}

	for (const char *p = pg_place_option(k->place, "host"); p && (p = strchr(p, ',')); p++)
		hosts++;
	k->first = (k->first + 1) % hosts; /* of one: 0 */
	k->state = LOOKING_UP;
	k->looked_up = 0;
	if (named)
		look_up(k);
	else
		connect_now(k); /* a directory of Unix sockets, or an address */
}

/* From the loop: connecting may fail at once, and then tells those who have just asked. */
static void on_raise(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct pg_link *k = w->data;

	if (k->state != DOWN) {
		on_timer(loop, w, revents);
		return;
	}
	ev_timer_set(&k->timer, (double)ATTEMPT / NSEC_PER_SEC, 0.);
	ev_timer_start(loop, &k->timer);
	on_start(k);
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
	send_statements(k, c, count, statements);
	for (int i = 0; i < count; i++)
		if (statements[i].again)
			prepare(k, &statements[i]);
}

void pg_link_forget(struct pg_link *k, struct lock_call *c, bool late)
{
	bool sent = lock_pipeline_forget(&k->queue, c);

	if (sent && late && k->state == UP && elapsed_standby(k->heard, c->sent_at) >= 0)
		lose_because(k, ERR_TIMEOUT, "the server does not answer");
}

void pg_link_drop(struct pg_link *k, enum err_code code, const char *why)
{
	if (k->state != DOWN)
		lose_because(k, code, why);
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

static void *make_logins(struct lock_env *env, struct err *err)
{
	struct logins *l = mem_zero(sizeof *l);

	l->threads = offload_new(env->loop, LOGINS, err);
	return l;
}

static void drop_logins(void *object)
{
	struct logins *l = object;

	offload_free(l->threads);
	free(l);
}

struct pg_link *pg_link_new(struct lock_env *env, struct pg_place *place, const struct pg_link_events *events,
                            void *arg)
{
	static const char logins;
	struct pg_link *k = mem_zero(sizeof *k);

	*k = (struct pg_link){ .env = env, .place = place, .events = events, .arg = arg, .first = -1 };
	k->logins = lock_env_share(env, &logins, make_logins, drop_logins, NULL);
	ev_init(&k->reads, on_readable);
	ev_init(&k->writes, on_writable);
	ev_init(&k->timer, on_raise);
	k->reads.data = k->writes.data = k->timer.data = k;
	return k;
}

void pg_link_free(struct pg_link *k)
{
	if (!k)
		return;
	hang_up(k);
	for (struct login *g = k->stuck; g; g = g->next)
		g->link = NULL;
	k->dead = k->queue.stopped = true;
	if (k->busy == 0)
		destroy(k);
}
