/* One election of the script: its table, and the hooks that run outside any term: on_start, on_new_leader,
 * on_no_leader, may_lead.
 * Not its terms (term.h), and not the election itself: who leads is decided elsewhere and comes as messages.
 * Used by script.c and term.c. */
#ifndef LUNARCH_ELECTION_H
#define LUNARCH_ELECTION_H

#include "process/wire.h"
#include "script/script_state.h"

struct news;
struct asking;
struct term;

struct election {
	struct script *script;
	uint32_t index;        /* in the script's list; its slot of the page, too */
	bool kept;             /* false: it lives in another worker, or has not been told yet */
	int table;             /* registry reference of the script's table */
	char *lock, *identity; /* as the elector says; NULL until then */
	struct log_about about;
	struct scope scope;            /* of its hooks outside any term */
	struct term *term;             /* term.c's; NULL: none runs */
	uint64_t term_number;          /* its number */
	struct news *leader;           /* NULL: nobody leads, as far as is known */
	struct news *news, **news_end; /* not told yet, oldest first */
	unsigned untold;
	bool telling;          /* a hook is being told */
	struct asking *asking; /* may_lead runs; NULL: it does not */
};

/* Takes the table at the top of the main thread's stack. [-1, +0, m] */
void election_init(struct election *e, struct script *s, uint32_t index);
void election_fini(struct election *e);

/* Leaves the hook; false, and leaves nothing, if the script has none of that name. [-0, +(0|1), m] */
bool election_push_hook(struct election *e, const char *name);

/* The elector keeps it in this worker. */
void election_keep(struct election *e, const char *lock, const char *identity);

/* Runs on_start of every kept election from s->starting on, one after the other; then sends WIRE_STARTED. */
void election_start_all(struct script *s);

bool election_ask(struct election *e, struct wire *w);       /* WIRE_ASK */
bool election_leader(struct election *e, struct wire *w);    /* WIRE_LEADER */
bool election_no_leader(struct election *e, struct wire *w); /* WIRE_NO_LEADER */

/* Adds the table `election` to the globals. [-0, +0, m] */
void election_bind(lua_State *L, struct script *s);

#endif
