#include "election/readiness.h"

static const char unanswered[] = "may_lead has not answered yet", refused[] = "may_lead says no",
		  late[] = "may_lead has not answered in time", unwritable[] = "the store does not take its writes";

void readiness_init(struct readiness *r, bool asks, struct instant now)
{
	*r = (struct readiness){ .asks = asks, .user = true, .next = now };
}

void readiness_asks(struct readiness *r, bool asks, struct instant now)
{
	bool user = r->user;

	readiness_init(r, asks, now);
	r->user = user;
}

void readiness_asked(struct readiness *r, nsec every, struct instant now)
{
	r->next = instant_add(now, every);
}

void readiness_answered(struct readiness *r, bool yes)
{
	r->answered = true;
	r->yes = yes;
	r->late = false;
}

void readiness_late(struct readiness *r)
{
	r->late = true;
}

static const char *hook_lacks(const struct readiness *r)
{
	if (!r->asks)
		return NULL;
	if (r->late)
		return late;
	if (r->yes)
		return NULL;
	return r->answered ? refused : unanswered;
}

/* What a person has decided comes first, then what is asked anew all the time. */
const char *readiness_lacks(const struct readiness *r, enum lease_phase phase, const struct lease_standing *s,
                            const struct store_contact *c)
{
	if (s->fencing)
		return "it fences earlier holders before its term begins";
	if (phase == PHASE_LEADING || phase == PHASE_ENDING || phase == PHASE_NEXT)
		return NULL;
	if (s->observer)
		return "it only observes";
	if (s->unreaped)
		return "something of its last term could not be killed";
	if (s->out_left == NSEC_NEVER)
		return "it is shutting down";
	if (s->paused)
		return "its campaigning is paused";
	if (phase == PHASE_IDLE)
		return "it has not begun to campaign";
	if (phase == PHASE_LOST || phase == PHASE_RELEASING)
		return "its last term has not ended";
	if (s->barred)
		return "earlier holders may still act, and it must not fence them";
	if (s->out_left > 0)
		return "it does not campaign for some time after its last term";
	if (!r->user)
		return "there is no worker that could lead";
	if (!c->answered || c->lost)
		return "the store does not answer";
	return c->unwritable ? unwritable : hook_lacks(r);
}

bool readiness_is_doubt(const char *lacks)
{
	return lacks == unwritable;
}

static bool depends_on_hook(const struct readiness *r, const char *lacks)
{
	return r->asks && (!lacks || lacks == refused || lacks == unanswered || lacks == late);
}

bool readiness_to_ask(const struct readiness *r, const char *lacks, struct instant now)
{
	return depends_on_hook(r, lacks) && instant_passed(r->next, now);
}

nsec readiness_wait(const struct readiness *r, const char *lacks, struct instant now)
{
	return depends_on_hook(r, lacks) ? instant_until(r->next, now) : NSEC_NEVER;
}
