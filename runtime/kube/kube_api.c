#include "kube/kube_api.h"

#include "base/json_bound.h"
#include "base/mem.h"
#include "kube/kube_meta.h"
#include "kube/kube_proxy.h"
#include "locks/lock.h"
#include "loop/timer_after.h"
#include "version.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STALL (10 * NSEC_PER_SEC)
#define CONNECT (10 * NSEC_PER_SEC)
#define TEXT_MAX 65536
#define KEEP_WARM \
	(75 * NSEC_PER_SEC) /* API servers close what has been idle for 90 (k8s.io/apiserver, secure_serving.go) */
#define TOO_MANY 429
#define UNAUTHORIZED 401
#define FORBIDDEN 403

struct kube_api {
	struct kube_api *next;
	struct lock_env *env;
	char *kubeconfig, *context; /* what it was asked for */
	struct kube_config config;
	bool direct; /* no proxy is asked */
	struct kube_auth *auth;
	struct http *clients[KUBE_CLIENTS];
	uint64_t files; /* `files` of the credential whose certificate the connections show */

	/* A standby asks for nothing for days, and then shall lead at once: its connection for work is kept open. */
	ev_timer idle;
	struct instant worked_at;
	struct kube_call warm;
};

/* All API clients of one env. */
struct kube_apis {
	struct lock_env *env;
	struct kube_api *apis;
};

const struct kube_config *kube_api_config(const struct kube_api *a)
{
	return &a->config;
}

static void api_explain_unauthorized(const struct kube_api *a, struct err *err)
{
	const struct kube_config *c = &a->config;

	if (c->withheld)
		err_set(err, ERR_DENIED,
		        "401: the API server wants credentials, and those of %s were not sent, since its server is %s: as kubectl, "
		        "Lunarch sends none over http://. Write https://",
		        c->origin, c->server);
	else
		err_set(err, ERR_DENIED, "401: the API server does not accept the credentials of %s", c->origin);
}

struct ev_loop *kube_api_loop(const struct kube_api *a)
{
	return a->env->loop;
}

void kube_api_explain(const struct kube_api *a, const struct kube_answer *answer, const char *ns, const char *needed,
                      struct err *err)
{
	int status = answer->status;

	if (answer->err.code != ERR_NONE)
		*err = answer->err;
	else if (status == UNAUTHORIZED)
		api_explain_unauthorized(a, err);
	else if (status == FORBIDDEN)
		err_set(err, ERR_DENIED,
		        "403: %.300s. Needed: a Role in the namespace %s with %s, bound to whom %s names",
		        answer->message, ns, needed, a->config.origin);
	else
		err_set(err,
		        status == 404                         ? ERR_MISSING
		        : status == TOO_MANY || status >= 500 ? ERR_UNREACHABLE
		                                              : ERR_INVALID,
		        "%d: %s%.300s", status, status == TOO_MANY ? "the API server has too much to do: " : "",
		        *answer->message ? answer->message : "an unexpected answer");
}

bool kube_answer_missing(const struct kube_answer *a, const char *name)
{
	return a->status == 404 && strcmp(kube_text(a->object, "reason"), "NotFound") == 0 &&
	       strcmp(kube_text(json_object_get(a->object, "details"), "name"), name) == 0;
}

/* ---- the end of a call ---- */

static void call_release(struct kube_call *c)
{
	ev_timer_stop(c->api->env->loop, &c->timer);
	if (c->waits)
		kube_auth_unwait(c->api->auth, &c->waiter);
	kube_credential_drop(c->credential);
	free((char *)c->r.path);
	free(c->r.body);
	free(c->why);
	buf_fini(&c->text);
	struct kube_api *api = c->api;
	*c = (struct kube_call){ .api = api };
}

static void call_finish(struct kube_call *c, const struct kube_answer *a)
{
	void (*done)(void *, const struct kube_answer *) = c->r.done;
	void *arg = c->r.arg;

	call_release(c);
	done(arg, a);
}

/* Ends the call without an answer. No request of it is under way. */
static void call_finish_unsent(struct kube_call *c, const struct err *why)
{
	struct kube_answer a = { .unsent = true, .sent_at = clock_now(), .message = "", .err = *why };

	call_finish(c, &a);
}

static void call_send(struct kube_call *c);

