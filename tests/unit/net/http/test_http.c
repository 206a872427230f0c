/* The HTTP client against a server that behaves, and misbehaves, as its paths say: each call ends once, in time, with
 * what is true. */
#include "net/http/http_internal.h"

#include "base/buf.h"
#include "base/mem.h"
#include "tap.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ev.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <dlfcn.h>
#include <unistd.h>

/* ---- the server: a child process per connection ---- */

static void say(int fd, const char *text)
{
	if (write(fd, text, strlen(text)) < 0)
		_exit(0);
}

/* Reads a request with its body (content-length or chunked) and echoes both. */
static void echo(int fd, const char *request, size_t have, const char *body)
{
	struct buf got = { 0 }, answer = { 0 };
	char more[65536];
	ssize_t n;
	const char *length = strcasestr(request, "content-length: ");
	bool chunked = strcasestr(request, "transfer-encoding: chunked");
	size_t want = length ? strtoul(length + 16, NULL, 10) : 0;

	buf_add(&got, body, have);
	while (chunked ? !got.data || !strstr(got.data, "0\r\n\r\n") : got.len < want) {
		n = read(fd, more, sizeof more);
		if (n <= 0)
			_exit(0);
		buf_add(&got, more, (size_t)n);
	}
	buf_printf(&answer, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nX-Head:  %.4s \r\n\r\n",
	           strlen(request) + got.len, request);
	buf_adds(&answer, request);
	buf_add(&answer, got.data ? got.data : "", got.len);
	if (write(fd, answer.data, answer.len) < 0)
		_exit(0);
	buf_fini(&got);
	buf_fini(&answer);
}

static void endless(int fd, const char *piece)
{
	for (;;)
		say(fd, piece);
}

static void answer(int fd, const char *path, const char *request, size_t have, const char *body)
{
	char kilobyte[1025];

	memset(kilobyte, 'x', 1024);
	kilobyte[1024] = '\0';
	if (strncmp(path, "/echo", 5) == 0)
		echo(fd, request, have, body);
	else if (strncmp(path, "/hang", 5) == 0)
		pause();
	else if (strncmp(path, "/close", 6) == 0)
		_exit(0);
	else if (strncmp(path, "/garbage", 8) == 0)
		say(fd, "this is no HTTP at all\r\n\r\n\x01\x02"), _exit(0);
	else if (strncmp(path, "/half", 5) == 0)
		say(fd, "HTTP/Set-Cookie: x\r\n\r"), _exit(0);
	else if (strncmp(path, "/headers", 8) == 0)
		say(fd, "HTTP/1.1 200 OK\r\n"), endless(fd, "X-Endless: 0123456789012345678901234567890123456789\r\n");
	else if (strncmp(path, "/short", 6) == 0)
		say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this"), _exit(0);
	else if (strncmp(path, "/endless", 8) == 0)
		say(fd, "HTTP/1.1 200 OK\r\n\r\n"), endless(fd, kilobyte);
	else if (strncmp(path, "/early", 6) == 0)
		say(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nearly\r\n0\r\n\r\n"), pause();
	else if (strncmp(path, "/cut", 4) == 0)
		say(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nearly\r\n"), _exit(0);
	else if (strncmp(path, "/length", 7) == 0)
		say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n");
	else if (strncmp(path, "/silent", 7) == 0)
		say(fd, "HTTP/1.1 200 OK\r\n\r\nfirst"), pause();
	else if (strncmp(path, "/away", 5) == 0)
		say(fd, "HTTP/1.1 302 Found\r\nLocation: /echo/arrived\r\nContent-Length: 4\r\n\r\nbody");
	else if (strncmp(path, "/loop", 5) == 0)
		say(fd, "HTTP/1.1 302 Found\r\nLocation: /loop\r\nContent-Length: 0\r\n\r\n");
	else if (strncmp(path, "/file", 5) == 0)
		say(fd, "HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n");
	else if (strncmp(path, "/lines", 6) == 0) {
		say(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-After\r\n\r\n");
		for (int i = 0; i < 50; i++)
			say(fd, "5\r\nline\n\r\n");
		say(fd, "0\r\nX-After: trailer\r\n\r\n");
	} else
		say(fd, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
}

static void serve_connection(int fd)
{
	char request[65536];
	size_t len = 0;

	for (;;) {
		ssize_t n = read(fd, request + len, sizeof request - 1 - len);
		if (n <= 0)
			_exit(0);
		len += (size_t)n;
		request[len] = '\0';
		char *end = strstr(request, "\r\n\r\n");
		if (!end)
			continue;
		char *path = strchr(request, ' ') + 1, copy[65536];
		size_t head = (size_t)(end + 4 - request);
		memcpy(copy, end + 4, len - head + 1);
		end[4] = '\0';
		answer(fd, path, request, len - head, copy);
		len = 0;
	}
}

static pid_t serve(int listener)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGCHLD, SIG_IGN);
	for (;;) {
		int fd = accept(listener, NULL, NULL);
		if (fd >= 0 && fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			serve_connection(fd);
		}
		close(fd);
	}
}

static int listen_tcp(int *port)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof a;

	if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 1024) < 0)
		abort();
	getsockname(fd, (struct sockaddr *)&a, &len);
	*port = ntohs(a.sin_port);
	return fd;
}

