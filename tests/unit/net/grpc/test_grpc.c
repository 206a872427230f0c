/* gRPC against bytes: a server's frames are put together here, in every form that is allowed and in many that are not,
 * and cut at every place. What a call says at its end must be true: OK only if the trailers said so, unseen only if the
 * server surely did not see it. */
#include "net/grpc/grpc.h"

#include "base/mem.h"
#include "tap.h"

#include <malloc.h>
#include <nghttp2/nghttp2.h>
#include <stdlib.h>
#include <unistd.h>

#define LIMIT (2 << 20)
#define SEED 20261122u

/* ---- a call that keeps what it was told ---- */

struct witness {
	struct grpc_call call; /* first */
	struct grpc *g;
	struct buf got; /* "MESSAGE|" for each */
	int messages, ends;
	struct grpc_end end;
	char text[2000];
	bool cancels, restarts, takes; /* in its callbacks */
	struct witness *other;         /* cancelled in its callbacks; NULL: none */
};

static void witness_hurt(struct witness *w)
{
	struct buf out = { 0 };

	if (w->takes) {
		grpc_take(w->g, &out);
		w->takes = out.len == 0; /* nothing must have come */
	}
	buf_fini(&out);
	if (w->other)
		grpc_cancel(&w->other->call);
	if (w->cancels)
		grpc_cancel(&w->call);
}

static void witness_on_message(struct grpc_call *c, const void *data, size_t len)
{
	struct witness *w = (struct witness *)c;

	w->messages++;
	buf_add(&w->got, data, len);
	buf_adds(&w->got, "|");
	witness_hurt(w);
}

static void witness_on_end(struct grpc_call *c, const struct grpc_end *end)
{
	struct witness *w = (struct witness *)c;

	w->ends++;
	w->end = *end;
	snprintf(w->text, sizeof w->text, "%s", end->text);
	witness_hurt(w);
	if (w->restarts) {
		w->restarts = false;
		grpc_start(w->g, c, "/again", NULL, "x", 1, true);
	}
}

#define WITNESS(g_)                                                                           \
	{                                                                                     \
		.call = { .message = witness_on_message, .ended = witness_on_end }, .g = (g_) \
	}

static void witness_fini(struct witness *w)
{
	grpc_cancel(&w->call);
	buf_fini(&w->got);
}

static const char *got(const struct witness *w)
{
	return w->got.data ? w->got.data : "";
}

/* ---- a server's bytes ---- */

static void frame(struct buf *b, int type, int flags, int32_t id, const void *payload, size_t len)
{
	unsigned char head[9] = { (unsigned char)(len >> 16), (unsigned char)(len >> 8), (unsigned char)len,
		                  (unsigned char)type,        (unsigned char)flags,      (unsigned char)(id >> 24),
		                  (unsigned char)(id >> 16),  (unsigned char)(id >> 8),  (unsigned char)id };

	buf_add(b, head, sizeof head);
	if (len)
		buf_add(b, payload, len);
}

static void number(struct buf *b, uint32_t n)
{
	unsigned char bytes[4] = { (unsigned char)(n >> 24), (unsigned char)(n >> 16), (unsigned char)(n >> 8),
		                   (unsigned char)n };

	buf_add(b, bytes, sizeof bytes);
}

/* pairs: "name", "value", ..., NULL. Literals without an index (RFC 7541, 6.2.2): no state is kept. */
static void header_block(struct buf *b, const char *const *pairs)
{
	for (; *pairs; pairs += 2) {
		buf_add(b, "\0", 1);
		for (int i = 0; i < 2; i++) {
			size_t len = strlen(pairs[i]);
			unsigned char size[4] = { (unsigned char)len };
			size_t n = 1;
			if (len >= 127) { /* 5.1: an integer that is longer than its prefix */
				size[0] = 127;
				for (len -= 127; len >= 128; len >>= 7)
					size[n++] = (unsigned char)(len % 128 + 128);
				size[n++] = (unsigned char)len;
			}
			buf_add(b, size, n);
			buf_adds(b, pairs[i]);
		}
	}
}

#define PAIRS(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define GOOD_HEADERS PAIRS(":status", "200", "content-type", "application/grpc")

static void headers(struct buf *b, int32_t id, bool end, const char *const *pairs)
{
	struct buf block = { 0 };

	header_block(&block, pairs);
	frame(b, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | (end ? NGHTTP2_FLAG_END_STREAM : 0), id, block.data,
	      block.len);
	buf_fini(&block);
}

static void message(struct buf *b, int32_t id, const char *text)
{
	struct buf data = { 0 };

	buf_add(&data, "\0", 1);
	number(&data, (uint32_t)strlen(text));
	buf_adds(&data, text);
	frame(b, NGHTTP2_DATA, 0, id, data.data, data.len);
	buf_fini(&data);
}

static void settings(struct buf *b, int key, uint32_t value)
{
	struct buf s = { 0 };

	if (key) {
		unsigned char id[2] = { 0, (unsigned char)key };
		buf_add(&s, id, 2);
		number(&s, value);
	}
	frame(b, NGHTTP2_SETTINGS, 0, 0, s.data, s.len);
	buf_fini(&s);
}

static void goaway(struct buf *b, int32_t last, uint32_t code, const char *why)
{
	struct buf p = { 0 };

	number(&p, (uint32_t)last);
	number(&p, code);
	buf_adds(&p, why);
	frame(b, NGHTTP2_GOAWAY, 0, 0, p.data, p.len);
	buf_fini(&p);
}

static void reset(struct buf *b, int32_t id, uint32_t code)
{
	struct buf p = { 0 };

	number(&p, code);
	frame(b, NGHTTP2_RST_STREAM, 0, id, p.data, p.len);
	buf_fini(&p);
}

/* A good answer to stream `id`: two messages, one of them cut over two frames, and trailers. */
static void good_answer(struct buf *b, int32_t id, const char *status)
{
	headers(b, id, false, GOOD_HEADERS);
	message(b, id, "first");
	frame(b, NGHTTP2_DATA, 0, id, "\0\0\0", 3);
	frame(b, NGHTTP2_DATA, 0, id, "\0\6sec", 5);
	frame(b, NGHTTP2_DATA, 0, id, "ond", 3);
	headers(b, id, true, PAIRS("grpc-status", status, "grpc-message", "a%20word"));
}

/* ---- a connection ---- */

struct client {
	struct grpc *g;
	struct witness w;
	struct buf up, down;
	struct err err;
};

static void client_take(struct client *c)
{
	grpc_take(c->g, &c->up);
}

/* A connection with one call, whose request has been taken. */
static void client_init(struct client *c)
{
	*c = (struct client){ .g = grpc_new("host:2379", false, LIMIT) };
	c->w = (struct witness)WITNESS(c->g);
	grpc_start(c->g, &c->w.call, "/pkg.Service/Method", NULL, "question", 8, true);
	client_take(c);
	settings(&c->down, 0, 0);
}

static void client_fini(struct client *c)
{
	grpc_free(c->g);
	c->w.call.stream = NULL;
	witness_fini(&c->w);
	buf_fini(&c->up);
	buf_fini(&c->down);
}

static int client_feed(struct client *c)
{
	int rc = grpc_feed(c->g, c->down.data, c->down.len, &c->err);

	c->down.len = 0;
	grpc_take(c->g, &c->up);
	return rc;
}

