/* One election of the script: its table, and the hooks that run outside any term: on_start, on_new_leader,
 * on_no_leader, may_lead.
 * Not its terms (term.h). It does not decide who leads: the elector does, and sends messages.
 * Used by script.c and term.c. */
#pragma once

#include "process/wire.h"
#include "script/script_state.h"

struct news;
struct asking;
struct term;
struct next;

struct election {
	struct script *script;
	uint32_t index;        /* in the script's list; its slot of the page, too */
	uint32_t slot;         /* of an election with slots, from 1 on; 0: it has none */
	bool kept;             /* this worker has it; false: another worker has, or the elector has not said yet */
	int table;             /* registry reference of the election's table in the script */
	char *name;            /* "" = it has none */
	char *lock, *identity; /* from the elector; NULL until it has sent them */
	struct log_about about;
	struct scope scope;            /* of the hooks outside any term */
	struct term *term;             /* the running term; NULL: none */
	struct next *nexts;            /* on_next that runs, is over and not gone, or was taken by a term; next.h */
	uint64_t term_number;          /* the number of the running or last term */
	struct news *leader;           /* the known leader; NULL: none */
	struct news *news, **news_end; /* changes of leader whose hooks have not run, oldest first */
	unsigned untold;               /* how many they are */
	bool telling;                  /* on_new_leader or on_no_leader runs */
	char *ask_error;               /* of the last may_lead, which is logged once; NULL: it did not fail */
	struct asking *asking;         /* the running may_lead; NULL: none */
};

/* Pops the election's table from the main thread's stack. slot: 0 = the election has none. [-1, +0, m] */
void election_init(struct election *e, struct script *s, uint32_t index, const char *name, uint32_t slot);
void election_fini(struct election *e);

/* Pushes the hook. false, and nothing is pushed: the script has no such hook. [-0, +(0|1), m] */
bool election_push_hook(struct election *e, const char *name);

/* This worker has the election from now on. */
void election_keep(struct election *e, const char *lock, const char *identity);

/* Runs on_start of every kept election from s->starting on, one after the other; then sends WIRE_STARTED. */
void election_start_all(struct script *s);

bool election_ask(struct election *e, struct wire *w);       /* WIRE_ASK */
bool election_leader(struct election *e, struct wire *w);    /* WIRE_LEADER */
bool election_no_leader(struct election *e, struct wire *w); /* WIRE_NO_LEADER */

/* The election whose hook or task runs on L, or the only one. Raises where there is none, or none known yet; what:
 * names the caller in the error. [-0, +0, v] */
struct election *election_here(lua_State *L, struct script *s, const char *what);

/* Adds the table `election` to the globals. [-0, +0, m] */
void election_bind(lua_State *L, struct script *s);
