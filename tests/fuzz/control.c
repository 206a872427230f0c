/* The control socket: clients that send the input's bytes, in pieces, and hang up or not. Every request gets one answer
 * at most, which is one line of JSON. */
#include "fuzz.h"

#include "runner/control.h"

#include <ev.h>
#include <jansson.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct control *control;
static struct sockaddr_un at = { .sun_family = AF_UNIX };
static uint8_t how;

static void on_request(void *arg, const struct control_request *r, struct buf *reply)
{
	(void)arg;
	must(r->command && r->election && r->to && r->seconds >= -1 && r->seconds <= 1e9);
	if (how & 1)
		buf_adds(reply, "{\"ok\":true}");
	else if (how & 2)
		control_refuse(reply, "no %s for %s", r->command, r->election);
	else if (how & 4)
		control_answer(control, r->ticket, &(struct buf){ .data = "{}", .len = 2 });
}

static void heard(int fd)
{
	char bytes[8192];
	ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);

	for (char *p = bytes, *end = n > 0 ? bytes + n : bytes; p < end;) {
		char *line = memchr(p, '\n', (size_t)(end - p));
		if (!line)
			return; /* the rest is on its way */
		json_t *json = json_loadb(p, (size_t)(line - p), 0, NULL);
		must(json_is_object(json));
		json_decref(json);
		p = line + 1;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct ev_loop *loop;
	struct input in = { data, size };
	struct err err;

	if (!loop) {
		fuzz_silence();
		loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
		snprintf(at.sun_path, sizeof at.sun_path, "/tmp/lunarch-fuzz-%d.sock", (int)getpid());
		unlink(at.sun_path);
	}
	control = control_new(loop, at.sun_path, on_request, NULL, &err);
	must(control);
	how = input_byte(&in);
	uint8_t piece = input_byte(&in);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (connect(fd, (struct sockaddr *)&at, sizeof at) < 0)
		abort();
	for (int i = 0; i < 40 && in.left; i++) {
		size_t n = piece && piece < in.left ? piece : in.left;
		n = n < 4000 ? n : 4000;
		if (send(fd, in.at, n, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			break;
		in.at += n;
		in.left -= n;
		ev_run(loop, EVRUN_NOWAIT);
		ev_run(loop, EVRUN_NOWAIT);
	}
	if (how & 8)
		control_finish(control, "release", how & 16 ? "no" : NULL);
	ev_run(loop, EVRUN_NOWAIT);
	heard(fd);
	if (how & 32)
		ev_run(loop, EVRUN_NOWAIT);
	close(fd);
	ev_run(loop, EVRUN_NOWAIT);
	control_free(control);
	return 0;
}
