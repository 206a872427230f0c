#include "runner/control.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define CLIENTS_MAX 64
#define REQUEST_MAX 4096
#define REPLY_MAX (64 * 1024 * 1024) /* client: a thousand elections with their histories fit many times over */

struct control_client {
	struct control *control;
	ev_io reads, writes;
	struct buf in, out;
	bool waits;                  /* its answer is not known yet */
	uint64_t ticket;             /* of the request that it waits for, */
	char command[16];            /*     and what that asks for */
	struct control_client *next; /* newest first */
};

struct control {
	struct ev_loop *loop;
	ev_io accepts;
	char *path;
	control_handler *handler;
	void *arg;
	struct control_client *clients;
	uint64_t tickets; /* so many were given */
};

/* ---- one client ---- */

static void client_free(struct control_client *c)
{
	struct control_client **at = &c->control->clients;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	ev_io_stop(c->control->loop, &c->reads);
	ev_io_stop(c->control->loop, &c->writes);
	close(c->reads.fd);
	buf_fini(&c->in);
	buf_fini(&c->out);
	free(c);
}

void control_refuse(struct buf *reply, const char *fmt, ...)
{
	char text[1000];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	buf_adds(reply, "{\"ok\":false,\"error\":");
	buf_json(reply, text);
	buf_adds(reply, "}");
}

static void control_handle_parsed(struct control_client *client, const json_t *json, struct buf *reply)
{
	struct control *c = client->control;
	const json_t *seconds = json_object_get(json, "seconds");
	const char *election = json_string_value(json_object_get(json, "election"));
	const char *to = json_string_value(json_object_get(json, "to"));
	struct control_request r = {
		.command = json_string_value(json_object_get(json, "command")),
		.election = election ? election : "",
		.to = to ? to : "",
		.seconds = seconds ? json_number_value(seconds) : -1,
		.ticket = ++c->tickets,
	};

	if (!r.command)
		control_refuse(reply, "the request has no \"command\"");
	else if (seconds && (!json_is_number(seconds) || r.seconds < 0 || r.seconds > 1e9))
		control_refuse(reply, "\"seconds\" must be a number from 0 to 1e9");
	if (reply->len)
		return;
	client->ticket = r.ticket;
	snprintf(client->command, sizeof client->command, "%s", r.command);
	c->handler(c->arg, &r, reply);
}

/* Leaves reply empty if the answer is not known yet. */
static void control_handle(struct control_client *client, const char *line, size_t len, struct buf *reply)
{
	json_error_t error;
	json_t *json = json_loadb(line, len, 0, &error);

	if (json_is_object(json))
		control_handle_parsed(client, json, reply);
	else
		control_refuse(reply, "a request is one JSON object on one line%s%s", json ? "" : ": ",
		               json ? "" : error.text);
	if (reply->len)
		buf_adds(reply, "\n");
	json_decref(json);
}

static void client_send(struct control_client *c)
{
	ev_io_stop(c->control->loop, &c->reads);
	ev_io_start(c->control->loop, &c->writes);
}

/* One request at a time: the next is read when the answer to this one has been sent. So a client that never
 * reads its answers makes us keep one. */
static void client_answer_next(struct control_client *c)
{
	char *newline = c->in.len ? memchr(c->in.data, '\n', c->in.len) : NULL;

	if (!newline || c->out.len || c->waits)
		return;
	size_t len = (size_t)(newline - c->in.data);
	c->waits = true; /* until there is an answer; the handler may call control_finish or control_answer */
	struct buf reply = { 0 };
	control_handle(c, c->in.data, len, &reply);
	buf_drop(&c->in, len + 1);
	if (reply.len) {
		c->waits = false;
		buf_add(&c->out, reply.data, reply.len);
		client_send(c);
	}
	buf_fini(&reply);
}

void control_answer(struct control *control, uint64_t ticket, const struct buf *reply)
{
	struct control_client *c = control ? control->clients : NULL;

	while (c && !(c->waits && c->ticket == ticket))
		c = c->next;
	if (!c)
		return;
	c->waits = false;
	buf_add(&c->out, reply->data, reply->len);
	buf_adds(&c->out, "\n");
	client_send(c);
	/* The loop may be about to end. What does not go now is sent, or fails, when the socket is writable. */
	ssize_t n = send(c->writes.fd, c->out.data, c->out.len, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n > 0)
		buf_drop(&c->out, (size_t)n);
}

void control_finish(struct control *control, const char *command, const char *error)
{
	for (struct control_client *c = control ? control->clients : NULL; c; c = c->next) {
		if (!c->waits || strcmp(c->command, command) != 0)
			continue;
		c->waits = false;
		if (error)
			control_refuse(&c->out, "%s", error);
		else
			buf_adds(&c->out, "{\"ok\":true}");
		buf_adds(&c->out, "\n");
		client_send(c);
	}
}

