#include "locks/etcd/etcd_client.h"

#include "base/mem.h"
#include "locks/etcd/etcd_watch.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 16       /* calls at once in an HTTP client: as many as it has connections */
#define CROWD 8       /* of them, looks */
#define LOGINS_MOST 2 /* a token may be old when it comes: rights change, clocks of members differ */

const char *const etcd_prefix[2] = { "v3", "v3beta" };
const char *const etcd_options[] = { "ca", "cert", "key", "server_name", NULL };

/* ---- the clients of an env ---- */

struct etcd_clients {
	struct lock_env *env;
	struct etcd_client *first;
};

static const char shared_key;

static void *clients_make(struct lock_env *env, struct err *err)
{
	struct etcd_clients *all = mem_zero(sizeof *all);

	(void)err;
	all->env = env;
	return all;
}

static void client_free(struct etcd_client *c)
{
	etcd_call_cancel(&c->login);
	etcd_hub_free(c->hub);
	http_free(c->side);
	http_free(c->pool);
	if (c->token)
		explicit_bzero(c->token, strlen(c->token));
	free(c->token);
	for (int i = 0; i < c->url.hosts; i++)
		free(c->base[i]);
	lock_url_fini(&c->url);
	free(c);
}

static void clients_drop(void *object)
{
	struct etcd_clients *all = object;

	while (all->first) {
		struct etcd_client *c = all->first;
		all->first = c->next;
		client_free(c);
	}
	free(all);
}

/* The same cluster, user and options. The path is each lock's own. */
static bool client_serves(const struct etcd_client *c, const struct lock_url *u, bool tls)
{
	bool same = c->tls == tls && lock_url_same_servers(&c->url, u);

	for (const char *const *o = etcd_options; same && *o; o++) {
		const char *ours = lock_url_option(&c->url, *o), *theirs = lock_url_option(u, *o);
		same = ours && theirs ? strcmp(ours, theirs) == 0 : ours == theirs;
	}
	return same;
}

static struct etcd_client *client_new(struct lock_env *env, struct lock_url *url, bool tls, struct err *err)
{
	struct etcd_client *c = mem_zero(sizeof *c);
	char host[300];

	c->env = env;
	c->tls = tls;
	c->url = *url;
	*url = (struct lock_url){ .hosts = 0 };
	c->waiters_end = &c->waiters;
	for (int i = 0; i < ETCD_KINDS; i++)
		c->queue[i].end = &c->queue[i].first;
	/* HTTP/1.1: a watch starves what shares its HTTP/2 connection (etcd's issue 15402). */
	c->how = (struct http_tls){ .ca_file = lock_url_option(&c->url, "ca"),
		                    .cert_file = lock_url_option(&c->url, "cert"),
		                    .key_file = lock_url_option(&c->url, "key"),
		                    .http1 = true };
	for (int i = 0; i < c->url.hosts; i++) {
		lock_url_print_host(&c->url, i, host);
		c->base[i] = mem_printf("%s://%s", tls ? "https" : "http", host);
	}
	c->pool = http_new(env->loop, NULL, err);
	c->hub = c->pool ? etcd_hub_new(c, err) : NULL;
	if (c->hub)
		return c;
	client_free(c);
	return NULL;
}

struct etcd_client *etcd_client_get(struct lock_env *env, struct lock_url *url, bool tls, struct err *err)
{
	struct etcd_clients *all = lock_env_share(env, &shared_key, clients_make, clients_drop, err);
	struct etcd_client *c = all ? all->first : NULL;

	while (c && !client_serves(c, url, tls))
		c = c->next;
	if (!c && all) {
		c = client_new(env, url, tls, err);
		if (c) {
			c->next = all->first;
			all->first = c;
		}
		return c;
	}
	lock_url_fini(url);
	return c;
}

/* This endpoint did not answer as it should: the next request, and the watch if it is there, go to the next one. */
static void client_avoid(struct etcd_client *c, int endpoint)
{
	if (c->at == endpoint)
		c->at = (endpoint + 1) % c->url.hosts;
	etcd_hub_suspect(c->hub, endpoint);
}

void etcd_client_mistrust(struct etcd_client *c)
{
	c->revision = 0;
	http_pool_begin(c->pool);
	if (c->side)
		http_pool_begin(c->side);
}

/* ---- a call ---- */

static void call_try_endpoint(struct etcd_call *call);

