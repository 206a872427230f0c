/* What a script says about one election, as the WIRE_ELECTION message carries it.
 * Not what counts in the end: options and the environment come before it (options.h), defaults after it.
 * Used by the worker, which writes it, and the command run, which reads it. */
#ifndef LUNARCH_WIRE_ELECTION_H
#define LUNARCH_WIRE_ELECTION_H

#include "process/wire.h"

#include <stdbool.h>
#include <stdint.h>

#define WIRE_ELECTION_UNSET INT64_C(-1) /* the script says nothing about this time */

enum wire_election_flag {
	WIRE_ELECTION_OBSERVER = 1 << 0, /* no on_leading: it never campaigns */
	WIRE_ELECTION_MAY_LEAD = 1 << 1, /* has the hook: send WIRE_ASK */
	WIRE_ELECTION_ISOLATE = 1 << 2,  /* wants a worker of its own */
	WIRE_ELECTION_RECLAIM = 1 << 3,
	WIRE_ELECTION_ADDRESS_FUNCTION = 1 << 4, /* the address comes with the answer to WIRE_ASK */
	WIRE_ELECTION_ON_STOPPED = 1 << 5,
	WIRE_ELECTION_ON_START = 1 << 6,
};

/* Reading: the strings point into the message. Never NULL; "" = the script says nothing. */
struct wire_election {
	uint32_t index; /* 0, 1, ... in the order of the script */
	const char *name, *lock, *identity, *address;
	int64_t lease_ms, renew_ms, retry_ms, stop_grace_ms, shutdown_grace_ms; /* WIRE_ELECTION_UNSET, or above 0 */
	uint32_t flags;                                                         /* of enum wire_election_flag */
	const char *where; /* "script.lua:12", for messages about this election */
};

/* Appends the fields to a message that was begun as WIRE_ELECTION. */
void wire_election_put(struct buf *m, const struct wire_election *e);

/* Reads them. false: the message is malformed. */
bool wire_election_get(struct wire *w, struct wire_election *e);

#endif
