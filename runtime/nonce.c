#include "nonce.h"

#include <stdlib.h>
#include <sys/random.h>
#include <sys/types.h>

void nonce_bytes(void *out, size_t bytes)
{
	if (bytes > NONCE_MAX || getrandom(out, bytes, 0) != (ssize_t)bytes)
		abort();
}

void nonce_hex(char *out, size_t bytes)
{
	unsigned char b[NONCE_MAX];

	nonce_bytes(b, bytes);
	for (size_t i = 0; i < bytes; i++) {
		out[2 * i] = "0123456789abcdef"[b[i] >> 4];
		out[2 * i + 1] = "0123456789abcdef"[b[i] & 15];
	}
	out[2 * bytes] = '\0';
}
