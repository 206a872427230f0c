#include "election/elector_internal.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- hearing ---- */

static void poke_on_look(void *arg)
{
	struct elector *e = arg;

	e->pokes_heard++;
	elector_step(e, (struct lease_event){ .kind = LEASE_EV_CHANGED });
	elector_say(e, LOG_DEBUG, "poked", "a leader says that the record has changed: it is read");
}

void poke_init(struct elector *e, struct poke_sockets *pokes)
{
	e->pokes = pokes;
	e->ear = (struct poke_ear){ .look = poke_on_look, .arg = e };
}

void poke_listen(void *arg, struct advice_candidate *who)
{
	struct elector *e = arg;
	struct err err;

	if (e->contact.watching)
		poke_stop(e);
	if (!e->pokes || e->contact.watching)
		return;
	if (poke_sockets_listen(e->pokes, &e->ear, e->lock->here, &err) == 0) {
		who->poke = poke_ear_address(&e->ear);
		who->poke_key = e->ear.gate.key;
		mem_replace(&e->poke_trouble, NULL);
		return;
	}
	if (!e->poke_trouble || strcmp(e->poke_trouble, err.text) != 0)
		elector_say(e, LOG_WARN, "not_poked", "a release is noticed by polling alone: %s", err.text);
	mem_replace(&e->poke_trouble, err.text);
}

void poke_stop(struct elector *e)
{
	if (e->pokes)
		poke_ear_close(e->pokes, &e->ear);
}

/* ---- sending ---- */

/* The candidate that waits for this write: for which the lock is released; which is asked to take over; or which the
 * holder had named that this candidate has proved dead, and follows. */
static const struct advice_candidate *concerned(const struct elector *e, enum lease_write what,
                                                const struct advice *advice)
{
	const struct advice *said = e->seen.advice;
	bool asks = advice && *advice->wanted.name && strcmp(advice->wanted.name, e->poked_for) != 0 &&
	            strcmp(advice->wanted.identity, advice->next.identity) == 0;

	if (what == LEASE_RELEASE)
		return advice ? &advice->next : NULL;
	if (what == LEASE_RENEW)
		return asks ? &advice->next : NULL;
	bool dead = what == LEASE_ACQUIRE && e->dead_id && e->dead_id == record_sight_id(&e->seen);
	return dead && advice_has(said, ADVICE_NEXT) ? &said->next : NULL;
}

void poke_plan(struct elector *e, enum lease_write what, const struct advice *advice)
{
	const struct advice_candidate *who = e->pokes ? concerned(e, what, advice) : NULL;
	struct advice to = ADVICE_NONE;

	bool hears = who && *who->poke && strcmp(who->incarnation, e->author.incarnation) != 0;
	if (hears)
		to.next = *who;
	advice_replace(&e->poke_to, hears ? &to : NULL);
	if (who && what == LEASE_RENEW)
		snprintf(e->poked_for, sizeof e->poked_for, "%s", advice->wanted.name);
}

void poke_tell(struct elector *e)
{
	const struct advice_candidate *to = e->poke_to ? &e->poke_to->next : NULL;

	if (!to)
		return;
	if (poke_sockets_send(e->pokes, e->lock->here, to->poke, to->poke_key)) {
		e->pokes_sent++;
		elector_say(e, LOG_DEBUG, "pokes", "%s is told at %s to look at the record", to->identity, to->poke);
	}
	advice_replace(&e->poke_to, NULL);
}

void poke_fini(struct elector *e)
{
	poke_stop(e);
	free(e->poke_to);
	free(e->poke_trouble);
}
