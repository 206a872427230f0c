/* What `lunarch ctl` hears at the control socket of an elector, which may be another user's: the input, and then
 * nothing more. A body is taken for one only if it is whole. */
#include "fuzz.h"

#include "net/serve/ask.h"
#include "net/serve/listener.h"

#include <sys/socket.h>
#include <unistd.h>

static int asked;

int listener_address(const char *path, struct sockaddr_un *sa, struct err *err)
{
	(void)path, (void)sa, (void)err;
	return 0;
}

int listener_connect(const struct sockaddr_un *sa, int timeout_ms)
{
	(void)sa, (void)timeout_ms;
	return asked;
}

/* As RFC 9112 has it, of an answer whose every line ends with CR LF. */
static void judge(const struct input *answer, const struct buf *body)
{
	const char *text = (const char *)answer->at, *end = memmem(text, answer->left, "\r\n\r\n", 4);
	const char *length = memmem(text, answer->left, "\r\nContent-Length: ", 18);

	must(answer->left > 9 && memcmp(text, "HTTP/1.1 ", 9) == 0 && end && length && length <= end);
	must(body->len == (size_t)(text + answer->left - end) - 4);
	must(body->len == 0 || memcmp(body->data, end + 4, body->len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct input answer = { data, size };
	struct buf body = { 0 };
	struct err err = { 0 };
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0 ||
	    send(ends[1], data, size, MSG_NOSIGNAL) != (ssize_t)size)
		abort();
	asked = ends[0];
	shutdown(ends[1], SHUT_WR);
	if (ask_unix("/x", "GET", "/status", 60, &body, &err) == 0)
		judge(&answer, &body);
	else
		must(err.code != ERR_NONE && *err.text);
	close(ends[1]);
	buf_fini(&body);
	return 0;
}