/* ---- a resolver that hangs for one name ---- */

static unsigned resolving;

int getaddrinfo(const char *restrict node, const char *restrict service, const struct addrinfo *restrict hints,
                struct addrinfo **restrict found);
int getaddrinfo(const char *restrict node, const char *restrict service, const struct addrinfo *restrict hints,
                struct addrinfo **restrict found)
{
	static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

	if (node && strcmp(node, "hangs.test") == 0) {
		__atomic_add_fetch(&resolving, 1, __ATOMIC_SEQ_CST);
		sleep(120);
		return EAI_AGAIN;
	}
	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
	return real(node, service, hints, found);
}

/* ---- one request and what came of it ---- */

struct seen {
	struct ev_loop *loop;
	struct http_call *call;
	int dones, answers, pieces, drains;
	int status, answered_status;
	bool unsent, repeated, reused, in_start;
	bool told_inside; /* a callback came from inside http_start */
	enum err_code code;
	char text[1000], head[200], url[500];
	struct buf body;
	struct instant sent_at;
	size_t cancel_at, pause_at, to_send;
	bool has_trailer;
};

static int port;
static struct ev_loop *loop;
static struct http *pool;

static void on_done(void *arg, const struct http_result *r, const struct http_headers *headers)
{
	struct seen *s = arg;
	const char *head = http_header(headers, "x-hEAD");

	s->told_inside |= s->in_start;
	s->dones++;
	s->status = r->status;
	s->unsent = r->unsent;
	s->repeated = r->repeated;
	s->reused = r->reused;
	s->code = r->err.code;
	s->sent_at = r->sent_at;
	s->has_trailer = http_header(headers, "x-after");
	snprintf(s->text, sizeof s->text, "%s", r->err.code ? r->err.text : "");
	snprintf(s->head, sizeof s->head, "%s", head ? head : "(none)");
	snprintf(s->url, sizeof s->url, "%s", r->url);
	if (r->len)
		buf_add(&s->body, r->body, r->len);
	s->call = NULL;
	ev_break(s->loop, EVBREAK_ALL);
}

static void on_answered(void *arg, struct http_call *c, int status, const struct http_headers *headers)
{
	struct seen *s = arg;

	(void)c;
	(void)headers;
	s->told_inside |= s->in_start;
	s->answers++;
	s->answered_status = status;
}

static void on_data(void *arg, struct http_call *c, const char *bytes, size_t len)
{
	struct seen *s = arg;

	s->pieces++;
	buf_add(&s->body, bytes, len);
	if (s->cancel_at && s->body.len >= s->cancel_at)
		http_cancel(c);
	else if (s->pause_at && s->body.len >= s->pause_at) {
		http_pause(c, true);
		s->pause_at = 0;
	}
}

