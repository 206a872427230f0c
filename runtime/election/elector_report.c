#include "election/elector_internal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROOF_TIME (250 * NSEC_PER_MS) /* within it a holder that died on this host is mostly proved dead */

/* By the wall clocks, which are a hint here and decide nothing: whoever waits longer does not lead earlier. */
static nsec leader_doubt(const struct elector *e, const struct record *r)
{
	if (r->renewed_us != RECORD_TIME_UNKNOWN && clock_wall_us() - r->renewed_us > r->lease_ms * 1000)
		return 3 * r->lease_ms / 2 * NSEC_PER_MS;
	if (!e->death_watches || !proof_possible(e->author.self, r))
		return 0;
	int fd = proof_pidfd(r);
	if (fd < 0)
		return PROOF_TIME;
	close(fd);
	return 0;
}

/* previous: borrowed */
static struct elector_leader leader_told(const struct elector *e, bool self, const char *previous)
{
	const struct record *r = &e->seen;

	return (struct elector_leader){
		.identity = self ? e->author.identity : r->holder,
		.address = self ? e->author.address : r->address,
		.token = self ? e->token : r->token,
		.term = r->term,
		.self = self,
		.above = !self && proof_above(e->author.self, r),
		.doubt = self ? 0 : leader_doubt(e, r),
		.previous = previous,
	};
}

void elector_report_leader(struct elector *e, bool self)
{
	const struct record *r = &e->seen;
	char *previous = mem_dup(e->leader ? e->leader : r->previous_holder);
	struct elector_leader l = leader_told(e, self, previous);

	if (!self)
		elector_say(e, LOG_INFO, "new_leader",
		            "%s leads; its settings are obeyed: lease %.3gs, renew deadline %.3gs, retry period %.3gs",
		            l.identity, (double)r->lease_ms / 1e3, (double)r->renew_ms / 1e3,
		            (double)r->retry_ms / 1e3);
	if (l.above)
		elector_say(
			e, LOG_WARN, "waits_for_itself",
			"%s leads (process %llu), and this runs under it: if it waits for this to end, both wait for ever",
			l.identity, (unsigned long long)r->pid);
	mem_replace(&e->leader, l.identity);
	e->leads_itself = self;
	handover_leader(e, &l);
	e->cb->leader(e->arg, &l);
	free(previous);
}

void elector_report_no_leader(struct elector *e)
{
	char *previous = e->leader;

	e->leader = NULL;
	elector_say(e, e->quiet ? LOG_DEBUG : LOG_INFO, "no_leader", "%s leads no more, and nobody else does",
	            previous);
	e->cb->no_leader(e->arg, previous);
	free(previous);
}

void elector_tell_leader(struct elector *e)
{
	if (!e->leader || e->leads_itself)
		return;
	struct elector_leader l = leader_told(e, false, e->seen.previous_holder);
	e->cb->leader(e->arg, &l);
}

bool elector_leads(const struct elector *e)
{
	return lease_is_leading(e->lease, clock_now());
}

void elector_status(const struct elector *e, struct elector_status *out)
{
	struct instant now = clock_now();
	enum lease_phase phase = lease_phase(e->lease);
	bool leading = lease_is_leading(e->lease, now);
	bool term = phase == PHASE_LEADING || phase == PHASE_ENDING || phase == PHASE_LOST || phase == PHASE_NEXT;

	*out = (struct elector_status){
		.phase = phase,
		.leading = leading,
		.fencing = lease_is_fencing(e->lease),
		.term = leading ? lease_term(e->lease) : e->seen.term,
		.token = leading ? e->token : e->seen.token,
		.remaining = leading ? instant_until(lease_end(e->lease), now) : 0,
		.until = leading ? now.boot + instant_until(lease_end(e->lease), now) : 0,
		.since_began = term ? elapsed_standby(e->began, now) : -1,
		.since_renewal = term ? elapsed_holder(lease_renewed_at(e->lease), now) : -1,
		.identity = e->author.identity,
		.address = e->author.address,
		.lock = e->lock->url,
		.leader = e->leader ? e->leader : "",
		.name = e->name,
		.times = *lease_publishes(e->lease),
		.paused_why = e->paused_why ? e->paused_why : "",
		.barred = e->barred ? e->barred : "",
		.namesake_writes = e->namesake_writes,
		.namesake_for = e->namesake_writes ? elapsed_standby(e->namesake_at, now) : -1,
		.trouble = e->trouble ? e->trouble : "",
		.trouble_for = e->trouble ? elapsed_standby(e->trouble_since, now) : 0,
		.store = e->contact,
		.store_silence = store_contact_silence(&e->contact, now),
		.record = &e->seen,
		.renewals_ok = e->renewals_ok,
		.renewals_failed = e->renewals_failed,
		.slow_paths = e->slow_paths,
		.transitions = e->transitions,
		.pokes_sent = e->pokes_sent,
		.pokes_heard = e->pokes_heard,
		.poke = poke_ear_address(&e->ear),
	};
	lease_stands(e->lease, now, &out->standing);
	out->worker = e->readiness.user;
	out->lacks = readiness_lacks(&e->readiness, phase, &out->standing, &e->contact);
	const char *unable = leading        ? "it leads"
	                     : out->fencing ? out->lacks
	                     : term         ? "its term is ending"
	                                    : out->lacks;
	out->next.able = !unable;
	out->next.unable_why = unable ? unable : "";
	out->next.priority_self = e->next_options.priority;
	out->next.handing_over = e->handover.stage != HANDOVER_NONE;
	memcpy(out->next.handovers, e->handovers, sizeof e->handovers);
	next_link_status(e->next, &e->seen, &out->next);
}

void elector_why(const struct elector *e, struct buf *out)
{
	decisions_tell(decisions_of(e->env), e, out);
}
