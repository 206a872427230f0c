#include "net/grpc/grpc.h"

#include "base/mem.h"
#include "net/grpc/grpc_answer.h"
#include "version.h"

#include <nghttp2/nghttp2.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TAKE_MOST 65536          /* bytes to be sent that wait outside of nghttp2 */
#define WINDOW_STREAM (1 << 20)  /* what the server may send of one answer before we have read it */
#define WINDOW_SESSION (4 << 20) /* the same of all answers */
#define HEADERS_MOST 65536       /* of a header block from the server, see grpc_answer.c */
#define QUEUE_MOST 10000         /* frames that wait in nghttp2 */
#define FRAME_HEADER 9           /* bytes of a frame before its payload */
#define WORDS_MOST 200           /* of what a server says, in an error */

struct grpc_list {
	struct grpc_stream *first, *last;
};

/* A call under way. nghttp2 has it as the stream's user data until the call has ended. */
struct grpc_stream {
	struct grpc *g;
	struct grpc_call *call;
	struct grpc_stream *prev, *next;
	int32_t id;      /* 0: it waits; else it was handed to nghttp2 */
	bool sent;       /* its HEADERS frame was made; it may have been sent */
	struct buf head; /* until it has an id: path, and names and values of metadata, each with its terminator */
	size_t words;    /* how many of them */
	struct buf out;  /* messages with their prefixes */
	size_t out_sent; /* bytes of it that nghttp2 has taken */
	bool half;       /* no more follow */
	struct grpc_answer answer;
};

struct grpc {
	nghttp2_session *session;
	char *authority;
	bool tls;
	size_t limit;
	struct grpc_list waiting, active;
	bool inside; /* nghttp2 or a callback runs */
	struct buf out;
	struct buf first; /* bytes that have come, until they are a frame's header */
	bool checked;     /* that header is SETTINGS' */
	bool greeted, ping_pending;
	uint64_t pings;
	int32_t last_sent; /* id of the last stream whose HEADERS frame was made */
	uint32_t open;     /* streams that count against the server's limit */
	bool goaway;
	int32_t goaway_last; /* streams above it were not seen */
	struct buf goaway_why;
	struct err broken; /* code ERR_NONE: the connection is of use */
};

/* ---- calls ---- */

static struct grpc_list *stream_list(struct grpc_stream *s)
{
	return s->id ? &s->g->active : &s->g->waiting;
}

static void stream_link(struct grpc_stream *s)
{
	struct grpc_list *list = stream_list(s);

	s->next = NULL;
	s->prev = list->last;
	*(list->last ? &list->last->next : &list->first) = s;
	list->last = s;
}

static void stream_unlink(struct grpc_stream *s)
{
	struct grpc_list *list = stream_list(s);

	*(s->prev ? &s->prev->next : &list->first) = s->next;
	*(s->next ? &s->next->prev : &list->last) = s->prev;
}

/* The call is no longer under way; the stream, if the server may still have it, is reset. */
static void stream_drop(struct grpc_stream *s, bool reset)
{
	nghttp2_session *session = s->g->session;

	if (s->id) {
		nghttp2_session_set_stream_user_data(session, s->id, NULL);
		if (reset)
			nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_CANCEL);
	}
	stream_unlink(s);
	s->call->stream = NULL;
	grpc_answer_fini(&s->answer);
	buf_fini(&s->head);
	buf_fini(&s->out);
	free(s);
}

/* `end` and its text must not be parts of s. */
static void stream_end(struct grpc_stream *s, const struct grpc_end *end, bool reset)
{
	struct grpc_call *c = s->call;

	stream_drop(s, reset);
	c->ended(c, end);
}

static void stream_fail(struct grpc_stream *s, bool unseen, bool reset, const char *text)
{
	struct grpc_end end = { .status = -1, .unseen = unseen, .text = text };

	stream_end(s, &end, reset);
}

/* The answer is over, or enough of it has come: the stream is reset unless both sides have closed it. */
static void stream_answered(struct grpc_stream *s, bool closed)
{
	bool open = !closed || nghttp2_session_get_stream_local_close(s->g->session, s->id) == 0;
	struct buf text = { 0 };
	struct grpc_end end = { 0 };

	end.status = grpc_answer_end(&s->answer, &end.replied, &text);
	end.text = text.data ? text.data : "";
	stream_end(s, &end, open);
	buf_fini(&text);
}

