#include "locks/etcd/etcd_watch.h"

#include "base/buf.h"
#include "base/json_bound.h"
#include "base/mem.h"
#include "locks/etcd/etcd_client.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_FIRST (50 * NSEC_PER_MS)
#define RETRY_MOST (2 * NSEC_PER_SEC)
#define RETRY_REFUSED (10 * NSEC_PER_SEC)
#define POLL_AFTER (1 * NSEC_PER_SEC) /* with no stream for so long, locks are told to look */
#define BEGIN_WITHIN (10 * NSEC_PER_SEC)
#define PROD_FIRST_S 0.002
#define PROGRESS_ID (-1)   /* the answer is about no watch (clientv3.InvalidWatchID) */
#define ALIVE_S 3.         /* between questions whether the stream still tells */
#define UNANSWERED 2       /* of them: it does not tell any more */
#define LINE_VALUES 100000 /* an event has ten; a line may have those of many keys */

/* The request's body never ends, so that watches can be added and cancelled. Its length is announced, and more than 256
 * KB: else Go's HTTP/1 server reads it to its end before it answers (net/http, cw.writeHeader), and what it reads there
 * is lost. */
#define BODY_BYTES ((size_t)1 << 30)

struct etcd_hub {
	struct etcd_client *client;
	struct http *pool;
	struct etcd_watch *first, *cursor, *telling;
	struct http_call *stream;    /* NULL: there is none */
	struct etcd_watch **watches; /* the stream's, by id - 1; NULL where one has gone */
	size_t count, room;
	struct buf line;
	int endpoint;
	unsigned generation; /* of its token */
	bool answered, refused, dropped;
	bool says_progress; /* this server, or proxy, has answered a progress request */
	int unanswered;
	struct instant since;
	struct etcd_waiter token;
	ev_timer begin, tell, prod, alive;
	nsec retry;
	bool closing;
};

/* ---- news ---- */

static void watch_forget_seen(struct etcd_watch *w)
{
	json_decref(w->seen);
	w->seen = NULL;
}

static void hub_tell_soon(struct etcd_hub *h)
{
	if (ev_is_active(&h->tell))
		return;
	ev_timer_set(&h->tell, 0., 0.);
	ev_timer_start(h->client->env->loop, &h->tell);
}

static bool watch_has_news(const struct etcd_watch *w)
{
	return !w->busy && (w->nudge || w->news > w->known);
}

static void hub_on_tell(struct ev_loop *loop, ev_timer *timer, int revents)
{
	struct etcd_hub *h = timer->data;

	(void)loop;
	(void)revents;
	for (h->cursor = h->first; h->cursor;) {
		struct etcd_watch *w = h->cursor;
		h->cursor = w->next;
		if (!watch_has_news(w))
			continue;
		w->news = 0;
		w->nudge = false;
		h->telling = w;
		w->changed(w->arg);
		if (h->telling == w)
			watch_forget_seen(w);
		h->telling = NULL;
	}
}

struct json_t *etcd_watch_seen(const struct etcd_watch *w)
{
	return w->hub && w->hub->telling == w && w->latest > w->known ? w->seen : NULL;
}

/* kv: what was put there; NULL: nothing, or it is not said. */
static void watch_add_news(struct etcd_watch *w, int64_t revision, json_t *kv)
{
	if (revision > w->latest) {
		w->latest = revision;
		watch_forget_seen(w);
		w->seen = revision > w->known ? json_incref(kv) : NULL;
	}
	if (revision > w->news)
		w->news = revision;
	if (watch_has_news(w))
		hub_tell_soon(w->hub);
}

static void hub_nudge_all(struct etcd_hub *h)
{
	for (struct etcd_watch *w = h->first; w; w = w->next) {
		w->nudge = true;
		watch_forget_seen(w);
	}
	hub_tell_soon(h);
}

