#include "locks/etcd/etcd_watch.h"

#include "base/mem.h"
#include "locks/etcd/etcd_server.h"

#include <stdlib.h>
#include <string.h>

#define RETRY_FIRST (50 * NSEC_PER_MS)
#define RETRY_MOST (2 * NSEC_PER_SEC)
#define RETRY_REFUSED (10 * NSEC_PER_SEC)
#define POLL_AFTER (1 * NSEC_PER_SEC) /* with no stream for so long, locks are told to look */
#define PROGRESS_ID (-1)              /* the answer is about no watch (clientv3.InvalidWatchID) */
#define ALIVE_S 6.   /* between questions whether the stream still tells; etcd allows one PING in five seconds */
#define UNANSWERED 2 /* of them: it does not tell any more */

struct etcd_hub {
	struct etcd_server *server;
	struct etcd_watch *first, *telling;
	struct lock_call wait;
	struct grpc_call stream;
	struct etcd_watch **watches; /* the stream's, by number; NULL where one has gone */
	size_t count, room;
	uint64_t number;     /* of its connection */
	unsigned generation; /* of its token */
	bool answered, refused;
	bool says_progress; /* this server has answered a progress request */
	int unanswered;
	struct instant since;
	ev_timer begin, alive;
	nsec retry;
};

/* ---- news ---- */

static void watch_forget_seen(struct etcd_watch *w)
{
	etcd_drop(w->seen);
	w->seen = NULL;
}

static struct ev_loop *hub_loop(const struct etcd_hub *h)
{
	return h->server->base.env->loop;
}

static bool watch_has_news(const struct etcd_watch *w)
{
	return w->hub && !w->busy && (w->nudge || w->news > w->known);
}

/* By way of the loop. */
static void watch_tell(struct etcd_watch *w)
{
	if (watch_has_news(w))
		lock_member_tell(w->member);
}

static void watch_on_told(void *arg)
{
	struct etcd_watch *w = arg;
	struct etcd_hub *h = w->hub;

	if (!watch_has_news(w))
		return;
	lock_server_hold(&h->server->base); /* who is told may close the last lock */
	w->news = 0;
	w->nudge = false;
	h->telling = w;
	w->changed(w->arg);
	if (h->telling == w)
		watch_forget_seen(w);
	h->telling = NULL;
	lock_server_put(&h->server->base);
}

Etcd__KeyValue *etcd_watch_take_seen(struct etcd_watch *w)
{
	Etcd__KeyValue *seen = w->seen;

	if (!w->hub || w->hub->telling != w || w->latest <= w->known)
		return NULL;
	w->seen = NULL;
	return seen;
}

/* *kv: what was put there, taken if it is kept; NULL: nothing, or it is not said. */
static void watch_add_news(struct etcd_watch *w, int64_t revision, Etcd__KeyValue **kv)
{
	if (revision > w->latest) {
		w->latest = revision;
		watch_forget_seen(w);
		if (kv && revision > w->known) {
			w->seen = *kv;
			*kv = NULL;
		}
	}
	if (revision > w->news)
		w->news = revision;
	watch_tell(w);
}

static void hub_nudge_all(struct etcd_hub *h)
{
	for (struct etcd_watch *w = h->first; w; w = w->next) {
		w->nudge = true;
		watch_forget_seen(w);
		watch_tell(w);
	}
}

void etcd_watch_settle(struct etcd_watch *w, int64_t known)
{
	w->busy = false;
	if (known) {
		w->known = known;
		if (known >= w->latest)
			watch_forget_seen(w);
	}
	watch_tell(w);
}

/* ---- the stream ---- */

static void hub_begin_after(struct etcd_hub *h, nsec wait)
{
	if (!h->first || ev_is_active(&h->begin))
		return;
	ev_now_update(hub_loop(h));
	ev_timer_set(&h->begin, (double)wait / NSEC_PER_SEC, 0.);
	ev_timer_start(hub_loop(h), &h->begin);
}

static void stream_send(struct etcd_hub *h, const Etcd__WatchRequest *request)
{
	struct buf b = { 0 };

	etcd_pack(&b, &request->base);
	etcd_link_send(h->server->base.notices, &h->stream, &b);
	buf_fini(&b);
}

/* Gives the watch its number in the stream, and makes the request for it. The first is 0, for which etcd chooses one:
 * 0, too. So the numbers are those that etcd's own grpc-proxy gives, whatever it is asked for. */
static void stream_enter(struct etcd_hub *h, struct etcd_watch *w, Etcd__WatchCreateRequest *create)
{
	if (h->count == h->room) {
		h->room = h->room ? h->room * 2 : 4;
		h->watches = mem_resize(h->watches, h->room * sizeof *h->watches);
	}
	h->watches[h->count++] = w;
	w->id = h->count;
	etcd__watch_create_request__init(create);
	create->key = etcd_bytes(w->key, strlen(w->key));
	create->watch_id = (int64_t)w->id - 1;
}

