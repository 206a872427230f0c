#include "lease/nomination.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

void nomination_fill(struct record *r, const struct nomination *n)
{
	struct json_t *kept = r->extra;

	r->extra = NULL;
	record_clear(r);
	r->extra = kept;
	mem_replace(&r->holder, n->who.identity);
	mem_replace(&r->address, n->who.address);
	snprintf(r->incarnation, sizeof r->incarnation, "%s", n->who.incarnation);
	r->acquired_us = n->since_us;
	r->renewed_us = n->wall_us;
	r->lease_ms = n->lease_ms;
	r->retry_ms = n->retry_ms;
	r->advice = mem_zero(sizeof *r->advice);
	r->advice->nomination.is = true;
	r->advice->nomination.priority = n->who.priority;
	snprintf(r->advice->nomination.answers, sizeof r->advice->nomination.answers, "%s", n->answers);
}

bool nomination_read(const struct record *r, struct nomination *out)
{
	const struct advice *a = r->advice;

	*out = (struct nomination){
		.since_us = r->acquired_us, .wall_us = r->renewed_us, .lease_ms = r->lease_ms, .retry_ms = r->retry_ms
	};
	/* An election's record has a term, and says its state. One that an older version has made of an N would else
	 * look like it, since that version keeps the field. */
	if (!advice_has(a, ADVICE_NOMINATION) || r->term || r->token || r->state != RECORD_UNSAID)
		return false;
	if (!*r->holder)
		return true;
	if (!*r->incarnation || !advice_set(out->who.identity, r->holder) ||
	    !advice_set(out->who.address, r->address)) {
		out->who = (struct advice_candidate){ .identity = "" };
		return true;
	}
	snprintf(out->who.incarnation, sizeof out->who.incarnation, "%s", r->incarnation);
	out->who.priority = a->nomination.priority;
	snprintf(out->answers, sizeof out->answers, "%s", a->nomination.answers);
	return true;
}