static void client_on_readable(struct ev_loop *loop, ev_io *w, int events)
{
	struct control_client *c = w->data;
	char bytes[REQUEST_MAX];

	(void)loop, (void)events;
	ssize_t n = recv(w->fd, bytes, sizeof bytes - c->in.len, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) { /* the client closed, failed, or sent a line longer than any request */
		client_free(c);
		return;
	}
	buf_add(&c->in, bytes, (size_t)n);
	client_answer_next(c);
}

static void client_on_writable(struct ev_loop *loop, ev_io *w, int events)
{
	struct control_client *c = w->data;

	(void)events;
	ssize_t n = send(w->fd, c->out.data, c->out.len, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0) {
		client_free(c);
		return;
	}
	buf_drop(&c->out, (size_t)n);
	if (c->out.len)
		return;
	ev_io_stop(loop, w);
	ev_io_start(loop, &c->reads);
	client_answer_next(c);
}

/* The file's mode keeps others out already. But modes are changed by hand, and a descriptor can be handed on: whoever
 * may give orders is asked from the kernel (unix(7), SO_PEERCRED: who they were at connect(2)). */
static bool peer_may_ask(int fd, uid_t *peer)
{
	struct ucred who = { .uid = (uid_t)-1 };
	socklen_t len = sizeof who;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0)
		who.uid = (uid_t)-1;
	*peer = who.uid;
	return who.uid == geteuid() || who.uid == 0;
}

/* An answer is smaller than any socket's buffer; what does not go at once is not sent. */
static void refuse_peer(int fd, uid_t peer)
{
	struct buf reply = { 0 };

	control_refuse(&reply, "this elector takes orders from user %u and from root alone; you are user %u",
	               (unsigned)geteuid(), (unsigned)peer);
	buf_adds(&reply, "\n");
	(void)!send(fd, reply.data, reply.len, MSG_DONTWAIT | MSG_NOSIGNAL);
	buf_fini(&reply);
	close(fd);
}

static void control_on_connection(struct ev_loop *loop, ev_io *w, int events)
{
	struct control *c = w->data;
	struct control_client *new, *oldest = c->clients;
	int count = 1;

	(void)events;
	uid_t peer;
	int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return;
	if (!peer_may_ask(fd, &peer)) {
		refuse_peer(fd, peer);
		return;
	}
	for (; oldest && oldest->next; oldest = oldest->next)
		count++;
	if (count >= CLIENTS_MAX) /* the oldest connection is closed for the new one */
		client_free(oldest);
	new = mem_zero(sizeof *new);
	*new = (struct control_client){ .control = c, .next = c->clients };
	c->clients = new;
	ev_io_init(&new->reads, client_on_readable, fd, EV_READ);
	ev_io_init(&new->writes, client_on_writable, fd, EV_WRITE);
	new->reads.data = new->writes.data = new;
	ev_io_start(loop, &new->reads);
}

/* ---- the socket ---- */

static int control_address(const char *path, struct sockaddr_un *sa, struct err *err)
{
	*sa = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (strlen(path) >= sizeof sa->sun_path)
		return err_set(err, ERR_USAGE, "%s: too long for a socket's path, of which the kernel takes %zu bytes",
		               path, sizeof sa->sun_path - 1);
	memcpy(sa->sun_path, path, strlen(path) + 1);
	return 0;
}

/* A connected socket, or -1 with errno. While the listener's queue is full it waits, for at most timeout_ms (0: not at
 * all), then fails with EAGAIN. unix(7): connect obeys SO_SNDTIMEO. */
static int control_connect(const struct sockaddr_un *sa, int timeout_ms)
{
	struct timeval timeout = { .tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000 };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | (timeout_ms ? 0 : SOCK_NONBLOCK), 0);

	if (fd >= 0 &&
	    (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) < 0 ||
	     connect(fd, (const struct sockaddr *)sa, sizeof *sa) < 0 || fcntl(fd, F_SETFL, O_NONBLOCK) < 0)) {
		int error = errno;
		close(fd);
		errno = error;
		return -1;
	}
	return fd;
}

int control_remove_stale(const char *path)
{
	struct sockaddr_un sa;
	struct stat st;

	if (control_address(path, &sa, NULL) < 0)
		return -1;
	int fd = control_connect(&sa, 0);
	if (fd >= 0) {
		close(fd);
		return -1;
	}
	if (errno != ECONNREFUSED || lstat(path, &st) < 0 || !S_ISSOCK(st.st_mode))
		return -1;
	return unlink(path);
}

/* Listens at path, which is a new file. -1 with *err. */
static int control_listen(const char *path, struct err *err)
{
	struct sockaddr_un sa;

	if (control_address(path, &sa, err) < 0)
		return -1;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_sys(err, "socket");
	fchmod(fd, 0600); /* before bind, which gives the file this mode: at no time can other users connect */
	int failed = bind(fd, (struct sockaddr *)&sa, sizeof sa);
	if (failed && errno == EADDRINUSE && control_remove_stale(path) == 0)
		failed = bind(fd, (struct sockaddr *)&sa, sizeof sa);
	if (!failed && listen(fd, CLIENTS_MAX) == 0)
		return fd;
	err_sys(err, "%s: cannot listen", path);
	close(fd);
	return -1;
}

