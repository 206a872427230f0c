/* How long nobody is elected after a failover. A server that was promoted, or came back without its data, may have lost
 * a leader's record; that is a doubt. Not the detection: the backend does that, and gives each doubt a name of its own
 * in the store, so that all candidates wait for the same one. Used by the locks in stores that answer before all of
 * their copies have a write (Redis, PostgreSQL, MariaDB), and by that in ZooKeeper, where a doubt is one candidate's
 * own: it has seen what the servers do not show any more.
 *
 * The rule is the one for every record (docs/design.md): a candidate waits, by its own clock, from the moment when it
 * first saw the doubt, for the longest lease that the lost record may have had. Who has waited may remove the doubt
 * from the store with its next write. The server's clock decides nothing. */
#pragma once

#include "base/clock.h"
#include "lease/record.h"

#include <stdbool.h>

#define LOCK_FAILOVER_MARK 64

struct lock_failover {                 /* one per lock, embedded; zero before the first use */
	char mark[LOCK_FAILOVER_MARK]; /* the name of the doubt; "" = none is known */
	struct instant seen;           /* when it was first received */
	nsec longest;                  /* the longest lease that was seen here */
	/* Our last write that names us as the leader; "" = none, or somebody else may have led since. */
	struct version own;
	struct instant own_until; /* the end of the shortest lease that we may have published since it was sent */
};

/* A record of this lock publishes this lease, or did so once. */
void lock_failover_lease(struct lock_failover *d, nsec lease);

/* A look found a record of this version. */
void lock_failover_found(struct lock_failover *d, const struct version *version);

/* What the store says now: the name of its doubt; "" = it has none. The wait begins anew with a name that was not
 * known. */
void lock_failover_see(struct lock_failover *d, const char *mark, struct instant now);

/* How much of the wait is left to a candidate that would publish this lease, which counts as one that was seen; 0:
 * there is no doubt, or it has waited. */
nsec lock_failover_left(const struct lock_failover *d, nsec lease, struct instant now);

/* The name of the doubt, if it has been waited out; else "". */
const char *lock_failover_over(const struct lock_failover *d, nsec lease, struct instant now);

/* A write of ours is about to be sent, or sent again: others may see it, even if its answer is lost. leads: it
 * names us as the leader; lease: for that long. */
void lock_failover_sends(struct lock_failover *d, bool leads, nsec lease, struct instant now);

/* It succeeded. */
void lock_failover_wrote(struct lock_failover *d, const struct version *version, bool leads, nsec lease,
                         struct instant sent_at);

/* The record of this version is of our own term, which we have not released, and whose lease has not expired: so no
 * other term can have begun after it and been lost. */
bool lock_failover_own(const struct lock_failover *d, const struct version *version, struct instant now);
