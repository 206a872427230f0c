/* Typed, bounds-checked messages between elector and worker, one per SOCK_SEQPACKET datagram.
 * Not a stream and not for strangers: a malformed message ends the conversation.
 * Used by the supervisor (in the elector) and the worker. */
#ifndef LUNARCH_WIRE_H
#define LUNARCH_WIRE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_MAX (128 * 1024) /* bytes of one message */

/* slot: the election's position in the script's list, from 0, which is its slot of the shared page, too. */
enum wire_type {
	/* worker -> elector */
	WIRE_ELECTION =
		1, /* u32 index, then the fields of struct wire_election in order: a script's election, while loading */
	WIRE_LOADED,      /* u32 elections */
	WIRE_LOAD_FAILED, /* str text (file, line, what was expected) */
	WIRE_STARTED,     /* on_start has run; u8 ok, str text */
	WIRE_ANSWER,      /* u32 slot, u64 ask, u8 yes, str why, str address ("" = unchanged) */
	WIRE_STOPPED,     /* u32 slot, u64 term: on_stopped has run, the term's tasks and children are gone */
	WIRE_END,  /* u32 slot, u64 term, u8 enum lease_reason, i64 sit_out_ms (-1: default back-off), str text */
	WIRE_EXIT, /* u32 code: os.exit or lunarch.exit; stop everything */
	WIRE_SAVE, /* u32 slot, u64 term, u64 save (growing), str checkpoint: into the record. One at a time, answered
	            * by WIRE_SAVED; only a last one, of a term that is over, may overtake it */

	/* elector -> worker */
	WIRE_GO = 64,   /* u32 elections in this message, u8 enum wire_go, then per election: u32 slot, str lock,
	                 * str identity: those that this worker keeps. Before any other message but WIRE_QUIT */
	WIRE_LEAD,      /* u32 slot, u64 term, i64 token, str address, str checkpoint ("" = none) */
	WIRE_STOP,      /* u32 slot, u64 term, u8 reason, i64 grace_ms */
	WIRE_CLEANUP,   /* u32 slot, u64 term, i64 token, u8 reason, i64 grace_ms, str checkpoint: run on_stopped for a
	                   term whose worker died */
	WIRE_LEADER,    /* u32 slot, str identity, str address, i64 token, u8 is_self, str previous ("" = none) */
	WIRE_NO_LEADER, /* u32 slot, str previous */
	WIRE_ASK,       /* u32 slot, u64 ask: may_lead, and the address if it is a function */
	WIRE_QUIT,      /* leave, exit status 0 */
	WIRE_SAVED, /* u32 slot, u64 term, u64 save, u8 enum wire_saved, str why: that save is in the record, or is not
	             */
};

enum wire_go {
	WIRE_GO_REPLACEMENT, /* on_start has run in another worker before */
	WIRE_GO_FIRST,       /* run on_start */
	WIRE_GO_MORE,        /* too many for one message: the rest follows */
};

enum wire_saved {
	WIRE_SAVED_NOT, /* the term was over first */
	WIRE_SAVED_GOOD,
	WIRE_SAVED_REFUSED, /* no record may hold such a checkpoint */
};

/* Writing: a message is built in a buf and sent whole. */
void wire_begin(struct buf *m, enum wire_type type);
void wire_u8(struct buf *m, uint8_t v);
void wire_u32(struct buf *m, uint32_t v);
void wire_u64(struct buf *m, uint64_t v);
void wire_i64(struct buf *m, int64_t v);
void wire_str(struct buf *m, const char *s); /* NULL is sent as "" */

/* Reading: getters check bounds; after the first failure `bad` is set and every getter returns 0 or "". */
struct wire {
	const unsigned char *at, *end;
	bool bad;
};
enum wire_type wire_open(struct wire *w, const void *data, size_t len); /* 0 if it is no message */
uint8_t wire_get_u8(struct wire *w);
uint32_t wire_get_u32(struct wire *w);
uint64_t wire_get_u64(struct wire *w);
int64_t wire_get_i64(struct wire *w);
const char *wire_get_str(struct wire *w); /* points into the message; terminated */
bool wire_done(const struct wire *w);     /* everything read, nothing bad */

#endif