/* The next frame at *at of what the client has sent: its type and stream; -1: there is none. */
static int frame_at(const struct buf *b, size_t *at, int32_t *id, uint32_t *first)
{
	const unsigned char *p = (const unsigned char *)b->data + *at;

	if (*at == 0 && b->len >= 24 && memcmp(p, "PRI ", 4) == 0)
		p += 24, *at += 24;
	if (*at + 9 > b->len)
		return -1;
	*at += 9 + (size_t)(p[0] << 16 | p[1] << 8 | p[2]);
	*id = p[5] << 24 | p[6] << 16 | p[7] << 8 | p[8];
	*first = *at >= 4 ? (uint32_t)p[9] << 24 | (uint32_t)p[10] << 16 | (uint32_t)p[11] << 8 | p[12] : 0;
	return p[3];
}

static int count_frames(const struct buf *b, int type)
{
	size_t at = 0;
	int32_t id;
	uint32_t first;
	int n = 0;

	for (int got_type; (got_type = frame_at(b, &at, &id, &first)) >= 0;)
		n += got_type == type;
	return n;
}

/* The code with which the client has reset the stream; -1: it has not. */
static int64_t reset_code(const struct buf *b, int32_t stream)
{
	size_t at = 0;
	int32_t id;
	uint32_t first;

	for (int type; (type = frame_at(b, &at, &id, &first)) >= 0;)
		if (type == NGHTTP2_RST_STREAM && id == stream)
			return first;
	return -1;
}

/* ---- the request ---- */

static void request_headers(const struct buf *b, struct buf *text)
{
	nghttp2_hd_inflater *inflater;
	const unsigned char *p = (const unsigned char *)b->data + 24;

	nghttp2_hd_inflate_new(&inflater);
	while (p[3] != NGHTTP2_HEADERS)
		p += 9 + (p[0] << 16 | p[1] << 8 | p[2]);
	const unsigned char *in = p + 9, *end = in + (p[0] << 16 | p[1] << 8 | p[2]);
	for (int flags = 0; in < end && !(flags & NGHTTP2_HD_INFLATE_FINAL);) {
		nghttp2_nv nv;
		ssize_t n = nghttp2_hd_inflate_hd2(inflater, &nv, &flags, in, (size_t)(end - in), 1);
		if (n < 0)
			break;
		in += n;
		if (flags & NGHTTP2_HD_INFLATE_EMIT)
			buf_printf(text, "%s=%s\n", (const char *)nv.name, (const char *)nv.value);
	}
	nghttp2_hd_inflate_del(inflater);
}

static void test_request(void)
{
	struct grpc *g = grpc_new("host:2379", true, LIMIT);
	struct witness w = WITNESS(g);
	struct buf up = { 0 }, text = { 0 };

	grpc_start(g, &w.call, "/pkg.Service/Method", PAIRS("token", "secret.1"), "question", 8, true);
	ok(grpc_under_way(&w.call) && !grpc_idle(g), "a call that has begun is under way");
	grpc_take(g, &up);
	request_headers(&up, &text);
	char *agent = strstr(text.data, "user-agent=grpc-c-lunarch/");
	ok(agent != NULL, "the user-agent has gRPC's form");
	if (agent)
		*strchr(agent, '/') = '\0';
	is_str(text.data,
	       ":method=POST\n:scheme=https\n:path=/pkg.Service/Method\n:authority=host:2379\nte=trailers\n"
	       "content-type=application/grpc\nuser-agent=grpc-c-lunarch",
	       "a request has the headers that the protocol demands");
	ok(agent && strstr(agent + strlen(agent) + 1, "\ntoken=secret.1\n"), "and its metadata after them");
	ok(up.len > 22 && memcmp(up.data + up.len - 22, "\0\0\r\0\1\0\0\0\1\0\0\0\0\x8question", 22) == 0,
	   "its message has a prefix, and ends the stream");
	buf_fini(&text);
	buf_fini(&up);
	grpc_cancel(&w.call);
	ok(!grpc_under_way(&w.call) && grpc_idle(g) && w.ends == 0, "a cancelled call ends without a callback");
	grpc_take(g, &up);
	is_int(reset_code(&up, 1), NGHTTP2_CANCEL, "and the server is told");
	buf_fini(&up);
	grpc_start(g, &w.call, "/x", PAIRS("token", "two\nlines"), "", 0, true);
	grpc_take(g, &up);
	ok(w.ends == 1 && w.end.unseen && w.end.status == -1 && strstr(w.text, "metadata"),
	   "metadata that is no header is refused: %s", w.text);
	grpc_free(g);
	buf_fini(&up);
}

/* ---- every place to cut ---- */

static void good_bytes(struct buf *b, const char *status)
{
	settings(b, 0, 0);
	frame(b, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0, NULL, 0);
	frame(b, NGHTTP2_PING, 0, 0, "12345678", 8);
	good_answer(b, 1, status);
}

/* Feeds pieces whose lengths next() gives. Whether all came as it was sent. */
static bool comes_whole(const struct buf *bytes, size_t (*next)(void *arg), void *arg)
{
	struct client c;
	size_t at = 0;
	int rc = 0;

	client_init(&c);
	while (at < bytes->len && rc == 0) {
		size_t n = next(arg);
		if (n > bytes->len - at)
			n = bytes->len - at;
		/* A copy of its own, so that a sanitizer sees a byte too many being read. */
		char *piece = mem_dupn(bytes->data + at, n);
		rc = grpc_feed(c.g, piece, n, &c.err);
		free(piece);
		at += n;
	}
	bool good = rc == 0 && c.w.ends == 1 && c.w.end.status == 0 && c.w.end.replied && !c.w.end.unseen &&
	            strcmp(got(&c.w), "first|second|") == 0 && strcmp(c.w.text, "a word") == 0 && grpc_idle(c.g);
	if (!good)
		printf("# rc %d, %d ends, status %d, '%s', '%s'\n", rc, c.w.ends, c.w.end.status, got(&c.w), c.w.text);
	client_fini(&c);
	return good;
}

static size_t cut_once(void *arg)
{
	size_t *cut = arg, n = *cut;

	*cut = 1 << 20;
	return n;
}

static size_t cut_bytes(void *arg)
{
	(void)arg;
	return 1;
}

static size_t cut_randomly(void *arg)
{
	return (size_t)rand_r(arg) % 12;
}

static void test_cuts(void)
{
	struct buf bytes = { 0 };
	size_t bad = 0;

	good_bytes(&bytes, "0");
	for (size_t at = 0; at <= bytes.len; at++) {
		size_t cut = at;
		bad += !comes_whole(&bytes, cut_once, &cut);
	}
	ok(bad == 0, "an answer comes whole, wherever it is cut (%zu places)", bytes.len + 1);
	ok(comes_whole(&bytes, cut_bytes, NULL), "also byte by byte");
	unsigned seed = SEED;
	for (int i = 0; i < 500; i++)
		bad += !comes_whole(&bytes, cut_randomly, &seed);
	ok(bad == 0, "also in 500 random fragmentations");
	buf_fini(&bytes);
}

/* ---- statuses ---- */