static void on_drained(void *arg, struct http_call *c)
{
	struct seen *s = arg;
	static char kb64[65536];

	memset(kb64, 'u', sizeof kb64);
	s->drains++;
	while (s->to_send && http_send(c, kb64, sizeof kb64, s->to_send == sizeof kb64 ? HTTP_LAST : HTTP_SOME)) {
		s->to_send -= sizeof kb64;
		if (s->to_send % (4 * sizeof kb64) == 0)
			break;
	}
}

static void start(struct seen *s, struct http_request *r, const char *path)
{
	char *url = mem_printf("http://127.0.0.1:%d%s", port, path);

	buf_fini(&s->body);
	*s = (struct seen){ .loop = loop, .cancel_at = s->cancel_at, .pause_at = s->pause_at, .to_send = s->to_send };
	r->url = r->url ? r->url : url;
	r->arg = s;
	r->done = on_done;
	if (!r->by.boot)
		r->by = instant_add(clock_now(), 60 * NSEC_PER_SEC);
	s->in_start = true;
	s->call = http_start(pool, r);
	s->in_start = false;
	free(url);
	r->url = NULL;
}

static void wait_done(const struct seen *s)
{
	while (!s->dones)
		ev_run(loop, 0);
}

static void ask(struct seen *s, struct http_request r, const char *path)
{
	start(s, &r, path);
	wait_done(s);
}

static void nap(double seconds)
{
	void stop(struct ev_loop * l, ev_timer * w, int revents);
	ev_timer t;

	ev_timer_init(&t, stop, seconds, 0.);
	ev_now_update(loop);
	ev_timer_start(loop, &t);
	while (ev_is_active(&t))
		ev_run(loop, EVRUN_ONCE);
}

void stop(struct ev_loop *l, ev_timer *w, int revents);
void stop(struct ev_loop *l, ev_timer *w, int revents)
{
	(void)w;
	(void)revents;
	ev_break(l, EVBREAK_ONE);
}

static struct instant in_ms(int ms)
{
	return instant_add(clock_now(), ms * NSEC_PER_MS);
}

/* ---- sentences ---- */

static void test_plain(void)
{
	struct seen s = { 0 };
	struct instant before = clock_now();
	const char *const headers[] = { "X-One: 1", "Content-Type: text/x-test", NULL };

	ask(&s, (struct http_request){ .headers = headers, .answered = on_answered }, "/echo/a?b=c");
	ok(s.status == 200 && s.code == ERR_NONE && s.dones == 1, "a GET is answered, and ends once");
	ok(!s.told_inside, "nothing is told from inside http_start");
	ok(s.answers == 1 && s.answered_status == 200, "the status is told once before");
	ok(strstr(s.body.data, "GET /echo/a?b=c HTTP/1.1\r\n") && strstr(s.body.data, "X-One: 1\r\n"),
	   "path, query and headers arrive");
	is_str(s.head, "GET", "a header is found whatever its case, without the blanks around it");
	ok(!s.unsent && elapsed_holder(before, s.sent_at) >= 0 && elapsed_holder(s.sent_at, clock_now()) >= 0,
	   "sent_at lies between start and end");
	ask(&s, (struct http_request){ .body = "{\"a\":1}", .body_len = 7, .method = "PATCH", .bearer = "secret" },
	    "/echo");
	ok(strstr(s.body.data, "PATCH /echo") && strstr(s.body.data, "{\"a\":1}") &&
	           strstr(s.body.data, "Content-Length: 7\r\n"),
	   "a body goes with any method");
	ok(strstr(s.body.data, "Authorization: Bearer secret\r\n") && !strstr(s.body.data, "Content-Type"),
	   "the bearer token is sent, a content type is not made up");
	ok(s.reused, "the second request reuses the connection");
	ask(&s, (struct http_request){ .method = "POST" }, "/echo");
	ok(strstr(s.body.data, "Content-Length: 0\r\n") && !strstr(s.body.data, "Expect"),
	   "a POST without a body says so");
	ask(&s, (struct http_request){ .user = "u", .password = "p:w" }, "/echo");
	ok(strstr(s.body.data, "Authorization: Basic dTpwOnc=\r\n") != NULL,
	   "user and password become basic authentication");
	ask(&s, (struct http_request){ .method = "HEAD" }, "/length");
	ok(s.status == 200 && s.code == ERR_NONE && s.body.len == 0, "HEAD has no body");
	ask(&s, (struct http_request){ .fresh = true }, "/echo");
	ok(!s.reused, "a fresh request opens a connection");
	for (int kept = 0; kept < 2; kept++) /* the first one, and the fresh one */
		ask(&s, (struct http_request){ .headers = (const char *const[]){ "Connection: Close", NULL } },
		    "/echo");
	ask(&s, (struct http_request){ 0 }, "/echo");
	ok(!s.reused, "no connection is used after a request that says it is its last");
	ask(&s, (struct http_request){ 0 }, "/none");
	is_int(s.status, 404, "any status is an answer");
	buf_fini(&s.body);
}

