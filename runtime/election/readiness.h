/* Whether a candidate could lead now, by all that is known of it: the one answer for every endpoint and metric, for
 * `why`, and for who comes next.
 * Not whether it may acquire the lease: lease.h decides that, and asks the hook may_lead itself. No I/O and no clock.
 * Used by the elector, whose status has the answer (elector_status.lacks). */
#pragma once

#include "election/store_contact.h"
#include "lease/lease.h"

struct readiness {                /* changed by the functions below */
	bool asks;                /* may_lead must say yes */
	bool user;                /* its user could lead now */
	bool answered, yes, late; /* may_lead: its last answer. late: it has not answered in time since */
	struct instant next;      /* when it is to be asked */
};

void readiness_init(struct readiness *r, bool asks, struct instant now);
void readiness_asks(struct readiness *r, bool asks, struct instant now); /* from now on; what was said does not count */

/* To be called when may_lead was asked, for whatever reason: the next time is `every` later. */
void readiness_asked(struct readiness *r, nsec every, struct instant now);
void readiness_answered(struct readiness *r, bool yes);
void readiness_late(struct readiness *r);

/* Why it could not lead, for people: static text. NULL: it could, or it leads. */
const char *readiness_lacks(const struct readiness *r, enum lease_phase phase, const struct lease_standing *s,
                            const struct store_contact *c);

/* Whether it lacks nothing but that the store takes its writes. lacks: from readiness_lacks. */
bool readiness_is_doubt(const char *lacks);

/* A standby: may_lead is to be asked now, in order to know whether it could lead. */
bool readiness_to_ask(const struct readiness *r, const char *lacks, struct instant now);

/* A standby: nanoseconds until readiness_to_ask may become true; NSEC_NEVER. */
nsec readiness_wait(const struct readiness *r, const char *lacks, struct instant now);