static const struct status_case {
	const char *what;
	const char *http, *type; /* of headers; NULL: trailers only */
	const char *body;
	const char *trailers[7];
	int status;
	bool replied;
	const char *text;
} statuses[] = {
	{ "a status that is not 0",
	  "200",
	  "application/grpc+proto",
	  NULL,
	  { "grpc-status", "5" },
	  5,
	  true,
	  "NOT_FOUND" },
	{ "its message is percent-decoded",
	  "200",
	  "application/grpc",
	  NULL,
	  { "grpc-status", "14", "grpc-message", "100%25 %C3%A9%2" },
	  14,
	  true,
	  "100% \xc3\xa9%2" },
	{ "and made printable",
	  "200",
	  "application/grpc;x=y",
	  NULL,
	  { "grpc-status", "14", "grpc-message", "a%0Ab%1B[31m" },
	  14,
	  true,
	  "a\\nb\\x1b[31m" },
	{ "also where it is no UTF-8",
	  "200",
	  "application/grpc",
	  NULL,
	  { "grpc-status", "2", "grpc-message", "a%ffb" },
	  2,
	  true,
	  "a\\xffb" },
	{ "a code that gRPC does not have",
	  "200",
	  "application/grpc",
	  NULL,
	  { "grpc-status", "17" },
	  2,
	  true,
	  "UNKNOWN" },
	{ "a status that is no number", "200", "application/grpc", NULL, { "grpc-status", "ok" }, -1, false, NULL },
	{ "an empty status", "200", "application/grpc", NULL, { "grpc-status", "" }, -1, false, NULL },
	{ "a negative status", "200", "application/grpc", NULL, { "grpc-status", "-0" }, -1, false, NULL },
	{ "a status with a zero before it", "200", "application/grpc", NULL, { "grpc-status", "00" }, -1, false, NULL },
	{ "two statuses",
	  "200",
	  "application/grpc",
	  NULL,
	  { "grpc-status", "14", "grpc-status", "0" },
	  -1,
	  false,
	  NULL },
	{ "no status",
	  "200",
	  "application/grpc",
	  NULL,
	  { "x", "y" },
	  -1,
	  false,
	  "the server ended its answer without a status" },
	{ "a status 0 within a message",
	  "200",
	  "application/grpc",
	  "\0\0\0\0\2x",
	  { "grpc-status", "0" },
	  -1,
	  false,
	  NULL },
	{ "trailers only",
	  NULL,
	  "application/grpc",
	  NULL,
	  { ":status", "200", "content-type", "application/grpc", "grpc-status", "16" },
	  16,
	  true,
	  NULL },
	{ "trailers only, status 0",
	  NULL,
	  NULL,
	  NULL,
	  { ":status", "200", "content-type", "application/grpc", "grpc-status", "0" },
	  0,
	  true,
	  "" },
	{ "trailers only of an HTTP error", NULL, NULL, NULL, { ":status", "503", "grpc-status", "8" }, 8, true, NULL },
	{ "status 0 of an HTTP error",
	  NULL,
	  NULL,
	  NULL,
	  { ":status", "503", "content-type", "application/grpc", "grpc-status", "0" },
	  14,
	  false,
	  NULL },
	{ "status 0 of another type",
	  NULL,
	  NULL,
	  NULL,
	  { ":status", "200", "content-type", "text/html", "grpc-status", "0" },
	  -1,
	  false,
	  NULL },
	{ "status 0 without a type", NULL, NULL, NULL, { ":status", "200", "grpc-status", "0" }, -1, false, NULL },
	{ "HTTP 400", "400", "text/plain", NULL, { "x", "y" }, 13, false, NULL },
	{ "HTTP 401", "401", "text/plain", NULL, { "x", "y" }, 16, false, NULL },
	{ "HTTP 403", "403", "text/plain", NULL, { "x", "y" }, 7, false, NULL },
	{ "HTTP 404 says what came",
	  "404",
	  "text/plain",
	  "no such\npage",
	  { "x", "y" },
	  12,
	  false,
	  "HTTP status 404 instead of an answer in gRPC: no such\\npage" },
	{ "HTTP 429", "429", "text/plain", NULL, { "x", "y" }, 14, false, NULL },
	{ "HTTP 502", "502", "text/plain", NULL, { "x", "y" }, 14, false, NULL },
	{ "HTTP 503", "503", "application/grpc", NULL, { "x", "y" }, 14, false, NULL },
	{ "HTTP 504", "504", "text/plain", NULL, { "x", "y" }, 14, false, NULL },
	{ "HTTP 500", "500", "text/plain", NULL, { "x", "y" }, 2, false, NULL },
	{ "HTTP 302", "302", "text/plain", NULL, { "x", "y" }, 2, false, NULL },
	{ "another content-type",
	  "200",
	  "text/html",
	  "<html>",
	  { "x", "y" },
	  -1,
	  false,
	  "content-type \"text/html\" instead of application/grpc: <html>" },
	{ "a type that only begins so", "200", "application/grpc-web", NULL, { "grpc-status", "0" }, -1, false, NULL },
};

static void test_statuses(void)
{
	for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
		const struct status_case *s = &statuses[i];
		struct client c;
		client_init(&c);
		if (s->http)
			headers(&c.down, 1, false, PAIRS(":status", s->http, "content-type", s->type));
		if (s->body)
			frame(&c.down, NGHTTP2_DATA, 0, 1, s->body, s->body[0] ? strlen(s->body) : 6);
		headers(&c.down, 1, true, s->trailers);
		int rc = client_feed(&c);
		bool good = rc == 0 && c.w.ends == 1 && c.w.end.status == s->status && c.w.end.replied == s->replied &&
		            !c.w.end.unseen && (!s->text || strcmp(c.w.text, s->text) == 0);
		if (!ok(good, "%s: %d%s", s->what, s->status, s->replied ? " from the server" : ""))
			printf("# rc %d, %d ends, status %d, replied %d, '%s'\n", rc, c.w.ends, c.w.end.status,
			       c.w.end.replied, c.w.text);
		client_fini(&c);
	}
}

/* A body of a foreign answer that does not end. */
static void test_foreign_body(void)
{
	struct client c;
	char page[1000];

	memset(page, 'a', sizeof page);
	client_init(&c);
	headers(&c.down, 1, false, PAIRS(":status", "502", "content-type", "text/html"));
	frame(&c.down, NGHTTP2_DATA, 0, 1, page, sizeof page);
	client_feed(&c);
	ok(c.w.ends == 1 && c.w.end.status == 14 && strlen(c.w.text) < 300, "a foreign body is not awaited to its end");
	is_int(reset_code(&c.up, 1), NGHTTP2_CANCEL, "and the server need not send the rest");
	client_fini(&c);
}

/* ---- messages that are refused ---- */

static void refuse(const char *prefix, const char *words, const char *sentence)
{
	struct client c;

	client_init(&c);
	headers(&c.down, 1, false, GOOD_HEADERS);
	frame(&c.down, NGHTTP2_DATA, 0, 1, prefix, 5);
	headers(&c.down, 1, true, PAIRS("grpc-status", "0"));
	client_feed(&c);
	ok(c.w.ends == 1 && c.w.end.status == -1 && c.w.messages == 0 && strstr(c.w.text, words), "%s: %s", sentence,
	   c.w.text);
	client_fini(&c);
}

