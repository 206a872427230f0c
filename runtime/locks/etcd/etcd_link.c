#include "locks/etcd/etcd_link.h"

#include "base/mem.h"
#include "base/module.h"
#include "net/tls/tls.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ATTEMPT (3 * NSEC_PER_SEC) /* to connect to one host and greet it */
#define PIECE 65536
/* What was asked before the server said that it goes is answered within that time, or not at all. */
#define DRAIN_S 5.

struct etcd_link {
	struct lock_link link; /* first */
	bool encrypted;
	const struct tls_ops *tls; /* NULL: not encrypted, or not loaded yet */
	struct tls *secret;        /* of the connection, as are the rest */
	struct grpc *grpc;
	struct grpc_call *lasting;
	struct buf out, clear; /* to be sent; what goes into or comes out of `secret` */
	int inside;            /* grpc.c, which must not be freed then */
	bool doomed;           /* it ends as soon as nobody is inside */
	struct err doom;
};

static struct etcd_link *link_of(struct lock_link *link)
{
	return (struct etcd_link *)link;
}

/* Calls are told from inside; they may ask again, and then wait. */
static void link_close(struct lock_link *link)
{
	struct etcd_link *k = link_of(link);
	struct grpc *g = k->grpc;

	k->grpc = NULL;
	k->lasting = NULL;
	k->doomed = false;
	if (k->secret)
		k->tls->end(k->secret);
	k->secret = NULL;
	buf_fini(&k->out);
	buf_fini(&k->clear);
	if (!k->inside)
		grpc_free(g);
}

static void link_doom(struct etcd_link *k, const struct err *why)
{
	if (k->doomed)
		return;
	k->doomed = k->link.ending = true;
	k->doom = *why;
}

/* After every work of grpc.c. It was given `g`, which may have been closed meanwhile. false: the connection has ended. */
static bool link_settle(struct etcd_link *k, struct grpc *g)
{
	if (k->inside)
		return true;
	if (k->grpc != g) {
		grpc_free(g);
		return false;
	}
	if (k->doomed) {
		lock_link_lose(&k->link, LOCK_FAILED, k->doom.code, "%s", k->doom.text);
		return false;
	}
	return true;
}

/* ---- bytes that go ---- */

/* Fills out. false: TLS is broken, and the connection doomed; or it has ended. */
static bool link_gather(struct etcd_link *k)
{
	struct grpc *g = k->grpc;
	struct err err;

	grpc_take(g, k->secret ? &k->clear : &k->out);
	if (!k->secret || k->grpc != g)
		return k->grpc == g;
	bool good = !k->clear.len || k->tls->write(k->secret, k->clear.data, k->clear.len, &err) == 0;
	if (k->clear.len)
		explicit_bzero(k->clear.data, k->clear.len);
	buf_drop(&k->clear, k->clear.len);
	if (!good)
		link_doom(k, &err);
	k->tls->take(k->secret, &k->out);
	return good;
}

/* Sends what there is, as far as it goes. An error of send is seen by link_parse: reading tells of a connection that
 * has ended, too. */
static void link_flush(struct lock_link *link)
{
	struct etcd_link *k = link_of(link);
	struct grpc *g = k->grpc;
	ssize_t n = 1;

	if (k->inside || !g)
		return;
	lock_link_enter(link);
	k->inside++;
	while (n > 0 && k->grpc == g) {
		if (!k->out.len && !link_gather(k))
			break;
		if (!k->out.len)
			break;
		n = send(link->fd, k->out.data, k->out.len, MSG_NOSIGNAL);
		if (n > 0) {
			explicit_bzero(k->out.data, (size_t)n); /* it may have been a password */
			buf_drop(&k->out, (size_t)n);
		} else if (n < 0 && errno == EINTR) {
			n = 1;
		}
	}
	k->inside--;
	if (link_settle(k, g))
		lock_link_wait(link, link->fd, k->out.len ? EV_READ | EV_WRITE : EV_READ);
	lock_link_leave(link);
}

