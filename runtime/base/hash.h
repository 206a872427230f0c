/* Hashes of bytes, to tell contents apart: a fast one, and one that is the same on every machine.
 * Not for input with which somebody may want to cause a collision.
 * Used by records, locks and the default lock's name. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HASH_SEED UINT64_C(0xcbf29ce484222325)

/* Takes a word at a time, so its value depends on the machine's byte order: do not store or send it. Goes on from h.
 * Contents may be passed in several parts, if all but the last are multiples of 8 bytes. Each step can be undone, so
 * two contents that differ in one word never have the same hash. The multiplication moves bits up only; the shift moves
 * high bits down. */
static inline uint64_t hash_bytes(uint64_t h, const void *bytes, size_t len)
{
	const char *at = bytes;

	for (; len >= sizeof h; at += sizeof h, len -= sizeof h) {
		uint64_t word;
		memcpy(&word, at, sizeof word);
		h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		h ^= h >> 32;
	}
	if (len) {
		uint64_t word = 0;
		memcpy(&word, at, len);
		h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		h ^= h >> 32;
	}
	return h;
}

/* FNV-1a, 64 bits, a byte at a time: the same on every machine. */
#define HASH_FNV_SEED HASH_SEED

static inline uint64_t hash_fnv(uint64_t h, const void *bytes, size_t len)
{
	for (const unsigned char *at = bytes; len > 0; len--)
		h = (h ^ *at++) * UINT64_C(0x100000001b3); // NOLINT(clang-analyzer-core.*): numbers as bytes
	return h;
}