static void test_refused_messages(void)
{
	refuse("\1\0\0\0", "compressed", "a compressed message ends its call");
	refuse("\7\0\0\0", "byte 7", "so does one with an unknown flag");
	refuse("\0\0\x20\0\1", "2097153 bytes", "and one that is too long, before it has come");
	struct client c;
	client_init(&c);
	headers(&c.down, 1, false, GOOD_HEADERS);
	message(&c.down, 1, "");
	headers(&c.down, 1, true, PAIRS("grpc-status", "0"));
	client_feed(&c);
	ok(c.w.end.status == 0 && strcmp(got(&c.w), "|") == 0, "an empty message is one");
	client_fini(&c);
}

/* ---- unseen ---- */

static void test_unseen(void)
{
	static const struct {
		uint32_t code;
		bool unseen;
	} resets[] = { { NGHTTP2_NO_ERROR, false },       { NGHTTP2_PROTOCOL_ERROR, false },
		       { NGHTTP2_INTERNAL_ERROR, false }, { NGHTTP2_REFUSED_STREAM, true },
		       { NGHTTP2_CANCEL, false },         { NGHTTP2_ENHANCE_YOUR_CALM, false } };
	struct client c;

	for (size_t i = 0; i < sizeof resets / sizeof *resets; i++) {
		client_init(&c);
		reset(&c.down, 1, resets[i].code);
		client_feed(&c);
		ok(c.w.ends == 1 && c.w.end.status == -1 && !c.w.end.replied && c.w.end.unseen == resets[i].unseen,
		   "a stream that was reset with %s: %s", nghttp2_http2_strerror(resets[i].code),
		   resets[i].unseen ? "unseen" : "perhaps seen");
		client_fini(&c);
	}
	client_init(&c);
	headers(&c.down, 1, false, GOOD_HEADERS);
	reset(&c.down, 1, NGHTTP2_REFUSED_STREAM);
	client_feed(&c);
	ok(c.w.ends == 1 && !c.w.end.unseen, "a stream that was refused after an answer had begun: perhaps seen");
	client_fini(&c);

	client_init(&c);
	goaway(&c.down, 0, NGHTTP2_NO_ERROR, "");
	client_feed(&c);
	ok(c.w.ends == 1 && c.w.end.unseen && c.w.end.status == -1, "a stream above the last one of GOAWAY: unseen");
	client_fini(&c);

	client_init(&c);
	goaway(&c.down, 1, NGHTTP2_ENHANCE_YOUR_CALM, "too_many_pings");
	is_int(client_feed(&c), 0, "after GOAWAY the connection is of use");
	const char *why = NULL;
	ok(c.w.ends == 0 && grpc_going(c.g, &why), "a stream that GOAWAY does not exclude goes on");
	is_str(why, "ENHANCE_YOUR_CALM: too_many_pings", "GOAWAY's reason is kept");
	struct witness late = WITNESS(c.g);
	grpc_start(c.g, &late.call, "/late", NULL, "", 0, true);
	ok(late.ends == 0, "a call that begins on a connection that is ending is not told from inside");
	c.up.len = 0;
	client_take(&c);
	ok(late.ends == 1 && late.end.unseen && count_frames(&c.up, NGHTTP2_HEADERS) == 0,
	   "but ends with the next step, unseen and unsent");
	good_answer(&c.down, 1, "0");
	client_feed(&c);
	ok(c.w.ends == 1 && c.w.end.status == 0 && c.w.end.replied, "and what was under way may still succeed");
	client_fini(&c);
	witness_fini(&late);

	client_init(&c);
	goaway(&c.down, 1, NGHTTP2_NO_ERROR, "");
	client_feed(&c);
	struct grpc *g = c.g;
	c.g = NULL;
	grpc_free(g);
	ok(c.w.ends == 1 && !c.w.end.unseen, "a stream that GOAWAY includes, and the connection ends: perhaps seen");
	client_fini(&c);

	client_init(&c);
	goaway(&c.down, 1, NGHTTP2_NO_ERROR, "");
	headers(&c.down, 1, false, PAIRS("content-type", "application/grpc"));
	client_feed(&c);
	ok(c.w.ends == 1 && !c.w.end.unseen, "one that GOAWAY includes, and whose answer is broken: perhaps seen");
	client_fini(&c);

	client_init(&c);
	goaway(&c.down, INT32_MAX, NGHTTP2_NO_ERROR, "");
	client_feed(&c);
	ok(c.w.ends == 0 && grpc_going(c.g, NULL), "a first GOAWAY that excludes no stream ends none");
	goaway(&c.down, 0, NGHTTP2_NO_ERROR, "max_age");
	client_feed(&c);
	ok(c.w.ends == 1 && c.w.end.unseen, "the second one does");
	client_fini(&c);

	client_init(&c);
	headers(&c.down, 1, false, GOOD_HEADERS);
	goaway(&c.down, 0, NGHTTP2_NO_ERROR, "");
	client_feed(&c);
	ok(c.w.ends == 1 && !c.w.end.unseen, "GOAWAY below a stream whose answer had begun: perhaps seen");
	client_fini(&c);
}

static void test_connection_ends(void)
{
	struct client c;

	client_init(&c);
	headers(&c.down, 1, false, PAIRS(":status", "200", "content-type", "application/grpc", "grpc-status", "0"));
	headers(&c.down, 1, true, PAIRS("x", "y"));
	client_feed(&c);
	ok(c.w.ends == 1 && c.w.end.status == -1, "a status before the end is none");
	client_fini(&c);
	struct grpc *g = grpc_new("h", false, LIMIT);
	struct witness w = WITNESS(g);

	grpc_start(g, &w.call, "/x", NULL, "", 0, true);
	grpc_free(g);
	ok(w.ends == 1 && w.end.unseen && w.end.status == -1, "a call that was never taken: unseen");
	client_init(&c);
	g = c.g;
	c.g = NULL;
	grpc_free(g);
	ok(c.w.ends == 1 && !c.w.end.unseen && c.w.end.status == -1, "one whose request was taken: perhaps seen");
	client_fini(&c);
	client_init(&c);
	headers(&c.down, 1, false, GOOD_HEADERS);
	message(&c.down, 1, "answer");
	client_feed(&c);
	g = c.g;
	c.g = NULL;
	grpc_free(g);
	ok(c.w.ends == 1 && c.w.messages == 1 && c.w.end.status == -1 && !c.w.end.unseen,
	   "a server that goes away between headers and trailers: no status");
	client_fini(&c);
	client_init(&c);
	headers(&c.down, 1, false, GOOD_HEADERS);
	frame(&c.down, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 1, NULL, 0);
	client_feed(&c);
	ok(c.w.ends == 1 && c.w.end.status == -1 && !c.w.end.replied,
	   "an answer that ends without trailers: no status");
	client_fini(&c);
}

/* ---- many calls ---- */

static int streams_of(const struct buf *up, int32_t *ids, int most)
{
	size_t at = 0;
	int32_t id;
	uint32_t first;
	int n = 0;

	for (int type; (type = frame_at(up, &at, &id, &first)) >= 0;)
		if (type == NGHTTP2_HEADERS && n < most)
			ids[n++] = id;
	return n;
}