static void test_wrong_requests(void)
{
	const char *const injected[] = { "X: a\r\nY: b", NULL };
	struct seen s = { 0 };

	ask(&s, (struct http_request){ .headers = injected }, "/echo");
	ok(s.code == ERR_USAGE && s.unsent, "a header with a line break is refused");
	ask(&s, (struct http_request){ .bearer = "a\nb" }, "/echo");
	ok(s.code == ERR_USAGE && s.unsent && !strstr(s.text, "a\nb"),
	   "a token with a line break is refused, and not shown");
	ask(&s, (struct http_request){ .method = "GET / HTTP/1.1\r\nX:" }, "/echo");
	ok(s.code == ERR_USAGE && s.unsent, "so is a method that is none");
	ask(&s, (struct http_request){ .url = "ftp://127.0.0.1/" }, "");
	ok(s.code == ERR_USAGE && s.unsent && !s.told_inside,
	   "a URL of another scheme is refused, later and not at once");
	ask(&s, (struct http_request){ .url = "http://127.0.0.1:99999/" }, "");
	ok(s.code == ERR_USAGE && s.unsent, "a port that cannot be is refused");
	buf_fini(&s.body);
}

static void test_faults(void)
{
	struct seen s = { 0 };
	int closed;

	close(listen_tcp(&closed));
	char *url = mem_printf("http://user:geheim@127.0.0.1:%d/x?token=geheim", closed);
	ask(&s, (struct http_request){ .url = url, .body = "x", .body_len = 1 }, "");
	ok(s.code == ERR_UNREACHABLE && s.unsent, "a refused connection: surely not sent");
	ok(!strstr(s.text, "geheim") && strstr(s.text, "/x"), "the error names the URL without password and query");
	free(url);
	ask(&s, (struct http_request){ .body = "x", .body_len = 1, .by = in_ms(200) }, "/hang");
	ok(s.code == ERR_TIMEOUT && !s.unsent, "no answer until the deadline: unknown");
	ask(&s, (struct http_request){ .first_byte = 100 * NSEC_PER_MS }, "/hang");
	ok(s.code == ERR_TIMEOUT && !s.unsent, "no first byte in time: unknown");
	ask(&s, (struct http_request){ .body = "x", .body_len = 1, .fresh = true }, "/close");
	ok(s.code == ERR_UNREACHABLE && !s.unsent, "a connection cut before the answer: unknown");
	ok(!s.repeated, "and it was sent once");
	ask(&s, (struct http_request){ 0 }, "/echo");
	ask(&s, (struct http_request){ .body = "x", .body_len = 1 }, "/close");
	ok(s.code == ERR_UNREACHABLE && !s.unsent && s.repeated,
	   "a connection that had been there, cut: sent again on another, and said so");
	ask(&s, (struct http_request){ 0 }, "/garbage");
	ok(s.code == ERR_INVALID && !s.unsent && s.dones == 1, "garbage is the server's mistake");
	ask(&s, (struct http_request){ 0 }, "/half");
	ok(s.code == ERR_INVALID && s.status == 0 && s.dones == 1, "so is an answer without a status");
	ask(&s, (struct http_request){ 0 }, "/headers");
	ok(s.code != ERR_NONE && s.dones == 1, "endless headers end");
	ask(&s, (struct http_request){ 0 }, "/short");
	ok(s.code == ERR_INVALID && s.status == 200, "a body shorter than announced is an error");
	ask(&s, (struct http_request){ .limit = 100000 }, "/endless");
	ok(s.code == ERR_FULL && s.body.len <= 100000, "a collected body ends at the limit");
	ask(&s, (struct http_request){ .silence = 200 * NSEC_PER_MS, .data = on_data }, "/silent");
	ok(s.code == ERR_TIMEOUT && s.pieces == 1 && strcmp(s.body.data, "first") == 0,
	   "silence ends a stream; what came was told");
	ask(&s, (struct http_request){ .url = "http://no-such-host.invalid/" }, "");
	ok(s.code == ERR_UNREACHABLE && s.unsent, "an unresolvable host: surely not sent");
	buf_fini(&s.body);
}

