#include "lease/next_record.h"

#include "base/hash.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

void next_record_fill(struct record *r, const struct next_record *n)
{
	struct json_t *kept = r->extra;

	r->extra = NULL;
	record_clear(r);
	r->extra = kept;
	struct advice a = ADVICE_NONE;

	mem_replace(&r->holder, n->who.identity);
	mem_replace(&r->address, n->who.address);
	snprintf(r->incarnation, sizeof r->incarnation, "%s", n->who.incarnation);
	r->acquired_us = n->since_us;
	r->renewed_us = n->wall_us;
	r->lease_ms = n->lease_ms;
	r->retry_ms = n->retry_ms;
	a.nomination.is = true;
	a.nomination.priority = n->who.priority;
	a.nomination.poke = n->who.poke;
	a.nomination.poke_key = n->who.poke_key;
	a.nomination.answers = n->answers;
	advice_replace(&r->advice, &a);
}

void next_record_decline(struct record *r, const char *request, const char *why)
{
	struct advice a = *r->advice;

	a.nomination.declines = request;
	a.nomination.why = advice_fits(why) ? why : "";
	advice_replace(&r->advice, &a);
}

/* An election's record has a term, and says its state. These two tell it from an N even where an older version has
 * turned an N into an election's record, since that version keeps the field. */
bool next_record_is(const struct record *r)
{
	return advice_has(r->advice, ADVICE_NOMINATION) && !r->term && !r->token && r->state == RECORD_UNSAID;
}

bool next_record_read(const struct record *r, struct next_record *out)
{
	const struct advice *a = r->advice;

	*out = (struct next_record){
		.who = ADVICE_NOBODY,
		.answers = "",
		.since_us = r->acquired_us,
		.wall_us = r->renewed_us,
		.lease_ms = r->lease_ms,
		.retry_ms = r->retry_ms,
	};
	if (!next_record_is(r))
		return false;
	if (!*r->holder || !*r->incarnation || !advice_fits(r->holder) || !advice_fits(r->address))
		return true;
	out->who = (struct advice_candidate){ .identity = r->holder,
		                              .incarnation = r->incarnation,
		                              .address = r->address,
		                              .priority = a->nomination.priority,
		                              .poke = a->nomination.poke,
		                              .poke_key = a->nomination.poke_key };
	out->answers = a->nomination.answers;
	return true;
}

/* ---- what records show ---- */

/* Never 0. */
static uint64_t number_of(const char *identity, const char *incarnation)
{
	uint64_t h = hash_fnv(HASH_FNV_SEED, identity, strlen(identity) + 1);

	h = hash_fnv(h, incarnation, strlen(incarnation) + 1);
	return h ? h : 1;
}

uint64_t next_record_identity(const char *identity)
{
	return number_of(identity, "");
}

uint64_t next_record_request(const char *name)
{
	return *name ? number_of(name, "") : 0;
}

struct next_sight next_record_sight(const struct record *n, const char *identity, const char *incarnation)
{
	struct next_sight s = { .kind = NEXT_ABSENT };
	struct next_record read;

	if (!n)
		return s;
	s.write = record_write_id(n);
	s.kind = NEXT_FOREIGN;
	if (!next_record_read(n, &read))
		return s;
	s.kind = *read.who.identity ? NEXT_SOMEBODY : NEXT_NOBODY;
	s.declines = next_record_request(n->advice->nomination.declines);
	if (s.kind == NEXT_NOBODY)
		return s;
	s.identity = next_record_identity(read.who.identity);
	s.who = number_of(read.who.identity, read.who.incarnation);
	s.mine = s.who == number_of(identity, incarnation);
	s.namesake = !s.mine && s.identity == next_record_identity(identity);
	s.priority = read.who.priority;
	s.answers = next_record_request(read.answers);
	return s;
}

struct next_news next_record_news(const struct record *m, const char *identity)
{
	const struct advice *a = m->advice;
	struct next_news news = { .held = *m->holder,
		                  .holder = *m->holder ? number_of(m->holder, m->incarnation) : 0,
		                  .term = m->term };

	if (advice_has(a, ADVICE_FOR) && a->handed_over)
		news.handed_over = !news.held || news.holder == number_of(a->given.identity, a->given.incarnation);
	if (!news.held || !a)
		return news;
	if (advice_has(a, ADVICE_NEXT)) {
		news.next = number_of(a->next.identity, a->next.incarnation);
		news.next_priority = a->next.priority;
	}
	news.wanted = next_record_request(a->wanted.name);
	news.wanted_mine = news.wanted && strcmp(a->wanted.identity, identity) == 0;
	return news;
}

bool next_record_other_first(const struct record *m, const char *identity, const char *incarnation)
{
	const struct advice *a = m->advice;
	const struct advice_candidate *first;

	if (!advice_has(a, *m->holder ? ADVICE_NEXT : ADVICE_FOR))
		return false;
	first = *m->holder ? &a->next : &a->given;
	return strcmp(first->identity, identity) != 0 || strcmp(first->incarnation, incarnation) != 0;
}
