#include "net/http/http_internal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void http_ready(struct http_call *c)
{
	struct http *h = c->client;

	if (c->ready)
		return;
	c->ready = true;
	c->ready_next = NULL;
	*h->ready_end = c;
	h->ready_end = &c->ready_next;
	if (!ev_is_active(&h->kick)) {
		ev_timer_set(&h->kick, 0., 0.);
		ev_timer_start(h->loop, &h->kick);
	}
}

static void unmark_ready(struct http_call *c)
{
	struct http *h = c->client;
	struct http_call **p = &h->ready;

	if (!c->ready)
		return;
	while (*p != c)
		p = &(*p)->ready_next;
	*p = c->ready_next;
	if (!*p)
		h->ready_end = p;
	c->ready = false;
}

static void split_head(const struct http_call *c, struct http_header *list)
{
	const char *p = c->head.data;

	for (size_t i = 0; i < c->head_count; i++) {
		list[i].name = p;
		list[i].value = p += strlen(p) + 1;
		p += strlen(p) + 1;
	}
}

CURLMcode http_hand_over(struct http_call *c)
{
	struct http_pool *p = c->client->pool;
	CURLMcode code = curl_multi_add_handle(p->multi, c->easy);

	if (code == CURLM_OK) {
		c->pool = p;
		p->calls++;
	}
	return code;
}

void http_take_back(struct http_call *c)
{
	struct http_pool *p = c->pool;

	if (!p)
		return;
	c->pool = NULL;
	p->calls--;
	curl_multi_remove_handle(p->multi, c->easy);
}

static void call_free(struct http_call *c)
{
	struct http *h = c->client;

	http_take_back(c);
	unmark_ready(c);
	if (h->telling == c)
		h->telling = NULL;
	*c->slot = c->next;
	if (c->next)
		c->next->slot = c->slot;
	h->stats.calls--;
	ev_timer_stop(h->loop, &c->timer);
	curl_easy_cleanup(c->easy);
	curl_slist_free_all(c->lines);
	curl_slist_free_all(c->connect_to);
	buf_fini(&c->head);
	buf_fini(&c->body);
	buf_fini(&c->out);
	free(c->name);
	free(c->tls_url);
	free(c);
}

/* Was it sent on a connection that an earlier one had opened? */
static bool call_reused(const struct http_call *c)
{
	long opened = 0;

	curl_easy_getinfo(c->easy, CURLINFO_NUM_CONNECTS, &opened);
	return c->sent && opened == 0;
}

/* Calls `done`, then frees the call. */
static void call_finish(struct http_call *c)
{
	struct http *h = c->client;
	struct http_header *list = mem_zero((c->head_count + 1) * sizeof *list);
	struct http_headers headers = { .count = c->head_count, .list = list };
	struct http_result r = { .status = c->status,
		                 .unsent = !c->sent,
		                 .repeated = c->repeated,
		                 .err = c->err,
		                 .len = c->r.data ? 0 : c->body.len };
	const char *url = NULL;

	split_head(c, list);
	http_doubt_judge(c);
	http_take_back(c);
	r.sent_at = c->sent ? c->sent_at : clock_now();
	curl_easy_getinfo(c->easy, CURLINFO_EFFECTIVE_URL, &url);
	r.reused = call_reused(c);
	char *plain = http_url_without_secrets(url ? url : "", true);
	r.url = plain;
	r.body = r.len ? c->body.data : "";
	ev_timer_stop(h->loop, &c->timer);
	unmark_ready(c);
	c->r.done(c->r.arg, &r, &headers);
	free(plain);
	free(list);
	call_free(c);
}

static void tell_answer(struct http_call *c)
{
	struct http_header *list = mem_zero((c->head_count + 1) * sizeof *list);
	struct http_headers headers = { .count = c->head_count, .list = list };

	c->told_answer = true;
	split_head(c, list);
	c->r.answered(c->r.arg, c, c->status, &headers);
	free(list);
}

static void tell_data(struct http_call *c)
{
	struct buf taken = c->body;

	c->body = (struct buf){ 0 };
	c->r.data(c->r.arg, c, taken.data, taken.len);
	buf_fini(&taken);
}

/* Tells libcurl which directions are paused. libcurl may call its callbacks at once. */
static void set_pauses(struct http_call *c)
{
	if (c->pool)
		curl_easy_pause(c->easy, (c->held ? CURLPAUSE_RECV : 0) | (c->starved ? CURLPAUSE_SEND : 0));
}

