#include "base/authorities.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/module.h"
#include "loop/offload.h"
#include "script/bind.h"
#include "script/scheduler.h"

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <limits.h>
#include <math.h>
#include <mariadb/errmsg.h>
#include <mariadb/mysql.h>
#include <mariadb/ma_pvio.h>
#include <mariadb/mysqld_error.h>
#include <netdb.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Connections to MariaDB and MySQL servers, by libmariadb. lua/lunarch/mysql.lua makes databases of them: it checks
 * what the script asks for, and lets one task at a time use a connection.
 *
 * The log-in runs on a thread: libmariadb looks host names up by getaddrinfo(3), which blocks, and it checks a
 * certificate for the name that it connects to, so no address can be given to it instead. Statements use libmariadb's
 * non-blocking calls on the loop (mariadb.com/kb/en/non-blocking-api-reference). A statement whose task does not wait
 * any more is over: its connection is closed, since its answer would be taken for the next one's. */

#define ADDRESSES 8 /* of a name that are tried */
#define CONN_TYPE "lunarch.mysql.connection"
#define THREADS_KEY "lunarch.mysql.the_threads"
#define THREADS_TYPE "lunarch.mysql.threads"
#define THREADS 4
#define PACKET_MAX (32UL * 1024 * 1024)
/* A server can ask for the password in a form of its choice. These forms do not show it to who listens. */
#define LOGINS "mysql_native_password,client_ed25519,caching_sha2_password,sha256_password,parsec"

enum conn_step { STEP_NONE, STEP_QUERY, STEP_STORE, STEP_NEXT };

/* What all log-ins of a Lua state share. */
struct logins {
	struct offload *threads;
	unsigned turn; /* which of a host's addresses is tried first, counted round: one more after a failure */
};

/* What one log-in asks for. It is on its thread until `done`, also when nobody waits for it any more. */
struct login {
	struct offload_job job;
	struct conn *conn; /* NULL: given up */
	MYSQL *my;
	bool good;
	bool by_name;   /* its certificate is checked for the name */
	unsigned turn;  /* as logins', at the start; of the address that served, at the end */
	char *texts[5]; /* one block of memory */
	unsigned port, timeout_s;
};

struct failure {
	bool failed, lost;
	unsigned number; /* libmariadb's or the server's */
	char sqlstate[6];
	char text[512];
};

struct conn {
	struct ev_loop *loop;
	struct logins *logins; /* borrowed */
	MYSQL *my;             /* NULL: there is no connection */
	struct login *login;   /* NULL: none is under way */
	ev_io io;
	struct bond bond;
	struct wait wait;
	const char *over; /* static text: why it is closed for good; NULL: it is not */
	enum conn_step step;
	int ret;
	struct buf text; /* of the statement under way */
	MYSQL_RES *found, *result;
	uint64_t affected, inserted;
	struct failure failure;
};

static struct conn *conn_at(lua_State *L, int arg)
{
	return luaL_checkudata(L, arg, CONN_TYPE);
}

static struct conn *conn_of_wait(struct wait *w)
{
	return (struct conn *)((char *)w - offsetof(struct conn, wait));
}

/* ---- closing ---- */

/* Closes it without a farewell to the server: a write could block. */
static void handle_close(MYSQL *my)
{
	my_socket fd = mysql_get_socket(my);

	if (fd >= 0)
		shutdown(fd, SHUT_RDWR);
	mysql_close(my);
}

static void result_free(MYSQL_RES **r)
{
	if (*r)
		mysql_free_result(*r);
	*r = NULL;
}

/* OpenSSL keeps a thread's errors until somebody takes them, and libmariadb would take those of another connection for
 * its own (SSL_get_error(3)). */
static int step_cont(struct conn *c, int ready)
{
	ERR_clear_error();
	switch (c->step) {
	case STEP_QUERY:
		return mysql_real_query_cont(&c->ret, c->my, ready);
	case STEP_STORE:
		return mysql_store_result_cont(&c->found, c->my, ready);
	case STEP_NEXT:
		return mysql_next_result_cont(&c->ret, c->my, ready);
	case STEP_NONE:
		break;
	}
	return 0;
}

/* A call of libmariadb that waits has memory on a stack of its own. It comes to its end, and frees that, when it finds
 * the connection shut down: what has arrived is still read, then comes the end of the stream. */
