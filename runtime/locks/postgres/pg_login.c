#include "locks/postgres/pg_login.h"

#include "base/buf.h"
#include "base/mem.h"
#include "locks/lock_url.h"
#include "loop/offload.h"
#include "loop/resolve.h"

#include <ctype.h>
#include <limits.h>
#include <linux/tcp.h>
#include <malloc.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define THREADS 16 /* of all links */
#define STUCK_MOST 3
#define HOSTS 8
#define ADDRESSES 16
#define ANSWER_MOST (8 << 20) /* bytes: thirty records of the largest kind */

/* libpq doubles its buffer until a message fits, and a result's value is a copy: what is above this is no answer. glibc
 * takes pieces of more than 32 MB from the kernel one by one (mallopt(3), M_MMAP_THRESHOLD), and counts them. */
#define ROOM_MOST (4 * (size_t)ANSWER_MOST)

struct login_threads { /* one per process */
	struct offload *offload;
	bool stuck; /* one of them has been, at least */
};

/* What a thread works on. */
struct login_attempt {
	struct offload_job job; /* first */
	struct pg_login *login;
	PGconn *conn;
	PostgresPollingStatusType next_step;
	bool on_thread; /* or waits for one */
};

struct pg_login {
	struct lock_link *link;
	struct login_threads *threads;
	const struct pg_place *place;
	pg_login_done_fn *done;

	struct resolve *lookup;
	struct instant by; /* for the look-up, and for all addresses together */
	int looked_up;     /* hosts */
	struct login_address {
		char host[256], address[RESOLVE_TEXT], port[16]; /* as libpq takes them */
	} at[ADDRESSES];
	int addresses;
	unsigned turn; /* which of them is tried first, counted round; one more after each that was of no use */
	int tried;     /* so many that dropped packets, in this start */
	bool ticks;    /* lock_link_tick: the end of the time for an address that does not answer */
	struct err lookup_err;

	struct login_attempt *attempt; /* under way */
	int stuck;                     /* attempts that were given up while a thread was in a step of theirs */
	bool freed;                    /* this goes with the last of those */
	struct pg_meter meter;
};

/* ---- how much has come ---- */

void pg_meter_begin(struct pg_meter *m)
{
	m->mapped = mallinfo2().hblkhd;
}

void pg_meter_end(struct pg_meter *m)
{
	m->ended = true;
}

bool pg_meter_is_over(struct pg_meter *m, const PGconn *conn)
{
	struct tcp_info info = { .tcpi_bytes_received = 0 };
	int waiting = 0;

	if (mallinfo2().hblkhd > m->mapped + ROOM_MOST)
		return true;
	if (getsockopt(PQsocket(conn), IPPROTO_TCP, TCP_INFO, &info, &(socklen_t){ sizeof info }) < 0 ||
	    ioctl(PQsocket(conn), FIONREAD, &waiting) < 0 || info.tcpi_bytes_received < (uint64_t)waiting)
		return false;
	uint64_t taken = info.tcpi_bytes_received - (uint64_t)waiting;
	if (m->ended)
		m->taken = taken;
	m->ended = false;
	return taken > m->taken + ANSWER_MOST;
}

/* ---- the end of an attempt ---- */

/* OpenSSL tidies up at the end of the process, while a thread may still be hashing. */
static void end_at_once(int status, void *)
{
	fflush(NULL);
	_exit(status);
}

static void attempt_end(struct login_attempt *a)
{
	PQfinish(a->conn);
	free(a);
}

/* What a thread has begun cannot be ended: it is finished when it comes back. */
static void attempt_give_up(struct login_attempt *a)
{
	struct pg_login *l = a->login;

	if (!a->on_thread || offload_take_back(l->threads->offload, &a->job)) {
		attempt_end(a);
		return;
	}
	l->stuck++;
	if (!l->threads->stuck)
		on_exit(end_at_once, NULL);
	l->threads->stuck = true;
}

void pg_login_cancel(struct pg_login *l)
{
	if (l->lookup)
		resolve_cancel(l->lookup);
	l->lookup = NULL;
	if (l->attempt)
		attempt_give_up(l->attempt);
	l->attempt = NULL;
	l->ticks = false;
	l->addresses = 0;
}

static void login_fail(struct pg_login *l, enum lock_outcome outcome, const struct err *why)
{
	struct err copy = *why;

	pg_login_cancel(l);
	l->done(l->link, NULL, outcome, &copy);
}

