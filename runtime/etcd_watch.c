#include "etcd_watch.h"

#include "buf.h"
#include "etcd_client.h"
#include "mem.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_FIRST (50 * NSEC_PER_MS)
#define RETRY_MOST (2 * NSEC_PER_SEC)
#define RETRY_REFUSED (10 * NSEC_PER_SEC)
#define POLL_AFTER (1 * NSEC_PER_SEC) /* with no stream for so long, locks are told to look */
#define BEGIN_WITHIN (10 * NSEC_PER_SEC)
#define LINE_MAX_BYTES (8 * 1024 * 1024) /* etcd's values end at 1.5 MB unless it is told otherwise */

/* Two places, since the stream that runs is kept until the one with more keys has begun. */
struct stream {
	struct etcd_hub *hub;
	struct http_call *http;     /* NULL: this place is empty */
	struct etcd_watch **watches; /* by id - 1; NULL where one has gone */
	size_t count, created;
	struct buf line;
	int endpoint, place;
	unsigned generation;        /* of its token */
	bool running, refused, dropped, replaced;
	struct instant since;
};

struct etcd_hub {
	struct etcd_client *client;
	struct http *lane;
	struct etcd_watch *first, *cursor;
	struct stream stream[2];
	struct etcd_waiter token;
	ev_timer begin, tell;
	nsec retry;
	bool more;                  /* there are keys that no stream has */
	bool lost;                  /* a running stream ended, perhaps with news in it */
	bool closing;
};

/* ---- news ---- */

static void tell_soon(struct etcd_hub *h)
{
	if (ev_is_active(&h->tell))
		return;
	ev_timer_set(&h->tell, 0., 0.);
	ev_timer_start(h->client->env->loop, &h->tell);
}

static bool has_news(const struct etcd_watch *w)
{
	return !w->busy && (w->nudge || w->news > w->known);
}

static void on_tell(struct ev_loop *loop, ev_timer *timer, int revents)
{
	struct etcd_hub *h = timer->data;

	(void)loop;
	(void)revents;
	for (h->cursor = h->first; h->cursor;) {
		struct etcd_watch *w = h->cursor;
		h->cursor = w->next;
		if (!has_news(w))
			continue;
		w->news = 0;
		w->nudge = false;
		w->changed(w->arg);
	}
}

static void add_news(struct etcd_watch *w, int64_t revision)
{
	if (revision > w->news)
		w->news = revision;
	if (has_news(w))
		tell_soon(w->hub);
}

static void nudge_all(struct etcd_hub *h)
{
	for (struct etcd_watch *w = h->first; w; w = w->next)
		w->nudge = true;
	tell_soon(h);
}

void etcd_watch_settle(struct etcd_watch *w, int64_t known)
{
	w->busy = false;
	if (known)
		w->known = known;
	if (w->hub && has_news(w))
		tell_soon(w->hub);
}

/* ---- the stream ---- */

static void begin_after(struct etcd_hub *h, nsec wait)
{
	if (h->closing || !h->first || ev_is_active(&h->begin))
		return;
	ev_now_update(h->client->env->loop);
	ev_timer_set(&h->begin, (double)wait / NSEC_PER_SEC, 0.);
	ev_timer_start(h->client->env->loop, &h->begin);
}

static struct stream *running_stream(struct etcd_hub *h)
{
	for (int i = 0; i < 2; i++)
		if (h->stream[i].http && h->stream[i].running)
			return &h->stream[i];
	return NULL;
}

static bool beginning(const struct etcd_hub *h)
{
	return (h->stream[0].http && !h->stream[0].running) || (h->stream[1].http && !h->stream[1].running);
}

