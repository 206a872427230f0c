#include "http/http_internal.h"

#include "base/mem.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- libcurl on the loop ---- */

struct sock {
	ev_io io;
	struct pool *pool;
};

static void collect_ended(const struct pool *p)
{
	const struct CURLMsg *m;
	int left;

	while ((m = curl_multi_info_read(p->multi, &left))) {
		char *mine = NULL;
		if (m->msg != CURLMSG_DONE)
			continue;
		CURL *easy = m->easy_handle;
		CURLcode code = m->data.result;
		curl_easy_getinfo(easy, CURLINFO_PRIVATE, &mine);
		struct http_call *c = (struct http_call *)(void *)mine;
		http_take_back(c);
		http_ended(c, code);
	}
}

static void act(struct pool *p, curl_socket_t fd, int events)
{
	struct http *h = p->lane;
	int running;

	curl_multi_socket_action(p->multi, fd, events, &running);
	collect_ended(p);
	http_tell(h); /* p may be gone */
}

static void on_io(struct ev_loop *loop, ev_io *w, int revents)
{
	struct sock *s = w->data;

	(void)loop;
	act(s->pool, w->fd,
	    (revents & EV_READ ? CURL_CSELECT_IN : 0) | (revents & EV_WRITE ? CURL_CSELECT_OUT : 0) |
	            (revents & EV_ERROR ? CURL_CSELECT_ERR : 0));
}

static void on_pool_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop;
	(void)revents;
	act(w->data, CURL_SOCKET_TIMEOUT, 0);
}

/* A connection that is closed while more of a streamed body is to come: libcurl (7.88) would wait for that for ever. */
static void note_deaf(CURL *easy)
{
	char *mine = NULL;

	if (!easy || curl_easy_getinfo(easy, CURLINFO_PRIVATE, &mine) != CURLE_OK || !mine)
		return;
	struct http_call *c = (struct http_call *)(void *)mine;
	if (!c->pool || !c->answered || !c->starved || c->held)
		return;
	c->deaf = true;
	http_ready(c);
}

static int on_watch(CURL *easy, curl_socket_t fd, int what, void *arg, void *sock)
{
	struct pool *p = arg;
	struct sock *s = sock;
	int events = (what & CURL_POLL_IN ? EV_READ : 0) | (what & CURL_POLL_OUT ? EV_WRITE : 0);

	if (s)
		ev_io_stop(p->lane->loop, &s->io);
	if (what == CURL_POLL_REMOVE) {
		note_deaf(easy);
		curl_multi_assign(p->multi, fd, NULL);
		free(s);
		return 0;
	}
	if (!s) {
		s = mem_zero(sizeof *s);
		s->pool = p;
		ev_init(&s->io, on_io);
		s->io.data = s;
		curl_multi_assign(p->multi, fd, s);
	}
	ev_io_set(&s->io, fd, events);
	ev_io_start(p->lane->loop, &s->io);
	return 0;
}

/* Never early: libcurl says a time only once, and an early call would lose it. */
static int on_set_timer(CURLM *multi, long ms, void *arg)
{
	struct pool *p = arg;

	(void)multi;
	ev_timer_stop(p->lane->loop, &p->timer);
	if (ms < 0)
		return 0;
	if (ms > 0)
		ev_now_update(p->lane->loop);
	ev_timer_set(&p->timer, ms > 0 ? (double)ms / 1e3 + 0.001 : 0., 0.);
	ev_timer_start(p->lane->loop, &p->timer);
	return 0;
}

/* ---- pools and lanes ---- */

/* libcurl's wake-up sockets are not close-on-exec (7.88): they take the two lowest free descriptors. */
static CURLM *new_multi(void)
{
	int a = open("/dev/null", O_RDONLY | O_CLOEXEC), b = open("/dev/null", O_RDONLY | O_CLOEXEC);

	if (a >= 0)
		close(a);
	if (b >= 0)
		close(b);
	CURLM *m = curl_multi_init();
	if (m && a >= 0)
		fcntl(a, F_SETFD, FD_CLOEXEC);
	if (m && b >= 0)
		fcntl(b, F_SETFD, FD_CLOEXEC);
	return m;
}

static struct pool *new_pool(struct http *h)
{
	CURLM *m = new_multi();

	if (!m)
		return NULL;
	struct pool *p = mem_zero(sizeof *p);
	p->lane = h;
	p->multi = m;
	ev_timer_init(&p->timer, on_pool_timer, 0., 0.);
	p->timer.data = p;
	curl_multi_setopt(m, CURLMOPT_SOCKETFUNCTION, on_watch);
	curl_multi_setopt(m, CURLMOPT_SOCKETDATA, p);
	curl_multi_setopt(m, CURLMOPT_TIMERFUNCTION, on_set_timer);
	curl_multi_setopt(m, CURLMOPT_TIMERDATA, p);
	curl_multi_setopt(m, CURLMOPT_MAX_HOST_CONNECTIONS, (long)h->o.connections);
	curl_multi_setopt(m, CURLMOPT_MAX_CONCURRENT_STREAMS, (long)h->o.streams);
	curl_multi_setopt(m, CURLMOPT_MAXCONNECTS, (long)h->o.kept);
	return p;
}

static void free_pool(struct pool *p)
{
	if (!p)
		return;
	curl_multi_cleanup(p->multi);
	ev_timer_stop(p->lane->loop, &p->timer);
	free(p);
}

void http_begin_pool(struct http *h)
{
	struct pool *p = new_pool(h);

	if (!p)
		return; /* the old one still is */
	h->pool->next = h->old;
	h->old = h->pool;
	h->pool = p;
}

void http_drop_old_pools(struct http *h)
{
	for (struct pool **p = &h->old; *p;) {
		struct pool *old = *p;
		if (old->calls) {
			p = &old->next;
			continue;
		}
		*p = old->next;
		free_pool(old);
	}
}

static void on_kick(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop;
	(void)revents;
	http_tell(w->data);
}

void http_prepare(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT); /* if it fails, so does http_new */
}

struct http *http_new(struct ev_loop *loop, const struct http_options *o, struct err *err)
{
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
		err_set(err, ERR_SYSTEM, "libcurl %s did not start", curl_version_info(CURLVERSION_NOW)->version);
		return NULL;
	}
	struct http *h = mem_zero(sizeof *h);
	h->loop = loop;
	h->o = o ? *o : (struct http_options){ 0 };
	h->o.connections = h->o.connections ? h->o.connections : 16;
	h->o.streams = h->o.streams ? h->o.streams : 100;
	h->o.kept = h->o.kept ? h->o.kept : 16;
	h->o.stall = h->o.stall ? h->o.stall : 20 * NSEC_PER_SEC;
	h->ready_end = &h->ready;
	ev_timer_init(&h->kick, on_kick, 0., 0.);
	h->kick.data = h;
	h->pool = new_pool(h);
	if (h->pool)
		return h;
	err_set(err, ERR_SYSTEM, "libcurl has no memory or descriptors for a connection pool");
	free(h);
	return NULL;
}

void http_free(struct http *h)
{
	if (!h)
		return;
	while (h->calls)
		http_cancel(h->calls);
	ev_timer_stop(h->loop, &h->kick);
	http_drop_old_pools(h);
	free_pool(h->pool);
	free(h);
}

struct http_stats http_stats(const struct http *h)
{
	return h->stats;
}
