/* The changes of the elections of this process: one place finds them for everybody who is to be told.
 * Not a log: what changed and changed back between two looks is not told. Times and counts alone are no change.
 * Used by events.c and state_file.c; program.c has it. */
#pragma once

#include "program/standing.h"

struct changes;
struct ev_loop;

struct changes_follower { /* borrowed until it leaves */
	/* e is new, or differs from what the last look saw. number: of this change; it grows by 1 with each. */
	void (*changed)(void *arg, uint64_t number, const struct standing *e);
	void (*gone)(void *arg, uint64_t number, const char *name); /* a reload has taken it away */
	void (*looked)(void *arg); /* after all that one look has found, which may be nothing. It may leave here */
	void *arg;
	struct changes_follower *next; /* private */
};

struct changes *changes_new(struct ev_loop *loop, const struct standing_source *source);
void changes_free(struct changes *c); /* when all have left; NULL: does nothing */

/* From now on f is told, from the loop: before the loop waits, since whatever changes an election is done by the loop;
 * but not more often than each 20 ms, and once a second at least. The first follower is told of every election at once;
 * another one only of what changes from now on. While nobody follows nothing is looked at. */
void changes_follow(struct changes *c, struct changes_follower *f);
void changes_leave(struct changes *c, struct changes_follower *f); /* f need not follow */
bool changes_followed_by(const struct changes *c, const struct changes_follower *f);

uint64_t changes_number(const struct changes *c); /* of the last change that was found; 0: none yet */
