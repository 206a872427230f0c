/* One election as run, exec and `lunarch test` open it: its settings, its elector, and what stands around that: the
 * Service, the answer to an operator who asked for a hand-over, how long renewals took. Not its term (term_hooks.h), and not who
 * leads (elector.h).
 * Used by candidate.c, term_supervision.c and the rooms exec and simulation. */
#pragma once

#include "config/election_settings.h"
#include "election/elector.h"
#include "program/admin_metrics.h"
#include "program/program.h"

struct campaign { /* read by its users */
	const struct options *options;
	struct program *program; /* NULL: none, in a simulation */
	struct lease_times times;
	struct next_options next;        /* both in force */
	struct elector *elector;         /* NULL until it is open */
	struct fence *fence;             /* NULL: no --fence */
	struct service_order *service;   /* NULL: no --service */
	struct admin_renewals *renewals; /* NULL: there is no admin endpoint, or no renewal yet */
	void (*handed_over)(void *arg, const struct handover_result *r); /* the operator has the answer; may be NULL */
	void *arg;
};

/* c: zeroed, or filled by campaign_read. A campaign outside a program has its options set and does without this
 * call. */
void campaign_init(struct campaign *c, struct program *p);

/* In all of these s is NULL where there is no script. -1 with *err, which names the place in the script. */

/* The settings of its elector, which takes them when it is opened, or by campaign_configure. */
int campaign_read(struct campaign *c, const struct election_settings *s, struct err *err);

struct campaign_place { /* what an election is opened in; as in elector_config */
	struct lock_env *env;
	struct timeline *timeline;
	const struct proof_self *self;
	struct death_watches *death_watches;
	struct poke_sockets *pokes;
	const char *lock;    /* URL */
	struct lock *opened; /* a simulated one, beside which no Service is kept: taken or closed. NULL: it is opened */
	const char *identity; /* NULL: as the settings say */
	uint32_t seed;
	bool several;     /* the script has more elections */
	const char *name; /* of an election without a script; NULL: none */
};
struct campaign_place campaign_place(struct program *p, const char *lock, bool several);

/* Makes the elector, which does not campaign yet. */
int campaign_open(struct campaign *c, const struct campaign_place *at, const struct election_settings *s,
                  const struct elector_callbacks *cb, void *arg, struct err *err);

/* A reload: the elector takes what campaign_read has read. */
void campaign_configure(struct campaign *c, const struct election_settings *s);

/* Fills both with what is told of every election; borrowed until the next event. */
void campaign_stand(const struct campaign *c, struct standing *out, struct elector_status *status);

/* What the elector says: its user hands these on. */
void campaign_renewed(struct campaign *c, nsec took);
void campaign_handed_over(struct campaign *c, uint64_t ticket, const struct handover_result *r);

void campaign_fini(struct campaign *c); /* also of a zeroed one */
