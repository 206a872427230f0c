#include "base/buf.h"
#include "base/mem.h"
#include "base/module.h"
#include "net/http/http.h"
#include "script/bind.h"
#include "script/scheduler.h"

#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CLIENT_KEY "lunarch.http.the_client"
#define CLIENT_TYPE "lunarch.http.client"
#define CALL_TYPE "lunarch.http.call"
#define CONNECTIONS 100          /* to one host and port */
#define STREAM_KEPT (256 * 1024) /* bytes kept of a body that is read more slowly than it comes */

/* A request of the script. lua/api/http.lua checks what the script asks for; this file starts the request, and wakes
 * the task that waits for it. Its user value holds the texts that must live as long as it does. */
struct call {
	struct http_call *under_way; /* NULL: it has ended */
	struct bond bond;            /* ends the request with the scope */
	struct wait wait;
	bool streams, answered, paused;
	int status;
	struct buf headers; /* name, 0, value, 0, ... */
	struct buf body;
	struct buf url;
	bool unsent, repeated;
	struct err err; /* set when it has ended */
};

static struct call *call_at(lua_State *L, int arg)
{
	return luaL_checkudata(L, arg, CALL_TYPE);
}

/* ---- callbacks of the request ---- */

static void keep_headers(struct call *c, const struct http_headers *headers)
{
	buf_fini(&c->headers);
	for (size_t i = 0; i < headers->count; i++) {
		buf_add(&c->headers, headers->list[i].name, strlen(headers->list[i].name) + 1);
		buf_add(&c->headers, headers->list[i].value, strlen(headers->list[i].value) + 1);
	}
}

static void call_on_answered(void *arg, struct http_call *, int status, const struct http_headers *headers)
{
	struct call *c = arg;

	c->answered = true;
	c->status = status;
	keep_headers(c, headers);
	wait_done(&c->wait);
}

static void call_on_data(void *arg, struct http_call *under_way, const char *bytes, size_t len)
{
	struct call *c = arg;

	buf_add(&c->body, bytes, len);
	if (c->body.len >= STREAM_KEPT && !c->paused) {
		c->paused = true;
		http_pause(under_way, true);
	}
	wait_done(&c->wait);
}

static void call_on_drained(void *arg, struct http_call *)
{
	struct call *c = arg;

	wait_done(&c->wait);
}

static void call_on_done(void *arg, const struct http_result *r, const struct http_headers *headers)
{
	struct call *c = arg;

	c->under_way = NULL;
	bond_cut(&c->bond);
	c->status = r->status;
	if (!c->answered)
		keep_headers(c, headers);
	if (!c->streams)
		buf_add(&c->body, r->body, r->len);
	buf_adds(&c->url, r->url ? r->url : "");
	c->unsent = r->unsent;
	c->repeated = r->repeated;
	c->err = r->err;
	wait_done(&c->wait);
}

/* Cancels the request, which closes its connection unless other requests use it. */
static void call_cancel_now(struct call *c)
{
	if (c->under_way)
		http_cancel(c->under_way);
}

static void call_on_left(struct wait *w)
{
	call_cancel_now((struct call *)((char *)w - offsetof(struct call, wait)));
}

static void call_on_over(struct bond *b)
{
	call_cancel_now((struct call *)((char *)b - offsetof(struct call, bond)));
}

/* ---- starting a request ---- */

static nsec duration(lua_State *L, int spec, const char *field)
{
	double s = bind_number(L, spec, field, 0);

	return s > 0 ? (nsec)(s * (double)NSEC_PER_SEC) : 0;
}

/* A text that is PEM is taken as the certificate itself, any other text as a file's name. */
static void text_or_file(lua_State *L, int spec, const char *field, const char **pem, const char **file)
{
	const char *s = bind_text(L, spec, field);
	bool is_pem = s && strstr(s, "-----BEGIN");

	*pem = is_pem ? s : NULL;
	*file = is_pem ? NULL : s;
}

static void read_tls(lua_State *L, int spec, struct http_tls *t)
{
	*t = (struct http_tls){ .key_password = bind_text(L, spec, "key_password"),
		                .insecure = bind_flag(L, spec, "insecure"),
		                .http1 = bind_flag(L, spec, "http1") };
	text_or_file(L, spec, "ca", &t->ca_pem, &t->ca_file);
	text_or_file(L, spec, "cert", &t->cert_pem, &t->cert_file);
	text_or_file(L, spec, "key", &t->key_pem, &t->key_file);
}

