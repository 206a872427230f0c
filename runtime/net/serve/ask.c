#include "net/serve/ask.h"

#include "base/clock.h"
#include "net/serve/listener.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define VERSION "HTTP/1.1 "
#define ANSWER_MAX (64 * 1024 * 1024) /* a thousand elections with their histories fit many times over */

static int ask_wait(int fd, short events, struct instant by, struct err *err)
{
	struct pollfd p = { .fd = fd, .events = events };
	int n;

	do
		n = poll(&p, 1, (int)(instant_until(by, clock_now()) / NSEC_PER_MS));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_sys(err, "poll");
	return n ? 0 : err_set(err, ERR_TIMEOUT, "it has not answered in time");
}

static int ask_send(int fd, struct buf *b, struct instant by, struct err *err)
{
	int failed = 0;

	while (b->len && !failed) {
		ssize_t n = send(fd, b->data, b->len, MSG_NOSIGNAL);
		if (n > 0)
			buf_drop(b, (size_t)n);
		else if (errno == EAGAIN)
			failed = ask_wait(fd, POLLOUT, by, err);
		else if (errno == EPIPE) /* it has closed, and may have said why */
			buf_drop(b, b->len);
		else if (errno != EINTR)
			failed = err_sys(err, "cannot ask");
	}
	return failed;
}

static bool is_http(const struct buf *answer)
{
	return strncmp(answer->data, VERSION, strlen(VERSION)) == 0;
}

/* Reads until the server closes, as it was asked to. */
static int ask_receive(int fd, struct buf *answer, struct instant by, struct err *err)
{
	char bytes[16 * 1024];

	while (answer->len < ANSWER_MAX) {
		if (ask_wait(fd, POLLIN, by, err) < 0)
			return -1;
		ssize_t n = recv(fd, bytes, sizeof bytes, 0);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		/* Reset behind an answer: the server has refused without reading the whole request. */
		if (n < 0 && !(errno == ECONNRESET && answer->len))
			return err_sys(err, "no answer");
		if (n <= 0)
			return 0;
		buf_add(answer, bytes, (size_t)n);
		if (answer->len >= strlen(VERSION) && !is_http(answer)) /* it may wait for more of us */
			return 0;
	}
	return err_set(err, ERR_INVALID, "the answer does not end");
}

/* Leaves the body. An elector of an older version answers with a line of JSON. */
static int ask_take_body(struct buf *answer, struct err *err)
{
	static const char length[] = "\r\nContent-Length: ";
	const char *end = answer->len ? strstr(answer->data, "\r\n\r\n") : NULL;
	const char *at = end ? strstr(answer->data, length) : NULL;

	if (!answer->len)
		return err_set(err, ERR_INVALID, "it hung up without an answer");
	if (!is_http(answer))
		return err_set(err, ERR_INVALID,
		               "it does not speak HTTP: perhaps it is an elector of an older version, which its own "
		               "version of this command can ask");
	if (!at || at > end)
		return err_set(err, ERR_INVALID, "it hung up before its answer was complete");
	size_t head = (size_t)(end + 4 - answer->data);
	if (strtoul(at + sizeof length - 1, NULL, 10) != answer->len - head)
		return err_set(err, ERR_INVALID, "it hung up before its answer was complete");
	buf_drop(answer, head);
	return 0;
}

int ask_unix(const char *path, const char *method, const char *target, int timeout_s, struct buf *body, struct err *err)
{
	struct instant by = instant_add(clock_now(), timeout_s * NSEC_PER_SEC);
	struct buf request = { 0 };
	struct sockaddr_un sa;

	if (listener_address(path, &sa, err) < 0)
		return -1;
	int fd = listener_connect(&sa, timeout_s * 1000);
	if (fd < 0 && errno == ECONNREFUSED)
		return err_set(err, ERR_MISSING, "%s: nobody listens there any more", path);
	if (fd < 0 && errno == EAGAIN)
		return err_set(err, ERR_TIMEOUT, "%s: it accepts no connection within %d s", path, timeout_s);
	if (fd < 0)
		return err_sys(err, "%s", path);
	buf_printf(&request, "%s %s HTTP/1.1\r\nHost: lunarch\r\nConnection: close\r\n\r\n", method, target);
	int failed = ask_send(fd, &request, by, err) < 0 || ask_receive(fd, body, by, err) < 0 ||
	             ask_take_body(body, err) < 0;
	buf_fini(&request);
	close(fd);
	return failed ? err_wrap(err, "%s", path) : 0;
}

void ask_encode(struct buf *out, const char *text)
{
	for (; *text; text++)
		buf_printf(out, isalnum((unsigned char)*text) || strchr("-._~", *text) ? "%c" : "%%%02X",
		           (unsigned char)*text);
}
