/* Who comes next in one election: the record beside the lock's record, through a lock of its own, and the machine
 * that decides what to do with it (lease/next.h). It keeps the names and addresses for that machine's numbers.
 * Not the election: it looks at no lease, and ends no term. What it finds is advice, and nobody's safety depends on
 * it.
 * Used by the elector. */
#pragma once

#include "base/log.h"
#include "election/author.h"
#include "election/next.h"
#include "lease/next_record.h"
#include "locks/lock.h"

struct buf;
struct next_link;
struct timeline;

/* All may be called from inside a next_link_ function, and may call next_link_ functions, but for next_link_free. */
struct next_link_callbacks {
	void (*next)(void *arg, bool is); /* is: it comes next now. Else it no longer comes next, and does not lead */
	void (*publish)(void *arg);       /* a leader: what the lock's record says of it is to be written now */
	void (*hand_over)(void *arg, enum next_why why);
	void (*not_handed_over)(void *arg, const char *why);
	void (*settled)(void *arg);                              /* next_link_settled has become true */
	void (*written)(void *arg, const struct lock_result *r); /* the store took a write, or takes none: WRITE_FULL */
	/* This candidate is about to write itself into the record: sets poke and poke_key, which last until listen
	 * returns and the record is filled, or leaves them. */
	void (*listen)(void *arg, struct advice_candidate *who);
	void (*agreed)(void *arg);   /* the leader has its yes: the lock is about to be released for this candidate */
	void (*namesake)(void *arg); /* a leader: the record is written by another candidate with its identity */
	void (*say)(void *arg, enum log_level level, const char *event, const char *text);
};

struct next_link_config { /* borrowed for next_link_new only, but for env, timeline and author, which outlive it */
	struct lock_env *env;
	struct timeline *timeline;
	const struct author *author;
	const struct lock *lock; /* the election's lock */
	const char *url;         /* the URL with which `lock` was opened */
	struct next_setup options;
	uint32_t seed; /* not 0 */
};

/* Where the lock has no place for the record, everything below works without one, and nobody ever comes next. */
struct next_link *next_link_new(const struct next_link_config *c, const struct next_link_callbacks *cb, void *arg);
void next_link_free(struct next_link *l);
void next_link_configure(struct next_link *l, const struct next_setup *o);

/* ---- what the election tells it ---- */

void next_link_role(struct next_link *l, enum next_role role, uint64_t term); /* term: of a leader; else 0 */
/* lacks: why it could not lead now, of readiness_lacks, which outlives the link; NULL: it could. Of a leader the
 * priority alone counts. */
void next_link_ready(struct next_link *l, const char *lacks, int64_t priority);
void next_link_awake(struct next_link *l); /* the process does something for the lease: next_shares */
void next_link_heard(struct next_link *l, const struct record *m); /* the lock's record, by another process or nobody */
/* This process has another incarnation from now on, as the author says: nothing of the old one is its own any more. */
void next_link_renamed(struct next_link *l);
/* It begins to lead, which its user hears next. true: it came next until now. next_link_role may follow later. */
bool next_link_leads(struct next_link *l);

/* The leader, where no such request is under way: hands over to `to`, or to whoever comes next (""). Answered by
 * hand_over, or by not_handed_over. -1 with *err: the lock has no place for it, or nobody could come next. */
int next_link_handover(struct next_link *l, const char *to, nsec timeout, struct err *err);

/* ---- what the election asks it ---- */

/* What a write of this term says: next, wanted. Its texts are borrowed until the next next_link_ call. false: nothing. */
bool next_link_advice(const struct next_link *l, uint64_t term, struct advice *out);

/* Whether the record no longer names this candidate, as far as it knows, so that nobody is sent to it after it has
 * gone. */
bool next_link_settled(const struct next_link *l);

/* m: the lock's record as it was last seen. able and unable_why are the caller's, unless the record is the reason. */
void next_link_status(const struct next_link *l, const struct record *m, struct elector_next *out);
