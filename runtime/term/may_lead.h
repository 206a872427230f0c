/* What is known of a script's may_lead: the question that waits for its answer, and the last answer.
 * Not a decision: the elector asks, and acquires nothing without a yes (lease.h). It logs when a refusal begins and
 * ends. Used by term_supervision.c; standing.c tells people. */
#pragma once

#include "base/clock.h"
#include "base/log.h"

#include <stdbool.h>

enum may_lead_answer {
	MAY_LEAD_NONE, /* it has not answered yet */
	MAY_LEAD_YES,
	MAY_LEAD_NO,
	MAY_LEAD_LATE, /* it did not answer in time */
};

struct may_lead {     /* zeroed: it was never asked. Read by its users */
	nsec timeout; /* for one answer; set by the owner */
	bool waits;   /* for an answer to the question of asked_at */
	struct instant asked_at;
	enum may_lead_answer last;
	struct instant answered_at; /* the last */
	struct instant since;       /* the first of the answers in a row that were as the last one, yes or not yes */
	char *why;                  /* of the last no; "" or NULL: none was given */
};
void may_lead_fini(struct may_lead *m);

/* Whether to ask now: false while an answer may still come in time. */
bool may_lead_to_ask(struct may_lead *m, const struct log_about *about, struct instant now);
void may_lead_asked(struct may_lead *m, struct instant now);
void may_lead_answered(struct may_lead *m, bool yes, const char *why, const struct log_about *about,
                       struct instant now);
void may_lead_forget(struct may_lead *m); /* the worker that was asked is dead */