static void call_forget_body(struct etcd_call *call)
{
	explicit_bzero(call->body, strlen(call->body)); /* perhaps a password */
	free(call->body);
	call->body = NULL;
}

static void call_end(struct etcd_call *call, struct etcd_answer *a)
{
	etcd_done_fn *done = call->done;

	call->active = false;
	call_forget_body(call);
	a->sent_at = call->sent ? call->sent_at : clock_now();
	a->repeated = call->maybe && a->outcome == LOCK_OK;
	if (call->maybe && a->outcome != LOCK_OK)
		a->outcome = LOCK_UNKNOWN;
	done(call->arg, a);
}

static void call_fail(struct etcd_call *call, enum lock_outcome outcome, int code, const struct err *err)
{
	struct etcd_answer a = { .outcome = outcome, .code = code, .err = *err };

	call_end(call, &a);
}

static void call_on_token(void *arg, const struct err *err)
{
	struct etcd_call *call = arg;

	if (err)
		call_fail(call, err->code == ERR_DENIED ? LOCK_REFUSED : LOCK_FAILED, 0, err);
	else
		call_try_endpoint(call);
}

static void call_go(struct etcd_call *call)
{
	if (call->bare || etcd_has_token(call->client))
		call_try_endpoint(call);
	else
		etcd_wait_for_token(call->client, &call->token);
}

static void call_note_sent(struct etcd_call *call, const struct http_result *r)
{
	if (!r->unsent && !call->sent) {
		call->sent = true;
		call->sent_at = r->sent_at;
	}
	call->maybe |= r->repeated; /* a connection that was closed under it: the server may have seen it */
}

static void call_go_elsewhere(struct etcd_call *call, const struct etcd_meaning *m)
{
	struct etcd_client *c = call->client;

	if (!m->queued)
		client_avoid(c, call->endpoint);
	call->maybe |= m->maybe;
	/* An earlier try may still be applied. This one has the same compare and the same content, so at most one of
	 * them is. */
	if (++call->tries < c->url.hosts) {
		call->endpoint = (call->endpoint + 1) % c->url.hosts;
		call_go(call);
		return;
	}
	call_fail(call, m->outcome, m->code, &m->err);
}

static void call_go_after_login(struct etcd_call *call, const struct etcd_meaning *m)
{
	struct etcd_client *c = call->client;

	if (call->bare || !*c->url.user || ++call->logins > LOGINS_MOST) {
		call_fail(call, LOCK_REFUSED, m->code, &m->err);
		return;
	}
	etcd_drop_token(c, call->generation);
	call_go(call);
}

static void call_go_other_path(struct etcd_call *call, const struct etcd_meaning *m)
{
	struct etcd_client *c = call->client;

	if (call->prefix == c->prefix && !c->prefix_known)
		c->prefix ^= 1;
	if (++call->prefix_tries < 2)
		call_go(call);
	else
		call_go_elsewhere(call, m);
}

static void call_take_answer(struct etcd_call *call, const struct http_result *r)
{
	struct etcd_client *c = call->client;
	struct etcd_meaning m;

	etcd_understand(r, c->base[call->endpoint], c->url.user, &m);
	c->prefix_known |= m.verdict != ETCD_OTHER_PATH && (m.json || m.code);
	switch (m.verdict) {
	case ETCD_ANSWERED: {
		struct etcd_answer a = { .outcome = LOCK_OK, .json = m.json, .above = call->above };
		a.revision = etcd_number(json_object_get(m.json, "header"), "revision");
		c->revision = a.revision > c->revision ? a.revision : c->revision;
		c->at = call->endpoint;
		call_end(call, &a);
		json_decref(m.json);
		break;
	}
	case ETCD_ELSEWHERE:
		call_go_elsewhere(call, &m);
		break;
	case ETCD_LOGIN:
		call_go_after_login(call, &m);
		break;
	case ETCD_OTHER_PATH:
		call_go_other_path(call, &m);
		break;
	case ETCD_FINAL:
		call->maybe |= m.maybe;
		call_fail(call, m.outcome, m.code, &m.err);
		break;
	}
}

static void client_start_waiting(struct etcd_client *c);

static void call_on_http(void *arg, const struct http_result *r, const struct http_headers *headers)
{
	struct etcd_call *call = arg;
	struct etcd_client *c = call->client;

	(void)headers;
	call->http = NULL;
	call_note_sent(call, r);
	if (call->cancelling) {
		call->maybe |= !r->unsent;
		call->queued = r->queued;
	} else {
		call_take_answer(call, r); /* the call may be gone after that */
	}
	client_start_waiting(c);
}