static void test_resolver(void)
{
	struct seen s = { 0 };
	struct instant before = clock_now();

	ask(&s, (struct http_request){ .url = "http://hangs.test/", .by = in_ms(200) }, "");
	ok(s.code == ERR_TIMEOUT && s.unsent && __atomic_load_n(&resolving, __ATOMIC_SEQ_CST),
	   "a name that does not resolve in time: surely not sent");
	start(&s, &(struct http_request){ .url = "http://hangs.test/" }, "");
	nap(0.1);
	http_cancel(s.call);
	ok(s.code == ERR_CANCELLED && s.unsent, "one can cancel while the name is being resolved");
	struct http *other = http_new(loop, NULL, NULL), *own = pool;
	pool = other;
	start(&s, &(struct http_request){ .url = "http://hangs.test/" }, "");
	nap(0.1);
	http_free(other);
	pool = own;
	ok(s.dones == 1 && s.code == ERR_CANCELLED, "a lane can be freed meanwhile");
	ok(elapsed_standby(before, clock_now()) < 100 * NSEC_PER_SEC, "the loop never waited for the resolver");
	buf_fini(&s.body);
}

static void test_cancel(void)
{
	struct seen s = { 0 };

	start(&s, &(struct http_request){ .url = NULL }, "/hang");
	http_cancel(s.call);
	ok(s.dones == 1 && s.code == ERR_CANCELLED && s.unsent, "cancelled before the loop turned: surely not sent");
	start(&s, &(struct http_request){ .url = NULL }, "/hang");
	nap(0.1);
	http_cancel(s.call);
	ok(s.dones == 1 && s.code == ERR_CANCELLED && !s.unsent,
	   "cancelled after: unknown; done is called before http_cancel returns");
	s.cancel_at = 5000;
	ask(&s, (struct http_request){ .data = on_data }, "/endless");
	ok(s.dones == 1 && s.code == ERR_CANCELLED, "a call may be cancelled from its own data");
	buf_fini(&s.body);
}

static void test_stream(void)
{
	struct seen s = { 0 };

	ask(&s, (struct http_request){ .data = on_data, .answered = on_answered }, "/lines");
	ok(s.code == ERR_NONE && s.body.len == 250 && s.answers == 1, "a chunked body arrives whole");
	ok(!s.has_trailer, "trailers are no headers");
	s.pause_at = 1;
	start(&s, &(struct http_request){ .data = on_data, .silence = 300 * NSEC_PER_MS }, "/endless");
	while (s.pause_at)
		ev_run(loop, EVRUN_ONCE);
	size_t had = s.body.len;
	nap(0.5);
	ok(s.body.len == had && !s.dones, "paused: nothing is told, and silence does not count");
	http_pause(s.call, false);
	nap(0.2);
	ok(s.body.len > had + 1000000 && !s.dones, "resumed: it goes on");
	http_cancel(s.call);
	s.pause_at = 1;
	start(&s, &(struct http_request){ .data = on_data }, "/lines");
	while (s.pause_at)
		ev_run(loop, EVRUN_ONCE);
	nap(0.2);
	ok(!s.dones, "the end waits while paused");
	http_pause(s.call, false);
	wait_done(&s);
	ok(s.code == ERR_NONE && s.body.len == 250, "and comes with all of the body");
	s.pause_at = 1;
	ask(&s, (struct http_request){ .data = on_data, .by = in_ms(300) }, "/endless");
	ok(s.code == ERR_TIMEOUT, "the deadline counts while paused");
	buf_fini(&s.body);
}