static void conn_close(struct conn *c)
{
	if (c->login) {
		c->logins->turn++;
		c->login->conn = NULL;
		c->login = NULL;
	}
	if (!c->my)
		return;
	bool idle = c->step == STEP_NONE && !c->failure.lost;
	ev_io_stop(c->loop, &c->io);
	ERR_clear_error();
	if (c->step != STEP_NONE) {
		shutdown(mysql_get_socket(c->my), SHUT_RDWR);
		while (step_cont(c, MYSQL_WAIT_READ | MYSQL_WAIT_WRITE) != 0)
			;
		c->step = STEP_NONE;
	}
	result_free(&c->found);
	result_free(&c->result);
	if (idle) /* all that was sent has been answered, so there is room for the few bytes of a farewell */
		mysql_close(c->my);
	else
		handle_close(c->my);
	c->my = NULL;
}

static void conn_on_left(struct wait *w)
{
	conn_close(conn_of_wait(w));
}

static void fail(struct conn *c, bool lost, unsigned number, const char *sqlstate, const char *text)
{
	c->failure = (struct failure){ .failed = true, .lost = lost, .number = number };
	snprintf(c->failure.sqlstate, sizeof c->failure.sqlstate, "%s", sqlstate);
	snprintf(c->failure.text, sizeof c->failure.text, "%s", text);
}

static void conn_on_over(struct bond *b)
{
	struct conn *c = (struct conn *)((char *)b - offsetof(struct conn, bond));

	c->over = "it was opened in a term that has ended";
	conn_close(c);
	fail(c, true, 0, "", c->over);
	wait_done(&c->wait);
}

/* ---- logging in ---- */

enum { LOGIN_HOST, LOGIN_UNIX, LOGIN_USER, LOGIN_PASSWORD, LOGIN_DATABASE };

static bool login_try(const struct login *l, const char *host)
{
	char *const *t = l->texts;

	ERR_clear_error(); /* as in step_cont */
	return mysql_real_connect(l->my, host, t[LOGIN_USER], t[LOGIN_PASSWORD],
	                          *t[LOGIN_DATABASE] ? t[LOGIN_DATABASE] : NULL, l->port,
	                          *t[LOGIN_UNIX] ? t[LOGIN_UNIX] : NULL,
	                          CLIENT_MULTI_RESULTS | CLIENT_REMEMBER_OPTIONS) != NULL;
}

/* The host's addresses as text. */
static unsigned login_look_up(const char *host, char addresses[ADDRESSES][INET6_ADDRSTRLEN + 16])
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG };
	struct addrinfo *all = NULL;
	unsigned n = 0;

	if (getaddrinfo(host, NULL, &hints, &all) != 0)
		return 0; /* libmariadb finds out, and says so */
	for (const struct addrinfo *a = all; a && n < ADDRESSES; a = a->ai_next)
		n += getnameinfo(a->ai_addr, a->ai_addrlen, addresses[n], sizeof addresses[n], NULL, 0,
		                 NI_NUMERICHOST) == 0;
	freeaddrinfo(all);
	return n;
}

/* libmariadb begins at a name's first address each time, and waits for each as long as it may for one. */
static void login_work(struct offload_job *j)
{
	struct login *l = (struct login *)j;
	const char *host = *l->texts[LOGIN_HOST] ? l->texts[LOGIN_HOST] : NULL;
	char addresses[ADDRESSES][INET6_ADDRSTRLEN + 16];
	unsigned n = host ? login_look_up(host, addresses) : 0;

	if (n > 1) {
		unsigned each = l->timeout_s / n > 1 ? l->timeout_s / n : 1;
		mysql_optionsv(l->my, MYSQL_OPT_CONNECT_TIMEOUT, &each);
	}
	if (n <= 1 || l->by_name)
		l->good = login_try(l, host);
	for (unsigned i = 0; n > 1 && !l->by_name && i < n && !l->good; i++) {
		l->good = login_try(l, addresses[(l->turn + i) % n]);
		if (l->good)
			l->turn += i;
		else if (mysql_errno(l->my) < CR_MIN_ERROR)
			break; /* that is the server's word */
	}
	mysql_thread_end();
}

