/* A term's checkpoint in the worker: what the record is known to hold, and what is on its way there.
 * Not the record: the elector puts it in there, and says when it is known to be. Not its form: lua/api/checkpoint.lua.
 * Used by term.c; natives for lua/. */
#ifndef LUNARCH_CHECKPOINT_H
#define LUNARCH_CHECKPOINT_H

#include "script/election.h"

struct checkpoint;

struct checkpoint *checkpoint_new(struct election *e, uint64_t term, const char *checkpoint); /* "" = none */
void checkpoint_free(struct checkpoint *s); /* whoever waits is told that the term is over. NULL is nothing */

/* The term is over: what waits its turn goes out now. No answer to it is heard. */
void checkpoint_flush(struct checkpoint *s);

/* WIRE_SAVED behind slot and term. false: malformed. s NULL: nobody waits any more. */
bool checkpoint_answered(struct checkpoint *s, struct wire *w);

/* Adds to the table at the top of the stack: checkpoint(term) -> what the record holds, what it is about to hold
 * (texts, "" for nothing) | nil, err; and save(term, text, timeout, no_wait) -> true | nil, err, or at once, on its
 * way, which a task that is over can do too. [-0, +0, m] */
void checkpoint_bind(lua_State *L);

#endif