static nsec call_left(const struct kube_call *c)
{
	return c->r.by.boot || c->r.by.raw ? instant_until(c->r.by, clock_now()) : NSEC_NEVER;
}

static void call_arm(struct kube_call *c, nsec after)
{
	timer_after(c->api->env->loop, &c->timer, after);
}

/* Told in another turn of the loop: the caller may still be inside kube_api_start. */
static void call_give_up(struct kube_call *c, const struct err *why)
{
	c->why = mem_take(sizeof *c->why);
	*c->why = *why;
	call_arm(c, 0);
}

static void call_on_timer(struct ev_loop *, ev_timer *w, int)
{
	struct kube_call *c = w->data;
	struct err why;

	if (!c->why && !c->waits) {
		call_send(c); /* the wait the server asked for is over */
		return;
	}
	if (c->why)
		why = *c->why;
	else
		err_set(&why, ERR_TIMEOUT, "%s: no credential before the deadline", c->api->config.origin);
	call_finish_unsent(c, &why);
}

/* ---- credentials ---- */

static void call_on_credential(struct kube_auth_waiter *w, const struct err *err)
{
	struct kube_call *c = (struct kube_call *)((char *)w - offsetof(struct kube_call, waiter));

	c->waits = false;
	ev_timer_stop(c->api->env->loop, &c->timer);
	if (err)
		call_give_up(c, err);
	else
		call_send(c);
}

static void call_wait_for_credential(struct kube_call *c)
{
	c->waits = true;
	c->waiter = (struct kube_auth_waiter){ .done = call_on_credential };
	if (call_left(c) != NSEC_NEVER)
		call_arm(c, call_left(c));
	kube_auth_wait(c->api->auth, &c->waiter);
}

/* ---- answers ---- */

/* Seconds of a Retry-After; the API sends no dates (apimachinery: delta seconds). -1: none. */
static int retry_after(const struct http_headers *h)
{
	const char *text = http_header(h, "Retry-After");
	char *end;

	if (!text)
		return -1;
	long n = strtol(text, &end, 10);
	return *end || end == text || n < 0 ? -1 : n > 3600 ? 3600 : (int)n;
}

/* The server refused for a while, before anything was done. true: the call waits that time. */
static bool call_wait_if_asked(struct kube_call *c, const struct http_result *r, const struct http_headers *h)
{
	int s = r->status == TOO_MANY ? retry_after(h) : -1;

	if (s < 0 || (nsec)s * NSEC_PER_SEC >= call_left(c))
		return false;
	call_arm(c, s == 0 ? 100 * NSEC_PER_MS : s * NSEC_PER_SEC);
	return true;
}

/* The token may have been rotated: once per call another one is asked for. true: it will be sent again. */
static bool call_renew_if_refused(struct kube_call *c, uint64_t number, int status)
{
	if (status != UNAUTHORIZED || c->asked || !kube_auth_doubt(c->api->auth, number))
		return false;
	c->asked = true;
	struct kube_credential *now = kube_auth_take(c->api->auth);
	bool newer = now && now->number != number;
	kube_credential_drop(now);
	if (newer)
		call_send(c);
	else
		call_wait_for_credential(c);
	return true;
}

static void call_on_http_done(void *arg, const struct http_result *r, const struct http_headers *h)
{
	struct kube_call *c = arg;
	uint64_t number = c->credential->number;

	c->http = NULL;
	kube_credential_drop(c->credential);
	c->credential = NULL;
	bool again = !r->repeated || !c->r.body; /* what may have been acted upon is not sent once more */
	if (r->err.code == ERR_NONE && again &&
	    (call_renew_if_refused(c, number, r->status) || call_wait_if_asked(c, r, h)))
		return;
	struct kube_answer a = {
		.status = r->err.code == ERR_NONE || c->streams ? r->status : 0,
		.unsent = r->unsent,
		.repeated = r->repeated,
		.sent_at = r->sent_at,
		.err = r->err,
	};
	bool aside = c->text.len > 0;
	struct err why;
	json_t *body = json_bound_load(aside ? c->text.data : r->body, aside ? c->text.len : r->len, 0,
	                               KUBE_OBJECT_VALUES, &why);
	if (!body && why.code == ERR_FULL && a.err.code == ERR_NONE)
		a.err = why;
	if (json_is_object(body))
		a.object = body;
	a.message = kube_text(body, "message");
	if (a.err.code != ERR_NONE && !c->streams)
		err_wrap(&a.err, "%s", c->api->config.origin);
	call_finish(c, &a);
	json_decref(body);
}