static void login_free(struct login *l)
{
	if (l->my)
		handle_close(l->my);
	explicit_bzero(l->texts[LOGIN_PASSWORD], strlen(l->texts[LOGIN_PASSWORD]));
	free(l->texts[0]);
	free(l);
}

static void login_on_done(struct offload_job *j)
{
	struct login *l = (struct login *)j;
	struct conn *c = l->conn;

	if (!c) {
		login_free(l);
		return;
	}
	c->login = NULL;
	c->logins->turn = l->good ? l->turn : l->turn + 1;
	if (l->good) {
		c->my = l->my;
		l->my = NULL;
		/* TLS reads without MSG_DONTWAIT. */
		int fd = mysql_get_socket(c->my);
		fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
		fcntl(fd, F_SETFD, FD_CLOEXEC);
	} else {
		fail(c, true, mysql_errno(l->my), mysql_sqlstate(l->my), mysql_error(l->my));
	}
	login_free(l);
	wait_done(&c->wait);
}

/* "" if the field is not there. */
static const char *field(lua_State *L, int spec, const char *name)
{
	const char *s = bind_text(L, spec, name);

	return s ? s : "";
}

static void set_text(MYSQL *my, enum mysql_option option, const char *text)
{
	if (*text)
		mysql_optionsv(my, option, text);
}

/* From 3.4 on, libmariadb looks at the name in no certificate of 127.0.0.1, ::1 and localhost, and lets a password
 * stand for a certificate that it cannot verify. Then this looks instead, before the log-in sends anything. Older ones
 * look at each certificate by themselves. */
#if MARIADB_PACKAGE_VERSION_ID >= 30400
static bool is_for(X509 *cert, const char *host)
{
	return X509_check_ip_asc(cert, host, 0) == 1 || X509_check_host(cert, host, strlen(host), 0, NULL) == 1;
}

/* MARIADB_TLS of ma_tls.h, which cannot be included by itself. */
struct tls_session {
	void *data;
	MARIADB_PVIO *pvio;
	SSL *ssl;
};

static int tls_on_verify(void *session, unsigned)
{
	const struct tls_session *tls = session;
	MYSQL *my = tls->pvio->mysql;
	long chain = SSL_get_verify_result(tls->ssl);
	X509 *cert = SSL_get1_peer_certificate(tls->ssl);
	bool good = cert && chain == X509_V_OK && my->net.tls_verify_status == MARIADB_TLS_VERIFY_OK;
	bool named = good && my->host && is_for(cert, my->host);

	X509_free(cert);
	if (named)
		return 0;
	my->net.tls_verify_status |= MARIADB_TLS_VERIFY_ERROR; /* no password stands for it */
	my->net.last_errno = CR_SSL_CONNECTION_ERROR;
	snprintf(my->net.sqlstate, sizeof my->net.sqlstate, "HY000");
	snprintf(my->net.last_error, sizeof my->net.last_error, "TLS/SSL error: %s",
	         good                 ? "the certificate is for another name than the server's"
	         : chain != X509_V_OK ? X509_verify_cert_error_string(chain)
	                              : "the certificate cannot be verified");
	return 1;
}

static void set_verification(MYSQL *my)
{
	mysql_optionsv(my, MARIADB_OPT_TLS_VERIFICATION_CALLBACK, tls_on_verify);
}
#else
static void set_verification(MYSQL *)
{
}
#endif

static void set_tls(lua_State *L, int spec, MYSQL *my)
{
	my_bool yes = 1, verify = !bind_flag(L, spec, "insecure");

	if (!bind_flag(L, spec, "tls"))
		return;
	mysql_optionsv(my, MYSQL_OPT_SSL_ENFORCE, &yes);
	mysql_optionsv(my, MARIADB_OPT_TLS_VERSION, "TLSv1.2,TLSv1.3"); /* older ones: RFC 8996 */
	mysql_optionsv(my, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &verify);
	if (verify)
		set_verification(my);
	const char *ca = *field(L, spec, "ca") ? field(L, spec, "ca") : authorities_file(X509_get_default_cert_dir());
	set_text(my, MYSQL_OPT_SSL_CA, ca ? ca : "");
	set_text(my, MYSQL_OPT_SSL_CERT, field(L, spec, "cert"));
	set_text(my, MYSQL_OPT_SSL_KEY, field(L, spec, "key"));
}

