/* This process as the author of an election's records: which records are its own, what each shows the lease, and
 * what it writes. Not when it writes, nor who leads: lease.h decides that. Checkpoints are in saves.h.
 * No I/O, and no clock: times are passed in. Used by the elector. */
#pragma once

#include "election/death_proof.h"
#include "lease/debt_record.h"
#include "lease/lease.h"
#include "lease/record.h"

struct author { /* fields are read by the elector, and changed by author_ functions and elector_answer (address) */
	const struct proof_self *self; /* borrowed */
	char *identity, *address;
	char incarnation[37]; /* the process', until a copy of the process is found to write under it, too */
	bool named;           /* the identity was given, so it does not contain the incarnation */
	/* Its terms have a fence. They book themselves as debtors (lease/debt.h), since who has one asks it of the others. */
	bool fences;
	char *carried; /* the debt of a record that is gone; NULL: none */
	bool reclaims; /* the identity lives only once: an earlier incarnation that holds the lease is dead */
};

/* identity NULL or "": HOSTNAME_INCARNATION. address NULL: "". */
void author_init(struct author *a, const struct proof_self *self, const char *identity, const char *address,
                 bool reclaims);
void author_fini(struct author *a);

/* Whether this incarnation holds the lease by this record. */
bool author_holds(const struct author *a, const struct record *r);

/* What the record shows, but for low_token, which depends on more than one record. */
struct lease_sight author_sight(const struct author *a, const struct record *r);

/* The record `last`, which was seen, is gone: its debt is carried to the next record that this process writes, unless
 * another one has it before. dead: as below. */
void author_lost(struct author *a, const struct record *last, bool dead);
void author_saw(struct author *a, const struct record *r); /* a record that was read, or written */

/* Why this candidate must not acquire the lock in place of this record; NULL: it may. dead: its holder is proved dead.
 * Static text. */
const char *author_barred(const struct author *a, const struct record *r, bool dead);

/* Takes a new incarnation, and a new identity unless it was given, since another process has the old ones. The old
 * evidence proves nobody's death any more, since the copy shares it. */
void author_become_another(struct author *a);

struct author_write {
	enum lease_write what;
	const struct lease_times *times; /* to be published; not used by RELEASE */
	bool exists;                     /* the store has a record, which this write replaces */
	bool makes_token;                /* ACQUIRE, NEXT_TERM: the token is made here; else the store makes it */
	int64_t token; /* RENEW, RELEASE: the term's. ACQUIRE, NEXT_TERM: the largest that this process has seen */
	uint64_t term; /* not used by RELEASE */
	int64_t acquired_us; /* RENEW: when the term was acquired */
	int64_t wall_us;     /* now, by the wall clock */
	nsec since_renewal;  /* RENEW, RELEASE: since the write on which the term rests was sent */
	/* The advice of this term. RENEW: who comes next, and who is wanted. RELEASE: for whom. NULL: none */
	const struct advice *advice;
	bool hands_over; /* RELEASE: the term was handed over */
	/* For the record's past terms (past.h); not used by RENEW. ended: why the term that this write closes has
	 * ended (NULL: unknown). last_token: that of our own term that runs, or ran last. */
	const char *ended;
	int64_t last_token;
	bool dead;    /* ACQUIRE: the holder that the record shows is proved dead, with all that it started */
	bool fencing; /* RENEW: the term has not begun, since earlier ones are being fenced */
	bool fenced;  /* RENEW: they are, so it begins */
};

/* r: the record as it was last seen; becomes what is written, but for checkpoint, write and writes. */
void author_write(const struct author *a, struct record *r, const struct author_write *w);
