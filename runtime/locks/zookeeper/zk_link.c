#include "locks/zookeeper/zk_link.h"

#include "base/buf.h"
#include "base/mem.h"
#include "loop/resolve.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ATTEMPT (3 * NSEC_PER_SEC) /* to connect to one server, see what it is, and have a session */
#define SESSION_MS 6000 /* asked for; a connection that is silent for two thirds of it is given up by the library */

struct zk_link {
	struct lock_link link; /* first; its descriptor is the probe's */
	struct buf said;       /* by the server probed */
	char at[RESOLVE_TEXT + 8];
	char version[40]; /* of the server probed last; "": it does not say */
	zhandle_t *handle;
	int fd;     /* the library's; -1 */
	bool held;  /* what is sent on it, until zk_link_send */
	int inside; /* the library */
};

/* zookeeper_close would wait for the server's good-bye; a session whose connection is gone is just freed. Its
 * completions are called from in here. */
static void link_close(struct lock_link *link)
{
	struct zk_link *k = (struct zk_link *)link;
	zhandle_t *handle = k->handle;

	buf_fini(&k->said);
	k->handle = NULL;
	if (!handle)
		return;
	if (k->fd >= 0)
		shutdown(k->fd, SHUT_RDWR);
	k->fd = -1;
	k->held = false;
	k->inside++;
	zookeeper_process(handle, ZOOKEEPER_READ);
	zookeeper_close(handle);
	k->inside--;
}

/* Without it, or if it fails, requests leave as the library sends them. */
static void link_hold(struct zk_link *k, bool on)
{
	if (k->fd < 0 || k->held == on)
		return;
	k->held = setsockopt(k->fd, IPPROTO_TCP, TCP_CORK, &(int){ on }, sizeof(int)) == 0 && on;
}

/* ---- the library's events ---- */

/* Again after every event and every request, since what is waited for changes. */
static void link_arm(struct zk_link *k)
{
	struct timeval wait = { 0 };
	int fd = -1, interest = 0;

	k->inside++;
	int rc = zookeeper_interest(k->handle, &fd, &interest, &wait);
	k->inside--;
	bool fresh = fd != k->fd;
	k->held = k->held && !fresh;
	k->fd = fd;
	if (rc != ZOK || fd < 0 || k->link.ending) {
		lock_link_lose(&k->link, LOCK_FAILED, ERR_UNREACHABLE, "the connection was lost (%s)",
		               zerror(rc ? rc : ZCONNECTIONLOSS));
		return;
	}
	if (fresh)
		fcntl(fd, F_SETFD, FD_CLOEXEC);
	lock_link_wait(&k->link, fd,
	               (interest & ZOOKEEPER_READ ? EV_READ : 0) | (interest & ZOOKEEPER_WRITE ? EV_WRITE : 0));
	lock_link_tick(&k->link, (double)wait.tv_sec + (double)wait.tv_usec / 1e6);
}

static void link_pump(struct zk_link *k, int events)
{
	k->inside++;
	int rc = zookeeper_process(k->handle, events);
	k->inside--;
	if (k->link.dead)
		return;
	if (k->link.ending || (rc != ZOK && rc != ZNOTHING))
		lock_link_lose(&k->link, rc == ZAUTHFAILED ? LOCK_REFUSED : LOCK_FAILED,
		               rc == ZAUTHFAILED ? ERR_DENIED : ERR_UNREACHABLE, "%s",
		               rc == ZAUTHFAILED ? "it refuses the user or the password" : "the session was lost");
	else
		link_arm(k);
}

static void link_send(struct lock_link *link)
{
	link_pump((struct zk_link *)link, ZOOKEEPER_WRITE);
}

static void link_tick(struct lock_link *link)
{
	link_pump((struct zk_link *)link, 0);
}

static void link_overdue(struct lock_link *link)
{
	if (link->fd >= 0)
		lock_link_lose(link, LOCK_FAILED, ERR_INVALID,
		               "it accepts connections, but does not answer as ZooKeeper does");
	else
		lock_link_lose(link, LOCK_FAILED, ERR_TIMEOUT, "it does not answer in time");
}

static void link_log_in(struct zk_link *k)
{
	const struct lock_url *url = k->link.url;

	if (*url->user) {
		char *both = mem_printf("%s:%s", url->user, url->password ? url->password : "");
		zoo_add_auth(k->handle, "digest", both, (int)strlen(both), NULL, NULL);
		explicit_bzero(both, strlen(both));
		free(both);
	}
	lock_link_up(&k->link);
}

static void link_on_session(zhandle_t *handle, int type, int state, const char *, void *context)
{
	struct zk_link *k = context;

	if (type != ZOO_SESSION_EVENT || handle != k->handle)
		return;
	if (state == ZOO_CONNECTED_STATE && !lock_link_is_up(&k->link))
		link_log_in(k);
	else if (state != ZOO_CONNECTED_STATE)
		k->link.ending = true; /* what was under way is lost, and a new session is as good as the old */
}

