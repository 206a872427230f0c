#include "locks/zookeeper/zk_link.h"

#include "base/buf.h"
#include "base/mem.h"
#include "loop/dial.h"
#include "loop/resolve.h"

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ATTEMPT (3 * NSEC_PER_SEC) /* to connect to one server, see what it is, and have a session */
#define SESSION_MS 6000 /* asked for; a connection that is silent for two thirds of it is given up by the library */

enum state { DOWN, DIALING, PROBING, CONNECTING, UP };

struct zk_link {
	struct lock_env *env;
	const struct lock_url *url;
	const struct zk_link_events *events;
	void *arg;

	enum state state;
	int host, tried;
	struct dial *dial;
	int probe; /* a socket; -1 */
	ev_io probing;
	struct buf said; /* by the server probed */
	char peer[300], at[RESOLVE_TEXT + 8];
	char version[40]; /* of the server probed last; "": it does not say */

	zhandle_t *handle;
	int fd; /* the library's */
	ev_io io;
	ev_timer attempt, timer; /* timer: the library's */
	struct instant heard;
	bool broken; /* seen inside the library: the session is over */
	int inside;  /* the library */
	struct lock_pipeline queue;
};

/* ---- going down ---- */

/* zookeeper_close would wait for the server's good-bye; a session whose connection is gone is just freed. Its
 * completions are called from in here. */
static void drop_handle(struct zk_link *k)
{
	zhandle_t *handle = k->handle;

	k->handle = NULL;
	if (!handle)
		return;
	if (k->fd >= 0)
		shutdown(k->fd, SHUT_RDWR);
	k->fd = -1;
	k->inside++;
	zookeeper_process(handle, ZOOKEEPER_READ);
	zookeeper_close(handle);
	k->inside--;
}

static void hang_up(struct zk_link *k)
{
	struct ev_loop *loop = k->env->loop;

	ev_timer_stop(loop, &k->attempt);
	ev_timer_stop(loop, &k->timer);
	ev_io_stop(loop, &k->io);
	ev_io_stop(loop, &k->probing);
	dial_cancel(k->dial);
	k->dial = NULL;
	if (k->probe >= 0)
		close(k->probe);
	k->probe = -1;
	buf_fini(&k->said);
	k->state = DOWN;
	k->broken = false;
	drop_handle(k);
}

static void try_host(struct zk_link *k);

__attribute__((format(printf, 4, 5))) static void lose(struct zk_link *k, enum lock_outcome outcome, enum err_code code,
                                                       const char *fmt, ...)
{
	bool was_up = k->state == UP;
	struct err why;
	char text[700];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	err_set(&why, code, "%s: %s", k->peer, text);
	hang_up(k);
	k->host = (k->host + 1) % k->url->hosts;
	if (!was_up && ++k->tried < k->url->hosts) {
		try_host(k);
		return;
	}
	if (!was_up) /* else who waits has asked again just now, from a completion */
		lock_pipeline_lose(&k->queue, true, outcome, &why);
	if (k->events->down)
		k->events->down(k->arg);
	if (was_up && k->queue.first)
		zk_link_raise(k); /* it asked while the link was not down yet */
}

/* ---- the library's events ---- */

/* Again after every event and every request: the descriptor may be another one, and what is waited for changes. */
static void arm(struct zk_link *k)
{
	struct ev_loop *loop = k->env->loop;
	struct timeval wait = { 0 };
	int fd = -1, interest = 0;

	k->inside++;
	int rc = zookeeper_interest(k->handle, &fd, &interest, &wait);
	k->inside--;
	ev_io_stop(loop, &k->io);
	ev_timer_stop(loop, &k->timer);
	k->fd = fd;
	if (rc != ZOK || fd < 0 || k->broken) {
		lose(k, LOCK_FAILED, ERR_UNREACHABLE, "the connection was lost (%s)",
		     zerror(rc ? rc : ZCONNECTIONLOSS));
		return;
	}
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	ev_io_set(&k->io, fd, (interest & ZOOKEEPER_READ ? EV_READ : 0) | (interest & ZOOKEEPER_WRITE ? EV_WRITE : 0));
	ev_io_start(loop, &k->io);
	ev_now_update(loop);
	ev_timer_set(&k->timer, (double)wait.tv_sec + (double)wait.tv_usec / 1e6, 0.);
	ev_timer_start(loop, &k->timer);
}

