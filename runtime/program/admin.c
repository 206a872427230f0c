#include "program/admin.h"

#include "base/json_out.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/module.h"
#include "base/nonce.h"
#include "election/elector.h"
#include "lease/past_rows.h"
#include "net/serve/listener.h"
#include "net/serve/server.h"
#include "program/admin_metrics.h"
#include "program/events.h"
#include "program/standing.h"
#include "program/state_file.h"
#include "program/status.h"
#include "term/script_jobs.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

extern const char admin_page_html[]; /* runtime/program/page.html, linked in (Makefile) */

struct admin {
	struct server *server;
	struct standing_source source;
	struct events *events;
	struct listener_file file; /* of its Unix socket; without a path: it listens at an address */
	bool loopback;             /* only this machine itself reaches that address */
};

/* ---- what is asked about an election ---- */

/* true: it is not known whether somebody else leads now, and `out` says so. */
static bool is_cut_off(const struct standing *e, struct buf *out)
{
	if (e->status->store.answered && !e->status->store.lost)
		return false;
	buf_printf(out, "%s: the store has not answered %s %.1f s\n", standing_name(e),
	           e->status->store.answered ? "for" : "yet, since the start",
	           (double)e->status->store_silence / NSEC_PER_SEC);
	return true;
}

/* false: `out` says why not. */
static bool could_lead(const struct standing *e, struct buf *out)
{
	if (!e->status->lacks)
		return true;
	buf_printf(out, "%s: it could not lead: %s\n", standing_name(e), e->status->lacks);
	is_cut_off(e, out); /* which says for how long */
	return false;
}

static bool is_leader(const struct standing *e, struct buf *out)
{
	if (!e->status->leading && (*e->status->leader || !is_cut_off(e, out)))
		buf_printf(out, "%s%s\n", *e->status->leader ? "the leader is " : "nobody leads", e->status->leader);
	return e->status->leading;
}

static bool is_standby(const struct standing *e, struct buf *out)
{
	if (e->status->leading)
		buf_adds(out, "leading\n");
	return !e->status->leading && could_lead(e, out);
}

/* Like client-go's health adaptor: a leader whose lease has expired without its noticing is unhealthy, and nobody else
 * is. */
static bool is_healthy(const struct standing *e, struct buf *out)
{
	if (e->status->since_renewal <= e->lease)
		return true;
	buf_printf(out, "%s: leading, but not renewed for %.1f s (the lease is %.1f s)\n", standing_name(e),
	           (double)e->status->since_renewal / NSEC_PER_SEC, (double)e->lease / NSEC_PER_SEC);
	return false;
}

/* An observer never leads, as its script says. It is ready when it can tell who leads. */
static bool is_ready(const struct standing *e, struct buf *out)
{
	return is_healthy(e, out) && (e->status->standing.observer ? !is_cut_off(e, out) : could_lead(e, out));
}

static bool tell_why(const struct standing *e, struct buf *out)
{
	buf_adds(out, out->len ? "\n" : "");
	standing_tell(out, e);
	return true;
}

/* Begins an object about an election in a list of them. */
static void begin_listed(const struct standing *e, struct buf *out)
{
	json_out_open(out, NULL, "{");
	json_out_text(out, "name", e->name);
	json_out_text(out, "lock", e->status->lock);
}

static bool add_history(const struct standing *e, struct buf *out)
{
	begin_listed(e, out);
	json_out_text(out, "state", leadership_name(standing_state(e)));
	json_out_name(out, "terms");
	past_json(out, e->status->record, clock_wall_us());
	buf_adds(out, "}");
	return true;
}

static bool add_jobs(const struct standing *e, struct buf *out)
{
	begin_listed(e, out);
	json_out_name(out, "jobs");
	script_jobs_json(out, e->jobs);
	buf_adds(out, "}");
	return true;
}

/* ---- the paths ---- */

#define JSON "application/json"

static void add_status(const struct standing_source *a, struct buf *out)
{
	status_json(out, a);
}

/* ONE: yes only for what was asked. With several elections the path has to name one, since a load balancer that asks
 * about "the leader" of several would send traffic to the wrong place. ALL: yes if each says so, and if there is none
 * as well; EACH: at least one, too. TEXT: lines about those that are meant. LIST: an object of JSON for each, with the
 * time of this machine, by which "now" is meant. */
enum answer_kind { ONE, ALL, EACH, TEXT, LIST };