static void read_request(lua_State *L, int spec, struct http_request *r)
{
	double timeout = bind_number(L, spec, "timeout", 0);

	r->method = bind_text(L, spec, "method");
	r->url = bind_text(L, spec, "url");
	r->bearer = bind_text(L, spec, "bearer");
	r->user = bind_text(L, spec, "user");
	r->password = bind_text(L, spec, "password");
	lua_getfield(L, spec, "body");
	r->body = lua_tolstring(L, -1, &r->body_len);
	lua_pop(L, 1);
	r->streamed = bind_flag(L, spec, "streamed");
	r->server_name = bind_text(L, spec, "server_name");
	r->unix_path = bind_text(L, spec, "unix");
	r->proxy = bind_text(L, spec, "proxy");
	r->no_proxy = bind_text(L, spec, "no_proxy");
	if (timeout > 0)
		r->by = instant_add(clock_now(), (nsec)(timeout * (double)NSEC_PER_SEC));
	r->connect = duration(L, spec, "connect_timeout");
	r->first_byte = duration(L, spec, "first_byte");
	r->silence = duration(L, spec, "silence");
	r->redirects = (int)bind_number(L, spec, "redirects", 0);
	r->compressed = bind_flag(L, spec, "compressed");
	r->limit = (size_t)bind_number(L, spec, "max_body", 0);
	r->answered = call_on_answered;
	r->drained = call_on_drained;
	r->done = call_on_done;
}

static struct http *client(lua_State *L)
{
	lua_getfield(L, LUA_REGISTRYINDEX, CLIENT_KEY);
	struct http *h = *(struct http **)luaL_checkudata(L, -1, CLIENT_TYPE);
	lua_pop(L, 1);
	return h;
}

/* start(spec) -> call: lua/api/http.lua has checked the fields. */
static int call_start(lua_State *L)
{
	struct http_tls tls;
	struct http_request r = { 0 };
	struct scope *scope = sched_scope(sched_of(L));

	sched_may_wait(L, "http");
	lua_settop(L, 1);
	struct call *c = lua_newuserdatauv(L, sizeof *c, 1);
	memset(c, 0, sizeof *c);
	luaL_setmetatable(L, CALL_TYPE);
	lua_pushvalue(L, 1);
	lua_setiuservalue(L, 2, 1);
	c->wait.left = call_on_left;
	c->streams = bind_flag(L, 1, "stream");
	read_tls(L, 1, &tls);
	read_request(L, 1, &r);
	r.headers = (const char *const *)bind_texts(L, 1, "headers");
	r.tls = &tls;
	r.arg = c;
	r.data = c->streams ? call_on_data : NULL;
	c->under_way = http_start(client(L), &r);
	bond_make(scope, &c->bond, call_on_over);
	lua_settop(L, 2);
	return 1;
}

static int call_waited(lua_State *L, int, lua_KContext)
{
	if (sched_over(L)) /* it was woken before it was cancelled, so the end of its wait did not cancel the request */
		call_cancel_now(call_at(L, 1));
	lua_pushboolean(L, sched_resumed(L));
	return 1;
}

/* wait(call): until something about the call changes. If the task is cancelled meanwhile, the call is cancelled. */
static int call_wait(lua_State *L)
{
	struct call *c = call_at(L, 1);

	sched_may_wait(L, "http");
	if (c->wait.task)
		return luaL_error(L, "http: another task waits for this response");
	if (!c->under_way)
		return 0;
	return sched_wait(L, &c->wait, -1, 0, call_waited);
}

/* state(call) -> answered, ended */
static int call_state(lua_State *L)
{
	struct call *c = call_at(L, 1);

	lua_pushboolean(L, c->answered || (!c->under_way && c->err.code == ERR_NONE));
	lua_pushboolean(L, !c->under_way);
	return 2;
}

/* take(call) -> the part of the body that has come and was not taken */
static int call_take(lua_State *L)
{
	struct call *c = call_at(L, 1);

	lua_pushlstring(L, c->body.data ? c->body.data : "", c->body.len);
	buf_fini(&c->body);
	if (c->paused && c->under_way) {
		c->paused = false;
		http_pause(c->under_way, false);
	}
	return 1;
}