/* ---- bytes that come ---- */

/* The server takes no more calls: who asks from now on waits for another connection. */
static void link_drain(struct etcd_link *k, const char *why)
{
	struct grpc_call *c = k->lasting;

	if (!k->link.ending) {
		k->link.ending = true;
		err_set(&k->doom, ERR_UNREACHABLE, "the server has ended the connection%s%s", why ? ": " : "",
		        why ? why : "");
		lock_link_tick(&k->link, DRAIN_S);
	}
	k->lasting = NULL;
	if (c && grpc_under_way(c)) {
		struct grpc_end end = { .status = -1, .unseen = true, .text = k->doom.text };
		grpc_cancel(c);
		c->ended(c, &end);
	}
	if (k->grpc && grpc_idle(k->grpc))
		k->doomed = true;
}

static void link_tick(struct lock_link *link)
{
	struct etcd_link *k = link_of(link);

	k->doomed = true;
	link_settle(k, k->grpc);
}

static void link_feed(struct etcd_link *k, const char *bytes, size_t len)
{
	struct grpc *g = k->grpc;
	struct lock_link *link = &k->link;
	const char *why = NULL;
	struct err err;

	k->inside++;
	if (grpc_feed(g, bytes, len, &err) < 0 && k->grpc == g) {
		if (link->state != LOCK_LINK_UP)
			err_wrap(&err, "this is no etcd, or a proxy that does not speak HTTP/2 (gRPC)");
		link_doom(k, &err);
	}
	if (k->grpc == g && !k->doomed && link->state == LOCK_LINK_GREETING && grpc_greeted(g))
		lock_link_up(link);
	if (k->grpc == g && !k->doomed && grpc_going(g, &why))
		link_drain(k, why);
	k->inside--;
	if (link_settle(k, g))
		link_flush(link);
}

static void link_decrypt(struct etcd_link *k, const char *bytes, size_t len)
{
	struct buf clear = { 0 };
	struct err err;
	uint64_t number = k->link.number;
	int rc = k->tls->feed(k->secret, bytes, len, &clear, &err);

	if (clear.len)
		link_feed(k, clear.data, clear.len);
	buf_fini(&clear);
	if (lock_link_ended(&k->link, number))
		return;
	if (rc < 0)
		lock_link_lose(&k->link, LOCK_FAILED, err.code, "%s", err.text);
	else
		link_flush(&k->link);
}

/* A server that expects TLS hangs up on who speaks without, and the other way round: etcd says nothing before. */
static const char *link_hint(const struct etcd_link *k)
{
	if (k->secret && !k->tls->ready(k->secret))
		return " before TLS was agreed upon: if it speaks none, the URL is etcd://";
	if (!k->secret && k->link.state == LOCK_LINK_GREETING)
		return " without a word of HTTP/2: if it speaks TLS, the URL is etcds://";
	return "";
}

static void link_parse(struct lock_link *link)
{
	struct etcd_link *k = link_of(link);
	char piece[PIECE];
	ssize_t n = read(link->fd, piece, sizeof piece);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
		lock_link_lose(link, LOCK_FAILED, ERR_UNREACHABLE, "the connection was lost%s%s%s",
		               n < 0 ? ": " : ", the server closed it", n < 0 ? strerror(errno) : "", link_hint(k));
	else if (k->secret)
		link_decrypt(k, piece, (size_t)n);
	else
		link_feed(k, piece, (size_t)n);
}

/* ---- going up ---- */

