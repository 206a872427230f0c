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

/* WIRE_SAVED of this term. */
void checkpoint_answered(struct checkpoint *s, const struct wire_saved *r);

/* Natives for lua/, called by the term's with the same stack; s NULL: the term is over, which is their error "ended".
 * push: checkpoint(term) -> what the record holds, what it is about to hold (texts, "" for nothing) | nil, err.
 * save: save(term, text, timeout, no_wait) -> true | nil, err; with no_wait at once, on its way, which a task that is
 * over can do too. [-0, +(1|2), v|yields] */
int checkpoint_push(lua_State *L, struct checkpoint *s);
int checkpoint_save(lua_State *L, struct checkpoint *s);

#endif
