/* What a lock file does wrong, for its author: one line of the log for each distinct text, at most once a minute; and
 * no text with the lock's password in it.
 * Not what goes wrong in a store, which the elector tells.
 * Used by the driver. */
#pragma once

#include "base/clock.h"

#include <stdbool.h>
#include <stdint.h>

#define DRIVER_LOG_TEXTS 32

struct driver_log { /* zero before the first use */
	struct {
		uint64_t hash;
		nsec at;
		bool used;
	} said[DRIVER_LOG_TEXTS];
};

/* Whether to write this text now: not if it was written within the last minute. The least recent of many texts is
 * forgotten. */
bool driver_log_due(struct driver_log *l, const char *text, nsec now);

/* The text with "***" in place of the secret; the caller frees it. secret: NULL or shorter than 4 bytes: nothing is
 * hidden, since such a text is part of many a word. */
char *driver_log_hide(const char *text, const char *secret);
