/* Whether somebody leads by a record: the one answer that all commands, their JSON and the admin endpoint give.
 * Not for decisions: who may lead is the lease machine's to say (lease.h).
 * Used by standing.h, and by script/api/lua_lock.c, through which the commands show records. */
#pragma once

#include "lease/record.h"

enum leadership {
	LEADERSHIP_ABSENT,   /* there is no record */
	LEADERSHIP_NO_LOCK,  /* it is the next record beside a lock's record */
	LEADERSHIP_RELEASED, /* nobody holds it */
	LEADERSHIP_FENCING,  /* somebody holds it, and fences earlier holders before its term begins: nobody leads */
	LEADERSHIP_OVERDUE,  /* somebody holds it, and has not renewed it for its lease */
	LEADERSHIP_LEADING,
};

/* What the reader saw itself, by its own monotonic clock. It counts more than the times in the record, which are of
 * the holder's wall clock. */
enum leadership_watched {
	WATCHED_NOTHING, /* it has read the record once, or for less than its lease */
	WATCHED_RENEWS,  /* the record has changed within its lease */
	WATCHED_SILENT,  /* the record has not changed for its lease */
};

/* r NULL: there is no record. now_us: the reader's wall clock, which decides only where nothing was watched. A
 * record without a time of renewal does not count as overdue. */
enum leadership leadership_of(const struct record *r, int64_t now_us, enum leadership_watched watched);

const char *leadership_name(enum leadership l); /* "leading", "overdue", ... as `state` in JSON */
