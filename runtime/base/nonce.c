#include "base/nonce.h"

#include "base/clock.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/types.h>

/* Names that are not random would make different things one: without them the process ends, and the guard ends its
 * term. */
__attribute__((noreturn)) static void end_without_random(void)
{
	fprintf(stderr, "lunarch: the kernel gives no random bytes: getrandom: %s\n", strerror(errno));
	abort();
}

/* getrandom(2): a signal interrupts it only while the kernel has not been seeded, soon after the machine's start. */
static void get_random(void *out, size_t bytes)
{
	ssize_t n;

	do
		n = getrandom(out, bytes, 0);
	while (n < 0 && errno == EINTR);
	if (n != (ssize_t)bytes)
		end_without_random();
}

void nonce_bytes(void *out, size_t bytes)
{
	/* The kernels of a cloned virtual machine and of its original return the same random numbers until they are
	 * seeded again (random(7)); only a virtual machine generation ID makes them do that at once. Their clocks
	 * differ by nanoseconds, so the clock is mixed in. */
	uint64_t now = (uint64_t)clock_now().raw * UINT64_C(0x9e3779b97f4a7c15);
	unsigned char *at = out;

	if (bytes > NONCE_MAX)
		abort();
	get_random(out, bytes);
	for (size_t i = 0; i < bytes && i < sizeof now; i++)
		at[i] ^= (unsigned char)(now >> (8 * (sizeof now - 1 - i)));
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

void nonce_uuid(char *out)
{
	char hex[33];

	nonce_hex(hex, 16);
	hex[12] = '4';
	hex[16] = "89ab"[hex[16] & 3];
	snprintf(out, 37, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16, hex + 20);
}