/* tls_on_verify is built for one release of the library, whose own structs it looks into. The package may have been
 * replaced since by one that needs it, or another. */
static bool verifies(void)
{
	unsigned long loaded = mysql_get_client_version() / 100, built = MARIADB_PACKAGE_VERSION_ID / 100;

	return loaded == built || (loaded < 304 && built < 304);
}

/* timeout: seconds, bounds each wait of the thread; the task waits no longer than it has said itself. */
static MYSQL *handle_new(lua_State *L, int spec, unsigned timeout)
{
	MYSQL *my = mysql_init(NULL);
	unsigned local_infile = 0;
	unsigned protocol = *field(L, spec, "unix") ? MYSQL_PROTOCOL_SOCKET : MYSQL_PROTOCOL_TCP;
	size_t packet = PACKET_MAX;
	char plugins[PATH_MAX];

	if (!my)
		return NULL;
	if (module_file("deps/plugin", plugins, sizeof plugins)) /* else where the library was built to look */
		mysql_optionsv(my, MYSQL_PLUGIN_DIR, plugins);
	mysql_optionsv(my, MYSQL_OPT_NONBLOCK, 0);
	mysql_optionsv(my, MYSQL_OPT_CONNECT_TIMEOUT, &timeout);
	mysql_optionsv(my, MYSQL_OPT_READ_TIMEOUT, &timeout);
	mysql_optionsv(my, MYSQL_OPT_WRITE_TIMEOUT, &timeout);
	mysql_optionsv(my, MYSQL_OPT_PROTOCOL, &protocol);
	mysql_optionsv(my, MYSQL_OPT_LOCAL_INFILE, &local_infile);
	mysql_optionsv(my, MYSQL_OPT_MAX_ALLOWED_PACKET, &packet);
	mysql_optionsv(my, MYSQL_SET_CHARSET_NAME, "utf8mb4");
	/* The library asks for utf8mb4_general_ci by its number. Where the server's preset for utf8mb4 is another
	 * collation (MySQL 8, MariaDB 11.6), it would not compare a text of a statement with one that has a character
	 * set in front. */
	mysql_optionsv(my, MYSQL_INIT_COMMAND, "SET NAMES utf8mb4");
	mysql_optionsv(my, MARIADB_OPT_RESTRICTED_AUTH, LOGINS);
	set_tls(L, spec, my);
	return my;
}

/* ---- what Lua gets ---- */

static const char *code_of(const struct failure *f)
{
	switch (f->number) {
	case ER_ACCESS_DENIED_ERROR:
	case ER_DBACCESS_DENIED_ERROR:
	case ER_ACCESS_DENIED_NO_PASSWORD_ERROR:
	case ER_HOST_NOT_PRIVILEGED:
	case ER_TABLEACCESS_DENIED_ERROR:
	case ER_COLUMNACCESS_DENIED_ERROR:
	case ER_SPECIFIC_ACCESS_DENIED_ERROR:
		return "denied";
	case ER_LOCK_DEADLOCK:
	case ER_LOCK_WAIT_TIMEOUT:
	case ER_CHECKREAD:
		return "conflict";
	case ER_DISK_FULL:
	case ER_RECORD_FILE_FULL:
		return "full";
	}
	return "failed";
}

/* unsent: nothing of a statement has left. */
static int push_failure(lua_State *L, struct conn *c, const char *code, bool unsent)
{
	const struct failure *f = &c->failure;

	bind_fail(L, code, "%s", f->text);
	bind_set_flag(L, "unsent", unsent);
	if (f->number) {
		bind_set_integer(L, "errno", f->number);
		bind_set_text(L, "sqlstate", f->sqlstate);
	}
	return 2;
}

static int login_waited(lua_State *L, int, lua_KContext)
{
	struct conn *c = conn_at(L, 1);

	if (!sched_resumed(L)) {
		fail(c, true, 0, "", "no log-in in time");
		return push_failure(L, c, "timeout", true);
	}
	if (c->failure.failed) {
		const char *code = code_of(&c->failure);
		bool refused =
			strcmp(code, "failed") == 0 && c->failure.number >= 1000 && c->failure.number < CR_MIN_ERROR;
		return push_failure(L, c, refused || strcmp(code, "denied") == 0 ? code : "unreachable", true);
	}
	lua_pushboolean(L, 1);
	return 1;
}

