#include "runner/service_order.h"

#include "base/mem.h"

#include <stdlib.h>

#define WITHDRAW_MOST (2 * NSEC_PER_SEC) /* a stop is held back for so long at most, */
#define WITHDRAW_PART 2                  /*     and for this part of the time there is */

struct service_order {
	const struct elector_callbacks *cb;
	void *arg;
	struct elector *elector;
	struct service *service;
	bool holds; /* a stop is held back: these */
	enum lease_reason reason;
	struct instant stop_by;
};

static nsec order_bound(nsec grace)
{
	return grace / WITHDRAW_PART < WITHDRAW_MOST ? grace / WITHDRAW_PART : WITHDRAW_MOST;
}

/* ---- the beginning and the end of a term ---- */

/* Nothing is sent before the next turn of the loop: what leads does not wait for it, and the user may end the term at
 * once. */
static void order_on_lead(void *arg, const struct elector_term *t)
{
	struct service_order *o = arg;
	const struct service_term term = {
		.term = t->term, .token = t->token, .address = t->address, .lock = t->lock, .identity = t->identity
	};

	o->holds = false;
	service_publish(o->service, &term);
	o->cb->lead(o->arg, t);
}

/* A worker's replacement may have run on_stopped meanwhile, and the elector have heard that all of it is over. */
static bool order_ends_still(const struct service_order *o)
{
	struct elector_status st;

	elector_status(o->elector, &st);
	return st.phase == PHASE_ENDING;
}

static void order_on_withdrawn(void *arg)
{
	struct service_order *o = arg;

	if (!o->holds)
		return;
	o->holds = false;
	if (order_ends_still(o))
		o->cb->stop(o->arg, o->reason, true, o->stop_by);
}

/* What the elector says later counts: a lease that was lost meanwhile, or less time. */
static void order_on_stop(void *arg, enum lease_reason reason, bool held, struct instant stop_by)
{
	struct service_order *o = arg;
	nsec bound = held ? order_bound(instant_until(stop_by, clock_now())) : 0;

	if (o->holds && held) {
		o->reason = reason;
		o->stop_by = stop_by;
		return;
	}
	o->holds = service_withdraw(o->service, bound, order_on_withdrawn, o);
	o->reason = reason;
	o->stop_by = stop_by;
	if (!o->holds)
		o->cb->stop(o->arg, reason, held, stop_by);
}

bool service_order_withdraw(struct service_order *o, nsec grace, void (*done)(void *arg), void *arg)
{
	return o && service_withdraw(o->service, order_bound(grace), done, arg);
}

/* ---- what goes through ---- */

static void order_on_deadline(void *arg, struct instant end, struct instant kill)
{
	struct service_order *o = arg;

	o->cb->deadline(o->arg, end, kill);
}

static void order_on_leader(void *arg, const struct elector_leader *l)
{
	struct service_order *o = arg;

	o->cb->leader(o->arg, l);
}

static void order_on_no_leader(void *arg, const char *previous)
{
	struct service_order *o = arg;

	o->cb->no_leader(o->arg, previous);
}

static void order_on_ask(void *arg)
{
	struct service_order *o = arg;

	o->cb->ask(o->arg);
}

static void order_on_saved(void *arg, uint64_t save, bool good)
{
	struct service_order *o = arg;

	if (o->cb->saved)
		o->cb->saved(o->arg, save, good);
}

static void order_on_renewed(void *arg, nsec took)
{
	struct service_order *o = arg;

	if (o->cb->renewed)
		o->cb->renewed(o->arg, took);
}

static void order_on_trouble(void *arg, const char *why)
{
	struct service_order *o = arg;

	if (o->cb->trouble)
		o->cb->trouble(o->arg, why);
}

static void order_on_hopeless(void *arg, const char *why)
{
	struct service_order *o = arg;

	if (o->cb->hopeless)
		o->cb->hopeless(o->arg, why);
}

static void order_on_next(void *arg, bool is, bool leads)
{
	struct service_order *o = arg;

	if (o->cb->next)
		o->cb->next(o->arg, is, leads);
}

static void order_on_hand_over(void *arg, enum successor_why why)
{
	struct service_order *o = arg;

	o->cb->hand_over(o->arg, why);
}

static void order_on_not_handed_over(void *arg, const char *request, const char *why)
{
	struct service_order *o = arg;

	if (o->cb->not_handed_over)
		o->cb->not_handed_over(o->arg, request, why);
}

static void order_on_finished(void *arg, bool left)
{
	struct service_order *o = arg;

	o->cb->finished(o->arg, left);
}

static const struct elector_callbacks order_callbacks = {
	.lead = order_on_lead,
	.deadline = order_on_deadline,
	.stop = order_on_stop,
	.leader = order_on_leader,
	.no_leader = order_on_no_leader,
	.ask = order_on_ask,
	.saved = order_on_saved,
	.renewed = order_on_renewed,
	.trouble = order_on_trouble,
	.hopeless = order_on_hopeless,
	.next = order_on_next,
	.hand_over = order_on_hand_over,
	.not_handed_over = order_on_not_handed_over,
	.finished = order_on_finished,
};

/* ---- life ---- */

struct elector *service_order_elector(struct service_order **made, const struct service_config *s,
                                      const struct elector_config *c, const struct elector_callbacks *cb, void *arg,
                                      struct err *err)
{
	*made = NULL;
	if (!*s->target)
		return elector_new(c, cb, arg, err);
	struct service_order *o = mem_zero(sizeof *o);
	o->cb = cb;
	o->arg = arg;
	o->service = service_open(s, err);
	o->elector = o->service ? elector_new(c, &order_callbacks, o, err) : NULL;
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
