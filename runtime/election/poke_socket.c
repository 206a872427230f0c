#include "election/poke_socket.h"

#include "base/mem.h"
#include "base/nonce.h"
#include "loop/timer_after.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AUTO "auto"
#define LEAST_PORT 1024 /* below it are the ports of well-known services */
#define BATCH 16        /* datagrams in a turn of the loop */

struct poke_port { /* a socket, and who listens there */
	struct poke_sockets *all;
	struct poke_port *next;
	struct poke_ear *ears;
	char host[INET6_ADDRSTRLEN], address[POKE_ADDRESS + 1];
	ev_io readable;
};

struct poke_sockets {
	struct ev_loop *loop;
	char host[INET6_ADDRSTRLEN]; /* of --poke; "": auto */
	int port;                    /* 0: a free one */
	struct poke_port *ports;
};

/* ---- addresses ---- */

/* host: without brackets. Fills *to, whose port stays 0. */
static bool parse_host(const char *host, struct sockaddr_storage *to, socklen_t *len)
{
	struct sockaddr_in *four = (struct sockaddr_in *)to;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)to;

	*to = (struct sockaddr_storage){ 0 };
	*len = sizeof *six;
	if (inet_pton(AF_INET, host, &four->sin_addr) == 1) {
		to->ss_family = AF_INET;
		*len = sizeof *four;
		return true;
	}
	to->ss_family = AF_INET6;
	return inet_pton(AF_INET6, host, &six->sin6_addr) == 1;
}

/* From 224.0.0.0 on: multicast, reserved, broadcast. 169.254.0.0/16 and fe80::/10 are of one link. */
static bool of_one_machine(const struct sockaddr_storage *a)
{
	const struct in6_addr *six = &((const struct sockaddr_in6 *)a)->sin6_addr;
	uint32_t four = ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr);

	if (a->ss_family == AF_INET)
		return four >> 24 != 0 && four >> 24 < 224 && four >> 16 != 0xa9fe;
	return !IN6_IS_ADDR_UNSPECIFIED(six) && !IN6_IS_ADDR_MULTICAST(six) && !IN6_IS_ADDR_LINKLOCAL(six) &&
	       !IN6_IS_ADDR_V4MAPPED(six) && !IN6_IS_ADDR_V4COMPAT(six);
}

