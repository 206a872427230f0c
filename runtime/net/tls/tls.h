/* Room net/tls: TLS between bytes and bytes, by OpenSSL, loaded when it is first needed.
 *
 * The client's side of one TLS connection: received bytes go in, plain text comes out, and the other way round.
 * No socket, no clock, no retry: whoever has the connection carries the bytes and limits the time. It is the module
 * `tls` (base/module.h), so that a process loads OpenSSL only if it uses it: module_open("tls", &err)->tls. Used by the
 * locks in etcd and Redis, and by lunarch.tcp. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct tls;

/* What a connection is verified with. The names are used in begin() only. NULL: none, or the default. */
struct tls_settings {
	const char *host;        /* name or address of the server: what its certificate must be for. Not NULL */
	const char *server_name; /* instead of host (SNI, verification) */
	const char *ca_file;     /* PEM; instead of the system's certificate authorities */
	const char *cert_file;   /* PEM; this client's certificate, with intermediates */
	const char *key_file;    /* PEM; its key. NULL: it is in cert_file */
	const char *protocol;    /* the only one offered by ALPN; the server must choose it. NULL: no ALPN */
};

struct tls_ops {
	/* Reads the files (now, so that a new connection uses renewed certificates) and begins the handshake: take()
	 * has its first bytes. NULL: *err names the file, and says what is wrong with it. Takes milliseconds with the
	 * system's CAs. */
	struct tls *(*begin)(const struct tls_settings *s, struct err *err);
	void (*end)(struct tls *t); /* t may be NULL */

	/* Bytes that have come from the server; plain text is appended to *plain. Call take() afterwards. -1: the
	 * connection is of no more use; *err says why: ERR_DENIED, the server's certificate was not accepted (which,
	 * why, what was expected) or the server refused this client's; ERR_INVALID, no TLS or a broken one, or not the
	 * protocol that was offered. take() may still have an alert for the server. */
	int (*feed)(struct tls *t, const void *bytes, size_t len, struct buf *plain, struct err *err);
	/* Plain text for the server. What is written before the handshake is over is sent after it. -1 as in feed(). */
	int (*write)(struct tls *t, const void *plain, size_t len, struct err *err);
	/* Appends what is to be sent to the server. */
	void (*take)(struct tls *t, struct buf *out);

	bool (*ready)(const struct tls *t); /* the handshake is over, and the server's certificate was accepted */
};

/* What the module offers, for a program that is linked with it (a test). */
extern const struct tls_ops tls_openssl;