static void test_stream_limit(void)
{
	struct grpc *g = grpc_new("h", false, LIMIT);
	struct witness w[6];
	struct client c = { .g = g };
	int32_t ids[6];

	client_take(&c);
	settings(&c.down, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 2);
	client_feed(&c);
	ok(grpc_greeted(g), "the server's SETTINGS greet");
	for (int i = 0; i < 6; i++) {
		w[i] = (struct witness)WITNESS(g);
		grpc_start(g, &w[i].call, "/x", NULL, "", 0, true);
	}
	c.up.len = 0;
	client_take(&c);
	is_int(streams_of(&c.up, ids, 6), 2, "no more calls begin than the server allows");
	grpc_cancel(&w[2].call); /* it waits */
	good_answer(&c.down, ids[1], "0");
	c.up.len = 0;
	client_feed(&c);
	ok(w[1].ends == 1 && streams_of(&c.up, ids + 2, 1) == 1, "when one ends, the next one begins");
	good_answer(&c.down, ids[2], "0");
	client_feed(&c);
	ok(w[3].ends == 1 && w[2].ends == 0, "in order, without the one that was cancelled");
	c.up.len = 0;
	grpc_cancel(&w[0].call);
	client_take(&c);
	is_int(streams_of(&c.up, ids + 3, 3), 1, "a cancelled call makes room, too");
	settings(&c.down, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 0);
	good_answer(&c.down, 7, "0");
	client_feed(&c);
	struct witness late = WITNESS(g);
	grpc_start(g, &late.call, "/x", NULL, "", 0, true);
	c.up.len = 0;
	client_take(&c);
	is_int(streams_of(&c.up, ids, 6), 0, "a server that allows none gets none");
	goaway(&c.down, INT32_MAX, NGHTTP2_NO_ERROR, "");
	client_feed(&c);
	ok(late.ends == 1 && late.end.unseen, "what waits when GOAWAY comes: unseen");
	grpc_free(g);
	for (int i = 0; i < 6; i++)
		buf_fini(&w[i].got);
	buf_fini(&c.up);
	buf_fini(&c.down);
}

static void test_ids_used_up(void)
{
	struct grpc *g = grpc_new("h", false, LIMIT);
	struct witness w = WITNESS(g), late = WITNESS(g);
	struct client c = { .g = g };

	/* The session is the first member of struct grpc; two billion calls would take too long here. */
	nghttp2_session_set_next_stream_id(*(nghttp2_session **)g, INT32_MAX);
	ok(!grpc_going(g, NULL), "the last stream id can be used");
	grpc_start(g, &w.call, "/x", NULL, "", 0, true);
	client_take(&c);
	settings(&c.down, 0, 0);
	const char *why = "?";
	ok(grpc_going(g, &why) && !why, "after it no call can begin, and the server did not say so");
	grpc_start(g, &late.call, "/x", NULL, "", 0, true);
	client_take(&c);
	ok(late.ends == 1 && late.end.unseen, "one that does ends unseen");
	good_answer(&c.down, INT32_MAX, "0");
	client_feed(&c);
	ok(w.ends == 1 && w.end.status == 0, "and the last one ends well");
	grpc_free(g);
	buf_fini(&w.got);
	buf_fini(&c.up);
	buf_fini(&c.down);
}

static void test_callbacks(void)
{
	struct client c;
	struct witness other;

	client_init(&c);
	other = (struct witness)WITNESS(c.g);
	grpc_start(c.g, &other.call, "/x", NULL, "", 0, true);
	client_take(&c);
	c.w.cancels = c.w.takes = true;
	c.w.other = &other;
	good_answer(&c.down, 1, "0");
	good_answer(&c.down, 3, "0");
	client_feed(&c);
	ok(c.w.takes, "grpc_take within a callback does nothing");
	ok(c.w.messages == 1 && c.w.ends == 0, "a call that is cancelled in its message's callback hears no more");
	ok(other.messages == 0 && other.ends == 0 && grpc_idle(c.g), "nor does another one that is cancelled there");
	client_fini(&c);

	client_init(&c);
	c.w.cancels = true;
	headers(&c.down, 1, false, GOOD_HEADERS);
	frame(&c.down, NGHTTP2_DATA, 0, 1, "\0\0\0\0\1a\0\0\0\0\1b", 12);
	client_feed(&c);
	ok(c.w.messages == 1 && c.w.ends == 0, "also if the next message is in the same frame");
	client_fini(&c);

	client_init(&c);
	c.w.restarts = true;
	good_answer(&c.down, 1, "0");
	c.up.len = 0;
	client_feed(&c);
	ok(c.w.ends == 1 && grpc_under_way(&c.w.call) && count_frames(&c.up, NGHTTP2_HEADERS) == 1,
	   "a call may be started again from its end");
	good_answer(&c.down, 3, "5");
	client_feed(&c);
	ok(c.w.ends == 2 && c.w.end.status == 5, "and has an end of its own");
	client_fini(&c);
}

/* A stream of both sides, as a watch is. */
static void test_stream(void)
{
	struct client c = { .g = grpc_new("h", false, LIMIT) };

	c.w = (struct witness)WITNESS(c.g);
	grpc_start(c.g, &c.w.call, "/watch", NULL, NULL, 0, false);
	client_take(&c);
	settings(&c.down, 0, 0);
	headers(&c.down, 1, false, GOOD_HEADERS);
	client_feed(&c);
	c.up.len = 0;
	grpc_send(&c.w.call, "one", 3, false);
	grpc_send(&c.w.call, "two", 3, false);
	client_take(&c);
	ok(c.up.len == 25 && memcmp(c.up.data + 9, "\0\0\0\0\3one\0\0\0\0\3two", 16) == 0 && c.up.data[4] == 0,
	   "messages are sent as they are given, and the stream stays open");
	message(&c.down, 1, "event");
	client_feed(&c);
	is_str(got(&c.w), "event|", "messages come as they are sent");
	c.up.len = 0;
	headers(&c.down, 1, true, PAIRS("grpc-status", "14"));
	client_feed(&c);
	ok(c.w.ends == 1 && c.w.end.status == 14, "the server may end a stream at any time");
	is_int(reset_code(&c.up, 1), NGHTTP2_CANCEL, "and is told that no more is sent");
	grpc_start(c.g, &c.w.call, "/watch", NULL, "x", 1, false);
	client_take(&c);
	c.up.len = 0;
	grpc_send(&c.w.call, NULL, 0, true);
	client_take(&c);
	ok(c.up.len == 9 && c.up.data[4] == NGHTTP2_FLAG_END_STREAM, "a stream can be half closed without a message");
	client_fini(&c);
}

static void test_ping(void)
{
	struct client c;

	client_init(&c);
	client_feed(&c);
	c.up.len = 0;
	ok(!grpc_ping_pending(c.g), "no PING is pending at first");
	grpc_ping(c.g);
	grpc_ping(c.g);
	client_take(&c);
	ok(grpc_ping_pending(c.g) && c.up.len == 17 && c.up.data[3] == NGHTTP2_PING,
	   "a second PING waits for the first");
	char payload[8];
	memcpy(payload, c.up.data + 9, 8);
	frame(&c.down, NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, "notours!", 8);
	client_feed(&c);
	ok(grpc_ping_pending(c.g), "another PING's answer is none");
	frame(&c.down, NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, payload, 8);
	client_feed(&c);
	ok(!grpc_ping_pending(c.g), "its own is");
	grpc_ping(c.g);
	frame(&c.down, NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, payload, 8);
	client_feed(&c);
	ok(grpc_ping_pending(c.g), "the old answer, repeated, is none to a new PING");
	client_fini(&c);
}

