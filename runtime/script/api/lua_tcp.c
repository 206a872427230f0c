#include "base/buf.h"
#include "base/module.h"
#include "loop/dial.h"
#include "loop/offload.h"
#include "net/tls/tls.h"
#include "script/api/api.h"
#include "script/bind.h"
#include "script/scheduler.h"

#include <errno.h>
#include <ev.h>
#include <lauxlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* What lua/lunarch/tcp.lua is made of: connections to a host, and TLS in them from the moment at which Lua says so.
 * That file has checked the arguments. One task at a time reads. */

#define CONN_TYPE "lunarch.tcp.connection"
#define LOOKUPS_KEY "lunarch.tcp.lookups"
#define LOOKUPS_TYPE LOOKUPS_KEY
#define LOOKUPS 2                /* threads, which look names up */
#define UNREAD_MAX (1024 * 1024) /* bytes that are kept for Lua: from there on the other side waits */
#define PIECE 16384

struct lookups {
	struct offload *threads;
	unsigned turn; /* which of a host's addresses is tried first: one more after a failure */
};

struct tcp_conn {
	struct ev_loop *loop;
	struct lookups *lookups; /* borrowed */
	struct dial *dial;       /* NULL: none is under way */
	int fd;                  /* -1: there is none */
	ev_io readable, writable;
	const struct tls_ops *ops;
	struct tls *tls; /* NULL: plain */
	struct buf in, out;
	struct bond bond;
	struct wait wait; /* of who connects or reads */
	bool failed;
	struct err err;
};

static struct tcp_conn *conn_at(lua_State *L)
{
	return luaL_checkudata(L, 1, CONN_TYPE);
}

/* ---- ending ---- */

static void conn_close(struct tcp_conn *c)
{
	dial_cancel(c->dial);
	c->dial = NULL;
	ev_io_stop(c->loop, &c->readable);
	ev_io_stop(c->loop, &c->writable);
	if (c->tls)
		c->ops->end(c->tls);
	c->tls = NULL;
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	buf_fini(&c->out);
}

/* The first reason counts. */
static void conn_note(struct tcp_conn *c, const struct err *err)
{
	if (!c->failed)
		c->err = *err;
	c->failed = true;
}

/* What was read before stays readable. */
static void conn_fail(struct tcp_conn *c, const struct err *err)
{
	conn_note(c, err);
	conn_close(c);
	wait_done(&c->wait);
}

static void conn_on_over(struct bond *b)
{
	struct tcp_conn *c = (struct tcp_conn *)((char *)b - offsetof(struct tcp_conn, bond));
	struct err err;

	err_set(&err, ERR_CANCELLED, "the connection was made in a term that has ended");
	conn_fail(c, &err);
}

static int push_failure(lua_State *L, const struct tcp_conn *c)
{
	return bind_fail_err(L, &c->err);
}

/* ---- bytes ---- */

static void conn_flush(struct tcp_conn *c)
{
	struct err err;

	if (c->tls)
		c->ops->take(c->tls, &c->out);
	while (c->fd >= 0 && c->out.len > 0) {
		ssize_t n = send(c->fd, c->out.data, c->out.len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || err_kernel_lacks(errno))) {
			ev_io_start(c->loop, &c->writable);
			return;
		}
		if (n < 0) {
			err_sys(&err, "the connection is lost");
			conn_fail(c, &err);
			return;
		}
		buf_drop(&c->out, (size_t)n);
	}
	ev_io_stop(c->loop, &c->writable);
}

static void conn_on_writable(struct ev_loop *, ev_io *w, int)
{
	conn_flush(w->data);
}

static int conn_feed(struct tcp_conn *c, const char *bytes, size_t len, struct err *err)
{
	if (!c->tls) {
		buf_add(&c->in, bytes, len);
		return 0;
	}
	int rc = c->ops->feed(c->tls, bytes, len, &c->in, err);
	if (rc < 0)
		conn_note(c, err);
	conn_flush(c); /* a handshake's next step, or an alert */
	return rc;
}