/* Calls one callback that is due. false: none is, or the call has ended. */
static bool tell_one(struct http_call *c)
{
	if (c->answered && !c->told_answer && c->r.answered) {
		tell_answer(c);
	} else if (c->r.data && c->body.len && !c->paused) {
		tell_data(c);
	} else if (c->told_drained && c->r.drained && !c->ended) {
		c->told_drained = false;
		c->r.drained(c->r.arg, c);
	} else if (c->deaf && c->starved && !c->ended) {
		err_set(&c->err, ERR_UNREACHABLE, "%s: the connection was closed before the answer's end", c->name);
		http_take_back(c);
		http_ended(c, CURLE_RECV_ERROR);
	} else if (c->held && !c->paused && c->body.len == 0) {
		c->held = false;
		set_pauses(c);
	} else if (c->ended && !(c->paused && c->err.code == ERR_NONE)) {
		call_finish(c);
		return false;
	} else {
		return false;
	}
	return true;
}

void http_tell(struct http *h)
{
	while (h->ready) {
		struct http_call *c = h->ready;
		unmark_ready(c);
		h->telling = c;
		while (h->telling == c && tell_one(c))
			;
		h->telling = NULL;
	}
	ev_timer_stop(h->loop, &h->kick);
	http_pool_drop_old(h);
}

/* ---- errors ---- */

static const char *phase(const struct http_call *c)
{
	return !c->sent ? "not connected yet" : !c->heard ? "sent, but no answer yet" : "the answer has not ended";
}

static enum http_stage stage(const struct http_call *c)
{
	curl_off_t gone = 0;
	bool rest = c->r.streamed && (c->out.len || !c->out_ended);

	curl_easy_getinfo(c->easy, CURLINFO_SIZE_UPLOAD_T, &gone);
	if (!c->sent)
		return HTTP_UNSENT;
	return rest || (size_t)gone < c->r.body_len ? HTTP_SENDING : HTTP_ANSWERING;
}

static enum err_code meaning(const struct http_call *c, CURLcode code)
{
	long proxy_said = 0;

	curl_easy_getinfo(c->easy, CURLINFO_HTTP_CONNECTCODE, &proxy_said);
	return proxy_said == 407 ? ERR_DENIED : http_meaning(code, stage(c));
}

void http_ended(struct http_call *c, CURLcode code)
{
	c->ended = true;
	c->answered |= c->head_done && c->status >= 200;
	/* libcurl 7.88 says "out of memory" of it, 8.6 and newer CURLE_TOO_LARGE (100), which the older one's headers lack. */
	bool too_large = code == CURLE_OUT_OF_MEMORY || (int)code == 100;
	if (too_large && c->sent && !c->head_done && c->err.code == ERR_NONE)
		err_set(&c->err, ERR_INVALID, "%s: the answer has a header line of more than 100 KB", c->name);
	if (code != CURLE_OK && c->err.code == ERR_NONE && strstr(c->why, "wrong version number"))
		err_set(&c->err, meaning(c, code),
		        "%s: the server speaks no TLS: name its TLS port, or the URL without TLS", c->name);
	if (code != CURLE_OK && c->err.code == ERR_NONE) /* an error of our callbacks says more than libcurl's */
		err_set(&c->err, meaning(c, code), "%s: %s", c->name, *c->why ? c->why : curl_easy_strerror(code));
	/* libcurl (7.88) calls it a good end where the connection ended in a status line that begins well. */
	if (code == CURLE_OK && c->status == 0 && c->err.code == ERR_NONE)
		err_set(&c->err, ERR_INVALID, "%s: the answer has no status", c->name);
	http_ready(c);
}

/* An HTTP/2 connection on which a request was not answered is not used for new requests. Nor are those that are kept
 * beside one: they may lead to the same address, which its host has left. */
static void suspect_connection(const struct http_call *c)
{
	struct http *h = c->client;

	if (c->pool && c->pool == h->pool && c->sent && !c->heard && (c->maybe_http2 || call_reused(c)))
		http_pool_begin(h);
}

static void call_timed_out(struct http_call *c, const char *which, nsec limit)
{
	err_set(&c->err, ERR_TIMEOUT, "%s: timed out (%s%.0f ms): %s", c->name, which, (double)limit / NSEC_PER_MS,
	        phase(c));
	suspect_connection(c);
	http_take_back(c);
	http_ended(c, CURLE_OPERATION_TIMEDOUT);
	c->paused = false;
	http_tell(c->client);
}

/* ---- deadlines ---- */

