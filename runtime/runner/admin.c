#include "runner/admin.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/module.h"
#include "election/elector.h"
#include "runner/admin_server.h"
#include "runner/control.h"

#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct admin {
	const struct admin_server_ops *ops;
	struct admin_server *server;
	struct admin_source source;
};

/* ---- /leader, /healthz, /status ---- */

struct admin_query {
	const char *name; /* of the election that is asked about; "" = whichever there is */
	int found, leading, unhealthy;
	struct buf *out;
};

static const char *label(const struct admin_election *e)
{
	return *e->name ? e->name : e->status->lock;
}

static void ask_leader(void *arg, const struct admin_election *e)
{
	struct admin_query *q = arg;

	if (*q->name && strcmp(q->name, label(e)) != 0)
		return;
	q->found++;
	q->leading += e->status->leading;
	if (!e->status->leading)
		buf_printf(q->out, "%s%s\n", *e->status->leader ? "the leader is " : "nobody leads", e->status->leader);
}

/* Says yes only for what was asked: with several elections the path has to name one, since a load balancer that asks
 * about "the leader" of several would send traffic to the wrong place. */
static int answer_leader(const struct admin_source *a, const char *name, struct buf *body)
{
	struct admin_query q = { .name = name, .out = body };

	a->list(a->arg, ask_leader, &q);
	if (q.found == 1 && q.leading) {
		buf_adds(body, "leading\n");
		return 200;
	}
	if (q.found > 1) {
		buf_drop(body, body->len);
		buf_adds(body, "several elections run here: ask /leader/NAME (/status lists them)\n");
	} else if (q.found == 0) {
		buf_printf(body, *name ? "no election \"%s\" runs here\n" : "no election runs here yet\n", name);
		return *name ? 404 : 503;
	}
	return 503;
}

/* Like client-go's health adaptor: a leader whose lease has expired without its noticing is unhealthy, and nobody else
 * is. */
static void ask_health(void *arg, const struct admin_election *e)
{
	struct admin_query *q = arg;

	if (e->status->since_renewal <= e->lease)
		return;
	q->unhealthy++;
	buf_printf(q->out, "%s: leading, but not renewed for %.1f s (the lease is %.1f s)\n", label(e),
	           (double)e->status->since_renewal / NSEC_PER_SEC, (double)e->lease / NSEC_PER_SEC);
}

static int answer_health(const struct admin_source *a, struct buf *body)
{
	struct admin_query q = { .out = body };

	a->list(a->arg, ask_health, &q);
	if (q.unhealthy)
		return 503;
	buf_adds(body, "ok\n");
	return 200;
}

static void add_status(void *arg, const struct admin_election *e)
{
	struct admin_query *q = arg;

	buf_adds(q->out, q->found++ ? "," : "");
	control_add_election(q->out, e->name, e->status);
}

static int answer_status(const struct admin_source *a, struct buf *body)
{
	struct admin_query q = { .out = body };

	buf_printf(body, "{\"version\":\"" LUNARCH_BUILD "\",\"pid\":%d,\"elections\":[", (int)getpid());
	a->list(a->arg, add_status, &q);
	buf_adds(body, "]}\n");
	return 200;
}

/* ---- /metrics: the text format of Prometheus, 0.0.4 ---- */

static const double limits_s[ADMIN_BUCKETS] = { 0.001, 0.0025, 0.01, 0.025, 0.1, 0.25, 1, 2.5, 10 };

void admin_renewed(struct admin_renewals *r, nsec took)
{
	int i = 0;

	while (i < ADMIN_BUCKETS && (double)took > limits_s[i] * NSEC_PER_SEC)
		i++;
	r->bucket[i]++;
	r->sum += took;
}

struct metric {
	const char *name, *type, *help;
	void (*add)(struct buf *out, const struct metric *m, const struct admin_election *e);
};

/* A sample's name and labels; more: further labels, or "". */
static void add_sample(struct buf *out, const char *name, const char *suffix, const struct admin_election *e,
                       const char *more)
{
	buf_printf(out, "%s%s{name=\"", name, suffix);
	for (const char *s = label(e); *s; s++)
		if (*s == '\n')
			buf_adds(out, "\\n");
		else
			buf_printf(out, "%s%c", *s == '"' || *s == '\\' ? "\\" : "", *s);
	buf_printf(out, "\"%s} ", more);
}

static void add_value(struct buf *out, const struct metric *m, const struct admin_election *e, int64_t value)
{
	add_sample(out, m->name, "", e, "");
	buf_printf(out, "%" PRId64 "\n", value);
}

static void add_master(struct buf *out, const struct metric *m, const struct admin_election *e)
{
	add_value(out, m, e, e->status->leading);
}

static void add_slow_paths(struct buf *out, const struct metric *m, const struct admin_election *e)
{
	add_value(out, m, e, (int64_t)e->status->slow_paths);
}