static void pump(struct zk_link *k, int events)
{
	k->inside++;
	int rc = zookeeper_process(k->handle, events);
	k->inside--;
	if (k->broken || (rc != ZOK && rc != ZNOTHING))
		lose(k, rc == ZAUTHFAILED ? LOCK_REFUSED : LOCK_FAILED,
		     rc == ZAUTHFAILED ? ERR_DENIED : ERR_UNREACHABLE, "%s",
		     rc == ZAUTHFAILED ? "it refuses the user or the password" : "the session was lost");
	else
		arm(k);
}

static void on_io(struct ev_loop *loop, ev_io *w, int revents)
{
	struct zk_link *k = w->data;

	(void)loop;
	if (revents & EV_READ)
		k->heard = clock_now();
	pump(k, (revents & EV_READ ? ZOOKEEPER_READ : 0) | (revents & EV_WRITE ? ZOOKEEPER_WRITE : 0));
}

static void on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop;
	(void)revents;
	pump(w->data, 0);
}

static void on_attempt(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct zk_link *k = w->data;

	(void)loop;
	(void)revents;
	if (k->state == DOWN)
		try_host(k);
	else if (k->state == PROBING)
		lose(k, LOCK_FAILED, ERR_INVALID, "it accepts connections, but does not answer as ZooKeeper does");
	else
		lose(k, LOCK_FAILED, ERR_TIMEOUT, "it does not answer in time");
}

static void up(struct zk_link *k)
{
	struct lock_call *c;

	ev_timer_stop(k->env->loop, &k->attempt);
	k->state = UP;
	k->tried = 0;
	if (*k->url->user) {
		char *both = mem_printf("%s:%s", k->url->user, k->url->password ? k->url->password : "");
		zoo_add_auth(k->handle, "digest", both, (int)strlen(both), NULL, NULL);
		explicit_bzero(both, strlen(both));
		free(both);
	}
	if (k->events->up)
		k->events->up(k->arg);
	while (k->state == UP && (c = lock_pipeline_next(&k->queue)))
		c->ready(c);
}

static void on_session(zhandle_t *handle, int type, int state, const char *path, void *context)
{
	struct zk_link *k = context;

	(void)path;
	if (type != ZOO_SESSION_EVENT || handle != k->handle)
		return;
	if (state == ZOO_CONNECTED_STATE && k->state == CONNECTING)
		up(k);
	else if (state != ZOO_CONNECTED_STATE)
		k->broken = true; /* what was under way is lost, and a new session is as good as the old */
}

static void be_quiet(const char *message)
{
	(void)message; /* what matters has a code, and the library's log would go to stderr */
}

/* Numeric, so that the library's own look-up has nothing to wait for. */
static void open_session(struct zk_link *k)
{
	k->state = CONNECTING;
	k->fd = -1;
	k->heard = clock_now();
	k->handle = zookeeper_init2(k->at, on_session, SESSION_MS, NULL, k, 0, be_quiet);
	if (!k->handle) {
		lose(k, LOCK_FAILED, ERR_SYSTEM, "no session could be begun: %s", strerror(errno));
		return;
	}
	zoo_set_servers_resolution_delay(k->handle, -1);
	arm(k);
}

/* ---- what is it? ---- */

/* The library trusts whatever answers, and fails an assertion on what is no ZooKeeper; so that is found out before. 0:
 * not known yet. */
static int judge(struct zk_link *k)
{
	static const char *const good[] = { "ookeeper version", "eeper version",
		                            "is not executed because it is not in the", NULL };
	const char *said = k->said.data ? k->said.data : "";

	if (strstr(said, "version: ") && !strchr(said, '\n'))
		return 0; /* the line goes on */
	for (const char *const *g = good; *g; g++)
		if (strstr(said, *g))
			return 1;
	return strstr(said, "not currently serving") ? 2 : strlen(said) > 200 ? -1 : 0;
}

/* "Zookeeper version: 3.8.0-..., built on ..." */
static void note_version(struct zk_link *k)
{
	const char *at = k->said.data ? strstr(k->said.data, "version: ") : NULL;

	at = at ? at + strlen("version: ") : "";
	snprintf(k->version, sizeof k->version, "%.*s", (int)strcspn(at, "-, \r\n"), at);
}

static void on_probed(struct zk_link *k, int verdict)
{
	note_version(k);
	ev_io_stop(k->env->loop, &k->probing);
	close(k->probe);
	k->probe = -1;
	buf_fini(&k->said);
	if (verdict == 1)
		open_session(k);
	else if (verdict == 2)
		lose(k, LOCK_FAILED, ERR_UNREACHABLE, "it is not serving: its ensemble has no majority");
	else
		lose(k, LOCK_FAILED, ERR_INVALID, "what listens there is no ZooKeeper");
}

