#include "lease/debt_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Who held the lock by this record and has not released it. Texts are the record's. false: nobody. A release by force
 * keeps the name, not the address. */
static bool unclean(const struct record *r, struct debtor *o)
{
	const char *who = *r->holder ? r->holder : *r->forced ? r->previous_holder : "";

	*o = (struct debtor){ .identity = (char *)who,
		              .address = *r->holder ? r->address : (char *)"",
		              .token = r->token,
		              .since_us = r->acquired_us };
	snprintf(o->incarnation, sizeof o->incarnation, "%s", r->incarnation);
	snprintf(o->why, sizeof o->why, "%s", *r->holder ? "expired" : "forced");
	return *who;
}

/* It has the debtor booked already, maybe at an address that the record does not say any more. */
static bool has_booked(const struct debt *d, const struct debtor *o)
{
	for (int i = 0; i < d->count; i++)
		if (strcmp(d->of[i].identity, o->identity) == 0 && *o->incarnation &&
		    strcmp(d->of[i].incarnation, o->incarnation) == 0)
			return true;
	return false;
}

/* A store that makes tokens has made the holder's after that booked itself. */
void debt_of(struct debt *d, const struct record *r)
{
	const char *who = *r->holder ? r->holder : r->previous_holder;

	debt_parse(d, r->unfenced);
	for (int i = 0; i < d->count; i++) {
		struct debtor *o = &d->of[i];
		bool last = strcmp(o->identity, who) == 0 && strcmp(o->incarnation, r->incarnation) == 0;
		if (last && r->token > o->token)
			o->token = r->token;
	}
}

static void note_end(struct debt *d, const struct debtor *o)
{
	for (int i = 0; i < d->count; i++)
		if (strcmp(d->of[i].identity, o->identity) == 0 && strcmp(d->of[i].incarnation, o->incarnation) == 0)
			snprintf(d->of[i].why, sizeof d->of[i].why, "%s", o->why);
}

/* The debt as the record shows it, with what was carried and with its holder's. A term that is still fencing has not
 * begun, so its holder owes nothing for it. */
static void gather(struct debt *d, const struct record *seen, const struct debt_candidate *c)
{
	struct debt carried = { 0 };
	struct debtor holder;

	debt_of(d, seen);
	debt_parse(&carried, c->carried);
	for (int i = 0; i < carried.count; i++)
		debt_book(d, &carried.of[i]);
	debt_fini(&carried);
	if (!unclean(seen, &holder))
		return;
	if (c->dead || record_fences(seen))
		debt_settle(d, holder.identity, holder.incarnation);
	else if (c->fences && !has_booked(d, &holder))
		debt_book(d, &holder);
	note_end(d, &holder);
}

char *debt_carry(const struct record *seen, const struct debt_candidate *c)
{
	struct debt d = { 0 };

	gather(&d, seen, c);
	debt_cut(&d);
	char *text = debt_text(&d);
	debt_fini(&d);
	return text;
}

/* No term of this process begins before its last one has ended, with all that it started. */
void debt_acquire(struct debt *d, const struct record *seen, const struct debt_candidate *c, int64_t token,
                  int64_t now_us)
{
	gather(d, seen, c);
	debt_settle(d, c->identity, c->incarnation);
	if (c->books)
		debt_keep(d, c, token, now_us);
}
