#include "election/author.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/nonce.h"
#include "lease/advice.h"
#include "lease/next_record.h"
#include "lease/past.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *author_default_identity(const struct author *a)
{
	char host[256] = "localhost";

	gethostname(host, sizeof host - 1);
	return mem_printf("%s_%s", host, a->incarnation);
}

void author_init(struct author *a, const struct proof_self *self, const char *identity, const char *address,
                 bool reclaims)
{
	*a = (struct author){ .self = self, .named = identity && *identity, .reclaims = reclaims };
	snprintf(a->incarnation, sizeof a->incarnation, "%s", self->incarnation);
	a->identity = a->named ? mem_dup(identity) : author_default_identity(a);
	a->address = mem_dup(address ? address : "");
}

void author_fini(struct author *a)
{
	free(a->identity);
	free(a->address);
	free(a->carried);
}

void author_become_another(struct author *a)
{
	proof_self_withdraw(a->self);
	nonce_uuid(a->incarnation);
	if (a->named)
		return;
	free(a->identity);
	a->identity = author_default_identity(a);
}

/* ---- what a record shows ---- */

bool author_holds(const struct author *a, const struct record *r)
{
	return strcmp(r->holder, a->identity) == 0 && strcmp(r->incarnation, a->incarnation) == 0;
}

/* On this boot of this machine the earlier process itself is watched (death_watch.h). */
static bool author_reclaims(const struct author *a, const struct record *r)
{
	return a->reclaims && strcmp(r->holder, a->identity) == 0 && strcmp(r->boot_id, a->self->boot_id) != 0;
}

/* ---- who may still act ---- */

static struct debt_candidate author_candidate(const struct author *a, bool dead)
{
	return (struct debt_candidate){ .identity = a->identity,
		                        .address = a->address,
		                        .incarnation = a->incarnation,
		                        .books = a->fences,
		                        .fences = a->fences,
		                        .dead = dead,
		                        .carried = a->carried };
}

void author_lost(struct author *a, const struct record *last, bool dead)
{
	const struct debt_candidate self = author_candidate(a, dead || author_reclaims(a, last));
	char *carried = debt_carry(last, &self);

	free(a->carried);
	a->carried = carried;
}

/* Of any other record nobody knows whether its author had seen the one that is gone, or knows debts. So a debt may be
 * carried that is paid already: then it is fenced twice. */
void author_saw(struct author *a, const struct record *r)
{
	if (!a->carried || !(author_holds(a, r) || debt_has(r->unfenced, a->carried)))
		return;
	free(a->carried);
	a->carried = NULL;
}

const char *author_barred(const struct author *a, const struct record *r, bool dead)
{
	const struct debt_candidate self = author_candidate(a, dead || author_reclaims(a, r));
	struct debt d = { 0 };

	if (!r->unfenced && !a->carried && !a->fences)
		return NULL;
	debt_acquire(&d, r, &self, 0, 0);
	const char *why = debt_bars(&d, &self);
	debt_fini(&d);
	return why;
}

/* Equal for the same holder in the same term. Records of other clients have no term; they count changes of holder. */
static uint64_t holder_in_term(const struct record *r)
{
	uint64_t h = hash_fnv(HASH_FNV_SEED, r->holder, strlen(r->holder) + 1);

	h = hash_fnv(h, r->incarnation, strlen(r->incarnation) + 1);
	return h ^ (r->term ? r->term : (uint64_t)r->transitions) * UINT64_C(0x9e3779b97f4a7c15);
}

struct lease_sight author_sight(const struct author *a, const struct record *r)
{
	struct lease_sight s = {
		.kind = SIGHT_HELD,
		.id = record_sight_id(r),
		.who = holder_in_term(r),
		.write = record_write_id(r),
		.mine = author_holds(a, r),
		.duration = r->lease_ms * NSEC_PER_MS,
		.term = r->term,
		.count = *r->incarnation ? r->writes : 0, /* without one it is not one process' record */
		.other_first = next_record_other_first(r, a->identity, a->incarnation),
		.fencing = record_fences(r),
	};