static void stream_add_watch(struct etcd_hub *h, struct etcd_watch *w)
{
	Etcd__WatchCreateRequest create;
	Etcd__WatchRequest request = ETCD__WATCH_REQUEST__INIT;

	stream_enter(h, w, &create);
	request.request_union_case = ETCD__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
	request.create_request = &create;
	stream_send(h, &request);
}

static void stream_cancel_watch(struct etcd_hub *h, struct etcd_watch *w)
{
	Etcd__WatchCancelRequest cancel = ETCD__WATCH_CANCEL_REQUEST__INIT;
	Etcd__WatchRequest request = ETCD__WATCH_REQUEST__INIT;

	if (!w->id || !grpc_under_way(&h->stream))
		return;
	h->watches[w->id - 1] = NULL;
	cancel.watch_id = (int64_t)w->id - 1;
	request.request_union_case = ETCD__WATCH_REQUEST__REQUEST_UNION_CANCEL_REQUEST;
	request.cancel_request = &cancel;
	stream_send(h, &request);
}

/* false: an event is of another key, so what stands between has numbers of its own. */
static bool watch_take_events(struct etcd_watch *w, const Etcd__WatchResponse *told)
{
	size_t len = strlen(w->key);

	for (size_t i = 0; i < told->n_events; i++) {
		Etcd__Event *event = told->events[i];
		if (!event->kv || event->kv->key.len != len || memcmp(event->kv->key.data, w->key, len) != 0)
			return false;
		watch_add_news(w, event->kv->mod_revision,
		               event->type == ETCD__EVENT__EVENT_TYPE__PUT ? &event->kv : NULL);
	}
	return true;
}

static void hub_suspend_advice(struct etcd_hub *h)
{
	for (struct etcd_watch *w = h->first; w; w = w->next) {
		w->nudge |= w->advice;
		w->suspended |= w->advice;
		watch_tell(w);
	}
}

/* false: the stream is of no use. */
static bool stream_take(struct etcd_hub *h, const Etcd__WatchResponse *told)
{
	int64_t id = told->watch_id;
	bool ours = id >= 0 && (size_t)id < h->count;
	struct etcd_watch *w = ours ? h->watches[id] : NULL;

	h->unanswered = 0;
	h->says_progress |= id == PROGRESS_ID;
	if (told->canceled && ours && !w)
		return true;  /* by us */
	if (told->canceled) { /* a token that has run out looks like a missing right */
		h->refused = true;
		hub_suspend_advice(h);
		return false;
	}
	if (w && told->created && told->header)
		watch_add_news(w, told->header->revision, NULL); /* etcd does not tell of earlier changes */
	return !w || watch_take_events(w, told);
}

/* The stream is over: another one is begun soon. */
static void stream_end(struct etcd_hub *h)
{
	nsec most = h->refused ? RETRY_REFUSED : RETRY_MOST, wait;

	h->count = 0;
	for (struct etcd_watch *w = h->first; w; w = w->next)
		w->id = 0;
	ev_timer_stop(hub_loop(h), &h->alive);
	if (h->refused)
		etcd_server_drop_token(h->server, h->generation);
	if (h->answered && elapsed_standby(h->since, clock_now()) > RETRY_MOST)
		h->retry = RETRY_FIRST;
	wait = h->retry < most ? h->retry : most;
	h->retry = wait * 2;
	hub_begin_after(h, wait);
}

static void stream_give_up(struct etcd_hub *h)
{
	etcd_link_cancel(h->server->base.notices, &h->stream);
	stream_end(h);
}

static struct etcd_hub *hub_of_stream(struct grpc_call *c)
{
	return (struct etcd_hub *)(void *)((char *)c - offsetof(struct etcd_hub, stream));
}

/* A proxy can keep a connection open on which nothing comes through any more. That looks like a key that does not
 * change, so the server is asked now and then whether it is there, and its end of the connection, too. */
static void stream_on_alive(struct ev_loop *, ev_timer *timer, int)
{
	Etcd__WatchProgressRequest progress = ETCD__WATCH_PROGRESS_REQUEST__INIT;
	Etcd__WatchRequest request = ETCD__WATCH_REQUEST__INIT;
	struct etcd_hub *h = timer->data;
	struct lock_server *s = &h->server->base;

	lock_server_hold(s); /* whose calls are lost by a question without answer may close the last lock */
	if (h->says_progress && h->unanswered >= UNANSWERED) {
		stream_give_up(h);
	} else {
		h->unanswered++;
		request.request_union_case = ETCD__WATCH_REQUEST__REQUEST_UNION_PROGRESS_REQUEST;
		request.progress_request = &progress;
		stream_send(h, &request);
		etcd_link_ping(s->notices);
	}
	lock_server_put(s);
}

static void stream_on_message(struct grpc_call *c, const void *bytes, size_t len)
{
	struct etcd_hub *h = hub_of_stream(c);
	struct err why;
	Etcd__WatchResponse *told = etcd_unpack(&etcd__watch_response__descriptor, bytes, len);

	if (!h->answered) {
		h->answered = true;
		h->since = clock_now();
		ev_now_update(hub_loop(h));
		ev_timer_set(&h->alive, ALIVE_S, ALIVE_S);
		ev_timer_start(hub_loop(h), &h->alive);
	}
	if (!told || !etcd_server_heard(h->server, h->number, told->header, &why) || !stream_take(h, told))
		stream_give_up(h);
	etcd_drop(told);
}