void etcd_watch_settle(struct etcd_watch *w, int64_t known)
{
	w->busy = false;
	if (known) {
		w->known = known;
		if (known >= w->latest)
			watch_forget_seen(w);
	}
	if (w->hub && watch_has_news(w))
		hub_tell_soon(w->hub);
}

/* ---- the stream ---- */

static void hub_begin_after(struct etcd_hub *h, nsec wait)
{
	if (h->closing || !h->first || ev_is_active(&h->begin))
		return;
	ev_now_update(h->client->env->loop);
	ev_timer_set(&h->begin, (double)wait / NSEC_PER_SEC, 0.);
	ev_timer_start(h->client->env->loop, &h->begin);
}

static void stream_add_watch(struct etcd_hub *h, struct etcd_watch *w)
{
	char *text;

	if (h->count == h->room) {
		h->room = h->room ? h->room * 2 : 4;
		h->watches = mem_resize(h->watches, h->room * sizeof *h->watches);
	}
	h->watches[h->count++] = w;
	w->id = h->count;
	text = mem_printf("{\"create_request\":{\"key\":\"%s\",\"watch_id\":\"%zu\"}}\n", w->key64, w->id);
	http_send(h->stream, text, strlen(text), HTTP_SOME);
	free(text);
}

static void stream_cancel_watch(struct etcd_hub *h, struct etcd_watch *w)
{
	char *text;

	if (!w->id || !h->stream)
		return;
	h->watches[w->id - 1] = NULL;
	text = mem_printf("{\"cancel_request\":{\"watch_id\":\"%zu\"}}\n", w->id);
	http_send(h->stream, text, strlen(text), HTTP_SOME);
	free(text);
}

static void watch_take_events(struct etcd_watch *w, const json_t *result)
{
	const json_t *events = json_object_get(result, "events");

	for (size_t i = 0; i < json_array_size(events); i++) {
		const json_t *event = json_array_get(events, i);
		json_t *kv = json_object_get(event, "kv");
		watch_add_news(w, etcd_number(kv, "mod_revision"),
		               json_object_get(event, "type") ? NULL : kv); /* PUT is omitted */
	}
}

/* false: the stream is of no use. */
static bool stream_take_line(struct etcd_hub *h, const json_t *line)
{
	const json_t *result = json_object_get(line, "result");
	int64_t id = etcd_number(result, "watch_id");
	struct etcd_watch *w = id > 0 && (size_t)id <= h->count ? h->watches[id - 1] : NULL;
	bool cancelled = json_is_true(json_object_get(result, "canceled")),
	     gone = id > 0 && (size_t)id <= h->count && !w;

	h->unanswered = 0;
	h->says_progress |= id == PROGRESS_ID;
	if (cancelled && gone)
		return true; /* by us */
	/* A member without a leader ends the stream; a token that has run out looks like a missing right. */
	if (!result || cancelled) {
		h->refused = true;
		return false;
	}
	if (w && json_is_true(json_object_get(result, "created")))
		watch_add_news(w, etcd_number(json_object_get(result, "header"), "revision"),
		               NULL); /* what happened before is not told */
	if (w)
		watch_take_events(w, result);
	return true;
}

static void stream_on_data(void *arg, struct http_call *http, const char *bytes, size_t len)
{
	struct etcd_hub *h = arg;
	bool good = h->line.len + len <= ETCD_ANSWER_BYTES;
	const char *end;

	if (good)
		buf_add(&h->line, bytes, len);
	while (good && h->line.len && (end = memchr(h->line.data, '\n', h->line.len))) {
		size_t size = (size_t)(end - h->line.data) + 1;
		json_t *line = json_bound_load(h->line.data, size, 0, LINE_VALUES, NULL);
		good = line && stream_take_line(h, line);
		json_decref(line);
		buf_drop(&h->line, size);
	}
	if (!good)
		http_cancel(http);
}

