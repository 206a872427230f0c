#include "runner/admin.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/module.h"
#include "election/elector.h"
#include "runner/admin_metrics.h"
#include "runner/admin_server.h"
#include "runner/standing.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct admin {
	const struct admin_server_ops *ops;
	struct admin_server *server;
	struct standing_source source;
};

static const char *label(const struct standing *e)
{
	return *e->name ? e->name : e->status->lock;
}

/* ---- what is asked about one election ---- */

struct admin_query {
	const char *name; /* of the election that is asked about; "" = whichever there is */
	int found, yes;
	struct buf *out;
};

/* true: it is not known whether somebody else leads now, and this candidate could not take over. Says so. */
static bool is_cut_off(const struct standing *e, struct buf *out)
{
	if (e->status->store.answered && !e->status->store.lost)
		return false;
	buf_printf(out, "%s: the store has not answered %s %.1f s\n", label(e),
	           e->status->store.answered ? "for" : "yet, since the start",
	           (double)e->status->store_silence / NSEC_PER_SEC);
	return true;
}

static void ask_leader(void *arg, const struct standing *e)
{
	struct admin_query *q = arg;

	if (*q->name && strcmp(q->name, label(e)) != 0)
		return;
	q->found++;
	q->yes += e->status->leading;
	if (!e->status->leading && (*e->status->leader || !is_cut_off(e, q->out)))
		buf_printf(q->out, "%s%s\n", *e->status->leader ? "the leader is " : "nobody leads", e->status->leader);
}

static void ask_standby(void *arg, const struct standing *e)
{
	struct admin_query *q = arg;

	if (*q->name && strcmp(q->name, label(e)) != 0)
		return;
	q->found++;
	if (e->status->phase != PHASE_FOLLOWING)
		buf_adds(q->out, e->status->leading ? "leading\n" : "neither leading nor a standby\n");
	else if (!is_cut_off(e, q->out))
		q->yes++;
}

/* Says yes only for what was asked: with several elections the path has to name one, since a load balancer that asks
 * about "the leader" of several would send traffic to the wrong place. */
static int answer_one(const struct standing_source *a, const char *name, struct buf *body,
                      void (*ask)(void *arg, const struct standing *e), const char *what)
{
	struct admin_query q = { .name = name, .out = body };

	a->list(a->arg, ask, &q);
	if (q.found == 1 && q.yes) {
		buf_printf(body, "%s\n", what);
		return 200;
	}
	if (q.found > 1) {
		buf_drop(body, body->len);
		buf_adds(body, "several elections run here: put the name of one behind the path, as in /leader/NAME "
		               "(/status lists them)\n");
	} else if (q.found == 0) {
		buf_printf(body, *name ? "no election \"%s\" runs here\n" : "no election runs here yet\n", name);
		return *name ? 404 : 503;
	}
	return 503;
}

static int answer_leader(const struct standing_source *a, const char *name, struct buf *body, const char **type)
{
	(void)type;
	return answer_one(a, name, body, ask_leader, "leading");
}

static int answer_standby(const struct standing_source *a, const char *name, struct buf *body, const char **type)
{
	(void)type;
	return answer_one(a, name, body, ask_standby, "standby");
}

/* ---- what is asked about all ---- */

/* Like client-go's health adaptor: a leader whose lease has expired without its noticing is unhealthy, and nobody else
 * is. */
static bool is_sick(const struct standing *e, struct buf *out)
{
	if (e->status->since_renewal <= e->lease)
		return false;
	buf_printf(out, "%s: leading, but not renewed for %.1f s (the lease is %.1f s)\n", label(e),
	           (double)e->status->since_renewal / NSEC_PER_SEC, (double)e->lease / NSEC_PER_SEC);
	return true;
}

static void ask_health(void *arg, const struct standing *e)
{
	struct admin_query *q = arg;

	q->yes += !is_sick(e, q->out);
	q->found++;
}

static void ask_readiness(void *arg, const struct standing *e)
{
	struct admin_query *q = arg;

	q->yes += !is_sick(e, q->out) && !is_cut_off(e, q->out);
	q->found++;
}

static int answer_health(const struct standing_source *a, const char *name, struct buf *body, const char **type)
{
	struct admin_query q = { .name = name, .out = body };

	(void)type;
	a->list(a->arg, ask_health, &q);
	if (q.yes < q.found)
		return 503;
	buf_adds(body, "ok\n");
	return 200;
}

static int answer_readiness(const struct standing_source *a, const char *name, struct buf *body, const char **type)
{
	struct admin_query q = { .name = name, .out = body };

	(void)type;
	a->list(a->arg, ask_readiness, &q);
	if (q.found && q.yes == q.found) {
		buf_adds(body, "ok\n");
		return 200;
	}
	buf_adds(body, q.found ? "" : "no election runs here yet\n");
	return 503;
}

static void add_status(void *arg, const struct standing *e)
{
	struct admin_query *q = arg;

	buf_adds(q->out, q->found++ ? "," : "");
	standing_json(q->out, e);
}

static int answer_status(const struct standing_source *a, const char *name, struct buf *body, const char **type)
{
	struct admin_query q = { .name = name, .out = body };

	*type = "application/json";
	buf_printf(body, "{\"version\":\"" LUNARCH_BUILD "\",\"pid\":%d,\"elections\":[", (int)getpid());
	a->list(a->arg, add_status, &q);
	buf_adds(body, "]}\n");
	return 200;
}

static int answer_metrics(const struct standing_source *a, const char *name, struct buf *body, const char **type)
{
	(void)name;
	*type = "text/plain; version=0.0.4; charset=utf-8";
	admin_metrics(a, body);
	return 200;
}

