#include "election/readiness.h"

static const char unanswered[] = "may_lead has not answered yet", refused[] = "may_lead says no";

void readiness_init(struct readiness *r, bool asks, struct instant now)
{
	*r = (struct readiness){ .asks = asks, .user = true, .next = now };
}

void readiness_asked(struct readiness *r, nsec every, struct instant now)
{
	r->next = instant_add(now, every);
}

void readiness_answered(struct readiness *r, bool yes)
{
	r->answered = true;
	r->yes = yes;
}

const char *readiness_lacks(const struct readiness *r, const struct lease_standing *s, const struct store_contact *c)
{
	if (s->observer)
		return "it only observes";
	if (s->unreaped)
		return "something of its last term could not be killed";
	if (s->out_left == NSEC_NEVER)
		return "it is shutting down";
	if (s->paused)
		return "its campaigning is paused";
	if (s->out_left > 0)
		return "it does not campaign for some time after its last term";
	if (!r->user)
		return "there is no worker that could lead";
	if (!c->answered || c->lost)
		return "the store does not answer";
	if (!r->asks || r->yes)
		return NULL;
	return r->answered ? refused : unanswered;
}

static bool depends_on_hook(const struct readiness *r, const char *lacks)
{
	return r->asks && (!lacks || lacks == refused || lacks == unanswered);
}

bool readiness_to_ask(const struct readiness *r, const char *lacks, struct instant now)
{
	return depends_on_hook(r, lacks) && instant_passed(r->next, now);
}

nsec readiness_wait(const struct readiness *r, const char *lacks, struct instant now)
{
	return depends_on_hook(r, lacks) ? instant_until(r->next, now) : NSEC_NEVER;
}
