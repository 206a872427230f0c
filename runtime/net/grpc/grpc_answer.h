/* The answer to one call: its header blocks, its messages out of bytes, and what its end says.
 * Not the connection: it knows neither streams nor nghttp2.
 * Used by grpc.c. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* All zero at first. */
struct grpc_answer {
	int http;           /* the HTTP status; 0: no headers have come */
	bool grpc;          /* content-type is application/grpc */
	char type[80];      /* content-type, printable, cut */
	size_t block;       /* bytes of the present header block, counted as HTTP/2 does (RFC 9113, 6.5.2) */
	char status[16];    /* grpc-status of the last block; "": none, "?": no number, or given twice */
	struct buf message; /* grpc-message of the last block, as it came */
	struct buf part;    /* a message that is not whole yet, with its prefix; or a foreign body's first bytes */
};
void grpc_answer_fini(struct grpc_answer *a);

/* A header block begins; then each of its fields. false: the block is too long. */
void grpc_answer_block(struct grpc_answer *a);
bool grpc_answer_field(struct grpc_answer *a, const char *name, size_t name_len, const char *value, size_t value_len);

/* The headers that have come are not those of an answer in gRPC. */
bool grpc_answer_foreign(const struct grpc_answer *a);
/* Keeps the next bytes of a foreign answer's body, for the error. false: what is kept is enough. */
bool grpc_answer_keep(struct grpc_answer *a, const void *bytes, size_t len);

/* Takes the next bytes of the body, at most to the end of a message. Returns how many; -1: no message of gRPC, *err
 * says why. *whole: the message, behind the 5 bytes of its prefix, which the caller frees; empty: none is whole yet. */
int grpc_answer_body(struct grpc_answer *a, const void *bytes, size_t len, size_t limit, struct buf *whole,
                     struct err *err);

/* The server has ended the answer. Returns gRPC's status, -1: none came. Adds what the server says, or what is wrong,
 * to *text. *replied: the status is the server's own; else it is what gRPC makes of the HTTP status. */
int grpc_answer_end(const struct grpc_answer *a, bool *replied, struct buf *text);

/* Adds bytes that a server sent as printable text, at most `most` of them: control characters and what is no UTF-8
 * become \n and \xNN. */
void grpc_printable(struct buf *out, const void *bytes, size_t len, size_t most);
