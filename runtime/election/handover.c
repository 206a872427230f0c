#include "election/handover.h"

#include "base/duration.h"

#include <stdio.h>
#include <string.h>

#define ENDING_MAX (10 * 60 * NSEC_PER_SEC) /* a script may take long to stop; who waits is told after this */

static void handover_report(struct handover *h, const struct handover_result *r)
{
	if (h->stage == HANDOVER_NONE)
		return;
	h->stage = HANDOVER_NONE;
	ev_timer_stop(h->loop, &h->timer);
	h->done(h->arg, h->ticket, r);
}

static void handover_fail(struct handover *h, const char *why)
{
	handover_report(h, &(struct handover_result){ .end = HANDOVER_NOT, .why = why });
}

static void handover_wait(struct handover *h, nsec patience)
{
	ev_now_update(h->loop);
	ev_timer_stop(h->loop, &h->timer);
	ev_timer_set(&h->timer, (double)patience / NSEC_PER_SEC, 0.);
	ev_timer_start(h->loop, &h->timer);
}

static nsec lease_of(const struct handover *h)
{
	struct elector_status st;

	elector_status(h->elector, &st);
	return st.times.lease;
}

static void handover_on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct handover *h = w->data;

	(void)loop, (void)revents;
	if (h->stage == HANDOVER_RELEASED)
		handover_fail(h,
		              "its term has ended and the lock is released, but nobody has been seen to lead for two "
		              "leases: the logs of the other candidates say why");
	else if (h->stage == HANDOVER_ENDING)
		handover_fail(h, "its term is to end for the next one, but its script has not stopped in ten minutes");
	else
		handover_fail(h, "it has not been decided in time");
}

void handover_init(struct handover *h, struct ev_loop *loop, handover_done *done, void *arg)
{
	*h = (struct handover){ .loop = loop, .done = done, .arg = arg };
	ev_timer_init(&h->timer, handover_on_timer, 0., 0.);
	h->timer.data = h;
}

int handover_begin(struct handover *h, struct elector *e, uint64_t ticket, const char *to, nsec timeout,
                   struct err *err)
{
	struct elector_status st;

	if (h->stage != HANDOVER_NONE)
		return err_set(err, ERR_CANCELLED, "another request to hand over is under way");
	elector_status(e, &st);
	if (strcmp(to, st.identity) == 0)
		return err_set(err, ERR_USAGE, "%s is the one that leads", to);
	h->elector = e;
	h->ticket = ticket;
	h->stage = HANDOVER_ASKED;
	h->request[0] = '\0'; /* until it is known: the elector may answer inside elector_handover */
	handover_wait(h, timeout + 2 * lease_of(h));
	if (elector_handover(e, to, timeout, h->request, err) == 0)
		return 0;
	h->stage = HANDOVER_NONE;
	ev_timer_stop(h->loop, &h->timer);
	return -1;
}

bool handover_pending(const struct handover *h)
{
	return h->stage != HANDOVER_NONE;
}

void handover_ends(struct handover *h, enum successor_why why)
{
	if (h->stage != HANDOVER_ASKED)
		return;
	if (why != SUCCESSOR_REQUEST)
		return; /* `not_handed_over` follows */
	h->stage = HANDOVER_ENDING;
	handover_wait(h, ENDING_MAX);
}

void handover_refused(struct handover *h, const char *request, const char *why)
{
	struct elector_status st;
	char text[1000];

	if (h->stage != HANDOVER_ASKED || (*h->request && strcmp(request, h->request) != 0))
		return;
	elector_status(h->elector, &st);
	snprintf(text, sizeof text, "%s%s%s%s", why, st.leading ? "; the term goes on, and " : "",
	         st.leading ? st.identity : "", st.leading ? " leads" : "");
	handover_fail(h, text);
}

void handover_released(struct handover *h)
{
	if (h->stage != HANDOVER_ENDING)
		return;
	h->stage = HANDOVER_RELEASED;
	h->released_at = clock_now();
	handover_wait(h, 2 * lease_of(h));
}

void handover_leader(struct handover *h, const struct elector_leader *l)
{
	if (h->stage == HANDOVER_RELEASED && l->self)
		handover_fail(h, "nobody took over in time, and this candidate leads again, in a new term");
	else if ((h->stage == HANDOVER_RELEASED || h->stage == HANDOVER_ENDING) && !l->self)
		handover_report(h, &(struct handover_result){
					   .end = HANDOVER_DONE,
					   .identity = l->identity,
					   .address = l->address,
					   .gap = h->stage == HANDOVER_RELEASED
		                                          ? elapsed_standby(h->released_at, clock_now())
		                                          : -1,
				   });
}

void handover_fini(struct handover *h)
{
	struct handover_result r = { .end = HANDOVER_NOT, .why = "the elector ends" };

	if (h->stage == HANDOVER_RELEASED)
		r = (struct handover_result){ .end = HANDOVER_UNSEEN,
			                      .why = "it has released the lock for the one that comes next, and ended "
			                             "before it saw who leads: `lunarch status` tells" };
	handover_report(h, &r);
}