/* ---- servers that break the rules ---- */

/* down has been filled: the connection must be of no more use, and its call end without a status. */
static void must_break(struct client *c, const char *words, const char *sentence)
{
	int rc = client_feed(c);
	struct grpc *g = c->g;

	c->g = NULL;
	grpc_free(g);
	ok(rc < 0 && c->err.code == ERR_INVALID && strstr(c->err.text, words) && c->w.ends == 1 &&
	           c->w.end.status == -1 && !c->w.end.unseen && !c->w.end.replied,
	   "%s: %s", sentence, rc < 0 ? c->err.text : "accepted");
	client_fini(c);
}

static void test_no_http2(void)
{
	static const char http1[] = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\r\n400";
	static const char alert[] = "\x15\x03\x01\x00\x02\x02\x0a and more";
	static const char banner[] = "-ERR unknown command 'PRI'\r\n";
	struct client c;
	int rc = 0;

	client_init(&c);
	c.down.len = 0;
	buf_add(&c.down, http1, sizeof http1 - 1);
	must_break(&c, "\"HTTP/1.1 400" + 1, "a server of HTTP/1.1");
	client_init(&c);
	for (size_t i = 0; i < sizeof http1 && rc == 0; i++)
		rc = grpc_feed(c.g, http1 + i, 1, &c.err);
	ok(rc < 0 && strstr(c.err.text, "HTTP/1.1"), "also if it comes byte by byte: %s", c.err.text);
	ok(!grpc_greeted(c.g), "it has not greeted");
	client_fini(&c);
	client_init(&c);
	c.down.len = 0;
	buf_add(&c.down, alert, sizeof alert - 1);
	must_break(&c, "TLS", "a server of TLS");
	client_init(&c);
	c.down.len = 0;
	buf_add(&c.down, banner, sizeof banner - 1);
	must_break(&c, "-ERR", "a server of something else");
	client_init(&c);
	c.down.len = 0;
	frame(&c.down, NGHTTP2_PING, 0, 0, "12345678", 8);
	must_break(&c, "no HTTP/2", "a server whose first frame is not SETTINGS");
}

static void test_broken(void)
{
	struct client c;
	struct buf block = { 0 };
	static char big[20000];

	client_init(&c);
	frame(&c.down, NGHTTP2_DATA, 0, 1, big, sizeof big);
	must_break(&c, "FRAME_SIZE_ERROR", "a frame that is too large");
	client_init(&c);
	headers(&c.down, 5, true, GOOD_HEADERS);
	must_break(&c, "PROTOCOL_ERROR", "an answer to what was not asked");
	client_init(&c);
	frame(&c.down, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0, NULL, 0);
	frame(&c.down, NGHTTP2_PUSH_PROMISE, NGHTTP2_FLAG_END_HEADERS, 1, "\0\0\0\2", 4);
	must_break(&c, "PROTOCOL_ERROR", "a push");
	client_init(&c);
	header_block(&block, PAIRS(":method", "GET", ":scheme", "http", ":path", "/", ":authority", "h"));
	for (int i = 1; i <= 100000; i++) {
		struct buf promise = { 0 };
		number(&promise, 2 * (uint32_t)i);
		buf_add(&promise, block.data, block.len);
		frame(&c.down, NGHTTP2_PUSH_PROMISE, NGHTTP2_FLAG_END_HEADERS, 1, promise.data, promise.len);
		buf_fini(&promise);
	}
	block.len = 0;
	must_break(&c, "more answers", "a flood of pushes before it knows that none are wanted");
	client_init(&c);
	frame(&c.down, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 1, "\xff\xff\xff\xff\xff\xff", 6);
	must_break(&c, "", "headers that cannot be decompressed");
	client_init(&c);
	goaway(&c.down, 1, 0, "");
	goaway(&c.down, 3, 0, "");
	must_break(&c, "PROTOCOL_ERROR", "a GOAWAY that takes back the one before");

	/* Each block stays under the limit of a header list: it is the frames that do not end. */
	client_init(&c);
	header_block(&block, PAIRS(":status", "200"));
	frame(&c.down, NGHTTP2_HEADERS, 0, 1, block.data, block.len);
	block.len = 0;
	header_block(&block, PAIRS("x", "y"));
	for (int i = 0; i < 100; i++)
		frame(&c.down, NGHTTP2_CONTINUATION, 0, 1, block.data, block.len);
	must_break(&c, "CONTINUATION", "headers without end");

	client_init(&c);
	for (int i = 0; i < 100000; i++)
		frame(&c.down, NGHTTP2_PING, 0, 0, "12345678", 8);
	must_break(&c, "", "a flood of PING");
	client_init(&c);
	for (int i = 0; i < 100000; i++)
		settings(&c.down, 0, 0);
	must_break(&c, "", "a flood of SETTINGS");
	client_init(&c);
	block.len = 0;
	for (int i = 0; i < 100; i++)
		buf_add(&block, "\0\3\0\0\0\1", 6);
	frame(&c.down, NGHTTP2_SETTINGS, 0, 0, block.data, block.len);
	must_break(&c, "SETTINGS", "too many settings at once");
	buf_fini(&block);

	client_init(&c);
	memset(big, 'v', 15000);
	big[15000] = '\0';
	headers(&c.down, 1, false, PAIRS(":status", "200", "content-type", "application/grpc"));
	struct buf trailers = { 0 };
	header_block(&trailers, PAIRS("a", big));
	frame(&c.down, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_STREAM, 1, trailers.data, trailers.len);
	for (int i = 0; i < 5; i++)
		frame(&c.down, NGHTTP2_CONTINUATION, i == 4 ? NGHTTP2_FLAG_END_HEADERS : 0, 1, trailers.data,
		      trailers.len);
	buf_fini(&trailers);
	ok(client_feed(&c) == 0 && c.w.ends == 1 && c.w.end.status == -1 && strstr(c.w.text, "64 KB"),
	   "headers that are too long end their call alone: %s", c.w.text);
	client_fini(&c);

	client_init(&c);
	headers(&c.down, 1, false, PAIRS("content-type", "application/grpc"));
	ok(client_feed(&c) == 0 && c.w.ends == 1 && c.w.end.status == -1 && !c.w.end.unseen,
	   "so does an answer without an HTTP status: %s", c.w.text);
	client_fini(&c);
	client_init(&c);
	headers(&c.down, 1, false, PAIRS(":status", "103"));
	good_answer(&c.down, 1, "0");
	ok(client_feed(&c) == 0 && c.w.ends == 1 && c.w.end.status == 0, "an interim answer is passed over");
	client_fini(&c);
	client_init(&c);
	good_answer(&c.down, 1, "0");
	good_answer(&c.down, 1, "0");
	client_feed(&c);
	ok(c.w.ends == 1 && c.w.messages == 2, "an answer that comes twice is one");
	client_fini(&c);
}

/* ---- flow control, against nghttp2's own server ---- */

struct peer {
	nghttp2_session *session;
	size_t received; /* bytes of the request's body */
	size_t left;     /* of the answer's body */
	bool prefixed;   /* its prefix was sent */
	bool answered;
	size_t most_queued; /* the most bytes that grpc_take has given at once */
};

