/* What the fuzz targets share: pieces of the input, and what must hold of any input.
 * Not a target: each NAME.c is one, with corpus/NAME, and NAME.dict where words help. How to run them: CONTRIBUTING.md.
 * Used by tests/fuzz/NAME.c. */
#pragma once

#include "base/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The finding: libFuzzer keeps the input and prints the stack. */
#define must(what)                                                                                 \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "%s:%d: this must hold: %s\n", __FILE__, __LINE__, #what); \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* What is left of an input. */
struct input {
	const uint8_t *at;
	size_t left;
};

__attribute__((unused)) static uint8_t input_byte(struct input *in)
{
	if (in->left == 0)
		return 0;
	in->left--;
	return *in->at++;
}

/* Up to the next zero byte, or all that is left; terminated. The caller frees it: a heap block of its own, so that a
 * read behind its end is found. */
__attribute__((unused)) static char *input_text(struct input *in, size_t *len)
{
	const uint8_t *zero = in->left ? memchr(in->at, 0, in->left) : NULL;
	size_t n = zero ? (size_t)(zero - in->at) : in->left;
	char *text = malloc(n + 1);

	if (n)
		memcpy(text, in->at, n);
	text[n] = '\0';
	in->at += n + (zero != NULL);
	in->left -= n + (zero != NULL);
	if (len)
		*len = n;
	return text;
}

/* A copy of bytes, without anything behind them. The caller frees it. */
__attribute__((unused)) static void *input_copy(const void *bytes, size_t len)
{
	void *copy = malloc(len ? len : 1);

	if (len)
		memcpy(copy, bytes, len);
	return copy;
}

__attribute__((unused)) static void fuzz_no_log(void *arg, enum log_level level, const struct log_about *about,
                                                const char *event, const char *text)
{
	(void)arg, (void)level, (void)about, (void)event;
	must(text != NULL);
}

/* The log goes nowhere. */
__attribute__((unused)) static void fuzz_silence(void)
{
	log_divert(fuzz_no_log, NULL);
}
