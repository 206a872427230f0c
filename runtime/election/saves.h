/* The checkpoints that a script saves: which record each of them goes into, and which is put back when the store fell
 * back to an older record. Not when a record is written, nor whether a save is known to be stored: lease.h decides
 * both. No I/O and no clock. Used by the elector. */
#pragma once

#include "lease/lease.h"
#include "lease/record.h"

struct saves {                  /* begins as zeros; private */
	char *pending;          /* saved in the term that runs, and not answered yet; NULL: there is none */
	uint64_t number;        /* of the last save */
	char *leftover;         /* was still pending when its term ended; NULL: there is none */
	char *newest;           /* of our newest record known to have been in the store; NULL: that record has none */
	uint64_t newest_count;  /* the count of that record's write; 0: there is no such record */
	uint64_t restored_over; /* the count of the older record over which a checkpoint was last restored */
};

void saves_fini(struct saves *s);

/* The script saves json, which passed record_checkpoint_check. number: larger than any before. */
void saves_add(struct saves *s, uint64_t number, const char *json);

/* Every save up to this number is answered. good: the record holds it; else the term of these saves is over. */
void saves_answer(struct saves *s, uint64_t number, bool good);

/* r is a record of ours, and the store has it or had it. */
void saves_seen(struct saves *s, const struct record *r);

enum saves_restored {
	SAVES_KEPT,     /* the record's own checkpoint stands */
	SAVES_RESTORED, /* the store fell back and showed this older record of ours: ours is put back */
	SAVES_AGAIN,    /* the same, over the same older record as before */
};

/* Call before saves_put. r: what the store shows, with the count of its write; gets the checkpoint that is put back.
 * What others have saved since stands. incarnation: ours. */
enum saves_restored saves_restore(struct saves *s, struct record *r, const char *incarnation);

/* r: what the next write makes of the record; gets the checkpoint that goes with a write of this kind, if one does. A
 * renewal takes the pending one. What is left over of an ended term goes with the release, or with the next term that
 * follows without a release. An acquisition drops it, since another process may have led and saved meanwhile. */
void saves_put(struct saves *s, struct record *r, enum lease_write what);
