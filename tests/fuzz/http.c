/* A HTTP server's bytes: an answer to a request over a socket of its own, with redirects and compression. The call ends
 * once, and its headers and body are what http.h says. */
#include "fuzz.h"

#include "base/buf.h"
#include "net/http/http.h"

#include <errno.h>
#include <ev.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct ev_loop *loop;
static struct http *client; /* which lasts: a new one for each input costs more than its answer */
static int listener, done;
static char name[40];

static void listen_once(void)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	struct err err;

	fuzz_silence();
	loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
	snprintf(name, sizeof name, "@lunarch-fuzz-%d", (int)getpid());
	memcpy(at.sun_path + 1, name + 1, strlen(name + 1));
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (bind(listener, (struct sockaddr *)&at, (socklen_t)(sizeof at.sun_family + strlen(name))) < 0 ||
	    listen(listener, 8) < 0)
		abort();
	client = http_new(loop, NULL, &err);
	must(client);
}

static void on_answered(void *arg, struct http_call *c, int status, const struct http_headers *h)
{
	(void)arg, (void)c;
	must(status >= 0);
	for (size_t i = 0; i < h->count; i++)
		must(strlen(h->list[i].name) < 1 << 20 && strlen(h->list[i].value) < 1 << 20);
	http_header(h, "Retry-After");
}

static void on_data(void *arg, struct http_call *c, const char *bytes, size_t len)
{
	(void)arg, (void)c, (void)bytes;
	must(len > 0);
}

static void on_done(void *arg, const struct http_result *r, const struct http_headers *h)
{
	(void)arg;
	done++;
	must(r->body && r->body[r->len] == '\0' && r->url);
	must(r->err.code != ERR_NONE || r->status > 0);
	http_header(h, "Date");
}

static void serve(struct input *in)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		return;
	if (in->left && send(fd, in->at, in->left, MSG_NOSIGNAL) < 0)
		must(errno != EINVAL);
	in->left = 0;
	shutdown(fd, SHUT_WR);
	/* What was asked has to be read, or the end of the connection is a reset. */
	char asked[4096];
	while (recv(fd, asked, sizeof asked, MSG_DONTWAIT) > 0)
		;
	close(fd);
}

static void base64(const uint8_t *data, size_t size)
{
	struct buf out = { 0 }, back = { 0 };

	http_base64(&out, data, size);
	must(http_unbase64(&back, out.data ? out.data : "", out.len) == 0 && back.len == size);
	must(size == 0 || memcmp(back.data, data, size) == 0);
	buf_fini(&back);
	char *copy = input_copy(data, size);
	http_unbase64(&back, copy, size);
	free(copy);
	buf_fini(&out);
	buf_fini(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	uint8_t how = input_byte(&in);

	base64(data, size);
	if (!loop)
		listen_once();
	done = 0;
	struct http_call *c = http_start(client, &(struct http_request){ .url = "http://host/path",
	                                                                 .method = how & 8 ? "HEAD" : NULL,
	                                                                 .unix_path = name,
	                                                                 .limit = 4096,
	                                                                 .redirects = how & 1 ? 3 : 0,
	                                                                 .compressed = how & 2,
	                                                                 .answered = on_answered,
	                                                                 .data = how & 4 ? on_data : NULL,
	                                                                 .done = on_done });
	for (int i = 0; i < 60 && !done; i++) {
		ev_run(loop, EVRUN_NOWAIT);
		serve(&in);
	}
	if (!done)
		http_cancel(c);
	must(done == 1);
	serve(&in);
	return 0;
}