/* What matters has a code, and the library's log would go to stderr. */
static void link_ignore(const char *)
{
}

/* Numeric, so that the library's own look-up has nothing to wait for. */
static void link_open_session(struct zk_link *k)
{
	k->link.heard = clock_now();
	k->handle = zookeeper_init2(k->at, link_on_session, SESSION_MS, NULL, k, 0, link_ignore);
	if (!k->handle) {
		lock_link_lose(&k->link, LOCK_FAILED, ERR_SYSTEM, "no session could be begun: %s", strerror(errno));
		return;
	}
	zoo_set_servers_resolution_delay(k->handle, -1);
	link_arm(k);
}

/* ---- what is it? ---- */

/* The library trusts whatever answers, and fails an assertion on what is no ZooKeeper; so that is found out before. 0:
 * not known yet. */
static int probe_judge(struct zk_link *k)
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
static void probe_note_version(struct zk_link *k)
{
	const char *at = k->said.data ? strstr(k->said.data, "version: ") : NULL;

	at = at ? at + strlen("version: ") : "";
	snprintf(k->version, sizeof k->version, "%.*s", (int)strcspn(at, "-, \r\n"), at);
}

static void probe_end(struct zk_link *k, int verdict)
{
	probe_note_version(k);
	lock_link_wait(&k->link, -1, 0);
	close(k->link.fd);
	k->link.fd = -1;
	buf_fini(&k->said);
	if (verdict == 1)
		link_open_session(k);
	else if (verdict == 2)
		lock_link_lose(&k->link, LOCK_FAILED, ERR_UNREACHABLE,
		               "it is not serving: its ensemble has no majority");
	else
		lock_link_lose(&k->link, LOCK_FAILED, ERR_INVALID, "what listens there is no ZooKeeper");
}

static void probe_read(struct zk_link *k)
{
	char piece[512];
	ssize_t n = read(k->link.fd, piece, sizeof piece);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0)
		buf_add(&k->said, piece, (size_t)n);
	int verdict = probe_judge(k);
	if (verdict || n <= 0)
		probe_end(k, verdict);
}

static void link_parse(struct lock_link *link)
{
	if (link->fd >= 0)
		probe_read((struct zk_link *)link);
	else
		link_pump((struct zk_link *)link, ZOOKEEPER_READ);
}

static void link_greet(struct lock_link *link)
{
	struct sockaddr_storage peer;
	struct zk_link *k = (struct zk_link *)link;
	socklen_t len = sizeof peer;

	if (getpeername(link->fd, (struct sockaddr *)&peer, &len) < 0 || send(link->fd, "srvr", 4, MSG_NOSIGNAL) != 4) {
		lock_link_lose(link, LOCK_FAILED, ERR_UNREACHABLE, "the connection was lost");
		return;
	}
	resolve_print(&peer, len, k->at);
	snprintf(k->at + strlen(k->at), 8, ":%d", link->url->host[link->host].port);
	lock_link_wait(link, link->fd, EV_READ);
}

/* ---- for the lock ---- */

const char *zk_link_version(const struct lock_link *link)
{
	return ((const struct zk_link *)link)->version;
}

/* The library sends a request's length by itself, and each request: a server that is woken for four bytes has to be
 * woken again for the rest (tcp(7), TCP_CORK). What does not leave at once is armed in the loop's next turn. Inside the
 * library everything is armed afterwards anyway. */
zhandle_t *zk_link_handle(struct lock_link *link)
{
	struct zk_link *k = (struct zk_link *)link;

	if (!lock_link_is_up(link))
		return NULL;
	if (k->inside == 0)
		lock_link_tick(link, 0.);
	link_hold(k, true);
	return k->handle;
}

void zk_link_send(struct lock_link *link)
{
	link_hold((struct zk_link *)link, false);
}

void zk_link_late(struct lock_link *link, struct instant sent_at)
{
	if (((struct zk_link *)link)->inside == 0)
		lock_link_late(link, sent_at);
}

struct lock_link *zk_link_new(struct lock_env *env, const struct lock_url *url, const struct lock_link_events *events,
                              void *arg)
{
	static const struct lock_link_ops ops = {
		.attempt = ATTEMPT,
		.moves_on = true,
		.greet = link_greet,
		.send = link_send,
		.parse = link_parse,
		.tick = link_tick,
		.overdue = link_overdue,
		.close = link_close,
	};
	struct zk_link *k = mem_zero(sizeof *k);

	lock_link_init(&k->link, env, url, &ops, events, arg);
	k->fd = -1;
	/* so that not all are on the first */
	k->link.host = (int)((uint64_t)clock_now().raw / 1000 % (unsigned)url->hosts);
	zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
	return &k->link;
}
