#include "term/service_order.h"

#include "base/mem.h"

#include <stdlib.h>

#define WITHDRAW_MOST (2 * NSEC_PER_SEC) /* a stop is held back for this time at most */
#define WITHDRAW_PART 2                  /* a stop is held back for at most its time divided by this */

struct service_order {
	const struct elector_callbacks *cb;
	void *arg;
	struct elector *elector;
	struct service *service;
	bool holds; /* a stop is held back: it has the two values below */
	enum lease_reason reason;
	struct instant stop_by;
};

static nsec order_bound(nsec grace)
{
	return grace / WITHDRAW_PART < WITHDRAW_MOST ? grace / WITHDRAW_PART : WITHDRAW_MOST;
}

/* ---- the beginning and the end of a term ---- */

/* Nothing is sent before the next turn of the loop: the term does not wait for it, and the user may end the term at
 * once. */
static void order_on_lead(void *arg, const struct elector_term *t)
{
	struct service_order *o = arg;

	o->holds = false;
	service_publish(o->service, &(struct service_term){ .term = t->term,
	                                                    .token = t->token,
	                                                    .address = t->address,
	                                                    .lock = t->lock,
	                                                    .identity = t->identity });
}

/* A worker's replacement may have run on_stopped meanwhile, and the elector may have heard that all of the term is
 * over. */
static void order_on_withdrawn(void *arg)
{
	struct service_order *o = arg;
	struct elector_status st;
	bool held = o->holds;

	o->holds = false;
	elector_status(o->elector, &st);
	if (held && st.phase == PHASE_ENDING)
		o->cb->stop(o->arg, o->reason, true, o->stop_by);
}

/* What the elector says later counts: a lease that was lost meanwhile, or less time. */
static bool order_on_stop(void *arg, enum lease_reason reason, bool held, struct instant stop_by)
{
	struct service_order *o = arg;
	nsec bound = held ? order_bound(instant_until(stop_by, clock_now())) : 0;

	o->holds = (o->holds && held) || service_withdraw(o->service, bound, order_on_withdrawn, o);
	o->reason = reason;
	o->stop_by = stop_by;
	return o->holds;
}

static const struct elector_before order_before = { .lead = order_on_lead, .stop = order_on_stop };

bool service_order_withdraw(struct service_order *o, nsec grace, void (*done)(void *arg), void *arg)
{
	return o && service_withdraw(o->service, order_bound(grace), done, arg);
}

/* ---- life ---- */

struct elector *service_order_elector(struct service_order **made, const struct service_config *s,
                                      const struct elector_config *c, const struct elector_callbacks *cb, void *arg,
                                      struct err *err)
{
	struct elector_config with = *c;

	*made = NULL;
	if (!*s->target)
		return elector_new(c, cb, arg, err);
	struct service_order *o = mem_zero(sizeof *o);
	o->cb = cb;
	o->arg = arg;
	with.before = &order_before;
	with.before_arg = o;
	o->service = service_open(s, err);
	o->elector = o->service ? elector_new(&with, cb, arg, err) : NULL;
	if (o->elector) {
		*made = o;
		service_look(o->service);
		return o->elector;
	}
	service_order_free(o);
	return NULL;
}

void service_order_free(struct service_order *o)
{
	if (!o)
		return;
	service_free(o->service);
	free(o);
}

const struct service *service_order_service(const struct service_order *o)
{
	return o ? o->service : NULL;
}