	if (!*r->holder)
		s.kind = r->state == RECORD_LEADING ? SIGHT_EMPTIED : SIGHT_RELEASED;
	s.reclaim = !s.mine && author_reclaims(a, r);
	s.namesake = !s.mine && strcmp(r->holder, a->identity) == 0;
	return s;
}

/* ---- what is written ---- */

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static void author_sign(const struct author *a, struct record *r, const struct author_write *w)
{
	mem_replace(&r->holder, a->identity);
	mem_replace(&r->address, a->address);
	proof_self_fill(a->self, r);
	if (strcmp(a->incarnation, a->self->incarnation) != 0) {
		/* A copy of this process has the same boot id, pid and tree file, so the death of neither can be
		 * proved. */
		snprintf(r->incarnation, sizeof r->incarnation, "%s", a->incarnation);
		mem_replace(&r->tree, "");
	}
	r->state = RECORD_LEADING;
	r->term = w->term;
	r->lease_ms = w->times->lease / NSEC_PER_MS;
	r->renew_ms = w->times->renew / NSEC_PER_MS;
	r->retry_ms = w->times->retry / NSEC_PER_MS;
}

/* Whether the newest of the past terms is the one that the record shows as released. */
static bool has_noted(const struct record *r)
{
	struct past_term t;
	struct past p;

	past_term_set(&t, r->previous_holder, r->token, r->acquired_us, r->renewed_us, NULL);
	past_parse(&p, r->past);
	return p.count > 0 && p.term[p.count - 1].token == t.token && p.term[p.count - 1].from_us == t.from_us;
}

/* Notes the term that this write finds in the record. Of another holder's end only its last renewal is known. A
 * version that does not know past terms releases without noting its own term. A person who empties a record by hand
 * removes the holder's name. */
static void note_predecessor(const struct author *a, struct record *r, const struct author_write *w)
{
	if (w->what == LEASE_NEXT_TERM)
		r->renewed_us = larger(w->wall_us, r->acquired_us);
	if (*r->holder)
		record_note_past(r, r->holder, r->token || !author_holds(a, r) ? r->token : w->last_token, w->ended);
	else if (r->state == RECORD_RELEASED && *r->previous_holder && !has_noted(r))
		record_note_past(r, r->previous_holder, r->token, *r->forced ? "forced" : "released");
}

static void set_debt(struct record *r, struct debt *d)
{
	free(r->unfenced);
	r->unfenced = debt_text(d);
	debt_fini(d);
}

static void author_book(const struct author *a, struct record *r, const struct author_write *w, int64_t token)
{
	const struct debt_candidate self = author_candidate(a, w->dead || author_reclaims(a, r));
	struct debt d = { 0 };

	debt_acquire(&d, r, &self, token, w->wall_us);
	r->fencing = debt_to_fence(&d, &self) ? w->term : 0;
	set_debt(r, &d);
}

/* Its own entry gets the token, which the store may have made, and the address, which may be another one by now. */
static void author_keep_booked(const struct author *a, struct record *r, const struct author_write *w)
{
	const struct debt_candidate self = author_candidate(a, false);
	struct debt d = { 0 };

	r->fencing = w->fencing ? w->term : 0;
	if (!a->fences)
		return;
	debt_parse(&d, r->unfenced);
	if (w->fenced)
		debt_fenced(&d, &self);
	debt_keep(&d, &self, w->token, w->acquired_us);
	if (!debt_bars(&d, &self))
		set_debt(r, &d);
	debt_fini(&d);
}

static void author_settle(const struct author *a, struct record *r)
{
	struct debt d = { 0 };

	r->fencing = 0;
	if (!r->unfenced)
		return;
	debt_parse(&d, r->unfenced);
	debt_settle(&d, a->identity, a->incarnation);
	set_debt(r, &d);
}

