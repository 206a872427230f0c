#include "runner/admin_server.h"

#include "base/mem.h"
#include "base/module.h"

#include <ev.h>
#include <microhttpd.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONNECTIONS_MAX 64
#define IDLE_S 15u

struct admin_server {
	struct ev_loop *loop;
	struct MHD_Daemon *daemon;
	admin_handler *handler;
	void *arg;
	ev_io ready;    /* the daemon's epoll descriptor: readable when one of its sockets is */
	ev_timer timer; /* for its time limits */
};

static void server_run(struct admin_server *s)
{
	MHD_UNSIGNED_LONG_LONG wait_ms;

	MHD_run(s->daemon);
	ev_timer_stop(s->loop, &s->timer);
	if (MHD_get_timeout(s->daemon, &wait_ms) != MHD_YES)
		return;
	ev_timer_set(&s->timer, (double)wait_ms / 1e3, 0.);
	ev_timer_start(s->loop, &s->timer);
}

static void server_on_ready(struct ev_loop *loop, ev_io *w, int revents)
{
	(void)loop;
	(void)revents;
	server_run(w->data);
}

static void server_on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop;
	(void)revents;
	server_run(w->data);
}

/* allow: with the methods that there are. */
static enum MHD_Result respond(struct MHD_Connection *c, int status, const char *type, const struct buf *body,
                               bool allow)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(body->len, body->data, MHD_RESPMEM_MUST_COPY);
	enum MHD_Result done = MHD_NO;

	if (!r)
		return MHD_NO;
	MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
	if (allow)
		MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD, OPTIONS");
	done = MHD_queue_response(c, (unsigned)status, r);
	MHD_destroy_response(r);
	return done;
}

/* Called once with the headers (*seen is NULL), then for the body, of which GET has none (libmicrohttpd's contract). */
static enum MHD_Result server_on_request(void *arg, struct MHD_Connection *c, const char *path, const char *method,
                                         const char *version, const char *upload, size_t *upload_len, void **seen)
{
	static int mark;
	struct admin_server *s = arg;
	struct buf body = { 0 };
	const char *type = "text/plain; charset=utf-8";
	int status = MHD_HTTP_METHOD_NOT_ALLOWED;
	bool options = strcmp(method, MHD_HTTP_METHOD_OPTIONS) == 0; /* HAProxy's health checks ask by it */

	(void)version;
	(void)upload;
	if (!*seen) {
		*seen = &mark;
		return MHD_YES;
	}
	if (*upload_len) {
		*upload_len = 0;
		return MHD_YES;
	}
	if (strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0 || options)
		status = s->handler(s->arg, path, &body, &type);
	else
		buf_adds(&body, "only GET, HEAD and OPTIONS\n");
	if (options)
		buf_drop(&body, body.len);
	enum MHD_Result done = respond(c, status, type, &body, options || status == MHD_HTTP_METHOD_NOT_ALLOWED);
	buf_fini(&body);
	return done;
}

static void server_close(struct admin_server *s)
{
	ev_io_stop(s->loop, &s->ready);
	ev_timer_stop(s->loop, &s->timer);
	MHD_stop_daemon(s->daemon);
	free(s);
}

static struct admin_server *server_open(struct ev_loop *loop, int fd, admin_handler *handler, void *arg,
                                        struct err *err)
{
	struct admin_server *s = mem_zero(sizeof *s);

	*s = (struct admin_server){ .loop = loop, .handler = handler, .arg = arg };
	s->daemon =
		MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, server_on_request, s, MHD_OPTION_LISTEN_SOCKET, fd,
	                         MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
	                         IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)16384, MHD_OPTION_END);
	const union MHD_DaemonInfo *info = s->daemon ? MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
	if (!info) {
		err_set(err, ERR_SYSTEM, "libmicrohttpd %s did not start", MHD_get_version());
		close(fd);
		free(s);
		return NULL;
	}
	ev_io_init(&s->ready, server_on_ready, info->epoll_fd, EV_READ);
	ev_timer_init(&s->timer, server_on_timer, 0., 0.);
	s->ready.data = s->timer.data = s;
	ev_io_start(loop, &s->ready);
	return s;
}

static void name_libraries(struct buf *out)
{
	buf_printf(out, "libmicrohttpd %s", MHD_get_version());
}

static const struct admin_server_ops ops = { .serve = server_open, .close = server_close };
const struct module lunarch_module = { .build = LUNARCH_BUILD, .libraries = name_libraries, .admin = &ops };
