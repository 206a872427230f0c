/* The next record: the record N that stands beside a lock's record and holds the candidate that comes next
 * (lease/next.h). Not the lock's record, and no lease: nobody's safety depends on what it says.
 * Used by the elector, by the commands that list locks, and by doctor. */
#pragma once

#include "lease/advice.h"
#include "lease/next.h"
#include "lease/record.h"

struct next_record {                 /* its texts are borrowed */
	struct advice_candidate who; /* nobody: N is written empty */
	const char *answers;
	int64_t since_us, wall_us;  /* when it became next, and now, by the wall clock */
	int64_t lease_ms, retry_ms; /* for people, and for other programs; no wait depends on them */
};

/* Makes the record say this; it does not set the write's name. Unknown fields are kept. It has no term, token or
 * process, so no election takes it for its own. n borrows nothing of r. */
void next_record_fill(struct record *r, const struct next_record *n);

/* Declines a request in an N. The N may hold another candidate than the one that the request is for. */
void next_record_decline(struct record *r, const char *request, const char *why);

/* Whether the record is an N: not an election's, which must leave it alone. */
bool next_record_is(const struct record *r);

/* The same as next_record_is; fills *out with what the record says, whose texts it borrows. false: it belongs to an election or another
 * program, and must be left alone. */
bool next_record_read(const struct record *r, struct next_record *out);

/* ---- what records show the process that has this identity, and incarnation ---- */

/* An identity, and the name of a request, as the machine's numbers (struct next_event). A name "" is 0. */
uint64_t next_record_identity(const char *identity);
uint64_t next_record_request(const char *name);

/* N; NULL: it is absent. */
struct next_sight next_record_sight(const struct record *n, const char *identity, const char *incarnation);

/* M, which is a record of an election. */
struct next_news next_record_news(const struct record *m, const char *identity);

/* The value of lease_sight.other_first for M. */
bool next_record_other_first(const struct record *m, const char *identity, const char *incarnation);