/* Each endpoint gets a share of the time that is left, so that one that does not answer leaves some to the others. */
static struct instant call_try_until(const struct etcd_call *call)
{
	int left = call->client->url.hosts - call->tries;
	struct instant now = clock_now();

	return left <= 1 ? call->by : instant_min(call->by, instant_add(now, instant_until(call->by, now) / left));
}

/* NULL: it has to wait. */
static struct http *client_room_for(struct etcd_client *c, enum etcd_kind kind)
{
	if (http_stats(c->pool).calls < (kind == ETCD_LOOK ? CROWD : MOST))
		return c->pool;
	if (kind != ETCD_LOOK)
		return NULL;
	if (!c->side)
		c->side = http_new(c->env->loop, NULL, NULL);
	return c->side && http_stats(c->side).calls < MOST ? c->side : NULL;
}

static void call_wait_for_room(struct etcd_call *call)
{
	struct etcd_queue *q = &call->client->queue[call->kind];

	call->next = NULL;
	call->slot = q->end;
	*q->end = call;
	q->end = &call->next;
}

static void call_stop_waiting_for_room(struct etcd_call *call)
{
	struct etcd_queue *q = &call->client->queue[call->kind];

	if (!call->slot)
		return;
	*call->slot = call->next;
	if (call->next)
		call->next->slot = call->slot;
	else
		q->end = call->slot;
	call->slot = NULL;
}

static void call_send(struct etcd_call *call, struct http *pool);

/* A request that has waited goes to the endpoint that answers by now. */
static void client_start_waiting(struct etcd_client *c)
{
	for (int kind = 0; kind < ETCD_KINDS; kind++) {
		struct etcd_call *call;
		struct http *pool;
		while ((call = c->queue[kind].first) && (pool = client_room_for(c, (enum etcd_kind)kind))) {
			call_stop_waiting_for_room(call);
			if (call->tries == 0)
				call->endpoint = c->at;
			call_send(call, pool);
		}
	}
}

static void call_try_endpoint(struct etcd_call *call)
{
	struct http *pool = call->bare ? call->client->pool : client_room_for(call->client, call->kind);

	if (pool)
		call_send(call, pool);
	else
		call_wait_for_room(call);
}

static void call_send(struct etcd_call *call, struct http *pool)
{
	struct etcd_client *c = call->client;
	char *url = mem_printf("%s/%s/%s", c->base[call->endpoint], etcd_prefix[c->prefix], call->path);
	char *token = call->bare ? NULL : etcd_token_header(c);
	const char *const headers[] = { "Content-Type: application/json", token, NULL };
	struct http_request r = {
		.url = url,
		.headers = headers,
		.body = call->body,
		.body_len = strlen(call->body),
		.proxy = "",
		.tls = c->tls ? &c->how : NULL,
		.server_name = lock_url_option(&c->url, "server_name"),
		.by = call_try_until(call),
		.limit = ETCD_ANSWER_BYTES,
		.done = call_on_http,
		.arg = call,
	};

	call->prefix = c->prefix;
	call->generation = c->generation;
	call->above = c->revision;
	call->http = http_start(pool, &r);
	if (token)
		explicit_bzero(token, strlen(token));
	free(token);
	free(url);
}

void etcd_call_start(struct etcd_client *c, struct etcd_call *call, const char *path, char *body, struct instant by,
                     etcd_done_fn *done, void *arg)
{
	*call = (struct etcd_call){
		.client = c,
		.path = path,
		.body = body,
		.by = by,
		.done = done,
		.arg = arg,
		.bare = call->bare,
		.kind = call->kind,
		.active = true,
		.token = { .ready = call_on_token, .arg = call },
		.endpoint = c->at,
	};
	call_go(call);
}

void etcd_call_cancel(struct etcd_call *call)
{
	if (!call->active)
		return;
	etcd_stop_waiting(call->client, &call->token);
	call_stop_waiting_for_room(call);
	call->cancelling = true;
	if (call->http) {
		http_cancel(call->http);
		if (!call->queued && instant_passed(call->by, clock_now()))
			client_avoid(call->client, call->endpoint);
	}
	call->active = false;
	call_forget_body(call);
}
