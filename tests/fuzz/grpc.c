/* A gRPC server's bytes, in pieces, while three calls are under way, which in their callbacks cancel each other, begin
 * again, and ask for what is to be sent. Each call ends at most once for each time that it was begun. */
#include "fuzz.h"

#include "net/grpc/grpc.h"

#include <nghttp2/nghttp2.h>

struct caller {
	struct grpc_call call; /* first */
	struct grpc *g;
	struct caller *other;
	uint8_t how;
	int begun, ended;
};

static void start(struct caller *c)
{
	c->begun++;
	grpc_start(c->g, &c->call, "/etcdserverpb.KV/Range", NULL, "x", 1, !(c->how & 8));
}

static void hurt(struct caller *c)
{
	struct buf out = { 0 };

	if (c->how & 1)
		grpc_take(c->g, &out);
	must(out.len == 0);
	buf_fini(&out);
	if (c->how & 2 && c->other && grpc_under_way(&c->other->call)) {
		c->other->begun--;
		grpc_cancel(&c->other->call);
	}
}

static void on_message(struct grpc_call *call, const void *data, size_t len)
{
	struct caller *c = (struct caller *)call;
	volatile uint8_t sum = 0;

	for (size_t i = 0; i < len; i++)
		sum = (uint8_t)(sum + ((const uint8_t *)data)[i]);
	hurt(c);
}

static void on_end(struct grpc_call *call, const struct grpc_end *end)
{
	struct caller *c = (struct caller *)call;

	must(++c->ended <= c->begun && end->text && end->status >= -1 && end->status <= 16);
	must(!grpc_under_way(call));
	must(!(end->status == 0 && end->unseen));
	hurt(c);
	if (c->how & 4) {
		c->how &= (uint8_t)~4;
		start(c);
	}
}

/* Frames are put together of the input if its first byte says so: [type, flags, stream, length, payload...]. A random
 * sequence of bytes is hardly ever a frame. */
static void frames(struct buf *out, struct input *in)
{
	static const uint8_t settings[9] = { 0, 0, 0, NGHTTP2_SETTINGS };

	buf_add(out, settings, sizeof settings);
	while (in->left >= 4) {
		uint8_t type = input_byte(in) % 11, flags = input_byte(in), id = input_byte(in) % 9,
			len = input_byte(in);
		if (len > in->left)
			len = (uint8_t)in->left;
		uint8_t head[9] = { 0, 0, len, type, flags, 0, 0, 0, id };
		buf_add(out, head, sizeof head);
		buf_add(out, in->at, len);
		in->at += len;
		in->left -= len;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	uint8_t form = input_byte(&in), piece = input_byte(&in);
	struct grpc *g = grpc_new("host:1", false, 4096);
	struct caller c[3];
	struct buf bytes = { 0 }, out = { 0 };
	struct err err;

	for (int i = 0; i < 3; i++)
		c[i] = (struct caller){ .call = { .message = on_message, .ended = on_end },
			                .g = g,
			                .other = &c[(i + 1) % 3],
			                .how = input_byte(&in) };
	for (int i = 0; i < 3; i++)
		start(&c[i]);
	grpc_take(g, &out);
	if (form & 1)
		frames(&bytes, &in);
	else if (in.left)
		buf_add(&bytes, in.at, in.left);
	for (size_t at = 0; at < bytes.len;) {
		size_t n = piece && piece < bytes.len - at ? piece : bytes.len - at;
		if (grpc_feed(g, bytes.data + at, n, &err) < 0)
			break;
		at += n;
		out.len = 0;
		grpc_take(g, &out);
		if (form & 2)
			grpc_ping(g);
	}
	const char *why;
	grpc_going(g, &why);
	for (int i = 0; i < 3; i++)
		c[i].how = 0;
	grpc_free(g);
	for (int i = 0; i < 3; i++)
		must(c[i].begun == c[i].ended);
	buf_fini(&bytes);
	buf_fini(&out);
	return 0;
}
