#include "program/campaign.h"

#include "base/mem.h"
#include "program/fence.h"
#include "term/service_order.h"

#include <stdlib.h>

void campaign_handed_over(struct campaign *c, uint64_t ticket, const struct handover_result *result)
{
	struct buf reply = { 0 };

	if (c->program) {
		standing_handed_over(&reply, result);
		control_answer(c->program->control, ticket, &reply);
		buf_fini(&reply);
	}
	if (c->handed_over)
		c->handed_over(c->arg, result);
}

void campaign_init(struct campaign *c, struct program *p)
{
	c->program = p;
	c->options = p->options;
}

static int blame(const struct election_settings *s, struct err *err)
{
	return s ? err_wrap(err, "%s", s->where) : -1;
}

int campaign_read(struct campaign *c, const struct election_settings *s, struct err *err)
{
	if (election_times(c->options, s, &c->times, err) < 0 || election_next(c->options, s, &c->next, err) < 0)
		return blame(s, err);
	return 0;
}

static uint32_t flags_of(const struct election_settings *s)
{
	return s ? s->flags : 0;
}

static const char *address_of(const struct campaign *c, const struct election_settings *s)
{
	return options_text(c->options, OPTION_ADDRESS, s ? s->address : NULL);
}

/* Its script's function says the address, and may not have said it yet. */
static bool address_later(const struct campaign *c, const struct election_settings *s)
{
	return !options_set(c->options, OPTION_ADDRESS) && flags_of(s) & WIRE_ELECTION_ADDRESS_FUNCTION;
}

static bool asks(const struct election_settings *s)
{
	return flags_of(s) &
	       (WIRE_ELECTION_MAY_LEAD | WIRE_ELECTION_ADDRESS_FUNCTION | WIRE_ELECTION_PRIORITY_FUNCTION);
}

struct campaign_place campaign_place(struct program *p, const char *lock, bool several)
{
	return (struct campaign_place){ .env = &p->env,
		                        .timeline = &p->timeline,
		                        .self = &p->self,
		                        .death_watches = p->death_watches,
		                        .pokes = p->pokes,
		                        .lock = lock,
		                        .several = several };
}

/* An observer never leads. */
static int campaign_make_elector(struct campaign *c, const struct campaign_place *at, const struct election_settings *s,
                                 const struct elector_config *e, const struct elector_callbacks *cb, void *arg,
                                 struct err *err)
{
	char *target =
		e->observer || at->opened ? mem_dup("") : election_service(c->options, e->name, at->several, err);

	if (!target)
		return -1;
	const struct service_config service = { .env = at->env,
		                                .target = target,
		                                .lock = at->lock,
		                                .name = e->name,
		                                .address = e->address,
		                                .address_later = address_later(c, s) };
	c->elector = service_order_elector(&c->service, &service, e, cb, arg, err);
	free(target);
	return c->elector ? 0 : -1;
}

int campaign_open(struct campaign *c, const struct campaign_place *at, const struct election_settings *s,
                  const struct elector_callbacks *cb, void *arg, struct err *err)
{
	const struct options *o = c->options;
	struct lock *opened = at->opened ? at->opened : lock_open(at->env, at->lock, err);

	if (!opened)
		return s ? election_blame_lock(o, s->where, err) : -1;
	if (c->program && !(flags_of(s) & WIRE_ELECTION_OBSERVER))
		c->fence = fence_new(c->program, &c->times, &c->elector);
	const struct elector_config e = {
		.env = at->env,
		.timeline = at->timeline,
		.self = at->self,
		.death_watches = at->death_watches,
		.pokes = at->pokes,
		.lock = at->lock,
		.opened = opened,
		.seed = at->seed,
		.name = s          ? s->name
		        : at->name ? at->name
		                   : "",
		.identity = at->identity ? at->identity : options_text(o, OPTION_IDENTITY, s ? s->identity : NULL),
		.address = address_of(c, s),
		.times = c->times,
		.observer = flags_of(s) & WIRE_ELECTION_OBSERVER,
		.asks = asks(s),
		.reclaim = election_number(o, s, OPTION_RECLAIM),
		.no_release = options_flag(o, OPTION_NO_RELEASE),
		.next = c->next,
		.fence = c->fence ? &fence_of_elector : NULL,
		.fence_arg = c->fence,
	};
	if (campaign_make_elector(c, at, s, &e, cb, arg, err) == 0)
		return 0;
	opened->ops->close(opened);
	return blame(s, err);
}

/* An address that the script's function has said stays until that says another. */
void campaign_configure(struct campaign *c, const struct election_settings *s)
{
	elector_configure(c->elector, &c->times);
	elector_configure_next(c->elector, &c->next);
	elector_accept_store(c->elector);
	elector_configure_user(c->elector, address_later(c, s) ? NULL : address_of(c, s), asks(s));
}

void campaign_stand(const struct campaign *c, struct standing *out, struct elector_status *status)
{
	static const struct admin_renewals none;

	elector_status(c->elector, status);
	*out = (struct standing){
		.name = status->name,
		.elector = c->elector,
		.status = status,
		.lease = c->times.lease,
		.preempt_after = c->next.preempt_after,
		.renewals = c->renewals ? c->renewals : &none,
		.service = service_order_service(c->service),
	};
}

void campaign_renewed(struct campaign *c, nsec took)
{
	if (!c->program || !c->program->admin)
		return;
	if (!c->renewals)
		c->renewals = mem_zero(sizeof *c->renewals);
	admin_renewed(c->renewals, took);
}

void campaign_fini(struct campaign *c)
{
	elector_free(c->elector);
	fence_free(c->fence);
	service_order_free(c->service);
	free(c->renewals);
}
