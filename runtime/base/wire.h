/* Messages between two processes of the program on one machine: numbers, texts and lists, read with every bound
 * checked; and macros that make of a list of fields a struct, a function that writes it, and one that reads it. Not
 * the messages: process/wire.h has those of elector and worker, locks/lua/driver_wire.h those of elector and
 * driver. Used by those two. */
#pragma once

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is left of a message to be read; or bytes to be written as a list. */
struct wire {
	const unsigned char *at, *end;
	bool bad;
};

/* The type that begins a message. 0 if there is none, or if it has more than `most` bytes: then it is bad. */
uint32_t wire_start(struct wire *w, const void *data, size_t len, size_t most);

#define WIRE_CUT 16384

/* The parts of every put and get. */

void wire_begin(struct buf *m, uint32_t type);
void wire_u8(struct buf *m, uint8_t v);
void wire_u32(struct buf *m, uint32_t v);
void wire_u64(struct buf *m, uint64_t v);
void wire_i64(struct buf *m, int64_t v);
void wire_str(struct buf *m, const char *s); /* NULL is sent as "" */
void wire_cut(struct buf *m, const char *s); /* the same, of which WIRE_CUT bytes are sent at most */
void wire_list(struct buf *m, struct wire parts);
struct wire wire_parts(const struct buf *list); /* parts that were put into a buffer, which stays the caller's */

/* Getters check bounds; after the first failure `bad` is set and every getter returns 0 or "". */
uint8_t wire_get_u8(struct wire *w);
uint32_t wire_get_u32(struct wire *w);
uint64_t wire_get_u64(struct wire *w);
int64_t wire_get_i64(struct wire *w);
#define wire_get_cut wire_get_str
const char *wire_get_str(struct wire *w);  /* points into the message; terminated */
struct wire wire_get_list(struct wire *w); /* all that is left */
bool wire_done(const struct wire *w);      /* everything read, nothing bad */

/* FIELDS(F) is F(type, name) for each field, in their order. WIRE_DECLARE(NAME, FIELDS) in a header declares struct
 * NAME; NAME_put, which writes it; and NAME_get, which reads it. What could not be read is 0 or "". Strings and lists
 * that were read point into the message. In a .c file, WIRE_DEFINE_MESSAGE(NAME, TYPE, FIELDS) is a whole message: put
 * begins it in m, get is false if it is malformed: cut, or with anything behind its last field. WIRE_DEFINE_PART is a
 * part of one: put appends it, get is false if it is cut. */
#define WIRE_C_u8 uint8_t
#define WIRE_C_u32 uint32_t
#define WIRE_C_u64 uint64_t
#define WIRE_C_i64 int64_t
#define WIRE_C_str const char *
#define WIRE_C_cut const char *
#define WIRE_C_list struct wire
#define WIRE_MEMBER(type, name) WIRE_C_##type name;
#define WIRE_PUT(type, name) wire_##type(m, v->name);
#define WIRE_GET(type, name) v->name = wire_get_##type(w);

#define WIRE_DECLARE(NAME, FIELDS)                            \
	struct NAME {                                         \
		FIELDS(WIRE_MEMBER)                           \
	};                                                    \
	void NAME##_put(struct buf *m, const struct NAME *v); \
	bool NAME##_get(struct wire *w, struct NAME *v);

#define WIRE_DEFINE_MESSAGE(NAME, TYPE, FIELDS)              \
	void NAME##_put(struct buf *m, const struct NAME *v) \
	{                                                    \
		(void)v;                                     \
		wire_begin(m, TYPE);                         \
		FIELDS(WIRE_PUT)                             \
	}                                                    \
	bool NAME##_get(struct wire *w, struct NAME *v)      \
	{                                                    \
		(void)v;                                     \
		FIELDS(WIRE_GET) return wire_done(w);        \
	}

#define WIRE_DEFINE_PART(NAME, FIELDS)                       \
	void NAME##_put(struct buf *m, const struct NAME *v) \
	{                                                    \
		FIELDS(WIRE_PUT)                             \
	}                                                    \
	bool NAME##_get(struct wire *w, struct NAME *v)      \
	{                                                    \
		FIELDS(WIRE_GET) return !w->bad;             \
	}
