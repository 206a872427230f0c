/* How long ago the store answered an operation of one elector, whether it takes its writes, as far as is known, and how
 * many operations failed. Not a decision: what a failed operation leads to is lease.h's. No I/O, no clock.
 * Used by the elector. */
#pragma once

#include "base/clock.h"

#include <stdbool.h>
#include <stdint.h>

enum write_failure {
	WRITE_UNSURE,  /* no answer, or one that says nothing of the next write */
	WRITE_FULL,    /* the store takes no writes at present: no space, read-only */
	WRITE_REFUSED, /* it takes none of ours: rights, a password, a table that is missing */
};

struct store_contact {     /* read by its user; changed by the functions below */
	bool answered;     /* the store has answered once */
	bool failing;      /* the last operation failed */
	bool lost;         /* store_contact_read_failed said so, and no operation succeeded since */
	bool watching;     /* the last attempt to watch succeeded */
	struct instant at; /* of the last answer; before the first, of the beginning */
	/* The last write was not taken, and nothing has shown since that one would be. false also as long as this
	 * elector has written nothing: then it is not known. */
	bool unwritable;
	bool wrote;               /* the store has taken a write of this elector once */
	bool refused;             /* unwritable, by WRITE_REFUSED */
	bool unsure;              /* the last write failed by WRITE_UNSURE */
	struct instant unsure_at; /* since when all writes have failed in that way */
	uint64_t reads_failed, writes_failed;
	uint64_t watches_failed; /* watches that ended by themselves */
};

void store_contact_init(struct store_contact *c, struct instant now);

/* An operation was answered. true: the store had been lost. */
bool store_contact_good(struct store_contact *c, struct instant now);

/* A read failed. true: from now on the store counts as lost, since the last answer is longer than `patience` ago. */
bool store_contact_read_failed(struct store_contact *c, nsec patience, struct instant now);

/* A write failed, which says nothing of reads. true: from now on the store counts as unwritable. If the store said
 * that it takes none, this is at once. If it said nothing, this is when writes have failed for longer than
 * `patience`, since one write may be lost with its connection. */
bool store_contact_write_failed(struct store_contact *c, enum write_failure how, nsec patience, struct instant now);

/* The store took a write of this elector. */
void store_contact_wrote(struct store_contact *c);

/* Somebody else has written since the last write that failed: the store takes writes, though perhaps none of ours. */
void store_contact_others_wrote(struct store_contact *c);

void store_contact_watching(struct store_contact *c, bool on);

nsec store_contact_silence(const struct store_contact *c, struct instant now); /* since the last answer */