/* Gives the socket at first its name, which nobody may have who listens. */
static int control_publish(const char *first, const char *path, struct err *err)
{
	if (link(first, path) == 0)
		return 0;
	if (errno != EEXIST)
		return err_sys(err, "%s: cannot listen", path);
	if (control_remove_stale(path) == 0 && link(first, path) == 0)
		return 0;
	return err_set(err, ERR_USAGE, "%s is in use already: choose another with --control", path);
}

/* A socket that is bound and does not listen yet refuses connections, as one does whose process is dead. So it gets the
 * name at which others look for it when it listens. PID.new is no longer than PID.sock: it fits where that does. */
static int control_open(const char *path, struct err *err)
{
	struct sockaddr_un sa;
	const char *slash = strrchr(path, '/');

	if (control_address(path, &sa, err) < 0)
		return -1;
	char *first = mem_printf("%.*s%d.new", slash ? (int)(slash + 1 - path) : 0, path, (int)getpid());
	int fd = control_listen(first, err);
	if (fd >= 0) {
		int failed = control_publish(first, path, err);
		unlink(first);
		if (failed) {
			close(fd);
			fd = -1;
		}
	}
	free(first);
	return fd;
}

struct control *control_new(struct ev_loop *loop, const char *path, control_handler *handler, void *arg,
                            struct err *err)
{
	char cwd[PATH_MAX];
	int fd = control_open(path, err);

	if (fd < 0)
		return NULL;
	struct control *c = mem_zero(sizeof *c);
	*c = (struct control){ .loop = loop, .handler = handler, .arg = arg };
	c->path = *path != '/' && getcwd(cwd, sizeof cwd) ? mem_printf("%s/%s", cwd, path) : mem_dup(path);
	ev_io_init(&c->accepts, control_on_connection, fd, EV_READ);
	c->accepts.data = c;
	ev_io_start(loop, &c->accepts);
	return c;
}

const char *control_path(const struct control *c)
{
	return c->path;
}

void control_free(struct control *c)
{
	if (!c)
		return;
	while (c->clients)
		client_free(c->clients);
	ev_io_stop(c->loop, &c->accepts);
	unlink(c->path);
	close(c->accepts.fd);
	free(c->path);
	free(c);
}

/* ---- the client ---- */

static int control_wait(int fd, short events, struct instant by, struct err *err)
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

static int control_send_line(int fd, const char *line, struct instant by, struct err *err)
{
	struct buf b = { 0 };
	int failed = 0;

	buf_printf(&b, "%s\n", line);
	while (b.len && !failed) {
		ssize_t n = send(fd, b.data, b.len, MSG_NOSIGNAL);
		if (n > 0)
			buf_drop(&b, (size_t)n);
		else if (errno == EAGAIN)
			failed = control_wait(fd, POLLOUT, by, err);
		else if (errno == EPIPE) /* it has closed, and may have said why */
			buf_drop(&b, b.len);
		else if (errno != EINTR)
			failed = err_sys(err, "cannot ask");
	}
	buf_fini(&b);
	return failed;
}

static int control_receive_line(int fd, struct buf *reply, struct instant by, struct err *err)
{
	char bytes[16 * 1024];

	while (reply->len < REPLY_MAX) {
		if (control_wait(fd, POLLIN, by, err) < 0)
			return -1;
		ssize_t n = recv(fd, bytes, sizeof bytes, 0);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (n < 0)
			return err_sys(err, "no answer");
		if (n == 0)
			return err_set(err, ERR_INVALID, "it hung up before its answer was complete");
		buf_add(reply, bytes, (size_t)n);
		if (bytes[n - 1] == '\n') {
			reply->data[--reply->len] = '\0';
			return 0;
		}
	}
	return err_set(err, ERR_INVALID, "the answer does not end");
}

int control_ask(const char *path, const char *request, int timeout_s, struct buf *reply, struct err *err)
{
	struct instant by = instant_add(clock_now(), timeout_s * NSEC_PER_SEC);
	struct sockaddr_un sa;

	if (control_address(path, &sa, err) < 0)
		return -1;
	int fd = control_connect(&sa, timeout_s * 1000);
	if (fd < 0 && errno == ECONNREFUSED)
		return err_set(err, ERR_MISSING, "%s: nobody listens there any more", path);
	if (fd < 0 && errno == EAGAIN)
		return err_set(err, ERR_TIMEOUT, "%s: it accepts no connection within %d s", path, timeout_s);
	if (fd < 0)
		return err_sys(err, "%s", path);
	int failed = control_send_line(fd, request, by, err) < 0 || control_receive_line(fd, reply, by, err) < 0;
	close(fd);
	return failed ? err_wrap(err, "%s", path) : 0;
}
