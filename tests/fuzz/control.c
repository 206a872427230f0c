/* The control socket and the admin endpoint: clients that send the input's bytes, in pieces, and hang up or not. Every
 * request gets one answer at most, which is HTTP, and of the control socket one line of JSON. The parser of requests
 * alone: it stays in its bytes, and what it accepts has the form that it promises. */
#include "fuzz.h"

#include "program/admin.h"
#include "program/control.h"
#include "program/changes.h"
#include "program/events.h"
#include "net/serve/request.h"

#include <ev.h>
#include <jansson.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct control *control;
static struct sockaddr_un control_at = { .sun_family = AF_UNIX }, admin_at = { .sun_family = AF_UNIX };
static uint8_t how;
static uint64_t waits; /* the ticket of the last request that was not answered at once */

static void on_request(void *arg, const struct control_request *r, struct buf *reply)
{
	(void)arg;
	must(r->command && r->election && r->to && r->seconds >= -1 && r->seconds <= 1e9);
	must(r->seconds == -1 || r->seconds >= 0);
	if (how & 1)
		buf_adds(reply, "{\"ok\":true}");
	else if (how & 2)
		control_refuse(reply, "no %s for %s", r->command, r->election);
	else if (how & 4)
		control_answer(control, r->ticket, &(struct buf){ .data = "{}", .len = 2 });
	else
		waits = r->ticket;
}

static void no_elections(void *arg, void (*each)(void *each_arg, const struct standing *e), void *each_arg)
{
	(void)arg, (void)each, (void)each_arg;
}

/* One answer after the other. */
static void heard(int fd, bool json_alone)
{
	static char bytes[65536];
	ssize_t n = recv(fd, bytes, sizeof bytes - 1, MSG_DONTWAIT);

	bytes[n > 0 ? n : 0] = '\0';
	for (char *p = bytes, *end = n > 0 ? bytes + n : bytes; p < end;) {
		must(strncmp(p, "HTTP/1.1 ", 9) == 0);
		char *body = strstr(p, "\r\n\r\n"), *length = strstr(p, "\r\nContent-Length: ");
		if (!body || !length || length > body)
			return; /* the rest is on its way, or it is a stream */
		size_t len = strtoul(length + 18, NULL, 10);
		body += 4;
		if (strncmp(body, "HTTP/1.1 ", 9) == 0)
			len = 0; /* the answer to HEAD has no body */
		if (len > (size_t)(end - body))
			return;
		if (json_alone && len && memcmp(p + 9, "400", 3) != 0 && memcmp(p + 9, "200", 3) == 0) {
			json_t *json = json_loadb(body, len, 0, NULL);
			must(json_is_object(json));
			json_decref(json);
		}
		p = body + len;
	}
}

static void parse_alone(const uint8_t *data, size_t size)
{
	struct request r;
	size_t len = size < REQUEST_MAX ? size : REQUEST_MAX;
	char *bytes = malloc(len + 1);

	memcpy(bytes, data, len);
	bytes[len] = '\0';
	int used = request_parse(&r, bytes, len);
	must(used <= (int)len && (used >= 0 || (used <= -400 && used > -600)));
	if (used > 0) {
		must(*r.method && (*r.path == '/' || strcmp(r.path, "*") == 0) && r.params <= REQUEST_PARAMS);
		for (size_t i = 0; i < r.params; i++)
			must(r.param[i].name && r.param[i].value);
		must(!r.host || !strpbrk(r.host, "\r\n"));
	} else if (used == 0) {
		must(memcmp(bytes, data, len) == 0);
	}
	free(bytes);
}

static void talk(struct ev_loop *loop, struct input in, bool json_alone)
{
	const struct sockaddr_un *at = json_alone ? &control_at : &admin_at;
	uint8_t piece = input_byte(&in);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (connect(fd, (const struct sockaddr *)at, sizeof *at) < 0)
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
	if (how & 8 && json_alone)
		control_answer(control, waits, &(struct buf){ .data = "{}", .len = 2 });
	ev_run(loop, EVRUN_NOWAIT);
	heard(fd, json_alone);
	if (how & 32)
		ev_run(loop, EVRUN_NOWAIT);
	close(fd);
	ev_run(loop, EVRUN_NOWAIT);
}

/* Both servers last: to bind a socket for each input costs more than what is said over it. */
static struct ev_loop *serve_once(void)
{
	static const struct standing_source source = { .list = no_elections };
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
	struct changes *changes = changes_new(loop, &source);
	struct events *events = events_new(&source, changes);
	char address[sizeof admin_at.sun_path + 10];
	struct err err;

	fuzz_silence();
	snprintf(control_at.sun_path, sizeof control_at.sun_path, "/tmp/lunarch-fuzz-%d.sock", (int)getpid());
	snprintf(admin_at.sun_path, sizeof admin_at.sun_path, "/tmp/lunarch-fuzz-%d-admin.sock", (int)getpid());
	snprintf(address, sizeof address, "unix:%s", admin_at.sun_path);
	control = control_new(loop, control_at.sun_path, on_request, NULL, events, &err);
	must(control && admin_new(loop, address, &source, events, &err));
	return loop;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct ev_loop *loop;
	struct input in = { data, size };

	if (!loop)
		loop = serve_once();
	parse_alone(data, size);
	how = input_byte(&in);
	talk(loop, in, !(how & 64));
	return 0;
}
