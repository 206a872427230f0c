/* Typed, bounds-checked messages between elector and worker, one per SOCK_SEQPACKET datagram.
 * Not a stream and not for strangers: a malformed message ends the conversation.
 * Used by the supervisor, by who reads and writes what goes through it, and by the worker. */
#ifndef LUNARCH_WIRE_H
#define LUNARCH_WIRE_H

#include "base/buf.h"
#include "process/wire_messages.h"

#include <stdbool.h>
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

#define WIRE_ELECTION_UNSET INT64_C(-1) /* the script says nothing about this time */

enum wire_election_flag {
	WIRE_ELECTION_OBSERVER = 1 << 0, /* no on_leading: it never campaigns */
	WIRE_ELECTION_MAY_LEAD = 1 << 1, /* has the hook: send WIRE_ASK */
	WIRE_ELECTION_ISOLATE = 1 << 2,  /* wants a worker of its own */
	WIRE_ELECTION_RECLAIM = 1 << 3,
	WIRE_ELECTION_ADDRESS_FUNCTION = 1 << 4, /* the address comes with the answer to WIRE_ASK */
	WIRE_ELECTION_ON_STOPPED = 1 << 5,
	WIRE_ELECTION_ON_STOPPING = 1 << 6,
	WIRE_ELECTION_ON_NEXT = 1 << 7,
	WIRE_ELECTION_ON_NEXT_OVER = 1 << 8,
	WIRE_ELECTION_PREEMPT = 1 << 9,
	WIRE_ELECTION_NO_PREEMPT = 1 << 10,        /* the script says preempt = false */
	WIRE_ELECTION_PRIORITY_FUNCTION = 1 << 11, /* the priority comes with the answer to WIRE_ASK */
};

#define WIRE_PRIORITY_UNSET INT64_MIN

enum wire_next_end {
	WIRE_NEXT_DONE,   /* it is over */
	WIRE_NEXT_FAILED, /* so it is, since on_next or a task of it raised */
	WIRE_NEXT_TAKEN,  /* it belongs to a term now */
};

/* What is left of a message to be read; or bytes to be written as a list. */
struct wire {
	const unsigned char *at, *end;
	bool bad;
};

/* For each message and part: struct wire_NAME; wire_NAME_put, which begins the message in m and writes it whole, or
 * appends the part; wire_NAME_get, which reads it. get of a message is false if it is malformed: cut, or with anything
 * behind its last field; of a part, if it is cut. What could not be read is 0 or "". Strings and lists that were read
 * point into the message. */
#define WIRE_C_u8 uint8_t
#define WIRE_C_u32 uint32_t
#define WIRE_C_u64 uint64_t
#define WIRE_C_i64 int64_t
#define WIRE_C_str const char *
#define WIRE_C_list struct wire
#define WIRE_MEMBER(type, name) WIRE_C_##type name;
#define WIRE_PART(name)                                                     \
	struct wire_##name {                                                \
		WIRE_FIELDS_##name(WIRE_MEMBER)                             \
	};                                                                  \
	void wire_##name##_put(struct buf *m, const struct wire_##name *v); \
	bool wire_##name##_get(struct wire *w, struct wire_##name *v);
#define WIRE_MESSAGE(number, TYPE, name) WIRE_PART(name)
WIRE_MESSAGES(WIRE_MESSAGE)
WIRE_PARTS(WIRE_PART)
#undef WIRE_MESSAGE
#undef WIRE_PART
#undef WIRE_MEMBER

const char *wire_name(uint32_t type); /* for logs; NULL if there is no such message */

/* What begins a message. 0 if it is none, or longer than WIRE_MAX. */
enum wire_type wire_open(struct wire *w, const void *data, size_t len);

/* The slot that a message begins with: those of an election do. What is to be read stays as it is. */
uint32_t wire_slot(const struct wire *w);

/* The rest is what put and get are made of. */

void wire_begin(struct buf *m, enum wire_type type);
void wire_u8(struct buf *m, uint8_t v);
void wire_u32(struct buf *m, uint32_t v);
void wire_u64(struct buf *m, uint64_t v);
void wire_i64(struct buf *m, int64_t v);
void wire_str(struct buf *m, const char *s); /* NULL is sent as "" */
void wire_list(struct buf *m, struct wire parts);

/* Getters check bounds; after the first failure `bad` is set and every getter returns 0 or "". */
uint8_t wire_get_u8(struct wire *w);
uint32_t wire_get_u32(struct wire *w);
uint64_t wire_get_u64(struct wire *w);
int64_t wire_get_i64(struct wire *w);
const char *wire_get_str(struct wire *w);  /* points into the message; terminated */
struct wire wire_get_list(struct wire *w); /* all that is left */
bool wire_done(const struct wire *w);      /* everything read, nothing bad */

#endif