/* All its watches have begun: it takes the other one's place. */
static void promote(struct stream *s)
{
	struct etcd_hub *h = s->hub;
	struct stream *other = &h->stream[1 - s->place];

	s->running = true;
	s->since = clock_now();
	for (size_t i = 0; i < s->count; i++)
		if (s->watches[i])
			s->watches[i]->covered = true;
	other->replaced = true;
	if (other->http)
		http_cancel(other->http);
	if (h->lost)
		nudge_all(h);
	h->lost = false;
	if (h->more)
		begin_after(h, 0);
}

static void take_created(struct stream *s, struct etcd_watch *w, const json_t *result)
{
	if (w && !w->covered)
		add_news(w, etcd_number(json_object_get(result, "header"), "revision"));
	if (++s->created == s->count)
		promote(s);
}

static void take_events(struct etcd_watch *w, const json_t *result)
{
	const json_t *events = json_object_get(result, "events");

	for (size_t i = 0; i < json_array_size(events); i++)
		add_news(w, etcd_number(json_object_get(json_array_get(events, i), "kv"), "mod_revision"));
}

/* false: the stream is of no use. */
static bool take_line(struct stream *s, const json_t *line)
{
	const json_t *result = json_object_get(line, "result");
	int64_t id = etcd_number(result, "watch_id");
	struct etcd_watch *w = id > 0 && (size_t)id <= s->count ? s->watches[id - 1] : NULL;

	/* A member without a leader ends the stream; a token that has run out looks like a missing right. */
	if (!result || json_is_true(json_object_get(result, "canceled"))) {
		s->refused = true;
		return false;
	}
	if (json_is_true(json_object_get(result, "created")))
		take_created(s, w, result);
	else if (w)
		take_events(w, result);
	return true;
}

static void on_data(void *arg, struct http_call *http, const char *bytes, size_t len)
{
	struct stream *s = arg;
	bool good = s->line.len + len <= LINE_MAX_BYTES;
	const char *end;

	if (good)
		buf_add(&s->line, bytes, len);
	while (good && s->line.len && (end = memchr(s->line.data, '\n', s->line.len))) {
		size_t size = (size_t)(end - s->line.data) + 1;
		json_t *line = json_loadb(s->line.data, size, 0, NULL);
		good = line && take_line(s, line);
		json_decref(line);
		buf_drop(&s->line, size);
	}
	if (!good)
		http_cancel(http);
}

static void uncover(struct etcd_hub *h)
{
	h->lost = true;
	for (struct etcd_watch *w = h->first; w; w = w->next)
		w->covered = false;
}

static nsec next_retry(struct etcd_hub *h, const struct stream *s)
{
	nsec most = s->refused ? RETRY_REFUSED : RETRY_MOST, wait;

	if (s->running && elapsed_standby(s->since, clock_now()) > RETRY_MOST)
		h->retry = RETRY_FIRST;
	wait = h->retry < most ? h->retry : most;
	h->retry = wait * 2;
	return wait;
}

static void on_done(void *arg, const struct http_result *r, const struct http_headers *headers)
{
	struct stream *s = arg;
	struct etcd_hub *h = s->hub;

	(void)headers;
	s->http = NULL;
	free(s->watches);
	s->watches = NULL;
	for (struct etcd_watch *w = h->first; w; w = w->next)
		w->id[s->place] = 0;
	buf_fini(&s->line);
	if (h->closing || s->replaced)
		return;
	if (s->running)
		uncover(h);
	s->refused |= r->status >= 400;
	if (s->refused)
		etcd_drop_token(h->client, s->generation);
	else if (!s->dropped && h->client->at == s->endpoint)
		h->client->at = (s->endpoint + 1) % h->client->url.hosts;
	h->more = true;
	begin_after(h, next_retry(h, s));
}

static void print_watches(struct stream *s, struct buf *body)
{
	struct etcd_hub *h = s->hub;
	size_t n = 0;

	for (const struct etcd_watch *w = h->first; w; w = w->next)
		n++;
	s->watches = mem_zero((n ? n : 1) * sizeof *s->watches);
	s->count = 0;
	for (struct etcd_watch *w = h->first; w; w = w->next) {
		s->watches[s->count++] = w;
		w->id[s->place] = s->count;
		buf_printf(body, "{\"create_request\":{\"key\":\"%s\",\"watch_id\":\"%zu\"}}\n", w->key64, s->count);
	}
}

