#include "net/http/http_internal.h"

#include "base/mem.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- libcurl on the loop ---- */

struct sock {
	ev_io io;
	struct http_pool *pool;
};

/* All of a name's addresses were in doubt: none is any more. */
static bool pool_tries_doubted(struct http_call *c, CURLcode code)
{
	if (code == CURLE_OK || !c->passed || *c->at)
		return false;
	c->passed = false;
	http_doubt_none(c->client);
	return http_hand_over(c) == CURLM_OK;
}

static void pool_collect_ended(const struct http_pool *p)
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
		if (!pool_tries_doubted(c, code))
			http_ended(c, code);
	}
}

static void pool_act(struct http_pool *p, curl_socket_t fd, int events)
{
	struct http *h = p->client;
	int running;

	/* Without memory libcurl leaves a hash without places in its list of sockets, and divides by their number the
	 * next time (7.88's lib/multi.c: singlesocket, trhash). */
	if (curl_multi_socket_action(p->multi, fd, events, &running) == CURLM_OUT_OF_MEMORY)
		mem_end();
	pool_collect_ended(p);
	http_tell(h); /* p may be gone */
}

static void sock_on_io(struct ev_loop *, ev_io *w, int revents)
{
	struct sock *s = w->data;

	pool_act(s->pool, w->fd,
	         (revents & EV_READ ? CURL_CSELECT_IN : 0) | (revents & EV_WRITE ? CURL_CSELECT_OUT : 0) |
	                 (revents & EV_ERROR ? CURL_CSELECT_ERR : 0));
}

static void pool_on_timer(struct ev_loop *, ev_timer *w, int)
{
	pool_act(w->data, CURL_SOCKET_TIMEOUT, 0);
}

/* The connection was closed while the call waits for more of a streamed body: libcurl (7.88) would wait for ever. */
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

static int pool_on_watch(CURL *easy, curl_socket_t fd, int what, void *arg, void *sock)
{
	struct http_pool *p = arg;
	struct sock *s = sock;
	int events = (what & CURL_POLL_IN ? EV_READ : 0) | (what & CURL_POLL_OUT ? EV_WRITE : 0);

	if (s)
		ev_io_stop(p->client->loop, &s->io);
	if (what == CURL_POLL_REMOVE) {
		note_deaf(easy);
		curl_multi_assign(p->multi, fd, NULL);
		free(s);
		return 0;
	}
	if (!s) {
		s = mem_zero(sizeof *s);
		s->pool = p;
		ev_init(&s->io, sock_on_io);
		s->io.data = s;
		curl_multi_assign(p->multi, fd, s);
	}
	ev_io_set(&s->io, fd, events);
	ev_io_start(p->client->loop, &s->io);
	return 0;
}

/* The timer is never early: libcurl asks for a time only once, and does nothing if it is called before. */
static int pool_on_set_timer(CURLM *, long ms, void *arg)
{
	struct http_pool *p = arg;

	ev_timer_stop(p->client->loop, &p->timer);
	if (ms < 0)
		return 0;
	if (ms > 0)
		ev_now_update(p->client->loop);
	ev_timer_set(&p->timer, ms > 0 ? (double)ms / 1e3 + 0.001 : 0., 0.);
	ev_timer_start(p->client->loop, &p->timer);
	return 0;
}

/* ---- pools ---- */

/* libcurl (7.88) does not make its wake-up sockets close-on-exec. They get the two lowest free descriptors, so these
 * are found out first. */
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

struct http_pool *http_pool_new(struct http *h)
{
	CURLM *m = new_multi();

	if (!m)
		return NULL;
	struct http_pool *p = mem_zero(sizeof *p);
	p->client = h;
	p->multi = m;
	ev_timer_init(&p->timer, pool_on_timer, 0., 0.);
	p->timer.data = p;
	curl_multi_setopt(m, CURLMOPT_SOCKETFUNCTION, pool_on_watch);
	curl_multi_setopt(m, CURLMOPT_SOCKETDATA, p);
	curl_multi_setopt(m, CURLMOPT_TIMERFUNCTION, pool_on_set_timer);
	curl_multi_setopt(m, CURLMOPT_TIMERDATA, p);
	curl_multi_setopt(m, CURLMOPT_MAX_HOST_CONNECTIONS, (long)h->o.connections);
	curl_multi_setopt(m, CURLMOPT_MAX_CONCURRENT_STREAMS, (long)h->o.streams);
	curl_multi_setopt(m, CURLMOPT_MAXCONNECTS, (long)h->o.kept);
	return p;
}

void http_pool_free(struct http_pool *p)
{
	if (!p)
		return;
	curl_multi_cleanup(p->multi);
	ev_timer_stop(p->client->loop, &p->timer);
	free(p);
}

void http_pool_begin(struct http *h)
{
	struct http_pool *p = http_pool_new(h);

	if (!p)
		return; /* the old pool stays in use */
	h->pool->next = h->old;
	h->old = h->pool;
	h->pool = p;
}

void http_pool_drop_old(struct http *h)
{
	for (struct http_pool **p = &h->old; *p;) {
		struct http_pool *old = *p;
		if (old->calls) {
			p = &old->next;
			continue;
		}
		*p = old->next;
		http_pool_free(old);
	}
}
