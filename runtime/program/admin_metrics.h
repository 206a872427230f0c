/* The metrics of all elections, in the text format of Prometheus, 0.0.4.
 * Not the HTTP endpoint (admin.h).
 * Used by admin.c; campaign.c keeps the renewals. */
#pragma once

#include "program/standing.h"

#include <stdint.h>

#define ADMIN_BUCKETS 9

/* How long renewals took, from sending to the answer. Valid when zeroed. */
struct admin_renewals {
	uint64_t bucket[ADMIN_BUCKETS + 1]; /* up to each of the limits in admin_metrics.c; the last: longer */
	nsec sum;
};
void admin_renewed(struct admin_renewals *r, nsec took);

/* Appends the whole page. */
void admin_metrics(const struct standing_source *source, struct buf *out);