/* Sends a line now and then until the answer begins: Go's server cannot begin it while it waits for more of the body,
 * since the two share a mutex. */
static void stream_on_prod(struct ev_loop *loop, ev_timer *timer, int revents)
{
	struct etcd_hub *h = timer->data;

	(void)revents;
	http_send(h->stream, "\n", 1, HTTP_SOME);
	timer->repeat = timer->repeat < 0.1 ? timer->repeat * 2 : timer->repeat;
	ev_timer_again(loop, timer);
}

/* A proxy can keep a connection open on which nothing comes through any more. That looks like a key that does not
 * change, so the server is asked now and then whether it is there. */
static void stream_on_alive(struct ev_loop *loop, ev_timer *timer, int revents)
{
	static const char question[] = "{\"progress_request\":{}}\n";
	struct etcd_hub *h = timer->data;

	(void)loop;
	(void)revents;
	if (h->says_progress && h->unanswered >= UNANSWERED) {
		http_cancel(h->stream);
		return;
	}
	h->unanswered++;
	http_send(h->stream, question, strlen(question), HTTP_SOME);
}

/* The first question finds out whether this server answers them. etcd 3.3 would end the stream, so it is not asked. */
static void stream_ask_whether_alive(struct etcd_hub *h)
{
	h->unanswered = 0;
	ev_now_update(h->client->env->loop);
	ev_timer_set(&h->alive, 0., ALIVE_S);
	if (h->answered && h->client->prefix == 0)
		ev_timer_start(h->client->env->loop, &h->alive);
}

static void stream_on_answered(void *arg, struct http_call *http, int status, const struct http_headers *headers)
{
	struct etcd_hub *h = arg;

	(void)http;
	(void)headers;
	h->answered = status == 200;
	h->since = clock_now();
	ev_timer_stop(h->client->env->loop, &h->prod);
	stream_ask_whether_alive(h);
}

static nsec hub_next_retry(struct etcd_hub *h)
{
	nsec most = h->refused ? RETRY_REFUSED : RETRY_MOST, wait;

	if (h->answered && elapsed_standby(h->since, clock_now()) > RETRY_MOST)
		h->retry = RETRY_FIRST;
	wait = h->retry < most ? h->retry : most;
	h->retry = wait * 2;
	return wait;
}

static void stream_on_done(void *arg, const struct http_result *r, const struct http_headers *headers)
{
	struct etcd_hub *h = arg;

	(void)headers;
	h->stream = NULL;
	h->count = 0;
	for (struct etcd_watch *w = h->first; w; w = w->next)
		w->id = 0;
	buf_fini(&h->line);
	ev_timer_stop(h->client->env->loop, &h->prod);
	ev_timer_stop(h->client->env->loop, &h->alive);
	if (h->closing)
		return;
	h->refused |= r->status >= 400;
	if (h->refused)
		etcd_drop_token(h->client, h->generation);
	else if (!h->dropped && h->client->at == h->endpoint)
		h->client->at = (h->endpoint + 1) % h->client->url.hosts;
	hub_begin_after(h, hub_next_retry(h));
}

static void stream_prod(struct etcd_hub *h)
{
	ev_now_update(h->client->env->loop);
	h->prod.repeat = PROD_FIRST_S;
	ev_timer_again(h->client->env->loop, &h->prod);
}

static void stream_begin(struct etcd_hub *h)
{
	struct etcd_client *c = h->client;
	char *url = mem_printf("%s/%s/watch", c->base[c->at], etcd_prefix[c->prefix]), *token = etcd_token_header(c);
	const char *const headers[] = { "Content-Type: application/json", "Grpc-Metadata-hasleader: true", token,
		                        NULL };

	h->says_progress &= h->endpoint == c->at;
	h->endpoint = c->at;
	h->generation = c->generation;
	h->answered = h->refused = h->dropped = false;
	h->since = clock_now();
	h->stream = http_start(h->pool, &(struct http_request){
						.url = url,
						.headers = headers,
						.streamed = true,
						.body_len = BODY_BYTES,
						.proxy = "",
						.tls = c->tls ? &c->how : NULL,
						.server_name = lock_url_option(&c->url, "server_name"),
						.connect = BEGIN_WITHIN,
						.first_byte = BEGIN_WITHIN,
						.answered = stream_on_answered,
						.data = stream_on_data,
						.done = stream_on_done,
						.arg = h,
					});
	for (struct etcd_watch *w = h->first; w; w = w->next)
		stream_add_watch(h, w);
	stream_prod(h);
	free(token);
	free(url);
}