/* The second name of a path is the one that other programs of this kind use, and that people try first. */
static const struct admin_path {
	const char *path, *alias;
	enum answer_kind kind; /* ONE, TEXT: "/NAME" may follow */
	const char *yes;
	bool (*ask)(const struct standing *e, struct buf *out);
	const char *type;
	void (*whole)(const struct standing_source *a, struct buf *out); /* instead of all but the type */
} paths[] = {
	{ "/leader", "/primary", ONE, "leading\n", is_leader },
	{ "/standby", NULL, ONE, "standby\n", is_standby },
	{ "/readyz", "/readiness", EACH, "ok\n", is_ready },
	{ "/healthz", "/liveness", ALL, "ok\n", is_healthy },
	{ "/status", .type = JSON, .whole = add_status },
	{ "/why", NULL, TEXT, "", tell_why },
	{ "/history", NULL, LIST, "]}\n", add_history, JSON },
	{ "/jobs", NULL, LIST, "]}\n", add_jobs, JSON },
	{ "/metrics", .type = "text/plain; version=0.0.4; charset=utf-8", .whole = admin_metrics },
};
#define PATHS (sizeof paths / sizeof *paths)

struct path_query {
	const struct admin_path *path;
	const char *name; /* of the election that is asked about; "" = all */
	int found, yes;
	struct buf *out;
};

static void path_ask(void *arg, const struct standing *e)
{
	struct path_query *q = arg;

	if (*q->name && strcmp(q->name, standing_name(e)) != 0)
		return;
	q->found++;
	q->yes += q->path->ask(e, q->out);
}

static int path_none(const struct path_query *q)
{
	buf_printf(q->out, *q->name ? "no election \"%s\" runs here\n" : "no election runs here yet\n", q->name);
	return *q->name ? 404 : 503;
}

static int path_answer(const struct admin_path *p, const struct standing_source *a, const char *name, struct buf *body)
{
	struct path_query q = { .path = p, .name = name, .out = body };
	char at[32];

	if (p->kind == LIST) {
		record_time_print(clock_wall_us(), at, sizeof at);
		json_out_open(body, NULL, "{");
		json_out_text(body, "at", at);
		json_out_open(body, "elections", "[");
	}
	a->list(a->arg, path_ask, &q);
	if (p->kind == TEXT)
		state_file_tell(a->state_file, body);
	if (q.found == 0 && p->kind != ALL && p->kind != LIST)
		return path_none(&q);
	if (q.yes == q.found && (p->kind != ONE || q.found == 1)) {
		buf_adds(body, p->yes);
		return 200;
	}
	if (p->kind == ONE && q.found > 1) {
		buf_drop(body, body->len);
		buf_adds(body, "several elections run here: put the name of one behind the path, as in /leader/NAME "
		               "(/status lists them)\n");
	}
	return 503;
}

static void add_name(struct buf *out, const char *name)
{
	json_out_open(out, NULL, "{");
	json_out_text(out, "name", name);
	buf_adds(out, "}\n");
}

static void ask_name(void *arg, const struct standing *e)
{
	struct path_query *q = arg;

	if (q->found++)
		return;
	add_name(q->out, e->status->leading ? e->status->identity : e->status->leader);
	q->yes = e->status->leading || *e->status->leader;
}

/* What the leader-elector sidecar of Kubernetes answered: the name of the leader. 503 where there is none, and where
 * several elections run, of which none is meant. */
static int answer_name(const struct standing_source *a, struct buf *body, const char **type)
{
	struct path_query q = { .out = body };

	*type = JSON;
	a->list(a->arg, ask_name, &q);
	if (q.found == 1)
		return q.yes ? 200 : 503;
	buf_drop(body, body->len);
	add_name(body, "");
	return 503;
}

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

int admin_answer(const struct standing_source *a, const char *path, struct buf *body, const char **type)
{
	if (strcmp(path, "/") == 0)
		return answer_name(a, body, type);
	for (const struct admin_path *p = paths; p < paths + PATHS; p++) {
		bool named = !p->whole && (p->kind == ONE || p->kind == TEXT);
		const char *name = path_rest(path, p->path, named);
		if (!name)
			name = path_rest(path, p->alias, named);
		if (!name)
			continue;
		if (p->type)
			*type = p->type;
		if (!p->whole)
			return path_answer(p, a, name, body);
		p->whole(a, body);
		return 200;
	}
	buf_adds(body, "there are");
	for (size_t i = 0; i < PATHS; i++)
		buf_printf(body, " %s", paths[i].path);
	buf_adds(body, " /events, and / for a browser\n");
	return 404;
}

/* ---- the page ---- */

/* Only this page's own script and style count, which a number names that nobody can guess; it loads, sends to and is
 * shown in no other site (https://www.w3.org/TR/CSP3/). */
static void answer_page(struct http_answer *a)
{
	static const char mark[] = "@NONCE@";
	char nonce[33];

	nonce_hex(nonce, 16);
	a->type = "text/html; charset=utf-8";
	buf_printf(&a->headers,
	           "Content-Security-Policy: default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; "
	           "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
	           "Referrer-Policy: no-referrer\r\nCross-Origin-Opener-Policy: same-origin\r\n",
	           nonce, nonce);
	for (const char *at = admin_page_html, *next; at; at = next) {
		next = strstr(at, mark);
		buf_add(&a->body, at, next ? (size_t)(next - at) : strlen(at));
		if (next) {
			buf_adds(&a->body, nonce);
			next += sizeof mark - 1;
		}
	}
}