static int link_encrypt(struct etcd_link *k, struct err *err)
{
	const struct lock_url *url = k->link.url;
	const struct module *module = k->tls ? NULL : module_open("tls", err);

	if (!k->tls && !module)
		return -1;
	if (module)
		k->tls = module->tls;
	k->secret = k->tls->begin(&(struct tls_settings){ .host = url->host[k->link.host].name,
	                                                  .server_name = lock_url_option(url, "server_name"),
	                                                  .ca_file = lock_url_option(url, "ca"),
	                                                  .cert_file = lock_url_option(url, "cert"),
	                                                  .key_file = lock_url_option(url, "key"),
	                                                  .protocol = "h2" },
	                          err);
	return k->secret ? 0 : -1;
}

static void link_greet(struct lock_link *link)
{
	struct etcd_link *k = link_of(link);
	struct err err;

	if (k->encrypted && link_encrypt(k, &err) < 0) {
		lock_link_lose(link, LOCK_FAILED, err.code, "%s", err.text);
		return;
	}
	k->grpc = grpc_new(link->peer, k->encrypted, ETCD_ANSWER_BYTES);
	link_flush(link);
}

static void link_overdue(struct lock_link *link)
{
	lock_link_lose(link, LOCK_FAILED, ERR_TIMEOUT, "it accepts connections, but does not answer");
}

struct lock_link *etcd_link_new(struct lock_env *env, const struct lock_url *url, bool tls,
                                const struct lock_link_events *events, void *arg)
{
	static const struct lock_link_ops ops = {
		.attempt = ATTEMPT,
		.moves_on = true,
		.greet = link_greet,
		.send = link_flush,
		.parse = link_parse,
		.tick = link_tick,
		.overdue = link_overdue,
		.close = link_close,
	};
	struct etcd_link *k = mem_zero(sizeof *k);

	lock_link_init(&k->link, env, url, &ops, events, arg);
	k->encrypted = tls;
	return &k->link;
}

/* ---- calls ---- */

bool etcd_link_is_up(struct lock_link *link)
{
	struct etcd_link *k = link_of(link);
	const char *why = NULL;

	if (lock_link_is_up(link) && grpc_going(k->grpc, &why))
		link_drain(k, why);
	return lock_link_is_up(link);
}

void etcd_link_start(struct lock_link *link, struct grpc_call *c, const char *path, const char *const *metadata,
                     const struct buf *message, bool lasts)
{
	struct etcd_link *k = link_of(link);

	if (lasts)
		k->lasting = c;
	grpc_start(k->grpc, c, path, metadata, message ? message->data : NULL, message ? message->len : 0, !lasts);
	if (!k->inside)
		lock_link_send_soon(link);
}

void etcd_link_flush(struct lock_link *link)
{
	link_flush(link);
}

void etcd_link_send(struct lock_link *link, struct grpc_call *c, const struct buf *message)
{
	grpc_send(c, message->data, message->len, false);
	link_flush(link);
}

void etcd_link_cancel(struct lock_link *link, struct grpc_call *c)
{
	struct etcd_link *k = link_of(link);

	if (!grpc_under_way(c))
		return;
	if (k->lasting == c)
		k->lasting = NULL;
	grpc_cancel(c);
	link_flush(link);
}

void etcd_link_leave(struct lock_link *link, uint64_t number, const struct err *why)
{
	struct etcd_link *k = link_of(link);

	if (lock_link_ended(link, number) || link->state == LOCK_LINK_DOWN)
		return;
	lock_link_enter(link);
	link_doom(k, why);
	link_settle(k, k->grpc);
	lock_link_leave(link);
}

void etcd_link_ping(struct lock_link *link)
{
	struct etcd_link *k = link_of(link);
	struct err why;

	if (!k->grpc || k->link.ending)
		return;
	if (grpc_ping_pending(k->grpc)) {
		err_set(&why, ERR_TIMEOUT, "the server does not answer");
		etcd_link_leave(link, link->number, &why);
		return;
	}
	grpc_ping(k->grpc);
	link_flush(link);
}

void etcd_link_late(struct lock_link *link, struct instant sent_at)
{
	if (!link_of(link)->inside)
		lock_link_late(link, sent_at);
}
