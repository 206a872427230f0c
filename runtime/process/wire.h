/* Typed, bounds-checked messages between elector and worker, one per SOCK_SEQPACKET datagram.
 * Not a stream and not for strangers: a malformed message ends the conversation.
 * Used by the supervisor, by who reads and writes what goes through it, and by the worker. */
#pragma once

#include "base/wire.h"
#include "process/wire_messages.h"

#include <stddef.h>
#include <stdint.h>

#define WIRE_MAX (128 * 1024) /* bytes of one message */

/* slot: the election's position in the script's list, from 0, which is its slot of the shared page, too. */
enum wire_type {
#define WIRE_NUMBER(number, TYPE, name) WIRE_##TYPE = (number),
	WIRE_MESSAGES(WIRE_NUMBER)
#undef WIRE_NUMBER
};

enum wire_go_what {
	WIRE_GO_REPLACEMENT, /* on_start has run in another worker before */
	WIRE_GO_FIRST,       /* run on_start */
	WIRE_GO_MORE,        /* too many for one message: the rest follows */
};

enum wire_save_result {
	WIRE_SAVED_NOT, /* the term was over first */
	WIRE_SAVED_GOOD,
	WIRE_SAVED_REFUSED, /* no record may hold such a checkpoint */
};

enum wire_election_flag {
	WIRE_ELECTION_OBSERVER = 1 << 0,          /* no on_leading: it never campaigns */
	WIRE_ELECTION_MAY_LEAD = 1 << 1,          /* has the hook: send WIRE_ASK */
	WIRE_ELECTION_ISOLATE = 1 << 2,           /* wants a worker of its own */
	WIRE_ELECTION_ADDRESS_FUNCTION = 1 << 3,  /* the address comes with the answer to WIRE_ASK */
	WIRE_ELECTION_PRIORITY_FUNCTION = 1 << 4, /* the priority likewise */
	WIRE_ELECTION_ON_STOPPED = 1 << 5,
	WIRE_ELECTION_ON_STOPPING = 1 << 6,
	WIRE_ELECTION_ON_NEXT = 1 << 7,
	WIRE_ELECTION_ON_NEXT_OVER = 1 << 8,
};

#define WIRE_PRIORITY_UNSET INT64_MIN

enum wire_next_end {
	WIRE_NEXT_DONE,   /* it is over */
	WIRE_NEXT_FAILED, /* it is over, since on_next or one of its tasks raised */
	WIRE_NEXT_TAKEN,  /* it belongs to a term now */
};

/* For each message and part, as base/wire.h says: struct wire_NAME, wire_NAME_put, wire_NAME_get. */
#define WIRE_PART(name) WIRE_DECLARE(wire_##name, WIRE_FIELDS_##name)
#define WIRE_MESSAGE(number, TYPE, name) WIRE_PART(name)
WIRE_MESSAGES(WIRE_MESSAGE)
WIRE_PARTS(WIRE_PART)
#undef WIRE_MESSAGE
#undef WIRE_PART

const char *wire_name(uint32_t type); /* for logs; NULL if there is no such message */

/* What begins a message. 0 if it is none, or longer than WIRE_MAX. */
enum wire_type wire_open(struct wire *w, const void *data, size_t len);

/* The slot that a message begins with: those of an election do. What is to be read stays as it is. */
uint32_t wire_slot(const struct wire *w);