/* ---- requests ---- */

/* Only names of this machine itself, for an address that only this machine reaches: else a page of another site whose
 * name was made to lead here could read what this one shows (DNS rebinding). */
static bool host_is_ours(const char *host)
{
	char name[256], own[256] = "";
	struct in_addr ip;

	if (!host || *host == '[')
		return true;
	snprintf(name, sizeof name, "%.*s", (int)strcspn(host, ":"), host);
	size_t len = strlen(name);
	gethostname(own, sizeof own - 1);
	return inet_pton(AF_INET, name, &ip) == 1 || strcasecmp(name, "localhost") == 0 || strcasecmp(name, own) == 0 ||
	       (len > 10 && strcasecmp(name + len - 10, ".localhost") == 0);
}

/* HAProxy's `option httpchk` asks OPTIONS / if nobody tells it a path: that is /leader. */
static void answer_path(const struct admin *admin, const struct request *r, bool options, struct http_answer *a)
{
	bool root = strcmp(r->path, "/") == 0;

	if (root)
		buf_adds(&a->headers, "Vary: Accept\r\n");
	if (root && options)
		a->status = admin_answer(&admin->source, "/leader", &a->body, &a->type);
	else if (root && r->html)
		answer_page(a);
	else if (strcmp(r->path, "/events") == 0 && !options)
		events_join(admin->events, a);
	else
		a->status = admin_answer(&admin->source, r->path, &a->body, &a->type);
}

static void admin_on_request(void *arg, const struct request *r, uint64_t, struct http_answer *a)
{
	const struct admin *admin = arg;
	bool options = strcmp(r->method, "OPTIONS") == 0;
	bool known = options || strcmp(r->method, "GET") == 0 || strcmp(r->method, "HEAD") == 0;

	if (admin->loopback && !host_is_ours(r->host)) {
		a->status = 421;
		buf_adds(&a->body,
		         "this address is for this machine alone: ask for it by the name localhost, or by its "
		         "number\n");
	} else if (known) {
		answer_path(admin, r, options, a);
	} else {
		a->status = 405;
		buf_adds(&a->body, "only GET, HEAD and OPTIONS\n");
	}
	if (options)
		buf_drop(&a->body, a->body.len);
	if (options || !known)
		buf_adds(&a->headers, "Allow: GET, HEAD, OPTIONS\r\n");
}

/* ---- the socket ---- */

/* "PATH" or "PATH?mode=OCTAL" in place. */
static int split_mode(char *path, mode_t *mode, struct err *err)
{
	static const char option[] = "?mode=";
	char *at = strstr(path, option), *end;

	*mode = 0600;
	if (!at)
		return 0;
	unsigned long given = strtoul(at + sizeof option - 1, &end, 8);
	if (*end || end == at + sizeof option - 1 || given > 0777)
		return err_set(err, ERR_USAGE, "expected a mode in octal digits, as in unix:PATH?mode=0660");
	*mode = (mode_t)given;
	*at = '\0';
	return 0;
}

static int admin_listen_unix(struct admin *a, const char *given, struct err *err)
{
	char *path = mem_dup(given);
	mode_t mode;
	int fd = -1;

	if (split_mode(path, &mode, err) == 0)
		fd = listener_unix(path, mode, err);
	if (fd >= 0) {
		listener_file_init(&a->file, path);
		log_event(LOG_INFO, NULL, "listening", "the admin endpoint is unix:%s, mode %04o", path,
		          (unsigned)mode);
	}
	free(path);
	return fd;
}

static int admin_listen(struct admin *a, const char *address, struct err *err)
{
	char name[300];

	if (strncmp(address, LISTENER_UNIX, strlen(LISTENER_UNIX)) == 0)
		return admin_listen_unix(a, address + strlen(LISTENER_UNIX), err);
	int fd = listener_tcp(address, err);
	if (fd >= 0) {
		listener_name(fd, name, sizeof name, &a->loopback);
		log_event(LOG_INFO, NULL, "listening", "the admin endpoint is http://%s/", name);
	}
	return fd;
}

struct admin *admin_new(struct ev_loop *loop, const char *address, const struct standing_source *source,
                        struct events *events, struct err *err)
{
	struct admin *a = mem_zero(sizeof *a);

	a->source = *source;
	a->events = events;
	int fd = admin_listen(a, address, err);
	if (fd < 0) {
		err_wrap(err, "--listen %s", address);
		free(a);
		return NULL;
	}
	a->server = server_new(loop, fd, &(struct server_options){ .handler = admin_on_request, .arg = a });
	events_serve(events, a->server);
	return a;
}

void admin_free(struct admin *a)
{
	if (!a)
		return;
	events_leave(a->events, a->server);
	listener_file_fini(&a->file);
	server_free(a->server);
	free(a);
}