static void stream_add(struct grpc_stream *s, const void *message, size_t len, bool half)
{
	if (message) {
		unsigned char prefix[5] = { 0, (unsigned char)(len >> 24), (unsigned char)(len >> 16),
			                    (unsigned char)(len >> 8), (unsigned char)len };
		buf_add(&s->out, prefix, sizeof prefix);
		buf_add(&s->out, message, len);
	}
	s->half |= half;
}

void grpc_start(struct grpc *g, struct grpc_call *c, const char *path, const char *const *metadata, const void *message,
                size_t len, bool half)
{
	struct grpc_stream *s = mem_zero(sizeof *s);

	s->g = g;
	s->call = c;
	c->stream = s;
	s->words = 1;
	buf_add(&s->head, path, strlen(path) + 1);
	for (; metadata && *metadata; metadata++, s->words++)
		buf_add(&s->head, *metadata, strlen(*metadata) + 1);
	stream_add(s, message, len, half);
	stream_link(s);
}

void grpc_send(struct grpc_call *c, const void *message, size_t len, bool half)
{
	struct grpc_stream *s = c->stream;

	stream_add(s, message, len, half);
	if (s->id)
		nghttp2_session_resume_data(s->g->session, s->id);
}

void grpc_cancel(struct grpc_call *c)
{
	if (c->stream)
		stream_drop(c->stream, true);
}

bool grpc_under_way(const struct grpc_call *c)
{
	return c->stream;
}

/* ---- sending ---- */

static ssize_t stream_read_out(nghttp2_session *session, int32_t id, uint8_t *bytes, size_t most, uint32_t *flags,
                               nghttp2_data_source *, void *)
{
	struct grpc_stream *s = nghttp2_session_get_stream_user_data(session, id);

	if (!s)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	size_t n = s->out.len - s->out_sent;
	if (n > most)
		n = most;
	if (n > 0)
		memcpy(bytes, s->out.data + s->out_sent, n);
	s->out_sent += n;
	if (s->out_sent < s->out.len)
		return (ssize_t)n;
	s->out.len = s->out_sent = 0;
	if (s->half)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return n > 0 || s->half ? (ssize_t)n : NGHTTP2_ERR_DEFERRED;
}

static nghttp2_nv header(const char *name, const char *value)
{
	return (nghttp2_nv){
		.name = (uint8_t *)name, .value = (uint8_t *)value, .namelen = strlen(name), .valuelen = strlen(value)
	};
}

static bool header_is_valid(const nghttp2_nv *h)
{
	return nghttp2_check_header_name(h->name, h->namelen) && nghttp2_check_header_value(h->value, h->valuelen);
}

/* Hands the request to nghttp2, which copies the headers. Returns the stream's id; less than 0: it was refused. */
static int32_t stream_submit(struct grpc_stream *s)
{
	const nghttp2_data_provider body = { .read_callback = stream_read_out };
	struct grpc *g = s->g;
	const char *word = s->head.data;
	size_t count = 0;
	int32_t id = 0;
	nghttp2_nv *headers = mem_zero((8 + s->words) * sizeof *headers);

	headers[count++] = header(":method", "POST");
	headers[count++] = header(":scheme", g->tls ? "https" : "http");
	headers[count++] = header(":path", word);
	headers[count++] = header(":authority", g->authority);
	headers[count++] = header("te", "trailers");
	headers[count++] = header("content-type", "application/grpc");
	headers[count++] = header("user-agent", "grpc-c-lunarch/" LUNARCH_VERSION);
	for (size_t i = 1; i + 1 < s->words && id == 0; i += 2) {
		const char *name = word + strlen(word) + 1;
		word = name + strlen(name) + 1;
		headers[count] = header(name, word);
		if (!header_is_valid(&headers[count++]))
			id = NGHTTP2_ERR_HTTP_HEADER;
	}
	if (id == 0)
		id = nghttp2_submit_request(g->session, NULL, headers, count, &body, s);
	free(headers);
	return id;
}

/* Ends the calls that cannot begin: no byte of them was sent. A callback may start another call here, which then
 * waits for the next time. */
static void grpc_end_waiting(struct grpc *g)
{
	size_t count = 0;

	for (struct grpc_stream *s = g->waiting.first; s; s = s->next)
		count++;
	for (; count > 0 && g->waiting.first; count--)
		stream_fail(g->waiting.first, true, false, "the call could not begin: the connection is ending");
}

