/* A poke: one datagram in which a leader tells the candidate that comes next to look at the lock now, where the store
 * tells of no changes. It is advice: who hears one looks, and what the store shows counts, not the datagram.
 * Not a socket (election/poke_socket.h). No I/O, and no clock. Used by the elector, the simulator and the unit tests.
 *
 * The candidate publishes an address and a random key, and the datagram is that key behind a word. A key is good for
 * one look: it is spent by the first datagram that has it. So a datagram that is repeated, by the network or by who
 * listens to it, has no effect. Nothing else is in the datagram that would have to be authenticated. */
#pragma once

#include "base/clock.h"

#include <stdbool.h>
#include <stddef.h>

#define POKE_WORD "lunarch-poke:"
#define POKE_ADDRESS 63                              /* bytes of an address as text, at most */
#define POKE_KEY 32                                  /* hex digits */
#define POKE_BYTES (sizeof POKE_WORD - 1 + POKE_KEY) /* of a datagram */
#define POKE_PAUSE (100 * NSEC_PER_MS)               /* at least, between two looks */

/* Which datagrams a candidate hears, and when it looks. Zeroed: it hears none. */
struct poke_gate {
	char key[POKE_KEY + 1]; /* "": there is none, or it is spent */
	bool looked, due;       /* due: a look that has not been made yet */
	struct instant looked_at;
};

/* Fills a datagram with a key of POKE_KEY digits. */
void poke_fill(char datagram[POKE_BYTES], const char *key);

/* A datagram came. true: it had the key, which is spent now, and a look is due. How long that takes does not depend on
 * how much of the key was right. */
bool poke_gate_hear(struct poke_gate *g, const void *datagram, size_t len);

/* Until the look that is due may be made; NSEC_NEVER: none is due. */
nsec poke_gate_wait(const struct poke_gate *g, struct instant now);

/* The look that was due is made now. */
void poke_gate_looks(struct poke_gate *g, struct instant now);
