/* Random names: for writes, incarnations, and everything else whose name must never occur twice.
 * Not for secrets, and not for a simulation, which must be repeatable.
 * Used by locks, the elector and the simulated store. */
#pragma once

#include <stddef.h>

#define NONCE_MAX 64 /* bytes at most; getrandom(2) always returns so few in full */

/* Fills out with random bytes, or ends the process. A machine that was cloned while it ran and its copy get different
 * bytes, even if their kernels do not know of the cloning. */
void nonce_bytes(void *out, size_t bytes);

/* The same as lower-case hex digits. out: 2 * bytes + 1 characters. */
void nonce_hex(char *out, size_t bytes);

/* A random UUID (RFC 9562, version 4). out: 37 bytes. */
void nonce_uuid(char *out);
