#include "term/may_lead.h"

#include "base/mem.h"

#include <stdlib.h>

static double seconds_since(struct instant from, struct instant now)
{
	return (double)elapsed_standby(from, now) / NSEC_PER_SEC;
}

static bool may_lead_refuses(const struct may_lead *m)
{
	return m->last == MAY_LEAD_NO || m->last == MAY_LEAD_LATE;
}

static void may_lead_become(struct may_lead *m, enum may_lead_answer answer, const char *why, struct instant now)
{
	if (m->last == MAY_LEAD_NONE || may_lead_refuses(m) != (answer != MAY_LEAD_YES))
		m->since = now;
	m->last = answer;
	m->answered_at = now;
	mem_replace(&m->why, why);
}

bool may_lead_to_ask(struct may_lead *m, const struct log_about *about, struct instant now)
{
	if (!m->waits)
		return true;
	if (elapsed_standby(m->asked_at, now) < m->timeout)
		return false;
	m->waits = false;
	if (m->last != MAY_LEAD_LATE)
		log_event(LOG_WARN, about, "may_lead_late",
		          "may_lead has not answered for %.1f s, and has %.3g s: it is cancelled and asked again, and "
		          "until it answers others may take the lock",
		          seconds_since(m->asked_at, now), (double)m->timeout / NSEC_PER_SEC);
	may_lead_become(m, MAY_LEAD_LATE, NULL, now);
	return true;
}

void may_lead_asked(struct may_lead *m, struct instant now)
{
	m->waits = true;
	m->asked_at = now;
}

void may_lead_answered(struct may_lead *m, bool yes, const char *why, const struct log_about *about, struct instant now)
{
	m->waits = false;
	if (!yes && m->last != MAY_LEAD_NO)
		log_event(LOG_INFO, about, "may_not_lead", "may_lead says no: %s",
		          why && *why ? why : "it gave no reason");
	else if (yes && may_lead_refuses(m))
		log_event(LOG_INFO, about, "may_lead", "may_lead says yes, after %.1f s without",
		          seconds_since(m->since, now));
	may_lead_become(m, yes ? MAY_LEAD_YES : MAY_LEAD_NO, yes ? NULL : why, now);
}

void may_lead_forget(struct may_lead *m)
{
	m->waits = false;
}

void may_lead_fini(struct may_lead *m)
{
	free(m->why);
}
