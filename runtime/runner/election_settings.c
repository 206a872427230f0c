#include "runner/election_settings.h"

#include "base/mem.h"

#include <stdlib.h>

void election_settings_copy(struct election_settings *to, const struct wire_election *from)
{
	const char *const texts[] = {
		from->name, from->lock, from->identity, from->address, from->where, from->hooks,
	};
	char *copies[sizeof texts / sizeof *texts];

	mem_pack(sizeof texts / sizeof *texts, texts, copies);
	*to = (struct election_settings){
		.name = copies[0],
		.lock = copies[1],
		.identity = copies[2],
		.address = copies[3],
		.where = copies[4],
		.hooks = copies[5],
		.times = { from->lease_ms, from->renew_ms, from->retry_ms, from->stop_grace_ms, from->shutdown_grace_ms,
		           from->may_lead_timeout_ms },
		.next = { .has_priority = from->priority != WIRE_PRIORITY_UNSET,
		          .priority = from->priority,
		          .preempt = from->flags & WIRE_ELECTION_PREEMPT,
		          .no_preempt = from->flags & WIRE_ELECTION_NO_PREEMPT,
		          .preempt_after_ms = from->preempt_after_ms,
		          .max_term_ms = from->max_term_ms },
		.flags = from->flags,
	};
}

void election_settings_fini(struct election_settings *p)
{
	free(p->name);
	*p = (struct election_settings){ 0 };
}