static void add_token(struct buf *out, const struct metric *m, const struct admin_election *e)
{
	add_value(out, m, e, e->status->leading ? e->status->token : 0);
}

static void add_transitions(struct buf *out, const struct metric *m, const struct admin_election *e)
{
	add_value(out, m, e, (int64_t)e->status->transitions);
}

static void add_hook_errors(struct buf *out, const struct metric *m, const struct admin_election *e)
{
	add_value(out, m, e, e->hook_errors);
}

static void add_remaining(struct buf *out, const struct metric *m, const struct admin_election *e)
{
	add_sample(out, m->name, "", e, "");
	buf_printf(out, "%.3f\n", e->status->leading ? (double)e->status->remaining / NSEC_PER_SEC : 0.);
}

static void add_results(struct buf *out, const struct metric *m, const struct admin_election *e)
{
	add_sample(out, m->name, "", e, ",result=\"ok\"");
	buf_printf(out, "%" PRIu64 "\n", e->status->renewals_ok);
	add_sample(out, m->name, "", e, ",result=\"failed\"");
	buf_printf(out, "%" PRIu64 "\n", e->status->renewals_failed);
}

static void add_histogram(struct buf *out, const struct metric *m, const struct admin_election *e)
{
	uint64_t count = 0;
	char limit[32];

	for (int i = 0; i < ADMIN_BUCKETS; i++) {
		count += e->renewals->bucket[i];
		snprintf(limit, sizeof limit, ",le=\"%g\"", limits_s[i]);
		add_sample(out, m->name, "_bucket", e, limit);
		buf_printf(out, "%" PRIu64 "\n", count);
	}
	count += e->renewals->bucket[ADMIN_BUCKETS];
	add_sample(out, m->name, "_bucket", e, ",le=\"+Inf\"");
	buf_printf(out, "%" PRIu64 "\n", count);
	add_sample(out, m->name, "_sum", e, "");
	buf_printf(out, "%.6f\n", (double)e->renewals->sum / NSEC_PER_SEC);
	add_sample(out, m->name, "_count", e, "");
	buf_printf(out, "%" PRIu64 "\n", count);
}

/* The first two have the names that client-go gives them, so that dashboards and alerts made for it work here, too. */
static const struct metric metrics[] = {
	{ "leader_election_master_status", "gauge", "1 while this process leads the election.", add_master },
	{ "leader_election_slowpath_total", "counter", "Renewals that met another version than expected.",
	  add_slow_paths },
	{ "lunarch_token", "gauge", "Fencing token of the running term; 0 while not leading.", add_token },
	{ "lunarch_remaining_seconds", "gauge", "Until the term would end without another renewal.", add_remaining },
	{ "lunarch_transitions_total", "counter",
	  "Terms that this process began; the sum over all candidates counts every change.", add_transitions },
	{ "lunarch_renewals_total", "counter", "Renewals by result.", add_results },
	{ "lunarch_renew_seconds", "histogram", "From sending a renewal to its answer.", add_histogram },
	{ "lunarch_hook_errors_total", "counter", "Hooks that raised an error or had to be killed.", add_hook_errors },
};

struct metric_walk {
	const struct metric *metric;
	struct buf *out;
};

static void add_metric(void *arg, const struct admin_election *e)
{
	struct metric_walk *w = arg;

	w->metric->add(w->out, w->metric, e);
}

static int answer_metrics(const struct admin_source *a, struct buf *body, const char **type)
{
	*type = "text/plain; version=0.0.4; charset=utf-8";
	for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++) {
		struct metric_walk w = { &metrics[i], body };
		buf_printf(body, "# HELP %s %s\n# TYPE %s %s\n", metrics[i].name, metrics[i].help, metrics[i].name,
		           metrics[i].type);
		a->list(a->arg, add_metric, &w);
	}
	buf_adds(body, "# HELP lunarch_build_info Which build this is.\n# TYPE lunarch_build_info gauge\n"
	               "lunarch_build_info{version=\"" LUNARCH_BUILD "\"} 1\n");
	return 200;
}

/* ---- the endpoint ---- */

int admin_answer(const struct admin_source *a, const char *path, struct buf *body, const char **type)
{
	if (strcmp(path, "/leader") == 0)
		return answer_leader(a, "", body);
	if (strncmp(path, "/leader/", strlen("/leader/")) == 0)
		return answer_leader(a, path + strlen("/leader/"), body);
	if (strcmp(path, "/healthz") == 0)
		return answer_health(a, body);
	if (strcmp(path, "/metrics") == 0)
		return answer_metrics(a, body, type);
	if (strcmp(path, "/status") == 0) {
		*type = "application/json";
		return answer_status(a, body);
	}
	buf_adds(body, "there are /leader /healthz /status /metrics\n");
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

struct admin *admin_new(struct ev_loop *loop, const char *address, const struct admin_source *source, struct err *err)
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
