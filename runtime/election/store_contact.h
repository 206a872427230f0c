/* How long ago the store answered an operation of one elector, and how many operations failed.
 * Not a decision: what a failed operation leads to is lease.h's. No I/O, no clock.
 * Used by the elector. */
#ifndef LUNARCH_STORE_CONTACT_H
#define LUNARCH_STORE_CONTACT_H

#include "base/clock.h"

#include <stdbool.h>
#include <stdint.h>

struct store_contact {     /* read by its user; changed by the functions below */
	bool answered;     /* the store has answered once */
	bool failing;      /* the last operation failed */
	bool lost;         /* store_contact_failed said so, and no operation succeeded since */
	bool watching;     /* the last attempt to watch succeeded */
	struct instant at; /* of the last answer; before the first, of the beginning */
	uint64_t reads_failed, writes_failed;
	uint64_t watches_failed; /* watches that ended by themselves */
};

void store_contact_init(struct store_contact *c, struct instant now);

/* An operation was answered. true: the store had been lost. */
bool store_contact_good(struct store_contact *c, struct instant now);

/* An operation failed. true: from now on the store counts as lost, since the last answer is longer than `patience` ago
 * and a read failed. A write that fails says little of the store: a read follows it, and may well be answered. */
bool store_contact_failed(struct store_contact *c, bool write, nsec patience, struct instant now);

void store_contact_watching(struct store_contact *c, bool on);

nsec store_contact_silence(const struct store_contact *c, struct instant now); /* since the last answer */

#endif
