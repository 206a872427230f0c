/* Random names: for writes, parts of incarnations, and everything else whose name must never occur twice.
 * Not secrets, and not numbers for a simulation, which must be repeatable.
 * Used by locks, the elector and the simulated store. */
#ifndef LUNARCH_NONCE_H
#define LUNARCH_NONCE_H

#include <stddef.h>

#define NONCE_MAX 64 /* bytes at most; getrandom(2) never cuts so few short after boot */

/* So many random bytes; a program that cannot have them ends. Two copies of a machine that was cloned while it ran get
 * different ones, also where nobody tells their kernels. */
void nonce_bytes(void *out, size_t bytes);

/* So many random bytes as lower-case hex. out: 2 * bytes + 1. */
void nonce_hex(char *out, size_t bytes);

/* A random UUID (RFC 9562, version 4). out: 37 bytes. */
void nonce_uuid(char *out);

#endif