static nsec min_nsec(nsec a, nsec b)
{
	return a < b ? a : b;
}

/* What is left of a limit that began at `from`; may be negative. */
static nsec left_of(nsec limit, struct instant from, struct instant now)
{
	return limit - elapsed_holder(from, now);
}

static bool has_deadline(const struct http_call *c)
{
	return c->r.by.boot || c->r.by.raw;
}

static void call_arm(struct http_call *c)
{
	struct instant now = clock_now();
	nsec wait = has_deadline(c) ? instant_until(c->r.by, now) : NSEC_NEVER;

	if (c->r.first_byte && !c->heard)
		wait = min_nsec(wait, c->sent ? left_of(c->r.first_byte, c->sent_at, now) : c->r.first_byte);
	if (c->r.silence)
		wait = min_nsec(wait, c->paused ? c->r.silence : left_of(c->r.silence, c->heard_at, now));
	if (wait == NSEC_NEVER)
		return;
	ev_now_update(c->client->loop);
	ev_timer_set(&c->timer, wait > 0 ? (double)wait / NSEC_PER_SEC : 0., 0.);
	ev_timer_start(c->client->loop, &c->timer);
}

/* The timer is not moved with each byte: when it is due, it is set again if the limit has not passed. */
static void call_on_timer(struct ev_loop *, ev_timer *w, int)
{
	struct http_call *c = w->data;
	struct instant now = clock_now();

	if (c->ended && !c->paused)
		return;
	if (has_deadline(c) && instant_passed(c->r.by, now))
		call_timed_out(c, "deadline, after ", elapsed_holder(c->began, now));
	else if (c->r.first_byte && c->sent && !c->heard && left_of(c->r.first_byte, c->sent_at, now) <= 0)
		call_timed_out(c, "no answer within ", c->r.first_byte);
	else if (c->r.silence && !c->paused && !c->ended && left_of(c->r.silence, c->heard_at, now) <= 0)
		call_timed_out(c, "silence of ", c->r.silence);
	else
		call_arm(c);
}

/* ---- calls ---- */

static struct http_call *call_new(struct http *h, const struct http_request *r)
{
	struct http_call *c = mem_zero(sizeof *c);
	char *plain = http_url_plain(r->url);

	c->client = h;
	c->r = *r;
	c->name = mem_printf("%s %s", r->method ? r->method : r->body || r->streamed ? "POST" : "GET", plain);
	c->began = c->heard_at = clock_now();
	c->easy = curl_easy_init();
	c->next = h->calls;
	c->slot = &h->calls;
	if (c->next)
		c->next->slot = &c->next;
	h->calls = c;
	h->stats.calls++;
	h->stats.started++;
	ev_timer_init(&c->timer, call_on_timer, 0., 0.);
	c->timer.data = c;
	free(plain);
	return c;
}

struct http_call *http_start(struct http *h, const struct http_request *r)
{
	struct http_call *c = call_new(h, r);

	if (!c->easy) {
		err_set(&c->err, ERR_SYSTEM, "%s: out of memory", c->name);
	} else if (http_set_request(c, r) == 0) {
		CURLMcode code = http_hand_over(c);
		if (code == CURLM_OK) {
			call_arm(c);
			return c;
		}
		err_set(&c->err, ERR_SYSTEM, "%s: %s", c->name, curl_multi_strerror(code));
	}
	c->ended = true;
	http_ready(c);
	return c;
}

void http_cancel(struct http_call *c)
{
	err_set(&c->err, ERR_CANCELLED, "%s: cancelled", c->name);
	call_finish(c);
}

size_t http_send(struct http_call *c, const void *bytes, size_t len, enum http_part part)
{
	buf_add(&c->out, bytes, len);
	c->out_ended |= part == HTTP_LAST;
	if (c->starved && (c->out.len || c->out_ended)) {
		c->starved = false;
		set_pauses(c);
	}
	return c->out.len;
}

void http_pause(struct http_call *c, bool paused)
{
	if (c->paused == paused)
		return;
	c->paused = paused;
	if (paused)
		return;
	c->heard_at = clock_now();
	http_ready(c);
}

/* ---- clients ---- */

static void http_on_kick(struct ev_loop *, ev_timer *w, int)
{
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
	ev_timer_init(&h->kick, http_on_kick, 0., 0.);
	h->kick.data = h;
	h->pool = http_pool_new(h);
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
	http_pool_drop_old(h);
	http_pool_free(h->pool);
	free(h);
}

struct http_stats http_stats(const struct http *h)
{
	return h->stats;
}