static void test_upload(void)
{
	struct seen s = { .to_send = 32 * 65536 };

	start(&s, &(struct http_request){ .streamed = true, .method = "PUT", .drained = on_drained }, "/echo");
	nap(0.05);
	on_drained(&s, s.call);
	wait_done(&s);
	ok(s.status == 200 && strstr(s.body.data, "PUT /echo") && strstr(s.body.data, "Transfer-Encoding: chunked"),
	   "a streamed body goes chunked");
	ok(s.drains > 2 && s.body.len > 32 * 65536, "all of it, in portions");
	start(&s, &(struct http_request){ .streamed = true, .body_len = 5 }, "/echo");
	http_send(s.call, "he", 2, HTTP_SOME);
	nap(0.05);
	http_send(s.call, "llo", 3, HTTP_LAST);
	wait_done(&s);
	ok(s.status == 200 && strstr(s.body.data, "Content-Length: 5\r\n") && strstr(s.body.data, "\r\n\r\nhello"),
	   "or with its length");
	ask(&s, (struct http_request){ .streamed = true, .body_len = 1 << 30, .data = on_data }, "/early");
	ok(s.dones == 1 && s.status == 200 && s.body.len == 5,
	   "an answer that ends before the body does ends the call");
	ask(&s, (struct http_request){ .streamed = true, .body_len = 1 << 30, .data = on_data }, "/cut");
	ok(s.code == ERR_UNREACHABLE && s.body.len == 5, "one that is cut too, as an error");
	buf_fini(&s.body);
}

static void test_redirects(void)
{
	struct seen s = { 0 };

	ask(&s, (struct http_request){ .answered = on_answered }, "/away");
	ok(s.status == 302 && strcmp(s.body.data, "body") == 0, "a redirect is an answer by default");
	ask(&s, (struct http_request){ .redirects = 3, .answered = on_answered }, "/away");
	ok(s.status == 200 && s.answers == 1 && s.answered_status == 200 && strstr(s.url, "/echo/arrived"),
	   "followed when told to");
	ask(&s, (struct http_request){ .redirects = 3 }, "/loop");
	ok(s.code == ERR_INVALID, "not for ever");
	ask(&s, (struct http_request){ .redirects = 3 }, "/file");
	ok(s.code != ERR_NONE && !(s.body.data && strstr(s.body.data, "root:")), "and never to a file");
	buf_fini(&s.body);
}

static void test_many(void)
{
	enum { COUNT = 300 };
	struct seen *all = mem_zero(COUNT * sizeof *all);
	uint64_t opened = http_stats(pool).opened;
	int good = 0, left = COUNT;

	for (int i = 0; i < COUNT; i++) {
		char path[32];
		snprintf(path, sizeof path, "/echo/%d.", i);
		start(&all[i], &(struct http_request){ .by = in_ms(60000) }, path);
	}
	while (left) {
		ev_run(loop, EVRUN_ONCE);
		left = 0;
		for (int i = 0; i < COUNT; i++)
			left += !all[i].dones;
	}
	for (int i = 0; i < COUNT; i++) {
		char path[32];
		snprintf(path, sizeof path, "/echo/%d. ", i);
		good += all[i].dones == 1 && all[i].code == ERR_NONE && strstr(all[i].body.data, path);
		buf_fini(&all[i].body);
	}
	is_int(good, COUNT, "300 requests at once, each with its own answer");
	ok(http_stats(pool).opened - opened <= 4, "over no more connections than allowed");
	is_int((int64_t)http_stats(pool).calls, 0, "none is left over");
	free(all);
}