static void stream_on_ended(struct grpc_call *c, const struct grpc_end *end)
{
	struct etcd_hub *h = hub_of_stream(c);
	struct etcd_server *s = h->server;
	struct lock_link *link = s->base.notices;
	const struct err *lost = link->state == LOCK_LINK_DOWN ? &link->why : NULL;
	struct etcd_meaning m = etcd_understand(end, link->peer, s->place.url.user, lost);

	h->refused = m.verdict == ETCD_LOGIN || m.verdict == ETCD_FINAL;
	if (m.verdict == ETCD_ELSEWHERE && !end->unseen && s->place.url.hosts > 1)
		etcd_link_leave(link, h->number, &m.err); /* a member without a leader ends the stream */
	stream_end(h);
}

static void stream_begin(struct etcd_hub *h)
{
	struct lock_link *link = h->server->base.notices;
	struct etcd_metadata with = etcd_server_metadata(h->server);
	const char **end = with.pair;

	while (*end)
		end++;
	*end++ = "hasleader";
	*end++ = "true";
	h->number = link->number;
	h->generation = h->server->generation;
	h->answered = h->refused = h->says_progress = false;
	h->unanswered = 0;
	h->since = clock_now();
	etcd_link_start(link, &h->stream, "/etcdserverpb.Watch/Watch", with.pair, NULL, true);
	struct etcd_watch *w = h->first;
	while (w && grpc_under_way(&h->stream)) {
		if (!w->suspended)
			stream_add_watch(h, w);
		/* Where that has lost the link, who was told of it may have closed this lock. */
		w = grpc_under_way(&h->stream) ? w->next : NULL;
	}
}

static void hub_on_ready(struct lock_call *c)
{
	struct etcd_hub *h = (struct etcd_hub *)(void *)((char *)c - offsetof(struct etcd_hub, wait));

	if (h->first && etcd_server_admits(h->server, c, true, false))
		stream_begin(h);
}

static void hub_on_lost(struct lock_call *c, bool, enum lock_outcome outcome, const struct err *)
{
	struct etcd_hub *h = (struct etcd_hub *)(void *)((char *)c - offsetof(struct etcd_hub, wait));

	h->refused = outcome == LOCK_REFUSED;
	h->answered = false;
	stream_end(h);
}

static void hub_on_begin(struct ev_loop *, ev_timer *timer, int)
{
	struct etcd_hub *h = timer->data;

	if (grpc_under_way(&h->stream) || !h->first || h->wait.state != LOCK_CALL_IDLE)
		return;
	if (h->retry > POLL_AFTER)
		hub_nudge_all(h);
	hub_on_ready(&h->wait);
}

/* ---- hub ---- */

struct etcd_hub *etcd_hub_new(struct etcd_server *s)
{
	struct etcd_hub *h = mem_zero(sizeof *h);

	h->server = s;
	h->retry = RETRY_FIRST;
	h->wait = (struct lock_call){ .ready = hub_on_ready, .lost = hub_on_lost };
	h->stream = (struct grpc_call){ .message = stream_on_message, .ended = stream_on_ended };
	ev_timer_init(&h->begin, hub_on_begin, 0., 0.);
	ev_init(&h->alive, stream_on_alive);
	h->begin.data = h->alive.data = h;
	return h;
}

void etcd_hub_free(struct etcd_hub *h)
{
	etcd_server_forget(h->server, &h->wait);
	etcd_link_cancel(h->server->base.notices, &h->stream);
	ev_timer_stop(hub_loop(h), &h->begin);
	ev_timer_stop(hub_loop(h), &h->alive);
	free(h->watches);
	free(h);
}

void etcd_watch_start(struct etcd_hub *h, struct etcd_watch *w, void (*changed)(void *arg), void *arg)
{
	w->changed = changed;
	w->arg = arg;
	w->member->changed = watch_on_told;
	w->member->arg = w;
	if (w->suspended && grpc_under_way(&h->stream))
		stream_add_watch(h, w);
	w->suspended = false;
	if (w->hub)
		return;
	w->hub = h;
	w->next = h->first;
	w->slot = &h->first;
	if (w->next)
		w->next->slot = &w->next;
	h->first = w;
	if (grpc_under_way(&h->stream))
		stream_add_watch(h, w);
	else
		hub_begin_after(h, 0);
}

void etcd_watch_stop(struct etcd_watch *w)
{
	struct etcd_hub *h = w->hub;

	if (!h)
		return;
	if (h->telling == w)
		h->telling = NULL;
	*w->slot = w->next;
	if (w->next)
		w->next->slot = w->slot;
	stream_cancel_watch(h, w);
	watch_forget_seen(w);
	w->hub = NULL;
}