static void call_on_answered(void *arg, struct http_call *, int status, const struct http_headers *)
{
	struct kube_call *c = arg;

	c->streams = status == 200;
	if (c->streams)
		c->r.opened(c->r.arg);
}

static void call_on_data(void *arg, struct http_call *, const char *bytes, size_t len)
{
	struct kube_call *c = arg;

	if (c->streams)
		c->r.data(c->r.arg, bytes, len);
	else if (c->text.len < TEXT_MAX)
		buf_add(&c->text, bytes, len);
}

/* ---- requests ---- */

/* The server is told the deadline too, so that what we have given up does not land much later. Not for a watch. */
static char *call_url(const struct kube_call *c)
{
	nsec rest = call_left(c);

	if (rest == NSEC_NEVER)
		return mem_printf("%s%s", c->api->config.server, c->r.path);
	return mem_printf("%s%s%ctimeout=%lldms", c->api->config.server, c->r.path, strchr(c->r.path, '?') ? '&' : '?',
	                  (long long)(rest / NSEC_PER_MS + 1));
}

/* A connection goes on showing the certificate that it began with, so new requests use new connections. */
static void api_leave_old_connections(struct kube_api *a, uint64_t files)
{
	if (files == a->files)
		return;
	a->files = files;
	for (int i = 0; i < KUBE_CLIENTS; i++)
		http_pool_begin(a->clients[i]);
}

static void call_send(struct kube_call *c)
{
	const struct kube_config *f = &c->api->config;
	char accept[80], type[80];
	const char *headers[KUBE_HEADERS + 4] = { accept, "User-Agent: lunarch/" LUNARCH_VERSION " leader-election" };
	size_t n = 2;

	buf_drop(&c->text, c->text.len);
	c->credential = kube_auth_take(c->api->auth);
	if (!c->credential) {
		call_wait_for_credential(c);
		return;
	}
	api_leave_old_connections(c->api, c->credential->files);
	snprintf(accept, sizeof accept, "Accept: %s", c->r.accept ? c->r.accept : "application/json");
	snprintf(type, sizeof type, "Content-Type: %s", c->r.kind ? c->r.kind : "application/json");
	if (c->r.body)
		headers[n++] = type;
	for (char *const *h = f->headers; *h; h++)
		headers[n++] = *h;
	char *url = call_url(c);
	struct http_tls tls = c->credential->tls;
	/* A request and its body leave in one piece, and the server answers it in one. Over HTTP/2 Go's server passes
	 * each from one goroutine to the next, which a hand-over waits for four times. */
	tls.http1 = c->r.client == KUBE_WORK;
	c->http = http_start(c->api->clients[c->r.client], &(struct http_request){
								   .method = c->r.method,
								   .url = url,
								   .headers = headers,
								   .bearer = c->credential->token,
								   .user = f->user,
								   .password = f->password,
								   .body = c->r.body,
								   .body_len = c->r.body ? strlen(c->r.body) : 0,
								   .tls = &tls,
								   .server_name = f->server_name,
								   .proxy = c->api->direct ? "" : f->proxy,
								   .no_proxy = "",
								   .by = c->r.by,
								   .connect = CONNECT,
								   .first_byte = c->r.first_byte,
								   .limit = KUBE_OBJECT_BYTES,
								   .trickles = c->r.client == KUBE_WATCH,
								   .arg = c,
								   .answered = c->r.data ? call_on_answered : NULL,
								   .data = c->r.data ? call_on_data : NULL,
								   .done = call_on_http_done,
							   });
	free(url);
}

static void api_on_warm(void *arg, const struct kube_answer *answer)
{
	(void)arg, (void)answer; /* whatever it was, the connection has been used */
}

/* Only while something is watched: what is read once needs no connection afterwards. */
static void api_on_idle(struct ev_loop *loop, ev_timer *w, int events)
{
	struct kube_api *a = w->data;
	struct instant now = clock_now();
	nsec idle = elapsed_holder(a->worked_at, now);

	(void)loop, (void)events;
	if (http_stats(a->clients[KUBE_WATCH]).calls == 0)
		return;
	if (idle >= KEEP_WARM && !a->warm.busy)
		kube_api_start(a, &a->warm,
		               &(struct kube_request){
				       .client = KUBE_WORK,
				       .method = "GET",
				       .path = "/version",
				       .by = instant_add(now, CONNECT),
				       .done = api_on_warm,
			       });
	timer_after(a->env->loop, &a->idle, idle < KEEP_WARM ? KEEP_WARM - idle : KEEP_WARM);
}

