#include "net/grpc/grpc_answer.h"

#include "base/mem.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX 5          /* of a message: a byte that says whether it is compressed, and four of length */
#define BLOCK_MOST 65536  /* of a header block; grpc.c announces the same */
#define MESSAGE_MOST 1000 /* of grpc-message */
#define FOREIGN_MOST 200  /* of a body that is not gRPC's */
#define FIELD_OVERHEAD 32 /* what HTTP/2 adds to each field's length (RFC 9113, 6.5.2) */
#define STATUS_UNKNOWN 2  /* gRPC's code for what has none */
#define STATUS_MOST 16    /* the largest code */

void grpc_answer_fini(struct grpc_answer *a)
{
	buf_fini(&a->message);
	buf_fini(&a->part);
}

void grpc_answer_block(struct grpc_answer *a)
{
	a->block = 0;
	a->status[0] = '\0';
	a->message.len = 0;
}

void grpc_printable(struct buf *out, const void *bytes, size_t len, size_t most)
{
	const char *from = bytes;
	size_t n = len < most ? len : most;

	while (n < len && n > 0 && (from[n] & 0xc0) == 0x80) /* not within a character */
		n--;
	char *s = mem_dupn(from, n);
	for (size_t i = 0; i < n; i++)
		if (s[i] == '\0')
			s[i] = ' ';
	if (buf_is_utf8(s)) {
		buf_plain(out, s);
	} else {
		for (const unsigned char *p = (const unsigned char *)s; *p; p++)
			buf_printf(out, *p >= 0x20 && *p < 0x7f ? "%c" : "\\x%02x", *p);
	}
	if (n < len)
		buf_adds(out, "...");
	free(s);
}

/* ---- headers ---- */

static bool same(const char *name, size_t len, const char *want)
{
	return len == strlen(want) && memcmp(name, want, len) == 0;
}

/* A code as a decimal number without leading zeros: "?" marks what is none, or comes twice. */
static void answer_set_status(struct grpc_answer *a, const char *value, size_t len)
{
	bool good = len > 0 && len < sizeof a->status && !a->status[0] && (len == 1 || value[0] != '0');

	for (size_t i = 0; i < len && good; i++)
		good = isdigit((unsigned char)value[i]);
	snprintf(a->status, sizeof a->status, "%.*s", good ? (int)len : 1, good ? value : "?");
}

static void answer_set_type(struct grpc_answer *a, const char *value, size_t len)
{
	static const char want[] = "application/grpc";
	size_t n = sizeof want - 1;
	struct buf text = { 0 };

	a->grpc = len >= n && memcmp(value, want, n) == 0 && (len == n || value[n] == '+' || value[n] == ';');
	grpc_printable(&text, value, len, sizeof a->type);
	snprintf(a->type, sizeof a->type, "%s", text.data ? text.data : "");
	buf_fini(&text);
}

bool grpc_answer_field(struct grpc_answer *a, const char *name, size_t name_len, const char *value, size_t value_len)
{
	a->block += name_len + value_len + FIELD_OVERHEAD;
	if (a->block > BLOCK_MOST)
		return false;
	if (same(name, name_len, ":status")) {
		a->http = value_len == 3 ? atoi(value) : -1;
		a->grpc = false;
		a->type[0] = '\0';
	} else if (same(name, name_len, "content-type")) {
		answer_set_type(a, value, value_len);
	} else if (same(name, name_len, "grpc-status")) {
		answer_set_status(a, value, value_len);
	} else if (same(name, name_len, "grpc-message")) {
		a->message.len = 0;
		buf_add(&a->message, value, value_len < 3 * MESSAGE_MOST ? value_len : 3 * MESSAGE_MOST);
	}
	return true;
}

bool grpc_answer_foreign(const struct grpc_answer *a)
{
	return a->http != 200 || !a->grpc;
}

bool grpc_answer_keep(struct grpc_answer *a, const void *bytes, size_t len)
{
	size_t room = FOREIGN_MOST + 1 - a->part.len;

	buf_add(&a->part, bytes, len < room ? len : room);
	return a->part.len <= FOREIGN_MOST;
}

/* ---- messages ---- */