/* connect(conn, spec, timeout) -> true, or nil, err. spec: host and port, or unix; user, password, database, tls ... */
static int conn_connect(lua_State *L)
{
	struct conn *c = conn_at(L, 1);
	double timeout = luaL_checknumber(L, 3);
	static const char *const names[] = { "host", "unix", "user", "password", "database" };
	const char *texts[5];

	sched_may_wait(L, "mysql");
	if (c->over) {
		fail(c, true, 0, "", c->over);
		return push_failure(L, c, "cancelled", true);
	}
	if (c->wait.task)
		return luaL_error(L, "mysql: another task uses this connection");
	conn_close(c);
	c->failure = (struct failure){ 0 };
	bool by_name = bind_flag(L, 2, "tls") && !bind_flag(L, 2, "insecure");
	if (by_name && !verifies()) {
		fail(c, true, 0, "",
		     "its certificate cannot be verified: Lunarch's module for MariaDB was built for Connector/C " MARIADB_PACKAGE_VERSION
		     ", and the libmariadb that is installed is another release: install the "
		     "module that was built for this system, or that release");
		return push_failure(L, c, "failed", true);
	}
	for (int i = 0; i < 5; i++)
		texts[i] = field(L, 2, names[i]);
	struct login *l = mem_zero(sizeof *l);
	mem_pack(5, texts, l->texts);
	l->port = (unsigned)bind_number(L, 2, "port", 0);
	l->timeout_s = (unsigned)fmin(3600, ceil(fmax(1, timeout)));
	l->by_name = by_name;
	l->turn = c->logins->turn;
	l->my = handle_new(L, 2, l->timeout_s);
	if (!l->my) {
		login_free(l);
		return luaL_error(L, "mysql: out of memory");
	}
	l->job = (struct offload_job){ .work = login_work, .done = login_on_done };
	l->conn = c;
	c->login = l;
	offload_run(c->logins->threads, &l->job);
	return sched_wait(L, &c->wait, timeout, 0, login_waited);
}

/* ---- a statement ---- */

static int step_start(struct conn *c)
{
	ERR_clear_error();
	switch (c->step) {
	case STEP_QUERY:
		return mysql_real_query_start(&c->ret, c->my, c->text.data, c->text.len);
	case STEP_STORE:
		return mysql_store_result_start(&c->found, c->my);
	case STEP_NEXT:
		return mysql_next_result_start(&c->ret, c->my);
	case STEP_NONE:
		break;
	}
	return 0;
}

/* A procedure's results: the first with rows counts, those behind it are read and thrown away. */
static enum conn_step after_result(struct conn *c)
{
	if (!c->result)
		c->result = c->found;
	else
		result_free(&c->found);
	c->found = NULL;
	return mysql_more_results(c->my) ? STEP_NEXT : STEP_NONE;
}

static enum conn_step step_failed(struct conn *c)
{
	unsigned number = mysql_errno(c->my);
	bool ours = number >= CR_MIN_ERROR && number <= CR_MAX_ERROR;

	fail(c, ours || number == 0, number, mysql_sqlstate(c->my), mysql_error(c->my));
	return STEP_NONE;
}

static enum conn_step step_after(struct conn *c)
{
	switch (c->step) {
	case STEP_QUERY:
	case STEP_NEXT:
		if (c->ret != 0)
			return step_failed(c);
		if (mysql_field_count(c->my) > 0)
			return STEP_STORE;
		if (!c->result) {
			c->affected = mysql_affected_rows(c->my);
			c->inserted = mysql_insert_id(c->my);
		}
		return mysql_more_results(c->my) ? STEP_NEXT : STEP_NONE;
	case STEP_STORE:
		return c->found ? after_result(c) : step_failed(c);
	case STEP_NONE:
		break;
	}
	return STEP_NONE;
}