static void begin_stream(struct etcd_hub *h)
{
	struct etcd_client *c = h->client;
	struct stream *s = &h->stream[h->stream[0].http ? 1 : 0];
	struct buf body = { 0 };
	char *url = mem_printf("%s/%s/watch", c->base[c->at], etcd_prefix[c->prefix]), *token = etcd_token_header(c);
	const char *const headers[] = { "Content-Type: application/json", "Grpc-Metadata-hasleader: true", token, NULL };

	*s = (struct stream){ .hub = h, .place = (int)(s - h->stream), .endpoint = c->at, .generation = c->generation, .since = clock_now() };
	print_watches(s, &body);
	s->http = http_start(h->lane, &(struct http_request){
		.url = url, .headers = headers, .body = body.data, .body_len = body.len, .proxy = "",
		.tls = c->tls ? &c->how : NULL, .server_name = lock_url_option(&c->url, "server_name"), .connect = BEGIN_WITHIN,
		.first_byte = BEGIN_WITHIN, .data = on_data, .done = on_done, .arg = s,
	});
	h->more = false;
	buf_fini(&body);
	free(token);
	free(url);
}

static void begin(struct etcd_hub *h)
{
	if (!h->first || !h->more || beginning(h) || h->token.waiting)
		return;
	if (etcd_has_token(h->client))
		begin_stream(h);
	else
		etcd_wait_for_token(h->client, &h->token);
}

static void on_token(void *arg, const struct err *err)
{
	struct etcd_hub *h = arg;

	if (!err) {
		begin(h);
		return;
	}
	h->retry = h->retry * 2 < RETRY_REFUSED ? h->retry * 2 : RETRY_REFUSED;
	begin_after(h, h->retry);
}

static void on_begin(struct ev_loop *loop, ev_timer *timer, int revents)
{
	struct etcd_hub *h = timer->data;

	(void)loop;
	(void)revents;
	if (h->retry > POLL_AFTER && !running_stream(h))
		nudge_all(h);
	begin(h);
}

/* ---- hub ---- */

struct etcd_hub *etcd_hub_new(struct etcd_client *c, struct err *err)
{
	struct http *lane = http_new(c->env->loop, &(struct http_options){ .stall = 10 * NSEC_PER_SEC }, err);

	if (!lane)
		return NULL;
	struct etcd_hub *h = mem_zero(sizeof *h);
	h->client = c;
	h->lane = lane;
	h->retry = RETRY_FIRST;
	h->token = (struct etcd_waiter){ .ready = on_token, .arg = h };
	ev_timer_init(&h->begin, on_begin, 0., 0.);
	ev_timer_init(&h->tell, on_tell, 0., 0.);
	h->begin.data = h->tell.data = h;
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
	http_free(h->lane);
	free(h);
}

void etcd_hub_suspect(struct etcd_hub *h, int endpoint)
{
	for (int i = 0; i < 2; i++) {
		struct stream *s = &h->stream[i];
		if (s->http && s->endpoint == endpoint && elapsed_standby(s->since, clock_now()) > POLL_AFTER) {
			s->dropped = true;
			http_cancel(s->http);
		}
	}
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
	h->more = true;
	begin_after(h, 0);
}

void etcd_watch_stop(struct etcd_watch *w)
{
	struct etcd_hub *h = w->hub;

	if (!h)
		return;
	if (h->cursor == w)
		h->cursor = w->next;
	*w->slot = w->next;
	if (w->next)
		w->next->slot = w->slot;
	for (int i = 0; i < 2; i++)
		if (w->id[i] && h->stream[i].watches)
			h->stream[i].watches[w->id[i] - 1] = NULL;
	w->hub = NULL;
}
