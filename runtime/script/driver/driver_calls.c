#include "script/driver/driver_calls.h"

#include "base/mem.h"
#include "script/bind.h"
#include "script/driver/driver_state.h"

#include <arpa/inet.h>
#include <lauxlib.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define SOCKETS 64 /* file descriptors that are looked at: a driver has few, and the kernel gives the smallest */

#define LATE "the operation's deadline has passed"
#define CANCELLED "the operation is cancelled"

struct driver_call {
	struct driver *driver;
	LIST_ENTRY(driver_call) place; /* in the driver's list */
	enum driver_kind kind;
	uint64_t id;
	struct instant by;
	char *key, *expected, *waited_out, *text;
	int64_t floor;
	uint8_t flags;
	struct timer timer;  /* the deadline */
	struct task *task;   /* NULL: it has not begun */
	const char *stopped; /* why it must end: LATE or CANCELLED; NULL: it may go on */
};

struct answer { /* texts are borrowed */
	enum lock_outcome outcome;
	enum err_code code;
	const char *text, *version, *doubt, *list;
	size_t list_len;
};

/* Whether an operation whose end is not known may have changed something. */
static bool call_changes(const struct driver_call *c)
{
	return c->kind == DRIVER_WRITE || c->kind == DRIVER_REMOVE;
}

static struct driver_call *call_new(struct driver *d, const struct driver_ask *q)
{
	struct driver_call *c = mem_zero(sizeof *c);

	*c = (struct driver_call){ .driver = d,
		                   .kind = (enum driver_kind)q->kind,
		                   .id = q->id,
		                   .by = { .raw = q->by_raw, .boot = q->by_boot },
		                   .key = mem_dup(q->key),
		                   .expected = mem_dup(q->expected),
		                   .waited_out = mem_dup(q->waited_out),
		                   .text = mem_dup(q->text),
		                   .floor = q->floor,
		                   .flags = q->flags };
	LIST_INSERT_HEAD(&d->calls, c, place);
	return c;
}

static void call_free(struct driver_call *c)
{
	timer_stop(c->driver->timeline, &c->timer);
	LIST_REMOVE(c, place);
	free(c->key);
	free(c->expected);
	free(c->waited_out);
	free(c->text);
	free(c);
}

/* Whatever the lock file connects by is a TCP socket of this process. One to a link-local address leads to a cloud's
 * credentials, not to a store. */
static bool socket_leads_out(int fd)
{
	struct sockaddr_storage peer = { 0 };
	socklen_t len = sizeof peer, type_len = sizeof(int);
	int type = 0;

	if (getpeername(fd, (struct sockaddr *)&peer, &len) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_len) < 0 || type != SOCK_STREAM)
		return false;
	if (peer.ss_family == AF_INET)
		return ntohl(((struct sockaddr_in *)&peer)->sin_addr.s_addr) >> 16 != 0xa9fe; /* 169.254.0.0/16 */
	return peer.ss_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6 *)&peer)->sin6_addr);
}

/* This machine's address on the connection to the store; "": there is none now. */
static void find_here(char out[INET6_ADDRSTRLEN])
{
	struct sockaddr_storage own = { 0 };
	socklen_t len = sizeof own;
	int fd = 0;

	*out = '\0';
	while (fd < SOCKETS && !socket_leads_out(fd))
		fd++;
	if (fd == SOCKETS || getsockname(fd, (struct sockaddr *)&own, &len) < 0)
		return;
	const void *at = own.ss_family == AF_INET ? (void *)&((struct sockaddr_in *)&own)->sin_addr
	                                          : (void *)&((struct sockaddr_in6 *)&own)->sin6_addr;
	inet_ntop(own.ss_family, at, out, INET6_ADDRSTRLEN);
}

/* The only place that answers, and the call is gone with it. */
static void call_answer(struct driver_call *c, const struct answer *a)
{
	struct driver *d = c->driver;
	struct buf m = { 0 };
	char *text = driver_text(d, a->text ? a->text : ""), here[INET6_ADDRSTRLEN];
	const unsigned char *list = (const unsigned char *)a->list;

	find_here(here);
	driver_answer_put(&m, &(struct driver_answer){ .id = c->id,
	                                               .outcome = (uint8_t)a->outcome,
	                                               .code = (uint32_t)a->code,
	                                               .text = text,
	                                               .version = a->version,
	                                               .doubt = a->doubt,
	                                               .here = here,
	                                               .bytes = { .at = list, .end = list + a->list_len } });
	if (d->lose.id == c->id)
		d->lose.left = 0;
	call_free(c);
	driver_send(d, &m);
	free(text);
}

static void call_fail(struct driver_call *c, enum lock_outcome outcome, enum err_code code, const char *text)
{
	call_answer(c, &(struct answer){ .outcome = outcome, .code = code, .text = text });
}

/* ---- what the file's function has returned ---- */

enum err_code driver_code(const char *name)
{
	static const struct {
		const char *name;
		enum err_code code;
	} codes[] = {
		{ "invalid", ERR_INVALID },     { "missing", ERR_MISSING }, { "denied", ERR_DENIED },
		{ "full", ERR_FULL },           { "timeout", ERR_TIMEOUT }, { "unreachable", ERR_UNREACHABLE },
		{ "cancelled", ERR_CANCELLED },
	};