/* The length that a prefix says; -1: it is none that is accepted. */
static int64_t prefix_length(const unsigned char *p, size_t limit, struct err *err)
{
	uint32_t size = (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4];

	if (p[0] == 1)
		return err_set(err, ERR_INVALID, "the server sent a compressed message, though none was asked for");
	if (p[0] != 0)
		return err_set(err, ERR_INVALID, "the server sent a message that begins with byte %d, not 0", p[0]);
	if (size > limit)
		return err_set(err, ERR_FULL, "the server sent a message of %u bytes: that is over the limit of %zu",
		               size, limit);
	return size;
}

/* Moves bytes into the part until it has `want`. Returns how many it took. */
static size_t part_fill(struct buf *part, const unsigned char *bytes, size_t len, size_t want)
{
	size_t n = part->len >= want ? 0 : want - part->len;

	if (n > len)
		n = len;
	buf_add(part, bytes, n);
	return n;
}

int grpc_answer_body(struct grpc_answer *a, const void *bytes, size_t len, size_t limit, struct buf *whole,
                     struct err *err)
{
	const unsigned char *p = bytes;
	size_t n = part_fill(&a->part, p, len, PREFIX);

	*whole = (struct buf){ 0 };
	if (a->part.len < PREFIX)
		return (int)n;
	int64_t size = prefix_length((const unsigned char *)a->part.data, limit, err);
	if (size < 0)
		return -1;
	n += part_fill(&a->part, p + n, len - n, PREFIX + (size_t)size);
	if (a->part.len == PREFIX + (size_t)size) {
		*whole = a->part;
		a->part = (struct buf){ 0 };
	}
	return (int)n;
}

/* ---- the end ---- */

/* doc/http-grpc-status-mapping.md of gRPC. 200 has no code: an answer without a status. */
static int status_of_http(int http)
{
	switch (http) {
	case 200:
		return -1;
	case 400:
		return 13; /* INTERNAL */
	case 401:
		return 16; /* UNAUTHENTICATED */
	case 403:
		return 7; /* PERMISSION_DENIED */
	case 404:
		return 12; /* UNIMPLEMENTED */
	case 429:
	case 502:
	case 503:
	case 504:
		return 14; /* UNAVAILABLE */
	default:
		return STATUS_UNKNOWN;
	}
}

static int hex_value(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
	                              : -1;
}

/* grpc-message is percent-encoded; what is no %XX stands for itself. */
static void message_decode(const struct buf *message, struct buf *text)
{
	struct buf plain = { 0 };

	for (size_t i = 0; i < message->len; i++) {
		const char *p = message->data + i;
		bool coded = *p == '%' && i + 2 < message->len && hex_value(p[1]) >= 0 && hex_value(p[2]) >= 0;
		char c = coded ? (char)(hex_value(p[1]) << 4 | hex_value(p[2])) : *p;
		buf_add(&plain, &c, 1);
		i += coded ? 2 : 0;
	}
	if (plain.len)
		grpc_printable(text, plain.data, plain.len, MESSAGE_MOST);
	buf_fini(&plain);
}

static int foreign_end(const struct grpc_answer *a, struct buf *text)
{
	if (a->http != 200)
		buf_printf(text, "HTTP status %d instead of an answer in gRPC", a->http);
	else
		buf_printf(text, "content-type \"%s\" instead of application/grpc", a->type);
	if (a->part.len) {
		buf_adds(text, ": ");
		grpc_printable(text, a->part.data, a->part.len, FOREIGN_MOST);
	}
	return status_of_http(a->http);
}

int grpc_answer_end(const struct grpc_answer *a, bool *replied, struct buf *text)
{
	static const char *const names[STATUS_MOST + 1] = {
		"",          "CANCELLED",       "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
		"NOT_FOUND", "ALREADY_EXISTS",  "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
		"ABORTED",   "OUT_OF_RANGE",    "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
		"DATA_LOSS", "UNAUTHENTICATED",
	};
	bool number = isdigit((unsigned char)a->status[0]), ok = strcmp(a->status, "0") == 0;

	*replied = false;
	if (grpc_answer_foreign(a) && (ok || !number))
		return foreign_end(a, text);
	if (!number) {
		buf_printf(text, "the server ended its answer %s",
		           a->status[0] ? "with a grpc-status that is no number, or with two" : "without a status");
		return -1;
	}
	if (ok && a->part.len) {
		buf_adds(text, "the server ended its answer within a message");
		return -1;
	}
	long code = strtol(a->status, NULL, 10);
	int status = code <= STATUS_MOST ? (int)code : STATUS_UNKNOWN;
	*replied = true;
	message_decode(&a->message, text);
	if (text->len == 0)
		buf_adds(text, names[status]);
	return status;
}