static void on_probe(struct ev_loop *loop, ev_io *w, int revents)
{
	struct zk_link *k = w->data;
	char piece[512];
	ssize_t n = read(k->probe, piece, sizeof piece);

	(void)loop;
	(void)revents;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0)
		buf_add(&k->said, piece, (size_t)n);
	int verdict = judge(k);
	if (verdict || n <= 0)
		on_probed(k, verdict);
}

static void on_dialed(void *arg, int fd, const struct err *err)
{
	struct sockaddr_storage peer;
	struct zk_link *k = arg;
	socklen_t len = sizeof peer;

	k->dial = NULL;
	if (fd < 0) {
		lose(k, LOCK_FAILED, err->code, "%s", err->text);
		return;
	}
	k->probe = fd;
	if (getpeername(fd, (struct sockaddr *)&peer, &len) < 0 || send(fd, "srvr", 4, MSG_NOSIGNAL) != 4) {
		lose(k, LOCK_FAILED, ERR_UNREACHABLE, "the connection was lost");
		return;
	}
	resolve_print(&peer, len, k->at);
	snprintf(k->at + strlen(k->at), 8, ":%d", k->url->host[k->host].port);
	k->state = PROBING;
	ev_io_set(&k->probing, fd, EV_READ);
	ev_io_start(k->env->loop, &k->probing);
}

const char *zk_link_version(const struct zk_link *k)
{
	return k->version;
}

/* ---- going up ---- */

static void try_host(struct zk_link *k)
{
	struct ev_loop *loop = k->env->loop;
	struct instant by = instant_add(clock_now(), ATTEMPT);

	k->state = DIALING;
	lock_url_print_host(k->url, k->host, k->peer);
	k->dial = dial_start(loop, lock_lookups(k->env), k->url->host[k->host].name, k->url->host[k->host].port, by,
	                     on_dialed, k);
	ev_now_update(loop);
	ev_timer_stop(loop, &k->attempt);
	ev_timer_set(&k->attempt, (double)ATTEMPT / NSEC_PER_SEC + 0.1, 0.); /* dialing ends by itself */
	ev_timer_start(loop, &k->attempt);
}

void zk_link_raise(struct zk_link *k)
{
	if (k->state != DOWN || ev_is_active(&k->attempt))
		return;
	k->tried = 0;
	ev_timer_set(&k->attempt, 0., 0.);
	ev_timer_start(k->env->loop, &k->attempt);
}

void zk_link_want(struct zk_link *k, struct lock_call *c)
{
	if (k->state == UP && !k->broken) {
		c->ready(c);
		return;
	}
	lock_pipeline_wait(&k->queue, c);
	zk_link_raise(k);
}

void zk_link_leave(struct zk_link *k, struct lock_call *c)
{
	lock_pipeline_forget(&k->queue, c);
}

zhandle_t *zk_link_handle(const struct zk_link *k)
{
	return k->state == UP && !k->broken ? k->handle : NULL;
}

/* Inside the library everything is armed afterwards anyway. */
void zk_link_sent(struct zk_link *k)
{
	if (k->handle && k->inside == 0) {
		ev_timer_stop(k->env->loop, &k->timer);
		ev_timer_set(&k->timer, 0., 0.);
		ev_timer_start(k->env->loop, &k->timer);
	}
}

void zk_link_late(struct zk_link *k, struct instant sent_at)
{
	if (k->state == UP && k->inside == 0 && elapsed_standby(k->heard, sent_at) >= 0)
		lose(k, LOCK_FAILED, ERR_TIMEOUT, "the server does not answer");
}

struct zk_link *zk_link_new(struct lock_env *env, const struct lock_url *url, const struct zk_link_events *events,
                            void *arg)
{
	struct zk_link *k = mem_zero(sizeof *k);

	*k = (struct zk_link){ .env = env, .url = url, .events = events, .arg = arg, .probe = -1, .fd = -1 };
	k->host = (int)((uint64_t)clock_now().raw / 1000 % (unsigned)url->hosts); /* so that not all are on the first */
	ev_init(&k->io, on_io);
	ev_init(&k->probing, on_probe);
	ev_init(&k->attempt, on_attempt);
	ev_init(&k->timer, on_timer);
	k->io.data = k->probing.data = k->attempt.data = k->timer.data = k;
	zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
	return k;
}

void zk_link_free(struct zk_link *k)
{
	if (!k)
		return;
	k->queue.stopped = true;
	hang_up(k);
	hang_up(k); /* what a completion may have begun again */
	lock_pipeline_fini(&k->queue);
	free(k);
}