static ssize_t peer_read(nghttp2_session *session, int32_t id, uint8_t *bytes, size_t most, uint32_t *flags,
                         nghttp2_data_source *source, void *arg)
{
	struct peer *p = arg;
	size_t n = p->left < most ? p->left : most;

	(void)source;
	memset(bytes, 'm', n);
	if (!p->prefixed) {
		unsigned char prefix[5] = { 0, 0, (unsigned char)((p->left - 5) >> 16),
			                    (unsigned char)((p->left - 5) >> 8), (unsigned char)(p->left - 5) };
		memcpy(bytes, prefix, 5);
		p->prefixed = true;
	}
	p->left -= n;
	if (p->left == 0) {
		nghttp2_nv end = { (uint8_t *)"grpc-status", (uint8_t *)"0", 11, 1, 0 };
		*flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
		nghttp2_submit_trailer(session, id, &end, 1);
	}
	return (ssize_t)n;
}

static int peer_on_frame(nghttp2_session *session, const nghttp2_frame *f, void *arg)
{
	struct peer *p = arg;
	nghttp2_data_provider body = { .read_callback = peer_read };
	nghttp2_nv head[] = { { (uint8_t *)":status", (uint8_t *)"200", 7, 3, 0 },
		              { (uint8_t *)"content-type", (uint8_t *)"application/grpc", 12, 16, 0 } };

	if (f->hd.flags & NGHTTP2_FLAG_END_STREAM && f->hd.type == NGHTTP2_DATA && !p->answered) {
		p->answered = true;
		nghttp2_submit_response(session, f->hd.stream_id, head, 2, &body);
	}
	return 0;
}

static int peer_on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes, size_t len,
                        void *arg)
{
	(void)session;
	(void)flags;
	(void)id;
	(void)bytes;
	((struct peer *)arg)->received += len;
	return 0;
}

static void peer_init(struct peer *p, uint32_t window)
{
	nghttp2_session_callbacks *calls;
	nghttp2_settings_entry entry = { NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window };

	nghttp2_session_callbacks_new(&calls);
	nghttp2_session_callbacks_set_on_frame_recv_callback(calls, peer_on_frame);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(calls, peer_on_data);
	nghttp2_session_server_new(&p->session, calls, p);
	nghttp2_session_callbacks_del(calls);
	nghttp2_submit_settings(p->session, 0, &entry, 1);
	if (window > 65535)
		nghttp2_session_set_local_window_size(p->session, 0, 0, (int32_t)window);
}

/* A turn of both directions. false: nothing moved. */
static bool exchange(struct client *c, struct peer *p)
{
	const uint8_t *bytes;
	bool moved = false;

	c->up.len = 0;
	client_take(c);
	if (c->up.len > p->most_queued)
		p->most_queued = c->up.len;
	if (c->up.len) {
		nghttp2_session_mem_recv(p->session, (const uint8_t *)c->up.data, c->up.len);
		moved = true;
	}
	for (ssize_t n; (n = nghttp2_session_mem_send(p->session, &bytes)) > 0; moved = true)
		if (grpc_feed(c->g, bytes, (size_t)n, &c->err) < 0)
			return false;
	return moved;
}

static void flow(uint32_t window, const char *sentence)
{
	size_t size = 1500000;
	struct client c = { .g = grpc_new("h", false, LIMIT) };
	struct peer p = { .left = size + 5 };
	char *record = mem_zero(size);

	peer_init(&p, window);
	c.w = (struct witness)WITNESS(c.g);
	grpc_start(c.g, &c.w.call, "/big", NULL, record, size, true);
	while (exchange(&c, &p))
		continue;
	ok(p.received == size + 5 && c.w.ends == 1 && c.w.end.status == 0 && c.w.got.len == size + 1, "%s", sentence);
	ok(p.most_queued < 100000, "and never fills memory: %zu bytes at once", p.most_queued);
	nghttp2_session_del(p.session);
	client_fini(&c);
	free(record);
}

static void message_is_ignored(struct grpc_call *c, const void *data, size_t len)
{
	(void)c;
	(void)data;
	(void)len;
}

static void test_flow_control(void)
{
	flow(65535, "a record of 1.5 MB passes in both directions");
	flow(1000, "also to a server with a small window");
	flow(1 << 30, "also to one with a large window");
	struct client c;
	char *flood = mem_zero(16384); /* empty messages */
	size_t before = 0, after = 0;
	client_init(&c);
	c.w.call.message = message_is_ignored;
	headers(&c.down, 1, false, GOOD_HEADERS);
	for (int i = 0; i < 4000 && grpc_feed(c.g, c.down.data, c.down.len, &c.err) == 0; i++) {
		after = mallinfo2().uordblks;
		before = i == 100 ? after : before;
		c.down.len = c.up.len = 0;
		client_take(&c);
		frame(&c.down, NGHTTP2_DATA, 0, 1, flood, 16384);
	}
	ok(c.err.code == ERR_NONE && c.w.ends == 0 && after < before + 100000,
	   "64 MB that nobody reads do not fill memory");
	free(flood);
	client_fini(&c);
}

/* ---- many calls at random ---- */

#define CALLS 12
#define ALLOWED 3

/* A server that keeps requests until it is told what to do with them. */
struct crowd {
	struct peer peer; /* first: its answers are the same */
	int32_t open[CALLS * 4];
	int count, most;
};

static int crowd_on_frame(nghttp2_session *session, const nghttp2_frame *f, void *arg)
{
	struct crowd *w = arg;

	(void)session;
	if (f->hd.type == NGHTTP2_HEADERS) {
		w->open[w->count++] = f->hd.stream_id;
		w->most = w->count > w->most ? w->count : w->most;
	}
	return 0;
}

static int crowd_on_close(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
	struct crowd *w = arg;

	(void)session;
	(void)code;
	for (int i = 0; i < w->count; i++)
		if (w->open[i] == id) {
			w->open[i] = w->open[--w->count];
			break;
		}
	return 0;
}

static void crowd_init(struct crowd *w)
{
	nghttp2_session_callbacks *calls;
	nghttp2_settings_entry entry = { NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, ALLOWED };

	nghttp2_session_callbacks_new(&calls);
	nghttp2_session_callbacks_set_on_frame_recv_callback(calls, crowd_on_frame);
	nghttp2_session_callbacks_set_on_stream_close_callback(calls, crowd_on_close);
	nghttp2_session_server_new(&w->peer.session, calls, w);
	nghttp2_session_callbacks_del(calls);
	nghttp2_submit_settings(w->peer.session, 0, &entry, 1);
}

/* Ends one of the requests: with trailers only, with a reset, or refuses it. */
static void crowd_answer(struct crowd *w, unsigned *seed)
{
	nghttp2_nv head[] = { { (uint8_t *)":status", (uint8_t *)"200", 7, 3, 0 },
		              { (uint8_t *)"content-type", (uint8_t *)"application/grpc", 12, 16, 0 },
		              { (uint8_t *)"grpc-status", (uint8_t *)"0", 11, 1, 0 } };
	int32_t id = w->count ? w->open[rand_r(seed) % w->count] : 0;
	int what = rand_r(seed) % 4;

	if (id && what < 2)
		nghttp2_submit_response(w->peer.session, id, head, 3, NULL);
	else if (id)
		nghttp2_submit_rst_stream(w->peer.session, 0, id,
		                          what == 2 ? NGHTTP2_REFUSED_STREAM : NGHTTP2_INTERNAL_ERROR);
}