static void test_unix(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	char dir[] = "/tmp/lunarch-test-XXXXXX", path[64];
	struct seen s = { 0 };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (!mkdtemp(dir))
		abort();
	snprintf(path, sizeof path, "%s/sock", dir);
	strcpy(a.sun_path, path);
	if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 16) < 0)
		abort();
	pid_t pid = serve(fd);
	ask(&s, (struct http_request){ .url = "http://name/echo", .unix_path = path }, "");
	ok(s.status == 200 && strstr(s.body.data, "Host: name\r\n"), "a Unix socket is connected to");
	kill(pid, SIGKILL);
	close(fd);
	unlink(path);
	ask(&s, (struct http_request){ .url = "http://name/echo", .unix_path = path, .fresh = true }, "");
	ok(s.code != ERR_NONE, "one that is gone is an error");
	rmdir(dir);
	buf_fini(&s.body);
}

static void test_texts(void)
{
	struct buf b = { 0 };
	char *plain = http_url_plain("https://a:b@c@host:1/p/q?x=y#z");

	is_str(plain, "https://host:1/p/q", "a URL for people has no user, password, query");
	free(plain);
	http_base64(&b,
	            "\0\xff\xfe"
	            "abcd",
	            7);
	is_str(b.data, "AP/+YWJjZA==", "base64, standard alphabet with padding");
	struct buf back = { 0 };
	ok(http_unbase64(&back, b.data, b.len) == 0 && back.len == 7 &&
	           memcmp(back.data,
	                  "\0\xff\xfe"
	                  "abcd",
	                  7) == 0,
	   "and back");
	static const char *const bad[] = { "A", "AA", "AAA", "A===", "AA=A", "AP_-", "AA==AAAA", "====", "A A=" };
	int refused = 0;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		refused += http_unbase64(&back, bad[i], strlen(bad[i])) < 0 && back.len == 7;
	is_int(refused, sizeof bad / sizeof *bad, "what is no base64 is refused");
	buf_fini(&b);
	buf_fini(&back);
}

static void test_meanings(void)
{
	static const struct {
		CURLcode code;
		enum err_code unsent, sending, answering;
	} rows[] = {
		{ CURLE_UNSUPPORTED_PROTOCOL, ERR_USAGE, ERR_INVALID, ERR_INVALID }, /* a garbled status line */
		{ CURLE_URL_MALFORMAT, ERR_USAGE, ERR_INVALID, ERR_INVALID },
		{ CURLE_PARTIAL_FILE, ERR_UNREACHABLE, ERR_UNREACHABLE, ERR_INVALID }, /* an upload that was cut */
		{ CURLE_WEIRD_SERVER_REPLY, ERR_INVALID, ERR_INVALID, ERR_INVALID },
		{ CURLE_SEND_ERROR, ERR_UNREACHABLE, ERR_UNREACHABLE, ERR_UNREACHABLE },
		{ CURLE_OPERATION_TIMEDOUT, ERR_TIMEOUT, ERR_TIMEOUT, ERR_TIMEOUT },
	};
	size_t good = 0;

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		good += http_meaning(rows[i].code, HTTP_UNSENT) == rows[i].unsent &&
		        http_meaning(rows[i].code, HTTP_SENDING) == rows[i].sending &&
		        http_meaning(rows[i].code, HTTP_ANSWERING) == rows[i].answering;
	is_int((int)good, sizeof rows / sizeof *rows,
	       "what a code of libcurl's means is judged by how far the call had come");
}

int main(void)
{
	int fd = listen_tcp(&port);
	pid_t pid = serve(fd);

	close(fd);
	signal(SIGPIPE, SIG_IGN);
	loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOENV);
	pool = http_new(loop, &(struct http_options){ .connections = 4 }, NULL);
	test_plain();
	test_wrong_requests();
	test_faults();
	test_resolver();
	test_cancel();
	test_stream();
	test_upload();
	test_redirects();
	test_many();
	test_unix();
	test_texts();
	test_meanings();
	http_free(pool);
	kill(pid, SIGKILL);
	return tap_done();
}