/* Goes on with the statement until it must wait or has ended. waiting: what the call under way waits for. */
static void conn_drive(struct conn *c, int waiting)
{
	while (waiting == 0 && c->step != STEP_NONE) {
		c->step = step_after(c);
		waiting = step_start(c);
	}
	ev_io_stop(c->loop, &c->io);
	if (c->step == STEP_NONE) {
		wait_done(&c->wait);
		return;
	}
	int events = (waiting & (MYSQL_WAIT_READ | MYSQL_WAIT_EXCEPT) ? EV_READ : 0) |
	             (waiting & MYSQL_WAIT_WRITE ? EV_WRITE : 0);
	ev_io_set(&c->io, mysql_get_socket(c->my), events);
	ev_io_start(c->loop, &c->io);
}

static void conn_on_ready(EV_P_ ev_io *w, int events)
{
	struct conn *c = w->data;
	int ready = (events & EV_READ ? MYSQL_WAIT_READ : 0) | (events & EV_WRITE ? MYSQL_WAIT_WRITE : 0);

	(void)loop;
	conn_drive(c, step_cont(c, ready));
}

/* Integers as integers, unless they are larger than Lua's; what is exact and no integer (DECIMAL) stays text. */
static void push_value(lua_State *L, const MYSQL_FIELD *f, const char *s, size_t len)
{
	switch ((int)f->type) {
	case MYSQL_TYPE_TINY:
	case MYSQL_TYPE_SHORT:
	case MYSQL_TYPE_INT24:
	case MYSQL_TYPE_LONG:
	case MYSQL_TYPE_LONGLONG:
	case MYSQL_TYPE_YEAR:
		errno = 0;
		long long n = strtoll(s, NULL, 10);
		if (errno == 0) {
			lua_pushinteger(L, n);
			return;
		}
		break;
	case MYSQL_TYPE_FLOAT:
	case MYSQL_TYPE_DOUBLE:
		if (lua_stringtonumber(L, s)) {
			lua_pushnumber(L, lua_tonumber(L, -1));
			lua_remove(L, -2);
			return;
		}
		break;
	}
	lua_pushlstring(L, s, len);
}

static void push_row(lua_State *L, MYSQL_RES *r, MYSQL_ROW row)
{
	unsigned columns = mysql_num_fields(r);
	const MYSQL_FIELD *f = mysql_fetch_fields(r);
	const unsigned long *lengths = mysql_fetch_lengths(r);

	lua_createtable(L, 0, (int)columns);
	for (unsigned i = 0; i < columns; i++) {
		if (!row[i])
			continue;
		lua_pushlstring(L, f[i].name, f[i].name_length);
		push_value(L, &f[i], row[i], lengths[i]);
		lua_rawset(L, -3);
	}
}

static void push_rows(lua_State *L, struct conn *c)
{
	lua_Integer n = 0;
	MYSQL_ROW row;

	lua_newtable(L);
	while (c->result && (row = mysql_fetch_row(c->result))) {
		push_row(L, c->result, row);
		lua_rawseti(L, -2, ++n);
	}
	bind_set_integer(L, "count", c->result ? n : (lua_Integer)c->affected);
	if (!c->result && c->inserted) {
		bind_set_integer(L, "insert_id", (lua_Integer)c->inserted);
	}
	lua_pushboolean(L, c->result != NULL);
	lua_insert(L, -2);
	result_free(&c->result);
}

/* The server closes the connection with these, and may have done the statement. */
static bool is_last_word(unsigned number)
{
	return number == ER_CONNECTION_KILLED || number == ER_SERVER_SHUTDOWN || number == ER_NET_PACKET_TOO_LARGE ||
	       number == ER_NORMAL_SHUTDOWN;
}

static int statement_ended(lua_State *L, struct conn *c)
{
	if (!c->failure.failed) {
		push_rows(L, c);
		lua_remove(L, -2);
		return 1;
	}
	bool lost = c->failure.lost || is_last_word(c->failure.number);
	if (lost)
		conn_close(c);
	return push_failure(L, c, c->over ? "cancelled" : lost ? "lost" : code_of(&c->failure), false);
}

static int statement_waited(lua_State *L, int, lua_KContext)
{
	struct conn *c = conn_at(L, 1);

	if (!sched_resumed(L)) {
		fail(c, true, 0, "", "no answer in time");
		return push_failure(L, c, "timeout", false);
	}
	return statement_ended(L, c);
}