static void conn_on_readable(struct ev_loop *, ev_io *w, int)
{
	struct tcp_conn *c = w->data;
	char piece[PIECE];
	struct err err;
	ssize_t n = recv(w->fd, piece, sizeof piece, 0);

	if (n < 0 && (errno == EAGAIN || errno == EINTR || err_kernel_lacks(errno)))
		return;
	if (n < 0)
		err_sys(&err, "the connection is lost");
	else if (n == 0)
		err_set(&err, ERR_UNREACHABLE, "the other side has closed the connection");
	if (n <= 0 || conn_feed(c, piece, (size_t)n, &err) < 0) {
		conn_fail(c, &err);
		return;
	}
	if (c->in.len >= UNREAD_MAX)
		ev_io_stop(c->loop, &c->readable);
	if (c->in.len > 0)
		wait_done(&c->wait);
}

/* ---- connecting ---- */

static void conn_on_dialed(void *arg, int fd, const struct err *err)
{
	struct tcp_conn *c = arg;

	c->dial = NULL;
	if (fd < 0) {
		c->lookups->turn++;
		conn_fail(c, err);
		return;
	}
	c->fd = fd;
	ev_io_set(&c->readable, fd, EV_READ);
	ev_io_set(&c->writable, fd, EV_WRITE);
	ev_io_start(c->loop, &c->readable);
	wait_done(&c->wait);
}

static int dial_waited(lua_State *L, int, lua_KContext)
{
	struct tcp_conn *c = conn_at(L);
	struct err err;

	if (!sched_resumed(L)) {
		err_set(&err, ERR_TIMEOUT, "no connection in time");
		conn_fail(c, &err);
	}
	if (c->failed)
		return push_failure(L, c);
	lua_pushboolean(L, 1);
	return 1;
}

/* conn:dial(host, port, timeout) -> true, or nil, err */
static int conn_dial(lua_State *L)
{
	struct tcp_conn *c = conn_at(L);
	double timeout = luaL_checknumber(L, 4);
	struct instant by = instant_add(clock_now(), (nsec)(timeout * NSEC_PER_SEC));

	sched_may_wait(L, "tcp.connect");
	c->dial = dial_start(c->loop, c->lookups->threads, luaL_checkstring(L, 2), (int)luaL_checkinteger(L, 3),
	                     c->lookups->turn, by, conn_on_dialed, c);
	return sched_wait(L, &c->wait, timeout, 0, dial_waited);
}

/* ---- what Lua calls on one ---- */

static int push_read(lua_State *L, struct tcp_conn *c)
{
	if (c->in.len == 0)
		return push_failure(L, c);
	lua_pushlstring(L, c->in.data, c->in.len);
	buf_fini(&c->in);
	if (c->fd >= 0)
		ev_io_start(c->loop, &c->readable);
	return 1;
}

static int read_waited(lua_State *L, int, lua_KContext)
{
	struct tcp_conn *c = conn_at(L);

	if (!sched_resumed(L) && c->in.len == 0 && !c->failed)
		return bind_fail(L, "timeout", "nothing came in time");
	return push_read(L, c);
}

/* conn:read(timeout) -> what has come, at least a byte; or nil, err. timeout nil: none */
static int conn_read(lua_State *L)
{
	struct tcp_conn *c = conn_at(L);
	double timeout = luaL_optnumber(L, 2, -1);

	sched_may_wait(L, "connection:read");
	if (c->wait.task)
		return luaL_error(L, "connection:read: another task reads");
	if (c->in.len > 0 || c->failed)
		return push_read(L, c);
	return sched_wait(L, &c->wait, timeout, 0, read_waited);
}

/* conn:write(text) -> true: it will be sent, if the connection lasts; or nil, err: nothing of it has been */
static int conn_write(lua_State *L)
{
	struct tcp_conn *c = conn_at(L);
	size_t len;
	const char *text = luaL_checklstring(L, 2, &len);
	struct err err;

	if (c->failed)
		return push_failure(L, c);
	if (!c->tls) {
		buf_add(&c->out, text, len);
	} else if (c->ops->write(c->tls, text, len, &err) < 0) {
		conn_fail(c, &err);
		return push_failure(L, c);
	}
	conn_flush(c);
	lua_pushboolean(L, 1);
	return 1;
}