static void login_fail_because(struct pg_login *l, const char *text)
{
	struct err why;

	err_set(&why, ERR_INVALID, "%s", text);
	login_fail(l, LOCK_FAILED, &why);
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

/* Where a server wants a client's certificate, libpq shows none if the file is not there, and does not say so. */
static void login_name_certificate(PGconn *conn, struct err *why)
{
	PQconninfoOption *all = PQconninfo(conn);
	size_t n = strlen(why->text);

	for (const PQconninfoOption *o = all; o && o->keyword; o++)
		if (strcmp(o->keyword, "sslcert") == 0)
			snprintf(why->text + n, sizeof why->text - n,
			         " (sslcert is %s: what is not there, or cannot be read, is not shown)",
			         o->val && *o->val ? o->val : "not given");
	PQconninfoFree(all);
}

enum lock_outcome pg_login_judge(PGconn *conn, struct err *why)
{
	enum err_code code;
	char text[800];
	size_t n = 0;

	for (const char *p = PQerrorMessage(conn); *p && n < sizeof text - 3; p++) {
		if (*p != '\n')
			text[n++] = isspace((unsigned char)*p) ? ' ' : *p;
		else if (p[1])
			n += (size_t)snprintf(text + n, sizeof text - n, "; ");
	}
	text[n] = '\0';
	enum lock_outcome outcome = judge(text, &code);
	err_set(why, code, "%s%s", n ? text : "the connection was lost",
	        strstr(text, "no password supplied")
	                ? " (give it in the URL, in a password file of libpq's, or in " LOCK_URL_PASSWORD ")"
	                : "");
	if (strstr(text, "client certificate"))
		login_name_certificate(conn, why);
	return outcome;
}

static void login_fail_said(struct pg_login *l)
{
	struct err why;
	enum lock_outcome outcome = pg_login_judge(l->attempt->conn, &why);

	login_fail(l, outcome, &why);
}

static void login_succeed(struct pg_login *l)
{
	PGconn *conn = l->attempt->conn;

	free(l->attempt);
	l->attempt = NULL;
	pg_login_cancel(l);
	l->done(l->link, conn, LOCK_OK, NULL);
}

/* ---- libpq's steps ---- */

/* An address that drops packets leaves time for the others: libpq itself would wait for as long as the kernel does. */
static void login_arm(struct pg_login *l)
{
	int left = l->addresses - l->tried;

	if (l->ticks || left <= 1 || PQstatus(l->attempt->conn) != CONNECTION_STARTED)
		return;
	l->ticks = true;
	lock_link_tick(l->link, (double)instant_until(l->by, clock_now()) / left / NSEC_PER_SEC);
}

/* The socket may be another one after each step. */
static void login_step_taken(struct pg_login *l)
{
	struct login_attempt *a = l->attempt;

	if (a->next_step == PGRES_POLLING_FAILED) {
		login_fail_said(l);
	} else if (pg_meter_is_over(&l->meter, a->conn)) {
		login_fail_because(l, PG_METER_OVER);
	} else if (a->next_step == PGRES_POLLING_OK) {
		login_succeed(l);
	} else {
		lock_link_wait(l->link, PQsocket(a->conn), a->next_step == PGRES_POLLING_READING ? EV_READ : EV_WRITE);
		login_arm(l);
	}
}

static void attempt_step(struct offload_job *job)
{
	struct login_attempt *a = (struct login_attempt *)job;

	a->next_step = PQconnectPoll(a->conn);
}

static void attempt_on_step(struct offload_job *job)
{
	struct login_attempt *a = (struct login_attempt *)job;
	struct pg_login *l = a->login;

	a->on_thread = false;
	if (l->attempt == a) {
		login_step_taken(l);
		return;
	}
	attempt_end(a);
	if (--l->stuck == 0 && l->freed)
		free(l);
}

void pg_login_step(struct pg_login *l)
{
	lock_link_wait(l->link, -1, 0);
	l->attempt->on_thread = true;
	pg_meter_begin(&l->meter);
	offload_run(l->threads->offload, &l->attempt->job);
}

static PGconn *login_connect(const struct pg_login *l)
{
	const char *any = pg_place_option(l->place, "target_session_attrs"),
		   *gss = pg_place_option(l->place, "gssencmode");
	const char *keywords[16], *values[16];
	struct buf host = { 0 }, address = { 0 }, port = { 0 }; /* lists */
	int n = 0;
#define SET(keyword, what) (keywords[n] = (keyword), values[n++] = (what))

	SET("dbname", l->place->uri);
	for (int i = 0; i < l->addresses; i++) {
		const struct login_address *at = &l->at[(l->turn + (unsigned)i) % (unsigned)l->addresses];
		buf_printf(&host, "%s%s", i ? "," : "", at->host);
		buf_printf(&address, "%s%s", i ? "," : "", at->address);
		buf_printf(&port, "%s%s", i ? "," : "", at->port);
	}
	if (l->addresses) {
		SET("host", host.data);
		SET("hostaddr", address.data);
		SET("port", port.data);
	}
	if (l->place->password)
		SET("password", l->place->password);
	if (!any || strcmp(any, "any") == 0)
		SET("target_session_attrs", "read-write");
	SET("client_encoding", "UTF8");
	SET("fallback_application_name", "lunarch");
	if (gss && strcmp(gss, "prefer") == 0) /* where there is a ticket, libpq would wait for the ticket server */
		SET("gssencmode", "disable");
	SET("tcp_user_timeout", "20000");
	SET("keepalives_idle", "5");
	SET("keepalives_interval", "5");
	SET("keepalives_count", "3");
	keywords[n] = values[n] = NULL;
#undef SET
	PGconn *conn = PQconnectStartParams(keywords, values, 1);
	buf_fini(&host);
	buf_fini(&address);
	buf_fini(&port);
	if (!conn)
		mem_end();
	return conn;
}

static void login_begin_steps(struct pg_login *l)
{
	l->meter = (struct pg_meter){ 0 };
	l->attempt = mem_zero(sizeof *l->attempt);
	*l->attempt = (struct login_attempt){ .job = { .work = attempt_step, .done = attempt_on_step },
		                              .login = l,
		                              .conn = login_connect(l) };
	if (PQstatus(l->attempt->conn) == CONNECTION_BAD) {
		login_fail_said(l);
		return;
	}
	lock_link_wait(l->link, PQsocket(l->attempt->conn), EV_WRITE); /* as if PQconnectPoll had said so */
	login_arm(l);
}

void pg_login_tick(struct pg_login *l)
{
	l->ticks = false;
	if (!l->attempt || l->attempt->on_thread || PQstatus(l->attempt->conn) != CONNECTION_STARTED)
		return; /* something has come from it */
	lock_link_wait(l->link, -1, 0);
	attempt_give_up(l->attempt);
	l->attempt = NULL;
	l->turn++;
	l->tried++;
	login_begin_steps(l);
}

/* ---- host names ---- */

static bool login_item(const struct pg_login *l, const char *option, char *out, size_t size)
{
	return pg_place_item(pg_place_option(l->place, option), l->looked_up, out, size) && *out;
}

static void login_add_address(struct pg_login *l, const char *host, const char *address)
{
	const char *ports = pg_place_option(l->place, "port");
	struct login_address *at = &l->at[l->addresses];

	if (l->addresses == ADDRESSES)
		return;
	l->addresses++;
	*at = (struct login_address){ .host = "" };
	snprintf(at->host, sizeof at->host, "%s", host);
	snprintf(at->address, sizeof at->address, "%s", address);
	if (ports)
		pg_place_item(ports, strchr(ports, ',') ? l->looked_up : 0, at->port, sizeof at->port);
}

static void login_look_up(struct pg_login *l);

static void login_on_resolved(void *arg, const struct resolved *result)
{
	struct pg_login *l = arg;
	char host[256], address[RESOLVE_TEXT];

	l->lookup = NULL;
	if (result->count == 0)
		l->lookup_err = result->err;
	login_item(l, "host", host, sizeof host);
	for (int i = 0; i < result->count; i++) {
		resolve_print(&result->each[i].addr, result->each[i].len, address);
		login_add_address(l, host, address);
	}
	l->looked_up++;
	login_look_up(l);
}

/* Each name in turn. Addresses and directories of Unix sockets need no look-up. */
static void login_look_up(struct pg_login *l)
{
	char host[256], address[RESOLVE_TEXT];

	for (; l->looked_up < HOSTS; l->looked_up++) {
		bool named = login_item(l, "host", host, sizeof host);
		if (login_item(l, "hostaddr", address, sizeof address) || (named && (*host == '/' || *host == '@'))) {
			login_add_address(l, host, address);
		} else if (named) {
			l->lookup = resolve_start(l->link->env->loop, lock_lookups(l->link->env), host, 0, l->by,
			                          login_on_resolved, l);
			return;
		}
	}
	if (l->addresses == 0)
		login_fail(l, LOCK_FAILED, &l->lookup_err);
	else
		login_begin_steps(l);
}

void pg_login_start(struct pg_login *l, struct instant by)
{
	if (l->stuck > STUCK_MOST) {
		login_fail_because(l, "the server asks for more work, to log in, than is done for any");
		return;
	}
	l->turn++;
	l->looked_up = l->tried = 0;
	l->by = by;
	if (pg_place_option(l->place, "host") || pg_place_option(l->place, "hostaddr"))
		login_look_up(l);
	else
		login_begin_steps(l); /* libpq's directory of Unix sockets */
}

/* ---- of a link ---- */

static void *threads_make(struct lock_env *env, struct err *err)
{
	struct login_threads *t = mem_zero(sizeof *t);

	t->offload = offload_new(env->loop, THREADS, err);
	return t;
}

static void threads_drop(void *object)
{
	struct login_threads *t = object;

	offload_free(t->offload);
	free(t);
}

struct pg_login *pg_login_new(struct lock_link *link, const struct pg_place *place, pg_login_done_fn *done)
{
	static const char threads;
	struct pg_login *l = mem_zero(sizeof *l);

	*l = (struct pg_login){ .link = link, .place = place, .done = done, .turn = UINT_MAX };
	l->threads = lock_env_share(link->env, &threads, threads_make, threads_drop, NULL);
	return l;
}

void pg_login_free(struct pg_login *l)
{
	pg_login_cancel(l);
	l->freed = true;
	if (l->stuck == 0)
		free(l);
}