/* Begins the next call that waits, if the server allows it. false: there is none. */
static bool grpc_begin_next(struct grpc *g)
{
	struct grpc_stream *s = g->waiting.first;

	if (!s || g->open >= nghttp2_session_get_remote_settings(g->session, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS))
		return false;
	int32_t id = stream_submit(s);
	if (id < 0) {
		stream_fail(s, true, false,
		            id == NGHTTP2_ERR_HTTP_HEADER ? "the call could not begin: its metadata is no valid header"
		                                          : nghttp2_strerror(id));
		return true;
	}
	stream_unlink(s);
	s->id = id;
	stream_link(s);
	buf_fini(&s->head);
	return true;
}

static void grpc_break(struct grpc *g, enum err_code code, const char *what, const void *words, size_t len)
{
	struct buf text = { 0 };

	if (g->broken.code != ERR_NONE)
		return;
	buf_adds(&text, what);
	if (len) {
		buf_adds(&text, ": ");
		grpc_printable(&text, words, len, WORDS_MOST);
	}
	err_set(&g->broken, code, "%s", text.data);
	buf_fini(&text);
}

/* Moves what nghttp2 wants to send into `out`, and begins calls that wait. */
static void grpc_fill_out(struct grpc *g)
{
	bool may_begin = nghttp2_session_check_request_allowed(g->session);

	if (!may_begin)
		grpc_end_waiting(g);
	while (g->out.len < TAKE_MOST) {
		const uint8_t *bytes;
		ssize_t n = nghttp2_session_mem_send(g->session, &bytes);
		if (n < 0) {
			grpc_break(g, ERR_SYSTEM, nghttp2_strerror((int)n), NULL, 0);
			return;
		}
		if (n > 0)
			buf_add(&g->out, bytes, (size_t)n);
		else if (!may_begin || !grpc_begin_next(g))
			return;
	}
}

void grpc_take(struct grpc *g, struct buf *out)
{
	size_t n;

	if (g->inside)
		return;
	g->inside = true;
	do {
		grpc_fill_out(g);
		n = g->out.len;
		if (n > 0)
			buf_add(out, g->out.data, n);
		g->out.len = 0;
	} while (n > 0 && out->len < TAKE_MOST);
	g->inside = false;
}

/* ---- receiving: what nghttp2 calls ---- */

static struct grpc_stream *stream_of(nghttp2_session *session, int32_t id)
{
	return nghttp2_session_get_stream_user_data(session, id);
}

static int block_on_begin(nghttp2_session *session, const nghttp2_frame *frame, void *)
{
	struct grpc_stream *s = stream_of(session, frame->hd.stream_id);

	if (s)
		grpc_answer_block(&s->answer);
	return 0;
}

static int block_on_field(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
                          const uint8_t *value, size_t value_len, uint8_t, void *)
{
	struct grpc_stream *s = stream_of(session, frame->hd.stream_id);

	if (s && !grpc_answer_field(&s->answer, (const char *)name, name_len, (const char *)value, value_len))
		stream_fail(s, false, true, "the server's headers are longer than 64 KB");
	return 0;
}

/* The callback of a message may end the call, so the stream is looked up again after each. */
static int stream_on_body(nghttp2_session *session, uint8_t, int32_t id, const uint8_t *bytes, size_t len, void *arg)
{
	struct grpc *g = arg;
	struct grpc_stream *s;

	while (len > 0 && (s = stream_of(session, id))) {
		struct buf whole;
		struct err err = { 0 };
		if (grpc_answer_foreign(&s->answer)) {
			if (!grpc_answer_keep(&s->answer, bytes, len))
				stream_answered(s, false);
			return 0;
		}
		int n = grpc_answer_body(&s->answer, bytes, len, g->limit, &whole, &err);
		if (n < 0) {
			stream_fail(s, false, true, err.text);
			return 0;
		}
		if (whole.len)
			s->call->message(s->call, whole.data + 5, whole.len - 5);
		buf_fini(&whole);
		bytes += n;
		len -= (size_t)n;
	}
	return 0;
}

static void stream_on_reset(struct grpc_stream *s, uint32_t code)
{
	struct buf text = { 0 };

	buf_printf(&text, "the server reset the call's stream: %s", nghttp2_http2_strerror(code));
	stream_fail(s, code == NGHTTP2_REFUSED_STREAM && s->answer.http == 0, false, text.data);
	buf_fini(&text);
}

static void grpc_on_goaway(struct grpc *g, const nghttp2_goaway *frame)
{
	g->goaway = true;
	g->goaway_last = frame->last_stream_id;
	g->goaway_why.len = 0;
	buf_adds(&g->goaway_why, nghttp2_http2_strerror(frame->error_code));
	if (frame->opaque_data_len) {
		buf_adds(&g->goaway_why, ": ");
		grpc_printable(&g->goaway_why, frame->opaque_data, frame->opaque_data_len, WORDS_MOST);
	}
}