static void hub_begin(struct etcd_hub *h)
{
	if (!h->first || h->stream || h->token.waiting)
		return;
	if (etcd_has_token(h->client))
		stream_begin(h);
	else
		etcd_wait_for_token(h->client, &h->token);
}

static void hub_on_token(void *arg, const struct err *err)
{
	struct etcd_hub *h = arg;

	if (!err) {
		hub_begin(h);
		return;
	}
	h->retry = h->retry * 2 < RETRY_REFUSED ? h->retry * 2 : RETRY_REFUSED;
	hub_begin_after(h, h->retry);
}

static void hub_on_begin(struct ev_loop *loop, ev_timer *timer, int revents)
{
	struct etcd_hub *h = timer->data;

	(void)loop;
	(void)revents;
	if (h->retry > POLL_AFTER && !h->stream)
		hub_nudge_all(h);
	hub_begin(h);
}

/* ---- hub ---- */

struct etcd_hub *etcd_hub_new(struct etcd_client *c, struct err *err)
{
	struct http *pool = http_new(c->env->loop, &(struct http_options){ .stall = 10 * NSEC_PER_SEC }, err);

	if (!pool)
		return NULL;
	struct etcd_hub *h = mem_zero(sizeof *h);
	h->client = c;
	h->pool = pool;
	h->retry = RETRY_FIRST;
	h->token = (struct etcd_waiter){ .ready = hub_on_token, .arg = h };
	ev_timer_init(&h->begin, hub_on_begin, 0., 0.);
	ev_timer_init(&h->tell, hub_on_tell, 0., 0.);
	ev_init(&h->prod, stream_on_prod);
	ev_init(&h->alive, stream_on_alive);
	h->begin.data = h->tell.data = h->prod.data = h->alive.data = h;
	return h;
}

void etcd_hub_free(struct etcd_hub *h)
{
	if (!h)
		return;
	h->closing = true;
	etcd_stop_waiting(h->client, &h->token);
	ev_timer_stop(h->client->env->loop, &h->begin);
	ev_timer_stop(h->client->env->loop, &h->tell);
	http_free(h->pool);
	free(h->watches);
	free(h);
}

void etcd_hub_suspect(struct etcd_hub *h, int endpoint)
{
	if (!h->stream || h->endpoint != endpoint || elapsed_standby(h->since, clock_now()) <= POLL_AFTER)
		return;
	h->dropped = true;
	http_cancel(h->stream);
}

void etcd_watch_start(struct etcd_hub *h, struct etcd_watch *w)
{
	if (w->hub)
		return;
	w->hub = h;
	w->next = h->first;
	w->slot = &h->first;
	if (w->next)
		w->next->slot = &w->next;
	h->first = w;
	if (h->stream)
		stream_add_watch(h, w);
	else
		hub_begin_after(h, 0);
}

void etcd_watch_stop(struct etcd_watch *w)
{
	struct etcd_hub *h = w->hub;

	if (!h)
		return;
	if (h->cursor == w)
		h->cursor = w->next;
	if (h->telling == w)
		h->telling = NULL;
	*w->slot = w->next;
	if (w->next)
		w->next->slot = w->slot;
	stream_cancel_watch(h, w);
	watch_forget_seen(w);
	w->hub = NULL;
}