/* conn:tls(spec) -> true: what is written from now on goes over TLS; or nil, err. spec: host, ca, cert, key ... */
static int conn_tls(lua_State *L)
{
	struct tcp_conn *c = conn_at(L);
	struct err err;
	const struct module *m;

	if (c->failed)
		return push_failure(L, c);
	if (c->tls || c->in.len > 0 || c->out.len > 0)
		return luaL_error(L, "connection:tls: expected a connection that is plain, and on which nothing is "
		                     "under way");
	m = module_open("tls", &err);
	if (m) {
		c->ops = m->tls;
		c->tls = c->ops->begin(&(struct tls_settings){ .host = bind_text(L, 2, "host"),
		                                               .server_name = bind_text(L, 2, "server_name"),
		                                               .ca_file = bind_text(L, 2, "ca"),
		                                               .cert_file = bind_text(L, 2, "cert"),
		                                               .key_file = bind_text(L, 2, "key") },
		                       &err);
	}
	if (!c->tls) {
		conn_fail(c, &err);
		return push_failure(L, c);
	}
	conn_flush(c);
	lua_pushboolean(L, 1);
	return 1;
}

static int conn_shut(lua_State *L)
{
	struct err err;

	err_set(&err, ERR_CANCELLED, "the connection was closed");
	conn_fail(conn_at(L), &err);
	return 0;
}

static int conn_gc(lua_State *L)
{
	struct tcp_conn *c = conn_at(L);

	bond_cut(&c->bond);
	conn_close(c);
	buf_fini(&c->in);
	return 0;
}

/* ---- all of them ---- */

static int lookups_gc(lua_State *L)
{
	struct lookups *all = luaL_checkudata(L, 1, LOOKUPS_TYPE);

	if (all->threads)
		offload_free(all->threads);
	all->threads = NULL;
	return 0;
}

/* Pushes what looks names up; it stays for as long as the Lua state. */
static struct lookups *push_lookups(lua_State *L)
{
	struct err err;

	if (lua_getfield(L, LUA_REGISTRYINDEX, LOOKUPS_KEY) == LUA_TUSERDATA)
		return lua_touserdata(L, -1);
	struct lookups *all = lua_newuserdatauv(L, sizeof *all, 0);
	*all = (struct lookups){ .threads = NULL };
	if (luaL_newmetatable(L, LOOKUPS_TYPE)) {
		lua_pushcfunction(L, lookups_gc);
		lua_setfield(L, -2, "__gc");
	}
	lua_setmetatable(L, -2);
	all->threads = offload_new(sched_loop(sched_of(L)), LOOKUPS, &err);
	if (!all->threads)
		luaL_error(L, "tcp: %s", err.text);
	lua_pushvalue(L, -1);
	lua_setfield(L, LUA_REGISTRYINDEX, LOOKUPS_KEY);
	return all;
}

/* tcp() -> conn, of the scope in which it is made */
static int conn_new(lua_State *L)
{
	struct sched *s = sched_of(L);
	struct lookups *lookups = push_lookups(L);
	struct tcp_conn *c = lua_newuserdatauv(L, sizeof *c, 0);

	*c = (struct tcp_conn){ .loop = sched_loop(s), .lookups = lookups, .fd = -1 };
	ev_init(&c->readable, conn_on_readable);
	ev_init(&c->writable, conn_on_writable);
	c->readable.data = c->writable.data = c;
	luaL_setmetatable(L, CONN_TYPE);
	bond_make(sched_scope(s), &c->bond, conn_on_over);
	return 1;
}

static const luaL_Reg methods[] = {
	{ "dial", conn_dial }, { "read", conn_read },  { "write", conn_write },
	{ "tls", conn_tls },   { "close", conn_shut }, { NULL, NULL },
};

void api_open_tcp(lua_State *L)
{
	bind_class(L, CONN_TYPE, methods, conn_gc);
	lua_pushcfunction(L, conn_new);
	lua_setfield(L, -2, "tcp");
}