static bool is_loopback(const struct sockaddr_storage *a)
{
	if (a->ss_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

static void set_port(struct sockaddr_storage *a, int port)
{
	if (a->ss_family == AF_INET)
		((struct sockaddr_in *)a)->sin_port = htons((uint16_t)port);
	else
		((struct sockaddr_in6 *)a)->sin6_port = htons((uint16_t)port);
}

static int get_port(const struct sockaddr_storage *a)
{
	if (a->ss_family == AF_INET)
		return ntohs(((const struct sockaddr_in *)a)->sin_port);
	return ntohs(((const struct sockaddr_in6 *)a)->sin6_port);
}

static int parse_port(const char *text)
{
	bool digits = *text >= '1' && *text <= '9' && strspn(text, "0123456789") == strlen(text) && strlen(text) <= 5;
	int port = digits ? atoi(text) : 0;

	return port >= LEAST_PORT && port <= 65535 ? port : -1;
}

/* Splits IP, IP:PORT, [IPV6] or [IPV6]:PORT. *port: 0 where there is none, -1 if it is wrong. An IPv6 address has
 * brackets before a port. */
static bool split(const char *text, char host[INET6_ADDRSTRLEN], int *port)
{
	const char *open = *text == '[' ? text + 1 : text, *colon = strchr(text, ':');
	const char *end = *text == '[' ? strchr(text, ']') : colon && strchr(colon + 1, ':') ? NULL : colon;
	size_t len = end ? (size_t)(end - open) : strlen(open);

	if (len >= INET6_ADDRSTRLEN || (*text == '[' && (!end || !memchr(open, ':', len))))
		return false;
	memcpy(host, open, len);
	host[len] = '\0';
	*port = 0;
	if (!end)
		return true;
	end += *text == '[';
	if (*end)
		*port = *end == ':' ? parse_port(end + 1) : -1;
	return true;
}

bool poke_address(const char *text, struct sockaddr_storage *to, socklen_t *len)
{
	char host[INET6_ADDRSTRLEN];
	int port;

	if (!split(text, host, &port) || port <= 0 || !parse_host(host, to, len) || !of_one_machine(to))
		return false;
	set_port(to, port);
	return true;
}

/* ---- hearing ---- */

static void ear_arm(struct poke_sockets *all, struct poke_ear *ear)
{
	nsec wait = poke_gate_wait(&ear->gate, clock_now());

	if (wait != NSEC_NEVER)
		timer_after(all->loop, &ear->timer, wait);
}

static void ear_on_timer(struct ev_loop *, ev_timer *w, int)
{
	struct poke_ear *ear = w->data;

	poke_gate_looks(&ear->gate, clock_now());
	ear->look(ear->arg);
}

static void port_on_readable(struct ev_loop *, ev_io *w, int)
{
	struct poke_port *p = w->data;
	char datagram[POKE_BYTES + 1]; /* a longer one is cut to this, and is none */

	for (int i = 0; i < BATCH; i++) {
		ssize_t len = recv(w->fd, datagram, sizeof datagram, MSG_DONTWAIT);
		if (len < 0)
			return;
		for (struct poke_ear *ear = p->ears; ear; ear = ear->next)
			if (poke_gate_hear(&ear->gate, datagram, (size_t)len))
				ear_arm(p->all, ear);
	}
}

/* ---- sockets ---- */

/* *port: 0, a free one; is the one that it has. */
static int port_bind(const char *host, int *port, struct err *err)
{
	struct sockaddr_storage at;
	socklen_t len;
	int on = 1;

	if (!parse_host(host, &at, &len) || !of_one_machine(&at))
		return err_set(err, ERR_USAGE, "%s is no address at which datagrams can be heard", host);
	set_port(&at, *port);
	int fd = socket(at.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_sys(err, "cannot make a socket for pokes");
	if (at.ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
	if (bind(fd, (struct sockaddr *)&at, len) == 0 && getsockname(fd, (struct sockaddr *)&at, &len) == 0) {
		*port = get_port(&at);
		return fd;
	}
	err_sys(err, "cannot listen for pokes at %s, port %d", host, *port);
	close(fd);
	return -1;
}

static struct poke_port *port_open(struct poke_sockets *all, const char *host, struct err *err)
{
	int port = all->port, fd = port_bind(host, &port, err);

	if (fd < 0)
		return NULL;
	struct poke_port *p = mem_zero(sizeof *p);
	p->all = all;
	snprintf(p->host, sizeof p->host, "%s", host);
	snprintf(p->address, sizeof p->address, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, port);
	ev_io_init(&p->readable, port_on_readable, fd, EV_READ);
	p->readable.data = p;
	ev_io_start(all->loop, &p->readable);
	p->next = all->ports;
	all->ports = p;
	return p;
}

static struct poke_port *port_at(struct poke_sockets *all, const char *host, struct err *err)
{
	for (struct poke_port *p = all->ports; p; p = p->next)
		if (strcmp(p->host, host) == 0)
			return p;
	return port_open(all, host, err);
}

static void port_close(struct poke_port *p)
{
	struct poke_port **at = &p->all->ports;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	ev_io_stop(p->all->loop, &p->readable);
	close(p->readable.fd);
	free(p);
}

/* ---- listening and sending ---- */

int poke_sockets_listen(struct poke_sockets *all, struct poke_ear *ear, const char *here, struct err *err)
{
	const char *host = *all->host ? all->host : here;

	if (!*host)
		return err_set(err, ERR_MISSING,
		               "--poke auto: it is not known by which address of this machine the store is reached; "
		               "--poke ADDRESS names one");
	if (ear->port && strcmp(ear->port->host, host) != 0)
		poke_ear_close(all, ear);
	if (!ear->port) {
		struct poke_port *p = port_at(all, host, err);
		if (!p)
			return -1;
		ear->port = p;
		ear->next = p->ears;
		p->ears = ear;
		ev_timer_init(&ear->timer, ear_on_timer, 0., 0.);
		ear->timer.data = ear;
	}
	if (!*ear->gate.key)
		nonce_hex(ear->gate.key, POKE_KEY / 2);
	return 0;
}

void poke_ear_close(struct poke_sockets *all, struct poke_ear *ear)
{
	struct poke_port *p = ear->port;

	if (!p)
		return;
	struct poke_ear **at = &p->ears;
	while (*at != ear)
		at = &(*at)->next;
	*at = ear->next;
	ev_timer_stop(all->loop, &ear->timer);
	ear->gate = (struct poke_gate){ .key = "" };
	ear->port = NULL;
	if (!p->ears)
		port_close(p);
}

const char *poke_ear_address(const struct poke_ear *ear)
{
	return ear->port ? ear->port->address : "";
}

static bool is_key(const char *key)
{
	return strlen(key) == POKE_KEY && strspn(key, "0123456789abcdef") == POKE_KEY;
}

bool poke_sockets_send(const struct poke_sockets *all, const char *here, const char *address, const char *key)
{
	const char *host = *all->host ? all->host : here;
	struct sockaddr_storage to, from;
	socklen_t len, from_len;
	char datagram[POKE_BYTES];

	if (!is_key(key) || !poke_address(address, &to, &len))
		return false;
	if (is_loopback(&to) && !(parse_host(host, &from, &from_len) && is_loopback(&from)))
		return false;
	int fd = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return false;
	poke_fill(datagram, key);
	bool sent = sendto(fd, datagram, sizeof datagram, 0, (struct sockaddr *)&to, len) == (ssize_t)sizeof datagram;
	close(fd);
	return sent;
}

/* ---- set-up ---- */

struct poke_sockets *poke_sockets_new(struct ev_loop *loop, const char *where, struct err *err)
{
	struct poke_sockets *all = mem_zero(sizeof *all);
	struct sockaddr_storage at;
	socklen_t len;

	all->loop = loop;
	if (strcmp(where, AUTO) == 0)
		return all;
	if (split(where, all->host, &all->port) && all->port >= 0 && parse_host(all->host, &at, &len) &&
	    of_one_machine(&at))
		return all;
	err_set(err, ERR_USAGE,
	        "--poke %s: expected auto, or an address of this machine, with a port from 1024 or without one: IP, "
	        "IP:PORT, [IPV6]:PORT",
	        where);
	free(all);
	return NULL;
}

void poke_sockets_free(struct poke_sockets *all)
{
	free(all);
}