/* send(call, text; nil: the end) -> how many bytes wait to be sent; nil: the call has ended */
static int call_send(lua_State *L)
{
	struct call *c = call_at(L, 1);
	size_t len = 0;
	const char *bytes = luaL_optlstring(L, 2, "", &len);

	if (!c->under_way)
		return 0;
	lua_pushinteger(
		L, (lua_Integer)http_send(c->under_way, bytes, len, lua_isnoneornil(L, 2) ? HTTP_LAST : HTTP_SOME));
	return 1;
}

static int call_cancel(lua_State *L)
{
	call_cancel_now(call_at(L, 1));
	return 0;
}

/* Joins values of the same name with commas (RFC 9110, 5.3), but cookies with newlines: they may contain commas. */
static void add_header(lua_State *L, const char *name, const char *value)
{
	luaL_Buffer b;
	char *at = luaL_buffinitsize(L, &b, strlen(name));

	for (size_t i = 0; name[i]; i++)
		at[i] = name[i] >= 'A' && name[i] <= 'Z' ? (char)(name[i] - 'A' + 'a') : name[i];
	luaL_pushresultsize(&b, strlen(name));
	lua_pushvalue(L, -1);
	if (lua_rawget(L, -3) == LUA_TSTRING)
		lua_pushfstring(L, "%s%s%s", lua_tostring(L, -1), strcasecmp(name, "set-cookie") == 0 ? "\n" : ", ",
		                value);
	else
		lua_pushstring(L, value);
	lua_remove(L, -2);
	lua_rawset(L, -3);
}

/* answer(call) -> status, headers, URL, repeated */
static int call_answer(lua_State *L)
{
	struct call *c = call_at(L, 1);
	const char *end = c->headers.data + c->headers.len;

	lua_pushinteger(L, c->status);
	lua_newtable(L);
	for (const char *name = c->headers.data; name && name < end;) {
		const char *value = name + strlen(name) + 1;
		add_header(L, name, value);
		name = value + strlen(value) + 1;
	}
	lua_pushlstring(L, c->url.data ? c->url.data : "", c->url.len);
	lua_pushboolean(L, c->repeated);
	return 4;
}

/* failure(call) -> nil, err. err.unsent: no byte of the request was sent. Nothing is returned if it has not failed. */
static int call_failure(lua_State *L)
{
	struct call *c = call_at(L, 1);

	if (c->under_way || c->err.code == ERR_NONE)
		return 0;
	bind_fail_err(L, &c->err);
	bind_set_flag(L, "unsent", c->unsent);
	return 2;
}

static int call_gc(lua_State *L)
{
	struct call *c = call_at(L, 1);

	call_cancel_now(c);
	buf_fini(&c->headers);
	buf_fini(&c->body);
	buf_fini(&c->url);
	return 0;
}

static int client_gc(lua_State *L)
{
	struct http **h = luaL_checkudata(L, 1, CLIENT_TYPE);

	http_free(*h);
	*h = NULL;
	return 0;
}

static const luaL_Reg natives[] = {
	{ "start", call_start },   { "wait", call_wait },       { "state", call_state },
	{ "take", call_take },     { "send", call_send },       { "cancel", call_cancel },
	{ "answer", call_answer }, { "failure", call_failure }, { NULL, NULL },
};

static int open_natives(lua_State *L)
{
	const struct http_options options = { .connections = CONNECTIONS, .kept = CONNECTIONS };
	struct err err;

	bind_class(L, CLIENT_TYPE, NULL, client_gc);
	bind_class(L, CALL_TYPE, NULL, call_gc);
	struct http **slot = lua_newuserdatauv(L, sizeof(struct http *), 0);
	*slot = NULL;
	luaL_setmetatable(L, CLIENT_TYPE);
	*slot = http_new(sched_loop(sched_of(L)), &options, &err);
	if (!*slot)
		return luaL_error(L, "%s", err.text);
	lua_setfield(L, LUA_REGISTRYINDEX, CLIENT_KEY);
	luaL_newlib(L, natives);
	return 1;
}

const struct module lunarch_module = { .build = LUNARCH_BUILD, .open_lua = open_natives, .libraries = http_libraries };
