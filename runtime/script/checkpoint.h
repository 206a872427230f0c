/* A term's checkpoint in the worker: the one that the record is known to hold, and the newer one that is being saved.
 * It does not write the record: the elector does, and answers. lua/api/checkpoint.lua turns Lua values into texts.
 * Used by term.c. */
#pragma once

#include "script/election.h"

struct checkpoint;

struct checkpoint *checkpoint_new(struct election *e, uint64_t term, const char *checkpoint); /* "" = none */
void checkpoint_free(struct checkpoint *s); /* tasks that wait for a save get the error "ended". NULL: nothing */

/* The term is over: sends the save that waits for an answer to the one before it. Its own answer will be ignored. */
void checkpoint_flush(struct checkpoint *s);

/* WIRE_SAVED of this term has come. */
void checkpoint_answered(struct checkpoint *s, const struct wire_saved *r);

/* Natives for lua/api/checkpoint.lua; term.c calls them with their arguments on the stack. s is NULL if the term is
 * over: then they return nil and the error "ended". [-0, +(1|2), v|yields]
 *
 * push: checkpoint(term) -> the text in the record, the newest text asked for ("": none) | nil, err
 *
 * save: save(term, text, timeout, no_wait) -> true | nil, err. With no_wait it returns as soon as the save is sent, so
 * a task that is over may call it, too. */
int checkpoint_push(lua_State *L, struct checkpoint *s);
int checkpoint_save(lua_State *L, struct checkpoint *s);
