/* Requests as hostile clients send them, byte by byte; a stream whose reader does not read. */
#include "tap.h"

#include "net/serve/listener.h"
#include "net/serve/server.h"

#include <ev.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- requests ---- */

static int parse(const char *text, struct request *r, char *bytes)
{
	strcpy(bytes, text);
	return request_parse(r, bytes, strlen(text));
}

static void test_accepted(void)
{
	static const char text[] = "\r\nGET http://h:1/a%20b%2Fc?x=1+2&election=%C3%A4&flag HTTP/1.1\r\n"
				   "HOST: h \r\naccept:  a/b, text/html;q=0.8\r\n\r\nrest";
	char bytes[REQUEST_MAX];
	struct request r;

	is_int(parse(text, &r, bytes), (long)(sizeof text - 1 - 4), "a request ends with its empty line");
	is_str(r.method, "GET", "its method");
	is_str(r.path, "/a b/c", "its path, decoded");
	is_str(request_param(&r, "x"), "1 2", "a parameter");
	is_str(request_param(&r, "election"), "\xc3\xa4", "another");
	is_str(request_param(&r, "flag"), "", "one without a value");
	ok(request_param(&r, "y") == NULL, "and none");
	is_str(r.host, "h", "its host, without the spaces around it");
	ok(r.html && r.keep, "it is a browser's, and the connection stays");
	ok(parse("GET / HTTP/1.0\n\n", &r, bytes) == 16 && !r.keep && !r.html, "HTTP/1.0 needs no host, and closes");
	ok(parse("GET / HTTP/1.1\nHost: a\nConnection: Close\n\n", &r, bytes) > 0 && !r.keep, "as who says so");
}

static void test_incomplete(void)
{
	static const char text[] = "POST /resign?seconds=5 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";
	char bytes[REQUEST_MAX];
	struct request r;
	int wrong = 0;

	for (size_t len = 0; len < sizeof text - 1; len++) {
		memcpy(bytes, text, sizeof text);
		bytes[len] = '\0';
		wrong += request_parse(&r, bytes, len) != 0 || memcmp(bytes, text, len) != 0;
	}
	is_int(wrong, 0, "however it is cut, it is waited for, and its bytes stay as they are");
}

static void test_refused(void)
{
	static const struct {
		const char *text;
		int status;
	} refused[] = {
		{ "{\"command\":\"status\"}\n", 400 },
		{ "GET /\r\n", 400 },
		{ "GET  / HTTP/1.1\r\n", 400 },
		{ "GET / x HTTP/1.1\r\n", 400 },
		{ "get / HTTP/1.1\r\n", 400 },
		{ "GET / HTTP/3.0\r\n", 505 },
		{ "GET x HTTP/1.0\r\n\r\n", 400 },
		{ "GET /%0 HTTP/1.0\r\n\r\n", 400 },
		{ "GET /%00 HTTP/1.0\r\n\r\n", 400 },
		{ "GET /?a=%zz HTTP/1.0\r\n\r\n", 400 },
		{ "GET /?a&b&c&d&e&f&g&h&i HTTP/1.0\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\x01\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n", 400 }, /* a CR that ends no line */
		{ "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n", 413 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\n\r\n", 501 },
	};
	char bytes[REQUEST_MAX], shown[200];
	struct request r;

	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
		ok(parse(refused[i].text, &r, bytes) == -refused[i].status, "%d: %s", refused[i].status,
		   strtok(strcpy(shown, refused[i].text), "\r\n"));
	memset(bytes, 'x', sizeof bytes);
	memcpy(bytes, "GET / HTTP/1.1\r\n", 16);
	is_int(request_parse(&r, bytes, sizeof bytes), -431, "a head without an end is refused when it is too long");
}

/* ---- streams ---- */

static void on_request(void *arg, const struct request *r, uint64_t ticket, struct http_answer *a)
{
	(void)arg, (void)r, (void)ticket;
	a->streams = true;
}

static int follow(struct ev_loop *loop, const char *path, const struct server *s, size_t count)
{
	static const char request[] = "GET /events HTTP/1.0\r\n\r\n";
	struct sockaddr_un sa;

	listener_address(path, &sa, NULL);
	int fd = listener_connect(&sa, 1000);
	if (write(fd, request, sizeof request - 1) < 0)
		exit(1);
	while (server_streams(s) < count)
		ev_run(loop, EVRUN_ONCE);
	return fd;
}

static void test_streams(void)
{
	static char bytes[1 << 16];
	char dir[] = "/tmp/lunarch-serve-XXXXXX", path[sizeof dir + 10];
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOENV);
	struct buf message = { 0 };
	struct err err = { 0 };

	if (!mkdtemp(dir))
		exit(1);
	snprintf(path, sizeof path, "%s/s.sock", dir);
	struct server *s =
		server_new(loop, listener_unix(path, 0600, &err), &(struct server_options){ .handler = on_request });
	int lazy = follow(loop, path, s, 1), eager = follow(loop, path, s, 2);
	memset(bytes, 'x', sizeof bytes);
	buf_add(&message, bytes, sizeof bytes);
	for (int i = 0; i < 64 && server_streams(s) == 2; i++) {
		server_push(s, &message);
		for (int turn = 0; turn < 8; turn++) {
			ev_run(loop, EVRUN_NOWAIT);
			while (recv(eager, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
				ev_run(loop, EVRUN_NOWAIT);
		}
	}
	is_int((long)server_streams(s), 1, "a reader that leaves more than a stream's limit unread is closed");
	server_push(s, &message);
	ev_run(loop, EVRUN_NOWAIT);
	ok(recv(eager, bytes, sizeof bytes, MSG_DONTWAIT) > 0, "who reads stays");
	close(lazy);
	close(eager);
	server_free(s);
	buf_fini(&message);
	ev_loop_destroy(loop);
	unlink(path);
	rmdir(dir);
}

int main(void)
{
	test_accepted();
	test_incomplete();
	test_refused();
	test_streams();
	return tap_done();
}
