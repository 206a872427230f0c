/* The sockets of pokes (lease/poke.h): where a process that may come next hears them, and how a leader sends one.
 * Not who is told, nor when: that is the elector's. It never answers, and what it sends is one datagram of 45 bytes.
 * Used by the elector, next_link.c and program.c.
 *
 * One socket for each address of this machine by which a store is reached (--poke auto), or one (--poke ADDRESS), for
 * all elections of a process. */
#pragma once

#include "base/err.h"
#include "lease/poke.h"

#include <ev.h>
#include <sys/socket.h>

struct poke_port;
struct poke_sockets;

/* Who comes next, in its own memory: look and arg are filled in, the rest is private and zero. */
struct poke_ear {
	void (*look)(void *arg); /* from the loop: look at the lock now */
	void *arg;
	struct poke_gate gate;
	struct poke_port *port; /* NULL: it does not listen */
	struct poke_ear *next;
	ev_timer timer;
};

/* where: "auto", or an address of this machine with or without a port: IP, IP:PORT, [IPV6], [IPV6]:PORT. NULL with *err
 * (ERR_USAGE): it is none. */
struct poke_sockets *poke_sockets_new(struct ev_loop *loop, const char *where, struct err *err);
void poke_sockets_free(struct poke_sockets *all); /* NULL: nothing; after its ears are closed */

/* Listens, opens the socket if need be, and draws a new key if the last one is spent. here: this machine's address by
 * which the store is reached, "" if that is not known. poke_ear_address and gate.key are to be published then. -1 with
 * *err: it does not listen. */
int poke_sockets_listen(struct poke_sockets *all, struct poke_ear *ear, const char *here, struct err *err);
void poke_ear_close(struct poke_sockets *all, struct poke_ear *ear); /* it need not listen */

/* Where it listens, as it is published; borrowed until it is closed. "": it does not. */
const char *poke_ear_address(const struct poke_ear *ear);

/* Sends one datagram. address and key are from a record: what is no address of another program's port of a machine
 * (poke_address), or no key, is left alone. here: as above; from another address than the loopback's nothing is sent to
 * the loopback. false: nothing was sent. */
bool poke_sockets_send(const struct poke_sockets *all, const char *here, const char *address, const char *key);

/* An address as it is published, and nothing else: IP:PORT or [IPV6]:PORT in numbers, of one machine (no multicast, no
 * broadcast, not 0.0.0.0, nothing link-local), PORT 1024 to 65535. false: it is none. */
bool poke_address(const char *text, struct sockaddr_storage *to, socklen_t *len);