static void grpc_on_ping(struct grpc *g, const nghttp2_ping *frame)
{
	if (frame->hd.flags & NGHTTP2_FLAG_ACK && memcmp(frame->opaque_data, &g->pings, sizeof g->pings) == 0)
		g->ping_pending = false;
}

static int frame_on_come(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct grpc *g = arg;
	struct grpc_stream *s = stream_of(session, frame->hd.stream_id);

	switch ((int)frame->hd.type) {
	case NGHTTP2_SETTINGS:
		g->greeted |= !(frame->hd.flags & NGHTTP2_FLAG_ACK);
		break;
	case NGHTTP2_PING:
		grpc_on_ping(g, &frame->ping);
		break;
	case NGHTTP2_GOAWAY:
		grpc_on_goaway(g, &frame->goaway);
		break;
	case NGHTTP2_RST_STREAM:
		if (s)
			stream_on_reset(s, frame->rst_stream.error_code);
		break;
	case NGHTTP2_HEADERS:
	case NGHTTP2_DATA:
		if (s && frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
			stream_answered(s, true);
		break;
	default:
		break;
	}
	return 0;
}

/* If there was neither an answer nor a reset, GOAWAY closed the stream, or nghttp2 did, since the answer is against
 * HTTP/2. */
static int stream_on_close(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
	struct grpc *g = arg;
	struct grpc_stream *s = stream_of(session, id);
	struct buf text = { 0 };

	if (id <= g->last_sent)
		g->open--;
	if (!s)
		return 0;
	bool unseen = g->goaway && id > g->goaway_last;
	if (unseen)
		buf_printf(&text, "the server ends the connection and did not see the call (GOAWAY, %s)",
		           g->goaway_why.data);
	else
		buf_printf(&text, "the server's answer is against HTTP/2: %s", nghttp2_http2_strerror(code));
	stream_fail(s, unseen && s->answer.http == 0, false, text.data);
	buf_fini(&text);
	return 0;
}

/* ---- sending: what nghttp2 calls ---- */

static int frame_on_made(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct grpc *g = arg;

	if (frame->hd.type == NGHTTP2_HEADERS) {
		struct grpc_stream *s = stream_of(session, frame->hd.stream_id);
		if (s)
			s->sent = true;
		g->open++;
		g->last_sent = frame->hd.stream_id;
	} else if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR) {
		struct buf what = { 0 };
		buf_printf(&what, "the server broke the rules of HTTP/2 (%s)",
		           nghttp2_http2_strerror(frame->goaway.error_code));
		grpc_break(g, ERR_INVALID, what.data, frame->goaway.opaque_data, frame->goaway.opaque_data_len);
		buf_fini(&what);
	}
	return 0;
}

/* Called for a request that is too long, or that met a GOAWAY. */
static int frame_on_unmade(nghttp2_session *, const nghttp2_frame *frame, int code, void *arg)
{
	struct grpc *g = arg;
	struct grpc_stream *s = g->active.first;

	while (s && (frame->hd.type != NGHTTP2_HEADERS || s->id != frame->hd.stream_id))
		s = s->next;
	if (s)
		stream_fail(s, true, false, nghttp2_strerror(code));
	return 0;
}

/* ---- the connection ---- */

static nghttp2_session *session_new(struct grpc *g)
{
	static const nghttp2_settings_entry settings[] = {
		{ NGHTTP2_SETTINGS_ENABLE_PUSH, 0 },
		{ NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW_STREAM },
		{ NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HEADERS_MOST },
	};
	nghttp2_session *session = NULL;
	nghttp2_session_callbacks *calls = NULL;
	nghttp2_option *option = NULL;

	if (nghttp2_session_callbacks_new(&calls) != 0 || nghttp2_option_new(&option) != 0)
		mem_end();
	nghttp2_session_callbacks_set_on_begin_headers_callback(calls, block_on_begin);
	nghttp2_session_callbacks_set_on_header_callback(calls, block_on_field);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(calls, stream_on_body);
	nghttp2_session_callbacks_set_on_frame_recv_callback(calls, frame_on_come);
	nghttp2_session_callbacks_set_on_stream_close_callback(calls, stream_on_close);
	nghttp2_session_callbacks_set_before_frame_send_callback(calls, frame_on_made);
	nghttp2_session_callbacks_set_on_frame_not_send_callback(calls, frame_on_unmade);
	/* What a hostile server could make grow: streams that it promises or that have ended. nghttp2 itself limits the
	 * acknowledgements that wait, and the CONTINUATION frames of a header block. */
	nghttp2_option_set_max_reserved_remote_streams(option, 0);
	nghttp2_option_set_no_closed_streams(option, 1);
	if (nghttp2_session_client_new2(&session, calls, g, option) != 0)
		mem_end();
	nghttp2_session_callbacks_del(calls);
	nghttp2_option_del(option);
	nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings, sizeof settings / sizeof *settings);
	nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0, WINDOW_SESSION);
	return session;
}