/* ---- the endpoint ---- */

/* The second name of a path is the one that other programs of this kind use, and that people try first. */
static const struct admin_path {
	const char *path, *alias;
	bool named; /* "/NAME" may follow */
	int (*answer)(const struct standing_source *a, const char *name, struct buf *body, const char **type);
} paths[] = {
	{ "/leader", "/primary", true, answer_leader },
	{ "/standby", NULL, true, answer_standby },
	{ "/readyz", "/readiness", false, answer_readiness },
	{ "/healthz", "/liveness", false, answer_health },
	{ "/status", NULL, false, answer_status },
	{ "/metrics", NULL, false, answer_metrics },
};
#define PATHS (sizeof paths / sizeof *paths)

/* What follows the path p in what was asked for: "" or a name. NULL: another path was asked for. */
static const char *path_rest(const char *asked, const char *p, bool named)
{
	size_t len = p ? strlen(p) : 0;

	if (!p || strncmp(asked, p, len) != 0)
		return NULL;
	if (!asked[len])
		return asked + len;
	return named && asked[len] == '/' ? asked + len + 1 : NULL;
}

/* HAProxy's `option httpchk` asks for "/" if nobody tells it a path: that is /leader. */
int admin_answer(const struct standing_source *a, const char *path, struct buf *body, const char **type)
{
	if (strcmp(path, "/") == 0)
		path = "/leader";
	for (size_t i = 0; i < PATHS; i++) {
		const char *name = path_rest(path, paths[i].path, paths[i].named);
		if (!name)
			name = path_rest(path, paths[i].alias, paths[i].named);
		if (name)
			return paths[i].answer(a, name, body, type);
	}
	buf_adds(body, "there are");
	for (size_t i = 0; i < PATHS; i++)
		buf_printf(body, " %s", paths[i].path);
	buf_adds(body, "\n");
	return 404;
}

static int admin_on_request(void *arg, const char *path, struct buf *body, const char **type)
{
	return admin_answer(&((const struct admin *)arg)->source, path, body, type);
}

/* "HOST:PORT" in place; the host without brackets. */
static int split_address(char *address, char **host, char **port)
{
	char *colon = strrchr(address, ':');

	if (!colon || !colon[1] || strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
	    strtoul(colon + 1, NULL, 10) > 65535)
		return -1;
	*colon = '\0';
	*port = colon + 1;
	*host = address;
	if (*address == '[' && colon[-1] == ']') {
		colon[-1] = '\0';
		*host = address + 1;
	} else if (strchr(address, ':')) {
		return -1; /* an IPv6 address without brackets: its end and the port cannot be told apart */
	}
	return 0;
}

static int listen_socket(const struct addrinfo *ai)
{
	int on = 1, off = 0;
	int fd = socket(ai->ai_family, ai->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, ai->ai_protocol);

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (ai->ai_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
	if (bind(fd, ai->ai_addr, ai->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0)
		return fd;
	close(fd);
	return -1;
}

static int order_of(const struct addrinfo *ai)
{
	return ai->ai_family == AF_INET6 ? 0 : 1;
}

/* Every address of the machine is one socket of IPv6 that takes IPv4 too, where there is IPv6. */
static int open_listener(const char *host, const char *port, struct err *err)
{
	struct addrinfo hints = { .ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM }, *found = NULL;
	int fd = -1;
	int failed = getaddrinfo(*host ? host : NULL, port, &hints, &found);

	if (failed)
		return err_set(err, ERR_USAGE, "%s", gai_strerror(failed));
	for (int order = *host ? -1 : 0; order < 2 && fd < 0; order++)
		for (const struct addrinfo *ai = found; ai && fd < 0; ai = ai->ai_next)
			if (order < 0 || order_of(ai) == order)
				fd = listen_socket(ai);
	if (fd < 0)
		err_sys(err, "cannot listen");
	freeaddrinfo(found);
	return fd;
}

static void log_address(int fd)
{
	struct sockaddr_storage name = { 0 };
	socklen_t len = sizeof name;
	char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";

	getsockname(fd, (struct sockaddr *)&name, &len);
	getnameinfo((struct sockaddr *)&name, len, host, sizeof host, port, sizeof port,
	            NI_NUMERICHOST | NI_NUMERICSERV);
	log_event(LOG_INFO, NULL, "listening",
	          strchr(host, ':') ? "the admin endpoint is http://[%s]:%s/" : "the admin endpoint is http://%s:%s/",
	          host, port);
}

struct admin *admin_new(struct ev_loop *loop, const char *address, const struct standing_source *source,
                        struct err *err)
{
	char *text = mem_dup(address), *host, *port;
	struct admin *a = mem_zero(sizeof *a);
	const struct module *m = NULL;
	int fd = -1;

	a->source = *source;
	if (split_address(text, &host, &port) < 0)
		err_set(err, ERR_USAGE, "expected HOST:PORT, [IPV6]:PORT or :PORT");
	else
		m = module_open("admin", err);
	if (m && m->admin)
		fd = open_listener(host, port, err);
	if (fd >= 0) {
		log_address(fd);
		a->ops = m->admin;
		a->server = a->ops->serve(loop, fd, admin_on_request, a, err);
	}
	free(text);
	if (a->server)
		return a;
	err_wrap(err, "--listen %s", address);
	free(a);
	return NULL;
}

void admin_free(struct admin *a)
{
	if (!a)
		return;
	a->ops->close(a->server);
	free(a);
}
