#include "program/control.h"

#include "program/order_table.h"

#include "base/json_out.h"
#include "base/mem.h"
#include "net/serve/listener.h"
#include "net/serve/server.h"
#include "program/events.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define JSON "application/json"

struct control {
	struct server *server;
	struct events *events; /* borrowed; NULL: none */
	struct listener_file file;
	control_handler *handler;
	void *arg;
};

/* ---- what is answered ---- */

void control_agree(struct buf *reply)
{
	json_out_open(reply, NULL, "{");
	json_out_bool(reply, "ok", true);
}

void control_refuse(struct buf *reply, const char *fmt, ...)
{
	char text[1000];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	json_out_open(reply, NULL, "{");
	json_out_bool(reply, "ok", false);
	json_out_text(reply, "error", text);
	buf_adds(reply, "}");
}

/* The status of HTTP for an answer of the handler's. */
static int status_of(const struct buf *reply)
{
	static const char refused[] = "{\"ok\":false";

	if (reply->len < sizeof refused || strncmp(reply->data, refused, sizeof refused - 1) != 0)
		return 200;
	return strncmp(reply->data + sizeof refused - 1, ",\"again\":true", 13) == 0 ? 503 : 409;
}

/* A command that changes something is asked for by POST alone, so that nobody gives an order by following a link or
 * repeating a GET. */
const char *control_method(const char *command)
{
	const struct order *order = order_find(command);

	return order && order->changes ? "POST" : "GET";
}

/* what: the part of the request that is wrong: "method", "path" or "parameters". */
static void refuse(struct http_answer *a, int status, const char *fmt, const char *what)
{
	a->status = status;
	control_refuse(&a->body, fmt, what);
}

/* -1: refused. -1 in *seconds: not given. */
static int take_seconds(const char *text, double *seconds)
{
	char *end;

	*seconds = -1;
	if (!text)
		return 0;
	*seconds = strtod(text, &end);
	return *text && !*end && strspn(text, "0123456789.") == strlen(text) && *seconds >= 0 && *seconds <= 1e9 ? 0
	                                                                                                         : -1;
}

static const char *unknown_param(const struct request *r)
{
	static const char *const names[] = { "election", "to", "seconds", "job", "wait" };
	const size_t count = sizeof names / sizeof *names;

	for (size_t i = 0, j; i < r->params; i++) {
		for (j = 0; j < count && strcmp(r->param[i].name, names[j]) != 0;)
			j++;
		if (j == count)
			return r->param[i].name;
	}
	return NULL;
}

static void control_handle(struct control *c, const struct request *r, uint64_t ticket, struct http_answer *a)
{
	const char *election = request_param(r, "election"), *to = request_param(r, "to"), *odd = unknown_param(r),
		   *job = request_param(r, "job");
	struct control_request q = { .command = r->path + 1,
		                     .election = election ? election : "",
		                     .to = to ? to : "",
		                     .job = job ? job : "",
		                     .wait = request_param(r, "wait") != NULL,
		                     .peer = r->peer,
		                     .ticket = ticket };

	if (odd) {
		refuse(a, 400, "there is no parameter \"%s\": there are election, to, seconds, job and wait", odd);
	} else if (take_seconds(request_param(r, "seconds"), &q.seconds) < 0) {
		refuse(a, 400, "\"seconds\" must be a number from 0 to 1e9%s", "");
	} else {
		c->handler(c->arg, &q, &a->body);
		a->later = a->body.len == 0;
		a->status = status_of(&a->body);
	}
}

static void control_on_request(void *arg, const struct request *r, uint64_t ticket, struct http_answer *a)
{
	struct control *c = arg;
	const char *method = *r->path == '/' ? control_method(r->path + 1) : "GET";
	bool get = strcmp(r->method, "GET") == 0 || strcmp(r->method, "HEAD") == 0;

	a->type = JSON;
	if (get ? strcmp(method, "GET") != 0 : strcmp(r->method, method) != 0) {
		buf_printf(&a->headers, "Allow: %s\r\n", strcmp(method, "GET") == 0 ? "GET, HEAD" : method);
		refuse(a, 405, "this is asked for by %s", method);
	} else if (r->path[0] != '/' || r->path[1] == '\0') {
		refuse(a, 404, "which command? As in %s", "/status");
	} else if (c->events && strcmp(r->path, "/events") == 0) {
		events_join(c->events, a);
		return;
	} else {
		control_handle(c, r, ticket, a);
	}
	if (a->body.len)
		buf_adds(&a->body, "\n");
}

/* The file's mode keeps others out already. But modes are changed by hand, and a descriptor can be handed on: who may
 * give orders is said by the kernel. */
static bool control_may_ask(void *, uid_t peer, struct http_answer *a)
{
	if (peer == geteuid() || peer == 0)
		return true;
	a->status = 403;
	a->type = JSON;
	control_refuse(&a->body, "this elector takes orders from user %u and from root alone; you are user %u",
	               (unsigned)geteuid(), (unsigned)peer);
	buf_adds(&a->body, "\n");
	return false;
}

void control_answer(struct control *c, uint64_t ticket, const struct buf *reply)
{
	struct buf line = { 0 };

	if (!c)
		return;
	buf_add(&line, reply->data, reply->len);
	buf_adds(&line, "\n");
	server_answer(c->server, ticket, status_of(reply), &line);
	buf_fini(&line);
}

/* ---- the socket ---- */

struct control *control_new(struct ev_loop *loop, const char *path, control_handler *handler, void *arg,
                            struct events *events, struct err *err)
{
	char cwd[PATH_MAX];
	int fd = listener_unix(path, 0600, err);

	if (fd < 0)
		return NULL;
	struct control *c = mem_zero(sizeof *c);
	*c = (struct control){ .handler = handler, .arg = arg, .events = events };
	char *whole = *path != '/' && getcwd(cwd, sizeof cwd) ? mem_printf("%s/%s", cwd, path) : mem_dup(path);
	listener_file_init(&c->file, whole);
	free(whole);
	c->server = server_new(
		loop, fd,
		&(struct server_options){ .handler = control_on_request, .arg = c, .may_ask = control_may_ask });
	if (events)
		events_serve(events, c->server);
	return c;
}

const char *control_path(const struct control *c)
{
	return c->file.path;
}

void control_free(struct control *c)
{
	if (!c)
		return;
	if (c->events)
		events_leave(c->events, c->server);
	listener_file_fini(&c->file);
	server_free(c->server);
	free(c);
}