	for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
		if (strcmp(codes[i].name, name) == 0)
			return codes[i].code;
	return ERR_SYSTEM;
}

/* driver.lua returns the names of lock_outcome_name. */
static enum lock_outcome outcome_of(const char *name, enum lock_outcome otherwise)
{
	for (int o = LOCK_OK; o <= LOCK_FAILED; o++)
		if (strcmp(lock_outcome_name((enum lock_outcome)o), name) == 0)
			return (enum lock_outcome)o;
	return otherwise;
}

/* Raised: by the file, or by what it called. A change may have been made before that. */
static void call_raised(struct driver_call *c, const struct outcome *o)
{
	driver_complain(c->driver, o->message, o->traceback);
	call_fail(c, call_changes(c) ? LOCK_UNKNOWN : LOCK_FAILED, ERR_SYSTEM, o->message);
}

/* It was stopped. What it says then may come of that alone, as a "failed" in place of the error that ended its wait. */
static void call_ended_late(struct driver_call *c, bool begun)
{
	bool may_be_done = call_changes(c) && begun;

	call_fail(c, may_be_done ? LOCK_UNKNOWN : LOCK_FAILED,
	          strcmp(c->stopped, LATE) == 0 ? ERR_TIMEOUT : ERR_CANCELLED, c->stopped);
}

static void call_on_ended(void *arg, const struct outcome *o)
{
	struct driver_call *c = arg;
	struct answer a = { 0 };

	if (o->ok) {
		a.outcome = outcome_of(driver_result(o, 1, NULL), call_changes(c) ? LOCK_UNKNOWN : LOCK_FAILED);
		a.text = driver_result(o, 2, NULL);
		a.code = *a.text ? driver_code(driver_result(o, 3, NULL)) : ERR_NONE;
		a.version = driver_result(o, 4, NULL);
		a.doubt = driver_result(o, 5, NULL);
		a.list = driver_result(o, 6, &a.list_len);
	}
	if (c->stopped && !(o->ok && a.outcome == LOCK_OK))
		call_ended_late(c, o->begun);
	else if (!o->ok)
		call_raised(c, o);
	else
		call_answer(c, &a);
}

/* ---- beginning ---- */

/* The argument `op` of the file's functions. */
static void push_op(lua_State *L, const struct driver_call *c)
{
	lua_newtable(L);
	bind_set_number(L, "timeout", (double)instant_until(c->by, clock_now()) / NSEC_PER_SEC);
	if (!call_changes(c))
		return;
	bind_set_text(L, "expected", c->expected);
	if (c->kind != DRIVER_WRITE)
		return;
	bind_set_flag(L, "durable", c->flags & DRIVER_WRITE_DURABLE);
	bind_set_flag(L, "begins", c->flags & DRIVER_WRITE_BEGINS);
	bind_set_flag(L, "advice", c->flags & DRIVER_WRITE_ADVICE);
	bind_set_flag(L, "own", c->flags & DRIVER_WRITE_OWN);
	bind_set_text(L, "waited_out", c->waited_out);
	bind_set_integer(L, "floor", c->floor);
}

static void call_start(struct driver_call *c)
{
	static const char *const functions[DRIVER_KINDS] = { "read", "write", "remove", "list", "about" };
	struct driver *d = c->driver;
	lua_State *L = d->script->L;

	if (instant_passed(c->by, clock_now())) {
		call_fail(c, LOCK_FAILED, ERR_TIMEOUT, LATE " before it began");
		return;
	}
	driver_push(d, functions[c->kind]);
	lua_pushstring(L, c->key ? c->key : "");
	push_op(L, c);
	lua_pushstring(L, c->text ? c->text : "");
	c->task = sched_spawn(sched_program(d->script->sched), L, 3, call_on_ended, c);
}

/* A task that has not begun yet ends in the next turn; one that waits, as soon as it has cleaned up. */
static void call_stop(struct driver_call *c, const char *why)
{
	if (c->stopped)
		return;
	c->stopped = why;
	if (c->task)
		task_cancel(c->task, why);
	else
		call_ended_late(c, false);
}

static void call_on_deadline(struct timer *t)
{
	call_stop((struct driver_call *)((char *)t - offsetof(struct driver_call, timer)), LATE);
}

void driver_calls_begin(struct driver *d, const struct driver_ask *q)
{
	struct driver_call *c = call_new(d, q);

	timer_init(d->timeline, &c->timer, call_on_deadline);
	timer_start(d->timeline, &c->timer, (double)instant_until(c->by, clock_now()) / NSEC_PER_SEC);
	if (d->state == DRIVER_IS_OPEN)
		call_start(c);
}

void driver_calls_opened(struct driver *d)
{
	for (struct driver_call *c = LIST_FIRST(&d->calls), *next; c; c = next) {
		next = LIST_NEXT(c, place);
		call_start(c);
	}
}

void driver_calls_cancel(struct driver *d, uint64_t id)
{
	for (struct driver_call *c = LIST_FIRST(&d->calls); c; c = LIST_NEXT(c, place))
		if (c->id == id) {
			call_stop(c, CANCELLED);
			return;
		}
}

void driver_calls_fini(struct driver *d)
{
	while (!LIST_EMPTY(&d->calls))
		call_free(LIST_FIRST(&d->calls));
}