static void test_crowd(void)
{
	struct client c = { .g = grpc_new("h", false, LIMIT) };
	struct crowd crowd = { .count = 0 };
	struct witness w[CALLS];
	unsigned seed = SEED;
	int begun = 0, cancelled = 0, ends = 0, odd = 0;

	crowd_init(&crowd);
	for (int i = 0; i < CALLS; i++)
		w[i] = (struct witness)WITNESS(c.g);
	while (exchange(&c, &crowd.peer))
		continue;
	for (int step = 0; step < 20000; step++) {
		struct witness *one = &w[rand_r(&seed) % CALLS];
		bool under_way = grpc_under_way(&one->call);
		switch (rand_r(&seed) % 6) {
		case 0:
		case 1:
			if (!under_way)
				grpc_start(c.g, &one->call, "/x", NULL, "x", 1, rand_r(&seed) % 2);
			begun += !under_way;
			break;
		case 2:
			cancelled += under_way;
			grpc_cancel(&one->call);
			break;
		case 3:
			exchange(&c, &crowd.peer);
			break;
		default:
			crowd_answer(&crowd, &seed);
			break;
		}
	}
	for (int i = 0; i < 1000; i++) {
		crowd_answer(&crowd, &seed);
		exchange(&c, &crowd.peer);
	}
	for (int i = 0; i < CALLS; i++) {
		ends += w[i].ends;
		odd += grpc_under_way(&w[i].call) || (w[i].end.status == 0 && w[i].end.unseen);
	}
	ok(begun == ends + cancelled && odd == 0 && grpc_idle(c.g),
	   "%d calls, %d cancelled: the others ended, once each", begun, cancelled);
	ok(crowd.most == ALLOWED && crowd.count == 0, "and never were more of them at the server than it allows");
	nghttp2_session_del(crowd.peer.session);
	grpc_free(c.g);
	buf_fini(&c.up);
}

/* ---- bytes that were changed on the way ---- */

struct oracle {
	bool zero, block_zero;
};

static int oracle_on_field(nghttp2_session *session, const nghttp2_frame *f, const uint8_t *name, size_t name_len,
                           const uint8_t *value, size_t value_len, uint8_t flags, void *arg)
{
	struct oracle *o = arg;

	(void)session;
	(void)flags;
	if (f->hd.stream_id == 1 && name_len == 11 && memcmp(name, "grpc-status", 11) == 0)
		o->block_zero = value_len == 1 && *value == '0';
	return 0;
}

static int oracle_on_frame(nghttp2_session *session, const nghttp2_frame *f, void *arg)
{
	struct oracle *o = arg;

	(void)session;
	if (f->hd.type == NGHTTP2_HEADERS && f->hd.flags & NGHTTP2_FLAG_END_STREAM && f->hd.stream_id == 1)
		o->zero |= o->block_zero;
	o->block_zero = false;
	return 0;
}

/* Whether the bytes say, to nghttp2 alone, that stream 1 ended with status 0. */
static bool says_ok(const struct buf *bytes)
{
	struct oracle o = { 0 };
	nghttp2_session *session;
	nghttp2_session_callbacks *calls;
	nghttp2_nv head[] = { { (uint8_t *)":method", (uint8_t *)"POST", 7, 4, 0 },
		              { (uint8_t *)":scheme", (uint8_t *)"http", 7, 4, 0 },
		              { (uint8_t *)":path", (uint8_t *)"/", 5, 1, 0 },
		              { (uint8_t *)":authority", (uint8_t *)"h", 10, 1, 0 } };
	const uint8_t *out;

	nghttp2_session_callbacks_new(&calls);
	nghttp2_session_callbacks_set_on_header_callback(calls, oracle_on_field);
	nghttp2_session_callbacks_set_on_frame_recv_callback(calls, oracle_on_frame);
	nghttp2_session_client_new(&session, calls, &o);
	nghttp2_session_callbacks_del(calls);
	nghttp2_submit_settings(session, 0, NULL, 0);
	nghttp2_submit_request(session, NULL, head, 4, NULL, NULL);
	while (nghttp2_session_mem_send(session, &out) > 0)
		;
	nghttp2_session_mem_recv(session, (const uint8_t *)bytes->data, bytes->len);
	nghttp2_session_del(session);
	return o.zero;
}

/* One change: a byte, a piece left out, or a piece that comes twice. */
static void mutate(struct buf *b, unsigned *seed)
{
	size_t at = (size_t)rand_r(seed) % b->len, n = 1 + (size_t)rand_r(seed) % 30;
	struct buf rest = { 0 };

	if (n > b->len - at)
		n = b->len - at;
	buf_add(&rest, b->data + at, b->len - at);
	switch (rand_r(seed) % 4) {
	case 0:
		b->data[at] = (char)rand_r(seed);
		break;
	case 1:
		b->data[at] ^= (char)(1 << rand_r(seed) % 8);
		break;
	case 2:
		b->len = at;
		buf_add(b, rest.data + n, rest.len - n);
		break;
	default:
		b->len = at + n;
		buf_add(b, rest.data, rest.len);
		break;
	}
	buf_fini(&rest);
}

static void test_mutations(void)
{
	static const char *const says[] = { "14", "0", "7" };
	const char *rounds = getenv("ROUNDS");
	int count = rounds ? atoi(rounds) : 20000, wrong = 0, twice = 0, unseen = 0, good = 0;
	unsigned seed = SEED;

	for (int i = 0; i < count; i++) {
		struct client c;
		struct buf bytes = { 0 };
		client_init(&c);
		good_bytes(&bytes, says[i % 3]);
		for (int n = rand_r(&seed) % 4; n >= 0 && bytes.len > 0; n--)
			mutate(&bytes, &seed);
		for (size_t at = 0; at < bytes.len;) {
			size_t n = 1 + (size_t)rand_r(&seed) % bytes.len;
			n = n < bytes.len - at ? n : bytes.len - at;
			if (grpc_feed(c.g, bytes.data + at, n, &c.err) < 0)
				break;
			client_take(&c);
			at += n;
		}
		struct grpc *g = c.g;
		c.g = NULL;
		grpc_free(g);
		bool success = c.w.end.status == 0;
		twice += c.w.ends != 1;
		good += success;
		wrong += success && !says_ok(&bytes);
		unseen += c.w.end.unseen && (c.w.messages > 0 || c.w.end.replied);
		buf_fini(&bytes);
		client_fini(&c);
	}
	ok(twice == 0, "%d answers with changed bytes: each call ends once", count);
	ok(wrong == 0 && good > 0, "none is OK unless its trailers say so (%d are)", good);
	ok(unseen == 0, "none is unseen that was answered");
}

int main(void)
{
	alarm(600); /* a test that hangs */
	test_request();
	test_cuts();
	test_statuses();
	test_foreign_body();
	test_refused_messages();
	test_unseen();
	test_connection_ends();
	test_stream_limit();
	test_ids_used_up();
	test_callbacks();
	test_stream();
	test_ping();
	test_no_http2();
	test_broken();
	test_flow_control();
	test_crowd();
	test_mutations();
	return tap_done();
}