/* Whether the server has closed it, or said something unasked (which is why it closes it). */
static bool is_dead(struct conn *c)
{
	char byte;
	ssize_t n = recv(mysql_get_socket(c->my), &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	return n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

/* run(conn, text, timeout) -> rows, or nil, err */
static int conn_run(lua_State *L)
{
	struct conn *c = conn_at(L, 1);
	size_t len;
	const char *text = luaL_checklstring(L, 2, &len);
	double timeout = luaL_checknumber(L, 3);

	sched_may_wait(L, "mysql");
	if (c->wait.task)
		return luaL_error(L, "mysql: another task uses this connection");
	c->failure = (struct failure){ 0 };
	if (!c->my || is_dead(c)) {
		conn_close(c);
		fail(c, true, 0, "", "the connection is closed");
		return push_failure(L, c, "lost", true);
	}
	result_free(&c->result);
	c->affected = c->inserted = 0;
	buf_fini(&c->text);
	buf_add(&c->text, text, len);
	c->step = STEP_QUERY;
	conn_drive(c, step_start(c));
	if (c->step == STEP_NONE)
		return statement_ended(L, c);
	return sched_wait(L, &c->wait, timeout, 0, statement_waited);
}

/* alive(conn) -> whether there is a connection that the server has not closed, and whether a backslash in a statement's
 * literal is nothing but a character (SET sql_mode = 'NO_BACKSLASH_ESCAPES') */
static int conn_alive(lua_State *L)
{
	struct conn *c = conn_at(L, 1);

	lua_pushboolean(L, c->my && !is_dead(c));
	lua_pushboolean(L, c->my && (c->my->server_status & SERVER_STATUS_NO_BACKSLASH_ESCAPES));
	return 2;
}

static int conn_shut(lua_State *L)
{
	struct conn *c = conn_at(L, 1);

	conn_close(c);
	fail(c, true, 0, "", "it was closed");
	wait_done(&c->wait);
	return 0;
}

static int conn_gc(lua_State *L)
{
	struct conn *c = conn_at(L, 1);

	bond_cut(&c->bond);
	conn_close(c);
	buf_fini(&c->text);
	return 0;
}

/* ---- the module ---- */

/* new() -> conn, of the scope in which it is made; connect() connects it */
static int conn_new(lua_State *L)
{
	struct sched *s = sched_of(L);

	lua_getfield(L, LUA_REGISTRYINDEX, THREADS_KEY);
	struct logins *logins = luaL_checkudata(L, -1, THREADS_TYPE);
	struct conn *c = lua_newuserdatauv(L, sizeof *c, 0);
	memset(c, 0, sizeof *c);
	c->loop = sched_loop(s);
	c->logins = logins;
	c->wait.left = conn_on_left;
	ev_io_init(&c->io, conn_on_ready, -1, 0);
	c->io.data = c;
	luaL_setmetatable(L, CONN_TYPE);
	bond_make(sched_scope(s), &c->bond, conn_on_over);
	return 1;
}

static int threads_gc(lua_State *L)
{
	struct logins *l = luaL_checkudata(L, 1, THREADS_TYPE);

	if (l->threads)
		offload_free(l->threads);
	l->threads = NULL;
	return 0;
}

static const luaL_Reg natives[] = {
	{ "new", conn_new },     { "connect", conn_connect }, { "run", conn_run },
	{ "alive", conn_alive }, { "close", conn_shut },      { NULL, NULL },
};

static int open_natives(lua_State *L)
{
	struct err err;

	mysql_library_init(0, NULL, NULL);
	bind_class(L, THREADS_TYPE, NULL, threads_gc);
	bind_class(L, CONN_TYPE, NULL, conn_gc);
	struct logins *all = lua_newuserdatauv(L, sizeof *all, 0);
	*all = (struct logins){ .threads = NULL };
	luaL_setmetatable(L, THREADS_TYPE);
	all->threads = offload_new(sched_loop(sched_of(L)), THREADS, &err);
	if (!all->threads)
		return luaL_error(L, "%s", err.text);
	lua_setfield(L, LUA_REGISTRYINDEX, THREADS_KEY);
	luaL_newlib(L, natives);
	return 1;
}

static void name_libraries(struct buf *out)
{
	buf_printf(out, "libmariadb %s", mysql_get_client_info());
}

const struct module lunarch_module = { .build = LUNARCH_BUILD, .open_lua = open_natives, .libraries = name_libraries };