void kube_api_start(struct kube_api *a, struct kube_call *c, const struct kube_request *r)
{
	if (r->client == KUBE_WORK)
		a->worked_at = clock_now();
	if (r->client == KUBE_WATCH && !ev_is_active(&a->idle))
		timer_after(a->env->loop, &a->idle, KEEP_WARM);
	*c = (struct kube_call){ .api = a, .r = *r, .busy = true };
	c->r.path = mem_dup(r->path);
	ev_init(&c->timer, call_on_timer);
	c->timer.data = c;
	call_send(c);
}

void kube_api_cancel(struct kube_call *c)
{
	struct err why;

	if (!c->busy)
		return;
	if (c->http) {
		c->asked = true;
		http_cancel(c->http);
		return;
	}
	err_set(&why, ERR_CANCELLED, "cancelled");
	call_finish_unsent(c, &why);
}

/* ---- those of an env ---- */

static void api_free(struct kube_api *a)
{
	kube_api_cancel(&a->warm);
	ev_timer_stop(a->env->loop, &a->idle);
	for (int i = 0; i < KUBE_CLIENTS; i++)
		http_free(a->clients[i]);
	kube_auth_free(a->auth);
	kube_config_fini(&a->config);
	free(a->kubeconfig);
	free(a->context);
	free(a);
}

static void apis_drop(void *object)
{
	struct kube_apis *h = object;

	while (h->apis) {
		struct kube_api *a = h->apis;
		h->apis = a->next;
		api_free(a);
	}
	free(h);
}

static void *apis_make(struct lock_env *env, struct err *)
{
	struct kube_apis *h = mem_zero(sizeof *h);

	h->env = env;
	lock_reaper(env); /* of credential plugins, which the end of the last api cancels */
	return h;
}

static int api_open_clients(struct kube_api *a, struct err *err)
{
	/* API servers allow a hundred streams to a connection. A watch takes one stream for good. Of other requests
	 * only a few are sent at a time: a thousand renewals that fall together must fill neither the memory nor the
	 * server's queue. But they are enough for a thousand renewals every 2 s at a server that takes 50 ms for
	 * each. */
	static const struct http_options options[KUBE_CLIENTS] = {
		[KUBE_WORK] = { .connections = 32, .stall = STALL },
		[KUBE_WATCH] = { .connections = 16, .streams = 100, .stall = STALL },
		[KUBE_EVENTS] = { .connections = 1, .streams = 10, .stall = STALL },
	};

	for (int i = 0; i < KUBE_CLIENTS; i++)
		if (!(a->clients[i] = http_new(a->env->loop, &options[i], err)))
			return -1;
	return 0;
}

static struct kube_api *api_new(struct kube_apis *h, const char *kubeconfig, const char *context, struct err *err)
{
	struct kube_api *a = mem_zero(sizeof *a);

	a->env = h->env;
	ev_init(&a->idle, api_on_idle);
	a->idle.data = a;
	a->kubeconfig = mem_dup(kubeconfig);
	a->context = mem_dup(context);
	if (kube_config_load(&a->config, kubeconfig, context, err) < 0 || api_open_clients(a, err) < 0) {
		api_free(a);
		return NULL;
	}
	a->direct = !a->config.proxy && kube_proxy_is_passed(kube_proxy_environment(), a->config.server);
	a->auth = kube_auth_new(a->env, &a->config);
	a->next = h->apis;
	h->apis = a;
	return a;
}

struct kube_api *kube_api_get(struct lock_env *env, const char *kubeconfig, const char *context, struct err *err)
{
	static const char key[] = "kube";
	struct kube_apis *h = lock_env_share(env, key, apis_make, apis_drop, err);

	for (struct kube_api *a = h ? h->apis : NULL; a; a = a->next)
		if (strcmp(a->kubeconfig, kubeconfig) == 0 && strcmp(a->context, context) == 0)
			return a;
	return h ? api_new(h, kubeconfig, context, err) : NULL;
}