struct grpc *grpc_new(const char *authority, bool tls, size_t limit)
{
	struct grpc *g = mem_zero(sizeof *g);

	g->authority = mem_dup(authority);
	g->tls = tls;
	g->limit = limit;
	g->session = session_new(g);
	return g;
}

void grpc_free(struct grpc *g)
{
	if (!g)
		return;
	const char *why = g->broken.code != ERR_NONE ? g->broken.text : "the connection ended before the answer did";
	g->inside = true;
	while (g->active.first)
		stream_fail(g->active.first, !g->active.first->sent, false, why);
	while (g->waiting.first)
		stream_fail(g->waiting.first, true, false, why);
	nghttp2_session_del(g->session);
	buf_fini(&g->out);
	buf_fini(&g->first);
	buf_fini(&g->goaway_why);
	free(g->authority);
	free(g);
}

/* An answer in HTTP/1 has no frames, and nghttp2 would only call it a frame that is too large. A server's first frame
 * is SETTINGS (RFC 9113, 3.4). */
static void grpc_check_first(struct grpc *g)
{
	const unsigned char *p = (const unsigned char *)g->first.data;

	g->checked = true;
	if (p[0] == 0x15 && p[1] == 3) /* an alert */
		grpc_break(g, ERR_INVALID, "the server speaks no HTTP/2, but TLS", NULL, 0);
	else if (p[3] != NGHTTP2_SETTINGS || p[4] != NGHTTP2_FLAG_NONE)
		grpc_break(g, ERR_INVALID, "the server speaks no HTTP/2: its answer begins with", p,
		           strcspn(g->first.data, "\r\n"));
}

static void grpc_receive(struct grpc *g, const void *bytes, size_t len)
{
	ssize_t n = nghttp2_session_mem_recv(g->session, bytes, len);
	const char *why = n < 0 ? nghttp2_strerror((int)n) : "";

	if (n < 0)
		grpc_break(g, ERR_INVALID, "the server broke the rules of HTTP/2", why, strlen(why));
	else if (nghttp2_session_get_outbound_queue_size(g->session) > QUEUE_MOST)
		grpc_break(g, ERR_INVALID, "the server asks for more answers than it takes", NULL, 0);
	grpc_fill_out(g);
}

int grpc_feed(struct grpc *g, const void *bytes, size_t len, struct err *err)
{
	g->inside = true;
	if (!g->checked) {
		buf_add(&g->first, bytes, len);
		bytes = g->first.data;
		len = g->first.len;
		if (len >= FRAME_HEADER)
			grpc_check_first(g);
	}
	if (g->checked && g->broken.code == ERR_NONE) {
		grpc_receive(g, bytes, len);
		buf_fini(&g->first);
	}
	g->inside = false;
	if (g->broken.code == ERR_NONE)
		return 0;
	*err = g->broken;
	return -1;
}

void grpc_ping(struct grpc *g)
{
	if (g->ping_pending)
		return;
	g->ping_pending = true;
	g->pings++;
	nghttp2_submit_ping(g->session, NGHTTP2_FLAG_NONE, (const uint8_t *)&g->pings);
}

bool grpc_ping_pending(const struct grpc *g)
{
	return g->ping_pending;
}

bool grpc_greeted(const struct grpc *g)
{
	return g->greeted;
}

bool grpc_idle(const struct grpc *g)
{
	return !g->waiting.first && !g->active.first;
}

bool grpc_going(const struct grpc *g, const char **why)
{
	if (why)
		*why = g->goaway ? g->goaway_why.data : NULL;
	return g->goaway || !nghttp2_session_check_request_allowed(g->session);
}

void grpc_libraries(struct buf *out)
{
	buf_printf(out, "nghttp2/%s", nghttp2_version(0)->version_str);
}
