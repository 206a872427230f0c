#include "election/elector_internal.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define ENDING_MAX (10 * 60 * NSEC_PER_SEC) /* a script may take long to stop; who waits is told after this */

static void handover_report(struct elector *e, const struct handover_result *r)
{
	if (e->handover.stage == HANDOVER_NONE)
		return;
	e->handover.stage = HANDOVER_NONE;
	timer_stop(e->timeline, &e->handover.timer);
	if (e->cb->handed_over)
		e->cb->handed_over(e->arg, e->handover.ticket, r);
}

static void handover_fail(struct elector *e, const char *why)
{
	handover_report(e, &(struct handover_result){ .end = HANDOVER_NOT, .why = why });
}

static void handover_wait(struct elector *e, nsec patience)
{
	timer_stop(e->timeline, &e->handover.timer);
	timer_start(e->timeline, &e->handover.timer, (double)patience / NSEC_PER_SEC);
}

static nsec two_leases(const struct elector *e)
{
	return 2 * lease_publishes(e->lease)->lease;
}

static void handover_on_timer(struct timer *timer)
{
	struct elector *e = (struct elector *)((char *)timer - offsetof(struct elector, handover.timer));

	if (e->handover.stage == HANDOVER_STOPPED)
		handover_fail(
			e, e->handover.held
				   ? "its term has ended and the lock is released, but nobody has been seen to lead "
				     "for two leases: the logs of the other candidates say why"
				   : "its term has ended, since its lease was lost, and nobody has been seen to lead "
				     "for two leases");
	else if (e->handover.stage == HANDOVER_ENDING)
		handover_fail(e, "its term is to end for the next one, but its script has not stopped in ten minutes");
	else
		handover_fail(e, "it has not been decided in time");
}

void handover_init(struct elector *e)
{
	timer_init(e->timeline, &e->handover.timer, handover_on_timer);
}

int elector_hand_over(struct elector *e, uint64_t ticket, const char *to, nsec timeout, struct err *err)
{
	if (e->handover.stage != HANDOVER_NONE)
		return err_set(err, ERR_CANCELLED, "another request to hand over is under way");
	if (strcmp(to, e->author.identity) == 0)
		return err_set(err, ERR_USAGE, "%s is the one that leads", to);
	if (lease_phase(e->lease) != PHASE_LEADING)
		return err_set(err, ERR_USAGE, "%s does not lead, so it cannot hand over", e->author.identity);
	e->handover.ticket = ticket;
	e->handover.stage = HANDOVER_ASKED; /* the answer may come at once */
	handover_wait(e, timeout + two_leases(e));
	if (next_link_handover(e->next, to, timeout, err) == 0)
		return 0;
	e->handover.stage = HANDOVER_NONE;
	timer_stop(e->timeline, &e->handover.timer);
	return -1;
}

void handover_ends(struct elector *e)
{
	if (e->handover.stage != HANDOVER_ASKED) /* it was answered in a process that did not run in time */
		return;
	e->handover.stage = HANDOVER_ENDING;
	handover_wait(e, ENDING_MAX);
}

void handover_refused(struct elector *e, const char *why)
{
	bool leads = lease_phase(e->lease) == PHASE_LEADING;
	char text[1000];

	snprintf(text, sizeof text, "%s%s%s%s", why, leads ? "; the term goes on, and " : "",
	         leads ? e->author.identity : "", leads ? " leads" : "");
	handover_fail(e, text);
}

void handover_stopped(struct elector *e, bool held)
{
	if (e->handover.stage != HANDOVER_ENDING)
		return;
	e->handover.stage = HANDOVER_STOPPED;
	e->handover.held = held;
	e->handover.stopped_at = clock_now();
	handover_wait(e, two_leases(e));
}

void handover_leader(struct elector *e, const struct elector_leader *l)
{
	bool stopped = e->handover.stage == HANDOVER_STOPPED;

	if (stopped && l->self)
		handover_fail(e, "nobody took over in time, and this candidate leads again, in a new term");
	else if ((stopped || e->handover.stage == HANDOVER_ENDING) && !l->self)
		handover_report(e, &(struct handover_result){
					   .end = HANDOVER_DONE,
					   .identity = l->identity,
					   .address = l->address,
					   .gap = stopped && e->handover.held
		                                          ? elapsed_standby(e->handover.stopped_at, clock_now())
		                                          : -1 });
}

void handover_fini(struct elector *e)
{
	struct handover_result r = { .end = HANDOVER_NOT, .why = "the elector ends" };

	if (e->handover.stage == HANDOVER_STOPPED && e->handover.held)
		r = (struct handover_result){ .end = HANDOVER_UNSEEN,
			                      .why = "it has released the lock for the one that comes next, and ended "
			                             "before it saw who leads: `lunarch status` tells" };
	handover_report(e, &r);
}