static void author_write_term(const struct author *a, struct record *r, const struct author_write *w)
{
	bool changes = strcmp(r->holder, a->identity) != 0;
	int64_t token = w->makes_token ? larger(larger(r->token, w->token) + 1, w->wall_us) : 0;

	author_book(a, r, w, token);
	note_predecessor(a, r, w);
	if (changes && *r->holder)
		mem_replace(&r->previous_holder, r->holder);
	if (strlen(r->previous_holder) > RECORD_PREVIOUS_MAX)
		mem_replace(&r->previous_holder, "");
	if (changes && w->exists && r->transitions < RECORD_TRANSITIONS_MAX)
		r->transitions++;
	mem_replace(&r->forced, "");
	mem_replace(&r->paid, "");
	r->acquired_us = r->renewed_us = w->wall_us;
	r->token = token;
	author_sign(a, r, w);
}

/* The time of the write that replaces this record of ours. client-go counts times in whole seconds, and takes a record
 * for silent while they do not change. A clock that was set back must not let the time stand still, nor go back. So it
 * goes on from the one in the record, by what has passed since. */
static int64_t renewal_time(const struct record *r, const struct author_write *w)
{
	int64_t passed_us = w->since_renewal / 1000 + 1;

	if (r->renewed_us == RECORD_TIME_UNKNOWN || r->renewed_us > RECORD_TIME_MAX - passed_us)
		return w->wall_us;
	return larger(w->wall_us, r->renewed_us + passed_us);
}

static void author_write_release(const struct author *a, struct record *r, const struct author_write *w)
{
	int64_t renewed_us = renewal_time(r, w);

	r->renewed_us = larger(w->wall_us, r->acquired_us); /* when the term ends, for people alone */
	record_note_past(r, a->identity, w->token, w->ended);
	r->renewed_us = renewed_us;
	author_settle(a, r);
	mem_replace(&r->previous_holder, a->identity);
	mem_replace(&r->holder, "");
	mem_replace(&r->address, "");
	r->state = RECORD_RELEASED;
}

/* Whether the term of this write was handed over to this candidate: the release said so, and then its own records. */
static bool was_handed(const struct author *a, const struct record *r, const struct author_write *w)
{
	bool kept = w->what == LEASE_RENEW && author_holds(a, r), given = w->what == LEASE_ACQUIRE && !*r->holder;

	return (kept || given) && advice_has(r->advice, ADVICE_FOR) && r->advice->handed_over &&
	       strcmp(r->advice->given.identity, a->identity) == 0 &&
	       strcmp(r->advice->given.incarnation, a->incarnation) == 0;
}

/* Advice holds only for the write that carries it: what another process, or an earlier write, said is dropped. */
static void author_advise(const struct author *a, struct record *r, const struct author_write *w)
{
	struct advice to = ADVICE_NONE;

	to.handed_over = was_handed(a, r, w);
	if (to.handed_over)
		to.given = r->advice->given;
	if (w->advice && w->what == LEASE_RENEW) {
		to.next = w->advice->next;
		to.wanted = w->advice->wanted;
	} else if (w->advice && w->what == LEASE_RELEASE) {
		to.given = w->advice->next;
		to.given.address = ""; /* only the identity and the incarnation say for which candidate it is */
		to.handed_over = w->hands_over;
	}
	bool says = *to.given.identity || *to.next.identity || *to.wanted.name;
	advice_replace(&r->advice, says ? &to : NULL);
}

void author_write(const struct author *a, struct record *r, const struct author_write *w)
{
	author_advise(a, r, w);
	if (w->what == LEASE_ACQUIRE || w->what == LEASE_NEXT_TERM) {
		author_write_term(a, r, w);
		return;
	}
	r->token = w->token;
	if (w->what == LEASE_RELEASE) {
		author_write_release(a, r, w);
		return;
	}
	r->renewed_us = renewal_time(r, w);
	r->acquired_us = w->acquired_us;
	author_keep_booked(a, r, w);
	author_sign(a, r, w);
}
